"""Attention itself: the worked example, references, laws, corners and refusals."""

from math import e, inf

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.mask import causal, edges, padding, window
from regard.attention.similarity import Additive, Alibi, General
from regard.errors import InputError
from regard.tap import listen
from tests.listeners import Everybody

# The worked example: three words, embedding width 3, query/key/value width 4.
X = torch.tensor([[1.0, 0, 1], [0, 2, 0], [1, 1, 1]])
Q = X @ torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]])
K = X @ torch.tensor([[0.0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 1, 1]])
V = X @ torch.tensor([[0.0, 2, 0, 1], [0, 3, 1, 0], [1, 0, 3, 2]])


def steps(*inputs, **options) -> dict:
    """Every tapped value of an attention, by its name."""
    everybody = Everybody()
    with listen(everybody):
        attend(*inputs, **options)
    return {path.removeprefix("attention."): value for path, value in everybody.seen.items()}


def looked_at(*inputs, **options) -> torch.Tensor:
    with listen(Everybody()):
        return attend(*inputs, **options)


BOTH = pytest.mark.parametrize("form", [attend, looked_at])


def close(found, *rows):
    assert_close(found, torch.tensor(rows), atol=5e-5, rtol=0)


def test_every_step_of_the_worked_example():
    seen = steps(Q, K, V)
    assert seen["compared"].tolist() == [[3, 6, 6], [6, 0, 6], [6, 6, 9]]
    assert seen["scale"] == 0.5
    assert seen["scores"].tolist() == [[1.5, 3, 3], [3, 0, 3], [3, 3, 4.5]]
    close(seen["weights"], [0.1004, 0.4498, 0.4498], [0.4879, 0.0243, 0.4879],
          [0.1543, 0.1543, 0.6914])  # fmt: skip
    close(seen["context"], [0.5502, 5.1487, 3.0, 1.6506], [0.9757, 3.5607, 3.4636, 2.9271],
          [0.8457, 4.6914, 3.5372, 2.5372])  # fmt: skip


def test_the_worked_example_with_a_causal_mask():
    seen = steps(Q, K, V, allowed=causal())
    assert seen["masked"].tolist() == [[1.5, -inf, -inf], [3, 0, -inf], [3, 3, 4.5]]
    close(seen["weights"], [1.0, 0, 0], [0.9526, 0.0474, 0], [0.1543, 0.1543, 0.6914])
    assert_close(seen["context"][0], V[0])


@pytest.mark.parametrize("mask", [None, causal(), window(1), edges([(0, 2), (1, 1)])])
def test_it_is_torchs_attention(mask):
    query, key, value = torch.randn(3, 2, 3, 4, 8).unbind()
    allowed = None if mask is None else mask.tensor(4)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    assert_close(attend(query, key, value, allowed=mask), expected)
    assert_close(looked_at(query, key, value, allowed=mask), expected)


@BOTH
@pytest.mark.parametrize(
    "similarity",
    ["dot", "scaled_dot", "cosine", General(3, 3), Additive(3, 3, 5), Alibi(2),
     lambda q, k: -torch.cdist(q, k)],
    ids=["dot", "scaled_dot", "cosine", "general", "additive", "alibi", "callable"],
)  # fmt: skip
@pytest.mark.parametrize("mask", [None, padding([4, 0, 2]), causal() & padding([1, 5, 3])])
def test_every_similarity_is_the_textbook_loop_over_queries(form, similarity, mask):
    query, key, value = torch.randn(3, 2, 4, 3), torch.randn(3, 2, 5, 3), torch.randn(3, 2, 5, 6)
    context = form(query, key, value, similarity=similarity, allowed=mask, temperature=0.7)
    scores = steps(query, key, value, similarity=similarity)["scores"]
    allowed = torch.ones(3, 2, 4, 5).bool() if mask is None else mask.tensor(4, 5, lead=(3, 2))
    for b in range(3):
        for h in range(2):
            for i in range(4):
                seen = allowed[b, h, i]
                weights = torch.softmax(scores[b, h, i][seen] / 0.7, -1)
                expected = (weights[:, None] * value[b, h][seen]).sum(0)
                assert_close(context[b, h, i], expected, atol=1e-5, rtol=1e-5)


@BOTH
def test_one_query_for_a_batch_of_keys_is_that_query_repeated(form):
    query, key, value = torch.randn(1, 4, 5), torch.randn(2, 3, 6, 5), torch.randn(3, 6, 7)
    expected = form(query.expand(2, 3, 4, 5), key, value.expand(2, 3, 6, 7))
    assert_close(form(query, key, value), expected)


def test_permuting_queries_permutes_results_and_permuting_keys_does_nothing():
    query, key, value = torch.randn(4, 5), torch.randn(6, 5), torch.randn(6, 7)
    rows, columns = torch.randperm(4), torch.randperm(6)
    expected = attend(query, key, value)
    assert_close(attend(query[rows], key, value), expected[rows])
    assert_close(attend(query, key[columns], value[columns]), expected)


def test_the_results_lie_between_the_values():
    query, key, value = torch.randn(3, 2, 9, 4).unbind()
    context = attend(3 * query, key, value)
    assert (context <= value.amax(-2, keepdim=True) + 1e-6).all()
    assert (context >= value.amin(-2, keepdim=True) - 1e-6).all()


@BOTH
def test_temperature_zero_picks_the_value_of_the_best_key(form):
    assert form(Q, K, V, temperature=0.0)[2].tolist() == V[2].tolist()
    assert form(Q, K, V, temperature=0)[0].tolist() == ((V[1] + V[2]) / 2).tolist()  # equals


