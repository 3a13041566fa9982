"""Training objectives: one module around the model for each task, from a batch to summed losses.

The loss is computed in a module's `forward` because that is what torch's distributed wrappers
hook into. Losses are sums; the caller divides by the number of targets in the whole step.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import InputError
from regard.training.batch import (
    IGNORE_INDEX,
    ImageBatch,
    LabeledTextBatch,
    MaskedBatch,
    PairBatch,
    TextBatch,
)
from regard.training.cross_entropy import cross_entropy_sum


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
