"""Edits: each by hand, together, by wildcard, step by step, refused, and gone afterwards."""

from math import e, inf

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.mask import causal, window
from regard.attention.multi_head import MultiHeadAttention
from regard.attention.similarity import General
from regard.errors import UnknownNameError
from regard.tap import listen, listening
from regard.trace.edits import (
    Edit,
    Editor,
    ablate,
    forbid,
    set_scores,
    set_value,
    set_weights,
    temperature,
    unscaled,
)
from regard.trace.trace import watch
from tests.trace.attentions import Two, by_steps

ROOT_2, LOG_3 = 2**0.5, torch.tensor(3.0).log().item()
# Two heads of two queries and two keys, width 2. All scores are 0 but that of query 0 and key 1,
# which is ln 3 in head 0: its weights are 1/4 and 3/4, all others 1/2.
QUERY = torch.zeros(2, 2, 2)
QUERY[0, 0, 1] = LOG_3 * ROOT_2
KEY = torch.eye(2).expand(2, 2, 2)
VALUE = torch.tensor([[[4.0], [8.0]], [[10.0], [20.0]]])


def run(*edits: Edit, **options) -> torch.Tensor:
    """The context of both heads, (head, query), under the edits."""
    with watch(edits=edits):
        return attend(QUERY, KEY, VALUE, **options)[..., 0]


def close(found: torch.Tensor, *rows: list[float]) -> None:
    assert_close(found, torch.tensor(rows), atol=1e-5, rtol=0)


def test_without_edits_the_example_is_what_was_said():
    close(run(), [7.0, 6.0], [15.0, 15.0])


def test_ablating_a_head_makes_its_output_zero():
    close(run(ablate("attention", head=0)), [0.0, 0.0], [15.0, 15.0])
    close(run(ablate("attention", head=1)), [7.0, 6.0], [0.0, 0.0])
    close(run(ablate("attention")), [0.0, 0.0], [0.0, 0.0])


def test_ablating_to_the_mean_takes_the_mean_over_queries():
    close(run(ablate("attention", head=0, to="mean")), [6.5, 6.5], [15.0, 15.0])
    close(run(ablate("attention", to="mean")), [6.5, 6.5], [15.0, 15.0])


def test_forbidding_a_connection_leaves_the_other_key():
    close(run(forbid("attention", query=0, key=1)), [4.0, 6.0], [10.0, 15.0])


def test_forbidding_a_key_forbids_it_for_everybody():
    close(run(forbid("attention", key=0)), [8.0, 8.0], [20.0, 20.0])


def test_forbidding_a_query_everything_gives_zero():
    close(run(forbid("attention", query=1)), [7.0, 0.0], [15.0, 0.0])


def test_forbidding_in_one_head_leaves_the_others_alone():
    close(run(forbid("attention", query=0, key=1, head=0)), [4.0, 6.0], [15.0, 15.0])
    close(run(forbid("attention", key=1, head=1)), [7.0, 6.0], [10.0, 10.0])


def test_what_was_forbidden_before_stays_forbidden():
    close(run(forbid("attention", key=0), allowed=causal()), [0.0, 8.0], [0.0, 20.0])


def test_a_temperature_divides_the_scores():
    # ln 3 / (1/2) = ln 9
    close(run(temperature("attention", 0.5)), [4 * 0.1 + 8 * 0.9, 6.0], [15.0, 15.0])
    close(run(temperature("attention", 0.0)), [8.0, 6.0], [15.0, 15.0])
    close(run(temperature("attention", inf)), [6.0, 6.0], [15.0, 15.0])


def test_a_temperature_of_one_head_leaves_the_others_as_they_were():
    cold = temperature("attention", 0.0, head=0)
    close(run(cold), [8.0, 6.0], [15.0, 15.0])
    close(run(temperature("attention", 0.0, head=1)), [7.0, 6.0], [15.0, 15.0])
    heats = torch.tensor([[[1.0]], [[5.0]]])
    hot = run(temperature("attention", inf, head=0), temperature=heats)
    close(hot, [6.0, 6.0], [15.0, 15.0])


