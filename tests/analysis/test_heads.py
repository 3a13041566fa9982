from collections.abc import Sequence
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis import heads
from regard.analysis.heads import (
    Selection,
    default_selection,
    measure_heads,
    selection_between,
    sides,
)
from regard.errors import InputError
from regard.trace.trace import Trace


def site_with(weights: torch.Tensor, path: str = "encoder.layers.0.self"):
    """A site whose weights are exactly these."""
    heads, n_query, n_key = weights.shape
    query, key = torch.randn(1, heads, n_query, 2), torch.randn(1, heads, n_key, 2)
    with regard.watch(edits=[regard.set_weights(path, weights)]) as trace:
        regard.attend(query, key, key, site=path)
    return trace[path]


def test_measures_of_two_heads_by_hand():
    # head 0: each token looks at itself; head 1: both tokens share their weight equally
    (own, even) = measure_heads(site_with(torch.stack([torch.eye(2), torch.full((2, 2), 0.5)])))
    assert (own.entropy, own.distance, own.diagonal, own.peak, own.variety) == (0, 0, 1, 1, 1)
    assert (even.entropy, even.distance, even.diagonal, even.peak) == (1, 0.5, 1, 0.5)


def test_distance_counts_positions_and_the_diagonal_ends_after_one():
    back = torch.zeros(1, 4, 4)
    back[0, :, 0] = 1  # all look at the first token: 0, 1, 2, 3 positions away
    (measures,) = measure_heads(site_with(back))
    assert measures.distance == 1.5
    assert measures.diagonal == 0.5  # those at most one away
    assert measures.variety == 0.25


def test_cross_attention_has_its_own_diagonal():
    # two queries, four keys: the diagonal runs between keys 0 and 1, then 2 and 3
    weights = torch.tensor([[[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]])
    (measures,) = measure_heads(site_with(weights, "decoder.layers.0.cross"))
    assert measures.diagonal == 1
    assert measures.distance == 0.5


def test_a_query_without_keys_has_no_entropy_and_no_favorite():
    mask = torch.tensor([[True, True], [False, False]])
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 1, 1, 2, 4), allowed=mask, site="s")
    (measures,) = measure_heads(trace["s"])
    assert measures.entropy >= 0
    assert measures.variety == 0.5


def test_measures_of_a_long_text_are_sampled():
    with regard.watch() as trace:
        query = torch.randn(1, 1, 1000, 4)
        regard.attend(query, torch.zeros_like(query), query, site="s")  # all weights are equal
    (measures,) = measure_heads(trace["s"])
    assert measures.entropy == pytest.approx(torch.tensor(1000.0).log2().item(), abs=1e-4)


def test_the_selection_between_two_words_is_the_head_with_their_largest_weight(trace):
    written, read = trace.tokens["output"][1].strip(), trace.tokens["source"][2].strip()
    found = selection_between(trace, written, read)
    crossing = {p: site.weights()[..., 1, 2] for p, site in trace.sites.items() if "cross" in p}
    assert (found.query, found.key) == (1, 2)
    weight = trace[found.site].weights(found.head)[1, 2]
    assert weight == max(weights.max() for weights in crossing.values())
    assert selection_between(trace, "no such word", read) is None


def test_the_default_selection_is_in_cross_attention_and_between_words(trace):
    start = default_selection(trace)
    assert start.site.endswith("cross")
    assert trace.words["source"][start.key] is not None
    site = trace[start.site]
    weights = site.weights(start.head)
    plain = [i for i, word in enumerate(trace.words["source"]) if word is not None]
    assert weights[start.query, start.key] == weights[start.query, plain].max()


def test_a_clear_head_is_preferred_to_a_blurred_one():
    weights = torch.stack([torch.full((3, 3), 1 / 3), torch.eye(3)[[1, 2, 0]]])
    trace = Trace({"s": site_with(weights, "s")})
    assert (
        default_selection(trace).head,
        default_selection(trace).query,
        default_selection(trace).key,
    ) == (1, 0, 1)


