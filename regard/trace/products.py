"""Products, leading axes and masks of other programs, in the terms of attention."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isclose, prod
from typing import Any

import torch
from torch import Tensor

from regard.attention.mask import BooleanMask, Everything, Mask
from regard.attention.similarity import BiasedDot, Dot, ScaledDot, Similarity

HIDDEN = -1e4
"""Additive masks write at most this where a query must not see a key."""


@dataclass(frozen=True)
class WeightedValues:
    """A product of weights and values, with the layout of attention: (*lead, query, key)."""

    value: Tensor
    """(*lead, key, d_v)."""
    key_axis: int
    """The axis of the weights that is summed over, counted from the end."""
    order: tuple[int, ...] | None
    """The axes of the weights in the order (*lead, query, key); None if they are the last two."""
    to_context: Callable[[Tensor], Tensor]
    """Turns the result into (*lead, query, d_v)."""
    from_context: Callable[[Tensor], Tensor]
    from_value: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Product:
    """One call that multiplies two tensors."""

    left: Tensor
    right: Tensor
    compute_with: Callable[[Tensor, Tensor], Tensor]
    letters: tuple[str, str, str] | None = None
    """The axes of left, right and result of an einsum."""
    alpha: float = 1.0
    weights_index: int = 0
    """The operand that is weights: 0 or 1."""

    def compute(self) -> Tensor:
        return self.compute_with(self.left, self.right)

    def with_weights(self, weights: Tensor, value: Tensor) -> Tensor:
        """Compute the product with other weights and values."""
        pair = (weights, value) if self.weights_index == 0 else (value, weights)
        return self.compute_with(*pair)

    @property
    def weights(self) -> Tensor:
        return (self.left, self.right)[self.weights_index]

    @property
    def values(self) -> Tensor:
        return (self.right, self.left)[self.weights_index]

    @property
    def rows_are_right(self) -> bool:
        """True if the rows of the result are those of the right operand."""
        return self.letters is not None and self.letters[2][-2:-1] in self.letters[1]

    def rows_and_columns(self) -> tuple[Tensor, Tensor] | None:
        """Return (*lead, rows, d) and (*lead, columns, d) whose products are the result's cells."""
        if self.letters is None:
            if min(self.left.dim(), self.right.dim()) < 2:
                return None
            return self.left, self.right.transpose(-1, -2)
        left, right, out = self.letters
        inner = "".join(set(left) & set(right) - set(out))
        pair = (self.left, self.right)
        if self.rows_are_right:
            left, right, pair = right, left, (self.right, self.left)
        rows, columns = out[-2:-1], out[-1:]
        if len(inner) != 1 or not rows or rows not in left or rows in right:
            return None
        if columns not in right or columns in left:
            return None
        return (
            _arrange(pair[0], left, out[:-2] + rows + inner),
            _arrange(pair[1], right, out[:-2] + columns + inner),
        )

    def weighted_values(self) -> WeightedValues | None:
        """Read the product as a weighted sum of values; None if it is not one."""
        if self.letters is not None:
            return self._weighted_values_by_letters()
        if min(self.left.dim(), self.right.dim()) < 2:
            return None
        if self.weights_index == 0:
            return WeightedValues(self.right, -1, None, _same, _same, _same)
        return WeightedValues(self.left.mT, -2, None, _turn, _turn, _turn)

    def _weighted_values_by_letters(self) -> WeightedValues | None:
        left, right, out = self.letters or ("", "", "")
        weights, value = (left, right) if self.weights_index == 0 else (right, left)
        inner = [x for x in weights if x in value and x not in out]
        asked = [x for x in weights if x in out and x not in value]
        if len(asked) > 1:  # heads that share these values; queries are next to the keys
            asked = [x for x in asked if {x, *inner} == set(weights[-2:])]
        width = [x for x in value if x in out and x not in weights]
        if not (len(inner) == len(asked) == len(width) == 1):
            return None
        key, query, d_v = inner[0], asked[0], width[0]
        lead = "".join(x for x in weights if x not in (key, query))
        if not set(lead) <= set(out) or not set(value) <= set(lead + key + d_v):
            return None
        wanted = lead + query + d_v
        given = "".join(x for x in lead if x in value) + key + d_v
        return WeightedValues(
            value=_arrange(self.values, value, lead + key + d_v),
            key_axis=weights.index(key) - len(weights),
            order=tuple(weights.index(x) for x in lead + query + key),
            to_context=lambda result: _arrange(result, out, wanted),
            from_context=lambda context: _arrange(context, wanted, out),
            from_value=lambda one: _arrange(_drop(one, lead, value), given, value),
        )


