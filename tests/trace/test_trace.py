"""Traces: what a run computed, found by path, in order, under edits, and checked for NaN."""

from math import inf, nan

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.kv_cache import KeyValueCache
from regard.attention.mask import causal, padding
from regard.attention.multi_head import MultiHeadAttention
from regard.errors import NotFiniteError, UnknownNameError
from regard.tap import listen, listening, tap
from regard.trace.edits import ablate, forbid, set_scores, set_value, set_weights, temperature
from regard.trace.site import Site
from regard.trace.trace import Trace, watch
from tests.listeners import Everybody

PATHS = ["encoder.layers.0.self", "encoder.layers.1.self", "decoder.layers.0.cross"]


class Model(nn.Module):
    """Two layers that look at themselves and one that looks at them, with residuals."""

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


def test_sites_come_in_the_order_of_computation_by_their_path(model):
    with watch() as trace:
        model(X, Y)
    assert list(trace) == PATHS
    assert len(trace) == 3
    assert isinstance(trace["decoder.layers.0.cross"], Site)
    assert trace["decoder.layers.0.cross"].path == "decoder.layers.0.cross"


def test_watching_changes_no_result(model):
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
def test_a_trace_under_edits_is_what_was_computed(model, edits):
    with watch(edits=edits) as trace:
        output = model(X, Y, [5, 3])
    everybody = Everybody()
    with listen(everybody), watch(edits=edits):
        assert_close(model(X, Y, [5, 3]), output, atol=1e-5, rtol=1e-5)
    check(trace, everybody.seen)
    assert not torch.allclose(output, model(X, Y, [5, 3]))


def test_other_values_are_kept_by_their_whole_path(model):
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


def test_no_table_of_all_pairs_is_kept(model):
    edits = [temperature("*", 2.0)]
    with watch(edits=edits) as trace:
        model(X, Y)
    assert not [path for path in trace.values if path.endswith(("weights", "scores", "masked"))]
    assert all(site.changed == {} for site in trace.sites.values())


def test_a_trace_keeps_no_gradients(model):
    with watch() as trace:
        output = model(X, Y)
    assert output.requires_grad
    assert not any(value.requires_grad for value in trace.values.values())
    assert not any(
        part.requires_grad
        for site in trace.sites.values()
        for part in (site.query, site.key, site.value)
    )


def test_a_site_that_is_computed_again_shows_the_last_time(model):
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
    assert (outer[PATHS[1]].query == 0).all()  # what the computation went on with
    assert not (outer[PATHS[2]].query == 0).any()


def test_what_follows_an_exception_is_not_listened_to(model):
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
def test_a_trace_of_cached_steps_is_the_trace_of_all_at_once(chunks, edits):
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


@torch.no_grad()
def test_cached_cross_attention_is_one_site_too():
    layer = MultiHeadAttention(8, 2, path="cross")
    with watch() as whole:
        layer(Y, X, allowed=padding([5, 2]))
    cache = KeyValueCache(grows=False)
    with watch() as stepped:
        for i, part in enumerate(Y.split(1, dim=1)):
            layer(part, X, allowed=padding([5, 2]), cache=cache, first=i)
    for batch in range(2):
        assert_close(stepped["cross"].weights(batch=batch), whole["cross"].weights(batch=batch))


@pytest.mark.parametrize(("number", "said"), [(nan, "nan"), (inf, "inf"), (-inf, "-inf")])
def test_the_first_value_that_is_not_finite_is_reported_with_its_place(model, number, said):
    x = X.clone()
    x[1, 3, 2] = number
    with pytest.raises(NotFiniteError) as caught, watch():
        model(x, Y)
    sentence = str(caught.value)
    assert sentence.startswith("encoder.layers.0.self.query is ")
    assert " at [1, 0, 3, 0], the first value that is not finite" in sentence
    assert sentence.endswith("look at the inputs.")
    if said == "nan":
        assert sentence.startswith("encoder.layers.0.self.query is nan at")


def test_nan_in_the_middle_is_reported_where_it_first_appears(model):
    with torch.no_grad():
        model.second.to_value.weight[0, 0] = nan
    with pytest.raises(NotFiniteError) as caught, watch():
        model(X, Y)
    assert str(caught.value) == (
        "encoder.layers.1.self.value is nan at [0, 0, 0, 0], the first value that is not finite: "
        "look at what feeds it (encoder.layers.1.self.key was still finite)."
    )
    assert not listening()


def test_nan_that_an_edit_puts_in_is_reported(model):
    edit = set_weights("encoder.layers.1.self", nan, query=0, key=0)
    with (
        pytest.raises(NotFiniteError, match=r"^encoder\.layers\.1\.self\.weights is nan at"),
        watch(edits=[edit]),
    ):
        model(X, Y)


def test_minus_infinity_in_scores_forbids_and_is_no_fault():
    edit = set_scores("here", -inf, key=0)
    with watch(edits=[edit]) as trace:
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 2), site="here", allowed=causal(3))
    assert trace["here"].weights(rows=0).tolist() == [[0, *[pytest.approx(1 / 3)] * 3]]


@pytest.mark.parametrize("number", [nan, inf])
def test_other_scores_that_are_not_finite_are_a_fault(number):
    with (
        pytest.raises(NotFiniteError, match=rf"^here\.scores is {number} at \[0, 1\]"),
        watch(edits=[set_scores("here", number, query=0, key=1)]),
    ):
        attend(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 2), site="here")


def test_without_a_trace_nan_is_let_through(model):
    x = X.clone()
    x[0, 0, 0] = nan
    assert model(x, Y).isnan().any()


def test_a_site_that_is_not_there_is_refused_with_the_nearest(model):
    with watch() as trace:
        model(X, Y)
    with pytest.raises(UnknownNameError) as caught:
        trace["encoder.layer.0.self"]
    assert str(caught.value).startswith(
        "the trace has no attention site 'encoder.layer.0.self'; the nearest are "
        "encoder.layers.0.self, encoder.layers.1.self"
    )


def test_a_value_that_is_not_there_is_refused_with_the_nearest(model):
    with watch() as trace:
        model(X, Y)
    sentence = r"^the trace has no value 'output\.logit'; the nearest is output\.logits\."
    with pytest.raises(UnknownNameError, match=sentence):
        trace.value("output.logit")


def test_an_empty_trace_has_nothing_near():
    with watch() as trace:
        pass
    with pytest.raises(UnknownNameError, match=r"no attention site 'x'; there are none\.$"):
        trace["x"]


def test_a_trace_prints_in_a_line(model):
    with watch() as trace:
        model(X, Y)
    assert repr(trace) == f"Trace(3 attention sites, {len(trace.values)} other values)"


def test_output_and_tokens_are_the_callers_to_fill(model):
    with watch() as trace:
        trace.output = model(X, Y)
        trace.tokens["source"] = ["a", "dog"]
    assert trace.output.shape == (2, 5, 8)
    assert trace.tokens == {"source": ["a", "dog"]}