def test_weights_of_a_token_on_itself_count_less():
    weights = torch.stack([torch.eye(3), 0.8 * torch.eye(3)[[1, 2, 0]] + 0.1 * torch.eye(3)])
    assert default_selection(Trace({"s": site_with(weights, "s")})).head == 1


def test_a_trace_without_attention_is_refused():
    with pytest.raises(InputError, match="no attention site"):
        default_selection(Trace())


@pytest.mark.parametrize(
    ("path", "both"),
    [
        ("encoder.layers.0.self", ("source", "source")),
        ("decoder.layers.0.self", ("target", "target")),
        ("decoder.layers.3.cross", ("target", "source")),
        ("decoder.cross", ("target", "source")),
    ],
)
def test_sides_by_path(path, both):
    query = torch.randn(1, 1, 2, 2)
    with regard.watch() as trace:
        regard.attend(query, query, query, site=path)
    assert sides(trace, path) == both


@pytest.mark.parametrize("step", [1, 2])
def test_thumbnails_are_means_over_all_or_some_queries(monkeypatch, step):
    if step == 2:
        monkeypatch.setattr(heads, "_STRIP_CELLS", 12 * 3 * 2)  # two of the four in each band
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 1, 1, 12, 4), site="s")
    found = heads.thumbnails(trace["s"], 3)
    means = trace["s"].weights(0)[::step].view(3, 4 // step, 3, 4).mean((1, 3))
    assert_close(found, means[None])
    assert heads.weights_to_bytes(torch.tensor([0.0, 0.25, 1.0])).tolist() == [0, 128, 255]


def test_thumbnails_are_exact_below_their_size_and_stop_when_canceled():
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 2, 2, 5, 4), site="s")
    assert_close(heads.thumbnails(trace["s"], 8, batch=1), trace["s"].weights(batch=1))
    with pytest.raises(KeyboardInterrupt):
        heads.thumbnails(trace["s"], 8, check=Mock(side_effect=KeyboardInterrupt))


CROSS = "decoder.layers.0.cross"
ALIGNED = [[0, 0.9, 0, 0, 0.1], [0, 0, 0.7, 0, 0.3], [0, 0, 0, 0.8, 0.2], [1, 0, 0, 0, 0]]
BLURRED = [[0.1, 0.6, 0.1, 0.1, 0.1], [0.1, 0.1, 0.6, 0.1, 0.1], [0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
CLEARER = [[0, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]


def crossing(*heads: Sequence[Sequence[float]], aligning: dict | None = None) -> Trace:
    """Three words and their end, written from three words between special tokens."""
    words = {"source": [None, 0, 1, 2, None], "output": [0, 1, 2, None]}
    origin = SimpleNamespace(extras={"alignment_heads": aligning})
    return Trace({CROSS: site_with(torch.tensor(heads), CROSS)}, words=words, origin=origin)


def test_the_alignment_head_that_agrees_most_with_the_others_is_selected():
    aligning = {"places": [[CROSS, 1], [CROSS, 2]], "after": False}
    trace = crossing(CLEARER, BLURRED, ALIGNED, aligning=aligning)
    # on what both prefer, head 1 has (0.6 + 0.6 + 1) / 3 and head 2 has (0.9 + 0.7 + 0.8) / 3
    assert default_selection(trace) == Selection(CROSS, 2, 0, 1)


@pytest.mark.parametrize(
    "aligning",
    [
        None,
        {"places": [[CROSS, 1]], "after": True},  # its rows stand one place lower than the words
        {"places": [["decoder.layers.7.cross", 0]], "after": False},  # which is not there
    ],
)
def test_without_alignment_heads_the_clearest_head_is_selected(aligning):
    assert default_selection(crossing(CLEARER, ALIGNED, aligning=aligning)).head == 0


def test_queries_are_the_words_that_they_predict():
    even = [[0.2] * 5] * 3
    trace = crossing([*even, [0, 1, 0, 0, 0]], [[0, 1, 0, 0, 0], *even])  # the end; the first word
    trace.words["target"] = [None, 0, 1, 2]
    assert default_selection(trace) == Selection(CROSS, 1, 0, 1)
