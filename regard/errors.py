"""The error tree: every user error is a RegardError whose text says what to do.

Messages are written in English where they arise; `translate` gives them in the user's language.
"""

import logging
import os
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
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


LANGUAGES = ("en", "ko")
"""The languages of messages, captions and pages."""
_LOCALE = ("REGARD_LANGUAGE", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
_LEAST = 5  # letters that are only the template's
_PLACE = re.compile(r"\{(\d+)\}")


def user_language() -> str:
    """Return the language that the environment asks for, if there are messages in it: en or ko."""
    wanted = next((value for name in _LOCALE if (value := os.environ.get(name))), "")
    known = (one[:2].lower() for one in wanted.split(":"))
    return next((one for one in known if one in LANGUAGES), "en")


def check_language(language: str) -> None:
    """Raise an InputError for a language without messages."""
    if language not in LANGUAGES:
        raise InputError(f"language is {language!r}; it can be {' or '.join(LANGUAGES)}.")


@contextmanager
def speaking(language: str | None) -> Generator[None]:
    """Give messages in this language inside the block; None leaves the choice as it is."""
    before = os.environ.get(_LOCALE[0])
    if language is not None:
        os.environ[_LOCALE[0]] = language
    try:
        yield
    finally:
        if language is not None:
            os.environ.pop(_LOCALE[0])
        if before is not None:
            os.environ[_LOCALE[0]] = before


def translate(text: str, language: str | None = None, *, short: bool = False) -> str:
    """Return a message or a help text in a language, by default the user's.

    `messages.ko.toml` has a text for each template, in which {0}, {1} … stand for what is filled
    in; that may be a message itself. Text that no template fits stays as it is. Templates of few
    letters, such as "{0} left", fit only if `short` is set: other text could look like them.
    """
    if (language or user_language()) == "en" or not text.strip():
        return text
    return _translate(text, least=0 if short else _LEAST)


def _translate(text: str, *, least: int) -> str:
    """Translate with a template of at least so many letters."""
    texts, templates = _catalogue()
    if text in texts:
        return texts[text]
    for letters, start, end, pattern, template in templates:
        if letters >= least and text.startswith(start) and text.endswith(end):
            found = re.fullmatch(pattern, text, re.DOTALL)
            if found is not None:
                values = [_translate(one, least=_LEAST) for one in found.groups()]
                return _fill(texts[template], values)
    return text


def _fill(template: str, values: list[str]) -> str:
    return _PLACE.sub(lambda place: values[int(place[1])], template)


@cache
def _catalogue() -> tuple[dict[str, str], list[tuple[int, str, str, str, str]]]:
    """Return the texts by template, and templates with places, those with most letters first."""
    import tomllib

    texts = tomllib.loads(Path(__file__).with_name("messages.ko.toml").read_text("utf-8"))
    templates: list[tuple[int, str, str, str, str]] = []
    for template in texts:
        first, *rest = _PLACE.split(template)
        if rest:
            # Most values are short and without a sentence's end; the lazy match finds the first.
            pattern = "(.*?)".join(map(re.escape, (first, *rest[1::2])))
            letters = len(re.findall("[A-Za-z]", _PLACE.sub("", template)))
            templates.append((letters, first, rest[-1], pattern, template))
    return texts, sorted(templates, reverse=True)


def nearest(name: str, candidates: Iterable[str], *, count: int = 3) -> str:
    """Return the candidates most like `name`, as the end of an error sentence."""
    known = sorted(set(candidates))
    close = get_close_matches(name, known, n=count, cutoff=0.4) or known[:count]
    if not close:
        return "there are none"
    if len(close) == 1:
        return f"the nearest is {close[0]}"
    return f"the nearest are {', '.join(close)}"


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
_hints = cache(get_type_hints)


def check_field_types(settings: Any, *, where: str = "") -> None:
    """Refuse a dataclass with a field of another type than annotated, or a number not finite."""
    hints = _hints(cast(Any, type(settings)))
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


_NO_MEMORY = (
    *("allocate memory", "not enough memory", "bad_alloc", "out of memory"),
    *("failed to map segment", "error return without exception set"),  # of a module being imported
    "ThreadPoolBuildError",  # of tokenizers, which starts threads for large texts
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True for the errors with which Python, torch and the linker run out of memory."""
    text = str(error)
    return isinstance(error, MemoryError) or any(one in text for one in _NO_MEMORY)


_MADE: set[Path] = set()


def make_parent(path: Path, *, quiet: bool = False) -> None:
    """Make the folder of a file and log that it is new: the path may be mistyped.

    Folders inside one that this process has made are not logged.
    """
    folder = path.absolute().parent
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if not quiet and _MADE.isdisjoint(folder.parents):  # the command line prints it
            log = logging.getLogger("regard.files")
            log.info("%s did not exist and was created.", path.parent)
        _MADE.add(folder)


def first_line(error: Exception) -> str:
    """Return the first line of an error of another library."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
