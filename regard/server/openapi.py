"""The OpenAPI document, made of the table of addresses and the dataclasses it names."""

from dataclasses import MISSING, fields, is_dataclass
from inspect import getdoc
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from regard.server import schemas as told
from regard.server.arrays import MEDIA_TYPE
from regard.server.edit_json import KINDS, SIDES, TOKEN_FIELDS
from regard.server.operations import NUMBER, OPERATIONS, TEXT, Operation
from regard.server.requests import AskTrace

_BINARY = {"schema": {"type": "string", "format": "binary"}}


def document(version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    schemas: dict[str, Any] = {"Edit": _edit_schema()}
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "regard", "version": version, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": schemas},
    }


_ABOUT = (
    "Run Transformers and look into them. Arrays come as safetensors files. Long work tells how "
    "far it is if the request accepts text/event-stream: events `progress`, then `result` or "
    "`error`; closing the connection cancels it."
)


def _described(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {MEDIA_TYPE: _BINARY}
    if one.answer is not None:
        content = {"application/json": {"schema": schema_of(one.answer, schemas)}}
    if one.streams:
        content["text/event-stream"] = {"schema": TEXT}
    fault = {"application/json": {"schema": schema_of(told.Fault, schemas)}}
    made: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": [
            {"name": p.name, "in": p.where, "required": p.required, "schema": p.schema}
            for p in one.parameters
        ],
        "responses": {
            "200": {"description": one.summary, "content": content},
            "default": {"description": "A sentence that says why not", "content": fault},
        },
    }
    if one.body is bytes:
        made["requestBody"] = {"content": {"image/*": _BINARY}}
    elif one.body is not None:
        schema = schema_of(one.body, schemas)
        made["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return made


def schema_of(hint: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of a type; dataclasses are put into `schemas` and referred to."""
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in schemas:
            schemas[hint.__name__] = {}
            schemas[hint.__name__] = _object(hint, schemas)
        return {"$ref": f"#/components/schemas/{hint.__name__}"}
    if isinstance(hint, UnionType):
        return {"anyOf": [schema_of(part, schemas) for part in args]}
    if origin is list:
        return {"type": "array", "items": schema_of(args[0], schemas)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(args[1], schemas)}
    return dict(_PLAIN[hint])


_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
    Any: {},
}


def _object(kind: type, schemas: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    needed = [
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING
    ]
    properties = {one.name: schema_of(hints[one.name], schemas) for one in fields(kind)}
    if kind is AskTrace:
        properties["edits"]["items"] = {"$ref": "#/components/schemas/Edit"}
    made = {"type": "object", "description": getdoc(kind), "properties": properties}
    return {**made, "required": needed, "additionalProperties": False}


def _edit_schema() -> dict[str, Any]:
    """One kind of edit or another."""
    number = {"anyOf": [{"type": "number"}, {"const": "inf"}]}
    plain = {"value": number, "to": {"enum": ["zero", "mean"]}}
    kinds = [
        _one_kind(name, ("site", *kind.required), ("site", *kind.fields), {"site": TEXT, **plain})
        for name, kind in KINDS.items()
    ]
    token = {"side": {"enum": list(SIDES)}, "token": {"type": ["string", "integer"]}}
    return {"oneOf": [*kinds, _one_kind("token", TOKEN_FIELDS, TOKEN_FIELDS, token)]}


def _one_kind(
    name: str, required: tuple[str, ...], names: tuple[str, ...], known: dict[str, Any]
) -> dict[str, Any]:
    properties = {field: known.get(field, NUMBER) for field in names}
    return {
        "type": "object",
        "properties": {"kind": {"const": name}, **properties},
        "required": ["kind", *required],
        "additionalProperties": False,
    }
