"""Attention written by hand, found by following tensors: scores → softmax → product with values.

Every function of torch that a watched model calls passes through `Follower.follow`. Notes about
tensors, which die with them, say what a tensor was projected from, that it is a table of scores, or
that it is the softmax of one. When such weights are multiplied with values, the site is complete.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

from regard.trace.notes import (
    DROPOUT,
    FLIPS,
    KEPT,
    LAYOUT,
    NO_CHANGE,
    Note,
    ScoreTable,
    Softmax,
    WeightsNote,
    some_keys,
    version_of,
)
from regard.trace.products import Product, read_product
from regard.trace.stream_graph import TensorTable

_SCALES = {"mul": 1, "multiply": 1, "div": -1, "true_divide": -1, "divide": -1}
_SHIFTS = frozenset(("add", "sub", "subtract", "masked_fill", "where", "clamp", "log_softmax"))
_PRODUCTS = frozenset(("matmul", "bmm", "mm", "baddbmm", "einsum", "__rmatmul__"))
_PROJECTIONS = frozenset(("linear", "conv1d", "conv2d", "conv3d", "addmm", "bilinear"))
_OPERANDS = ("condition", "input", "other", "mat1", "mat2", "batch1", "batch2")
_NEW_NOTES = _PROJECTIONS | _SCALES.keys()
_NORMALIZES = frozenset((*_SCALES, "normalize"))
_PLAIN_SOFTMAX = frozenset(("softmax", "softmax.int", "_softmax", "special_softmax"))
SOFTMAX = _PLAIN_SOFTMAX | {"gumbel_softmax"}


@dataclass
class Follower:
    """Follows tensors through the functions of torch."""

    on_softmax: Callable[[Softmax], None]
    """Called with every softmax that looks like attention."""
    on_product: Callable[[WeightsNote, Product, int], Tensor | None]
    """Answers a product of weights and values; None if it was not understood."""
    notes: TensorTable = field(default_factory=TensorTable)
    numbers: Iterator[int] = field(default_factory=count)

    def note(self, tensor: Tensor) -> Note:
        """Return the note of a tensor."""
        found = self.notes.get(tensor)
        if found is None:
            found = Note(next(self.numbers), parameter=isinstance(tensor, nn.Parameter))
            self.notes[tensor] = found
        return found

    def origin(self, tensor: Tensor) -> int:
        """Return a number that two tensors share if they were projected from the same one."""
        note = self.note(tensor)
        return note.identity if note.source is None else note.source

    def follow(self, name: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function of torch and note what its result is."""
        if kwargs and (not args or name in _PRODUCTS):
            args, kwargs = _by_position(args, kwargs)
        if name in _PRODUCTS:
            rest = {option: x for option, x in kwargs.items() if option != "out"}
            product = read_product(name, func, args, rest)
            if product is not None:
                return self._written(kwargs.get("out"), self._follow_product(product))
        table = self.note(args[0]).table if name == "exp" else None
        if table is not None and table.fits(args[0]):
            return self._follow_exp(func, args, kwargs, table)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            self._note_result(name, func, args, kwargs, result)
        else:
            self._note_others(name, args, result)
        return result

    def _written(self, out: Tensor | None, result: Tensor) -> Tensor:
        """Return a result, in the tensor that the caller gave for it."""
        if out is None:
            return result
        out.resize_(result.shape).copy_(result)
        self.notes[out] = self.note(result)
        return out

    def _note_others(self, name: str, args: Any, result: Any) -> None:
        """Note the results of a function that returns several tensors, or none."""
        if name == "__setitem__":
            self._note_part(*args)
        elif isinstance(result, tuple | list) and any(isinstance(x, Tensor) for x in result):
            given = [self.note(x) for x in _tensors(args)]
            for one in result:
                if isinstance(one, Tensor) and given:
                    self.notes[one] = self._merge(given)

    def _note_part(self, whole: Tensor, _: Any, part: Any) -> None:
        """Note that a part of a tensor was written, such as the next place of a cache."""
        note = self.notes.get(part) if isinstance(part, Tensor) else None
        if note is None:
            return
        if note.weights is not None and part.shape == whole.shape:
            weights = replace(note.weights, version=version_of(whole), replaced=True)
            self.notes[whole] = replace(note, weights=weights)
        elif self.note(whole).table is None:
            self.notes[whole] = Note(next(self.numbers), source=self.origin(part))

    def _note_result(self, name: str, func: Any, args: Any, kwargs: Any, result: Tensor) -> None:
        tensors = _tensors(args)
        if name in SOFTMAX and tensors:
            self._note_softmax(name, args, kwargs, result)
        elif tensors:
            self._note_made(name, func, args, tensors, kwargs, result)

    def _note_made(
        self, name: str, func: Any, args: Any, tensors: list[Tensor], kwargs: Any, result: Tensor
    ) -> None:
        """Note what a result was made from."""
        if len(tensors) == 1 and name not in _NEW_NOTES:
            first = self.note(tensors[0])
            if first.table is None and first.weights is None and first.exponentials is None:
                self.notes[result] = first
                return
        given = [self.note(x) for x in tensors]
        if name in _PROJECTIONS:
            activations = [x for x in given if not x.parameter] or given[:1]
            made = Note(next(self.numbers), source=activations[0].identity)
            if result.shape == tensors[0].shape:  # heads are mixed
                made.table = given[0].table and replace(given[0].table, exact=False)
                made.weights = self._next_weights(name, func, args, kwargs, result)
            self.notes[result] = made
            return
        candidate = given[0].exponentials
        if candidate is not None and candidate.shape == result.shape:
            self._note_scaled(name, candidate, result)
            return
        merged = _with_table(self._merge(given), given, name, args, kwargs)
        if any(x.weights is not None for x in given):
            merged.weights = self._next_weights(name, func, args, kwargs, result)
        self.notes[result] = merged

    def _merge(self, given: list[Note]) -> Note:
        active = [x for x in given if not x.parameter]
        if not active:
            return Note(given[0].identity, parameter=True)
        same = all(x.identity == active[0].identity for x in active)
        sources = [x.source for x in active if x.source is not None]
        identity = active[0].identity if same else next(self.numbers)
        return Note(identity, source=max(sources, default=None), factor=active[0].factor)

    def _note_softmax(self, name: str, args: Any, kwargs: Any, result: Tensor) -> None:
        scores, note = args[0], self.note(args[0])
        axis = kwargs.get("dim", args[1] if len(args) > 1 and name in _PLAIN_SOFTMAX else None)
        if axis is None:  # what torch chooses, with a warning
            axis = 0 if scores.dim() in (0, 1, 3) else 1
            axis = axis if name in _PLAIN_SOFTMAX else -1
        axis = axis if axis < 0 else axis - scores.dim()
        softmax = Softmax(scores, axis, note.table, result)
        self._note_weights(softmax, replaced=name not in _PLAIN_SOFTMAX)

    def _note_weights(self, softmax: Softmax, *, replaced: bool = False) -> None:
        if softmax.table is not None:
            self.on_softmax(softmax)
        weights = WeightsNote(softmax, version_of(softmax.weights), replaced=replaced)
        self.notes[softmax.weights] = Note(next(self.numbers), weights=weights)

    def _follow_exp(self, func: Any, args: Any, kwargs: Any, table: ScoreTable) -> Tensor:
        """Compute exponentials of scores, which may become a softmax that is written by hand."""
        scores = args[0].clone() if func.__name__ == "exp_" else args[0]
        result = func(*args, **kwargs)
        candidate = Softmax(scores, -1, table, result)
        self.on_softmax(candidate)
        if not is_functorch_wrapped_tensor(result):
            self._note_scaled("mul", candidate, result)
        return result

    def _note_scaled(self, name: str, candidate: Softmax, result: Tensor) -> None:
        """Note a function of exponentials, which makes them weights if they sum to 1 then."""
        sums, scores = result.detach().sum(-1), candidate.scores.detach()
        scores = scores.masked_fill(result.detach() == 0, -torch.inf)
        for axis in (-1, -2) if name in _NORMALIZES else ():
            same = torch.allclose(scores.softmax(axis), result, rtol=1e-4, atol=1e-6)
            if same or (axis == -1 and bool((sums < 1 + 1e-5).all())):
                candidate.used = True
                softmax = Softmax(scores, axis, candidate.table, result, shifted=True)
                self._note_weights(softmax, replaced=not same)
                return
        self.notes[result] = Note(next(self.numbers), exponentials=candidate)

    def _next_weights(
        self, name: str, func: Any, args: Any, kwargs: Any, result: Tensor
    ) -> WeightsNote | None:
        """Return the note of weights after one more function; None if their axes are lost."""
        notes = [self.note(x).weights if isinstance(x, Tensor) else None for x in args]
        at = next((i for i, x in enumerate(notes) if x is not None), None)
        if at is None:
            return None
        (note, *others), before = [x for x in notes if x is not None], args[at]
        if name == "__getitem__" and result.numel() != before.numel():
            return some_keys(note, before, args[1], result)
        name = "view" if name == "__getitem__" and _is_view(args[1]) else name
        changed = name not in KEPT and name not in DROPOUT
        if name in FLIPS:
            note = replace(note, flipped=not note.flipped)
        elif name in DROPOUT:
            note.softmax.note_dropout(*args[1:], **kwargs)
        elif name in _SCALES and result.shape != before.shape:
            self.on_softmax(note.softmax)  # values that are multiplied without a product
        if not _keeps_axes(name, before, result):
            return None

        def again(weights: Tensor) -> Tensor:
            return func(*args[:at], weights, *args[at + 1 :], **kwargs)

        return replace(
            note,
            version=version_of(result),
            chain=(*note.chain, (name, again)),
            changed=note.changed or changed,
            replaced=note.replaced or note.version != version_of(before),
            others=(*note.others, *(x.softmax for x in others)),
        )

    def _follow_product(self, product: Product) -> Tensor:
        notes = [self.note(product.left), self.note(product.right)]
        for index, note in enumerate(notes):
            if note.weights is not None:
                whole = replace(product, weights_index=index)
                answer = self.on_product(note.weights, whole, self.origin(whole.values))
                if answer is not None:
                    return answer
        result = product.compute()
        self._note_product(product, notes, result)
        return result

    def _note_product(self, product: Product, notes: list[Note], result: Tensor) -> None:
        """Note a product that is not one of weights and values."""
        if any(note.parameter for note in notes) or product.right.dim() == 2:
            index = int(notes[0].parameter and not notes[1].parameter)
            active, operand = notes[index], (product.left, product.right)[index]
            self.notes[result] = made = Note(next(self.numbers), source=active.identity)
            if result.shape == operand.shape:  # heads are mixed
                whole = replace(product, weights_index=index)
                made.table = active.table and replace(active.table, exact=False)
                made.weights = self._next_weights(
                    "mix", whole.with_weights, (operand, whole.values), {}, result
                )
        if not any(note.parameter for note in notes) and (pair := product.rows_and_columns()):
            old = self.notes.get(result) or Note(next(self.numbers))
            origins = [self.origin(x) for x in (product.left, product.right)]
            before = notes[0].factor * notes[1].factor
            swapped = product.rows_are_right
            table = ScoreTable(
                *pair,
                product.alpha,
                before,
                (origins[swapped], origins[not swapped]),
            )
            self.notes[result] = replace(old, table=table)


