"""Patches lie where the image has them, and positions reach images of other sizes."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import regard
from regard.errors import InputError
from regard.layers.patch import (
    STEMS,
    PatchEmbedding,
    PatchGrid,
    cut,
    cut_grid,
    join,
    resize_positions,
)

GRID = PatchGrid(n_rows=2, n_columns=3, patch_size=4, first=1)


def test_an_image_is_cut_from_the_upper_left_by_hand():
    image = torch.arange(8.0).view(1, 1, 2, 4)  # 0 1 2 3 / 4 5 6 7
    assert cut(image, 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7]]]
    colors = torch.cat([image, 10 + image], dim=1)
    assert cut(colors, 2)[0, 1].tolist() == [2, 3, 6, 7, 12, 13, 16, 17]
    assert cut(image, 1).flatten().tolist() == list(range(8))


def test_projected_patches_equal_a_convolution_with_the_same_weights():
    torch.manual_seed(0)
    layer = PatchEmbedding(5, image_size=8, patch_size=4, n_channels=3, n_special=0)
    image = torch.randn(2, 3, 8, 12)
    kernel = layer.to_token.weight.view(5, 3, 4, 4)
    expected = F.conv2d(image, kernel, layer.to_token.bias, stride=4).flatten(2).transpose(1, 2)
    assert_close(layer.to_token(cut(image, 4)), expected)


def test_patches_join_to_the_image_they_were_cut_from():
    image = torch.randn(2, 3, 8, 12)
    assert torch.equal(join(cut(image, 4), cut_grid(8, 12, 4)), image)


def test_a_convolution_stem_halves_the_image_as_torch_does():
    torch.manual_seed(0)
    layer = PatchEmbedding(6, image_size=8, patch_size=4, n_special=0, stem="convolution")
    stem, image = layer.to_token, torch.randn(2, 3, 8, 12)
    expected = image
    for one in stem.halvings:
        expected = F.gelu(F.conv2d(expected, one.weight, one.bias, stride=2, padding=1))
    expected = stem.mix(expected.flatten(2).transpose(1, 2))
    assert expected.shape == (2, 6, 6)
    assert_close(stem(cut(image, 4), layer.grid(image)), expected)


def test_a_convolution_stem_sees_around_a_patch_and_a_linear_one_does_not():
    torch.manual_seed(0)
    image = torch.randn(1, 1, 8, 8)
    changed = image.clone()
    changed[..., 3, 3] += 1  # the last pixel of the first patch
    moved = {}
    for stem in STEMS:
        layer = PatchEmbedding(4, image_size=8, patch_size=4, n_channels=1, n_special=0, stem=stem)
        differ = (layer(image) != layer(changed)).any(dim=-1)
        moved[stem] = differ[0].tolist()
    assert moved["linear"] == [True, False, False, False]
    assert moved["convolution"] == [True, True, True, True]


@pytest.mark.parametrize(("patch_size", "d_model"), [(3, 8), (1, 8), (8, 6)])
def test_convolutions_refuse_what_they_cannot_halve(patch_size, d_model):
    with pytest.raises(InputError, match="convolution stem"):
        PatchEmbedding(d_model, image_size=24, patch_size=patch_size, stem="convolution")


def test_tokens_and_positions_are_added_by_hand():
    layer = PatchEmbedding(1, image_size=2, patch_size=1, n_channels=1, n_special=2)
    with torch.no_grad():
        layer.to_token.weight.fill_(10.0)
        layer.to_token.bias.fill_(1.0)
        layer.special.copy_(torch.tensor([[100.0], [200.0]]))
        layer.positions.copy_(torch.arange(6.0)[:, None])
    image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert layer(image).flatten().tolist() == [100, 201, 13, 24, 35, 46]


def test_positions_for_the_same_grid_are_untouched_and_a_flat_plane_stays_flat():
    positions = torch.randn(6, 4)
    assert resize_positions(positions, (2, 3), (2, 3)) is positions
    flat = torch.full((6, 4), 0.7)
    assert_close(resize_positions(flat, (2, 3), (5, 4)), torch.full((20, 4), 0.7))


def test_patches_and_positions_are_seen_and_changed():
    torch.manual_seed(1)
    layer = PatchEmbedding(3, image_size=4, patch_size=2, n_channels=1, path="encoder.embedding")
    image = torch.randn(1, 1, 4, 4)
    with regard.watch() as trace:
        expected = layer(image)
    assert_close(trace.value("encoder.embedding.patches"), cut(image, 2))
    summed = trace.value("encoder.embedding.tokens") + trace.value("encoder.embedding.positions")
    assert_close(summed, expected)
    with regard.watch(edits=[regard.set_value("encoder.embedding.positions", 0.0)]) as trace:
        assert_close(layer(image), trace.value("encoder.embedding.tokens"))
