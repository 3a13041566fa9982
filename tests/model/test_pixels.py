"""Pictures become the numbers that a model was trained with."""

import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from regard.data.image_files import parse_normalization, read_pixels
from regard.data.images import Normalization
from regard.errors import FileError, InputError, ShapeError


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
    with pytest.raises(ShapeError, match=r"shape \(2, 3, 4, 6\); give one image"):
        read(torch.zeros(2, 3, 4, 6))


def test_what_is_no_picture_is_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(FileError, match=r"a\.png is no image"):
        read(tmp_path / "a.png")
    with pytest.raises(FileError, match=r"b\.png"):
        read(tmp_path / "b.png")
    with pytest.raises(InputError, match="5 channels, which no picture has"):
        read(Image.new("L", (2, 2)), n_channels=5)


def test_a_normalization_is_two_lists_of_numbers():
    assert parse_normalization({"mean": [0.5], "deviation": [1]}) == Normalization((0.5,), (1.0,))
    assert parse_normalization(None) is None
    for wrong in ({}, {"mean": [1], "deviation": [0]}, {"mean": ["x"], "deviation": [1]}):
        with pytest.raises(InputError, match="pixels are described by"):
            parse_normalization(wrong)
