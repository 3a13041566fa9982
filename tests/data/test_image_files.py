import gzip

import numpy as np
import pytest
import zstandard
from numpy.testing import assert_array_equal
from PIL import Image

from regard.data.image_files import read_idx, read_image, read_images
from regard.errors import FileError, InputError

RED, GREEN = (200, 0, 0), (0, 200, 0)


def draw(path, color, size=(8, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return head + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    draw(tmp_path / "tomato" / "1.png", RED)
    draw(tmp_path / "tomato" / "more" / "2.bmp", RED)
    draw(tmp_path / "cucumber" / "1.png", GREEN)
    (tmp_path / "tomato" / ".DS_Store").write_text("x")
    (tmp_path / ".cache").mkdir()
    return tmp_path


def test_a_folder_for_each_class_is_read(folder):
    images = read_images(folder)
    assert images.classes == ("cucumber", "tomato")
    assert images.labels.tolist() == [0, 1, 1]
    assert images.pixels.shape == (3, 6, 8, 3)
    assert images.pixels[0, 0, 0].tolist() == list(GREEN)
    assert read_images(folder, classes=["tomato", "cucumber"]).labels.tolist() == [0, 0, 1]


def test_a_split_is_a_folder_in_the_folder(tmp_path):
    draw(tmp_path / "train" / "a" / "1.png", RED)
    draw(tmp_path / "test" / "a" / "1.png", GREEN)
    assert read_images(tmp_path).pixels[0, 0, 0].tolist() == list(RED)
    assert read_images(tmp_path, split="test").pixels[0, 0, 0].tolist() == list(GREEN)


def test_pictures_of_different_sizes_need_a_size(folder):
    draw(folder / "tomato" / "3.png", RED, size=(9, 9))
    with pytest.raises(InputError, match=r"3\.png is 9 × 9 pixels and the others before it 6 × 8"):
        read_images(folder)
    assert read_images(folder, size=(4, 5)).pixels.shape == (4, 4, 5, 3)


def test_grey_and_transparent_pictures_become_color_and_photographs_stand_upright(tmp_path):
    Image.new("L", (2, 3), 90).save(tmp_path / "grey.png")
    assert read_image(tmp_path / "grey.png")[0, 0].tolist() == [90, 90, 90]
    Image.new("RGBA", (2, 3), (*RED, 255)).save(tmp_path / "clear.png")
    assert read_image(tmp_path / "clear.png").shape == (3, 2, 3)
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held upright
    Image.new("RGB", (4, 2)).save(tmp_path / "turned.jpg", exif=turned)
    assert read_image(tmp_path / "turned.jpg").shape == (4, 2, 3)


@pytest.mark.parametrize("damage", ["text", "cut", "empty"])
def test_a_file_that_is_no_picture_is_named(folder, damage):
    path = folder / "tomato" / "9.png"
    Image.effect_noise((40, 40), 90).save(path)
    contents = {"text": b"words", "cut": path.read_bytes()[:300], "empty": b""}
    path.write_bytes(contents[damage])
    with pytest.raises(FileError, match=r"9\.png is no image that can be read"):
        read_images(folder)


def test_a_folder_without_pictures_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no images: one folder for each class"):
        read_images(tmp_path)
    with pytest.raises(FileError, match="does not exist"):
        read_images(tmp_path / "absent")


def test_npz_is_read_with_its_class_names_or_numbers(tmp_path):
    pixels = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4)
    np.savez(tmp_path / "a.npz", images=pixels, labels=[1, 0], classes=["x", "y"])
    images = read_images(tmp_path / "a.npz")
    assert_array_equal(images.pixels[..., 0], pixels)
    assert images.classes == ("x", "y")
    np.savez_compressed(tmp_path / "b.npz", x=pixels, y=np.array([[2], [0]]))
    images = read_images(tmp_path / "b.npz")
    assert (images.labels.tolist(), images.classes) == ([2, 0], ("0", "1", "2"))


def test_npz_that_lacks_something_or_hides_objects_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((1, 2, 2), np.uint8))
    with pytest.raises(
        InputError, match="holds images; one of labels, label, y, targets is needed"
    ):
        read_images(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", images=np.array([{}], dtype=object), labels=[0])
    with pytest.raises(FileError, match=r"no \.npz of plain arrays"):
        read_images(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(FileError, match=r"no \.npz of plain arrays"):
        read_images(tmp_path / "c.npz")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_idx_is_read_packed_and_plain_with_its_labels(tmp_path, pack):
    end = {bytes: "", gzip.compress: ".gz", zstandard.compress: ".zst"}[pack]
    pixels = np.arange(3 * 2 * 2, dtype=np.uint8).reshape(3, 2, 2)
    path = tmp_path / f"train-images-idx3-ubyte{end}"
    path.write_bytes(pack(idx(pixels)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.array([1, 0, 1], np.uint8)))
    for place in (path, tmp_path):
        images = read_images(place, classes=["shirt", "shoe"])
        assert_array_equal(images.pixels[..., 0], pixels)
        assert images.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "is no idx file of bytes"),
        (b"\x00\x00\x0d\x01", "is no idx file of bytes"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], "ends after 5 of 6 bytes"),
        (idx(np.zeros((2, 3), np.uint8))[:9], "ends after 5 of 8 bytes"),
        (idx(np.zeros((2, 3), np.uint8)) + b"x", "longer than its head says"),
        (b"\x00\x00\x08\x04" + b"\xff" * 16, "fetch it again"),
    ],
)
def test_idx_files_that_are_damaged_are_named(tmp_path, contents, message):
    (tmp_path / "a").write_bytes(contents)
    with pytest.raises(FileError, match=message):
        read_idx(tmp_path / "a")


def test_idx_without_labels_and_other_files_are_refused(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(np.zeros((1, 2, 2), np.uint8)))
    with pytest.raises(FileError, match="needs its labels beside it, in train-labels-idx1-ubyte"):
        read_images(tmp_path)
    (tmp_path / "a.pdf").write_text("x")
    with pytest.raises(InputError, match="is no image file this can read"):
        read_images(tmp_path / "a.pdf")


@pytest.mark.data("fashion-mnist")
def test_fashion_mnist_is_read_from_its_folder(data):
    images = read_images(data / "fashion-mnist", split="t10k")
    assert images.pixels.shape == (10_000, 28, 28, 1)
    assert np.bincount(images.labels).tolist() == [1000] * 10
    assert images.labels[:5].tolist() == [9, 2, 1, 1, 6]
