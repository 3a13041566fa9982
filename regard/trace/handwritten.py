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

from regard.trace.products import Product, read_product
from regard.trace.stream_graph import TensorTable

_NO_CHANGE = frozenset(
    (
        *("to", "float", "double", "half", "bfloat16", "type_as", "type", "contiguous", "clone"),
        *("detach", "requires_grad_", "data"),
    )
)
_LAYOUT = frozenset(
    ("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "expand", "view_as")
)
_FLIPS = frozenset(("transpose", "permute", "swapaxes", "swapdims", "movedim", "mT", "T", "mH"))
_SCALES = {"mul": 1, "multiply": 1, "div": -1, "true_divide": -1, "divide": -1}
_SHIFTS = frozenset(("add", "sub", "subtract", "masked_fill", "where", "clamp"))
_DROPOUT = frozenset(("dropout", "alpha_dropout"))
_PRODUCTS = frozenset(("matmul", "bmm", "mm", "baddbmm", "einsum", "__rmatmul__"))
_PROJECTIONS = frozenset(("linear", "conv1d", "conv2d", "conv3d", "addmm", "bilinear"))
_OPERANDS = ("condition", "input", "other", "mat1", "mat2", "batch1", "batch2")
_KEPT = _LAYOUT | _FLIPS | _NO_CHANGE
_NEW_NOTES = _PROJECTIONS | _SCALES.keys()
SOFTMAX = frozenset(("softmax", "softmax.int", "_softmax", "special_softmax"))


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


@dataclass(eq=False)
class Softmax:
    """One softmax, which may turn out to be that of attention."""

    scores: Tensor
    axis: int
    table: ScoreTable | None
    weights: Tensor
    path: str = ""
    dropout: float = 0.0
    used: bool = False

    def __post_init__(self) -> None:
        self.shape = tuple(self.scores.shape)
        self._versions = (_version(self.scores), _version(self.weights))

    def keeps_scores(self) -> bool:
        """Return True if the weights still follow from the scores: neither was changed in place."""
        if self.scores is self.weights or self._versions[0] != _version(self.scores):
            return False
        return self._versions[0] is not None or torch.allclose(self._again(), self.weights)

    def first_weights(self) -> Tensor:
        """Return the weights before they were changed in place."""
        version = self._versions[1]
        known = version is not None and version == _version(self.weights)
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
            left_out = name in _DROPOUT and not dropout
            if not left_out and (name in _KEPT or not layout_only):
                weights = function(weights)
        return weights

    def is_softmax(self, operand: Tensor) -> bool:
        """Return True if a product multiplies the softmax itself, perhaps after dropout."""
        if self.replaced or self.version != _version(operand) or not self.softmax.keeps_scores():
            return False
        if not self.changed and self.version is not None:
            return True
        first = self.softmax.first_weights()
        unseen = self.version is None and not any(name in _DROPOUT for name, _ in self.chain)
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


@dataclass
class Follower:
    """Follows tensors through the functions of torch."""

    on_softmax: Callable[[Softmax], None]
    """Called with every softmax that is followed."""
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
            product = read_product(name, func, args, kwargs)
            if product is not None:
                return self._follow_product(product)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            self._note_result(name, func, args, kwargs, result)
        elif isinstance(result, tuple | list) and any(isinstance(x, Tensor) for x in result):
            given = [self.note(x) for x in _tensors(args)]
            for one in result:
                if isinstance(one, Tensor) and given:
                    self.notes[one] = self._merge(given)
        return result

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
            if first.table is None and first.weights is None:
                self.notes[result] = first
                return
        given = [self.note(x) for x in tensors]
        if name in _PROJECTIONS:
            activations = [x for x in given if not x.parameter] or given[:1]
            self.notes[result] = Note(next(self.numbers), source=activations[0].identity)
            return
        merged = self._merge(given)
        if name in _SCALES and len(args) > 1 and (by := _number(args[1])) is not None:
            merged = replace(merged, factor=given[0].factor * by ** _SCALES[name])
        tables = [x.table for x in given if x.table is not None]
        if tables:
            merged = replace(
                merged, table=_next_table(name, args, tables, scaled="alpha" in kwargs)
            )
        if any(x.weights is not None for x in given):
            merged = replace(merged, weights=self._next_weights(name, func, args, kwargs, result))
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
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if axis is None:  # what torch chooses, with a warning
            axis = 0 if scores.dim() in (0, 1, 3) else 1
        axis = axis if axis < 0 else axis - scores.dim()
        softmax = Softmax(scores, axis, note.table, result)
        self.on_softmax(softmax)
        self.notes[result] = Note(
            next(self.numbers), weights=WeightsNote(softmax, _version(result))
        )

    def _next_weights(
        self, name: str, func: Any, args: Any, kwargs: Any, result: Tensor
    ) -> WeightsNote | None:
        """Return the note of weights after one more function; None if their axes are lost."""
        notes = [self.note(x).weights if isinstance(x, Tensor) else None for x in args]
        at = next((i for i, x in enumerate(notes) if x is not None), None)
        if at is None:
            return None
        (note, *others), before = [x for x in notes if x is not None], args[at]
        changed = name not in _KEPT and name not in _DROPOUT
        if name in _FLIPS:
            if before.dim() < 2 or result.shape != before.mT.shape:
                return None
            if result.stride() != before.mT.stride():
                return None
            note = replace(note, flipped=not note.flipped)
        elif name in _DROPOUT:
            training = kwargs.get("training", args[2] if len(args) > 2 else True)
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            note.softmax.dropout = float(p) if training else note.softmax.dropout
        elif changed and result.shape != before.shape:
            return None

        def again(weights: Tensor) -> Tensor:
            return func(*args[:at], weights, *args[at + 1 :], **kwargs)

        return replace(
            note,
            version=_version(result),
            chain=(*note.chain, (name, again)),
            changed=note.changed or changed,
            replaced=note.replaced or note.version != _version(before),
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
        if any(note.parameter for note in notes) or product.right.dim() == 2:
            active = notes[0] if notes[1].parameter or not notes[0].parameter else notes[1]
            self.notes[result] = Note(next(self.numbers), source=active.identity)
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
        return result


def _next_table(
    name: str, args: Any, tables: list[ScoreTable], *, scaled: bool = False
) -> ScoreTable:
    """Return the table after one more function; `scaled` if a sum has a factor of its own."""
    table = tables[0]
    if name in _SHIFTS and not scaled:
        return table
    if name in _NO_CHANGE or name in _LAYOUT:
        return table
    if name in _SCALES and len(tables) == 1 and len(args) > 1 and (by := _number(args[1])):
        return replace(table, factor=table.factor * by ** _SCALES[name])
    return replace(table, exact=False)


def _version(tensor: Tensor) -> int | None:
    """Return how often a tensor was changed in place; None if torch does not count that."""
    return None if tensor.is_inference() else tensor._version


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
