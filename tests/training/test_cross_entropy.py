"""The chunked loss equals torch's cross-entropy, without holding all logits."""

from math import log

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.training.objective import cross_entropy_sum


def example(n_tokens: int, n_vocab: int, d_model: int = 4, *, seed: int = 0):
    random = torch.Generator().manual_seed(seed)
    states = torch.randn(n_tokens, d_model, dtype=torch.float64, generator=random)
    weight = torch.randn(n_vocab, d_model, dtype=torch.float64, generator=random)
    bias = torch.randn(n_vocab, dtype=torch.float64, generator=random)
    targets = torch.randint(0, n_vocab, (n_tokens,), generator=random)
    return states.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), targets


def test_the_loss_of_equal_logits_is_the_logarithm_of_the_vocabulary():
    # all four logits are 0: p = 1/4 for each of three targets
    loss, surprise = cross_entropy_sum(
        torch.zeros(3, 2), torch.ones(4, 2), torch.tensor([0, 1, 3]), label_smoothing=0.1
    )
    assert_close(loss, torch.tensor(3 * log(4)))
    assert_close(surprise, torch.tensor(3 * log(4)))


def test_smoothing_by_hand():
    # logits 0 and ln 3, so p = 1/4, 3/4; target 1 has share 0.9 + 0.1/2, the other 0.1/2
    states, weight = torch.tensor([[1.0]]), torch.tensor([[0.0], [log(3)]])
    loss, surprise = cross_entropy_sum(states, weight, torch.tensor([1]), label_smoothing=0.1)
    assert_close(loss, torch.tensor(-0.95 * log(0.75) - 0.05 * log(0.25)))
    assert_close(surprise, torch.tensor(-log(0.75)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("biased", [False, True])
def test_loss_and_gradients_equal_torch(smoothing, rows, biased):
    states, weight, bias, targets = example(7, 11)
    bias = bias if biased else None
    inputs = [states, weight] + ([bias] if biased else [])
    loss, surprise = cross_entropy_sum(
        states, weight, targets, bias=bias, label_smoothing=smoothing, chunk=11 * rows
    )
    logits = F.linear(states, weight, bias)
    whole = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    assert_close(loss, whole)
    assert_close(surprise, F.cross_entropy(logits, targets, reduction="sum"))
    ours = torch.autograd.grad(loss / 3, inputs)
    for mine, theirs in zip(ours, torch.autograd.grad(whole / 3, inputs), strict=True):
        assert_close(mine, theirs)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_gradients_equal_finite_differences(smoothing):
    states, weight, bias, targets = example(5, 6, 3)

    def loss(states, weight, bias):
        return cross_entropy_sum(
            states, weight, targets, bias=bias, label_smoothing=smoothing, chunk=12
        )[0]

    assert torch.autograd.gradcheck(loss, (states, weight, bias))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 100), st.integers(0, 9))
def test_the_size_of_the_chunks_changes_nothing(n_tokens, n_vocab, chunk, seed):
    states, weight, _, targets = example(n_tokens, n_vocab, seed=seed)
    once = cross_entropy_sum(states, weight, targets, label_smoothing=0.1)[0]
    often = cross_entropy_sum(states, weight, targets, label_smoothing=0.1, chunk=chunk)[0]
    assert_close(often, once)
    for one, other in zip(
        torch.autograd.grad(once, [states, weight]),
        torch.autograd.grad(often, [states, weight]),
        strict=True,
    ):
        assert_close(other, one)