def test_unscaled_leaves_out_the_root_of_the_width():
    # ln 3 · √2 in place of ln 3
    weight = 3**ROOT_2 / (1 + 3**ROOT_2)
    close(run(unscaled("attention")), [4 + 4 * weight, 6.0], [15.0, 15.0])


def test_scores_are_set_before_mask_and_softmax():
    close(run(set_scores("attention", 0.0, query=0, key=1)), [6.0, 6.0], [15.0, 15.0])
    close(run(set_scores("attention", 0.0, head=0)), [6.0, 6.0], [15.0, 15.0])
    close(run(set_scores("attention", -inf, key=0)), [8.0, 8.0], [20.0, 20.0])
    table = torch.tensor([[0.0, 0.0], [LOG_3, 0.0]])
    close(run(set_scores("attention", table)), [6.0, 5.0], [15.0, 12.5])
    close(run(set_scores("attention", table, head=1)), [7.0, 6.0], [15.0, 12.5])
    masked = run(set_scores("attention", 99.0, key=1), allowed=causal())
    close(masked, [4.0, 8.0], [10.0, 20.0])


def test_weights_are_set_exactly_and_need_not_sum_to_one():
    close(run(set_weights("attention", 0.0, query=0, key=1)), [1.0, 6.0], [5.0, 15.0])
    close(run(set_weights("attention", 1.0, head=1)), [7.0, 6.0], [30.0, 30.0])
    close(run(set_weights("attention", torch.eye(2))), [4.0, 8.0], [10.0, 20.0])
    row = torch.tensor([0.0, 2.0])
    close(run(set_weights("attention", row, query=1, head=0)), [7.0, 16.0], [15.0, 15.0])
    close(run(set_weights("attention", 0.5, key=0, head=0)), [8.0, 6.0], [15.0, 15.0])


@pytest.mark.parametrize(
    ("path", "value", "rows"),
    [
        ("attention.value", 1.0, ([1.0, 1.0], [1.0, 1.0])),
        ("attention.value", torch.tensor([[0.0], [1.0]]), ([0.75, 0.5], [0.5, 0.5])),
        ("attention.value", lambda v: v + 1, ([8.0, 7.0], [16.0, 16.0])),
        ("attention.query", 0.0, ([6.0, 6.0], [15.0, 15.0])),
        ("attention.key", lambda k: k.flip(-2), ([5.0, 6.0], [15.0, 15.0])),
        ("attention.context", torch.tensor([[1.0], [2.0]]), ([1.0, 2.0], [1.0, 2.0])),
        ("attention.context", lambda c: -c, ([-7.0, -6.0], [-15.0, -15.0])),
        ("attention.scores", 0.0, ([6.0, 6.0], [15.0, 15.0])),
        ("attention.compared", lambda c: 0 * c, ([6.0, 6.0], [15.0, 15.0])),
        ("attention.masked", lambda m: 0 * m, ([6.0, 6.0], [15.0, 15.0])),
        ("attention.weights", torch.eye(2), ([4.0, 8.0], [10.0, 20.0])),
        ("attention.scale", 0.0, ([6.0, 6.0], [15.0, 15.0])),
        ("attention.temperature", 0.0, ([8.0, 6.0], [15.0, 15.0])),
        ("attention.temperature", lambda t: t * inf, ([6.0, 6.0], [15.0, 15.0])),
        ("attention.allowed", window(0), ([4.0, 8.0], [10.0, 20.0])),
        ("attention.allowed", torch.eye(2).bool(), ([4.0, 8.0], [10.0, 20.0])),
        ("attention.allowed", lambda mask: mask & causal(), ([4.0, 6.0], [10.0, 15.0])),
        ("attention.similarity", "cosine", ([4 + 4 * e / (1 + e), 6.0], [15.0, 15.0])),
    ],
)  # fmt: skip
def test_any_tapped_value_is_set_to_a_number_a_tensor_an_object_or_a_functions_result(
    path, value, rows
):
    close(run(set_value(path, value)), *rows)


