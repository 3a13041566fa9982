"""Error codes of the API, with templates of their messages that the page can translate."""

import json
import re
from collections.abc import Mapping
from concurrent.futures import CancelledError
from functools import cache
from typing import Any

from pydantic import BaseModel
from starlette.requests import ClientDisconnect

import regard.errors as errors

_CODE_OF_CLASS: dict[type[Exception], str] = {
    errors.RegardError: "invalid_input",
    errors.InputError: "invalid_input",
    errors.UnknownNameError: "unknown_name",
    errors.ShapeError: "invalid_shape",
    errors.MaskError: "invalid_mask",
    errors.NotFiniteError: "not_finite",
    errors.FileError: "file_error",
    errors.MissingExtraError: "missing_extra",
}


RETRIED = ("queue_full", "busy", "stopping")
"""Codes of requests that can be repeated a moment later."""


class ErrorCode(BaseModel, frozen=True):
    """HTTP status and English message template of an error code."""

    status: int
    message: str


def _codes(status: int, **templates: str) -> dict[str, ErrorCode]:
    return {code: ErrorCode(status=status, message=text) for code, text in templates.items()}


ERROR_CODES: dict[str, ErrorCode] = {
    # The request as such.
    **_codes(
        422,
        invalid_json="the request body is not valid JSON ({problem}).",
        not_an_object="the request body must be a JSON object sent as application/json.",
        missing_field="the request needs the field {field}.",
        unknown_field="the request has no field {field}.",
        invalid_field="{field} is {value}; {problem}.",
        too_long="{field} is longer than {limit}: shorten it.",
    ),
    **_codes(
        403,
        wrong_host="this server does not answer as {host}; use {allowed}, or start it with "
        "--allow-host.",
    ),
    **_codes(
        401, wrong_token="this server needs its token: open the address that its terminal shows."
    ),
    **_codes(403, wrong_origin="requests from pages of other servers are refused."),
    **_codes(404, not_found="there is nothing at {path}."),
    **_codes(404, unknown_trace="this trace is not stored: request it again with POST /api/trace."),
    **_codes(405, method_not_allowed="{path} does not support {method}."),
    **_codes(408, body_too_slow="no data came for {limit} seconds: send the request again."),
    **_codes(410, upload_gone="this image is no longer stored: upload it again."),
    **_codes(413, body_too_large="the request is larger than {limit} bytes: send less at once."),
    **_codes(429, queue_full="too many requests are waiting for this model: try again later."),
    **_codes(
        503,
        busy="this server answers too many requests at once: try again later.",
        stopping="this server is stopping: start it again, and repeat the request.",
        too_slow="the request took longer than {limit} seconds: give the model less at once.",
    ),
    **_codes(499, canceled="the request was canceled."),
    **_codes(500, internal="an internal error occurred; the terminal of the server shows it."),
    # Models, runs and inputs.
    **_codes(
        404,
        unknown_model="there is no model {name}; {hint}.",
        unknown_run="this server has no run {name}; {hint}.",
        unknown_step="the run {name} has no snapshot of step {step}; {hint}.",
        unknown_example="{name} has no example {number}; it has {count}, counted from 0.",
    ),
    **_codes(
        422,
        no_models="this server has no model {name}: start it with regard serve FOLDER.",
        unknown_text="the run {name} has no text {text}; it has {count}, counted from 0.",
        text_or_image="give either a text or an image.",
        needs_text="{name} reads a text: give it one instead of an image.",
        needs_image="{name} reads an image: give it one instead of a text.",
        no_target="{name} does not write a text: leave out the target.",
        unknown_part="there is no part {part}; the text has {count}, counted from 0.",
        no_tokenizer="this model has no tokenizer: give token ids instead of a text.",
        image_has_no_tokens="an image has no tokens to replace.",
        invalid_base64="the image is not valid base64: send a PNG or JPEG file that way.",
        invalid_image="the image cannot be read: send a PNG or JPEG file.",
        image_too_large="the image has {width} × {height} pixels; send at most {limit} in total.",
        too_many_tokens="the text has {count} tokens; at most {limit} are traced: shorten it.",
        out_of_memory=(
            "a trace of {count} tokens would take {needed} GB of memory, and {free} GB are free: "
            "shorten the text."
        ),
    ),
    # Edits and traces.
    **_codes(
        422,
        unknown_position="there is no token {position} in the {side}; it has {count}, from 0.",
        not_one_token="{token} is {count} tokens of this model ({tokens}): give a single one.",
        unknown_head="{site} has no head {head}; it has {count}, counted from 0.",
        invalid_range="{axis} {start} to {stop} is not a range within 0 to {count}.",
        table_too_long="{site} is too long to send its {rows} × {columns} weights: request tiles.",
        comparison_too_long="{site} is too long to compare with exact attention: shorten the text.",
        not_a_translation="only translations have alternatives at a position.",
        not_a_language_model="only language models predict a next token.",
        writes_no_text="only translators and language models write a text.",
        no_image="this trace has no image.",
    ),
    **_codes(422, **dict.fromkeys(_CODE_OF_CLASS.values(), "{message}")),
}

