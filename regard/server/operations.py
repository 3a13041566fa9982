"""The table of addresses: what the server does where, what goes in and what comes out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from regard.server import schemas as told
from regard.server.arrays import DTYPES, STAGES
from regard.server.requests import AskGeneration, AskTrace, AskTranslation

NUMBER, TEXT = {"type": "integer", "minimum": 0}, {"type": "string"}


@dataclass(frozen=True)
class Parameter:
    """A part of an address, or of what follows its question mark."""

    name: str
    schema: dict[str, Any]
    required: bool = True
    where: str = "query"


@dataclass(frozen=True)
class Operation:
    """One thing the server does: where, and what goes in and comes out."""

    method: str
    path: str
    name: str
    """The handler of Api."""
    summary: str
    answer: type | None
    """None for safetensors files (and pictures)."""
    body: type | None = None
    parameters: tuple[Parameter, ...] = ()
    streams: bool = False
    """Whether it can tell how far it is, as events."""


def _spans() -> Iterator[Parameter]:
    for what in ("row", "column"):
        yield from (Parameter(f"{what}_{end}", NUMBER) for end in ("start", "stop"))
        yield Parameter(f"{what}_bins", NUMBER, required=False)


_ID = Parameter("id", TEXT, where="path")
_HEAD = (_ID, Parameter("site", TEXT), Parameter("head", NUMBER, required=False))
_PAIR = (Parameter("query", NUMBER), Parameter("key", NUMBER))
_TILE = (
    Parameter("stage", {"enum": list(STAGES)}, required=False),
    Parameter("dtype", {"enum": list(DTYPES)}, required=False),
    *_spans(),
)
_TRACE = "/api/trace/{id}"

OPERATIONS = (
    Operation("GET", "/api/models", "models", "All models", told.Models),
    Operation(
        "GET",
        "/api/examples",
        "examples",
        "What to try on a model",
        told.Examples,
        parameters=(Parameter("model", TEXT),),
    ),
    Operation(
        "GET",
        "/api/examples/{model}/{number}",
        "example",
        "A picture to try on a model",
        None,
        parameters=(
            Parameter("model", TEXT, where="path"),
            Parameter("number", NUMBER, True, "path"),
        ),
    ),
    Operation(
        "POST", "/api/images", "image", "Send a picture file as the body", told.Uploaded, bytes
    ),
    Operation(
        "POST", "/api/trace", "trace", "Trace and describe", told.TraceAbout, AskTrace, streams=True
    ),
    Operation(
        "POST",
        "/api/answer",
        "answer",
        "Trace, and give the answer only",
        told.Answered,
        AskTrace,
        streams=True,
    ),
    Operation(
        "POST",
        "/api/translate",
        "translate",
        "Translate texts",
        told.Translations,
        AskTranslation,
        streams=True,
    ),
    Operation(
        "POST",
        "/api/generate",
        "generate",
        "Go on with a text",
        told.Generated,
        AskGeneration,
        streams=True,
    ),
    Operation("GET", "/api/runs", "runs", "Training runs and their checkpoints", told.RunsAbout),
    Operation(
        "GET",
        "/api/runs/{run}/{number}",
        "snapshot",
        "What a run's model saw in one of its texts at the checkpoint of this step",
        told.TraceAbout,
        parameters=(
            Parameter("run", TEXT, where="path"),
            Parameter("number", NUMBER, where="path"),
            Parameter("text", NUMBER, required=False),
        ),
    ),
    Operation(
        "GET",
        _TRACE,
        "described",
        "Describe a trace that is kept",
        told.TraceAbout,
        parameters=(_ID,),
        streams=True,
    ),
    Operation(
        "GET",
        f"{_TRACE}/alternatives",
        "alternatives",
        "What else could stand at a position of a translation",
        told.Alternatives,
        parameters=(
            _ID,
            Parameter("position", NUMBER),
            Parameter("count", NUMBER, required=False),
        ),
        streams=True,
    ),
    Operation(
        "GET",
        f"{_TRACE}/next",
        "next",
        "What may come next after a text, at a temperature of sampling",
        told.NextTokens,
        parameters=(
            _ID,
            Parameter("temperature", {"type": "number", "minimum": 0}, required=False),
            Parameter("count", NUMBER, required=False),
        ),
    ),
    Operation(
        "GET",
        f"{_TRACE}/thumbnails",
        "thumbnails",
        "Small pictures of all heads: head × row × column for each site, 255 · √weight",
        None,
        parameters=(
            _ID,
            Parameter("size", NUMBER, required=False),
            Parameter("site", TEXT, required=False),
        ),
    ),
    Operation(
        "GET",
        f"{_TRACE}/measures",
        "measures",
        "How widely, how far and how clearly each head looks; of all sites, or of those named",
        told.Measures,
        parameters=(_ID, Parameter("site", TEXT, required=False)),
    ),
    Operation(
        "GET",
        f"{_TRACE}/vectors",
        "vectors",
        "Queries, keys and values of one head",
        None,
        parameters=_HEAD,
    ),
    Operation(
        "GET",
        f"{_TRACE}/tile",
        "tile",
        "Part of one head's table, pooled by the largest",
        None,
        parameters=(*_HEAD, *_TILE),
    ),
    Operation(
        "GET",
        f"{_TRACE}/steps",
        "steps",
        "The way to one weight",
        None,
        parameters=(*_HEAD, *_PAIR),
    ),
    Operation(
        "GET",
        f"{_TRACE}/projections",
        "projections",
        "The matrices of one head",
        None,
        parameters=_HEAD,
    ),
    Operation(
        "GET",
        f"{_TRACE}/space",
        "space",
        "Tokens as points before and after a site, and what each head adds",
        None,
        parameters=(*_HEAD[:2], Parameter("axes", {"enum": [2, 3]}, required=False)),
    ),
    Operation(
        "GET",
        f"{_TRACE}/rollout",
        "rollout",
        "What each token has of each token of the input, through all layers up to this one",
        None,
        parameters=_HEAD[:2],
    ),
    Operation(
        "GET",
        f"{_TRACE}/exact",
        "exact",
        "The weights that one head of an efficient form approximates, and how far off it is",
        None,
        parameters=_HEAD,
    ),
    Operation(
        "GET", f"{_TRACE}/pixels", "pixels", "The picture that was read", None, parameters=(_ID,)
    ),
)
