"""Reformer: who meets whom by hand and by brute force, exact attention as its limit, its laws."""

from math import inf, nan

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import regard
from regard.attention.reformer import Reformer, hash_vectors
from tests.attention.forms import reformer_attention

LENGTHS = [40, 17, 0]
MASKS = {
    "none": None,
    "padding": regard.padding(LENGTHS),
    "left padding": regard.padding(LENGTHS, side="left"),
    "causal": regard.causal(),
    "causal and padding": regard.causal() & regard.padding(LENGTHS),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(*shape, dtype=torch.float64, seed=0):
    query, value = torch.randn(2, *shape, dtype=dtype, generator=seeded(seed))
    return query, query, value


def directions(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed))


def met_by_brute_force(buckets, chunk, seen, causal):
    """Who meets whom in some round: sorted lists and nothing clever."""
    n_rounds, n = buckets.shape
    met = torch.zeros(n, n, dtype=torch.bool)
    for number in range(n_rounds):
        own = buckets[number].tolist()
        order = sorted((i for i in range(n) if seen[i]), key=lambda i: (own[i], i))
        for place, i in enumerate(order):
            for other, j in enumerate(order):
                cut = place // chunk - other // chunk in (0, 1)
                near = 1 <= place - other <= chunk
                met[i, j] |= own[i] == own[j] and (near if causal else cut)
    return met


def written_out(query, value, rotations, chunk, allowed):
    """The pattern with its n × n numbers, and the context."""
    n, lead = query.size(-2), query.shape[:-2]
    table = torch.ones(*lead, n, n, dtype=torch.bool)
    table = table if allowed is None else allowed.tensor(n, lead=lead)
    weights = torch.zeros(*lead, n, n, dtype=query.dtype)
    buckets = hash_vectors(query, rotations)
    for index in torch.cartesian_prod(*(torch.arange(k) for k in lead)).tolist():
        index = tuple(index)
        seen = table[index].any(0)
        causal = allowed is not None and "causal" in repr(allowed)
        met = met_by_brute_force(buckets[index], chunk, seen, causal) & table[index]
        for i in range(n):
            others = [j for j in range(n) if met[i, j] and j != i]
            others = others or ([i] if seen[i] else [])
            for j in others:
                key = query[index][j] / query[index][j].norm()
                weights[(*index, i, j)] = torch.exp(query[index][i] @ key / query.size(-1) ** 0.5)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)
    return weights, weights @ value


def exact_with_the_self_rule(query, value, allowed=None):
    """Full shared-QK attention in which nobody sees himself but those who see nobody else."""
    n = query.size(-2)
    others = torch.ones(n, n, dtype=torch.bool) if allowed is None else allowed.tensor(n)
    others = others & ~torch.eye(n, dtype=torch.bool)
    alone = torch.eye(n, dtype=torch.bool) & ~others.any(-1, keepdim=True)
    return regard.attend(query, F.normalize(query, dim=-1), value, allowed=others | alone)


def test_four_tokens_in_two_buckets_by_hand():
    # one direction, (1, 0): tokens 0, 2 point along it, tokens 1, 3 against it
    query = torch.tensor([[2.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-3.0, 0.0]])
    value = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    rotations = torch.tensor([[[1.0], [0.0]]])
    assert hash_vectors(query, rotations).tolist() == [[0, 1, 0, 1]]
    found = reformer_attention(query, query, value, rotations=rotations, chunk=4)
    # each has one other in its bucket
    assert_close(found, torch.tensor([[100.0], [1000.0], [1.0], [10.0]]))
    found = reformer_attention(
        query, query, value, rotations=rotations, chunk=4, allowed=regard.causal()
    )
    # the first of each bucket has only itself
    assert_close(found, torch.tensor([[1.0], [10.0], [1.0], [10.0]]))


