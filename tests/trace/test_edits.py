"""Edits: each one by hand, combined, by wildcard, step by step, and as JSON."""

import json
from math import e, inf, nan

import pytest
import torch
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.mask import causal, window
from regard.attention.multi_head import MultiHeadAttention
from regard.errors import InputError, UnknownNameError
from regard.tap import listening
from regard.trace.edit import Edit, Editor
from regard.trace.edits import (
    SetToken,
    ablate,
    allow,
    edit_from_dict,
    edit_schema,
    forbid,
    set_scores,
    set_value,
    set_weights,
    temperature,
    unscaled,
)
from regard.trace.watch import watch
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


def test_ablate_zeroes_the_output_of_a_head():
    close(run(ablate("attention", head=0)), [0.0, 0.0], [15.0, 15.0])
    close(run(ablate("attention", head=1)), [7.0, 6.0], [0.0, 0.0])
    close(run(ablate("attention")), [0.0, 0.0], [0.0, 0.0])


def test_ablate_to_the_mean_over_queries():
    close(run(ablate("attention", head=0, to="mean")), [6.5, 6.5], [15.0, 15.0])
    close(run(ablate("attention", to="mean")), [6.5, 6.5], [15.0, 15.0])


def test_forbid_leaves_the_other_key():
    close(run(forbid("attention", query=0, key=1)), [4.0, 6.0], [10.0, 15.0])


def test_a_query_without_keys_gives_zero():
    close(run(forbid("attention", query=1)), [7.0, 0.0], [15.0, 0.0])


def test_forbid_in_one_head():
    close(run(forbid("attention", query=0, key=1, head=0)), [4.0, 6.0], [15.0, 15.0])
    close(run(forbid("attention", key=1, head=1)), [7.0, 6.0], [10.0, 10.0])


def test_temperature_divides_the_scores():
    # ln 3 / (1/2) = ln 9
    close(run(temperature("attention", 0.5)), [4 * 0.1 + 8 * 0.9, 6.0], [15.0, 15.0])
    close(run(temperature("attention", 0.0)), [8.0, 6.0], [15.0, 15.0])
    close(run(temperature("attention", inf)), [6.0, 6.0], [15.0, 15.0])


def test_temperature_of_one_head():
    cold = temperature("attention", 0.0, head=0)
    close(run(cold), [8.0, 6.0], [15.0, 15.0])
    close(run(temperature("attention", 0.0, head=1)), [7.0, 6.0], [15.0, 15.0])
    heats = torch.tensor([[[1.0]], [[5.0]]])
    hot = run(temperature("attention", inf, head=0), temperature=heats)
    close(hot, [6.0, 6.0], [15.0, 15.0])


def test_unscaled_scores_are_not_divided_by_the_root_of_d_k():
    # ln 3 · √2 in place of ln 3
    weight = 3**ROOT_2 / (1 + 3**ROOT_2)
    close(run(unscaled("attention")), [4 + 4 * weight, 6.0], [15.0, 15.0])


def test_set_scores_applies_before_mask_and_softmax():
    close(run(set_scores("attention", 0.0, query=0, key=1)), [6.0, 6.0], [15.0, 15.0])
    close(run(set_scores("attention", 0.0, head=0)), [6.0, 6.0], [15.0, 15.0])
    close(run(set_scores("attention", -inf, key=0)), [8.0, 8.0], [20.0, 20.0])
    table = torch.tensor([[0.0, 0.0], [LOG_3, 0.0]])
    close(run(set_scores("attention", table)), [6.0, 5.0], [15.0, 12.5])
    close(run(set_scores("attention", table, head=1)), [7.0, 6.0], [15.0, 12.5])
    masked = run(set_scores("attention", 99.0, key=1), allowed=causal())
    close(masked, [4.0, 8.0], [10.0, 20.0])


def test_set_weights_is_exact():
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
        ("attention.key", lambda k: k.flip(-2), ([5.0, 6.0], [15.0, 15.0])),
        ("attention.context", torch.tensor([[1.0], [2.0]]), ([1.0, 2.0], [1.0, 2.0])),
        ("attention.context", lambda c: -c, ([-7.0, -6.0], [-15.0, -15.0])),
        ("attention.compared", lambda c: 0 * c, ([6.0, 6.0], [15.0, 15.0])),
        ("attention.masked", lambda m: 0 * m, ([6.0, 6.0], [15.0, 15.0])),
        ("attention.scale", 0.0, ([6.0, 6.0], [15.0, 15.0])),
        ("attention.temperature", lambda t: t * inf, ([6.0, 6.0], [15.0, 15.0])),
        ("attention.allowed", window(0), ([4.0, 8.0], [10.0, 20.0])),
        ("attention.allowed", torch.eye(2).bool(), ([4.0, 8.0], [10.0, 20.0])),
        ("attention.allowed", lambda mask: mask & causal(), ([4.0, 6.0], [10.0, 15.0])),
        ("attention.similarity", "cosine", ([4 + 4 * e / (1 + e), 6.0], [15.0, 15.0])),
    ],
)  # fmt: skip
def test_set_value_accepts_numbers_tensors_objects_and_functions(path, value, rows):
    close(run(set_value(path, value)), *rows)


