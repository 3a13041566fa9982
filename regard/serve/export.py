"""A trace as one page: the explorer and its data in a single file that asks for nothing outside."""

import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

import numpy as np

from regard.errors import InputError
from regard.explain.payload import Payload, payload
from regard.explain.worked import DEFAULT
from regard.serve.link import joined_script, joined_style
from regard.serve.pack import Kind, Steps, least_size, pack
from regard.text.files import write_whole
from regard.trace.trace import Trace

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
$main.startFromPage(document.getElementById("regard"));
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
    write_whole(path, as_html(trace, title=title, megabytes=megabytes, batch=batch))


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
