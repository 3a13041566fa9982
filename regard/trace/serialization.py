"""Traces in one safetensors file: tensors as they are, descriptions as JSON in its header."""

import json
from dataclasses import fields, is_dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.attention.efficient import EfficientPattern
from regard.attention.linformer import LinformerPattern
from regard.attention.longformer import LongformerPattern
from regard.attention.mask import (
    BooleanMask,
    Both,
    Causal,
    Connection,
    Edges,
    Either,
    Everything,
    Not,
    Padding,
    Window,
)
from regard.attention.pattern import ExactPattern
from regard.attention.performer import PerformerPattern
from regard.attention.reformer import ReformerPattern
from regard.attention.similarity import (
    Additive,
    Alibi,
    Cosine,
    CustomSimilarity,
    Dot,
    General,
    ScaledDot,
    Similarity,
)
from regard.attention.sliding_window import LongformerMask
from regard.errors import FileError, InputError
from regard.files import atomic_path
from regard.trace.site import Site
from regard.trace.stepwise import Steps
from regard.trace.trace import Trace

_DESCRIPTIONS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(
            Both,
            Either,
            Everything,
            Not,
            BooleanMask,
            Causal,
            Connection,
            Edges,
            Padding,
            Window,
            LongformerMask,
        ),
        *(
            ExactPattern,
            EfficientPattern,
            ReformerPattern,
            LinformerPattern,
            PerformerPattern,
            LongformerPattern,
            Steps,
        ),
    )
}
_DESCRIPTIONS |= {  # names in files that version 0.1 wrote
    "Table": BooleanMask,
    "Reach": LongformerMask,
    "Exact": ExactPattern,
    "Efficient": EfficientPattern,
    "Projected": LinformerPattern,
    "Windowed": LongformerPattern,
    "RandomFeatures": PerformerPattern,
    "Hashed": ReformerPattern,
}
_SIMILARITIES: dict[str, type[Similarity]] = {
    kind.name: kind for kind in (Dot, ScaledDot, Cosine, General, Additive, Alibi)
}


class Unwritten(Similarity):
    """A user's own similarity in a trace that was loaded: its scores are there, it is not."""

    name = CustomSimilarity.name

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        raise InputError(
            "the similarity was a function of the user's, which a trace file cannot hold: its "
            "scores and weights are there, but nothing new can be computed with it."
        )


def write(thing: Any, tensors: dict[str, Tensor], place: str) -> Any:
    """JSON for a description; its tensors go into `tensors`, named from `place` on."""
    if isinstance(thing, Tensor):
        tensors[place] = thing.detach()
        return {"tensor": place}
    if isinstance(thing, Similarity):
        return _write_similarity(thing, tensors, place)
    if is_dataclass(thing) and type(thing).__name__ in _DESCRIPTIONS:
        parts = {f.name: getattr(thing, f.name) for f in fields(thing)}
        written = {name: write(part, tensors, f"{place}.{name}") for name, part in parts.items()}
        return {"kind": type(thing).__name__, **written}
    if thing == inf:
        return {"number": "inf"}  # JSON has no infinity
    if thing is None or isinstance(thing, str | int | float):
        return thing
    if isinstance(thing, tuple):
        parts = enumerate(thing)
        return {"tuple": [write(part, tensors, f"{place}.{i}") for i, part in parts]}
    raise InputError(f"a trace file cannot hold a {type(thing).__name__} ({place}).")


def read(written: Any, tensors: dict[str, Tensor]) -> Any:
    """The description that `write` wrote."""
    if not isinstance(written, dict):
        return written
    if "tuple" in written:
        return tuple(read(part, tensors) for part in written["tuple"])
    if "tensor" in written:
        return tensors[written["tensor"]]
    if "number" in written:
        return float(written["number"])
    if "named" in written:
        return _read_similarity(written, tensors)
    kind = _DESCRIPTIONS.get(written.get("kind", ""))
    if kind is None:
        raise FileError(
            f"the trace describes a {written.get('kind')!r}, which this version of regard does "
            "not know: update regard, or trace again."
        )
    parts = {name: read(part, tensors) for name, part in written.items() if name != "kind"}
    return kind(**parts)