def test_set_value_outside_attention():
    layer = MultiHeadAttention(4, 2, path="encoder.layers.0.self")
    x = torch.randn(1, 3, 4)
    plain = layer(x)
    with watch(edits=[set_value("encoder.layers.0.self.joined", 0.0)]):
        zero = layer(x)
    assert_close(zero, layer.to_output.bias.expand(1, 3, 4))
    with watch(edits=[set_value("*.output", lambda y: 2 * y)]):
        assert_close(layer(x), 2 * plain)


def test_edits_apply_in_order():
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
def test_sites_match_by_path_or_wildcard(pattern, changed):
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
def test_the_model_is_unchanged_after_the_block(edit):
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


def test_edits_are_reusable_and_do_not_modify_inputs():
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
        (ablate("a.b", head=3), "ablate('a.b', head=3)"),
        (forbid("a.b", query=2, key=4), "forbid('a.b', query=2, key=4)"),
        (temperature("a.*", 0.5), "temperature('a.*', 0.5)"),
        (unscaled("a"), "unscaled('a')"),
        (set_scores("a", 1.0, key=0), "set_scores('a', 1.0, key=0)"),
        (
            set_weights("a", torch.ones(2, 2), head=1),
            "set_weights('a', <tensor 2×2>, head=1)",
        ),
        (set_value("a.query", 2.0), "set_value('a.query', 2.0)"),
    ],
)
def test_repr_is_the_call_that_makes_the_edit(edit, written):
    assert repr(edit) == written


def test_an_editor_wants_only_the_values_it_changes():
    editor = Editor([ablate("a"), set_scores("b.*", 0.0)])
    assert editor.wants("a.context")
    assert editor.wants("b.c.scores")
    assert editor.wants("b.c@3.scores")
    assert not editor.wants("a.scores")
    assert not editor.wants("a.weights")


def test_edits_without_tables_keep_the_fused_kernel(monkeypatch):
    import torch.nn.functional as F

    calls, real = [], F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or real(*a, **k)
    )
    run(ablate("*", head=0), forbid("*", key=0), temperature("*", 2.0), unscaled("*"))
    assert len(calls) == 1
    run(set_weights("*", 1.0))
    assert len(calls) == 1


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
def test_edits_with_a_cache_equal_edits_of_the_whole_sequence(edit):
    model, x = MultiHeadAttention(4, 2, path="decoder.self"), torch.randn(2, 5, 4)
    with torch.no_grad(), watch(edits=[edit]):
        whole = model(x, allowed=causal())
    assert_close(by_steps(model, x, edit), whole)
    assert not torch.allclose(whole, model(x, allowed=causal()))


def test_edits_of_a_site_without_heads():
    inputs = QUERY[0], KEY[0], VALUE[0]
    for edit, expected in (
        (temperature("attention", 0.0, head=0), [8.0, 6.0]),
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


def test_allow_shows_a_later_token():
    with watch(edits=[allow("attention", query=0, key=1, head=0)]) as trace:
        context = attend(QUERY * 0, KEY, VALUE, allowed=causal())[..., 0]
    close(context, [6.0, 6.0], [10.0, 15.0])
    assert trace["attention"].weights(0).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    close(run(forbid("attention", key=1), allow("attention", key=1)), [7.0, 6.0], [15.0, 15.0])


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (forbid("attention", query=2), "names query 2, but attention has only 2."),
        (forbid("attention", query=0, key=2), "names key 2, but attention has only 2."),
        (set_weights("attention", 1.0, query=2), "names query 2, but attention has only 2."),
        (ablate("*", head=2), "attention has no head 2; it has 2, 0 to 1."),
        (temperature("*", 1.0, head=5), "attention has no head 5; it has 2, 0 to 1."),
        (ablate("nowhere"), "ablate('nowhere') matched nothing: no value 'nowhere.context' was "
         "computed; the nearest is attention.context."),
        (set_value("attention.wieghts", 0.0), "the nearest are attention."),
        (set_weights("attention", torch.ones(3, 3)), "of shape (3, 3), but those to replace have "
         "shape (2, 2, 2)."),
        (set_scores("attention", torch.ones(3), query=0), "(3,), but those to replace have shape "
         "(2, 2)."),
        (set_value("attention.value", torch.ones(5, 5)), "(5, 5), but those to replace have shape "
         "(2, 2, 1)."),
    ],
    ids=repr,
)  # fmt: skip
def test_edits_that_do_not_fit_are_refused(edit, sentence):
    with pytest.raises(InputError) as caught:
        run(edit)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("what", ["query", "key"])
