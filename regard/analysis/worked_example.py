"""The trace of the worked example: what a server without models has to show."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention.attend import attend
from regard.attention.mask import Mask, as_mask, causal, edges, window
from regard.attention.similarity import Additive, General, Similarity, as_similarity
from regard.errors import FileError, InputError, UnknownNameError, nearest
from regard.tap import Tapped, listen, split_path
from regard.trace.trace import Trace, watch

# Three words of width 3, and matrices that make queries, keys and values of width 4 of them.
DEFAULT: dict[str, Any] = {
    "words": ["one", "two", "three"],
    "x": [[1, 0, 1], [0, 2, 0], [1, 1, 1]],
    "w_query": [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]],
    "w_key": [[0, 1, 0, 1], [1, 0, 1, 0], [0, 0, 1, 1]],
    "w_value": [[0, 2, 0, 1], [0, 3, 1, 0], [1, 0, 3, 2]],
}
_KEYS = (
    *("words", "key_words", "x", "x_key", "w_query", "w_key", "w_value"),
    *("similarity", "general", "additive", "mask", "temperature"),
)


@dataclass(frozen=True)
class Table:
    """One matrix of the computation."""

    name: str
    """Which step: "x", "query", "scores", …"""
    symbol: str
    formula: str
    values: list[list[float]]
    rows: list[str]
    columns: list[str]


@dataclass(frozen=True)
class Worked:
    """All matrices of a worked example, in the order of computation."""

    tables: list[Table]
    similarity: str
    mask: str
    temperature: float

    def __getitem__(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)


@dataclass
class _Steps:
    """The listener that keeps every matrix that is tapped."""

    changes = False
    seen: dict[str, Tensor] = field(default_factory=dict)

    def wants(self, path: str) -> bool:
        del path
        return True

    def see(self, tapped: Tapped) -> Any:
        if isinstance(tapped.value, Tensor):
            self.seen[split_path(tapped.path)[2]] = tapped.value
        return tapped.value


def read_example(path: Path) -> dict[str, Any]:
    """The settings in a TOML file; the built-in example's where it has none."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{path} is not TOML: {error}.") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not a text file in UTF-8 ({error.reason}).") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from error
    for key in given:
        if key not in _KEYS:
            raise UnknownNameError(f"{path} has the key {key!r}; {nearest(key, _KEYS)}.")
    if "x" not in given:
        raise InputError(f"{path} has no x: give the inputs as rows of numbers, x = [[1, 0], …].")
    return given


def work(example: Mapping[str, Any] = DEFAULT) -> Worked:
    """Compute an example; keys as in the TOML file (see `regard work --help`)."""
    x = _matrix(example, "x")
    x_key = _matrix(example, "x_key") if "x_key" in example else x
    made = {
        name: _projected(example, f"w_{name}", source)
        for name, source in (("query", x), ("key", x_key), ("value", x_key))
    }
    similarity = _similarity(example)
    mask, temperature = _mask(example.get("mask", "none")), _number(example, "temperature", 1.0)
    steps = _Steps()
    with listen(steps), torch.no_grad():
        attend(
            *made.values(), allowed=mask, similarity=similarity, temperature=temperature, site="w"
        )
    labels = _labels(example, "words", len(x)), _labels(example, "key_words", len(x_key))
    if "x_key" not in example:
        labels = (labels[0], labels[0])
    tables = _tables(example, steps.seen, x, labels, temperature)
    return Worked(tables, similarity.name, repr(mask), temperature)


