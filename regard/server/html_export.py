"""A trace as one page: the explorer and its data in a single file that asks for nothing outside."""

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from math import log2
from pathlib import Path
from typing import Any, Literal

import numpy as np

from regard.analysis.site_json import Payload, payload
from regard.analysis.worked_example import DEFAULT
from regard.errors import InputError
from regard.files import write_atomic
from regard.trace.trace import Trace

PAGE = Path(__file__).with_name("page")
_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) +(\w+))", re.MULTILINE)
_COMMENT = re.compile(
    r"^[ \t]*/\*\*(?:[^*]|\*(?!/))*\*/[ \t]*\n|^[ \t]*//[^\n]*\n|/\*\*(?:[^*]|\*(?!/))*\*/ ?",
    re.MULTILINE,
)


@cache
def joined_script(entry: str = "js/offline.js") -> str:
    """One script that does what the module `entry` does; its exports are in `$offline`."""
    order: dict[Path, str] = {}
    _visit(PAGE / entry, order, ())
    return "\n".join(order.values())


@cache
def joined_style() -> str:
    """All style sheets, in the order in which the page has them."""
    sheets = re.findall(r'href="(css/[^"]+)"', (PAGE / "index.html").read_text("utf-8"))
    return "\n".join((PAGE / sheet).read_text("utf-8") for sheet in sheets)


def _visit(path: Path, order: dict[Path, str], above: tuple[Path, ...]) -> None:
    """Put a module behind all that it imports."""
    if path in above:
        circle = " → ".join(one.name for one in (*above, path))
        raise AssertionError(f"modules of the page import each other in a circle: {circle}")
    if path in order:
        return
    source = path.read_text("utf-8")
    for _, place in _IMPORT.findall(source):
        _visit((path.parent / place).resolve(), order, (*above, path))
    order[path] = _as_function(path, source)


def _as_function(path: Path, source: str) -> str:
    exports = _EXPORT.findall(source)
    body = _COMMENT.sub("", source)
    body = _IMPORT.sub(lambda found: _taken(path, found[1], found[2]), body)
    body = _EXPORT.sub("", body)
    if re.search(r"^(?:import|export)\b", body, re.MULTILINE):
        raise AssertionError(f"{path.name} imports or exports in a way that cannot be joined")
    return f"const {_name(path)} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();"


def _taken(path: Path, names: str, place: str) -> str:
    parts = " ".join(names.split()).rstrip(", ").replace(" as ", ": ")
    return f"const {{ {parts} }} = {_name((path.parent / place).resolve())};\n"


def _name(path: Path) -> str:
    return "$" + "_".join(path.resolve().relative_to(PAGE / "js").with_suffix("").parts)


_ROOM = {"float32": 4 * 0.86, "float16": 2 * 0.86}
_MOST = 65504.0
"""The largest number of 16 bits."""


@dataclass(frozen=True)
class Steps:
    """Numbers as counts of steps, at most `most`; each row of an array has its own step."""

    most: int


Kind = Literal["float32", "float16"] | Steps
"""How numbers are kept, from exact to coarse."""


def pack(array: np.ndarray, kind: Kind) -> dict[str, Any]:
    """An array as the page's `unpack` reads it."""
    name = "uint8" if array.dtype == np.uint8 else "int8" if isinstance(kind, Steps) else kind
    if name == "uint8":
        data = array.tobytes()
    elif isinstance(kind, Steps):
        data = _counts(array, kind.most)
    elif kind == "float16":
        data = _by_place(array.clip(-_MOST, _MOST).astype("<f2"))
    else:
        data = _by_place(array.astype("<f4"))
    # Counts hardly ever repeat, so looking for repetitions costs time and gives nothing.
    way = zlib.Z_HUFFMAN_ONLY if isinstance(kind, Steps) else zlib.Z_DEFAULT_STRATEGY
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, way)
    deflated = packer.compress(data) + packer.flush()
    return {"dtype": name, "shape": list(array.shape), "data": b64encode(deflated).decode()}


def least_size(array: np.ndarray, kind: Kind) -> float:
    """How many bytes `pack` will need at least, or a little less."""
    if array.dtype == np.uint8:
        return 0.0
    room = log2(2 * kind.most) * 0.95 / 8 if isinstance(kind, Steps) else _ROOM[kind]
    return array.size * room * 4 / 3


def _by_place(array: np.ndarray) -> bytes:
    """All first bytes, then all second ones, …: signs and exponents are alike, so they deflate."""
    return array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T.tobytes()


def _counts(array: np.ndarray, most: int) -> bytes:
    rows = array.reshape(-1, array.shape[-1])
    step = (np.abs(rows).max(axis=1, keepdims=True) / most).astype("<f2").astype(np.float32)
    counts = np.rint(rows / np.where(step == 0, 1, step)).clip(-127, 127).astype(np.int8)
    return _by_place(step.astype("<f2")) + counts.tobytes()


