"""Tiles and thumbnails of tables of any length."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.mask import causal
from regard.server import array_routes
from regard.server.array_routes import (
    IndexRange,
    encode_table,
    is_direct,
    max_pool,
    pool_table,
    read_tile,
)
from regard.server.error_codes import ApiError, JobCanceledError
from regard.server.settings import LIMITS
from regard.trace.watch import watch


def no_check():
    """Stand for a job that is not canceled."""


def site_of(n, n_heads=2, **options):
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, n_heads, n, 8) for _ in range(3))
    with torch.no_grad(), watch() as trace:
        attend(query, key, value, **options)
    return trace["attention"]


def test_a_table_pooled_by_hand():
    table = torch.tensor([[1.0, 2, 3], [4, 0, -1], [0, 9, 0], [5, 5, 5]])
    # rows 0–1 and 2–3; columns 0–1 and 2: the first bin is the longer one
    assert max_pool(table, 2, 2).tolist() == [[4.0, 3.0], [9.0, 5.0]]


def test_bins_are_those_of_the_page():
    # floor(i · 3 / 7) for i = 0 … 6 is 0 0 0 1 1 2 2
    assert IndexRange(0, 7, 3).edges().tolist() == [0, 3, 5, 7]
    assert IndexRange(10, 12, 2).edges().tolist() == [10, 11, 12]


def test_bytes_by_hand():
    table = torch.tensor([[-torch.inf, 0.0], [127.0, 254.0]])
    encoded, metadata = encode_table(table, "uint8")
    assert encoded.tolist() == [[0, 1], [128, 255]]
    assert metadata == {"coding": "linear", "low": 0.0, "high": 254.0}


@pytest.mark.parametrize("stage", ["scores", "masked", "weights"])
def test_a_cell_of_a_tile_is_the_maximum_of_what_it_covers(stage):
    site = site_of(23, allowed=causal())
    whole = getattr(site, stage)(1)
    rows, columns = IndexRange(3, 20, 5), IndexRange(0, 23, 23)
    found = read_tile(site, 1, stage, rows, columns)
    edges = rows.edges().tolist()
    for i in range(5):
        assert_close(found[i], whole[edges[i] : edges[i + 1]].amax(0), atol=1e-6, rtol=0)


def test_tiles_of_a_pooled_table_are_equal_if_bins_are_blocks(monkeypatch):
    monkeypatch.setattr(array_routes, "LIMITS", LIMITS.model_copy(update={"bins": 32}))
    monkeypatch.setattr(array_routes, "_STRIP_CELLS", 1000)  # several strips
    site = site_of(128, allowed=causal())
    pooled = pool_table(site, 1, "weights", check=no_check)
    assert (pooled.block, tuple(pooled.table.shape)) == (4, (32, 32))
    whole = IndexRange(0, 128, 16)
    assert_close(pooled.tile(whole, whole), read_tile(site, 1, "weights", whole, whole))
    # a range whose ends are inside blocks covers these blocks completely
    part = pooled.tile(IndexRange(6, 10, 1), IndexRange(0, 128, 1))
    assert_close(part, site.weights(1, rows=slice(4, 12)).amax().view(1, 1))


def test_lengths_that_are_not_multiples_of_a_block_lose_nothing(monkeypatch):
    monkeypatch.setattr(array_routes, "LIMITS", LIMITS.model_copy(update={"bins": 8}))
    monkeypatch.setattr(array_routes, "_STRIP_CELLS", 100)
    site = site_of(37)
    pooled = pool_table(site, 0, "scores", check=no_check)
    assert pooled.block == 8
    whole = IndexRange(0, 37, 1)
    assert_close(pooled.tile(whole, whole), site.scores(0).amax().view(1, 1))


def test_only_small_tiles_are_computed_directly():
    assert is_direct(IndexRange(0, 1000, 5), IndexRange(0, 2000, 5))
    assert not is_direct(IndexRange(0, 1001, 5), IndexRange(0, 2000, 5))


def test_a_canceled_job_stops():
    def canceled():
        raise JobCanceledError

    site = site_of(16)
    with pytest.raises(JobCanceledError):
        pool_table(site, 0, "weights", check=canceled)


@pytest.mark.parametrize(("start", "stop"), [(3, 3), (0, 8)])
def test_ranges_outside_the_table_are_refused(start, stop):
    with pytest.raises(ApiError, match="not a range within 0 to 7"):
        IndexRange.checked("rows", start, stop, 1, 7)
