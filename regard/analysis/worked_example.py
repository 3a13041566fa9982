"""Worked examples: attention on small matrices from a TOML file, step by step."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention.attend import attend
from regard.attention.mask import Mask, as_mask, causal, edges, window
from regard.attention.similarity import Additive, General, Similarity, as_similarity
from regard.errors import FileError, InputError, UnknownNameError, nearest
from regard.files import file_errors
from regard.trace.trace import Trace
from regard.trace.watch import watch

# Three words of width 3, and matrices that project them to queries, keys and values of width 4.
DEFAULT: dict[str, Any] = {
    "words": ["dogs", "chase", "cats"],
    "x": [[1, 0, 1], [0, 2, 0], [1, 1, 1]],
    "w_query": [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]],
    "w_key": [[0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 1, 1]],
    "w_value": [[0, 2, 0, 1], [0, 3, 1, 0], [1, 0, 3, 2]],
}
_KEYS = (
    *("words", "key_words", "x", "x_key", "w_query", "w_key", "w_value"),
    *("similarity", "general", "additive", "mask", "temperature"),
)
_SITE = "encoder.layers.0.self"


@dataclass(frozen=True)
class WorkedTable:
    """One matrix of the computation."""

    name: str  # the step: "x", "query", "scores", …
    symbol: str
    formula: str
    values: list[list[float]]
    rows: list[str]
    columns: list[str]


@dataclass(frozen=True)
class WorkedExample:
    """All matrices of a worked example, in the order of computation."""

    tables: list[WorkedTable]
    similarity: str
    mask: str
    temperature: float

    def __getitem__(self, name: str) -> WorkedTable:
        return next(table for table in self.tables if table.name == name)


def read_example(path: Path) -> dict[str, Any]:
    """Read the settings of an example from a TOML file."""
    try:
        with file_errors(path), path.open("rb") as stream:
            given = tomllib.load(stream)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path} is not TOML, or not a text file in UTF-8: {error}.") from error
    for key in given:
        if key not in _KEYS:
            raise UnknownNameError(f"{path} has the key {key!r}; {nearest(key, _KEYS)}.")
    if "x" not in given:
        raise InputError(f"{path} has no x: give the inputs as rows of numbers, x = [[1, 0], …].")
    return given


def work(example: Mapping[str, Any] = DEFAULT) -> WorkedExample:
    """Compute an example; its keys are those of the TOML file (see `regard work --help`)."""
    x = _matrix(example, "x")
    x_key = _matrix(example, "x_key") if "x_key" in example else x
    inputs = {"w_query": x, "w_key": x_key, "w_value": x_key}
    query, key, value = (_projected(example, *one) for one in inputs.items())
    similarity, mask = _similarity(example), _mask(example.get("mask", "none"))
    temperature = _temperature(example)
    options = {"allowed": mask, "similarity": similarity, "temperature": temperature}
    with torch.no_grad(), watch() as trace:
        attend(query, key, value, **options, site=_SITE)
    words = _labels(example, "words", len(x))
    key_words = _labels(example, "key_words", len(x_key)) if "x_key" in example else words
    tables = _tables(example, trace, words, key_words)
    return WorkedExample(tables, similarity.name, repr(mask), temperature)


def _tables(
    example: Mapping[str, Any], trace: Trace, words: list[str], key_words: list[str]
) -> list[WorkedTable]:
    site, name = trace[_SITE], str(example.get("similarity", "scaled_dot"))
    tables: list[WorkedTable] = []

    def add(
        name: str, symbol: str, formula: str, values: Tensor, rows: list[str], columns: list[str]
    ) -> None:
        tables.append(WorkedTable(name, symbol, formula, values.tolist(), [*rows], [*columns]))

    add("x", "X", "", _matrix(example, "x"), words, [])
    if "x_key" in example:
        add("x_key", "X′", "", _matrix(example, "x_key"), key_words, [])
    for part, symbol in (("query", "Q"), ("key", "K"), ("value", "V")):
        rows = words if part == "query" else key_words
        formula = "X′" if "x_key" in example and part != "query" else "X"
        if f"w_{part}" in example:
            add(f"w_{part}", f"W_{symbol}", "", _matrix(example, f"w_{part}"), [], [])
            formula = f"{formula} W_{symbol}"
        add(part, symbol, formula, getattr(site, part), rows, [])
    formulas = {"cosine": "cos(Q, K)", "general": "Q W Kᵀ", "additive": "v · tanh(W_q Q + W_k K)"}
    add("compared", "E", formulas.get(name, "Q Kᵀ"), site.compared(), words, key_words)
    if name == "scaled_dot":
        add("scores", "S", f"E / √{site.key.size(-1)}", site.scores(), words, key_words)
    if example.get("mask", "none") != "none":
        add("masked", "M", f"mask({tables[-1].symbol})", site.masked(), words, key_words)
    temperature = _temperature(example)
    heat = "" if temperature == 1 else f" / {temperature:g}"
    formula = f"softmax({tables[-1].symbol}{heat})"
    add("weights", "A", formula, site.weights(), words, key_words)
    add("context", "Y", "A V", site.context(), words, [])
    return tables


def _similarity(example: Mapping[str, Any]) -> Similarity:
    name = example.get("similarity", "scaled_dot")
    if name == "general":
        weight = _matrix(example, "general")
        made = General(*weight.shape).double()
        made.load_state_dict({"weight": weight})
        return made
    if name != "additive":
        return as_similarity(name)
    given = example.get("additive", {})
    if not isinstance(given, dict):
        raise InputError("additive is a table with w_query, w_key and v.")
    w_query, w_key, v = (_matrix(given, key) for key in ("w_query", "w_key", "v"))
    if not len(w_query) == len(w_key) == v.size(1) or len(v) != 1:
        raise InputError(
            "additive needs w_query and w_key with as many rows as v = [[…]] has numbers."
        )
    made = Additive(w_query.size(1), w_key.size(1), w_query.size(0)).double()
    weights = {"to_query.weight": w_query, "to_key.weight": w_key, "to_score.weight": v}
    made.load_state_dict(weights)
    return made


def _mask(given: Any) -> Mask:
    match given:
        case "none":
            return as_mask(None)
        case "causal":
            return causal()
        case list():
            return as_mask(_matrix({"mask": given}, "mask") != 0)
        case {"window": size, **rest} if not rest:
            return window(size)
        case {"edges": pairs, **rest} if not rest:
            return edges(pairs)
    raise InputError(
        f"mask is {given!r}; it can be 'none', 'causal', {{window = 1}}, {{edges = [[0, 1], …]}} "
        "or rows of 0 and 1."
    )


def _projected(example: Mapping[str, Any], name: str, x: Tensor) -> Tensor:
    if name not in example:
        return x
    weight = _matrix(example, name)
    if weight.size(0) != x.size(1):
        raise InputError(
            f"{name} has {weight.size(0)} rows, but the inputs are {x.size(1)} wide: a matrix that "
            f"multiplies them needs {x.size(1)} rows."
        )
    return x @ weight


def _matrix(example: Mapping[str, Any], name: str) -> Tensor:
    given = example.get(name)
    try:
        matrix = torch.tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        matrix = torch.empty(0)
    if matrix.dim() != 2 or not matrix.numel() or not matrix.isfinite().all():
        raise InputError(f"{name} is {given!r}; give rows of numbers, all of one length.")
    return matrix


def _temperature(example: Mapping[str, Any]) -> float:
    given = example.get("temperature", 1.0)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError(f"temperature is {given!r}; give a number.")
    return float(given)


def _labels(example: Mapping[str, Any], name: str, count: int) -> list[str]:
    given = example.get(name, [*range(1, count + 1)])
    if not isinstance(given, list) or len(given) != count:
        raise InputError(f"{name} is {given!r}; give {count} words, one for each row.")
    return [str(word) for word in given]


@torch.no_grad()
def worked_trace(example: dict[str, Any]) -> Trace:
    """Trace an example as a model with one head would compute it."""
    x, *weights = (
        _matrix(example, name).float()[None] for name in ("x", "w_query", "w_key", "w_value")
    )
    with watch() as trace:
        attend(*(x @ weight for weight in weights), site=_SITE)
    trace.tokens = {"source": list(example["words"])}
    trace.words = {"source": list(range(len(example["words"])))}
    return trace