def _write_similarity(thing: Similarity, tensors: dict[str, Tensor], place: str) -> Any:
    state = thing.state_dict() if isinstance(thing, General | Additive) else {}
    weights = {name: write(weight, tensors, f"{place}.{name}") for name, weight in state.items()}
    sizes = [thing.n_heads] if isinstance(thing, Alibi) else []
    return {"named": thing.name, "sizes": sizes, "weights": weights}


def _read_similarity(written: dict[str, Any], tensors: dict[str, Tensor]) -> Similarity:
    if written["named"] not in _SIMILARITIES:
        return Unwritten()
    kind = _SIMILARITIES[written["named"]]
    state = {name: read(weight, tensors) for name, weight in written["weights"].items()}
    if kind is General:
        made = General(*state["weight"].shape)
    elif kind is Additive:
        hidden, d_q = state["to_query.weight"].shape
        made = Additive(d_q, state["to_key.weight"].size(1), hidden)
    else:
        return kind(*written["sizes"])
    made.load_state_dict(state)
    return made.requires_grad_(False).to(next(iter(state.values())).dtype)


FORMAT = "1"
_PARTS = ("query", "key", "value", "sums")


def save_trace(trace: Trace, path: Path) -> None:
    """Write a trace; the file appears whole or not at all."""
    tensors = {f"values.{name}": value for name, value in trace.values.items()}
    sites = {name: _write_site(site, tensors) for name, site in trace.sites.items()}
    about = {
        "sites": sites,
        "tokens": trace.tokens,
        "words": trace.words,
        "output": _plain(trace.output, tensors),
    }
    header = {"regard_trace": FORMAT, "about": json.dumps(about, ensure_ascii=False)}
    # Tensors that are views of one another must not share memory in the file.
    apart = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(apart, temporary, metadata=header)


def load_trace(path: Path) -> Trace:
    """Read a trace; its tensors are mapped from the file, not read into memory."""
    if not path.is_file():
        raise FileError(f"there is no trace {path}: give the path of a file that regard saved.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise FileError(
            f"{path} is damaged or no safetensors file ({error}): trace again."
        ) from error
    if header.get("regard_trace") != FORMAT:
        raise FileError(f"{path} is a safetensors file, but not a trace that this version reads.")
    about = json.loads(header["about"])
    sites = {name: _read_site(name, site, tensors) for name, site in about["sites"].items()}
    values = {
        name.removeprefix("values."): t for name, t in tensors.items() if name.startswith("values.")
    }
    output = about["output"]
    if output == {"tensor": "output"}:  # everything else stands in the header as it is
        output = read(output, tensors)
    return Trace(sites, values, about["tokens"], output, about.get("words", {}))


def _write_site(site: Site, tensors: dict[str, Tensor]) -> dict[str, Any]:
    place = f"sites.{site.path}"
    for name in _PARTS:
        tensors[f"{place}.{name}"] = getattr(site, name)
    changed = dict(site.changed)
    if isinstance(site.pattern, ExactPattern) and isinstance(
        site.pattern.similarity, CustomSimilarity
    ):
        every = range(site.lead[0] if len(site.lead) > 1 else 1)  # the function stays behind
        scores = [site.scores(batch=batch) for batch in every]
        changed.setdefault("scores", scores[0] if len(site.lead) < 2 else torch.stack(scores))
    for name, table in changed.items():
        tensors[f"{place}.changed.{name}"] = table
    return {
        "pattern": write(site.pattern, tensors, f"{place}.pattern"),
        "changed": sorted(changed),
    }


def _read_site(path: str, written: dict[str, Any], tensors: dict[str, Tensor]) -> Site:
    place = f"sites.{path}"
    query, key, value, sums = (tensors[f"{place}.{name}"] for name in _PARTS)
    changed = {name: tensors[f"{place}.changed.{name}"] for name in written["changed"]}
    site = Site(path, query, key, value, read(written["pattern"], tensors), changed)
    site.sums = sums.clone()  # filled in as tiles are asked for; the file stays as it is
    return site


def _plain(output: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(output, Tensor):
        return write(output, tensors, "output")
    return output if isinstance(output, str | int | float | list | dict) else None
