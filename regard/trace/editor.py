"""The listener that applies edits to tapped values."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

from regard.errors import UnknownNameError, nearest
from regard.tap import Tapped, split_path
from regard.trace.edit import AXES_WITH_HEADS, Edit, EditTarget, check_edits


class Editor:
    """Apply edits to tapped values and refuse those that matched nothing."""

    changes = True

    def __init__(self, edits: Sequence[Edit], *, may_grow: bool = False) -> None:
        """Prepare the edits; `may_grow` says that any site may be continued by later steps."""
        self.edits = check_edits(edits)
        self.may_grow = may_grow
        self._seen: dict[str, None] = {}
        self._matched: set[int] = set()
        self._target = EditTarget()

    def wants(self, path: str) -> bool:
        site, _, name = split_path(path)
        return any(fnmatchcase(f"{site}.{name}", edit.value_path) for edit in self.edits)

    def see(self, tapped: Tapped) -> Any:
        site, first, name = split_path(tapped.path)
        path, value = f"{site}.{name}", tapped.value
        self._seen.setdefault(path)
        if name in ("query", "key"):  # tapped first at every site
            self._target = _measure(self._target, name, value, first)
        steps = "@" in tapped.path
        grows = steps or self.may_grow
        target = replace(self._target, site=site, first=first, stepwise=steps, may_grow=grows)
        for i, edit in enumerate(self.edits):
            if fnmatchcase(path, edit.value_path):
                _check_head(edit, target)
                before, value = value, edit.apply(value, target)
                # a later step may compute the query that an edit of a stepwise site names
                if value is not before or not (target.may_grow and edit.waits):
                    self._matched.add(i)
        return value

    def finish(self) -> None:
        """Refuse edits that matched nothing that was computed."""
        for i, edit in enumerate(self.edits):
            if i in self._matched:
                continue
            if any(fnmatchcase(path, edit.value_path) for path in self._seen):
                named = (x for x in ("position", "query") if getattr(edit, x, None) is not None)
                what = next(named, "key")
                raise UnknownNameError(f"{edit!r} names a {what} that does not exist.")
            raise UnknownNameError(
                f"{edit!r} matched nothing: no value {edit.value_path!r} was computed; "
                f"{nearest(edit.value_path, self._seen)}."
            )


def _measure(target: EditTarget, name: str, value: Tensor, first: int) -> EditTarget:
    n_heads = value.size(-3) if value.dim() >= AXES_WITH_HEADS else 1
    if name == "query":
        return EditTarget(n_heads=n_heads, n_query=first + value.size(-2), device=value.device)
    return replace(target, n_heads=max(target.n_heads, n_heads), n_key=value.size(-2))


def _check_head(edit: Edit, target: EditTarget) -> None:
    head, n = getattr(edit, "head", None), target.n_heads
    if head is not None and head >= n:
        raise UnknownNameError(f"{target.site} has no head {head}; it has {n}, 0 to {n - 1}.")
