"""Traces in one safetensors file: tensors as they are, descriptions as JSON in its header."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.attention.pattern import Exact
from regard.attention.similarity import Own
from regard.errors import FileError
from regard.text.files import replacing
from regard.trace.site import Site
from regard.trace.trace import Trace
from regard.trace.written import read, write

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
    with replacing(path) as temporary:
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
    if isinstance(site.pattern, Exact) and isinstance(site.pattern.similarity, Own):
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
