"""Export of a trace: the explorer and its data as one HTML file, and as a notebook widget."""

import json
import re
import sys
import zlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.util import find_spec
from math import log2
from pathlib import Path
from typing import Any, Literal

import numpy as np

from regard.analysis.site_json import Payload, payload
from regard.analysis.worked_example import DEFAULT
from regard.errors import InputError
from regard.files import write_atomic
from regard.trace.edits import edit_schema
from regard.trace.trace import Trace

PAGE = Path(__file__).with_name("page")
_TEMPLATE = (PAGE / "offline.html").read_text("utf-8")
_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) +(\w+))", re.MULTILINE)
_COMMENT = re.compile(
    r"^[ \t]*/\*\*(?:[^*]|\*(?!/))*\*/[ \t]*\n|^[ \t]*//[^\n]*\n|/\*\*(?:[^*]|\*(?!/))*\*/ ?",
    re.MULTILINE,
)


@cache
def joined_script(entry: str = "js/offline.js") -> str:
    """Join a module and everything it imports into one script; its exports are in `$offline`."""
    scripts: dict[Path, str] = {}
    _add_module(PAGE / entry, scripts, ())
    return "\n".join(scripts.values())


@cache
def joined_style() -> str:
    """Join all style sheets in the order of the page."""
    sheets = re.findall(r'href="(css/[^"]+)"', (PAGE / "index.html").read_text("utf-8"))
    return "\n".join((PAGE / sheet).read_text("utf-8") for sheet in sheets)


@cache
def _packed_script() -> str:
    """Return the script of an HTML file, compressed: its template unpacks it."""
    return _deflated(_script().encode())


def _script() -> str:
    return f'{joined_script()}\n$offline.startFromPage(document.getElementById("regard"));\n'


