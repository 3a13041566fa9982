"""Images: files, normalization by hand, reproducible augmentation."""

import gzip

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from torch.testing import assert_close

from regard.data.image_files import read_idx, read_image, read_images, read_pixels
from regard.data.images import Augmentation, Images, Normalization, center_crop, parse_normalization
from regard.errors import FileError, InputError, ShapeError
from regard.files import zstd

PIXELS = np.random.default_rng(0).integers(1, 256, (40, 6, 8, 3), dtype=np.uint8)
IMAGES = Images(PIXELS, np.arange(40) % 4, ("a", "b", "c", "d"))


def change(augmentation, pixels=PIXELS, **options):
    settings = {"seed": 0, "epoch": 0, "examples": range(len(pixels))} | options
    return augmentation.apply(pixels, **settings)


def test_normalization_by_hand():
    # black and white pixels in equal parts: mean 1/2, deviation 1/2, so they become -1 and 1
    pixels = np.array([0, 255, 255, 0], np.uint8).reshape(1, 2, 2, 1)
    images = Images(pixels, np.zeros(1, np.int64), ("x",))
    normalization = Normalization.of(images)
    assert_allclose([normalization.mean, normalization.deviation], [[0.5], [0.5]])
    assert_allclose(normalization.apply(pixels), [[[[-1, 1], [1, -1]]]], atol=1e-6)


def test_normalized_channels_have_mean_zero_and_deviation_one():
    floats = Normalization.of(IMAGES).apply(PIXELS)
    assert floats.shape == (40, 3, 6, 8)
    assert floats.dtype == np.float32
    assert_allclose(floats.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    assert_allclose(floats.std(axis=(0, 2, 3)), 1, atol=1e-5)
    mean = PIXELS.reshape(-1, 3).mean(axis=0) / 255
    assert_allclose(Normalization.of(IMAGES).mean, mean)


def test_a_channel_of_one_value_becomes_zero_and_not_nan():
    flat = Images(np.full((2, 2, 2, 1), 7, np.uint8), np.zeros(2, np.int64), ("x",))
    assert_allclose(Normalization.of(flat).apply(flat.pixels), 0, atol=1e-6)


def test_without_options_nothing_changes():
    assert_array_equal(change(Augmentation()), PIXELS)


def test_flipping_mirrors_about_half_of_the_pictures():
    changed = change(Augmentation(flip=True), np.repeat(PIXELS, 10, axis=0))
    original = np.repeat(PIXELS, 10, axis=0)
    same = (changed == original).all(axis=(1, 2, 3))
    mirrored = (changed == original[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (same ^ mirrored).all()
    assert 0.4 < same.mean() < 0.6


def test_shifting_moves_every_way_and_brings_in_black():
    one = np.repeat(PIXELS[:1], 400, axis=0)
    changed = change(Augmentation(shift=1), one)
    padded = np.pad(PIXELS[0], ((1, 1), (1, 1), (0, 0)))
    windows = {
        padded[top : top + 6, left : left + 8].tobytes() for top in range(3) for left in range(3)
    }
    assert {picture.tobytes() for picture in changed} == windows


def test_cropping_cuts_squares_from_every_place():
    changed = change(Augmentation(crop=5), np.repeat(PIXELS[:1], 300, axis=0))
    assert changed.shape == (300, 5, 5, 3)
    squares = {PIXELS[0, t : t + 5, x : x + 5].tobytes() for t in range(2) for x in range(4)}
    assert {picture.tobytes() for picture in changed} == squares


def test_changes_do_not_depend_on_the_batch():
    augmentation = Augmentation(shift=2, flip=True)
    together = change(augmentation)
    assert_array_equal(change(augmentation, PIXELS[[5, 30]], examples=[5, 30]), together[[5, 30]])
    assert (change(augmentation, epoch=1) != together).any()
    assert (change(augmentation, seed=1) != together).any()


def test_center_crop():
    assert_array_equal(center_crop(PIXELS, 4), PIXELS[:, 1:5, 2:6])
    with pytest.raises(InputError, match="A square of 7 does not fit in 6 × 8 pixels"):
        center_crop(PIXELS, 7)
    with pytest.raises(InputError, match="A square of 9 does not fit"):
        change(Augmentation(crop=9))


@pytest.mark.parametrize(
    ("pixels", "labels", "message"),
    [
        (PIXELS[0], np.zeros(6, np.int64), "image × height × width × channel"),
        (PIXELS.astype(float), np.zeros(40, np.int64), "float64 of shape"),
        (PIXELS, np.zeros(39, np.int64), "40 images have 39 labels"),
        (PIXELS, np.full(40, 2), "Labels are 2 to 2; with 2 classes they must be 0 to 1"),
        (PIXELS, np.full(40, -1), "Labels are -1"),
    ],
)
def test_arrays_that_are_not_images_are_refused(pixels, labels, message):
    with pytest.raises(InputError, match=message):
        Images(pixels, labels, ("a", "b"))


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
    with pytest.raises(InputError, match=r"3\.png is 9 × 9 pixels and the images before it 6 × 8"):
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
def test_a_file_that_is_not_an_image_is_named(folder, damage):
    path = folder / "tomato" / "9.png"
    Image.effect_noise((40, 40), 90).save(path)
    contents = {"text": b"words", "cut": path.read_bytes()[:300], "empty": b""}
    path.write_bytes(contents[damage])
    with pytest.raises(FileError, match=r"9\.png is not an image"):
        read_images(folder)


def test_a_folder_without_pictures_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no images: it needs one folder of images"):
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
        InputError, match="has the arrays images; it needs one of labels, label, y, targets"
    ):
        read_images(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", images=np.array([{}], dtype=object), labels=[0])
    with pytest.raises(FileError, match=r"not an \.npz of plain arrays"):
        read_images(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(FileError, match=r"not an \.npz of plain arrays"):
        read_images(tmp_path / "c.npz")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress])
def test_idx_is_read_packed_and_plain_with_its_labels(tmp_path, pack):
    end = {bytes: "", gzip.compress: ".gz", zstd.compress: ".zst"}[pack]
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
        (b"", "is not an idx file of bytes"),
        (b"\x00\x00\x0d\x01", "is not an idx file of bytes"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], "ends after 5 of 6 bytes"),
        (idx(np.zeros((2, 3), np.uint8))[:9], "ends after 5 of 8 bytes"),
        (idx(np.zeros((2, 3), np.uint8)) + b"x", "longer than its header says"),
        (b"\x00\x00\x08\x04" + b"\xff" * 16, "download it again"),
    ],
)
def test_idx_files_that_are_damaged_are_named(tmp_path, contents, message):
    (tmp_path / "a").write_bytes(contents)
    with pytest.raises(FileError, match=message):
        read_idx(tmp_path / "a")