@BOTH
def test_a_temperature_for_each_head(form):
    query, key, value = torch.randn(3, 2, 3, 4, 5).unbind()
    heats = [0.0, 0.5, inf]
    together = form(query, key, value, temperature=torch.tensor(heats).view(3, 1, 1))
    for head, heat in enumerate(heats):
        alone = form(query[:, head], key[:, head], value[:, head], temperature=heat)
        assert_close(together[:, head], alone)


@BOTH
def test_a_temperature_for_each_query(form):
    heats = torch.tensor([[0.5], [1.0], [2.0]])
    together = form(Q, K, V, temperature=heats, allowed=causal())
    for i, heat in enumerate(heats[:, 0].tolist()):
        assert_close(together[i], form(Q, K, V, temperature=heat, allowed=causal())[i])


@BOTH
def test_dropout_zeroes_weights_and_scales_the_others_up(form):
    query, key = torch.zeros(8, 50, 4), torch.zeros(8, 50, 4)  # all weights are 1/50
    context = form(query, key, torch.eye(50).expand(8, 50, 50), dropout=0.3)
    dropped = context == 0
    assert 0.28 < dropped.float().mean() < 0.32  # 20,000 coins: a standard deviation is 0.003
    assert_close(context[~dropped], torch.full_like(context[~dropped], 1 / 50 / 0.7))


def test_recorded_weights_are_those_before_dropout():
    assert_close(steps(Q, K, V, dropout=0.9)["weights"].sum(-1), torch.ones(3))


def test_every_step_is_tapped_under_the_name_of_the_site():
    everybody = Everybody()
    with listen(everybody):
        attend(Q, K, V, site="encoder.layers.0.self")
    assert [path.removeprefix("encoder.layers.0.self.") for path in everybody.seen] == [
        *("query", "key", "value", "similarity", "scale", "temperature", "allowed", "pattern"),
        *("compared", "scores", "masked", "weights", "context"),
    ]


def test_a_listener_that_wants_no_weights_leaves_the_fused_kernel_in_use():
    class Modest(Everybody):
        def wants(self, path):
            return path.endswith(".query")

    modest = Modest()
    with listen(modest):
        attend(Q, K, V)
    assert {"attention.query", "attention.pattern", "attention.context"} <= set(modest.seen)
    assert "attention.weights" not in modest.seen


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("query", lambda q: q * 0, lambda: V.mean(0).expand(3, 4)),
        ("value", lambda v: v + 1, lambda: attend(Q, K, V) + 1),
        ("scale", lambda s: 1.0, lambda: attend(Q, K, V, similarity="dot")),
        ("temperature", lambda t: 3.0, lambda: attend(Q, K, V, temperature=3.0)),
        ("allowed", lambda m: m & causal(), lambda: attend(Q, K, V, allowed=causal())),
        ("allowed", lambda m: torch.eye(3).bool(), lambda: V),
        ("similarity", lambda s: "cosine", lambda: attend(Q, K, V, similarity="cosine")),
        ("compared", lambda c: c * 2, lambda: attend(2 * Q, K, V)),
        ("scores", lambda s: s * 0, lambda: V.mean(0).expand(3, 4)),
        ("masked", lambda m: m.tril(), lambda: steps(Q, K, V)["masked"].tril().softmax(-1) @ V),
        ("weights", lambda w: torch.eye(3), lambda: V),
        ("context", lambda c: -c, lambda: -attend(Q, K, V)),
    ],
)  # fmt: skip
def test_a_replaced_value_is_used(name, change, expected):
    class Change(Everybody):
        changes = True

        def wants(self, path):
            return path == f"attention.{name}"

        def see(self, tapped):
            return change(tapped.value) if tapped.path == f"attention.{name}" else tapped.value

    with listen(Change()):
        found = attend(Q, K, V)
    assert_close(found, expected(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("query", torch.ones(3, 5), "queries are 5 wide and keys 4"),
        ("value", torch.ones(2, 4), "there are 3 keys but 2 values"),
        ("key", torch.ones(3, 4).long(), "query, key and value are torch.float32, torch.int64"),
        ("temperature", -1.0, "temperature is -1.0; it must be 0"),
        ("allowed", torch.ones(3, 3), "`allowed` is a torch.float32 tensor"),
        ("allowed", torch.ones(3, 2).bool(), r"the mask `allowed` has shape \(3, 2\)"),
        ("similarity", "cosin", "unknown similarity 'cosin'"),
    ],
)
def test_what_a_listener_puts_in_place_must_fit(name, value, sentence):
    class Change(Everybody):
        changes = True

        def wants(self, path):
            return False

        def see(self, tapped):
            return value if tapped.path == f"attention.{name}" else tapped.value

    with listen(Change()), pytest.raises(InputError, match=f"^{sentence}"):
        attend(Q, K, V)


def test_the_mask_may_be_the_fourth_argument():
    query, key, value = torch.randn(3, 4, 5, 2).unbind(0)
    assert torch.equal(
        attend(query, key, value, causal()), attend(query, key, value, allowed=causal())
    )


def test_a_single_query_vector_is_the_textbook_layer():
    query, keys, values = torch.tensor([0.0, 1.0]), torch.eye(2), torch.tensor([[1.0], [0.0]])
    got = attend(query, keys, values, similarity="dot")
    assert got.shape == (1,)
    assert_close(got, torch.tensor([1 / (1 + e)]))  # scores 0 and 1
    assert_close(attend(query, keys, values), attend(query[None], keys, values)[0])
    hidden = torch.tensor([[True, False]])
    assert_close(attend(query, keys, values, hidden), values[0])
