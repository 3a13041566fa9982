"""Training objectives: one module around the model for each task, from a batch to summed losses.

The loss is computed in a module's `forward` because that is what torch's distributed wrappers
hook into. Losses are sums; the caller divides by the number of targets in the whole step.

Cross-entropy never holds all logits of a vocabulary at once. For 4,096 tokens and 8,000 entries the
logits, their softmax and their gradient would take 400 MB.
Here the forward pass projects one chunk of tokens after another, computes its loss and gradients,
and frees its logits; the backward pass only multiplies by the incoming gradient.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.amp import is_autocast_available
from torch.autograd.function import once_differentiable

from regard.errors import InputError
from regard.training.loader import (
    IGNORE_INDEX,
    ImageBatch,
    LabeledTextBatch,
    MaskedBatch,
    PairBatch,
    TextBatch,
)

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


class LossSums(NamedTuple):
    """Sums over the targets of a batch."""

    loss: Float[Tensor, ""]
    """Minimized; label smoothing included."""
    nll: Float[Tensor, ""]
    """-log p of the targets, without gradient; perplexity is computed from it."""
    correct: Float[Tensor, ""]
    """Number of correct answers for classification; otherwise 0."""


class Objective(nn.Module):
    """A model with the loss it is trained on."""

    def __init__(self, model: Any, *, label_smoothing: float = 0.0, agreement: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self._agreement = agreement

    @property
    def agreement(self) -> float:
        """Weight of the agreement of two passes; 0 in evaluation, where one pass is enough."""
        return self._agreement if self.training else 0.0

    def forward(self, batch: Any) -> LossSums:
        """Return the losses of a batch, which is repeated if two passes have to agree."""
        return self.losses(batch.repeated() if self.agreement else batch)

    def losses(self, batch: Any) -> LossSums:
        """Return the losses of a batch as it is."""
        raise NotImplementedError

    def vocabulary_loss(
        self,
        states: Float[Tensor, "target d_model"],
        targets: Int[Tensor, " target"],
        *,
        weight: Float[Tensor, "vocab d_model"],
        bias: Float[Tensor, " vocab"] | None = None,
    ) -> LossSums:
        """Return the loss of tokens predicted from these states."""
        loss, nll = cross_entropy_sum(
            states,
            weight,
            targets[: len(targets) // 2] if self.agreement else targets,
            bias=bias,
            label_smoothing=self.label_smoothing,
            agreement=self.agreement,
        )
        return LossSums(loss, nll, torch.zeros_like(nll))

    def next_token_loss(
        self,
        states: Float[Tensor, "batch _ d_model"],
        ids: Int[Tensor, "batch token"],
        lengths: Int[Tensor, " batch"],
    ) -> LossSums:
        """Return the loss of each token but the first, predicted from the state before it."""
        predicted = torch.arange(states.size(1), device=states.device) < lengths[:, None] - 1
        own = self.model.projection
        return self.vocabulary_loss(
            *select(predicted, states, ids[:, 1:]),
            weight=self.model.tokens.weight if own is None else own.weight,
            bias=getattr(self.model, "logits_bias", None),
        )


class TranslationObjective(Objective):
    """Predicts every target token from the source and the target tokens before it."""

    def losses(self, batch: PairBatch) -> LossSums:
        # Right padding is in the future of every real token, so the target needs no mask.
        states = self.model.states(batch.source_ids, batch.target_ids, batch.source_lengths)
        return self.next_token_loss(states, batch.target_ids, batch.target_lengths)


class LanguageObjective(Objective):
    """Predicts every token from the tokens before it."""

    def losses(self, batch: TextBatch) -> LossSums:
        return self.next_token_loss(self.model.states(batch.ids[:, :-1]), batch.ids, batch.lengths)


class MaskedObjective(Objective):
    """Predicts hidden tokens from all others (Devlin et al. 2019)."""

    def __init__(self, model: Any, **options: float) -> None:
        super().__init__(model, **options)
        if model.fill is None:
            raise InputError("masked training needs a fill head: set model.fill_head = true.")
        _freeze_unused(model.pooler, model.classifier)

    def losses(self, batch: MaskedBatch) -> LossSums:
        fill = self.model.fill
        states = self.model(batch.ids, batch.lengths)
        states, targets = select(batch.predicted, states, batch.targets)
        hidden = fill.norm(fill.activation_fn(fill.to_hidden(states)))
        weight = self.model.tokens.weight
        return self.vocabulary_loss(hidden, targets, weight=weight, bias=fill.bias)


class ClassificationObjective(Objective):
    """Predicts the class of a text or an image."""

    def __init__(self, model: Any, **options: float) -> None:
        super().__init__(model, **options)
        if model.classifier is None:
            raise InputError("classification needs a model with a classifier: set n_classes.")
        _freeze_unused(getattr(model, "fill", None))

    def losses(self, batch: LabeledTextBatch | ImageBatch) -> LossSums:
        if isinstance(batch, ImageBatch):
            logits = self.model.classify(self.model.states(batch.images))
        else:
            logits = self.model.classify(self.model(batch.ids, batch.lengths), batch.lengths)
        labels = batch.labels
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        options: dict[str, Any] = {"ignore_index": IGNORE_INDEX, "reduction": "sum"}
        loss = F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing, **options)
        with torch.no_grad():
            nll = F.cross_entropy(logits, labels, **options)
            correct = (logits.argmax(dim=-1) == labels).sum().to(loss.dtype)
        if not self.agreement:
            return LossSums(loss, nll, correct)
        # Σ ½ (KL(p‖q) + KL(q‖p)) = Σ ½ (p - q) (log p - log q) between the halves of the batch
        p, q = logits[labels != IGNORE_INDEX].log_softmax(dim=1).chunk(2)
        divergence = ((p.exp() - q.exp()) * (p - q)).sum() / 2
        return LossSums((loss + self.agreement * divergence) / 2, nll / 2, correct / 2)


OBJECTIVES: dict[str, type[Objective]] = {
    "translation": TranslationObjective,
    "language": LanguageObjective,
    "masked": MaskedObjective,
    "classification": ClassificationObjective,
}


def select(
    predicted: Bool[Tensor, "batch token"],
    states: Float[Tensor, "batch token d_model"],
    targets: Int[Tensor, "batch token"],
) -> tuple[Float[Tensor, "target d_model"], Int[Tensor, " target"]]:
    """Return states and targets of the predicted positions; the others are never projected."""
    places = predicted.flatten().nonzero().squeeze(1)
    flat = (states.flatten(0, 1), targets.flatten())
    return flat[0].index_select(0, places), flat[1].index_select(0, places)


def _freeze_unused(*parts: nn.Module | None) -> None:
    """Freeze parts that the loss does not reach, so that DDP does not wait for their gradients."""
    for part in parts:
        if part is not None:
            part.requires_grad_(False)
