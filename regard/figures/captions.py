"""Text in figures: captions in English and Korean (captions.toml), and labels that fit a width."""

import re
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


_LAYER = re.compile(r"(?:(encoder|decoder)\.)?(?:layers\.(\d+)\.)?(self|cross|feed_forward)\b")
_SUBLAYERS = {
    "self": "self-attention",
    "cross": "cross-attention",
    "feed_forward": "feed-forward",
}


def sublayer_label(path: str, language: str, *, stack: bool = False) -> str:
    """Return the name of a sub-layer, such as "layer 0 · self-attention", or its path.

    With `stack` the name starts with "encoder" or "decoder".
    """
    match = _LAYER.search(path)
    if match is None:
        return path
    side, number, name = match.groups()
    parts = [caption(side, language)] if stack and side else []
    if number is not None:
        parts.append(f"{caption('layer', language)} {number}")
    return " · ".join([*parts, caption(_SUBLAYERS[name], language)])


def signed(number: float, digits: int = 4) -> str:
    """Return a number with a fixed number of decimals, a minus sign and the sign of infinity."""
    text = f"{number:.{digits}f}".replace("inf", "∞")
    return text.removeprefix("-") if float(text.replace("∞", "1")) == 0 else text.replace("-", "−")


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
