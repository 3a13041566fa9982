"""Known facts about the tensors of hand-written attention: scores, softmaxes and weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NO_CHANGE = frozenset(
    (
        *("to", "float", "double", "half", "bfloat16", "type_as", "type", "contiguous", "clone"),
        *("detach", "requires_grad_", "data"),
    )
)
LAYOUT = frozenset(
    ("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "expand", "view_as")
)
FLIPS = frozenset(("transpose", "permute", "swapaxes", "swapdims", "movedim", "mT", "T", "mH"))
DROPOUT = frozenset(("dropout", "alpha_dropout"))
KEPT = LAYOUT | FLIPS | NO_CHANGE


@dataclass(eq=False, slots=True)
class ScoreTable:
    """A table of scores: factor · rows · columnsᵀ, plus anything if it is `exact`."""

    rows: Tensor
    columns: Tensor
    factor: float
    factor_before: float
    """What rows and columns were multiplied with before."""
    origins: tuple[int, int]
    """What rows and columns were projected from."""
    exact: bool = True
    """False after a function that neither scales nor adds."""

    def fits(self, tensor: Tensor) -> bool:
        """Return True if a tensor has the rows and columns of the table."""
        return tensor.shape[-2:] == (self.rows.size(-2), self.columns.size(-2))


@dataclass(eq=False)
class Softmax:
    """One softmax, which may turn out to be that of attention."""

    scores: Tensor
    axis: int
    table: ScoreTable | None
    weights: Tensor
    path: str = ""
    shifted: bool = False
    """True if it was computed as exp / sum, from scores that each query may have shifted."""
    dropout: float = 0.0
    used: bool = False

    def __post_init__(self) -> None:
        self.shape = tuple(self.scores.shape)
        self._versions = (version_of(self.scores), version_of(self.weights))

    def keeps_scores(self) -> bool:
        """Return True if the weights still follow from the scores: neither was changed in place."""
        if self.scores is self.weights or self._versions[0] != version_of(self.scores):
            return False
        return self._versions[0] is not None or torch.allclose(self._again(), self.weights)

    def note_dropout(
        self, p: float = 0.5, training: bool = True, inplace: bool = False, **_: Any
    ) -> None:
        """Keep how many weights were dropped, called with the options of F.dropout."""
        self.dropout = float(p) if training else self.dropout

    def first_weights(self) -> Tensor:
        """Return the weights before they were changed in place."""
        version = self._versions[1]
        known = version is not None and version == version_of(self.weights)
        return self.weights if known else self._again()

    def _again(self) -> Tensor:
        return torch.softmax(self.scores, self.axis, dtype=self.weights.dtype)

    def describe(self) -> str:
        """Say that it looked like attention."""
        return (
            f"{self.path}: a softmax of scores of shape {self.shape}, whose result was not "
            "multiplied with values in a way that regard can follow"
        )


@dataclass(frozen=True)
class WeightsNote:
    """The softmax that a tensor comes from, and the functions that were applied since then."""

    softmax: Softmax
    version: int | None
    """The version of the tensor when this was noted."""
    chain: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = ()
    flipped: bool = False
    """True if its last two axes are those of the softmax in the other order."""
    changed: bool = False
    """True after a function other than dropout and changes of layout."""
    replaced: bool = False
    """True if the tensor was changed in place, so that its weights are known only as they are."""
    others: tuple[Softmax, ...] = ()
    """Softmaxes that were added to this one or multiplied with it."""

    def replay(self, weights: Tensor, *, dropout: bool = True, layout_only: bool = False) -> Tensor:
        """Apply the same functions to other weights."""
        for name, function in self.chain:
            left_out = name in DROPOUT and not dropout
            if not left_out and (name in KEPT or not layout_only):
                weights = function(weights)
        return weights

    def is_softmax(self, operand: Tensor) -> bool:
        """Return True if a product multiplies the softmax itself, perhaps after dropout."""
        if self.replaced or self.version != version_of(operand) or not self.softmax.keeps_scores():
            return False
        if not self.changed and self.version is not None:
            return True
        first = self.softmax.first_weights()
        unseen = self.version is None and not any(name in DROPOUT for name, _ in self.chain)
        used = operand if unseen else self.replay(first, dropout=False)
        return torch.allclose(used, self.replay(first, layout_only=True), rtol=0.0, atol=1e-6)


@dataclass(eq=False, slots=True)
class Note:
    """Known facts about one tensor; never changed, since several tensors may share them."""

    identity: int
    """The same for a tensor and what is made of it alone, such as its norm."""
    source: int | None = None
    """The identity of the tensor that it was projected from."""
    parameter: bool = False
    factor: float = 1.0
    """What it was multiplied with since its projection."""
    table: ScoreTable | None = None
    weights: WeightsNote | None = None
    exponentials: Softmax | None = None
    """A softmax that is computed by hand, of whose scores these are the exponentials."""


def some_keys(note: WeightsNote, before: Tensor, index: Any, result: Tensor) -> Any:
    """Return the note of weights without some keys, such as a sink; None if more was selected."""
    softmax = note.softmax
    if note.flipped or before.shape != softmax.shape or result.dim() != before.dim():
        return None
    if result.shape[:-1] != before.shape[:-1] or softmax.scores.shape != softmax.shape:
        return None
    some = Softmax(softmax.scores[index], softmax.axis, None, result)
    others = (softmax, *note.others)
    return WeightsNote(some, version_of(result), replaced=True, others=others)


def version_of(tensor: Tensor) -> int | None:
    """Return how often a tensor was changed in place; None if torch does not count that."""
    return None if tensor.is_inference() else tensor._version