def test_a_similarity_with_weights_is_an_object_and_not_a_function_to_call():
    general = General(2, 2)
    nn.init.zeros_(general.weight)
    close(run(set_value("attention.similarity", general)), [6.0, 6.0], [15.0, 15.0])


def test_values_that_are_no_attention_are_set_too():
    layer = MultiHeadAttention(4, 2, path="encoder.layers.0.self")
    x = torch.randn(1, 3, 4)
    plain = layer(x)
    with watch(edits=[set_value("encoder.layers.0.self.joined", 0.0)]):
        zero = layer(x)
    assert_close(zero, layer.to_output.bias.expand(1, 3, 4))
    with watch(edits=[set_value("*.output", lambda y: 2 * y)]):
        assert_close(layer(x), 2 * plain)


def test_edits_compose_in_their_order():
    close(run(set_weights("attention", 1.0), set_weights("attention", 0.0, key=0)),
          [8.0, 8.0], [20.0, 20.0])  # fmt: skip
    close(run(set_weights("attention", 0.0, key=0), set_weights("attention", 1.0)),
          [12.0, 12.0], [30.0, 30.0])  # fmt: skip
    double, one_more = (
        set_value("attention.value", lambda v: 2 * v),
        set_value("attention.value", lambda v: v + 1),
    )
    close(run(double, one_more), [15.0, 13.0], [31.0, 31.0])
    close(run(one_more, double), [16.0, 14.0], [32.0, 32.0])
    close(run(temperature("attention", 0.0), temperature("attention", inf, head=1)),
          [8.0, 6.0], [15.0, 15.0])  # fmt: skip


def test_edits_of_different_steps_work_together():
    found = run(
        ablate("attention", head=1),
        forbid("attention", query=1, key=0),
        set_scores("attention", 0.0, query=0),
        set_value("attention.value", lambda v: v / 2),
    )
    close(found, [3.0, 4.0], [0.0, 0.0])


@pytest.mark.parametrize(
    ("pattern", "changed"),
    [
        ("encoder.layers.0.self", [0]),
        ("encoder.layers.1.self", [1]),
        ("encoder.layers.*.self", [0, 1]),
        ("encoder.layers.?.self", [0, 1]),
        ("encoder.layers.[1-9].self", [1]),
        ("*", [0, 1]),
    ],
)
def test_sites_are_named_by_exact_path_or_wildcard(pattern, changed):
    model, x = Two(), torch.randn(1, 3, 4)
    with watch(edits=[set_weights(pattern, 0.125)]) as trace:
        model(x)
    found = [i for i, path in enumerate(trace) if (trace[path].weights() == 0.125).all()]
    assert found == changed


@pytest.mark.parametrize(
    "edit",
    [
        ablate("*"), ablate("*", to="mean"), forbid("*", key=0), temperature("*", 3.0),
        unscaled("*"), set_scores("*", 1.0), set_weights("*", 1.0), set_value("*.value", 0.5),
    ],
    ids=repr,
)  # fmt: skip
def test_the_model_is_as_before_once_the_edit_is_gone(edit):
    model, x = Two(), torch.randn(1, 3, 4)
    before, weights = model(x), {k: v.clone() for k, v in model.state_dict().items()}
    with watch(edits=[edit]):
        changed = model(x)
    assert not torch.allclose(changed, before)
    assert torch.equal(model(x), before)
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
    with pytest.raises(RuntimeError, match="stop"), watch(edits=[edit]):
        raise RuntimeError("stop")
    assert not listening()
    assert torch.equal(model(x), before)


def test_an_edit_may_be_used_again_and_does_not_change_what_it_edits():
    edit = set_weights("attention", 0.0, key=0)
    assert torch.equal(run(edit), run(edit))
    value = VALUE.clone()
    run(set_value("attention.value", lambda v: v * 0))
    assert torch.equal(VALUE, value)


def test_gradients_flow_through_edits():
    leaves = [x.clone().requires_grad_() for x in (QUERY, KEY, VALUE)]
    with watch(edits=[ablate("attention", head=1), temperature("attention", 2.0)]):
        attend(*leaves).sum().backward()
    value_gradient = leaves[2].grad
    assert value_gradient is not None
    assert (value_gradient[0] > 0).all()
    assert (value_gradient[1] == 0).all()


