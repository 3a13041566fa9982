"""Routes of LibreTranslate, so that its clients can use the translators of this server.

A translator of one pair of languages has the pair at the end of its name, such as en-de or
opus-mt-en-de; one of many languages has them in its vocabulary. Errors are sentences.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import parse_qs

from babel import Locale
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, ValidationError, field_validator

from regard.errors import InputError, RegardError
from regard.interop.transformers_folder import find_languages
from regard.model_folder import is_transformers_folder
from regard.server.catalog import Catalog, ModelEntry
from regard.server.error_codes import (
    ERROR_CODES,
    RETRIED,
    ApiError,
    JobCanceledError,
    describe_error,
    validation_error,
)
from regard.server.jobs import Job
from regard.server.model_inputs import Text
from regard.server.routes import translate_texts
from regard.server.service import Context
from regard.server.settings import LIMITS

router = APIRouter()
_PAIR = re.compile(r"(?:.*[-_])?([a-z]{2,3})[-_]([a-z]{2,3})")
_NAMES = Locale("en").languages


class LanguageInfo(BaseModel):
    """A language, and those that texts in it can be translated to."""

    code: str
    name: str
    targets: list[str]


@router.get("/languages")
def languages(context: Context) -> list[LanguageInfo]:
    """List the languages of all translators."""
    targets: dict[str, list[str]] = {}
    for source, target in _translators(context.service.catalog):
        targets.setdefault(target, [])
        targets.setdefault(source, []).append(target)
    return [
        LanguageInfo(code=code, name=_NAMES.get(code.partition("_")[0], code), targets=found)
        for code, found in targets.items()
    ]


class LibreTranslateRequest(BaseModel):
    """Translate a text or a list of texts; other fields of LibreTranslate are ignored."""

    q: list[Text] = Field(max_length=LIMITS.texts)
    source: str
    target: str
    format: Literal["text"] = "text"

    @field_validator("q", mode="before")
    @classmethod
    def _as_list(cls, q: Any) -> Any:
        return [q] if isinstance(q, str) else q


class LibreTranslateAnswer(BaseModel):
    """The translation of a text, or those of a list of texts."""

    translatedText: str | list[str]  # noqa: N815


class LibreTranslateError(BaseModel):
    """A sentence that says why a request was refused."""

    error: str


_SCHEMA = {"schema": LibreTranslateRequest.model_json_schema()}
_BODY = {"content": {"application/json": _SCHEMA, "application/x-www-form-urlencoded": _SCHEMA}}


@router.post(
    "/translate",
    response_model=LibreTranslateAnswer,
    responses={"default": {"model": LibreTranslateError}},
    openapi_extra={"requestBody": _BODY},
)
async def translate(request: Request, context: Context) -> Response:
    """Translate a text or a list of texts, given as JSON or as a form."""
    try:
        fields = _fields_of(await request.body(), request.headers.get("content-type", ""))
        body = _validated(fields)
        entry = _find_translator(context.service.catalog, body.source, body.target)

        def work(job: Job) -> LibreTranslateAnswer:
            model = entry.model()
            if _is_multilingual(entry):
                model = model.between(body.source, body.target)
            texts = [one.text for one in translate_texts(job, model, body.q)]
            return LibreTranslateAnswer(
                translatedText=texts[0] if isinstance(fields["q"], str) else texts
            )

        return await context.compute(entry.name, work)
    except (RegardError, JobCanceledError) as error:
        info = describe_error(error)
        status = ERROR_CODES[info.code].status
        answer = json.dumps({"error": info.message})  # as ASCII, like other errors
        status = 400 if status == 422 else status
        headers = {"retry-after": "2"} if info.code in RETRIED else None
        return Response(answer, status, headers, media_type="application/json")


def _fields_of(body: bytes, content_type: str) -> dict[str, Any]:
    """Return the fields of a request; a form that repeats q has a list of texts."""
    try:
        if content_type.startswith("application/x-www-form-urlencoded"):
            form = parse_qs(body.decode(), keep_blank_values=True, errors="strict")
            return {name: one[0] if len(one) == 1 else one for name, one in form.items()}
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError("invalid_json", problem=f"{error}") from error
    if not isinstance(fields, dict):
        raise ApiError("not_an_object")
    return fields


def _validated(fields: dict[str, Any]) -> LibreTranslateRequest:
    try:
        return LibreTranslateRequest.model_validate(fields)
    except ValidationError as error:
        found = error.errors()[0]
        raise validation_error({**found, "loc": ("body", *found["loc"])}) from error


def _find_translator(catalog: Catalog, source: str, target: str) -> ModelEntry:
    """Return the first translator of a pair of languages."""
    found = _translators(catalog)
    if (source, target) in found:
        return found[source, target]
    pairs = [f"{first} to {second}" for first, second in found]
    more = ", ".join(pairs[:12]) + (", …" if len(pairs) > 12 else "")
    raise InputError(
        f"this server does not translate from {source[:40]!r} to {target[:40]!r}; it translates "
        f"from {more}."
        if pairs
        else "this server has no translator whose languages are known: start it with regard serve "
        "FOLDER, where the name of the folder ends with a pair such as en-de."
    )


def _translators(catalog: Catalog) -> dict[tuple[str, str], ModelEntry]:
    """Return the first translator of each pair of languages."""
    found: dict[tuple[str, str], ModelEntry] = {}
    for entry in catalog.entries.values():
        for pair in _pairs(entry):
            found.setdefault(pair, entry)
    return found


def _pairs(entry: ModelEntry) -> Iterator[tuple[str, str]]:
    if entry.description.task != "translation":
        return
    if _is_multilingual(entry):
        codes = list(find_languages(entry.model().tokenizer))
        yield from ((one, other) for one in codes for other in codes if one != other)
    elif (match := _PAIR.fullmatch(entry.name)) and set(match.groups()) <= set(_NAMES):
        yield match[1], match[2]


def _is_multilingual(entry: ModelEntry) -> bool:
    """Return True for a translator of many languages; only folders of transformers hold one."""
    return is_transformers_folder(entry.folder) and len(find_languages(entry.model().tokenizer)) > 1
