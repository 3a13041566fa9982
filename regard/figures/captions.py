"""Captions of figures in English and Korean, from captions.toml."""

import tomllib
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