def _tables(
    example: Mapping[str, Any],
    seen: dict[str, Tensor],
    x: Tensor,
    labels: tuple[list[str], list[str]],
    temperature: float,
) -> list[Table]:
    asks, answers = labels
    d_k = seen["key"].size(-1)
    name = example.get("similarity", "scaled_dot")
    plain = {"dot": "Q Kᵀ", "scaled_dot": "Q Kᵀ", "cosine": "cos(Q, K)", "general": "Q W Kᵀ"}
    rows: list[tuple[str, str, str, Tensor, list[str], list[str]]] = [("x", "X", "", x, asks, [])]
    if "x_key" in example:
        rows.append(("x_key", "X′", "", _matrix(example, "x_key"), answers, []))
    source = "X′" if "x_key" in example else "X"
    for part, symbol, who in (("query", "Q", asks), ("key", "K", answers), ("value", "V", answers)):
        given, base = f"w_{part}" in example, "X" if part == "query" else source
        if given:
            weight = _matrix(example, f"w_{part}")
            rows.append((f"w_{part}", f"W_{symbol}", "", weight, [], []))
        formula = f"{base} W_{symbol}" if given else base
        rows.append((part, symbol, formula, seen[part], who, []))
    compared = plain.get(str(name), "v · tanh(W_q Q + W_k K)")
    rows.append(("compared", "E", compared, seen["compared"], asks, answers))
    if name == "scaled_dot":
        rows.append(("scores", "S", f"E / √{d_k}", seen["scores"], asks, answers))
    if example.get("mask", "none") != "none":
        symbol = "S" if name == "scaled_dot" else "E"
        rows.append(("masked", "M", f"mask({symbol})", seen["masked"], asks, answers))
    last = rows[-1][1]
    heat = "" if temperature == 1 else f" / {temperature:g}"
    rows.append(("weights", "A", f"softmax({last}{heat})", seen["weights"], asks, answers))
    rows.append(("context", "Y", "A V", seen["context"], asks, []))
    return [
        Table(name, symbol, formula, values.tolist(), list(who), list(columns))
        for name, symbol, formula, values, who, columns in rows
    ]


def _similarity(example: Mapping[str, Any]) -> Similarity:
    name = example.get("similarity", "scaled_dot")
    if name == "general":
        weight = _matrix(example, "general")
        made = General(*weight.shape).double()
        made.load_state_dict({"weight": weight})
        return made
    if name == "additive":
        given = example.get("additive", {})
        if not isinstance(given, dict):
            raise InputError("additive is a table with w_query, w_key and v.")
        w_query, w_key, v = (_matrix(given, key) for key in ("w_query", "w_key", "v"))
        made = Additive(w_query.size(1), w_key.size(1), w_query.size(0)).double()
        weights = {"to_query.weight": w_query, "to_key.weight": w_key, "to_score.weight": v}
        _load(made, weights)
        return made
    return as_similarity(name)


def _load(module: Additive, weights: dict[str, Tensor]) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(
            "additive needs w_query and w_key with as many rows as v = [[…]] has numbers."
        ) from error


_MASKS: dict[str, Callable[[Any], Mask]] = {"window": window, "edges": edges}


def _mask(given: Any) -> Mask:
    """The mask a TOML value means: "causal", {window = 1}, {edges = […]} or rows of 0 and 1."""
    if given == "none":
        return as_mask(None)
    if given == "causal":
        return causal()
    if isinstance(given, list):
        return as_mask(_matrix({"mask": given}, "mask") != 0)
    if isinstance(given, dict) and len(given) == 1 and next(iter(given)) in _MASKS:
        kind, value = next(iter(given.items()))
        return _MASKS[kind](value)
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


def _number(example: Mapping[str, Any], name: str, default: float) -> float:
    given = example.get(name, default)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError(f"{name} is {given!r}; give a number.")
    return float(given)


def _labels(example: Mapping[str, Any], name: str, count: int) -> list[str]:
    given = example.get(name)
    if given is None:
        return [str(i + 1) for i in range(count)]
    if not isinstance(given, list) or len(given) != count:
        raise InputError(f"{name} is {given!r}; give {count} words, one for each row.")
    return [str(word) for word in given]


SITE = "encoder.layers.0.self"


@torch.no_grad()
def worked_trace(example: dict[str, Any]) -> Trace:
    """What attention computes on small matrices, as a model of one head would."""
    x, *weights = (
        torch.tensor(example[name], dtype=torch.float32)
        for name in ("x", "w_query", "w_key", "w_value")
    )
    query, key, value = (x @ weight for weight in weights)
    with watch() as trace:
        attend(query[None], key[None], value[None], site=SITE)
    trace.tokens = {"source": list(example["words"])}
    trace.words = {"source": list(range(len(example["words"])))}
    return trace