def test_idx_without_labels_and_other_files_are_refused(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(np.zeros((1, 2, 2), np.uint8)))
    with pytest.raises(
        FileError, match="needs its labels in the same folder, in train-labels-idx1-ubyte"
    ):
        read_images(tmp_path)
    (tmp_path / "a.pdf").write_text("x")
    with pytest.raises(InputError, match=r"is neither an \.npz nor an idx file"):
        read_images(tmp_path / "a.pdf")


@pytest.mark.data("fashion-mnist")
def test_fashion_mnist_is_read_from_its_folder(data):
    images = read_images(data / "fashion-mnist", split="t10k")
    assert images.pixels.shape == (10_000, 28, 28, 1)
    assert np.bincount(images.labels).tolist() == [1000] * 10
    assert images.labels[:5].tolist() == [9, 2, 1, 1, 6]


def read(image, *, normalization=None, n_channels=3, size=2):
    return read_pixels(image, normalization=normalization, n_channels=n_channels, size=size)


def test_a_pixel_minus_mean_over_deviation_by_hand():
    red = Image.new("RGB", (4, 4), (255, 0, 51))
    scale = Normalization((0.5, 0.5, 0.2), (0.25, 0.5, 0.1))
    # (1 - .5) / .25 = 2, (0 - .5) / .5 = -1, (.2 - .2) / .1 = 0
    expected = torch.tensor([2.0, -1.0, 0.0]).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    assert_close(read(red, normalization=scale), expected)


def test_a_file_and_a_picture_in_memory_give_the_same_numbers(tmp_path):
    picture = Image.linear_gradient("L").convert("RGB")
    picture.save(tmp_path / "a.png")
    assert torch.equal(read(picture, size=5), read(str(tmp_path / "a.png"), size=5))
    assert read(picture, size=5).abs().max() <= 1


def test_a_model_of_one_channel_reads_grey():
    grey = read(Image.new("RGB", (4, 4), (255, 255, 255)), n_channels=1)
    assert_close(grey, torch.ones(1, 1, 2, 2))


def test_a_tensor_is_taken_as_it_is():
    image = torch.randn(3, 4, 6)
    assert torch.equal(read(image), image[None])
    assert torch.equal(read(image[None]), image[None])
    with pytest.raises(ShapeError, match=r"shape \(2, 3, 4, 6\); give one"):
        read(torch.zeros(2, 3, 4, 6))


def test_files_that_are_not_images_are_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(b"not an image")
    with pytest.raises(FileError, match=r"a\.png is not an image"):
        read(tmp_path / "a.png")
    with pytest.raises(FileError, match=r"b\.png"):
        read(tmp_path / "b.png")
    with pytest.raises(InputError, match="5 channels, not 1 or 3"):
        read(Image.new("L", (2, 2)), n_channels=5)


def test_a_normalization_is_two_lists_of_numbers():
    assert parse_normalization({"mean": [0.5], "deviation": [1]}) == Normalization((0.5,), (1.0,))
    assert parse_normalization(None) is None
    for wrong in ({}, {"mean": [1], "deviation": [0]}, {"mean": ["x"], "deviation": [1]}):
        with pytest.raises(InputError, match="pixels are described by"):
            parse_normalization(wrong)