def read_product(name: str, func: Callable[..., Tensor], args: Any, kwargs: Any) -> Product | None:
    """Return the product that a call computes; None if it has another form."""
    if name == "einsum":
        return _read_einsum(func, args, kwargs)
    if name == "baddbmm":
        if len(args) < 3 or kwargs.keys() - {"beta", "alpha"}:
            return None
        bias, alpha = args[0], float(kwargs.get("alpha", 1.0))
        return Product(
            args[1], args[2], lambda a, b: func(bias, a, b, *args[3:], **kwargs), alpha=alpha
        )
    if len(args) != 2 or kwargs or not all(isinstance(x, Tensor) for x in args):
        return None
    if name == "__rmatmul__":
        return Product(args[1], args[0], lambda a, b: func(b, a))
    return Product(args[0], args[1], func)


def _read_einsum(func: Callable[..., Tensor], args: Any, kwargs: Any) -> Product | None:
    if kwargs or not args or not isinstance(args[0], str):
        return None
    operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
    equation = args[0].replace(" ", "")
    inputs, arrow, out = equation.partition("->")
    letters = inputs.split(",")
    if len(operands) != 2 or len(letters) != 2 or not arrow:
        return None
    pairs = zip(operands, letters, strict=True)
    dots = max((x.dim() - len(one) + 3 for x, one in pairs if "..." in one), default=0)
    extra = "".join(chr(ord("α") + i) for i in range(dots))
    names = [_spell(one, x.dim(), extra) for x, one in zip(operands, letters, strict=True)]
    result = out.replace("...", extra) if "..." in equation else out
    if any(len(set(one)) < len(one) for one in (*names, result)):
        return None  # a diagonal
    left, right = operands
    spelled = (names[0], names[1], result)
    return Product(left, right, lambda a, b: func(equation, a, b), spelled)


def dot_similarity(factor: float, d_k: int, table: Tensor | None) -> Similarity:
    """Return the similarity factor · q · k + table, by its usual name if it has one."""
    if table is None and isclose(factor, d_k**-0.5, rel_tol=1e-6):
        return ScaledDot()
    return Dot() if table is None and factor == 1.0 else BiasedDot(factor, table)


def _spell(letters: str, n_axes: int, extra: str) -> str:
    """Return one letter for each axis, with letters in place of an ellipsis."""
    if "..." not in letters:
        return letters
    n = n_axes - len(letters) + 3
    return letters.replace("...", extra[len(extra) - n :])


def _arrange(tensor: Tensor, have: str, want: str) -> Tensor:
    """Return the tensor with its axes in another order; axes that it does not have get size 1."""
    kept = [have.index(x) for x in want if x in have]
    arranged = tensor.permute(kept)
    for axis, letter in enumerate(want):
        if letter not in have:
            arranged = arranged.unsqueeze(axis)
    return arranged


def _drop(tensor: Tensor, lead: str, value: str) -> Tensor:
    """Remove the leading axes that the values do not have."""
    for axis, letter in reversed(list(enumerate(lead))):
        if letter not in value:
            tensor = tensor.select(axis, 0)
    return tensor


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _turn(tensor: Tensor) -> Tensor:
    return tensor.transpose(-1, -2)


def with_heads(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """Return x as (batch, head, position, width); other leading axes join the batch.

    With three axes, the first is the batch. Two stay two.
    """
    if len(lead) == 2 or not lead:
        return x
    if len(lead) == 1:
        return x.unsqueeze(-3)
    return x.expand(*lead, *x.shape[-2:]).reshape(prod(lead[:-1]), lead[-1], *x.shape[-2:])


def with_mask_heads(mask: Tensor | None, lead: tuple[int, ...]) -> Tensor | None:
    """Return a mask with the axes of scores whose leading axes `with_heads` has changed."""
    if mask is None or mask.dim() <= 2:
        return mask
    if len(lead) > 2:
        return with_heads(mask, lead)
    mask = mask.reshape(*(1,) * (len(lead) + 2 - mask.dim()), *mask.shape)
    return with_heads(mask, lead)


def read_mask(mask: Tensor | None) -> tuple[Mask, Tensor | None]:
    """Split a mask of torch into the pairs that are allowed and what is added to their scores.

    A row that hides every key with finite numbers stays as it is: its weights are not 0.
    """
    if mask is None:
        return Everything(), None
    if mask.dtype == torch.bool:
        return BooleanMask(mask), None
    hidden = mask <= HIDDEN
    hidden = hidden & ~(hidden & (mask > -inf)).all(-1, keepdim=True)
    table = mask.masked_fill(hidden, 0.0)
    allowed = BooleanMask(~hidden) if bool(hidden.any()) else Everything()
    return allowed, table if bool(table.any()) else None
