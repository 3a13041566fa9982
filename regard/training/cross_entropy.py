"""Cross-entropy over a vocabulary that never holds all logits at once.

For 4,096 tokens and 8,000 entries the logits, their softmax and their gradient would take 400 MB.
Here the forward pass projects one chunk of tokens after another, computes its loss and gradients,
and frees its logits; the backward pass only multiplies by the incoming gradient.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.amp import is_autocast_available
from torch.autograd.function import once_differentiable

CHUNK = 2**22
"""Logits held at once: 16 MB in float32. Smaller chunks make matrix products slow."""


def cross_entropy_sum(
    states: Float[Tensor, "state d_model"],
    weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, " token"],
    *,
    bias: Float[Tensor, " vocab"] | None = None,
    label_smoothing: float = 0.0,
    agreement: float = 0.0,
    chunk: int = CHUNK,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the sums over tokens of the smoothed loss and, without gradient, of -log p(target).

    With smoothing ε the target has probability 1 - ε + ε/n and every other entry ε/n, as in Szegedy
    et al. 2016 and in torch. Without smoothing both results are equal.

    With agreement α > 0 the states come from two passes with different dropout, one after the
    other. The result is the mean of both losses plus α/2 times ½ (KL(p‖q) + KL(q‖p)): half of what
    R-Drop minimizes (Wu et al. 2021).
    """
    device = states.device.type
    if is_autocast_available(device) and torch.is_autocast_enabled(device):
        # Layer normalization returns float32, in which the products below would be slow.
        states = states.to(torch.get_autocast_dtype(device))
    rows = max(1, chunk // max(1, len(weight)) // (2 if agreement else 1))
    return _Chunked.apply(states, weight, bias, targets, label_smoothing, agreement, rows)  # type: ignore[return-value]


class _Chunked(torch.autograd.Function):
    """Loss and gradients in one pass, so that the logits of each chunk are computed once."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        agreement: float,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        needs = ctx.needs_input_grad
        # Under autocast states are in half precision and weights in float32.
        narrow = weight.to(states.dtype)
        passes = states.reshape(2 if agreement else 1, -1, states.size(1))
        grad_passes = torch.empty_like(passes) if needs[0] else None
        grad_weight = torch.zeros_like(weight) if needs[1] else None
        grad_bias = torch.zeros_like(bias) if bias is not None and needs[2] else None
        loss = states.new_zeros((), dtype=torch.promote_types(states.dtype, torch.float32))
        nll = torch.zeros_like(loss)
        for first in range(0, len(targets), rows):
            part = slice(first, first + rows)
            seen = passes[:, part].flatten(0, 1)
            logits = (seen @ narrow.T).to(loss.dtype)
            if bias is not None:
                logits += bias
            index = targets[part].repeat(len(passes))
            chunk_loss, chunk_nll, gradient = _chunk_loss(logits, index, smoothing, agreement)
            loss += chunk_loss
            nll += chunk_nll
            if grad_bias is not None:
                grad_bias += gradient.sum(dim=0)
            gradient = gradient.to(states.dtype)
            if grad_passes is not None:
                grad_passes[:, part] = (gradient @ narrow).view(len(passes), -1, seen.size(1))
            if grad_weight is not None:
                if grad_weight.dtype == seen.dtype:
                    grad_weight.addmm_(gradient.T, seen)
                else:
                    grad_weight += gradient.T @ seen
        grad_states = None if grad_passes is None else grad_passes.view(states.shape)
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        scaled = [one if one is None else one * scale.to(one.dtype) for one in ctx.saved_tensors]
        return (*scaled, None, None, None, None)


def _chunk_loss(
    logits: Tensor, targets: Tensor, smoothing: float, agreement: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the smoothed loss, -log p(target) and the gradient with respect to the logits."""
    n_vocab, index = logits.size(1), targets[:, None]
    probabilities = logits.softmax(dim=1)
    # log Σ exp from the most likely entry, whose probability is never near 0: saves an exponential
    log_sums = logits.amax(dim=1) - probabilities.amax(dim=1).log()
    nll = (log_sums - logits.gather(1, index)[:, 0]).sum()
    divergence = _disagreement(probabilities, logits, log_sums) if agreement else None
    loss, gradient = nll, probabilities
    if smoothing:
        logs = logits.sum() - n_vocab * log_sums.sum()
        loss = (1 - smoothing) * nll - smoothing / n_vocab * logs
        gradient -= smoothing / n_vocab
    gradient.scatter_add_(1, index, gradient.new_full((1, 1), smoothing - 1).expand_as(index))
    if divergence is None:
        return loss, nll, gradient
    return (
        (loss + agreement * divergence[0]) / 2,
        nll / 2,
        gradient.add_(divergence[1], alpha=agreement).div_(2),
    )


def _disagreement(
    probabilities: Float[Tensor, "both vocab"],
    logits: Float[Tensor, "both vocab"],
    log_sums: Float[Tensor, " both"],
) -> tuple[Float[Tensor, ""], Float[Tensor, "both vocab"]]:
    """Return Σ ½ (KL(p‖q) + KL(q‖p)), p being the first half of the rows, and its gradient."""
    (p, q), (a, b), (sum_a, sum_b) = (one.chunk(2) for one in (probabilities, logits, log_sums))
    ratios = (a - b).sub_((sum_a - sum_b)[:, None])  # log p/q
    difference = p - q
    gradient = torch.cat([p * ratios, q * ratios.neg_()])
    divergences = gradient.sum(dim=1)  # KL(p‖q) of each token, then KL(q‖p)
    gradient.addcmul_(probabilities, divergences[:, None], value=-1)
    gradient[: len(p)] += difference
    gradient[len(p) :] -= difference
    return divergences.sum() / 2, gradient.div_(2)