@cache
def _policy() -> str:
    """Return the content security policy of an HTML file: its own scripts, style and images."""
    unpacker = _TEMPLATE.partition('<script type="module">')[2].partition("</script>")[0]
    scripts = [unpacker.replace("{script}", _packed_script()), _script()]
    style = f"\n{_escape_end(joined_style())}\n"
    hashes = [
        f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
        for text in (*scripts, style)
    ]
    return (
        f"default-src 'none'; script-src {hashes[0]} {hashes[1]}; style-src {hashes[2]}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _deflated(data: bytes, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> str:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9, strategy)
    return b64encode(packer.compress(data) + packer.flush()).decode()


def _add_module(path: Path, scripts: dict[Path, str], importers: tuple[Path, ...]) -> None:
    """Add a module after everything it imports."""
    if path in importers:
        cycle = " → ".join(one.name for one in (*importers, path))
        raise AssertionError(f"modules of the page import each other in a cycle: {cycle}")
    if path in scripts:
        return
    source = path.read_text("utf-8")
    for _, place in _IMPORT.findall(source):
        _add_module((path.parent / place).resolve(), scripts, (*importers, path))

    def destructure(found: re.Match[str]) -> str:
        names = " ".join(found[1].split()).rstrip(", ").replace(" as ", ": ")
        return f"const {{ {names} }} = {_variable((path.parent / found[2]).resolve())};\n"

    body = _EXPORT.sub("", _IMPORT.sub(destructure, _COMMENT.sub("", source)))
    if re.search(r"^(?:import|export)\b", body, re.MULTILINE):
        raise AssertionError(f"{path.name} imports or exports in a way that cannot be joined")
    exports = ", ".join(_EXPORT.findall(source))
    scripts[path] = f"const {_variable(path)} = (() => {{\n{body}return {{ {exports} }};\n}})();"


def _variable(path: Path) -> str:
    return "$" + "_".join(path.resolve().relative_to(PAGE / "js").with_suffix("").parts)


@dataclass(frozen=True)
class Quantized:
    """Encoding as integers up to `most`, with one step size for each row of an array."""

    most: int


ArrayEncoding = Literal["float32", "float16"] | Quantized


def pack(array: np.ndarray, encoding: ArrayEncoding) -> dict[str, Any]:
    """Encode an array for the page's `unpack`; bytes stay as they are."""
    # Quantized numbers hardly ever repeat, so searching for repetitions only costs time.
    strategy = zlib.Z_HUFFMAN_ONLY if isinstance(encoding, Quantized) else zlib.Z_DEFAULT_STRATEGY
    name = "int8" if isinstance(encoding, Quantized) else encoding
    if array.dtype == np.uint8:
        name, data = "uint8", array.tobytes()
    elif isinstance(encoding, Quantized):
        data = _quantize(array, encoding.most)
    elif encoding == "float16":
        data = _byte_planes(array.clip(-65504, 65504).astype("<f2"))
    else:
        data = _byte_planes(array.astype("<f4"))
    return {"dtype": name, "shape": list(array.shape), "data": _deflated(data, strategy)}


def estimate_size(array: np.ndarray, encoding: ArrayEncoding) -> float:
    """Estimate the number of bytes that `pack` needs, rather too small than too large."""
    if array.dtype == np.uint8:
        return 0.0
    if isinstance(encoding, Quantized):
        return array.size * log2(2 * encoding.most) * 0.95 / 8 * 4 / 3
    n_bytes = {"float32": 4, "float16": 2}[encoding]
    return array.size * n_bytes * 0.86 * 4 / 3  # what compression leaves, in base64


def _byte_planes(array: np.ndarray) -> bytes:
    """Return all first bytes, then all second ones, …: similar bytes compress better."""
    return array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T.tobytes()


def _quantize(array: np.ndarray, most: int) -> bytes:
    rows = array.reshape(-1, array.shape[-1])
    step = (np.abs(rows).max(axis=1, keepdims=True) / most).astype("<f2").astype(np.float32)
    counts = np.rint(rows / np.where(step == 0, 1, step)).clip(-127, 127).astype(np.int8)
    return _byte_planes(step.astype("<f2")) + counts.tobytes()


_AIMED = 2.5  # megabytes of a page without a limit
_PARTS = ("vectors", "tables", "streams", "space", "exact", "flow", "readout")
_EXACT: dict[str, ArrayEncoding] = dict.fromkeys(_PARTS, "float32")
_HALF: dict[str, ArrayEncoding] = dict.fromkeys(_PARTS, "float16")
# From the most exact to the smallest; the page leaves out what a plan does not mention.
_PLANS: tuple[dict[str, ArrayEncoding], ...] = (
    {**_EXACT, "weights": "float32"},
    {**_EXACT, "weights": "float16"},
    _EXACT,
    {**_EXACT, "streams": "float16"},
    {**_HALF, "weights": "float16"},
    _HALF,
    {name: "float16" for name in _PARTS if name != "streams"},
    {"vectors": "float16", "tables": "float16", "space": Quantized(127)},
    {"vectors": "float16", "tables": "float16"},
)
# Weights that are computed from these can be off by 0.05, so the page shows one digit.
_ROUNDED: tuple[dict[str, ArrayEncoding], ...] = tuple(
    {"vectors": Quantized(most), "tables": "float16", "space": Quantized(127)}
    for most in (127, 112, 96, 80, 64)
)


def write_html(
    trace: Trace, path: Path, *, title: str = "", megabytes: float | None = None, batch: int = 0
) -> None:
    """Write the explorer with this trace to one HTML file, atomically.

    Args:
        title: name of the model on the page.
        megabytes: size limit, for which numbers are rounded if necessary; by default, the most
            exact page of up to 2.5 megabytes, or a larger one that has all numbers as float16.
        batch: sequence of the batch to show.
    """
    write_atomic(path, as_html(trace, title=title, megabytes=megabytes, batch=batch))


def as_html(
    trace: Trace,
    *,
    title: str = "",
    megabytes: float | None = None,
    batch: int = 0,
    state: str = "",
) -> str:
    """Return the page as text; it opens with a state that an address of the page would have."""
    found = as_json(trace, title=title, megabytes=megabytes, batch=batch, state=state)
    return _page(found, title)


def as_json(
    trace: Trace,
    *,
    title: str = "",
    megabytes: float | None = None,
    batch: int = 0,
    state: str = "",
) -> str:
    """Return the data of a page that keeps within a size, as JSON."""
    if megabytes is not None and not megabytes > 0:
        raise InputError(f"megabytes is {megabytes}; it must be larger than 0.")
    found = payload(trace, title=title, batch=batch)
    found.about |= {"worked": DEFAULT, "edit_schema": edit_schema(), "state": state}
    page = _packed_script() + joined_style() + _TEMPLATE + _policy()
    limit = (megabytes or _AIMED) * 1e6 - len(page.encode())
    plans, text = _PLANS if megabytes is None else (*_PLANS, *_ROUNDED), ""
    for plan in plans:
        estimate = sum(estimate_size(*one) for one in _encodings(found, plan).values())
        if estimate <= limit or plan is plans[-1]:
            text = _with_plan(found, plan)
            if len(text.encode()) <= limit:
                break
    return text


def _page(data: str, title: str = "") -> str:
    return _TEMPLATE.format(
        policy=_policy(),
        title=escape(f"regard: {title}" if title else "regard"),
        style=_escape_end(joined_style()),
        data=data.replace("<", "\\u003c"),
        script=_packed_script(),
    )


def _escape_end(text: str) -> str:
    """Escape what would end the element that contains the text."""
    return re.sub(r"<(?=/script|/style|!--)", r"<\\", text, flags=re.IGNORECASE)


def _encodings(
    found: Payload, plan: Mapping[str, ArrayEncoding]
) -> dict[str, tuple[np.ndarray, ArrayEncoding]]:
    """Return the arrays that the page has by a plan, with their encodings."""
    encodings = {**plan, "masks": "float32", "pixels": "float32"}  # these are bytes
    return {
        name: (array, encodings[found.kinds[name]])
        for name, array in found.arrays.items()
        if found.kinds[name] in encodings
    }


def _with_plan(found: Payload, plan: Mapping[str, ArrayEncoding]) -> str:
    arrays = {name: pack(*one) for name, one in _encodings(found, plan).items()}
    digits = 1 if isinstance(plan["vectors"], Quantized) else 3
    sites = [
        {
            **site,
            "arrays": {n: at for n, at in site["arrays"].items() if n != "exact" or n in plan},
            "streams": site["streams"] if "streams" in plan else {},
            "left_out": bool(site["streams"]) and "streams" not in plan,
            "projections": site["projections"] if "weights" in plan else None,
        }
        for site in found.about["sites"]
    ]
    shown = {name: found.about[name] if name in plan else None for name in ("flow", "readout")}
    about = {**found.about, "sites": sites, "digits": digits, **shown}
    return json.dumps({"about": about, "arrays": arrays}, ensure_ascii=False, separators=(",", ":"))


def mimebundle(trace: Trace) -> dict[str, Any]:
    """Return the representations of a trace in a notebook, by media type.

    With anywidget installed, a notebook shows a widget whose `state` Python can read and set;
    otherwise the page of `Trace.html` in a frame.
    """
    plain = {"text/plain": repr(trace)}
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if not trace.sites or (shell and not hasattr(shell, "kernel")):  # a terminal shows text only
        return plain
    data = as_json(trace)
    style = "width: 100%; height: 760px; border: 0"
    frame = f'<iframe srcdoc="{escape(_page(data))}" title="regard" style="{style}"></iframe>'
    bundle = {**plain, "text/html": frame}
    if find_spec("anywidget") is not None:
        shown = widget_class()(data=data)._repr_mimebundle_()
        shown = shown[0] if isinstance(shown, tuple) else shown
        bundle |= {kind: value for kind, value in shown.items() if not kind.startswith("text/")}
    return bundle


@cache
def widget_class() -> Any:
    """Return the class of notebook widgets, whose `state` is what a URL would hold."""
    import anywidget
    from traitlets import Unicode

    class Explorer(anywidget.AnyWidget):
        """A trace to inspect and edit in a notebook."""

        _esm = f"{joined_script('js/widget.js')}\nexport default {{ render: $widget.render }};\n"
        _css = joined_style()
        data = Unicode().tag(sync=True)
        state = Unicode().tag(sync=True)

    return Explorer
