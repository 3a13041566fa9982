"""A trace as JSON and arrays, from which the page shows and recomputes every head.

The page computes scores, masks and weights from queries and keys, so query × key tables are only
included if they do not follow from these: custom similarities, efficient forms, edited tables.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import isfinite, isinf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.analysis import flow, heads, steps
from regard.analysis.attribution import attributions
from regard.analysis.lens import lens
from regard.analysis.measurements import exact_site, form_name
from regard.analysis.readout import FoundReadout, Readout, open_readout, positions_of
from regard.analysis.steps import has_space, space
from regard.attention.mask import Everything, split_causal
from regard.attention.pattern import ExactPattern
from regard.attention.similarity import Additive, Alibi, Dot
from regard.attention.tile import Grid, Tile
from regard.data.images import as_rgb
from regard.errors import RegardError
from regard.trace.site import Site
from regard.trace.trace import IMAGE, Trace

FORMAT = 1
_LAYER = re.compile(r"\.layers\.(\d+)\.")
_MAX_PRODUCTS = 400_000_000  # a browser computes these while a reader waits; else thumbnails
_MAX_POINTS = 1024  # tokens that the page shows as points
_MAX_READ, _MAX_READ_PRODUCTS = 128, 20_000_000_000  # positions of a lens, and what it costs


def describe_site(trace: Trace, path: str) -> dict[str, Any]:
    """Describe one site: its sizes, the tokens it connects, and how its tables are computed."""
    site, layer = trace[path], _LAYER.search(path)
    asks, answers = heads.sides(trace, path)
    return {
        "path": path,
        "group": _LAYER.sub(".layers.*.", path),
        "layer": None if layer is None else int(layer[1]),
        "n_heads": site.n_heads,
        "n_query": site.n_query,
        "n_key": site.n_key,
        "d_k": site.key.size(-1),
        "d_v": site.value.size(-1),
        "asks": asks if len(trace.tokens.get(asks, ())) == site.n_query else None,
        "answers": answers if len(trace.tokens.get(answers, ())) == site.n_key else None,
        "writes": "output" if asks == "target" and "output" in trace.tokens else None,
        **describe_pattern(site),
        "mask": {"kind": mask_kind(site), "text": repr(site.allowed)},
        "rotary": steps.is_rotary(trace, path),
        "norm_first": steps.norm_comes_first(trace, path),
        "space": has_space(trace, path),
    }


def describe_pattern(site: Site) -> dict[str, Any]:
    """Describe how scores and weights follow from queries and keys."""
    pattern = site.pattern
    heats = [steps.head_temperature(site, head) for head in range(site.n_heads)]
    exact = pattern if isinstance(pattern, ExactPattern) else None
    similarity = exact and exact.similarity
    return {
        "similarity": similarity.name if similarity else form_name(pattern),
        "scale": float(exact.scale) if exact else 1.0,
        "temperature": ["inf" if isinf(heat) else heat for heat in heats],
        "slopes": list(similarity.slopes) if isinstance(similarity, Alibi) else None,
    }


def head_arrays(site: Site, head: int, *, batch: int = 0) -> dict[str, Tensor]:
    """Return one head's queries, keys, values, and tables that do not follow from them.

    compare_query and compare_key are the vectors to compare if these are not query and key;
    compare_weight weighs the sums of additive similarity.
    """
    found = {name: site.vectors(name, head, batch=batch) for name in ("query", "key", "value")}
    for name in ("scores", "weights", "context"):
        if _is_needed(site, name):
            found[name] = getattr(site, name)(head, batch=batch)
    similarity = getattr(site.pattern, "similarity", None)
    if not (isinstance(similarity, Dot) or "scores" in found or similarity is None):
        query, key = found["query"], found["key"]
        if isinstance(similarity, Additive):
            query, key = similarity.to_query(query), similarity.to_key(key)
            found["compare_weight"] = similarity.to_score.weight[0]
        else:
            query, key = similarity.as_dot(query, key)
        found |= {"compare_query": query, "compare_key": key}
    return {name: value.detach().float() for name, value in found.items()}


def _is_needed(site: Site, name: str) -> bool:
    """Return True if the page cannot compute this table."""
    pattern, changed = site.pattern, set(site.changed)
    if name == "context":
        return "context" in changed
    if not isinstance(pattern, ExactPattern):
        return name == "weights"
    if name == "scores":
        query, key = (site.vectors(name, 0, batch=0)[:1] for name in ("query", "key"))
        measure = pattern.similarity
        known = isinstance(measure, Dot | Additive)
        computable = known or measure.as_dot(query, key) is not None
        biased = measure.biased and not isinstance(measure, Alibi)  # the page knows no tables
        return bool({"compared", "scores"} & changed) or biased or not computable
    heat = pattern.temperature
    by_query = isinstance(heat, Tensor) and heat.dim() >= 2 and heat.size(-2) > 1
    return bool({"masked", "weights"} & changed) or by_query


def mask_kind(site: Site) -> str:
    """Return "all", "causal", or "bits" for a mask that only a table describes."""
    causal, rest = split_causal(site.allowed)
    return "bits" if not isinstance(rest, Everything) else "causal" if causal else "all"


def mask_bits(site: Site, head: int | None = None, *, batch: int = 0) -> tuple[np.ndarray, int]:
    """Return the mask row by row, one bit per cell, and the number of tables.

    Without a head, this is one table if all heads share it, and otherwise one for each head.
    """
    grid = Grid.whole(site.lead, site.n_query, site.n_key, torch.device("cpu"))
    allowed = site.allowed.on(grid)
    same = allowed.dim() < 3 or allowed.size(-3) == 1
    wanted = [head] if head is not None else [0] if same else range(site.n_heads)
    tables = torch.stack([Tile(grid, site.index(one, batch)).of(allowed) for one in wanted])
    return np.packbits(tables.cpu().numpy().reshape(-1)), len(tables)


def plain(value: Any) -> Any:
    """Return a model's output as JSON; None for anything that JSON cannot hold."""
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float) else None


