"""A trace as one page: the explorer and its data in a single file that asks for nothing outside."""

import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from regard.errors import InputError
from regard.explain.payload import Payload, payload
from regard.explain.worked import DEFAULT
from regard.serve.link import joined_script, joined_style
from regard.serve.pack import estimated_size, pack
from regard.text.files import write_whole
from regard.trace.trace import Trace

MEGABYTES = 2.5
_EXACT = {"vectors": "float32", "tables": "float32", "streams": "float32", "weights": "float32"}
_HALF = {"vectors": "float16", "tables": "float16", "streams": "float16"}
# From the best to the smallest: what is left out of a plan is left out of the page.
_PLANS: tuple[dict[str, str], ...] = (
    _EXACT,
    {**_EXACT, "weights": "float16"},
    {"vectors": "float32", "tables": "float32", "streams": "float32"},
    {"vectors": "float32", "tables": "float32", "streams": "float16"},
    {**_HALF, "weights": "float16"},
    _HALF,
    {"vectors": "float16", "tables": "float16"},
    {"vectors": "int8", "tables": "float16"},
)
_DIGITS = {"float32": 3, "float16": 3, "int8": 2}
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
    if not megabytes > 0:
        raise InputError(f"megabytes is {megabytes}; give the size of the page, more than 0.")
    made = payload(trace, title=title, batch=batch)
    made.about["worked"] = DEFAULT
    script, style = joined_script(), joined_style()
    room = megabytes * 1e6 - len(script.encode()) - len(style.encode()) - len(_TEMPLATE)
    data = _packed(made, room)
    return _TEMPLATE.format(
        title=escape(f"regard: {title}" if title else "regard"),
        style=_inside(style),
        data=data.replace("<", "\\u003c"),
        script=_inside(script),
    )


def _packed(made: Payload, room: float) -> str:
    """The payload as JSON, by the first plan that fits; by the smallest if none does."""
    about = len(json.dumps(made.about, ensure_ascii=False).encode())
    fitting = [plan for plan in _PLANS if about + _size(made, plan) <= room]
    plans = [*fitting, _PLANS[-1]]
    text = ""
    for plan in plans:
        text = _as_json(made, plan)
        if len(text.encode()) <= room:
            break
    return text


def _size(made: Payload, plan: Mapping[str, str]) -> float:
    kept = ((array, plan.get(made.kinds[name])) for name, array in made.arrays.items())
    return sum(
        estimated_size(array, dtype or "uint8") for array, dtype in kept if _goes(array, dtype)
    )


def _goes(array: object, dtype: str | None) -> bool:
    return dtype is not None or getattr(array, "dtype", None) == "uint8"


def _as_json(made: Payload, plan: Mapping[str, str]) -> str:
    arrays = {
        name: pack(array, plan.get(made.kinds[name], "float32"))
        for name, array in made.arrays.items()
        if _goes(array, plan.get(made.kinds[name]))
    }
    sites = [_without_absent(site, plan) for site in made.about["sites"]]
    about = {**made.about, "sites": sites, "digits": _DIGITS[plan["vectors"]]}
    return json.dumps({"about": about, "arrays": arrays}, ensure_ascii=False, separators=(",", ":"))


def _without_absent(site: dict[str, object], plan: Mapping[str, str]) -> dict[str, object]:
    """A site that mentions only what the page holds."""
    streams = site["streams"] if "streams" in plan else {}
    return {
        **site,
        "streams": streams,
        "projections": site["projections"] if "weights" in plan else None,
    }


def _inside(text: str) -> str:
    """Text that cannot end the element it stands in."""
    return re.sub(r"<(?=/script|/style|!--)", r"<\\", text, flags=re.IGNORECASE)
