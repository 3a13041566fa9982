"""What a model runs on: a text, token ids or a picture, other tokens put in, and what fits."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import psutil
from PIL import Image

from regard.analysis.heads import sides
from regard.errors import InputError, UnknownNameError
from regard.model import Model
from regard.server.edit_json import PutToken
from regard.text.tokenizer import Tokenizer
from regard.trace.edits import Edit
from regard.trace.trace import Trace

MOST_TOKENS = 16_384
"""The longest text that is traced."""
MOST_PIXELS = 64_000_000
_SHARE = 0.7
"""Of the memory that is free, what one trace may take."""
_STREAMS = 16
"""Vectors of width d_model that a layer leaves in a trace, for each token, while it is made."""


@dataclass(frozen=True)
class Given:
    """What a model runs on."""

    content: str | list[int] | Image.Image
    target: str | list[int] | None = None

    def source_ids(self, model: Model) -> list[int]:
        """The token ids of the text, as the model reads it."""
        if isinstance(self.content, Image.Image):
            raise InputError("a picture has no tokens that could be read or replaced.")
        if not isinstance(self.content, str):
            return self.content
        ids = _known(model.tokenizer).encode(self.content)
        ends = model.family == "decoder" and len(ids) > 1 and ids[-1] == _end(model.tokenizer)
        return ids[:-1] if ends else ids  # a text that goes on has no end


def read_picture(data: bytes) -> Image.Image:
    """The picture in the bytes of a file."""
    try:
        picture = Image.open(io.BytesIO(data))
        if picture.width * picture.height > MOST_PIXELS:
            raise InputError(
                f"the picture has {picture.width:,} × {picture.height:,} pixels; send at most "
                f"{MOST_PIXELS:,} in all."
            )
        picture.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("the image is no picture that can be read: send PNG or JPEG.") from error
    return picture


def check_size(model: Model, given: Given) -> None:
    """Refuse what would take too long or too much memory, before it does."""
    if isinstance(given.content, Image.Image):
        return
    n_tokens = len(given.source_ids(model))
    if isinstance(given.target, str) and model.target_tokenizer is not None:
        n_tokens += len(model.target_tokenizer.encode(given.target))
    if n_tokens > MOST_TOKENS:
        raise InputError(
            f"the text has {n_tokens:,} tokens; at most {MOST_TOKENS:,} are traced: shorten it."
        )
    needed, free = _bytes_needed(model.config, n_tokens), psutil.virtual_memory().available
    if needed > _SHARE * free:
        raise InputError(
            f"a trace of {n_tokens:,} tokens would take {needed / 1e9:.1f} GB of memory, and "
            f"{free / 1e9:.1f} GB are free: shorten the text."
        )


def n_multiplications(model: Model, given: Given) -> float:
    """About how much it is to run the model on an input: each weight once for each token."""
    n_weights = sum(weight.numel() for weight in model.module.parameters())
    if isinstance(given.content, Image.Image):
        side = model.config.image_size / model.config.patch_size
        return n_weights * side**2
    return n_weights * 2.0 * len(given.source_ids(model))


def _bytes_needed(config: Any, n_tokens: int) -> int:
    counts = [getattr(config, f"n_{part}layers", 0) for part in ("", "encoder_", "decoder_")]
    width = _STREAMS * config.d_model + getattr(config, "d_ff", 4 * config.d_model)
    logits = 3 * (getattr(config, "n_vocab", 0) or 0)
    return 4 * n_tokens * (sum(counts) * width + logits)


def put_tokens(
    model: Model, given: Given, tokens: Sequence[PutToken], *, written: list[int] | None
) -> Given:
    """The input with other tokens in some places.

    Args:
        written: what a translator wrote before, in which tokens of the target are replaced if no
            target was given.
    """
    pair = model.family in ("transformer", "seq2seq")
    for one in tokens:
        if pair and one.side == "target":
            target = target_ids(model, given.target if given.target is not None else written)
            put = _replaced(target, one, _known(model.target_tokenizer))
            given = replace(given, target=put)
        else:
            ids = _replaced(given.source_ids(model), one, _known(model.tokenizer))
            given = replace(given, content=ids)
    return given


def with_ends(model: Model, ids: Sequence[int]) -> list[int]:
    """A target from its start token to its end token."""
    tokenizer = model.target_tokenizer
    start, end = (None, None) if tokenizer is None else (tokenizer.start_id, tokenizer.end_id)
    front = [] if start is None or list(ids[:1]) == [start] else [start]
    back = [] if end is None or list(ids[-1:]) == [end] else [end]
    return [*front, *ids, *back]


def fitting(
    edits: Sequence[Edit], sizes: Trace | tuple[int, int], *, strict: bool = False
) -> list[Edit]:
    """The edits whose positions are there, where source and target are so long.

    Args:
        strict: refuse those that are not, in a sentence.
    """
    if isinstance(sizes, Trace):
        sizes = len(sizes.tokens["source"]), len(sizes.tokens["target"])
    lengths: dict[str, int] = {"source": sizes[0], "target": sizes[1]}
    kept = []
    for edit in edits:
        asks, answers = sides(edit.site)
        pairs = (("query", lengths[asks]), ("key", lengths[answers]))
        beyond = [(what, n) for what, n in pairs if (getattr(edit, what, None) or 0) >= n]
        if beyond and strict:
            raise UnknownNameError(
                f"{edit!r} names a {beyond[0][0]} that is not there; there are {beyond[0][1]}, "
                "counted from 0."
            )
        kept += [] if beyond else [edit]
    return kept


def _replaced(ids: Sequence[int], one: PutToken, tokenizer: Tokenizer) -> list[int]:
    if one.position >= len(ids):
        raise UnknownNameError(
            f"there is no token {one.position} in the {one.side}; it has {len(ids)}, 0 to "
            f"{len(ids) - 1}."
        )
    return [*ids[: one.position], _id_of(one.token, tokenizer), *ids[one.position + 1 :]]


def _id_of(token: str | int, tokenizer: Tokenizer) -> int:
    if isinstance(token, int):
        tokenizer.token_of(token)  # refuses ids that are not there
        return token
    id = tokenizer.id_of(token)
    if id is not None:
        return id
    parts = tokenizer.pieces(token, specials=False)
    if len(parts) != 1:
        cut = ", ".join(repr(part.text) for part in parts[:8])
        raise InputError(f"{token!r} is {len(parts)} tokens to this model ({cut}): give one.")
    return parts[0].id


def target_ids(model: Model, target: str | list[int] | None) -> list[int]:
    """A target that was given as text or ids, from its start token to its end token."""
    if isinstance(target, str):
        target = _known(model.target_tokenizer).encode(target)
    return with_ends(model, target or [])


def _known(tokenizer: Tokenizer | None) -> Tokenizer:
    if tokenizer is None:
        raise InputError("this model has no tokenizer, so it cannot read a text.")
    return tokenizer


def _end(tokenizer: Tokenizer | None) -> int | None:
    return None if tokenizer is None else tokenizer.end_id
