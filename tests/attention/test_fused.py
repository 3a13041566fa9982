"""The fused kernel equals the definition wherever it is used."""

from math import inf

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.attention.attend import attend, explicit_attention
from regard.attention.fused import fused_attention
from regard.attention.mask import Everything, as_mask, causal, edges, padding, window
from regard.attention.pattern import ExactPattern
from regard.attention.similarity import Alibi, General, as_similarity
from regard.tap import listen
from tests.listeners import Everybody


def attend_explicitly(query, key, value, **options):
    with listen(Everybody()):
        return attend(query, key, value, **options)


# Leading axes of query, key and value: equal, or broadcast against each other.
LEADS = [
    [(), (), ()],
    [(3,), (3,), (3,)],
    [(2, 3), (2, 3), (2, 3)],
    [(2, 2, 3), (2, 2, 3), (2, 2, 3)],
    [(2, 3), (1, 3), (2, 1)],
    [(2, 3), (3,), ()],
    [(1, 3), (1, 3), (2, 3)],
    [(3,), (2, 3), (1,)],
]
SIZES = st.integers(1, 6)
SEEDS = st.integers(0, 999)
TEMPERATURES = st.sampled_from([0.0, 0.25, 0.7, 1.0, 2.0, 30.0, inf, "each head", "one cold head"])
SIMILARITIES = st.sampled_from(["scaled_dot", "dot", "cosine", "general", "alibi"])
MASKS = st.sampled_from(
    ["none", "table", "causal", "offset", "window", "edges", "padding", "mixed"]
)