@pytest.mark.parametrize("n_rounds", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_one_bucket_and_one_chunk_are_exact_attention_with_the_self_rule(n_rounds, causal):
    query, _, value = drawn(2, 3, 50, 4)
    mask = regard.causal() if causal else None
    form = Reformer(4, n_buckets=1, n_rounds=n_rounds, chunk=64)
    wanted = exact_with_the_self_rule(query, value, mask)
    assert_close(form(query, query, value, allowed=mask), wanted)


@pytest.mark.parametrize("shape", [(1, 4, 2), (2, 4, 4), (4, 4, 1), (3, 4, 0)])
@pytest.mark.parametrize("mask", MASKS)
def test_it_is_what_its_matrix_says(mask, shape):
    query, _, value = drawn(3, 2, 40, 4)
    rotations = directions(*shape)
    for chunk in (5, 16, 64):
        found = reformer_attention(
            query, query, value, rotations=rotations, chunk=chunk, allowed=MASKS[mask]
        )
        assert_close(found, written_out(query, value, rotations, chunk, MASKS[mask])[1])


@pytest.mark.parametrize("mask", MASKS)
def test_its_tiles_are_the_matrix_and_give_the_context(mask):
    query, _, value = drawn(3, 2, 40, 4)
    rotations = directions(3, 4, 3)
    with regard.watch() as trace:
        context = reformer_attention(
            query, query, value, rotations=rotations, chunk=6, allowed=MASKS[mask], site="here"
        )
    site = trace["here"]
    weights = written_out(query, value, rotations, 6, MASKS[mask])[0]
    for batch in range(3):
        assert_close(site.weights(batch=batch), weights[batch])
        assert_close(site.context(batch=batch), context[batch])
        assert_close(site.weights(batch=batch).sum(-1), (weights[batch].sum(-1) > 0).double())
    assert_close(
        site.weights(1, batch=1, rows=slice(5, 12), columns=slice(3, 30)), weights[1, 1, 5:12, 3:30]
    )
    assert_close(site.key, F.normalize(query, dim=-1))
    assert_close(trace.value("here.context"), context)


def test_a_bucket_is_the_nearest_direction_or_its_opposite():
    x, rotations = drawn(30, 4)[0], directions(2, 4, 3)
    both = torch.cat([rotations, -rotations], dim=-1)
    assert torch.equal(hash_vectors(x, rotations), (x @ both).argmax(-1))


def test_more_rounds_come_nearer_to_exact_attention():
    query, _, value = drawn(200, 8)
    query = query + 2 * torch.randn(8, 8, dtype=torch.float64, generator=seeded(3)).repeat(25, 1)
    exact = exact_with_the_self_rule(3 * query, value)

    def error(n_rounds):
        errors = []
        for seed in range(5):
            form = Reformer(
                8, n_buckets=8, n_rounds=n_rounds, chunk=32, generator=seeded(seed)
            ).double()
            errors.append((form(3 * query, 3 * query, value) - exact).pow(2).mean())
        return torch.stack(errors).mean().sqrt().item()

    errors = [error(n) for n in (1, 2, 4, 8)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 2


@pytest.mark.parametrize("garbage", [1e4, inf, nan])
@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing_whatever_it_holds(causal, garbage):
    query, _, value = drawn(1, 2, 50, 4)
    form = Reformer(4, n_buckets=4, chunk=8, generator=seeded()).double()
    mask = regard.causal() if causal else None
    alone = form(query, query, value, allowed=mask)
    padded = [torch.full((1, 2, 130, 4), garbage, dtype=torch.float64) for _ in range(2)]
    for old, new in zip((query, value), padded, strict=True):
        new[..., :50, :] = old
    mask = regard.padding([50]) if mask is None else mask & regard.padding([50])
    found = form(padded[0], padded[0], padded[1], allowed=mask)
    assert_close(found[..., :50, :], alone)
    assert torch.equal(found[..., 50:, :], torch.zeros(1, 2, 80, 4, dtype=torch.float64))


@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("chunk", [3, 16, 64])
def test_later_positions_never_change_earlier_ones(size, chunk):
    query, _, value = drawn(2, 2, 200, 8)
    form = Reformer(8, n_buckets=4, chunk=chunk, generator=seeded()).double()
    before = form(query, query, value, allowed=regard.causal())[..., :90, :]
    for x in (query, value):
        x[..., 90:, :] *= -size
    after = form(query, query, value, allowed=regard.causal())
    assert_close(after[..., :90, :], before)
    assert after.isfinite().all()
    alone = form(*(x[..., :90, :] for x in (query, query, value)), allowed=regard.causal())
    assert_close(alone, before)


@pytest.mark.parametrize("mask", [None, regard.causal()], ids=["none", "causal"])
def test_a_text_shorter_than_a_chunk_is_not_filled_up_to_it(mask, largest):
    inputs, rotations = drawn(2, 10, 4), directions(3, 4, 2)
    exact = reformer_attention(*inputs, rotations=rotations, chunk=10, allowed=mask)
    with largest:
        found = reformer_attention(*inputs, rotations=rotations, chunk=64, allowed=mask)
    assert_close(found, exact, rtol=0, atol=0)
    assert largest.numbers <= 2 * 3 * 10 * 20


def test_one_token_gets_its_value_and_a_padded_one_nothing():
    query, _, value = drawn(2, 1, 4)
    form = Reformer(4, n_buckets=2, chunk=8).double()
    assert_close(form(query, query, value), value)
    found = form(query, query, value, allowed=regard.padding([1, 0]))
    assert_close(found, torch.stack([value[0], 0 * value[1]]))


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_gradients_are_right(mask):
    query, _, value = (x[..., :11, :].clone().requires_grad_() for x in drawn(2, 1, 40, 4))
    rotations = directions(2, 4, 2)

    def call(query, value):
        return reformer_attention(
            query, query, value, rotations=rotations, chunk=4, allowed=MASKS[mask]
        )

    assert torch.autograd.gradcheck(call, (query, value))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_lose_no_more_than_their_digits(dtype):
    query, _, value = (x.to(dtype) for x in drawn(2, 2, 60, 8))
    # one bucket: near the border between two, halves may fall to the other side
    form = Reformer(8, n_buckets=1, chunk=16)
    found = form(query, query, value, allowed=regard.causal())
    exact = form.double()(query.double(), query.double(), value.double(), allowed=regard.causal())
    assert found.dtype == dtype
    assert_close(found.double(), exact, atol=0.03, rtol=0.03)


@pytest.mark.parametrize("mask", ["none", "causal and padding"])
def test_long_inputs_never_make_an_n_by_n_matrix(mask, largest):
    n = 8192
    query, _, value = (x.clone().requires_grad_() for x in drawn(1, 1, n, 16, dtype=torch.float32))
    allowed = regard.causal() & regard.padding([n - 5]) if mask != "none" else None
    with largest:
        form = Reformer(16, n_buckets=32, n_rounds=2, chunk=32)
        form(query, query, value, allowed=allowed).sum().backward()
    assert n * 16 <= largest.numbers <= n * 2 * 40


@pytest.mark.parametrize("mask", ["padding"])
def test_it_compiles_to_one_graph(mask, no_shape_checks):
    query, _, value = drawn(3, 2, 40, 4)
    form = Reformer(4, n_buckets=4, n_rounds=2, chunk=8).double()
    compiled = torch.compile(
        lambda q, v: form(q, q, v, allowed=MASKS[mask]), fullgraph=True, backend="aot_eager"
    )
    assert_close(compiled(query, value), form(query, query, value, allowed=MASKS[mask]))


def test_many_heads_are_computed_in_groups_like_one_by_one():
    query, _, value = drawn(5, 3, 700, 4)
    form = Reformer(4, n_buckets=16, chunk=64, generator=seeded()).double()
    mask = regard.padding([700, 650, 64, 1, 0])
    together = form(query, query, value, allowed=mask)
    for batch, length in enumerate([700, 650, 64, 1, 0]):
        one, own = query[batch : batch + 1], value[batch : batch + 1]
        assert_close(form(one, one, own, allowed=regard.padding([length])), together[[batch]])


@pytest.mark.parametrize("mask", MASKS)
def test_codes_of_long_inputs_need_longer_integers_and_say_the_same(mask, monkeypatch):
    query, _, value = drawn(3, 2, 40, 4)
    form = Reformer(4, n_buckets=4, chunk=6, generator=seeded()).double()
    short = form(query, query, value, allowed=MASKS[mask])
    monkeypatch.setattr("regard.attention.reformer._SHORT", 0)
    assert torch.equal(form(query, query, value, allowed=MASKS[mask]), short)
