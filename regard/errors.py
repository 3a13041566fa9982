"""The error tree: every fault of a user is a RegardError whose text says what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class RegardError(Exception):
    """Something a user can put right; the command line prints it in one line and exits with 2."""


class InputError(RegardError, ValueError):
    """A value that was given is not one that is allowed."""


class ShapeError(InputError):
    """A tensor whose axes do not fit the others."""


class MaskError(InputError):
    """A mask of the wrong shape or kind."""


class NotFiniteError(InputError):
    """NaN or infinity where only finite numbers make sense."""


class UnknownNameError(InputError):
    """A name nobody answers to."""


class FileError(RegardError, OSError):
    """A file that is missing, damaged, foreign or cannot be written."""


class MissingExtraError(RegardError, ImportError):
    """An optional dependency that this feature needs is not installed."""


def nearest(name: str, candidates: Iterable[str], *, count: int = 3) -> str:
    """The candidates most like `name`, as a phrase to end an error sentence with."""
    known = sorted(set(candidates))
    close = get_close_matches(name, known, n=count, cutoff=0.4) or known[:count]
    if not close:
        return "there are none"
    return "the nearest " + ("is " if len(close) == 1 else "are ") + ", ".join(close)
