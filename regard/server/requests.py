"""What can be asked of the server: requests as dataclasses, read from JSON and checked.

The OpenAPI document is made from these classes, so it says what is checked here.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from regard.errors import InputError, UnknownNameError, nearest

LONGEST_TEXT = 200_000
MOST_TEXTS = 10_000
MOST_EDITS = 200
MOST_WRITTEN = 2_000
WIDEST_BEAM = 16
MOST_BYTES = 20 * 2**20
"""The largest body of a request."""


@dataclass(frozen=True, kw_only=True)
class AskTrace:
    """Run a model on a text or an image, changed by edits, and keep everything it computes."""

    model: str
    """A name that /api/models lists."""
    text: str | None = None
    image: str | None = None
    """A picture file in base64 (also as a data: address), "example:N" for one of the model's own,
    or the name that /api/images gave an upload."""
    target: str | list[int] | None = None
    """What a translator shall have written, as text or token ids; its own answer if absent."""
    edits: list[dict[str, Any]] = field(default_factory=list)
    beam: int = 4
    """How many translations are followed at once; the others are the answer's alternatives."""

    def __post_init__(self) -> None:
        if (self.text is None) == (self.image is None):
            raise InputError("give a text or an image, one of the two.")
        for name in ("text", "target"):
            check_length(name, getattr(self, name))
        if isinstance(self.target, list) and not all(_is_count(id) for id in self.target):
            raise InputError("a target is a text or a list of token ids, which count from 0.")
        if len(self.edits) > MOST_EDITS:
            raise InputError(f"there are {len(self.edits)} edits; send at most {MOST_EDITS}.")
        check_beam(self.beam)

    def without_edits(self) -> "AskTrace":
        """The same before any change."""
        return replace(self, edits=[])

    def as_json(self) -> dict[str, Any]:
        """What is asked for, without what is not: the same for all who ask the same."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in told.items() if value not in (None, [])}


@dataclass(frozen=True, kw_only=True)
class AskTranslation:
    """Translate texts, line by line."""

    model: str
    texts: list[str]
    beam: int = 4
    n_best: int = 1
    """Translations for each text."""

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in self.texts):
            raise InputError("texts is a list of strings, one for each text to translate.")
        if len(self.texts) > MOST_TEXTS:
            raise InputError(
                f"there are {len(self.texts):,} texts; send at most {MOST_TEXTS:,} at once."
            )
        for text in self.texts:
            check_length("text", text)
        check_beam(self.beam)


@dataclass(frozen=True, kw_only=True)
class AskGeneration:
    """Go on with a text, token by token."""

    model: str
    text: str
    max_tokens: int = 60
    temperature: float = 1.0
    """0 always takes the most probable token."""
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_length("text", self.text)
        for name in ("temperature", "top_p"):  # JSON writes 1 for 1.0
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))
        if not 1 <= self.max_tokens <= MOST_WRITTEN:
            raise InputError(f"max_tokens is {self.max_tokens}; it must be 1 to {MOST_WRITTEN:,}.")


Asked = TypeVar("Asked", AskTrace, AskTranslation, AskGeneration)


def read_ask(kind: type[Asked], body: bytes) -> Asked:
    """The request that a body holds."""
    try:
        given = json.loads(body or b"null")
    except (ValueError, RecursionError) as error:
        raise InputError(f"the request is no JSON ({error}).") from error
    if not isinstance(given, Mapping):
        raise InputError('the request must be a JSON object, such as {"model": "en-de", …}.')
    known, hints = {one.name: one for one in fields(kind)}, get_type_hints(kind)
    for name, value in given.items():
        if name not in known:
            raise UnknownNameError(f"a request has no field {name!r}; {nearest(name, known)}.")
        _check_type(name, value, hints[name])
    for name, one in known.items():
        if name not in given and one.default is MISSING and one.default_factory is MISSING:
            raise InputError(f"the request needs the field {name!r}.")
    return kind(**given)


def read_image(given: str) -> bytes:
    """The bytes of a picture that came as base64."""
    text = given.partition(",")[2] if given.startswith("data:") else given
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError("the image is not in base64: send a picture file that way.") from error


def read_count(given: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A number of the query string that counts from 0."""
    text = given.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError(f"{name} is {text!r}; it must be a whole number, counted from 0.")
    return int(text)


def read_number(given: Mapping[str, str], name: str, default: float) -> float:
    """A number of the query string."""
    text = given.get(name)
    try:
        return default if text is None else float(text)
    except ValueError as error:
        raise InputError(f"{name} is {text!r}; it must be a number.") from error


def check_length(name: str, text: Any) -> None:
    """Refuse a text that is longer than any model reads."""
    if isinstance(text, str) and len(text) > LONGEST_TEXT:
        raise InputError(f"the {name} has {len(text):,} characters; send at most {LONGEST_TEXT:,}.")


def check_beam(beam: int) -> None:
    """Refuse a beam that would keep the model from everybody else."""
    if not 1 <= beam <= WIDEST_BEAM:
        raise InputError(f"beam is {beam}; it must be 1 to {WIDEST_BEAM}.")


def _check_type(name: str, value: Any, hint: Any) -> None:
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kinds = tuple(get_origin(part) or part for part in parts)
    kinds += (int,) if float in kinds else ()
    if not isinstance(value, kinds) or isinstance(value, bool):
        allowed = " or ".join(_SPOKEN[kind] for kind in kinds if kind in _SPOKEN)
        raise InputError(f"{name} is {_brief(value)}; it must be {allowed}.")


_SPOKEN = {str: "a text", float: "a number", int: "a whole number", list: "a list"}


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
