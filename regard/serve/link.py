"""The page's ES modules joined into one, for hosts that can load only one file.

The modules are written so that this needs no compiler: imports are named, from files beside
them, at the start of a line; exports are functions, classes and constants; nothing goes in a
circle. Each module becomes a function that gives back what it exports.
"""

import re
from functools import cache
from pathlib import Path

PAGE = Path(__file__).with_name("page")
_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) +(\w+))", re.MULTILINE)
_COMMENT = re.compile(
    r"^[ \t]*/\*\*(?:[^*]|\*(?!/))*\*/[ \t]*\n|^[ \t]*//[^\n]*\n|/\*\*(?:[^*]|\*(?!/))*\*/ ?",
    re.MULTILINE,
)


@cache
def joined_script(entry: str = "js/main.js") -> str:
    """One script that does what the module `entry` does; its exports are in `$main`."""
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
