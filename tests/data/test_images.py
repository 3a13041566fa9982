import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from regard.data.images import Augmentation, Images, Normalization, center_crop
from regard.errors import InputError

DICE = np.random.default_rng(0)
PIXELS = DICE.integers(1, 256, (40, 6, 8, 3), dtype=np.uint8)
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


def test_nothing_asked_changes_nothing():
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


def test_a_picture_changes_the_same_way_whatever_batch_it_is_in():
    augmentation = Augmentation(shift=2, flip=True)
    together = change(augmentation)
    assert_array_equal(change(augmentation, PIXELS[[5, 30]], examples=[5, 30]), together[[5, 30]])
    assert (change(augmentation, epoch=1) != together).any()
    assert (change(augmentation, seed=1) != together).any()


def test_the_middle_square_is_cut_for_testing():
    assert_array_equal(center_crop(PIXELS, 4), PIXELS[:, 1:5, 2:6])
    with pytest.raises(InputError, match="A square of 7 cannot be cut from 6 × 8 pixels"):
        center_crop(PIXELS, 7)
    with pytest.raises(InputError, match="A square of 9 cannot be cut"):
        change(Augmentation(crop=9))


@pytest.mark.parametrize(
    ("pixels", "labels", "message"),
    [
        (PIXELS[0], np.zeros(6, np.int64), "image × height × width × channel"),
        (PIXELS.astype(float), np.zeros(40, np.int64), "given were float64"),
        (PIXELS, np.zeros(39, np.int64), "40 images have 39 labels"),
        (PIXELS, np.full(40, 2), "Labels go from 2 to 2, and there are 2 classes"),
        (PIXELS, np.full(40, -1), "Labels go from -1"),
    ],
)
def test_arrays_that_are_no_images_are_refused(pixels, labels, message):
    with pytest.raises(InputError, match=message):
        Images(pixels, labels, ("a", "b"))


def test_channels_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="1 channels do not fit 3 means"):
        Normalization.of(IMAGES).apply(PIXELS[..., :1])
    assert len(IMAGES) == 40