@pytest.mark.parametrize(
    ("edit", "written"),
    [
        (ablate("a.b", head=3), "ablate('a.b', head=3, to='zero')"),
        (forbid("a.b", query=2, key=4), "forbid('a.b', query=2, key=4)"),
        (temperature("a.*", 0.5), "temperature('a.*', value=0.5)"),
        (unscaled("a"), "unscaled('a')"),
        (set_scores("a", 1.0, key=0), "set_scores('a', value=1.0, key=0)"),
        (
            set_weights("a", torch.ones(2, 2), head=1),
            "set_weights('a', value=tensor(2, 2), head=1)",
        ),
        (set_value("a.query", 2.0), "set_value('a.query', value=2.0)"),
    ],
)
def test_edits_print_as_they_are_written(edit, written):
    assert repr(edit) == written


def test_an_editor_wants_only_what_its_edits_change():
    editor = Editor([ablate("a"), set_scores("b.*", 0.0)])
    assert editor.wants("a.context")
    assert editor.wants("b.c.scores")
    assert editor.wants("b.c@3.scores")
    assert not editor.wants("a.scores")
    assert not editor.wants("a.weights")


def test_edits_that_need_no_table_leave_the_fused_kernel_alone(monkeypatch):
    import torch.nn.functional as F

    calls, real = [], F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or real(*a, **k)
    )
    run(ablate("*", head=0), forbid("*", key=0), temperature("*", 2.0), unscaled("*"))
    assert len(calls) == 1
    run(set_weights("*", 1.0))
    assert len(calls) == 1


def test_an_edit_inside_another_block_comes_after_it():
    outer, inner = (
        Editor([set_weights("attention", 1.0)]),
        Editor([set_weights("attention", 0.0, key=0)]),
    )
    with listen(outer), listen(inner):
        close(attend(QUERY, KEY, VALUE)[..., 0], [8.0, 8.0], [20.0, 20.0])


@pytest.mark.parametrize(
    "edit",
    [
        forbid("decoder.self", query=3, key=1),
        forbid("decoder.self", query=0, key=0),
        forbid("decoder.self", key=2, head=1),
        temperature("decoder.self", 0.3),
        temperature("decoder.self", 0.3, head=1),
        unscaled("decoder.self"),
        ablate("decoder.self", head=0),
        set_scores("decoder.self", 3.0, query=2, key=1),
        set_weights("decoder.self", 0.7, query=4, head=1),
        set_weights("decoder.self", 0.7, query=4, key=3),
        set_value("decoder.self.context", lambda c: c * 2),
    ],
    ids=repr,
)
def test_an_edit_does_the_same_step_by_step_as_at_once(edit):
    model, x = MultiHeadAttention(4, 2, path="decoder.self"), torch.randn(2, 5, 4)
    with torch.no_grad(), watch(edits=[edit]):
        whole = model(x, allowed=causal())
    assert_close(by_steps(model, x, edit), whole)
    assert not torch.allclose(whole, model(x, allowed=causal()))


def test_an_edit_on_a_site_without_heads_acts_on_its_only_head():
    inputs = QUERY[0], KEY[0], VALUE[0]
    for edit, expected in (
        (temperature("attention", 0.0, head=0), [8.0, 6.0]),
        (ablate("attention", head=0), [0.0, 0.0]),
        (set_weights("attention", 1.0, head=0, query=0), [12.0, 6.0]),
    ):
        with watch(edits=[edit]):
            found = attend(*inputs)
        assert found.shape == (2, 1)
        assert_close(found[:, 0], torch.tensor(expected))
    with (
        pytest.raises(UnknownNameError, match=r"has no head 1; it has 1, 0 to 0\.$"),
        watch(edits=[ablate("attention", head=1)]),
    ):
        attend(*inputs)


def test_heads_are_counted_also_where_only_the_keys_have_them():
    with watch(edits=[ablate("attention", head=1)]):
        found = attend(QUERY[:1], KEY, VALUE)[..., 0]
    close(found, [7.0, 6.0], [0.0, 0.0])
