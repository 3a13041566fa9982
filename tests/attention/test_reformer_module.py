"""Reformer as a module: in multi-head attention, watched, edited, saved, and what it refuses."""

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.multi_head import MultiHeadAttention
from regard.attention.reformer import Reformer
from regard.errors import InputError, MaskError, ShapeError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(*shape):
    query, value = torch.randn(2, *shape, dtype=torch.float64, generator=seeded())
    return query, query, value


def test_in_multi_head_attention_one_projection_serves_queries_and_keys():
    module = MultiHeadAttention(8, 2, form=Reformer(4, n_buckets=2, n_rounds=2, chunk=4))
    assert "to_key.weight" not in module.state_dict()
    with regard.watch() as trace:
        module(torch.randn(2, 6, 8), allowed=regard.padding([6, 3]))
    weights = trace["attention"].weights(batch=1)
    assert_close(weights[:, :3].sum(-1), torch.ones(2, 3))


def test_an_edit_can_hide_a_token_from_everybody():
    query, _, value = drawn(1, 2, 20, 4)
    form = Reformer(4, n_buckets=1, chunk=32)
    with regard.watch(edits=[regard.forbid("here", key=3)]) as trace:
        form(query, query, value, site="here")
    assert torch.equal(trace["here"].weights()[..., 3], torch.zeros(2, 20, dtype=torch.float64))


def test_redrawing_gives_other_directions_and_a_seed_the_same():
    form, same = (Reformer(4, generator=seeded(1)) for _ in range(2))
    assert torch.equal(form.rotations, same.rotations)
    form.redraw(seeded(2))
    assert not torch.equal(form.rotations, same.rotations)
    same.redraw(seeded(2))
    assert torch.equal(form.rotations, same.rotations)
    assert repr(form) == "Reformer(d_k=4, n_buckets=32, n_rounds=4, chunk=64)"


def test_masks_of_single_pairs_are_refused():
    with pytest.raises(MaskError, match=r"a Reformer cannot use the mask window\(1\)"):
        Reformer(4).double()(*drawn(3, 4), allowed=regard.window(1))


def test_cross_attention_is_refused():
    query, key, value = drawn(2, 10, 4)
    with pytest.raises(ShapeError, match="as many queries as keys, not 5 and 10"):
        Reformer(4).double()(query[:, :5], key, value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_buckets": 0}, "1 bucket or an even number of them, not 0"),
        ({"n_buckets": 7}, "1 bucket or an even number of them, not 7"),
        ({"n_rounds": 0}, "at least 1 round and 1 token in a chunk, not 0 and 64"),
        ({"chunk": 0}, "at least 1 round and 1 token in a chunk, not 4 and 0"),
    ],
)
def test_bad_settings_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Reformer(4, **options)