MEGABYTES = 2.5
_PARTS = ("vectors", "tables", "streams", "space", "exact")
_EXACT: dict[str, Kind] = dict.fromkeys(_PARTS, "float32")
_HALF: dict[str, Kind] = dict.fromkeys(_PARTS, "float16")
# From the best to the smallest: what a plan does not mention is left out of the page.
_PLANS: tuple[dict[str, Kind], ...] = (
    {**_EXACT, "weights": "float32"},
    {**_EXACT, "weights": "float16"},
    _EXACT,
    {**_EXACT, "streams": "float16"},
    {**_HALF, "weights": "float16"},
    _HALF,
    {"vectors": "float16", "tables": "float16", "space": "float16", "exact": "float16"},
    {"vectors": "float16", "tables": "float16", "space": Steps(127)},
    {"vectors": "float16", "tables": "float16"},
    *(
        {"vectors": Steps(most), "tables": "float16", "space": Steps(127)}
        for most in (127, 112, 96, 80, 64)
    ),
)
_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}
</style>
</head>
<body>
<div id="regard"></div>
<script type="application/json" id="regard-data">{data}</script>
<script type="module">
{script}
$offline.startFromPage(document.getElementById("regard"));
</script>
</body>
</html>
"""


def write_html(
    trace: Trace, path: Path, *, title: str = "", megabytes: float = MEGABYTES, batch: int = 0
) -> None:
    """Write the explorer with this trace to one HTML file, which appears whole or not at all.

    Args:
        title: what the page calls the model.
        megabytes: the size to keep to. The page holds the most exact numbers, and as much of the
            residual streams and projection matrices, as fit; it says so where it had to round.
        batch: which sequence of the batch.
    """
    write_atomic(path, as_html(trace, title=title, megabytes=megabytes, batch=batch))


def as_html(trace: Trace, *, title: str = "", megabytes: float = MEGABYTES, batch: int = 0) -> str:
    """The page as text."""
    return around(as_data(trace, title=title, megabytes=megabytes, batch=batch), title=title)


def as_data(trace: Trace, *, title: str = "", megabytes: float = MEGABYTES, batch: int = 0) -> str:
    """What a page of this size can hold of a trace, as JSON."""
    if not megabytes > 0:
        raise InputError(f"megabytes is {megabytes}; give the size of the page, more than 0.")
    made = payload(trace, title=title, batch=batch)
    made.about["worked"] = DEFAULT
    parts = (joined_script(), joined_style(), _TEMPLATE)
    return _packed(made, megabytes * 1e6 - sum(len(part.encode()) for part in parts))


def around(data: str, *, title: str = "") -> str:
    """The page with this data in it."""
    return _TEMPLATE.format(
        title=escape(f"regard: {title}" if title else "regard"),
        style=_inside(joined_style()),
        data=data.replace("<", "\\u003c"),
        script=_inside(joined_script()),
    )


def _packed(made: Payload, room: float) -> str:
    """The payload as JSON, by the first plan that fits; by the smallest if none does."""
    text = ""
    for plan in _PLANS:
        least = sum(least_size(array, kind) for array, kind in _kept(made, plan).values())
        if least <= room or plan is _PLANS[-1]:
            text = _as_json(made, plan)
            if len(text.encode()) <= room:
                break
    return text


def _kept(made: Payload, plan: Mapping[str, Kind]) -> dict[str, tuple[np.ndarray, Kind]]:
    """The arrays that a page holds by a plan, and how."""
    kinds = {**plan, "masks": "float32", "pixels": "float32"}  # bytes stay what they are
    held = {name: array for name, array in made.arrays.items() if made.kinds[name] in kinds}
    return {name: (array, kinds[made.kinds[name]]) for name, array in held.items()}


def _as_json(made: Payload, plan: Mapping[str, Kind]) -> str:
    arrays = {name: pack(array, kind) for name, (array, kind) in _kept(made, plan).items()}
    sites = [_without_absent(site, plan) for site in made.about["sites"]]
    digits = 2 if isinstance(plan["vectors"], Steps) else 3
    about = {**made.about, "sites": sites, "digits": digits}
    return json.dumps({"about": about, "arrays": arrays}, ensure_ascii=False, separators=(",", ":"))


def _without_absent(site: dict[str, object], plan: Mapping[str, Kind]) -> dict[str, object]:
    """A site that mentions only what the page holds."""
    streams = site["streams"] if "streams" in plan else {}
    arrays = site["arrays"]
    assert isinstance(arrays, dict)
    return {
        **site,
        "arrays": {name: arrays[name] for name in arrays if name != "exact" or name in plan},
        "streams": streams,
        "left_out": streams != site["streams"],
        "projections": site["projections"] if "weights" in plan else None,
    }


def _inside(text: str) -> str:
    """Text that cannot end the element it stands in."""
    return re.sub(r"<(?=/script|/style|!--)", r"<\\", text, flags=re.IGNORECASE)
