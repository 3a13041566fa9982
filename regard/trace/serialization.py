"""Traces in a safetensors file: tensors as they are, descriptions as JSON in the header."""

import json
from dataclasses import fields
from math import inf
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.attention import efficient, linformer, longformer, mask, performer, reformer, similarity
from regard.attention.longformer import LongformerMask
from regard.attention.pattern import ExactPattern, WeightsPattern
from regard.errors import FileError, InputError
from regard.files import atomic_path
from regard.trace.outputs import output_from_dict
from regard.trace.recorder import StepwiseMask
from regard.trace.site import Site
from regard.trace.trace import Trace

FORMAT = "1"
_SITE_TENSORS = ("query", "key", "value", "sums")
# Names in files, which stay when classes are renamed; case does not matter when reading.
_DESCRIPTIONS: dict[str, type] = {
    "both": mask.Both,
    "causal": mask.Causal,
    "connection": mask.Connection,
    "edges": mask.Edges,
    "either": mask.Either,
    "everything": mask.Everything,
    "not": mask.Not,
    "padding": mask.Padding,
    "reach": LongformerMask,
    "steps": StepwiseMask,
    "table": mask.BooleanMask,
    "window": mask.Window,
    "exact": ExactPattern,
    "given": WeightsPattern,
    "efficient": efficient.EfficientPattern,
    "hashed": reformer.ReformerPattern,
    "projected": linformer.LinformerPattern,
    "randomfeatures": performer.PerformerPattern,
    "windowed": longformer.LongformerPattern,
}
_NAMES = {kind: name for name, kind in _DESCRIPTIONS.items()}


class UnsavedSimilarity(similarity.Similarity):
    """Placeholder for a user's function, which a trace file cannot hold; its scores are saved."""

    name = similarity.CustomSimilarity.name

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        raise InputError(
            "the similarity was a user's function, which a trace file cannot hold: use the saved "
            "scores and weights, or trace again."
        )


def save_trace(trace: Trace, path: Path) -> None:
    """Write a trace atomically."""
    tensors = {f"values.{name}": value for name, value in trace.values.items()}
    sites = {name: _write_site(site, tensors) for name, site in trace.sites.items()}
    output = trace.output.to_dict() if hasattr(trace.output, "to_dict") else trace.output
    if isinstance(output, Tensor):
        output = _write(output, tensors, "output")
    elif not isinstance(output, str | int | float | list | dict):
        output = None
    about = {"sites": sites, "tokens": trace.tokens, "words": trace.words, "output": output}
    header = {"regard_trace": FORMAT, "about": json.dumps(about, ensure_ascii=False)}
    # Tensors that are views of one another must not share memory in the file.
    apart = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(apart, temporary, metadata=header)


def load_trace(path: Path) -> Trace:
    """Read a trace; its tensors are mapped from the file, not read into memory."""
    if not path.is_file():
        raise FileError(f"{path} does not exist: give the path of a trace that regard saved.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        what = f"{path} is damaged or not a safetensors file ({error}): trace again."
        raise FileError(what) from error
    if header.get("regard_trace") != FORMAT:
        raise FileError(f"{path} is a safetensors file, but not a trace that this version reads.")
    try:
        return _read_trace(json.loads(header["about"]), tensors)
    except FileError:
        raise
    except (*_DAMAGED, InputError) as error:  # of JSON, of our classes and of torch
        why = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise FileError(f"{path} is a damaged trace ({why}): trace again.") from error


_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError)


def _read_trace(about: dict[str, Any], tensors: dict[str, Tensor]) -> Trace:
    sites = {name: _read_site(name, site, tensors) for name, site in about["sites"].items()}
    values = {name[7:]: t for name, t in tensors.items() if name.startswith("values.")}
    output = output_from_dict(about["output"])
    if output == {"tensor": "output"}:  # any other output is plain JSON
        output = tensors["output"]
    tokens, words = about["tokens"], about.get("words", {})
    for names in (tokens, words):
        if not all(isinstance(x, list) for x in dict(names).values()):
            raise InputError("tokens and words must be lists")
    if any(not isinstance(piece, str) for side in tokens.values() for piece in side):
        raise InputError("tokens must be texts")
    if any(not isinstance(x, int | None) for side in words.values() for x in side):
        raise InputError("words must be numbers")
    return Trace(sites, values, tokens, output, words)


def _write_site(site: Site, tensors: dict[str, Tensor]) -> dict[str, Any]:
    prefix = f"sites.{site.path}"
    tensors |= {f"{prefix}.{name}": getattr(site, name) for name in _SITE_TENSORS}
    changed = dict(site.changed)
    if isinstance(getattr(site.pattern, "similarity", None), similarity.CustomSimilarity):
        changed.setdefault("scores", site.all_batches("scores"))  # the function is not saved
    tensors |= {f"{prefix}.changed.{name}": table for name, table in changed.items()}
    pattern = _write(site.pattern, tensors, f"{prefix}.pattern")
    known = {} if site.crosses is None else {"crosses": site.crosses}
    return {"pattern": pattern, "changed": sorted(changed), **known}