def make_mask(kind: str, lead: tuple[int, ...], n_query: int, n_key: int, seed: int):
    """A mask of this kind that fits, often with queries that may see nothing."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [(seed + 2 * i) % (n_key + 1) for i in range(lead[0] if lead else 1)]
    masks = {
        "none": None,
        "table": torch.rand(*lead, n_query, n_key, generator=generator) < 0.4,
        "causal": causal(),
        "offset": causal(offset=seed % 5 - 2),
        "window": window(seed % 3),
        "edges": edges([(i, (i * i + seed) % n_key) for i in range(0, n_query, 2)]),
        "padding": padding(lengths) if lead else causal(offset=n_key),
        "mixed": causal() & ~window(seed % 2) & (padding(lengths) if lead else Everything()),
    }
    return masks[kind]


def make_temperature(kind: float | str, lead: tuple[int, ...]):
    """One temperature, or one for each head where there are heads."""
    if not isinstance(kind, str):
        return kind
    n_heads = lead[-1] if lead else 1
    if not lead:
        return 1.0
    if kind == "each head":
        return torch.linspace(0.5, 2, n_heads).view(n_heads, 1, 1)
    return torch.arange(n_heads).float().view(n_heads, 1, 1)  # the first is 0


@given(
    st.sampled_from(LEADS),
    st.tuples(SIZES, SIZES, SIZES, SIZES),
    MASKS,
    TEMPERATURES,
    SIMILARITIES,
    SEEDS,
)
def test_without_a_listener_the_result_is_that_of_the_definition(
    leads, sizes, mask, temperature, similarity, seed
):
    n_query, n_key, d_k, d_v = sizes
    torch.manual_seed(seed)
    shapes = [(n_query, d_k), (n_key, d_k), (n_key, d_v)]
    inputs = [torch.randn(*lead, *shape) for lead, shape in zip(leads, shapes, strict=True)]
    lead = tuple(torch.broadcast_shapes(*leads[:2]))
    alibi = Alibi(lead[-1]) if lead else "scaled_dot"
    learned = {"general": General(d_k, d_k), "alibi": alibi}
    options = {
        "allowed": make_mask(mask, lead, n_query, n_key, seed),
        "similarity": learned.get(similarity, similarity),
        "temperature": make_temperature(temperature, lead),
    }
    results = []
    for form in (attend, attend_explicitly):
        leaves = [x.clone().requires_grad_() for x in inputs]
        context = form(*leaves, **options)
        torch.sin(context).sum().backward()
        gradients = [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]
        results.append([context.detach(), *gradients])
    # Rounding errors in the gradient of a normalized vector grow as the vector gets shorter.
    shortest = min(x.norm(dim=-1).min().item() for x in inputs[:2])
    least = max(1.0, 4 / shortest) if similarity == "cosine" else 1.0
    for fused, explicit in zip(*results, strict=True):
        scale = max(least, explicit.abs().max().item())
        assert_close(fused, explicit, atol=1e-5 * scale, rtol=0)


@pytest.mark.parametrize(("n_query", "n_key"), [(1, 700), (257, 130), (130, 513)])
@pytest.mark.parametrize("mask", [None, causal(), padding([100, 3]), causal(-2) & padding([9, 0])])
def test_it_equals_the_definition_beyond_the_blocks_of_a_kernel(n_query, n_key, mask):
    query = torch.randn(2, 2, n_query, 16)
    key, value = torch.randn(2, 2, 2, n_key, 16).unbind()
    fused = attend(query, key, value, allowed=mask)
    explicit = attend_explicitly(query, key, value, allowed=mask)
    assert_close(fused, explicit, atol=1e-5, rtol=0)


@pytest.mark.parametrize("similarity", ["dot", "scaled_dot", "cosine", General(4, 4), Alibi(3)])
@pytest.mark.parametrize("temperature", [1.0, 0.5, inf, torch.ones(3, 1, 1)])
def test_the_fused_kernel_runs_if_nothing_is_recorded(monkeypatch, similarity, temperature):
    used = []
    real = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *a, **k: used.append(k) or real(*a, **k)
    )
    inputs = torch.randn(3, 2, 3, 5, 4).unbind()
    attend(*inputs, similarity=similarity, temperature=temperature)
    assert len(used) == 1
    attend_explicitly(*inputs, similarity=similarity, temperature=temperature)
    assert len(used) == 1


def test_plain_masks_are_left_to_the_kernel_and_never_become_tensors(monkeypatch):
    seen = []
    real = F.scaled_dot_product_attention

    def spy(*args, **options):
        seen.append((options["attn_mask"], options["is_causal"]))
        return real(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    inputs = torch.randn(3, 2, 3, 5, 4).unbind()
    for mask in (None, causal(), causal() & causal(), Everything() & Everything(), causal(9)):
        attend(*inputs, allowed=mask)
    assert seen == [(None, False), (None, True), (None, True), (None, False), (None, False)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", [None, causal(), edges([(0, 1)])])
def test_the_result_has_the_dtype_of_the_inputs(dtype, mask):
    query, key, value = torch.randn(3, 2, 3, 5, 8).to(dtype).unbind()
    context = attend(query, key, value, allowed=mask)
    assert context.dtype == dtype
    exact = attend(query.double(), key.double(), value.double(), allowed=mask)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 0.03)
    assert_close(context.double(), exact, atol=tolerance, rtol=tolerance)
    explicit = attend_explicitly(query, key, value, allowed=mask)
    assert explicit.dtype == dtype
    assert_close(explicit.double(), exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("similarity", ["scaled_dot", Alibi(3)])
def test_gradients_under_autocast_equal_the_definition(similarity):
    leaves = [x.bfloat16().requires_grad_() for x in torch.randn(3, 2, 3, 5, 8).unbind()]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    with torch.autocast("cpu", torch.bfloat16):
        context = attend(*leaves, allowed=padding([5, 3]), similarity=similarity)
    assert context.dtype == torch.bfloat16
    context.sum().backward()
    attend_explicitly(*exact, allowed=padding([5, 3]), similarity=similarity).sum().backward()
    for leaf, one in zip(leaves, exact, strict=True):
        assert_close(leaf.grad.double(), one.grad, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("similarity", ["dot", "scaled_dot"])
def test_dot_products_may_exceed_the_range_of_half_precision(dtype, similarity):
    query, value = torch.full((1, 1, 2, 64), 100.0).to(dtype), torch.ones(1, 1, 2, 64).to(dtype)
    for form in (attend, attend_explicitly):
        assert torch.equal(form(query, query, value, similarity=similarity), value)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("similarity", ["scaled_dot", Alibi(3)])
@pytest.mark.parametrize(
    "mask",
    [causal(-1), edges([(1, 1)]), ~window(9), padding([0, 4]), torch.zeros(5, 5).bool()],
    ids=repr,
)
@pytest.mark.parametrize("form", [attend, attend_explicitly])
def test_a_query_that_may_see_nothing_gets_zeros_and_gives_zero_gradients(
    form, mask, similarity, dropout
):
    leaves = [x.requires_grad_() for x in torch.randn(3, 2, 3, 5, 4).unbind()]
    context = form(*leaves, allowed=mask, similarity=similarity, dropout=dropout)
    (context * torch.randn_like(context)).sum().backward()
    empty = ~as_mask(mask).tensor(5, lead=(2, 3)).any(-1)
    assert empty.any()
    assert (context[empty] == 0).all()
    query_gradient = leaves[0].grad
    assert query_gradient is not None
    assert (query_gradient[empty] == 0).all()
    for leaf in leaves:
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()


@pytest.mark.parametrize("lead", [(0,), (0, 3), (2, 0), (2, 0, 3)])
def test_an_empty_batch_gives_an_empty_result(lead):
    query, key = torch.ones(*lead, 4, 5), torch.ones(*lead, 6, 5)
    value = torch.ones(*lead, 6, 7)
    assert attend(query, key, value, allowed=causal()).shape == (*lead, 4, 7)
    assert attend_explicitly(query, key, value, allowed=causal()).shape == (*lead, 4, 7)


def test_a_mask_fits_the_scores_if_values_have_more_leading_axes():
    query, key = torch.randn(2, 3, 5, 4).unbind()
    value = torch.randn(2, 3, 5, 4)
    for mask in (torch.rand(3, 5, 5) < 0.5, padding([1, 2, 5])):
        expected = torch.stack([attend_explicitly(query, key, x, allowed=mask) for x in value])
        assert_close(attend(query, key, value, allowed=mask), expected)
        assert_close(attend_explicitly(query, key, value, allowed=mask), expected)


@pytest.mark.parametrize("scale", [-1.0, 0.0, 1e-300, 2.0])
@pytest.mark.parametrize("mask", [None, causal(), window(1)])
def test_any_scale_works_with_any_mask(scale, mask):
    query, key, value = torch.randn(3, 2, 3, 5, 4).unbind()
    pattern = ExactPattern(as_similarity("dot"), scale, 1.0, as_mask(mask))
    explicit = explicit_attention(query, key, value, pattern)
    assert_close(fused_attention(query, key, value, pattern=pattern), explicit, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("allowed", "sees_it"), [(padding([3]), []), (causal(), [3])])
def test_a_hidden_key_that_is_nan_changes_nothing(allowed, sees_it):
    query, key, value = torch.randn(3, 1, 2, 4, 8, generator=torch.Generator().manual_seed(0))
    key[..., 3, :] = torch.nan
    found = attend(query, key, value, allowed=allowed)
    wanted = attend(query, key.nan_to_num(), value, allowed=allowed)
    rows = [row for row in range(4) if row not in sees_it]
    assert_close(found[..., rows, :], wanted[..., rows, :])
    assert found[..., sees_it, :].isnan().all()
