"""Pictures of sites: pooled thumbnails, and how little memory looking takes."""

import weakref

import pytest
import torch
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.mask import causal, padding
from regard.errors import InputError
from regard.tap import listen
from regard.trace.edits import set_weights
from regard.trace.site import Site
from regard.trace.trace import watch
from tests.largest import Largest
from tests.listeners import Everybody

N_QUERY, N_KEY = 7, 9


def inputs(*lead: int, n_query: int = N_QUERY, n_key: int = N_KEY) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(n_query, 4), (n_key, 4), (n_key, 5)]
    return [torch.randn(*lead, *shape, generator=generator) for shape in shapes]


def site_of(given, *, edits=(), **options) -> Site:
    with watch(edits=edits) as trace:
        attend(*given, **options)
    return trace["attention"]


def weights_of(given, **options) -> torch.Tensor:
    everybody = Everybody()
    with listen(everybody):
        attend(*given, **options)
    return everybody.seen["attention.weights"]


def pooled(weights: torch.Tensor, size: int, pool: str) -> torch.Tensor:
    """A thumbnail from the whole picture."""
    reduce = torch.amax if pool == "max" else torch.mean
    rows = weights.tensor_split(min(size, weights.size(-2)), dim=-2)
    cells = [[reduce(cell, (-1, -2)) for cell in row.tensor_split(min(size, weights.size(-1)), -1)]
             for row in rows]  # fmt: skip
    return torch.stack([torch.stack(row, -1) for row in cells], -2)


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 64])
def test_thumbnails_are_the_whole_picture_pooled(size, pool):
    site = site_of(inputs(2, 3), allowed=causal(2))
    weights = weights_of(inputs(2, 3), allowed=causal(2))
    found = site.thumbnails(size, batch=1, pool=pool)
    assert found.shape == (3, min(size, N_QUERY), min(size, N_KEY))
    assert_close(found, pooled(weights[1], size, pool), atol=1e-6, rtol=1e-5)
    assert torch.equal(site.thumbnail(2, size=size, batch=1, pool=pool), found[2])


def test_thumbnails_of_a_site_without_heads_and_of_long_bands():
    given = inputs(n_query=700, n_key=300)
    site, weights = site_of(given), weights_of(given)
    for pool in ("mean", "max"):
        assert_close(site.thumbnails(2, pool=pool)[0], pooled(weights, 2, pool))


def test_thumbnails_show_edits():
    site = site_of(inputs(2, 3), edits=[set_weights("attention", 1.0, head=1)])
    assert torch.equal(site.thumbnails(3)[1], torch.ones(3, 3))


def test_no_large_matrix_is_ever_made():
    n, heads, width = 4096, 2, 8
    given = torch.randn(3, 1, heads, n, width).unbind()
    site = site_of(given, allowed=padding([4000]) & causal())
    with Largest() as largest:
        picture = site.thumbnails(16)
        tile = site.weights(head=1, rows=(2000, 2256), columns=(1000, 1256))
        site.context(head=0, rows=(0, 300))
    assert picture.shape == (heads, 16, 16)
    assert tile.shape == (256, 256)
    assert largest.numbers <= 256 * n  # a strip of one head: a sixteenth of its matrix


def test_a_band_of_many_rows_is_pooled_strip_by_strip(monkeypatch):
    site, strips, most = site_of(inputs(n_query=2000, n_key=64)), [], 0
    real = Site._tile

    def spy(self, *arguments):
        nonlocal most
        strip = real(self, *arguments)
        strips.append(weakref.ref(strip))
        most = max(most, sum(one() is not None for one in strips))
        return strip

    monkeypatch.setattr(Site, "_tile", spy)
    site.thumbnail(size=1)
    assert len(strips) == 8
    assert most <= 2


def test_a_recorded_forward_pass_keeps_no_large_matrix_either():
    n, heads, width = 2048, 2, 16
    given = torch.randn(3, 1, heads, n, width).unbind()
    with Largest() as largest:
        site = site_of(given, allowed=causal())
    assert largest.numbers < n * n
    kept = [site.query, site.key, site.value, site.sums, *site.changed.values()]
    assert sum(x.numel() for x in kept) <= 3 * 3 * heads * n * width


@pytest.mark.parametrize("size", [0, -3])
def test_thumbnails_without_a_size_are_refused(size):
    with pytest.raises(InputError, match=rf"^a thumbnail has 1 row or more, not {size}\.$"):
        site_of(inputs()).thumbnail(size=size)


def test_thumbnails_pooled_in_another_way_are_refused():
    with pytest.raises(
        InputError, match=r"^thumbnails are pooled by 'mean' or 'max', not 'median'\.$"
    ):
        site_of(inputs()).thumbnails(pool="median")
