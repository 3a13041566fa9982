"""What is minimized: one module around the model for each task, from a batch to sums of losses.

The loss is computed inside a module's `forward`, because that is where torch's distributed
wrappers look. Losses are sums; whoever calls divides by the number of targets of the whole step.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import InputError
from regard.training.batch import (
    NO_LABEL,
    ImageBatch,
    LabeledTextBatch,
    MaskedBatch,
    PairBatch,
    TextBatch,
)
from regard.training.cross_entropy import cross_entropy_sum


class Sums(NamedTuple):
    """What a batch adds up to."""

    loss: Float[Tensor, ""]
    """To be minimized, label smoothing included."""
    surprise: Float[Tensor, ""]
    """-log p of the right answers, of which perplexity is made; without gradient."""
    right: Float[Tensor, ""]
    """How many answers were right, where there are classes; otherwise 0."""


class Objective(nn.Module):
    """A model and what it shall learn."""

    def __init__(self, model: Any, *, label_smoothing: float = 0.0, agreement: float = 0.0) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise InputError(
                f"label_smoothing is {label_smoothing}; it is a share from 0 up to, not with, 1."
            )
        if not agreement >= 0:
            raise InputError(f"agreement is {agreement}; it is a weight of 0 or more.")
        self.model = model
        self.label_smoothing = label_smoothing
        self._agreement = agreement

    @property
    def agreement(self) -> float:
        """How much two passes of one batch shall agree; without dropout there is but one pass."""
        return self._agreement if self.training else 0.0

    def over_vocabulary(
        self,
        states: Float[Tensor, "told d_model"],
        targets: Int[Tensor, " told"],
        *,
        weight: Float[Tensor, "vocab d_model"],
        bias: Float[Tensor, " vocab"] | None = None,
    ) -> Sums:
        """The loss of tokens that are to be told from these states."""
        loss, surprise = cross_entropy_sum(
            states,
            weight,
            targets[: len(targets) // 2] if self.agreement else targets,
            bias=bias,
            label_smoothing=self.label_smoothing,
            agreement=self.agreement,
        )
        return Sums(loss, surprise, torch.zeros_like(surprise))

    def over_classes(
        self, logits: Float[Tensor, "batch class"], labels: Int[Tensor, " batch"]
    ) -> Sums:
        """The loss of classes, which are few enough to hold their logits."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = F.cross_entropy(
            logits,
            labels,
            label_smoothing=self.label_smoothing,
            ignore_index=NO_LABEL,
            reduction="sum",
        )
        with torch.no_grad():
            surprise = F.cross_entropy(logits, labels, ignore_index=NO_LABEL, reduction="sum")
            right = (logits.argmax(dim=-1) == labels).sum().to(loss.dtype)
        if not self.agreement:
            return Sums(loss, surprise, right)
        apart = _apart(logits[labels != NO_LABEL])
        return Sums((loss + self.agreement * apart) / 2, surprise / 2, right / 2)

    def forward(self, batch: Any) -> Sums:
        """The losses of a batch, seen twice where two passes shall agree."""
        return self.losses(batch.twice() if self.agreement else batch)

    def losses(self, batch: Any) -> Sums:
        """The losses of what is seen."""
        raise NotImplementedError


class Translation(Objective):
    """Every token of the target is told from the source and from the tokens before it."""

    def losses(self, batch: PairBatch) -> Sums:
        # Padding on the right of a target lies in every real token's future: no mask is needed.
        states = self.model.states(batch.source_ids, batch.target_ids, batch.source_lengths)
        told = before(states, batch.target_lengths - 1)
        return self.over_vocabulary(
            *picked(told, states, batch.target_ids[:, 1:]),
            weight=projection_of(self.model),
            bias=getattr(self.model, "logits_bias", None),
        )


class Language(Objective):
    """Every token is told from the tokens before it."""

    def losses(self, batch: TextBatch) -> Sums:
        states = self.model.states(batch.ids[:, :-1])
        told = before(states, batch.lengths - 1)
        return self.over_vocabulary(
            *picked(told, states, batch.ids[:, 1:]), weight=projection_of(self.model)
        )


class Masked(Objective):
    """Hidden tokens are told from all others (Devlin et al. 2019)."""

    def __init__(self, model: Any, *, label_smoothing: float = 0.0, agreement: float = 0.0) -> None:
        super().__init__(model, label_smoothing=label_smoothing, agreement=agreement)
        if model.fill is None:
            raise InputError(
                "a model without a fill head cannot learn to fill in: set model.fill_head = true."
            )
        _rest(model.pooler, model.classifier)

    def losses(self, batch: MaskedBatch) -> Sums:
        fill = self.model.fill
        states = self.model(batch.ids, batch.lengths)
        states, targets = picked(batch.told, states, batch.targets)
        hidden = fill.norm(fill.activation_fn(fill.to_hidden(states)))
        return self.over_vocabulary(
            hidden, targets, weight=self.model.tokens.weight, bias=fill.bias
        )


class Classification(Objective):
    """The class of a text or an image is told."""

    def __init__(self, model: Any, *, label_smoothing: float = 0.0, agreement: float = 0.0) -> None:
        super().__init__(model, label_smoothing=label_smoothing, agreement=agreement)
        if model.classifier is None:
            raise InputError("a model without a classifier cannot learn classes: give n_classes.")
        _rest(getattr(model, "fill", None))

    def losses(self, batch: LabeledTextBatch | ImageBatch) -> Sums:
        if isinstance(batch, ImageBatch):
            logits = self.model.classify(self.model.states(batch.images))
        else:
            logits = self.model.classify(self.model(batch.ids, batch.lengths), batch.lengths)
        return self.over_classes(logits, batch.labels)


OBJECTIVES: dict[str, type[Objective]] = {
    "translation": Translation,
    "language": Language,
    "masked": Masked,
    "classification": Classification,
}


def projection_of(model: Any) -> Float[Tensor, "vocab d_model"]:
    """The matrix that projects states onto the vocabulary: the model's own, or its embedding."""
    return model.tokens.weight if model.projection is None else model.projection.weight


def before(
    states: Float[Tensor, "batch token d_model"], lengths: Int[Tensor, " batch"]
) -> Bool[Tensor, "batch token"]:
    """Which places come before the end of their row."""
    return torch.arange(states.size(1), device=states.device) < lengths[:, None]


def picked(
    told: Bool[Tensor, "batch token"],
    states: Float[Tensor, "batch token d_model"],
    targets: Int[Tensor, "batch token"],
) -> tuple[Float[Tensor, "told d_model"], Int[Tensor, " told"]]:
    """States and targets of the places that are to be told; the others are not even projected."""
    places = told.flatten().nonzero().squeeze(1)
    return (
        states.flatten(0, 1).index_select(0, places),
        targets.flatten().index_select(0, places),
    )


def _apart(logits: Float[Tensor, "both class"]) -> Float[Tensor, ""]:
    """Σ ½ (KL(p‖q) + KL(q‖p)) = Σ ½ (p - q) (log p - log q) between the two halves of the rows."""
    p, q = logits.log_softmax(dim=1).chunk(2)
    return ((p.exp() - q.exp()) * (p - q)).sum() / 2


def _rest(*parts: nn.Module | None) -> None:
    """Freeze parts that the loss does not reach, so that nobody waits for their gradients."""
    for part in parts:
        if part is not None:
            part.requires_grad_(False)