@dataclass
class Payload:
    """Everything about a trace that the page shows."""

    about: dict[str, Any]  # JSON that refers to arrays by name
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """float32, or uint8 for masks (one bit per cell) and pixels."""
    kinds: dict[str, str] = field(default_factory=dict)
    """"vectors", "tables", "streams", "weights", "space", "exact", "flow", "readout", "masks" or
    "pixels"."""

    def add(self, name: str, value: Tensor | np.ndarray, kind: str) -> str:
        """Add an array and return its name."""
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        exact = array if array.dtype == np.uint8 else array.astype(np.float32)
        self.arrays[name], self.kinds[name] = np.ascontiguousarray(exact), kind
        return name


def payload(trace: Trace, *, title: str = "", batch: int = 0) -> Payload:
    """Collect the payload of one sequence of a trace."""
    about: dict[str, Any] = {
        "format": FORMAT,
        "title": title,
        "family": "" if trace.origin is None else trace.origin.family,
        "tokens": trace.tokens,
        "words": trace.words,
        "output": plain(trace.output),
        "start": asdict(heads.default_selection(trace, batch=batch)),
    }
    made = Payload(about)
    about["image"] = describe_image(trace, made.add, batch=batch)
    about["flow"] = _add_flow(trace, made, batch)
    about["readout"] = _add_readout(trace, made, batch)
    about["sites"] = [_describe_with_arrays(trace, path, made, batch) for path in trace]
    sites = list(trace.sites.values())
    if sum(s.n_heads * s.n_query * s.n_key * s.key.size(-1) for s in sites) > _MAX_PRODUCTS:
        for site, described in zip(sites, about["sites"], strict=True):
            pixels = heads.weights_to_bytes(heads.thumbnails(site, 32, batch=batch))
            name = made.add(f"{site.path}.thumbnails", pixels, "pixels")
            described["arrays"]["thumbnails"] = name
    return made


