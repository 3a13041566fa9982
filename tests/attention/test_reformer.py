"""Reformer: meetings by hand and by brute force, exact attention as its limit, and refusals."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import regard
from regard.attention.multi_head import MultiHeadAttention
from regard.attention.reformer import Reformer, hash_vectors
from regard.errors import InputError, ShapeError
from tests.attention.forms import check_site, reformer_attention

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
    """The pairs that meet in some round, from sorted lists."""
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
    """Full shared-QK attention in which a token sees itself only if it sees no other."""
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


@pytest.mark.parametrize(("shape", "chunk"), [((1, 4, 2), 5), ((4, 4, 1), 16), ((3, 4, 0), 64)])
@pytest.mark.parametrize("mask", MASKS)
def test_context_and_weights_are_those_of_the_matrix(mask, shape, chunk):
    query, _, value = drawn(3, 2, 40, 4)
    options = {"rotations": directions(*shape), "chunk": chunk}
    with regard.watch() as trace:
        context = reformer_attention(
            query, query, value, **options, allowed=MASKS[mask], site="here"
        )
    weights, expected = written_out(query, value, *options.values(), MASKS[mask])
    assert_close(context, expected)
    check_site(trace["here"], weights, context)
    assert_close(trace["here"].key, F.normalize(query, dim=-1))


def test_a_bucket_is_the_nearest_direction_or_its_opposite():
    x, rotations = drawn(30, 4)[0], directions(2, 4, 3)
    both = torch.cat([rotations, -rotations], dim=-1)
    assert torch.equal(hash_vectors(x, rotations), (x @ both).argmax(-1))


def test_more_rounds_approximate_exact_attention_better():
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


def test_many_heads_are_computed_in_groups_like_one_by_one(monkeypatch):
    query, _, value = drawn(5, 3, 70, 4)
    form = Reformer(4, n_buckets=4, chunk=16, generator=seeded()).double()
    lengths = [70, 65, 16, 1, 0]
    together = form(query, query, value, allowed=regard.padding(lengths))
    monkeypatch.setattr("regard.attention.reformer._BLOCK", 1)
    assert_close(form(query, query, value, allowed=regard.padding(lengths)), together)


@pytest.mark.parametrize("mask", ["causal", "padding"])
def test_longer_integers_give_the_same_result(mask, monkeypatch):
    query, _, value = drawn(3, 2, 40, 4)
    form = Reformer(4, n_buckets=4, chunk=6, generator=seeded()).double()
    short = form(query, query, value, allowed=MASKS[mask])
    monkeypatch.setattr("regard.attention.reformer._SHORT", 0)
    assert torch.equal(form(query, query, value, allowed=MASKS[mask]), short)


def test_in_multi_head_attention_one_projection_serves_queries_and_keys():
    module = MultiHeadAttention(8, 2, form=Reformer(4, n_buckets=2, n_rounds=2, chunk=4))
    assert "to_key.weight" not in module.state_dict()
    with regard.watch() as trace:
        module(torch.randn(2, 6, 8), allowed=regard.padding([6, 3]))
    weights = trace["attention"].weights(batch=1)
    assert_close(weights[:, :3].sum(-1), torch.ones(2, 3))


def test_an_edit_can_hide_a_token_from_all_queries():
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


def test_cross_attention_is_refused():
    query, key, value = drawn(2, 10, 4)
    with pytest.raises(ShapeError, match="as many queries as keys, not 5 and 10"):
        Reformer(4).double()(query[:, :5], key, value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_buckets": 0}, "1 bucket or an even number of them, not 0"),
        ({"n_buckets": 7}, "1 bucket or an even number of them, not 7"),
        ({"n_rounds": 0}, "n_rounds is 0"),
        ({"chunk": 0}, "chunk is 0"),
    ],
)
def test_bad_settings_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Reformer(4, **options)
