"""The shape of the code: what may import what, and how large a file may grow."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "regard"

# Bottom first: a part imports itself and the rows before it; parts of one row are strangers.
ROWS = [
    ["errors"],
    ["tap"],
    ["text", "attention"],
    ["layers", "data"],
    ["models"],
    ["training", "decoding"],
    ["bundle"],
    ["interop", "trace"],
    ["engine"],
    ["model"],
    ["explain"],
    ["figures"],
    ["serve", "bench", "doctor"],
    ["cli"],
    ["__main__"],
]
ROW = {part: number for number, row in enumerate(ROWS) for part in row}
# Models see ids, not strings; figures see data, not models; batches know masks, not kernels.
APART = [("layers", "text"), ("models", "text"), ("figures", "models"), ("serve", "models")]
HEAVY = ["typer", "starlette", "uvicorn", "matplotlib", "transformers", "ctranslate2", "ray"]
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "common", "base", "manager"}


def imported(source: str) -> list[str]:
    """Every module that the source imports, also inside functions; relative ones as '.'."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append("." if node.level else node.module)
    return names


def import_faults(path: str, source: str) -> list[str]:
    """What is wrong with the imports of the file at `path` (relative to the package)."""
    part = path.partition("/")[0].removesuffix(".py")
    if part == "__init__":
        return []
    if part not in ROW:
        return [f"{path}: {part} has no place in the list of rows"]
    faults = (import_fault(part, name) for name in imported(source))
    return [f"{path}: {fault}" for fault in faults if fault]


def import_fault(part: str, name: str) -> str | None:
    top, _, rest = name.partition(".")
    other = rest.partition(".")[0]
    fault = None
    if name == ".":
        fault = "a relative import"
    elif part == "text" and top == "torch":
        fault = "text never imports torch"
    elif top != "regard" or other == part:
        pass
    elif other == "" and part not in ("cli", "__main__"):
        fault = f"{part} imports from the package's root"
    elif other and ((part, other) in APART or ROW.get(other, len(ROWS)) >= ROW[part]):
        fault = f"{part} must not import {other}"
    elif (part, other) == ("data", "attention") and rest != "attention.mask":
        fault = "of attention, data knows only the mask"
    return fault


def file_faults(path: str, source: str) -> list[str]:
    """What is wrong with the size, the name or the kind of the file at `path`."""
    faults = []
    if (lines := len(source.splitlines())) > 400:
        faults.append(f"{path}: {lines} lines, more than 400")
    if NAMES_THAT_SAY_NOTHING & set(path.removesuffix(".py").split("/")):
        faults.append(f"{path}: a name that says nothing")
    if path.endswith("/__init__.py"):
        module = ast.parse(source)
        if len(module.body) != 1 or ast.get_docstring(module) is None:
            faults.append(f"{path}: more or less than one docstring")
    return faults


def loads(modules: list[str], statement: str) -> list[str]:
    """Those of `modules` that a fresh interpreter has loaded after the statement."""
    program = f"{statement}; import sys; print(*[m for m in {modules} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def unlisted_or_absent(module: object) -> set[str]:
    """Public names of the module that `__all__` lacks, and names in `__all__` it cannot give."""
    listed = set(getattr(module, "__all__", ()))
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    return (public - listed) | {name for name in listed if not hasattr(module, name)}


SOURCES = {
    str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")
}


def test_the_package_is_there_to_be_checked():
    parts = {path.partition("/")[0].removesuffix(".py") for path in SOURCES}
    assert {"errors", "tap", "text", "attention", "cli"} <= parts


@pytest.mark.parametrize("path", sorted(SOURCES))
def test_imports_go_downwards_only(path):
    assert import_faults(path, SOURCES[path]) == []


@pytest.mark.parametrize("path", sorted(SOURCES))
def test_files_are_small_well_named_and_inner_inits_only_speak(path):
    assert file_faults(path, SOURCES[path]) == []


def test_importing_regard_loads_nothing_that_only_some_commands_need():
    assert loads(HEAVY, "import regard") == []


def test_importing_text_loads_no_torch():
    # regard/__init__.py may load torch; that text needs none shows with the package's root empty
    modules = [
        "regard." + path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for path in sorted(SOURCES)
        if path.startswith("text/")
    ]
    hollow = "import sys, types; root = types.ModuleType('regard'); "
    hollow += f"root.__path__ = [{str(PACKAGE)!r}]; sys.modules['regard'] = root; "
    assert modules
    assert loads(["torch"], hollow + "import " + ", ".join(modules)) == []


def test_all_names_exactly_what_the_package_gives():
    import regard

    assert len(regard.__all__) == len(set(regard.__all__))
    assert unlisted_or_absent(regard) == set()


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("errors.py", "import regard.tap", "errors must not import tap"),
        ("attention/mask.py", "from regard.text.vocabulary import x", "must not import text"),
        ("text/bpe.py", "def f():\n    import torch.nn", "text never imports torch"),
        ("models/vision.py", "from regard.text import bpe", "models must not import text"),
        ("data/batch.py", "from regard.attention.attend import attend", "only the mask"),
        ("layers/norm.py", "from . import ffn", "a relative import"),
        ("trace/site.py", "from regard import attend", "from the package's root"),
        ("tap.py", "import regard.nowhere", "tap must not import nowhere"),
        ("misc/x.py", "", "misc has no place"),
    ],
)
def test_the_checker_finds_a_bad_import(path, source, fault):
    (found,) = import_faults(path, source)
    assert fault in found


def test_the_checker_allows_imports_that_go_downwards():
    source = "import torch\nfrom regard.tap import tap\nfrom regard.attention.mask import Mask\n"
    assert import_faults("trace/site.py", source) == import_faults("data/batch.py", source) == []


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("text/long.py", "\n" * 401, "more than 400"),
        ("layers/utils.py", "", "says nothing"),
        ("text/__init__.py", '"""Words."""\nfrom x import y', "docstring"),
        ("text/__init__.py", "", "docstring"),
    ],
)
def test_the_checker_finds_a_bad_file(path, source, fault):
    (found,) = file_faults(path, source)
    assert fault in found


def test_the_checker_finds_a_heavy_library_and_a_wrong_list():
    assert loads(["json", "typer"], "import json") == ["json"]

    class Module:
        __all__ = ("absent",)
        extra = 1

    assert unlisted_or_absent(Module) == {"absent", "extra"}