def _add_flow(trace: Trace, made: Payload, batch: int) -> dict[str, Any] | None:
    """Add the residual stream of a text that is not too long, station by station."""
    sides = flow.sides(trace, batch=batch)
    if not sides or sum(side.n_tokens for side in sides) > _MAX_POINTS:
        return None
    for side in sides:
        for station in side.stations:
            found = flow.station_arrays(trace, station, slice(None), batch=batch)
            for name, value in found.items():
                made.add(f"flow.{name}", value, "flow")
    names, logits = [], trace.values.get("output.logits")
    if logits is not None and logits.dim() == 3:
        found = flow.predictions(logits[batch])
        made.add("flow.predictions.probabilities", found.probabilities, "flow")
        names = [[flow.token_name(trace.origin, id) for id in row] for row in found.ids.tolist()]
    return {"sides": [asdict(side) for side in sides], "names": names}


def _add_readout(trace: Trace, made: Payload, batch: int) -> dict[str, Any] | None:
    """Add the lens, and the attribution of every word that it offers at the end."""
    try:
        if not _is_quickly_read(trace, open_readout(trace)):
            return None
        read = lens(trace, batch=batch)
        words = [
            list(dict.fromkeys([*best, answer]))
            for best, answer in zip(read.ids[-1].tolist(), read.answers.tolist(), strict=True)
        ]
        split = [attributions(trace, ids, position=i, batch=batch) for i, ids in enumerate(words)]
    except RegardError:  # no residual stream, no model, or a trace without these values
        return None
    for name in _READ_ARRAYS:
        made.add(f"readout.{name}", getattr(read, name), "readout")
    labels: list[Any] = []
    positions = []
    for i, found in enumerate(split):
        values = [[part.value for part in one.parts] for one in found]
        made.add(f"readout.parts.{i}", np.array(values), "readout")
        label = [[part.path, part.kind, part.head] for part in found[0].parts]
        labels += [] if label in labels else [label]
        numbers = {"logits": [one.logit for one in found], "biases": [one.bias for one in found]}
        positions.append({"tokens": words[i], "labels": labels.index(label), **numbers})
    plain_lens = {name: x for name, x in read.to_dict().items() if name not in _READ_ARRAYS}
    return {"lens": plain_lens, "labels": labels, "attributions": positions}


_READ_ARRAYS = ("probabilities", "entropy", "divergence", "answer_probabilities")


def _is_quickly_read(trace: Trace, readout: Readout | FoundReadout) -> bool:
    width = trace.value(readout.stations[0]).size(-1)
    n_positions = len(positions_of(trace, readout))
    products = len(readout.stations) * n_positions * readout.n_entries * width
    return n_positions <= _MAX_READ and products <= _MAX_READ_PRODUCTS


def _describe_with_arrays(trace: Trace, path: str, made: Payload, batch: int) -> dict[str, Any]:
    site, described = trace[path], describe_site(trace, path)
    if described["mask"]["kind"] == "bits":
        bits, count = mask_bits(site, batch=batch)
        described["mask"] |= {"heads": count, "array": made.add(f"{path}.allowed", bits, "masks")}
    return {
        **described,
        "measures": [asdict(one) for one in heads.measure_heads(site, batch=batch)],
        "streams": _add_streams(trace, path, made, batch),
        "projections": _add_projections(trace, path, made),
        "arrays": _add_head_arrays(site, made, batch),
        "space": _add_space(trace, path, made, batch),
        "left_out": False,
    }


def _add_head_arrays(site: Site, made: Payload, batch: int) -> dict[str, str]:
    arrays = [head_arrays(site, head, batch=batch) for head in range(site.n_heads)]
    names = {}
    for name, first in arrays[0].items():
        shared = name == "compare_weight"
        value = first if shared else torch.stack([head[name] for head in arrays])
        kind = "tables" if name in ("scores", "weights", "context") else "vectors"
        names[name] = made.add(f"{site.path}.{name}", value, kind)
    if not isinstance(site.pattern, ExactPattern) and site.n_query * site.n_key <= _MAX_POINTS**2:
        table = exact_site(site).weights(batch=batch).reshape(-1, site.n_query, site.n_key)
        names["exact"] = made.add(f"{site.path}.exact", table, "exact")
    return names


