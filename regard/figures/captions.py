"""Text in figures: captions in English and Korean (captions.toml), and labels that fit a width."""

import tomllib
import unicodedata
from collections.abc import Callable
from pathlib import Path

from regard.errors import InputError

LANGUAGES = ("en", "ko")
CAPTIONS: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)


def check_language(language: str) -> None:
    """Raise an InputError for a language without captions."""
    if language not in LANGUAGES:
        raise InputError(f"language is {language!r}; it can be {' or '.join(LANGUAGES)}.")


def caption(key: str, language: str = "en") -> str:
    """Return a caption in a language."""
    check_language(language)
    return CAPTIONS[key][LANGUAGES.index(language)]


def text_width(text: str, size: float = 13) -> float:
    """Estimate the width of a text, for most fonts slightly too large."""
    return size * sum(_advance(c) for c in text)


def truncate(
    text: str, limit: float, size: float = 13, *, measure: Callable[[str], float] | None = None
) -> str:
    """Shorten a text to a width with an ellipsis; `measure` is `text_width` at `size`."""
    measured = measure or (lambda t: text_width(t, size))
    if measured(text) <= limit:
        return text
    while text and measured(text + "…") > limit:
        text = text[:-1]
    return text + "…"


def show_spaces(token: str) -> str:
    """Replace whitespace in a token by a visible sign."""
    return "".join("␣" if c.isspace() else c for c in token)


def _advance(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in "ilj.,:;'|!":
        return 0.32
    return 0.68 if character.isupper() or character in "mw" else 0.57
