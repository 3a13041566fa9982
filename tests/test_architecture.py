"""The shape of the code: what imports what, how large files grow, and which names repeat."""

import ast
import inspect
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from tests.messages import messages

PACKAGE = Path(__file__).resolve().parents[1] / "regard"

# Bottom first: a part imports itself and the rows before it, never another part of the same row.
ROWS = [
    ["errors", "tap"],
    ["locks"],
    ["files", "hardware"],
    ["text", "attention"],
    ["layers", "data"],
    ["models"],
    ["capabilities"],
    ["model_folder"],
    ["model"],
    ["trace"],
    ["interop"],
    ["generation"],
    ["analysis"],
    ["evaluation"],
    ["figures"],
    ["training"],
    ["server", "doctor", "bench"],
    ["cli"],
    ["__main__"],
]
ROW = {part: number for number, row in enumerate(ROWS) for part in row}
# Models see ids, not strings; figures see data, not models.
APART = {("layers", "text"), ("models", "text"), ("figures", "models"), ("server", "models")}
# Classes that users hold: their methods import what they call, inside the function.
FACADES = {"model.py", "trace/trace.py"}
HEAVY = [
    "typer",
    "fastapi",
    "starlette",
    "uvicorn",
    "matplotlib",
    "transformers",
    "ctranslate2",
    "ray",
]
VAGUE = {"utils", "util", "helpers", "common", "base", "manager"}

SOURCES = {
    str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")
}


def import_faults(path: str, source: str) -> list[str]:
    """Return a sentence for each import of the file at `path` that breaks the order."""
    part = path.partition("/")[0].removesuffix(".py")
    if part == "__init__":
        return []
    if part not in ROW:
        return [f"{path}: {part} is not in the list of rows"]
    tree = ast.parse(source)
    top_level = {id(node) for node in tree.body}
    faults = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." if node.level else node.module or ""]
        inside = id(node) not in top_level
        if path in FACADES and (inside or "TYPE_CHECKING" in source):
            names = [name for name in names if not inside]
        faults += [f"{path}: {fault}" for name in names if (fault := import_fault(part, name))]
    return faults


def import_fault(part: str, name: str) -> str | None:
    """Return what is wrong when `part` imports `name`."""
    top, _, rest = name.partition(".")
    other = rest.partition(".")[0]
    if name == ".":
        return "a relative import"
    if part == "text" and top == "torch":
        return "text never imports torch"
    if top != "regard" or other == part:
        return None
    if other == "":
        return None if part in ("cli", "__main__") else f"{part} imports from the package's root"
    if (part, other) in APART or ROW.get(other, len(ROWS)) >= ROW[part]:
        return f"{part} must not import {other}"
    return None


def file_faults(path: str, source: str) -> list[str]:
    """Return what is wrong with the size, the name or the kind of the file at `path`."""
    faults = []
    if (lines := len(source.splitlines())) > 400:
        faults.append(f"{path}: {lines} lines, more than 400")
    if VAGUE & set(path.removesuffix(".py").split("/")):
        faults.append(f"{path}: a name that says nothing")
    if path.endswith("/__init__.py"):
        module = ast.parse(source)
        if len(module.body) != 1 or ast.get_docstring(module) is None:
            faults.append(f"{path}: more or less than one docstring")
    return faults


def repeated_names(sources: dict[str, str]) -> list[str]:
    """Return module names and public class names that exist more than once."""
    where = defaultdict(set)
    for path, source in sources.items():
        if not path.endswith("__init__.py"):
            where[Path(path).name].add(path)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].add(path)
    return [f"{name}: {sorted(places)}" for name, places in where.items() if len(places) > 1]


def loaded(modules: list[str], statement: str) -> list[str]:
    """Return those of `modules` that a fresh interpreter has loaded after the statement."""
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


def test_imports_go_down_the_tree_only():
    assert [fault for path in SOURCES for fault in import_faults(path, SOURCES[path])] == []


def test_files_are_small_and_well_named_and_inner_inits_hold_a_docstring_only():
    assert [fault for path in SOURCES for fault in file_faults(path, SOURCES[path])] == []


def test_no_module_name_and_no_public_class_name_exists_twice():
    assert repeated_names(SOURCES) == []


def test_importing_regard_loads_nothing_that_only_some_commands_need():
    assert loaded([*HEAVY, "torch"], "import regard") == []


def test_text_and_data_work_without_torch():
    modules = [
        "regard." + path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for path in sorted(SOURCES)
        if path.startswith(("text/", "data/"))
    ]
    assert modules
    assert loaded(["torch"], "import " + ", ".join(modules)) == []


def test_all_lists_exactly_the_public_names():
    import regard

    listed = regard.__all__
    public = {
        name
        for name in dir(regard)
        if not name.startswith("_") and not inspect.ismodule(getattr(regard, name))
    }
    assert len(listed) == len(set(listed))
    assert set(listed) == public


def test_the_checks_find_planted_faults():
    for path, source, fault in [
        ("errors.py", "import regard.trace", "errors must not import trace"),
        ("text/bpe.py", "def f():\n    import torch.nn", "text never imports torch"),
        ("models/vision.py", "from regard.text import bpe", "models must not import text"),
        ("layers/norm.py", "from . import ffn", "a relative import"),
        ("trace/site.py", "from regard import attend", "from the package's root"),
        ("model.py", "import regard.generation", "model must not import generation"),
        ("misc/x.py", "", "misc is not in the list"),
    ]:
        (found,) = import_faults(path, source)
        assert fault in found
    assert import_faults("model.py", "def f():\n    import regard.generation") == []
    for path, source, fault in [
        ("text/long.py", "\n" * 401, "more than 400"),
        ("layers/utils.py", "", "says nothing"),
        ("text/__init__.py", '"""Words."""\nfrom x import y', "docstring"),
    ]:
        (found,) = file_faults(path, source)
        assert fault in found
    twice = {"a/x.py": "class Site: ...", "b/x.py": "class Site: ..."}
    assert [name.partition(":")[0] for name in repeated_names(twice)] == ["x.py", "Site"]
    assert loaded(["json", "typer"], "import json") == ["json"]


def test_every_message_has_a_korean_text():
    known = tomllib.loads((PACKAGE / "messages.ko.toml").read_text("utf-8"))
    missing = [f"{name}: {text!r}" for text, name in messages().items() if text not in known]
    assert not missing, "add a line to regard/messages.ko.toml for each:\n" + "\n".join(missing)
