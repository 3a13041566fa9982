"""Worked examples: attention on small matrices from a TOML file, step by step."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention.attend import attend
from regard.attention.mask import Mask, as_mask, causal, edges, window
from regard.attention.similarity import Additive, General, Similarity, as_similarity
from regard.errors import FileError, InputError, UnknownNameError, check_choice, nearest
from regard.files import file_errors
from regard.trace.site import Site
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
EXAMPLES = Path(__file__).parents[1] / "worked"
"""Folder of the examples that come with regard, and can be used by name."""
_KEYS = (
    *("title", "words", "key_words", "x", "x_key", "w_query", "w_key", "w_value"),
    *("similarity", "general", "additive", "mask", "temperature"),
    *("n_heads", "w_output", "form", "image", "patch_size", "w_patch"),
)
_FORMS = ("exact", "efficient")
_DIGITS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
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


def list_examples() -> dict[str, list[str]]:
    """Return the titles, English and Korean, of the examples that come with regard, by name."""
    return {path.stem: read_example(path)["title"] for path in sorted(EXAMPLES.glob("*.toml"))}


def find_example(given: Path) -> Path:
    """Return the path of an example: a file, or one that comes with regard by its name."""
    if given.exists():
        return given
    shipped = EXAMPLES / f"{given}.toml"
    if not given.suffix and not shipped.exists():
        names = nearest(str(given), list_examples())
        raise UnknownNameError(
            f"{given} is neither a file nor an example that comes with regard; {names}."
        )
    return given if given.suffix else shipped


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
    if "x" not in given and "image" not in given:
        raise InputError(f"{path} has no x: give the inputs as rows of numbers, x = [[1, 0], …].")
    return given


class _Tables(list[WorkedTable]):
    """Tables in the order of computation."""

    def record(
        self,
        name: str,
        symbol: str,
        formula: str,
        values: Tensor,
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
    ) -> Tensor:
        """Append a matrix and return it."""
        table = WorkedTable(name, symbol, formula, values.tolist(), [*rows], [*columns])
        self.append(table)
        return values


def work(example: Mapping[str, Any] = DEFAULT) -> WorkedExample:
    """Compute an example; its keys are those of the TOML file (see `regard work --help`)."""
    tables = _Tables()
    x = _inputs(example, tables)
    x_key = _matrix(example, "x_key") if "x_key" in example else x
    words = _labels(example, "words", len(x))
    key_words = _labels(example, "key_words", len(x_key)) if "x_key" in example else words
    tables.record("x", "X", "P W_P" if "w_patch" in example else "", x, words)
    if "x_key" in example:
        tables.record("x_key", "X′", "", x_key, key_words)
    vectors = []
    for part, given in (("query", x), ("key", x_key), ("value", x_key)):
        symbol, formula = part[0].upper(), "X′" if given is x_key and x_key is not x else "X"
        product = _projected(example, f"w_{part}", given)
        if f"w_{part}" in example:
            weight = _matrix(example, f"w_{part}")
            tables.record(f"w_{part}", f"W_{symbol}", "", weight)
            formula = f"{formula} W_{symbol}"
        rows = words if part == "query" else key_words
        vectors.append(tables.record(part, symbol, formula, product, rows))
    check_choice("form", example.get("form", "exact"), _FORMS)
    if example.get("form") == "efficient":
        _work_efficient(tables, vectors, words)
        return WorkedExample(tables, "efficient", "everything()", 1.0)
    return _work_exact(example, tables, vectors, words, key_words)


def _inputs(example: Mapping[str, Any], tables: _Tables) -> Tensor:
    """Return x, or the patches of an image."""
    if "image" not in example:
        return _matrix(example, "x")
    image, size = _matrix(example, "image"), example.get("patch_size", 2)
    if not isinstance(size, int) or size < 1 or image.size(0) % size or image.size(1) % size:
        raise InputError(
            f"patch_size is {size!r}; give a number that divides the image of "
            f"{image.size(0)} × {image.size(1)}."
        )
    tables.record("image", "I", "", image)
    parts = image.unfold(0, size, size).unfold(1, size, size).reshape(-1, size * size)
    tables.record("patches", "P", "patches(I)", parts, _labels(example, "words", len(parts)))
    if "w_patch" in example:
        tables.record("w_patch", "W_P", "", _matrix(example, "w_patch"))
    return _projected(example, "w_patch", parts)


def _work_efficient(tables: _Tables, vectors: list[Tensor], words: list[str]) -> None:
    """Record the steps of efficient attention: Q over features, K over positions, KᵀV first."""
    query, key, value = vectors
    query = tables.record("over features", "ρ(Q)", "softmax(Q)", query.softmax(-1), words)
    key = tables.record("over positions", "σ(K)", "softmax(Kᵀ)ᵀ", key.softmax(-2), words)
    context = tables.record("global context", "G", "σ(K)ᵀ V", key.T @ value)
    tables.record("efficient output", "Y", "ρ(Q) G", query @ context, words)


def _work_exact(
    example: Mapping[str, Any],
    tables: _Tables,
    vectors: list[Tensor],
    words: list[str],
    key_words: list[str],
) -> WorkedExample:
    similarity, mask = _similarity(example), _mask(example.get("mask", "none"))
    temperature, n_heads = _temperature(example), _heads(example, vectors)
    split = [
        part.reshape(len(part), n_heads, -1).transpose(0, 1) if n_heads > 1 else part
        for part in vectors
    ]
    options = {"allowed": mask, "similarity": similarity, "temperature": temperature}
    with torch.no_grad(), watch() as trace:
        attend(*split, **options, site=_SITE)
    site = trace[_SITE]
    for head in range(n_heads):
        _record_head(example, tables, site, head, (words, key_words))
    if n_heads > 1:
        joined = site.context().transpose(0, 1).reshape(len(words), -1)
        parts = ", ".join(f"Y{_index(head)}" for head in range(n_heads))
        tables.record("joined", "Y", f"concat({parts})", joined, words)
    if "w_output" in example:
        last = torch.tensor(tables[-1].values, dtype=torch.float64)
        tables.record("w_output", "W_O", "", _matrix(example, "w_output"))
        tables.record("output", "O", "Y W_O", _projected(example, "w_output", last), words)
    return WorkedExample(tables, similarity.name, repr(mask), temperature)


def _index(head: int) -> str:
    return str(head + 1).translate(_DIGITS)


def _record_head(
    example: Mapping[str, Any],
    tables: _Tables,
    site: Site,
    head: int,
    labels: tuple[list[str], list[str]],
) -> None:
    """Record the steps of one head from its vectors to its context."""
    words, key_words = labels
    name, many = str(example.get("similarity", "scaled_dot")), bool(site.lead)
    mark, chosen = _index(head) if many else "", head if many else None
    if many:
        for part in ("query", "key", "value"):
            rows, symbol = words if part == "query" else key_words, part[0].upper()
            own = site.vectors(part, head)
            columns = f"{head * own.size(1)}:{(head + 1) * own.size(1)}"
            tables.record(part, f"{symbol}{mark}", f"{symbol}[:, {columns}]", own, rows)
    if name == "additive":
        _record_additive(example, tables, site, labels)
    formulas = {"cosine": "cos(Q, K)", "general": "Q W Kᵀ", "additive": "v · H"}
    formula = formulas.get(name, f"Q{mark} K{mark}ᵀ")
    tables.record("compared", f"E{mark}", formula, site.compared(chosen), *labels)
    if name == "scaled_dot":
        root = f"E{mark} / √{site.key.size(-1)}"
        tables.record("scores", f"S{mark}", root, site.scores(chosen), *labels)
    if example.get("mask", "none") != "none":
        formula = f"mask({tables[-1].symbol})"
        tables.record("masked", f"M{mark}", formula, site.masked(chosen), *labels)
    temperature, last = _temperature(example), tables[-1].symbol
    heat = "" if temperature == 1 else f" / {temperature:g}"
    masked = site.masked(chosen)
    if temperature > 0 and float(masked.max()) / temperature < 20:
        exponentials = torch.exp(masked / temperature)
        tables.record("exponentials", f"Z{mark}", f"exp({last}{heat})", exponentials, *labels)
    weights = site.weights(chosen)
    tables.record("weights", f"A{mark}", f"softmax({last}{heat})", weights, *labels)
    context = site.context(chosen)
    tables.record("context", f"Y{mark}", f"A{mark} V{mark}", context, words)


def _record_additive(
    example: Mapping[str, Any], tables: _Tables, site: Site, labels: tuple[list[str], list[str]]
) -> None:
    """Record what the network of additive attention computes inside, a row for each pair."""
    given, (words, key_words) = example["additive"], labels
    w_query, w_key, v = (_matrix(given, key) for key in ("w_query", "w_key", "v"))
    for name, symbol, weight in (("to_query", "W_q", w_query), ("to_key", "W_k", w_key)):
        tables.record(f"additive {name}", symbol, "", weight)
    tables.record("additive v", "v", "", v)
    asked = tables.record("asked", "B", "Q W_qᵀ", site.query @ w_query.T, words)
    found = tables.record("found", "C", "K W_kᵀ", site.key @ w_key.T, key_words)
    mixed = torch.tanh(asked[:, None] + found[None]).flatten(0, 1)
    pairs = [f"{word}, {key}" for word in words for key in key_words]
    tables.record("mixed", "H", "tanh(B + C)", mixed, pairs)


def _heads(example: Mapping[str, Any], vectors: list[Tensor]) -> int:
    count = example.get("n_heads", 1)
    widths = [part.size(1) for part in vectors]
    if not isinstance(count, int) or count < 1 or any(width % count for width in widths):
        raise InputError(
            f"n_heads is {count!r}; give a number that divides the widths "
            f"{', '.join(map(str, widths))} of queries, keys and values."
        )
    return count


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