def test_positions_that_are_never_computed_are_refused_at_the_end(what):
    model, x = MultiHeadAttention(4, 2, path="decoder.self"), torch.randn(1, 3, 4)
    with pytest.raises(UnknownNameError, match=rf"{what}=9\) names a {what} that does not exist"):
        by_steps(model, x, forbid("decoder.self", **{what: 9}))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ablate("x", to="a"), "to of Ablate is 'a'; it must be 'zero' or 'mean'."),
        (lambda: ablate("x", head=-1), "head of Ablate is -1; it must be 0 or larger."),
        (lambda: forbid("x", head=1), "forbid needs a query, a key or both."),
        (lambda: temperature("x", nan), "value of Temperature is nan; it must be 0 or larger."),
        (lambda: set_value("query", 1.0), "'query' is not the path of a value: give the site and "
         "the value's name, such as 'encoder.layers.0.self.query'."),
    ],
)  # fmt: skip
def test_invalid_fields_are_refused(make, sentence):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == sentence


SITE = "encoder.layers.0.self"
EVERY_KIND = [
    {"kind": "temperature", "site": SITE, "value": 0.5, "head": 1},
    {"kind": "temperature", "site": SITE, "value": "inf"},
    {"kind": "unscaled", "site": "encoder.layers.*.self"},
    {"kind": "ablate", "site": SITE, "head": 0, "to": "mean"},
    {"kind": "forbid", "site": SITE, "head": 0, "query": 2, "key": 4},
    {"kind": "allow", "site": SITE, "key": 4},
    {"kind": "score", "site": SITE, "value": -1.5, "head": 0, "query": 0, "key": 0},
    {"kind": "weight", "site": SITE, "value": 1.0, "query": 0},
    {"kind": "token", "side": "source", "position": 1, "token": "cat"},
    {"kind": "token", "side": "target", "position": 0, "token": 7},
    {"kind": "patch", "path": f"{SITE}.context", "source": {"text": "a"}, "head": 1, "position": 0},
]


@pytest.mark.parametrize("given", EVERY_KIND, ids=lambda one: one["kind"])
def test_edits_survive_json(given):
    assert edit_from_dict(json.loads(json.dumps(given))).to_dict() == given


def test_json_edits_by_hand():
    assert repr(edit_from_dict(EVERY_KIND[4])) == f"forbid({SITE!r}, query=2, key=4, head=0)"
    assert repr(edit_from_dict(EVERY_KIND[1])) == f"temperature({SITE!r}, inf)"
    assert edit_from_dict(EVERY_KIND[9]) == SetToken("target", 0, 7)


def test_the_schema_lists_every_kind_with_its_fields():
    kinds = {one["title"]: one for one in edit_schema()["oneOf"]}
    assert kinds.keys() == {one["kind"] for one in EVERY_KIND}
    for given in EVERY_KIND:
        schema = kinds[given["kind"]]
        assert set(given) <= set(schema["properties"])
        assert set(schema["required"]) <= set(given)
    forbid_schema = kinds["forbid"]
    assert (
        forbid_schema["description"]
        == "Hide a key from a query; without a query, from all of them."
    )
    assert forbid_schema["required"] == ["kind", "site"]
    index = {"type": "integer", "minimum": 0, "x-axis": "query", "default": None}
    assert forbid_schema["properties"]["query"] == index
    number = {"anyOf": [{"type": "number", "minimum": 0}, {"const": "inf"}]}
    assert kinds["temperature"]["properties"]["value"] == number
    json.dumps(edit_schema())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("forbid", "JSON object"),
        ({"kind": "forbit", "site": SITE}, "nearest is forbid"),
        ({"kind": "forbid", "key": 1}, "needs the field 'site'"),
        ({"kind": "forbid", "site": SITE, "key": -1}, "0 or larger"),
        ({"kind": "forbid", "site": SITE, "key": True}, "type must be integer"),
        ({"kind": "forbid", "site": SITE, "key": 1, "quary": 2}, "no field 'quary'"),
        ({"kind": "temperature", "site": SITE}, "needs the field 'value'"),
        ({"kind": "temperature", "site": SITE, "value": "hot"}, "type must be number"),
        ({"kind": "score", "site": SITE, "value": "inf"}, "type must be number"),
        ({"kind": "score", "site": SITE, "value": nan}, "type must be number"),
        ({"kind": "token", "side": "left", "position": 0, "token": 1}, "'source' or 'target'"),
        ({"kind": "token", "side": "source", "position": 0, "token": 1.5}, "string or integer"),
    ],
)
def test_invalid_json_is_refused(given, sentence):
    with pytest.raises(InputError, match=sentence):
        edit_from_dict(given)


@pytest.mark.parametrize(
    "edit",
    [set_value(f"{SITE}.query", 0.0), set_scores(SITE, torch.zeros(2, 2)), set_scores(SITE, -inf)],
    ids=repr,
)
def test_edits_with_more_than_finite_numbers_are_not_json(edit):
    with pytest.raises(InputError, match="cannot be written as JSON"):
        edit.to_dict()
