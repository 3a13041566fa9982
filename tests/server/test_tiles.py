"""Tiles and thumbnails: pooled as the page pools, of tables of any length."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.mask import causal
from regard.errors import InputError
from regard.server import arrays as tiles
from regard.server.arrays import Span, build_level, is_direct, pooled, thumbnails, tile
from regard.server.jobs import Canceled
from regard.trace.trace import watch


def nothing():
    """Nobody has gone."""


def site_of(n, n_heads=2, **options):
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, n_heads, n, 8) for _ in range(3))
    with torch.no_grad(), watch() as trace:
        attend(query, key, value, **options)
    return trace["attention"]


def test_a_table_is_pooled_by_hand():
    table = torch.tensor([[1.0, 2, 3], [4, 0, -1], [0, 9, 0], [5, 5, 5]])
    # rows 0 to 1 and 2 to 3; columns 0 to 1 and 2: the first band is the longer one
    assert pooled(table, 2, 2).tolist() == [[4.0, 3.0], [9.0, 5.0]]


def test_a_span_has_the_bins_that_the_page_computes():
    # floor(i · 3 / 7) for i = 0 … 6 is 0 0 0 1 1 2 2
    assert Span(0, 7, 3).edges().tolist() == [0, 3, 5, 7]
    assert Span(10, 12, 2).edges().tolist() == [10, 11, 12]


@pytest.mark.parametrize("stage", ["scores", "masked", "weights"])
def test_a_tile_is_the_largest_of_what_it_covers(stage):
    site = site_of(23, allowed=causal())
    whole = getattr(site, stage)(1)
    rows, columns = Span(3, 20, 5), Span(0, 23, 23)
    found = tile(site, 1, stage, rows, columns)
    edges = rows.edges().tolist()
    for i in range(5):
        assert_close(found[i], whole[edges[i] : edges[i + 1]].amax(0), atol=1e-6, rtol=0)


def test_a_pooled_level_gives_the_same_where_bins_are_blocks(monkeypatch):
    monkeypatch.setattr(tiles, "MOST_BINS", 32)
    monkeypatch.setattr(tiles, "_STRIP", 1000)  # several strips
    site = site_of(128, allowed=causal())
    level = build_level(site, 1, "weights", check=nothing)
    assert level.block == 4
    assert tuple(level.table.shape) == (32, 32)
    whole = Span(0, 128, 16)
    assert_close(level.part(whole, whole), tile(site, 1, "weights", whole, whole))
    # a part whose ends are inside blocks takes these blocks whole
    part = level.part(Span(6, 10, 1), Span(0, 128, 1))
    assert_close(part, site.weights(1, rows=(4, 12)).amax().view(1, 1))


def test_lengths_that_are_no_multiple_of_a_block_lose_nothing(monkeypatch):
    monkeypatch.setattr(tiles, "MOST_BINS", 8)
    monkeypatch.setattr(tiles, "_STRIP", 100)
    site = site_of(37)
    level = build_level(site, 0, "scores", check=nothing)
    assert level.block == 8
    one = Span(0, 37, 1)
    assert_close(level.part(one, one), site.scores(0).amax().view(1, 1))


def test_only_small_parts_are_computed_at_once():
    assert is_direct(Span(0, 1000, 5), Span(0, 2000, 5))
    assert not is_direct(Span(0, 1001, 5), Span(0, 2000, 5))


def test_thumbnails_are_means_and_roots_of_them_as_bytes():
    site = site_of(12, n_heads=1)
    found = thumbnails(site, 3, check=nothing)
    means = site.weights(0).view(3, 4, 3, 4).mean((1, 3))
    assert found.shape == (1, 3, 3)
    assert found.tolist() == [(means.sqrt() * 255).round().int().tolist()]


def test_thumbnails_of_long_texts_take_some_queries_of_each_band(monkeypatch):
    monkeypatch.setattr(tiles, "_STRIP", 12 * 3 * 2)  # two of each band's four
    site = site_of(12, n_heads=1)
    found = thumbnails(site, 3, check=nothing)
    means = site.weights(0)[::2].view(3, 2, 3, 4).mean((1, 3))
    assert found.tolist() == [(means.sqrt() * 255).round().int().tolist()]


def test_whoever_has_gone_stops_the_work():
    def gone():
        raise Canceled

    site = site_of(16)
    with pytest.raises(Canceled):
        build_level(site, 0, "weights", check=gone)
    with pytest.raises(Canceled):
        thumbnails(site, 4, check=gone)


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (Span(3, 3, 1), "start below its stop"),
        (Span(0, 8, 1), "there are 7"),
        (Span(0, 7, 0), "1 to 2048"),
        (Span(0, 7, 9999), "1 to 2048"),
    ],
)
def test_parts_that_are_not_there_are_refused(span, said):
    with pytest.raises(InputError, match=said):
        span.checked(7, "rows")


def test_stages_and_sizes_that_are_not_there_are_refused():
    with pytest.raises(InputError, match="scores, masked, weights"):
        tile(site_of(4), 0, "context", Span(0, 4, 4), Span(0, 4, 4))
    with pytest.raises(InputError, match="1 to 256"):
        thumbnails(site_of(4), 0, check=nothing)