LIBRARY_MESSAGES: dict[str, str] = {
    "edit_unmatched": "{edit} matched nothing: no value {path} was computed; {hint}.",
    "edit_place_missing": "{edit} names a {what} that does not exist.",
    "edit_position_missing": "{edit} names {what} {position}, but {site} has only {count}.",
    "mean_not_known": (
        "{site} is computed query by query, so the mean over all queries is not known yet: "
        "ablate to='zero'."
    ),
    "unknown_head": "{site} has no head {head}; it has {count}, 0 to {last}.",
    "not_in_trace": "the trace has no {what} {path}; {hint}.",
    "no_such_position": "{site} has no {what} {position}; there are {count}, 0 to {last}.",
    "no_pairwise_values": (
        "{site} uses {form} attention, which does not compute {what} of all pairs: use its weights."
    ),
    "patch_path_unknown": "the other run has no value {path}; {hint}.",
    "patch_position_missing": (
        "{edit} names position {position}, but {site} has only {count} in the other run."
    ),
    "patch_shape": (
        "{edit} gives values of shape {given}, but those to replace have shape {shape}: choose "
        "one position, or runs of the same length."
    ),
    "patch_axes": (
        "{path} has shape {given} in the other run and {shape} in this one: run both on one text."
    ),
    "empty_text": "the input has no tokens: give a text that is not empty.",
    "no_known_tokens": "there is nothing to trace: the model knows none of the text's tokens.",
    "unknown_words": "the model has no tokens for {text}: use other words.",
    "too_many_positions": (
        "the sequence has {count} tokens, but this model has learned only {last} positions: give "
        "it shorter sequences."
    ),
    "text_capacity": (
        "max_tokens is {given}, but after a prompt of {count} tokens the model has positions for "
        "{last} more: generate fewer, or shorten the prompt."
    ),
    "not_one_token": "{token} is {count} tokens ({tokens}): give a single one.",
    "no_such_prediction": (
        "there is no position {position}; the model predicts at {count}, 0 to {last}."
    ),
    "nothing_predicted": (
        "the model predicts nothing for this input, so there is no answer to measure: give a "
        "text with [MASK]."
    ),
    "no_residual_stream": (
        "regard sees the attention of {model} but not its residual stream: {problem}."
    ),
    "predicts_nothing": (
        "this model predicts neither tokens nor classes, so there is nothing to read from its "
        "residual stream."
    ),
    "recurrent_model": (
        "a recurrent model has no residual stream to read: use a model of another family."
    ),
    "trace_without_model": (
        "this trace has no model, because it was saved or watched without one: run model.trace on "
        "the text again."
    ),
    "rollout_too_long": (
        "{site} has {count} tokens; a rollout has at most {last}: shorten the text."
    ),
    "value_not_finite": (
        "{path} is {value} at {index}, the first value that is not finite: check {cause}."
    ),
}
"""Messages of the library that a reader of the page can see, with the codes they are sent with.

A test holds them against the messages in the library's code."""

ERROR_CODES |= {
    code: ErrorCode(status=422, message=text)
    for code, text in LIBRARY_MESSAGES.items()
    if code not in ERROR_CODES
}
_NUMBERS = ("count", "head", "last", "position")


class ApiError(errors.InputError):
    """An error with a code of `ERROR_CODES` and the parameters of its message."""

    def __init__(self, code: str, **params: Any) -> None:
        self.code, self.params = code, params
        super().__init__(ERROR_CODES[code].message.format_map(params))


class JobCanceledError(Exception):
    """Raised inside a job whose client no longer waits for the result."""


class ErrorInfo(BaseModel):
    """An error: its code, the parameters of its message, and the message in English."""

    code: str
    params: dict[str, Any]
    message: str


class ErrorResponse(BaseModel):
    """Body of every response that reports an error."""

    error: ErrorInfo


def describe_error(error: Exception) -> ErrorInfo:
    """Return what a client learns about an error; only the log has more on internal ones."""
    if not isinstance(error, errors.RegardError):
        canceled = isinstance(error, JobCanceledError | CancelledError | ClientDisconnect)
        error = ApiError("canceled" if canceled else "internal")
    if isinstance(error, ApiError):
        return ErrorInfo(code=error.code, params=error.params, message=str(error))
    for code, template in LIBRARY_MESSAGES.items():
        if found := re.fullmatch(_pattern(template), str(error), re.DOTALL):
            return ErrorInfo(code=code, params=found.groupdict(), message=str(error))
    code = next(_CODE_OF_CLASS[cls] for cls in type(error).__mro__ if cls in _CODE_OF_CLASS)
    return ErrorInfo(code=code, params={"message": str(error)}, message=str(error))


@cache
def _pattern(template: str) -> str:
    """Return the regular expression of a message template, with a group for each parameter."""
    text, *rest = re.split(r"\{(\w+)\}", template)
    pattern = re.escape(text)
    for name, text in zip(rest[::2], rest[1::2], strict=True):
        pattern += f"(?P<{name}>{'[0-9,]+' if name in _NUMBERS else '.+?'}){re.escape(text)}"
    return pattern


def validation_error(found: Mapping[str, Any]) -> ApiError:
    """Convert the first entry of pydantic's list of validation errors."""
    kind, context = found["type"], found.get("ctx", {})
    field = ".".join(str(part) for part in found["loc"][1:])
    if kind == "json_invalid":
        return ApiError("invalid_json", problem=context["error"])
    if (not field and kind.startswith(("model_", "dict_"))) or (kind == "missing" and not field):
        return ApiError("not_an_object")
    if isinstance(context.get("error"), ApiError):
        return context["error"]
    if kind in ("missing", "extra_forbidden"):
        return ApiError("missing_field" if kind == "missing" else "unknown_field", field=field)
    if kind in ("string_too_long", "too_long"):
        return ApiError("too_long", field=field, limit=context["max_length"])
    value = json.dumps(found["input"], ensure_ascii=False, default=repr)
    problem = found["msg"].replace("Input should be", "it must be").removeprefix("Value error, ")
    value = value if len(value) <= 60 else f"{value[:57]}…"
    limits = [context[name] for name in ("ge", "gt", "le", "lt", "expected") if name in context]
    more = {"kind": kind, "limit": limits[0] if limits else ""}  # for other languages
    return ApiError("invalid_field", field=field, value=value, problem=problem, **more)
