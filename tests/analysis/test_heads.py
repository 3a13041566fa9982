from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.heads import Selection, measure_heads, readable, sides
from regard.errors import InputError
from regard.trace.capture import trace_model
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
    back[0, :, 0] = 1  # everybody looks at the first token: 0, 1, 2, 3 positions away
    (measures,) = measure_heads(site_with(back))
    assert measures.distance == 1.5
    assert measures.diagonal == 0.5  # those at most one away
    assert measures.variety == 0.25


def test_cross_attention_is_measured_along_its_own_diagonal():
    # two queries, four keys: the diagonal runs between keys 0 and 1, then 2 and 3
    weights = torch.tensor([[[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]])
    (measures,) = measure_heads(site_with(weights, "decoder.layers.0.cross"))
    assert measures.diagonal == 1
    assert measures.distance == 0.5


def test_measures_are_those_of_the_weights_in_the_trace(trace):
    site = trace["encoder.layers.1.self"]
    for head, measures in enumerate(measure_heads(site)):
        weights = site.weights(head).double()
        entropy = -(weights * weights.log2()).sum(-1).mean()
        assert_close(measures.entropy, entropy.item(), rtol=0, atol=1e-5)
        assert_close(measures.peak, weights.amax(-1).mean().item(), rtol=0, atol=1e-6)


def test_a_query_that_sees_nothing_has_no_entropy_and_no_favorite():
    mask = torch.tensor([[True, True], [False, False]])
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 1, 1, 2, 4), allowed=mask, site="s")
    (measures,) = measure_heads(trace["s"])
    assert measures.entropy >= 0
    assert measures.variety == 0.5


def test_a_long_text_is_sampled_and_a_mean_stays_a_mean():
    with regard.watch() as trace:
        query = torch.randn(1, 1, 1000, 4)
        regard.attend(query, torch.zeros_like(query), query, site="s")  # all weights are equal
    (measures,) = measure_heads(trace["s"])
    assert measures.entropy == pytest.approx(torch.tensor(1000.0).log2().item(), abs=1e-4)


def test_the_first_thing_to_see_is_in_cross_attention_and_between_words(trace):
    start = readable(trace)
    assert start.site.endswith("cross")
    assert trace.words["source"][start.key] is not None
    site = trace[start.site]
    weights = site.weights(start.head)
    plain = [i for i, word in enumerate(trace.words["source"]) if word is not None]
    assert weights[start.query, start.key] == weights[start.query, plain].max()


def test_a_clear_head_is_preferred_to_a_blurred_one():
    weights = torch.stack([torch.full((3, 3), 1 / 3), torch.eye(3)[[1, 2, 0]]])
    trace = Trace({"s": site_with(weights, "s")})
    assert (readable(trace).head, readable(trace).query, readable(trace).key) == (1, 0, 1)


def test_a_token_that_looks_at_itself_is_less_worth_seeing_than_one_that_looks_elsewhere():
    weights = torch.stack([torch.eye(3), 0.8 * torch.eye(3)[[1, 2, 0]] + 0.1 * torch.eye(3)])
    assert readable(Trace({"s": site_with(weights, "s")})).head == 1


def test_a_trace_without_attention_is_refused():
    with pytest.raises(InputError, match="no attention site"):
        readable(Trace())


@pytest.mark.parametrize(
    ("path", "both"),
    [
        ("encoder.layers.0.self", ("source", "source")),
        ("decoder.layers.0.self", ("target", "target")),
        ("decoder.layers.3.cross", ("target", "source")),
        ("decoder.cross", ("target", "source")),
    ],
)
def test_who_asks_and_who_answers_by_the_path(path, both):
    assert sides(path) == both


def test_special_tokens_are_never_where_a_reader_begins(translator):
    trace = trace_model(translator, "a cat sleeps", "eine Katze")
    start = readable(trace)
    assert trace.words["source"][start.key] is not None
    assert trace.words["target"][start.query] is not None


CROSS = "decoder.layers.0.cross"
ALIGNED = [[0, 0.9, 0, 0, 0.1], [0, 0, 0.7, 0, 0.3], [0, 0, 0, 0.8, 0.2], [1, 0, 0, 0, 0]]
BLURRED = [[0.1, 0.6, 0.1, 0.1, 0.1], [0.1, 0.1, 0.6, 0.1, 0.1], [0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
CLEARER = [[0, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]


def crossing(*heads: Sequence[Sequence[float]], aligning: dict | None = None) -> Trace:
    """Three words and their end, written from three words between special tokens."""
    words = {"source": [None, 0, 1, 2, None], "output": [0, 1, 2, None]}
    origin = SimpleNamespace(extras={"alignment_heads": aligning})
    return Trace({CROSS: site_with(torch.tensor(heads), CROSS)}, words=words, origin=origin)


def test_of_heads_that_align_the_one_begins_that_keeps_most_to_what_they_agree_on():
    aligning = {"places": [[CROSS, 1], [CROSS, 2]], "after": False}
    trace = crossing(CLEARER, BLURRED, ALIGNED, aligning=aligning)
    # on what both prefer, head 1 has (0.6 + 0.6 + 1) / 3 and head 2 has (0.9 + 0.7 + 0.8) / 3
    assert readable(trace) == Selection(CROSS, 2, 0, 1)


@pytest.mark.parametrize(
    "aligning",
    [
        None,
        {"places": [[CROSS, 1]], "after": True},  # its rows stand one place lower than the words
        {"places": [["decoder.layers.7.cross", 0]], "after": False},  # which is not there
    ],
)
def test_without_heads_that_align_the_clearest_one_begins(aligning):
    assert readable(crossing(CLEARER, ALIGNED, aligning=aligning)).head == 0


def test_the_first_word_that_is_written_counts_though_a_special_token_asks_for_it():
    even = [[0.2] * 5] * 3
    trace = crossing([*even, [0, 1, 0, 0, 0]], [[0, 1, 0, 0, 0], *even])  # the end; the first word
    trace.words["target"] = [None, 0, 1, 2]
    assert readable(trace) == Selection(CROSS, 1, 0, 1)
