"""Inputs of a model: the request, the text, ids or image it names, and size checks."""

import base64
import binascii
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import psutil
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, WithJsonSchema, model_validator

from regard.generation.sentences import sentences
from regard.generation.translator import translator_limits
from regard.model import Model
from regard.server.error_codes import ApiError
from regard.server.settings import LIMITS
from regard.text.tokenizer import Tokenizer
from regard.trace.edit import Edit
from regard.trace.edits import SetToken, edit_from_dict, edit_schema

Text = Annotated[str, Field(max_length=LIMITS.text_characters)]
Beam = Annotated[int, Field(ge=1, le=LIMITS.beam)]
Changes = tuple[list[Edit], list[SetToken]]
"""The changes inside a model, and the replaced tokens."""


class ApiRequest(BaseModel):
    """Base of request bodies: unknown fields and values of other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TraceRequest(ApiRequest):
    """Run a model on a text or an image under edits, and store everything it computes."""

    model: str  # a name that /api/models lists
    text: Text | None = None
    image: str | None = None
    """An image file in base64 (also as a data: URL), "example:N" for an example of the model,
    "example:MODEL/N" for one of another, or the name that /api/images returned."""
    target: Text | list[NonNegativeInt] | None = None
    """Target of the text, or token ids of the target of a part; by default the model writes it."""
    edits: list[Annotated[dict[str, Any], WithJsonSchema(edit_schema())]] = Field(
        default=[], max_length=LIMITS.edits
    )
    beam: Beam = 4
    precision: Literal["float32", "bfloat16", "int8"] = "float32"
    """Of the search for a translation; what is recorded is computed in float32."""
    part: NonNegativeInt = 0  # part of the text to trace, if it is translated in several parts

    @model_validator(mode="after")
    def _check_one_input(self) -> "TraceRequest":
        if (self.text is None) == (self.image is None):
            raise ApiError("text_or_image")
        return self

    def without_edits(self, **changes: None) -> "TraceRequest":
        """Return the same request without edits, and without the fields in `changes`."""
        return self.model_copy(update={"edits": [], **changes})

    def parsed_edits(self) -> Changes:
        """Return the changes inside the model, and the replaced tokens."""
        parsed = [edit_from_dict(edit) for edit in self.edits]
        inner = [edit for edit in parsed if isinstance(edit, Edit)]
        return inner, [edit for edit in parsed if isinstance(edit, SetToken)]

    def to_dict(self) -> dict[str, Any]:
        """Return the request as JSON, without the optional fields that are not used."""
        return self.model_dump(exclude_defaults=True) | {"beam": self.beam}


@dataclass(frozen=True)
class ModelInput:
    """Text, token ids or image that a model runs on."""

    content: str | list[int] | Image.Image
    target: str | list[int] | None = None

    def source_ids(self, model: Model) -> list[int]:
        """Return the token ids that the model reads."""
        if isinstance(self.content, Image.Image):
            raise ApiError("image_has_no_tokens")
        if not isinstance(self.content, str):
            return self.content
        tokenizer = _required(model.tokenizer)
        ids = tokenizer.encode(self.content)
        ends = model.family == "decoder" and len(ids) > 1 and ids[-1] == tokenizer.end_id
        return ids[:-1] if ends else ids  # a text to be continued has no end token


def decode_base64(text: str) -> bytes:
    """Decode an image file in base64, possibly as a data: URL."""
    data = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError("invalid_base64") from error


def read_image(data: bytes) -> Image.Image:
    """Decode an image file."""
    try:
        image = Image.open(io.BytesIO(data))
        if image.width * image.height <= LIMITS.image_pixels:
            image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ApiError("invalid_image") from error
    if image.width * image.height > LIMITS.image_pixels:
        raise ApiError(
            "image_too_large", width=image.width, height=image.height, limit=LIMITS.image_pixels
        )
    return image


def check_size(model: Model, given: ModelInput) -> None:
    """Refuse inputs that would take too much time or memory."""
    if isinstance(given.content, Image.Image):
        return
    count = len(given.source_ids(model))
    if isinstance(given.target, str) and model.target_tokenizer is not None:
        count += len(model.target_tokenizer.encode(given.target))
    elif isinstance(given.target, list):
        count += len(given.target)
    if count > LIMITS.traced_tokens:
        raise ApiError("too_many_tokens", count=count, limit=LIMITS.traced_tokens)
    config, parts = model.config, ("", "encoder_", "decoder_")
    n_layers = sum(getattr(config, f"n_{part}layers", 0) for part in parts)
    # each layer adds about 16 vectors of width d_model to a trace for each token
    width = 16 * config.d_model + getattr(config, "d_ff", 4 * config.d_model)
    needed = 4 * count * (n_layers * width + 3 * (getattr(config, "n_vocab", 0) or 0))
    free = psutil.virtual_memory().available
    if needed > LIMITS.memory_share * free:
        gigabytes = {"needed": round(needed / 1e9, 1), "free": round(free / 1e9, 1)}
        raise ApiError("out_of_memory", count=count, **gigabytes)


def count_multiplications(model: Model, given: ModelInput) -> float:
    """Estimate the cost of running the model: each weight once for each token."""
    n_weights = sum(weight.numel() for weight in model.module.parameters())
    if isinstance(given.content, Image.Image):
        return n_weights * (model.config.image_size / model.config.patch_size) ** 2
    return n_weights * 2.0 * len(given.source_ids(model))


def is_translator(model: Model) -> bool:
    """Return True for models that read a source and write a target."""
    return model.family in ("transformer", "seq2seq")


def is_divided(model: Model, text: str) -> bool:
    """Return True if a translator divides a text into parts: by sentences or by its length."""
    tokenizer, _ = model.translation_tokenizers()
    longest = translator_limits(model.extras, model.config.to_dict())["max_source"]
    return len(sentences(text)) > 1 or len(tokenizer.encode(text, literal=True)) > longest


def replace_tokens(
    model: Model, given: ModelInput, tokens: Sequence[SetToken], *, answer_ids: list[int] | None
) -> ModelInput:
    """Replace tokens of an input, and of the model's answer if the input has no target."""
    for edit in tokens:
        if is_translator(model) and edit.side == "target":
            target = target_ids(model, given.target if given.target is not None else answer_ids)
            ids = _replaced(target, edit, _required(model.target_tokenizer))
            given = replace(given, target=ids)
        else:
            ids = _replaced(given.source_ids(model), edit, _required(model.tokenizer))
            given = replace(given, content=ids)
    return given


