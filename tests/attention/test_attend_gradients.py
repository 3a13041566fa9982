"""Attention in half precision, and its gradients against finite differences."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.mask import causal, edges, padding
from regard.attention.similarity import Additive, Alibi, General
from regard.tap import listen
from tests.listeners import Everybody

Q, K, V = torch.randn(3, 3, 4, generator=torch.Generator().manual_seed(2)).unbind()


def looked_at(*inputs, **options) -> torch.Tensor:
    with listen(Everybody()):
        return attend(*inputs, **options)


BOTH = pytest.mark.parametrize("form", [attend, looked_at])


@pytest.mark.parametrize("similarity", [Additive(4, 4, 3), General(4, 4), "cosine", Alibi(1)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_similarities_work_in_half_precision(similarity, dtype):
    inputs = [x[None].to(dtype) for x in (Q, K, V)]
    exact = attend(Q[None], K[None], V[None], similarity=similarity).detach()
    if isinstance(similarity, nn.Module):
        similarity = similarity.to(dtype)
    for form in (attend, looked_at):
        found = form(*inputs, similarity=similarity)
        assert found.dtype == dtype
        assert_close(found.float(), exact, atol=0.1, rtol=0.05)
    if isinstance(similarity, nn.Module):
        similarity.float()


DOUBLE = torch.float64


@BOTH
@pytest.mark.parametrize(
    "similarity",
    ["dot", "scaled_dot", "cosine", General(3, 3), Additive(3, 3, 2), Alibi(2),
     lambda q, k: -(q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1)],
    ids=["dot", "scaled_dot", "cosine", "general", "additive", "alibi", "callable"],
)  # fmt: skip
@pytest.mark.parametrize(
    "mask",
    [None, causal() & padding([2, 4]), edges([(0, 1), (2, 3)])],
    ids=repr,
)
def test_gradients_are_those_of_finite_differences(form, similarity, mask):
    if isinstance(similarity, nn.Module):
        similarity = similarity.double()
    leaves = [
        torch.randn(2, 2, *shape, dtype=DOUBLE, requires_grad=True)
        for shape in [(3, 3), (4, 3), (4, 2)]
    ]
    assert torch.autograd.gradcheck(
        lambda q, k, v: form(q, k, v, similarity=similarity, allowed=mask, temperature=0.8),
        leaves,
        fast_mode=True,
    )
    if isinstance(similarity, nn.Module):
        similarity.float()


@BOTH
@pytest.mark.parametrize("similarity", [General(3, 3).double(), Additive(3, 3, 2).double()])
def test_learned_similarities_learn(form, similarity):
    query, key, value = torch.randn(3, 4, 3, dtype=DOUBLE).unbind()
    weights = list(similarity.parameters())

    def run(*_):
        return form(query, key, value, similarity=similarity, allowed=causal())

    assert torch.autograd.gradcheck(run, weights, fast_mode=True)