def _add_streams(trace: Trace, path: str, made: Payload, batch: int) -> dict[str, str]:
    paths = {name: f"{path}.{name}" for name in ("input", "output", "residual")}
    paths["memory"] = steps.key_input_path(trace, path)
    found = {name: (place, trace.values.get(place)) for name, place in paths.items()}
    return {
        name: made.add(place, value[batch] if value.dim() > 2 else value, "streams")
        for name, (place, value) in found.items()
        if value is not None and value.dim() >= 2
    }


def _add_space(trace: Trace, path: str, made: Payload, batch: int) -> dict[str, Any] | None:
    """Add the tokens as points, axis × token: before, after, rest, and each head's arrows."""
    if not has_space(trace, path) or trace[path].n_query > _MAX_POINTS:
        return None
    found = space(trace, path, n_axes=3, batch=batch)
    tables = torch.cat([torch.stack([found.before, found.after, found.rest]), found.arrows])
    return {"array": made.add(f"{path}.space", tables.mT, "space"), "share": found.share}


def _add_projections(trace: Trace, path: str, made: Payload) -> dict[str, Any] | None:
    module = steps.attention_module(trace, path)
    if module is None or module.to_key is None:  # keys derived from queries (Reformer)
        return None
    described: dict[str, Any] = {"n_kv_heads": module.n_kv_heads}
    for name in ("query", "key", "value", "output"):
        weights = getattr(module, f"to_{name}")
        described[name] = {
            part: None if one is None else made.add(f"{path}.to_{name}.{part}", one, "weights")
            for part, one in (("weight", weights.weight), ("bias", weights.bias))
        }
    return described


def describe_image(
    trace: Trace, add: Callable[[str, np.ndarray, str], str], *, batch: int = 0
) -> dict[str, Any] | None:
    """Describe the image of a vision model and `add` its pixels; None for a text."""
    pixels, count = _read_pixels(trace, batch), heads.count_patches(trace)
    if pixels is None:
        return None
    n_rows, n_columns = _patch_grid(trace, count)
    return {
        "n_rows": n_rows,
        "n_columns": n_columns,
        "patch_size": pixels.shape[0] // n_rows,
        "first": len(trace.tokens["source"]) - count,
        "height": pixels.shape[0],
        "width": pixels.shape[1],
        "pixels": add("image", pixels, "pixels"),
    }


def _patch_grid(trace: Trace, count: int) -> tuple[int, int]:
    row, _, column = trace.tokens["source"][-1].partition(",")  # position of the last patch
    known = row.isdigit() and column.isdigit() and (int(row) + 1) * (int(column) + 1) == count
    return (int(row) + 1, int(column) + 1) if known else (1, count)


def _read_pixels(trace: Trace, batch: int) -> np.ndarray | None:
    """Return the image as height × width × 3 bytes; None for a text."""
    patches, model = trace.values.get("encoder.embedding.patches"), trace.origin
    if IMAGE in trace.values:  # of a snapshot, which has no model
        return trace.values[IMAGE].cpu().numpy()
    if patches is None or model is None:
        return None
    size, n_channels = model.config.patch_size, model.config.n_channels
    n_rows, n_columns = _patch_grid(trace, patches.size(-2))
    parts = patches[batch].detach().float().cpu().numpy()
    parts = parts.reshape(n_rows, n_columns, n_channels, size, size).transpose(0, 3, 1, 4, 2)
    return _to_rgb(parts.reshape(n_rows * size, n_columns * size, n_channels), model.pixels)


def _to_rgb(pixels: np.ndarray, normalization: Any) -> np.ndarray:
    """Return height × width × 3 bytes, with the model's normalization undone."""
    if normalization is not None:
        pixels = pixels * np.array(normalization.deviation) + np.array(normalization.mean)
    elif np.abs(pixels).max() <= 1.001:
        pixels = pixels / 2 + 0.5
    else:
        pixels = (pixels - pixels.min()) / max(np.ptp(pixels), 1e-9)
    return as_rgb((pixels.clip(0, 1) * 255).round().astype(np.uint8))