def test_no_tokens_have_no_loss_and_leave_every_gradient_at_zero():
    states, weight, _, _ = example(1, 5)
    loss, _ = cross_entropy_sum(states[:0], weight, torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss == 0
    assert_close(weight.grad, torch.zeros_like(weight))


def test_a_frozen_projection_gets_no_gradient_and_the_states_theirs():
    states, weight, _, targets = example(4, 5)
    loss, _ = cross_entropy_sum(states, weight.detach(), targets)
    loss.backward()
    whole = F.cross_entropy(states @ weight.detach().T, targets, reduction="sum")
    assert_close(states.grad, torch.autograd.grad(whole, states)[0])


def test_huge_logits_give_a_finite_loss():
    states = torch.full((2, 1), 1e4, requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]])
    loss, _ = cross_entropy_sum(states, weight, torch.tensor([0, 1]), label_smoothing=0.1)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(states.grad).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_states_in_half_precision_or_under_autocast_with_weights_in_float32(dtype):
    states, weight, _, targets = example(64, 33, 16)
    half, full = states.detach().to(dtype), weight.detach().float()
    half.requires_grad_()
    full.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32):
        loss, _ = cross_entropy_sum(half, full, targets, label_smoothing=0.1, chunk=330)
    loss.backward()
    whole = F.cross_entropy(states @ weight.T, targets, label_smoothing=0.1, reduction="sum")
    whole.backward()
    assert loss.dtype == torch.float32
    assert full.grad.dtype == torch.float32
    assert_close(loss.double(), whole, rtol=2e-2, atol=0)
    assert_close(full.grad.double(), weight.grad, rtol=5e-2, atol=5e-2)
    assert_close(half.grad.double(), states.grad, rtol=5e-2, atol=5e-2)


def test_agreement_by_hand():
    # p = 1/4, 3/4 in one pass and 1/2, 1/2 in the other; ½ (KL + KL) = ½ Σ (p - q) log p/q
    states, weight = torch.tensor([[1.0], [0.0]]), torch.tensor([[0.0], [log(3)]])
    loss, surprise = cross_entropy_sum(states, weight, torch.tensor([1]), agreement=5.0)
    expected = (log(4 / 3) + log(2)) / 2
    apart = (-0.25 * log(0.5) + 0.25 * log(1.5)) / 2
    assert_close(surprise, torch.tensor(expected))
    assert_close(loss, torch.tensor(expected + 2.5 * apart))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100])
def test_agreement_is_half_of_what_r_drop_minimizes_with_the_same_gradients(smoothing, rows):
    states, weight, bias, _ = example(14, 11)
    targets = example(7, 11, seed=1)[-1]
    loss, surprise = cross_entropy_sum(
        states,
        weight,
        targets,
        bias=bias,
        label_smoothing=smoothing,
        agreement=3.0,
        chunk=11 * rows,
    )
    logits = F.linear(states, weight, bias)
    lost = F.cross_entropy(logits, targets.repeat(2), label_smoothing=smoothing, reduction="sum")
    p, q = logits.log_softmax(dim=1).chunk(2)
    apart = F.kl_div(q, p, log_target=True, reduction="sum")
    apart = (apart + F.kl_div(p, q, log_target=True, reduction="sum")) / 2
    whole = (lost + 3 * apart) / 2
    assert_close(loss, whole)
    assert_close(surprise, F.cross_entropy(logits, targets.repeat(2), reduction="sum") / 2)
    ours = torch.autograd.grad(loss, [states, weight, bias])
    theirs = torch.autograd.grad(whole, [states, weight, bias])
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other)


def test_two_passes_that_are_the_same_lose_what_one_does():
    states, weight, _, targets = example(5, 7)
    twice = cross_entropy_sum(states.repeat(2, 1), weight, targets, agreement=5.0)
    for one, other in zip(twice, cross_entropy_sum(states, weight, targets), strict=True):
        assert_close(one, other)


def test_agreement_of_no_tokens_is_nothing():
    weight = torch.ones(3, 2, requires_grad=True)
    loss, _ = cross_entropy_sum(
        torch.zeros(0, 2), weight, torch.zeros(0, dtype=torch.long), agreement=5.0
    )
    loss.backward()
    assert loss == 0
    assert_close(weight.grad, torch.zeros(3, 2))