def _read_site(path: str, written: dict[str, Any], tensors: dict[str, Tensor]) -> Site:
    prefix = f"sites.{path}"
    query, key, value, sums = (tensors[f"{prefix}.{name}"] for name in _SITE_TENSORS)
    torch.broadcast_shapes(*(tensor.shape[:-2] for tensor in (query, key, value)))
    fits = min(query.dim(), key.dim(), value.dim()) >= 2 and key.size(-2) == value.size(-2)
    if not all(tensor.is_floating_point() for tensor in (query, key, value, sums)):
        raise InputError(f"query, key and value of {path} must be floating-point numbers")
    changed = {name: tensors[f"{prefix}.changed.{name}"] for name in written["changed"]}
    pattern = _read(written["pattern"], tensors)
    site = Site(path, query, key, value, pattern, changed) if fits else None
    if site is None or sums.shape != site.sums.shape or not _tables_fit(site):
        raise InputError(f"query, key and value of {path} do not belong together")
    site.crosses = written.get("crosses")
    site.sums = sums.clone()  # filled in later; the file must not change
    return site


def _tables_fit(site: Site) -> bool:
    """Return True if the replaced tables have the shapes that the site's own would have."""
    for name, table in site.changed.items():
        width = site.value.size(-1) if name == "context" else site.n_key
        sizes = zip(
            reversed(table.shape), (width, site.n_query, *reversed(site.lead)), strict=False
        )
        same = [n == wanted or (axis > 1 and n == 1) for axis, (n, wanted) in enumerate(sizes)]
        if table.dim() < 2 or len(same) < table.dim() or not all(same):
            return False
    return True


def _write(thing: Any, tensors: dict[str, Tensor], prefix: str) -> Any:
    """Return JSON for a description; its tensors are added to `tensors`, named from `prefix`."""
    if isinstance(thing, Tensor):
        tensors[prefix] = thing.detach()
        return {"tensor": prefix}
    if isinstance(thing, similarity.Similarity):
        learned = isinstance(thing, similarity.General | similarity.Additive)
        parts = thing.state_dict() if learned else {}
        if isinstance(thing, similarity.BiasedDot):
            parts = {"factor": torch.tensor(thing.factor, dtype=torch.float64)}
            parts |= {} if thing.table is None else {"table": thing.table}
        weights = {name: _write(one, tensors, f"{prefix}.{name}") for name, one in parts.items()}
        sizes = [thing.n_heads] if isinstance(thing, similarity.Alibi) else []
        return {"named": thing.name, "sizes": sizes, "weights": weights}
    if type(thing) in _NAMES:
        parts = {f.name: getattr(thing, f.name) for f in fields(thing)}
        written = {name: _write(one, tensors, f"{prefix}.{name}") for name, one in parts.items()}
        return {"kind": _NAMES[type(thing)], **written}
    if thing == inf:
        return {"number": "inf"}  # JSON has no infinity
    if thing is None or isinstance(thing, str | int | float):
        return thing
    if isinstance(thing, tuple):
        return {"tuple": [_write(x, tensors, f"{prefix}.{i}") for i, x in enumerate(thing)]}
    raise InputError(f"{prefix} is a {type(thing).__name__}, which a trace file cannot hold.")


def _read(written: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(written, dict):
        return written
    if "tuple" in written:
        return tuple(_read(part, tensors) for part in written["tuple"])
    if "tensor" in written:
        return tensors[written["tensor"]]
    if "number" in written:
        return float(written["number"])
    if "named" in written:
        return _read_similarity(written, tensors)
    name = written.get("kind")
    if str(name).lower() not in _DESCRIPTIONS:
        raise FileError(
            f"the trace describes a {name!r}, which this version of regard does not know: update "
            "regard, or trace again."
        )
    parts = {name: _read(part, tensors) for name, part in written.items() if name != "kind"}
    return _DESCRIPTIONS[str(name).lower()](**parts)


def _read_similarity(written: dict[str, Any], tensors: dict[str, Tensor]) -> similarity.Similarity:
    kinds = (
        *(similarity.Dot, similarity.ScaledDot, similarity.Cosine, similarity.Alibi),
        similarity.RecordedScores,
    )
    name = written["named"]
    state = {name: _read(weight, tensors) for name, weight in written["weights"].items()}
    if name == similarity.BiasedDot.name:
        return similarity.BiasedDot(float(state["factor"]), state.get("table"))
    if name == similarity.General.name:
        made = similarity.General(*state["weight"].shape)
    elif name == similarity.Additive.name:
        hidden, d_q = state["to_query.weight"].shape
        made = similarity.Additive(d_q, state["to_key.weight"].size(1), hidden)
    else:
        kind = {kind.name: kind for kind in kinds}.get(name, UnsavedSimilarity)
        return kind(*written["sizes"])
    made.load_state_dict(state)
    return made.requires_grad_(False).to(next(iter(state.values())).dtype)
