"""The cache of keys and values: by hand, against concatenation, growth, and beams that move."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention.multi_head import KeyValueCache


def pair(n_token: int, start: float = 0.0, *, batch: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values whose numbers are all different."""
    key = start + torch.arange(batch * n_token * 3.0).view(batch, 1, n_token, 3)
    return key, -key[..., :2]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_any_steps_equal_concatenation(lengths):
    cache = KeyValueCache()
    written = [pair(n, 1000.0 * i) for i, n in enumerate(lengths)]
    for i, step in enumerate(written):
        found = cache.extend(*step)
        for which in (0, 1):
            expected = torch.cat([part[which] for part in written[: i + 1]], dim=-2)
            assert torch.equal(found[which], expected)
            assert torch.equal(cache.read()[which], expected)
    assert cache.length == sum(lengths)


def test_earlier_results_do_not_change_when_more_is_written():
    cache = KeyValueCache()
    cache.extend(*pair(3))
    before = cache.extend(*pair(1, 100.0))[0]
    copy = before.clone()
    for start in range(60):
        cache.extend(*pair(1, float(start)))
    assert torch.equal(before, copy)


def test_capacity_doubles_so_that_a_thousand_steps_copy_little():
    cache, places = KeyValueCache(), set()
    for step in range(1000):
        places.add(cache.extend(*pair(1, float(step)))[0].data_ptr())
    assert len(places) <= 8  # 1, 32, 64, …, 1024


def test_beams_move_and_finished_ones_leave():
    cache = KeyValueCache()
    cache.extend(*pair(2, batch=3))
    before = [x.clone() for x in cache.extend(*pair(1, 50.0, batch=3))]
    cache.keep(torch.tensor([2, 0, 2, 1]))
    assert all(torch.equal(x, y[[2, 0, 2, 1]]) for x, y in zip(cache.read(), before, strict=True))
    cache.keep(torch.tensor([3]))
    after = cache.extend(*pair(1, 70.0, batch=1))
    assert torch.equal(after[0][0, 0, :3], before[0][1, 0])
    assert torch.equal(after[0][0, 0, 3:], pair(1, 70.0, batch=1)[0][0, 0])


def test_an_empty_cache_cannot_be_read():
    cache = KeyValueCache()
    cache.keep(torch.tensor([0]))
    with pytest.raises(LookupError, match="nothing was written to this cache"):
        cache.read()


def test_a_cache_for_cross_attention_does_not_grow():
    cache = KeyValueCache(grows=False)
    assert not cache.filled
    first = pair(4)
    cache.extend(*first)
    assert cache.filled
    assert torch.equal(cache.read()[0], first[0])
    other = pair(2, 9.0)
    assert torch.equal(cache.extend(*other)[0], other[0])
    assert cache.length == 2
