"""Cross-entropy over a vocabulary without ever holding all logits at once.

For 4,096 tokens and 8,000 entries the logits, their softmax and their gradient would take 400 MB.
Here a chunk of tokens is projected, its loss and its gradients are taken, and its logits are
forgotten, all in the forward pass; the backward pass only multiplies by one number.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 2**22
"""Logits held at once: 16 MB in float32. Fewer make the products too thin to be fast."""


def cross_entropy_sum(
    states: Float[Tensor, "told d_model"],
    weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, " token"],
    *,
    bias: Float[Tensor, " vocab"] | None = None,
    label_smoothing: float = 0.0,
    agreement: float = 0.0,
    chunk: int = CHUNK,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The sum over tokens of the smoothed loss, and, without gradient, of -log p(target).

    With smoothing ε a target's own share is 1 - ε + ε/n and every other entry's ε/n, as in Szegedy
    et al. 2016 and in torch. Without smoothing both results are equal.

    With an agreement α the states are those of two passes, one after the other, whose dropout
    differs. Of losses and surprises the mean of both is taken, and α/2 times their disagreement
    ½ (KL(p‖q) + KL(q‖p)) is added: half of what R-Drop minimizes (Wu et al. 2021).
    """
    rows = max(1, chunk // max(1, len(weight)) // (2 if agreement else 1))
    return _Chunked.apply(states, weight, bias, targets, label_smoothing, agreement, rows)  # type: ignore[return-value]


class _Chunked(torch.autograd.Function):
    """Loss and gradients together, so that each chunk's logits are computed once."""

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
        # Weights may be kept in float32 beside half-precision states: products take the latter.
        narrow = weight.to(states.dtype)
        passes = states.reshape(2 if agreement else 1, -1, states.size(1))
        grad_passes = torch.empty_like(passes) if needs[0] else None
        grad_weight = torch.zeros_like(weight) if needs[1] else None
        grad_bias = torch.zeros_like(bias) if bias is not None and needs[2] else None
        loss = states.new_zeros((), dtype=torch.promote_types(states.dtype, torch.float32))
        surprise = torch.zeros_like(loss)
        for first in range(0, len(targets), rows):
            part = slice(first, first + rows)
            seen = passes[:, part].flatten(0, 1)
            logits = (seen @ narrow.T).to(loss.dtype)
            if bias is not None:
                logits += bias
            at = targets[part].repeat(len(passes))
            lost, surprised, gradient = _of_chunk(logits, at, smoothing, agreement)
            loss += lost
            surprise += surprised
            if grad_bias is not None:
                grad_bias += gradient.sum(dim=0)
            gradient = gradient.to(states.dtype)
            if grad_passes is not None:
                grad_passes[:, part] = (gradient @ narrow).view(len(passes), -1, seen.size(1))
            if grad_weight is not None:
                _add_product(grad_weight, gradient.T, seen)
        grad_states = None if grad_passes is None else grad_passes.view(states.shape)
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        ctx.mark_non_differentiable(surprise)
        return loss, surprise

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        scaled = [one if one is None else one * scale.to(one.dtype) for one in ctx.saved_tensors]
        return (*scaled, None, None, None, None)


def _of_chunk(
    logits: Tensor, targets: Tensor, smoothing: float, agreement: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The chunk's smoothed loss, its -log p(target), and the gradient of its logits."""
    n_vocab, at = logits.size(1), targets[:, None]
    probabilities = logits.softmax(dim=1)
    # log Σ exp by the most likely entry, whose probability is never near 0: no second exponential
    logs_of_sums = logits.amax(dim=1) - probabilities.amax(dim=1).log()
    surprise = (logs_of_sums - logits.gather(1, at)[:, 0]).sum()
    apart = _disagreement(probabilities, logits, logs_of_sums) if agreement else None
    loss, gradient = surprise, probabilities
    if smoothing:
        logs = logits.sum() - n_vocab * logs_of_sums.sum()
        loss = (1 - smoothing) * surprise - smoothing / n_vocab * logs
        gradient -= smoothing / n_vocab
    gradient.scatter_add_(1, at, gradient.new_full((1, 1), smoothing - 1).expand_as(at))
    if apart is None:
        return loss, surprise, gradient
    return (
        (loss + agreement * apart[0]) / 2,
        surprise / 2,
        gradient.add_(apart[1], alpha=agreement).div_(2),
    )


def _disagreement(
    probabilities: Float[Tensor, "both vocab"],
    logits: Float[Tensor, "both vocab"],
    logs_of_sums: Float[Tensor, " both"],
) -> tuple[Float[Tensor, ""], Float[Tensor, "both vocab"]]:
    """Σ ½ (KL(p‖q) + KL(q‖p)), p in the first half of the rows, and the gradient of all logits."""
    (p, q), (a, b), (of_a, of_b) = (one.chunk(2) for one in (probabilities, logits, logs_of_sums))
    ratios = (a - b).sub_((of_a - of_b)[:, None])  # log p/q
    difference = p - q
    gradient = torch.cat([p * ratios, q * ratios.neg_()])
    divergences = gradient.sum(dim=1)  # KL(p‖q) of every token, then KL(q‖p)
    gradient.addcmul_(probabilities, divergences[:, None], value=-1)
    gradient[: len(p)] += difference
    gradient[len(p) :] -= difference
    return divergences.sum() / 2, gradient.div_(2)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right to the total, without a product of its own where the types allow."""
    if total.dtype == right.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
