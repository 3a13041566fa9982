"""The error tree: every user error is a RegardError whose text says what to do."""

from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints


class RegardError(Exception):
    """An error that the user can fix; the command line prints it in one line and exits with 2."""


class InputError(RegardError, ValueError):
    """A given value that is not allowed."""


class ShapeError(InputError):
    """A tensor whose axes do not fit the others."""


class MaskError(InputError):
    """A mask of the wrong shape or kind."""


class NotFiniteError(InputError):
    """NaN or infinity where only finite numbers make sense."""


class UnknownNameError(InputError):
    """A name that does not exist."""


class FileError(RegardError, OSError):
    """A file that is missing, damaged, of another kind, or cannot be written."""


class MissingExtraError(RegardError, ImportError):
    """An optional dependency that this feature needs is not installed."""


def nearest(name: str, candidates: Iterable[str], *, count: int = 3) -> str:
    """Return the candidates most like `name`, as the end of an error sentence."""
    known = sorted(set(candidates))
    close = get_close_matches(name, known, n=count, cutoff=0.4) or known[:count]
    if not close:
        return "there are none"
    return "the nearest " + ("is " if len(close) == 1 else "are ") + ", ".join(close)


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of the choices."""
    choices = tuple(choices)
    if value not in choices:
        raise UnknownNameError(
            f"{name} is {value!r}; choose one of {', '.join(choices)} "
            f"({nearest(str(value), choices)})."
        )


def check_counts(**values: int | None) -> None:
    """Refuse a count or width below 1; None means "not given" and passes."""
    for name, value in values.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; it must be 1 or more.")


def check_probabilities(**values: float | None) -> None:
    """Refuse a probability outside [0, 1); None means "not given" and passes."""
    for name, value in values.items():
        if value is not None and not 0 <= value < 1:
            raise InputError(f"{name} is {value}; it must be at least 0 and less than 1.")


def as_texts(given: Any, what: str = "texts") -> list[str]:
    """Return one text or several as a list; refuse everything else."""
    is_list = isinstance(given, Iterable) and not isinstance(given, str | bytes | dict)
    if is_list or isinstance(given, str):
        texts: list[Any] = list(cast(Any, given)) if is_list else [given]
        wrong = [one for one in texts if not isinstance(one, str)]
        if not wrong:
            return texts
        given = wrong[0]
    named = type(cast(object, given)).__name__
    raise InputError(f"{what} must be a string or a list of strings, and a {named} was given.")


_WORDS = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
_MAX_NUMBER = 2**63


def check_field_types(settings: Any, *, where: str = "") -> None:
    """Refuse a dataclass with a field of another type than annotated, or a number not finite."""
    hints = get_type_hints(cast(Any, type(settings)))
    for field in fields(settings):
        value = getattr(settings, field.name)
        if not _fits(value, hints[field.name]):
            shown = repr(value)
            raise InputError(
                f"{field.name} is {shown if len(shown) < 80 else shown[:77] + '...'}; {where}it "
                f"must be {_describe(hints[field.name])}."
            )


def _fits(value: object, hint: Any) -> bool:
    parts, origin, given = get_args(hint), get_origin(hint), cast(Any, value)
    if origin is UnionType:
        return any(_fits(value, one) for one in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        parts = parts[:1] * len(given) if parts[-1] is Ellipsis else parts
        return len(given) == len(parts) and all(map(_fits, given, parts))
    if origin is not None:  # a sequence of texts
        return isinstance(value, origin)
    if isinstance(value, int | float):
        kinds = (bool,) if isinstance(value, bool) else (type(value), float)
        return hint in kinds and -_MAX_NUMBER < value < _MAX_NUMBER
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    if get_origin(hint) is UnionType:
        return " or ".join(_describe(one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        return "a list of numbers"
    if get_origin(hint) is not None:
        return "a list of texts"
    return _WORDS.get(hint, "absent")
