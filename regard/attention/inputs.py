"""What every form of attention is given: its options, checked and tapped."""

from typing import TypedDict

import torch
from torch import Tensor

from regard.attention.mask import Mask, as_mask
from regard.attention.similarity import Similarity
from regard.errors import InputError, ShapeError
from regard.tap import tap


class FormOptions(TypedDict, total=False):
    """The options that all forms have."""

    allowed: Mask | Tensor | None
    """Which query may see which key; not every form can do with every mask."""
    dropout: float
    """The probability with which a weight is set to 0, where a form has weights."""
    site: str
    """The name under which the steps are tapped."""


def tap_inputs(
    query: Tensor, key: Tensor, value: Tensor, allowed: Mask | Tensor | None, *, site: str
) -> tuple[Tensor, Tensor, Tensor, Mask]:
    """Queries, keys, values and mask as listeners leave them."""
    query = tap(f"{site}.query", query, "query d_k")
    key = tap(f"{site}.key", key, "key d_k")
    value = tap(f"{site}.value", value, "key d_v")
    mask = as_mask(tap(f"{site}.allowed", as_mask(allowed), "query key"))
    return query, key, value, mask


def check_dropout(dropout: float) -> None:
    """Refuse what is no probability of being set to 0."""
    if not 0 <= dropout < 1:
        raise InputError(f"dropout is {dropout}; it is a probability from 0 up to, not with, 1.")


def check_inputs(query: Tensor, key: Tensor, value: Tensor, measure: Similarity) -> None:
    """Refuse what cannot be attended to, in a sentence that says why."""
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        kinds = [type(x).__name__ for x in (query, key, value)]
        raise InputError(
            f"query, key and value are {kinds[0]}, {kinds[1]} and {kinds[2]}; give torch tensors, "
            "for example torch.as_tensor(query)."
        )
    shapes = [tuple(x.shape) for x in (query, key, value)]
    if min(len(shape) for shape in shapes) < 2:
        raise ShapeError(
            f"query, key and value have shapes {shapes[0]}, {shapes[1]}, {shapes[2]}; each needs "
            "at least the two axes (position, width)."
        )
    if not query.dtype == key.dtype == value.dtype or not query.dtype.is_floating_point:
        raise InputError(
            f"query, key and value are {query.dtype}, {key.dtype} and {value.dtype}; give all "
            "three in one floating-point type."
        )
    if shapes[1][-2] != shapes[2][-2]:
        raise ShapeError(
            f"there are {shapes[1][-2]} keys but {shapes[2][-2]} values; each key needs its value."
        )
    if not all(shape[-2] and shape[-1] for shape in shapes):
        raise ShapeError(
            f"query, key and value have shapes {shapes[0]}, {shapes[1]}, {shapes[2]}; there must "
            "be at least one query and one key, each at least 1 wide."
        )
    if not shapes[0][:-2] == shapes[1][:-2] == shapes[2][:-2]:
        _check_leading(shapes)
    measure.check(shapes[0][-1], shapes[1][-1])


def _check_leading(shapes: list[tuple[int, ...]]) -> None:
    try:
        torch.broadcast_shapes(*(shape[:-2] for shape in shapes))
    except RuntimeError:
        raise ShapeError(
            f"the leading axes of query, key and value are {shapes[0][:-2]}, {shapes[1][:-2]} and "
            f"{shapes[2][:-2]}; they must be equal, or 1 where they differ."
        ) from None