def _with_table(merged: Note, given: list[Note], name: str, args: Any, kwargs: Any) -> Note:
    """Return the note with the factor and the scores after one more function."""
    if name in _SCALES and len(args) > 1 and (by := _number(args[1])) is not None:
        merged.factor = given[0].factor * by ** _SCALES[name]
    tables = [x.table for x in given if x.table is not None]
    if tables:
        merged.table = _next_table(name, args, tables, scaled="alpha" in kwargs)
    return merged


def _next_table(
    name: str, args: Any, tables: list[ScoreTable], *, scaled: bool = False
) -> ScoreTable:
    """Return the table after one more function; `scaled` if a sum has a factor of its own."""
    table = tables[0]
    if name in _SHIFTS and not scaled:
        return table
    if name in NO_CHANGE or name in LAYOUT:
        return table
    if name in _SCALES and len(tables) == 1 and len(args) > 1 and (by := _number(args[1])):
        return replace(table, factor=table.factor * by ** _SCALES[name])
    return replace(table, exact=False)


def _is_view(index: Any) -> bool:
    """Return True for an index that only adds axes, if it keeps all entries."""
    index = index if isinstance(index, tuple) else (index,)
    return all(x is None or x is ... or isinstance(x, slice) for x in index)


def _keeps_axes(name: str, before: Tensor, result: Tensor) -> bool:
    """Return True if a tensor has the axes of the one before, or its last two were exchanged."""
    if name in FLIPS and before.dim() > 1:
        return (result.shape, result.stride()) == (before.mT.shape, before.mT.stride())
    return name in KEPT - FLIPS or result.shape == before.shape


def _by_position(args: Any, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with the tensors that were given by name in their places."""
    if not args and "input" not in kwargs:
        return args, kwargs
    named = [name for name in _OPERANDS if name in kwargs]
    rest = {name: x for name, x in kwargs.items() if name not in named}
    return (*args, *(kwargs[name] for name in named)), rest


def _tensors(args: Any) -> list[Tensor]:
    """Return the tensors among the arguments, also in a list such as that of torch.cat."""
    found = [x for x in args if isinstance(x, Tensor)]
    if not found and args and isinstance(args[0], tuple | list):
        found = [x for x in args[0] if isinstance(x, Tensor)]
    return found


def _number(given: Any) -> float | None:
    """Return a plain number, also from a tensor with one entry."""
    if isinstance(given, Tensor):
        plain = given.numel() == 1 and not is_functorch_wrapped_tensor(given)
        return float(given.detach()) if plain else None
    return float(given) if isinstance(given, int | float) else None
