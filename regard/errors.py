"""The error tree: every user error is a RegardError whose text says what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


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
