"""RNNAttention: keys projected once are compared as by the definition, and rows are kept."""

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.attention.mask import padding
from regard.attention.similarity import Additive
from regard.layers.recurrent import ProjectedKeys, RNNAttention


def alignment(similarity="additive", seed=0):
    torch.manual_seed(seed)
    return RNNAttention(similarity, d_query=3, d_key=3, d_hidden=4, path="decoder.cross")


def test_additive_alignment_by_hand():
    made = alignment()
    with torch.no_grad():
        made.similarity.to_query.weight.zero_()
        made.similarity.to_key.weight.copy_(torch.eye(4, 3))
        made.similarity.to_score.weight.copy_(torch.tensor([[10.0, 0, 0, 0]]))
    states = torch.tensor([[[0.8, 0, 1], [0.9, 0, 2]]])
    states[..., 0].atanh_()  # scores 8 and 9: weights .2689 and .7311
    context = made(torch.zeros(1, 3), made.read(states))
    assert context[0, 2].item() == pytest.approx(0.2689 + 2 * 0.7311, abs=1e-4)


def test_projected_keys_are_compared_as_the_definition_compares_keys():
    torch.manual_seed(0)
    additive = Additive(3, 5, 4)
    query, key = torch.randn(2, 1, 6, 3), torch.randn(2, 1, 7, 5)
    found = ProjectedKeys(additive).compare(query, additive.to_key(key))
    assert_close(found, additive.compare(query, key))


@pytest.mark.parametrize("similarity", ["additive", "dot", "general"])
def test_recording_does_not_change_the_context(similarity):
    made = alignment(similarity)
    states, query, allowed = torch.randn(2, 5, 3), torch.randn(2, 3), padding([5, 2])
    plain = made(query, made.read(states), allowed=allowed)
    with regard.watch() as trace:
        watched = made(query, made.read(states), allowed=allowed, step=0)
    assert_close(watched, plain)
    site = trace["decoder.cross"]
    assert_close(site.key, states[:, None])  # the encoder's states themselves, not projected
    assert site.query.shape == (2, 1, 1, 3)
    assert_close(site.weights(batch=1)[0, 0] @ states[1], plain[1])
    ready = made.read(states)  # before recording: keys are projected, and still right
    with regard.watch() as late:
        assert_close(made(query, ready, allowed=allowed), plain)
    assert_close(late["decoder.cross"].weights(batch=1), site.weights(batch=1))


def test_rows_of_the_source_are_kept_in_the_given_order():
    made = alignment()
    states, query = torch.randn(3, 4, 3), torch.randn(3, 3)
    rows = torch.tensor([2, 2, 0])
    kept = made.read(states).keep(rows)
    assert_close(made(query, kept), made(query, made.read(states[rows])))