def target_ids(model: Model, target: str | Sequence[int] | None) -> list[int]:
    """Return the ids of a target: a text with start and end, or ids with a start."""
    tokenizer = model.target_tokenizer
    if isinstance(target, str):
        return _required(tokenizer).add_start_and_end(_required(tokenizer).encode(target))
    ids, start = list(target or ()), None if tokenizer is None else tokenizer.start_id
    return ids if start is None or ids[:1] == [start] else [start, *ids]


def _replaced(ids: Sequence[int], edit: SetToken, tokenizer: Tokenizer) -> list[int]:
    position, token = edit.position, edit.token
    if position >= len(ids):
        raise ApiError("unknown_position", position=position, side=edit.side, count=len(ids))
    if isinstance(token, int):
        tokenizer.token_of(token)  # raises an error for an unknown id
        id = token
    elif (id := tokenizer.id_of(token)) is None:
        pieces = tokenizer.pieces(token, specials=False)
        if len(pieces) != 1:
            names = ", ".join(repr(piece.text) for piece in pieces[:8])
            place = {"position": position, "side": edit.side}  # for the page's list of edits
            raise ApiError(
                "not_one_token", token=repr(token), count=len(pieces), tokens=names, **place
            )
        id = pieces[0].id
    return [*ids[:position], id, *ids[position + 1 :]]


def _required(tokenizer: Tokenizer | None) -> Tokenizer:
    if tokenizer is None:
        raise ApiError("no_tokenizer")
    return tokenizer
