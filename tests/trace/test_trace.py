"""Traces: sites and values by path, in order, with edits, and checked for NaN."""

from math import inf, nan

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.mask import causal, padding
from regard.attention.multi_head import KeyValueCache, MultiHeadAttention
from regard.errors import NotFiniteError, UnknownNameError
from regard.tap import listen, listening, tap
from regard.trace.edits import ablate, forbid, set_scores, set_value, set_weights, temperature
from regard.trace.site import Site
from regard.trace.trace import Trace
from regard.trace.watch import watch
from tests.listeners import Everybody

PATHS = ["encoder.layers.0.self", "encoder.layers.1.self", "decoder.layers.0.cross"]


class Model(nn.Module):
    """Two layers of self-attention and one of cross-attention, with residuals."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.cross = (
            MultiHeadAttention(8, 2, path=path) for path in PATHS
        )

    def forward(self, x, y, lengths=None):
        hidden = padding(lengths) if lengths else None
        for layer in (self.first, self.second):
            x = tap(f"{layer.path}.residual", x + layer(x, allowed=hidden), "token d_model")
        return tap("output.logits", self.cross(y, x, allowed=hidden), "token vocab")


@pytest.fixture
def model():
    return Model()


X, Y = torch.randn(2, 2, 5, 8, generator=torch.Generator().manual_seed(3)).unbind()


def check(trace: Trace, seen: dict) -> None:
    """Every site of the trace is what the definition computed."""
    for path in trace:
        for name in ("scores", "masked", "weights", "context"):
            for batch in range(2):
                found = getattr(trace[path], name)(batch=batch)
                expected = seen[f"{path}.{name}"][batch]
                assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_weights_of_a_trace_by_hand():
    with watch() as trace:
        attend(torch.zeros(1, 3), torch.ones(4, 3), torch.ones(4, 2), site="here")
    assert trace["here"].weights().tolist() == [[0.25] * 4]


def test_sites_are_in_the_order_of_computation(model):
    with watch() as trace:
        model(X, Y)
    assert list(trace) == PATHS
    assert len(trace) == 3
    assert isinstance(trace["decoder.layers.0.cross"], Site)
    assert trace["decoder.layers.0.cross"].path == "decoder.layers.0.cross"


def test_watching_does_not_change_results(model):
    plain = model(X, Y, [5, 3])
    with watch() as trace:
        watched = model(X, Y, [5, 3])
    everybody = Everybody()
    with listen(everybody):
        explicit = model(X, Y, [5, 3])
    assert torch.equal(watched, plain)
    assert_close(explicit, plain, atol=1e-5, rtol=1e-5)
    check(trace, everybody.seen)


@pytest.mark.parametrize(
    "edits",
    [
        [ablate("encoder.layers.0.self", head=1)],
        [forbid("encoder.layers.*.self", query=2, key=4), temperature("decoder.*", 0.5)],
        [set_weights("*", 0.5, query=1), set_scores("decoder.layers.0.cross", 2.0, key=0, head=0)],
        [set_value("encoder.layers.0.self.residual", lambda x: 2 * x)],
    ],
)
def test_edited_traces_equal_the_edited_computation(model, edits):
    with watch(edits=edits) as trace:
        output = model(X, Y, [5, 3])
    everybody = Everybody()
    with listen(everybody), watch(edits=edits):
        assert_close(model(X, Y, [5, 3]), output, atol=1e-5, rtol=1e-5)
    check(trace, everybody.seen)
    assert not torch.allclose(output, model(X, Y, [5, 3]))


def test_other_values_are_found_by_path(model):
    with watch() as trace:
        output = model(X, Y)
    assert torch.equal(trace.value("output.logits"), output)
    assert trace.value("encoder.layers.0.self.residual").shape == (2, 5, 8)
    joined = trace.value("encoder.layers.0.self.joined")
    assert_close(
        trace.value("encoder.layers.0.self.output"), model.first.to_output(joined).detach()
    )
    context = trace.value("encoder.layers.0.self.context")
    assert_close(trace["encoder.layers.0.self"].context(batch=1), context[1], atol=1e-5, rtol=1e-5)


def test_no_query_key_table_is_kept(model):
    edits = [temperature("*", 2.0)]
    with watch(edits=edits) as trace:
        model(X, Y)
    assert not [path for path in trace.values if path.endswith(("weights", "scores", "masked"))]
    assert all(site.changed == {} for site in trace.sites.values())


def test_the_last_computation_of_a_site_is_kept(model):
    with watch() as trace:
        model(X, Y)
        model(2 * X, Y)
    with watch() as second:
        model(2 * X, Y)
    for path in PATHS:
        assert torch.equal(trace[path].query, second[path].query)


def test_an_inner_trace_does_not_disturb_the_outer_one(model):
    with watch() as outer:
        model.first(X)
        with watch(edits=[set_value("*.query", 0.0)]) as inner:
            model.second(X)
        model.cross(X)
    assert list(outer) == PATHS
    assert list(inner) == PATHS[1:2]
    assert (inner[PATHS[1]].query == 0).all()
    assert (outer[PATHS[1]].query == 0).all()  # the value that the computation continued with
    assert not (outer[PATHS[2]].query == 0).any()


def test_an_exception_ends_recording(model):
    def fail(x, **options):
        raise RuntimeError("stop")

    model.second.forward = fail
    with pytest.raises(RuntimeError, match="stop"), watch():
        model(X, Y)
    assert not listening()


@torch.no_grad()
@pytest.mark.parametrize("edits", [[], [forbid("self", query=3, key=1)],
                                   [set_weights("self", 0.5, query=2, key=0)],
                                   [set_scores("self", 1.0, head=1)]])  # fmt: skip
@pytest.mark.parametrize("chunks", [[1] * 5, [3, 2]])
def test_a_trace_with_a_cache_equals_that_of_the_whole_sequence(chunks, edits):
    layer = MultiHeadAttention(8, 2, path="self")
    with watch(edits=edits) as whole:
        expected = layer(X, allowed=causal())
    cache = KeyValueCache()
    with watch(edits=edits) as stepped:
        steps = [
            layer(part, allowed=causal(offset=cache.length), cache=cache)
            for part in X.split(chunks, dim=1)
        ]
    assert_close(torch.cat(steps, 1), expected)
    assert list(stepped) == ["self"]
    for batch in range(2):
        for name in ("masked", "weights", "context"):
            found = getattr(stepped["self"], name)(batch=batch)
            assert_close(found, getattr(whole["self"], name)(batch=batch), atol=1e-5, rtol=1e-5)
    assert_close(stepped.value("self.output"), whole.value("self.output"))


@pytest.mark.parametrize(("number", "said"), [(nan, "nan"), (inf, "inf"), (-inf, "-inf")])
def test_the_first_value_that_is_not_finite_is_reported_with_its_place(model, number, said):
    x = X.clone()
    x[1, 3, 2] = number
    with pytest.raises(NotFiniteError) as caught, watch():
        model(x, Y)
    sentence = str(caught.value)
    assert sentence.startswith("encoder.layers.0.self.query is ")
    assert " at [1, 0, 3, 0], the first value that is not finite" in sentence
    assert sentence.endswith("check the inputs.")
    if said == "nan":
        assert sentence.startswith("encoder.layers.0.self.query is nan at")


def test_nan_in_the_middle_is_reported_where_it_first_appears(model):
    with torch.no_grad():
        model.second.to_value.weight[0, 0] = nan
    with pytest.raises(NotFiniteError) as caught, watch():
        model(X, Y)
    assert str(caught.value) == (
        "encoder.layers.1.self.value is nan at [0, 0, 0, 0], the first value that is not finite: "
        "check what feeds it (encoder.layers.1.self.key was still finite)."
    )
    assert not listening()


def test_minus_infinity_in_scores_is_a_mask():
    edit = set_scores("here", -inf, key=0)
    with watch(edits=[edit]) as trace:
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 2), site="here", allowed=causal(3))
    assert trace["here"].weights(rows=0).tolist() == [[0, *[pytest.approx(1 / 3)] * 3]]


@pytest.mark.parametrize("number", [nan, inf])
def test_scores_that_are_nan_or_inf_are_refused(number):
    with (
        pytest.raises(NotFiniteError, match=rf"^here\.scores is {number} at \[0, 1\]"),
        watch(edits=[set_scores("here", number, query=0, key=1)]),
    ):
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 2), site="here")


def test_nan_is_not_checked_without_a_trace(model):
    x = X.clone()
    x[0, 0, 0] = nan
    assert model(x, Y).isnan().any()


def test_unknown_sites_are_refused_with_the_nearest(model):
    with watch() as trace:
        model(X, Y)
    with pytest.raises(UnknownNameError) as caught:
        trace["encoder.layer.0.self"]
    assert str(caught.value).startswith(
        "the trace has no attention site 'encoder.layer.0.self'; the nearest are "
        "encoder.layers.0.self, encoder.layers.1.self"
    )


def test_unknown_values_are_refused_with_the_nearest(model):
    with watch() as trace:
        model(X, Y)
    sentence = r"^the trace has no value 'output\.logit'; the nearest is output\.logits\."
    with pytest.raises(UnknownNameError, match=sentence):
        trace.value("output.logit")


def test_repr_is_one_line_and_traces_compare_by_identity(model):
    with watch() as trace:
        model(X, Y)
    assert repr(trace) == (
        '<Trace of 3 sites, trace["encoder.layers.0.self"] first, and 12 other values>'
    )
    assert trace != Trace(trace.sites, trace.values)
