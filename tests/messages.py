"""All messages of the package that a user can see, read from its source.

A message is a template: `{0}`, `{1}` … stand for what is filled in. Run this file to list those
that a catalogue lacks.
"""

import ast
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "regard"
_ERRORS = "RegardError InputError ShapeError MaskError NotFiniteError UnknownNameError FileError"
_CALLS = {*_ERRORS.split(), "MissingExtraError", "warn", "say", "translate", "on_message"}
_LETTERS = re.compile(r"[A-Za-z]{2}")


def messages() -> dict[str, str]:
    """Return the file of every message, by template."""
    found: dict[str, str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        tree = ast.parse(path.read_text("utf-8"))
        templates = [*_called(tree)]
        if name.startswith("cli/"):
            templates += _helps(tree)
        for template in templates:
            if _LETTERS.search(re.sub(r"\{\d+\}", "", template)):
                found.setdefault(template, name)
    return found


def _called(tree: ast.Module) -> Iterator[str]:
    """Yield the templates of errors and of what is printed, with the parts they are made of."""
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]
    functions = {node.name: node for node in scopes if isinstance(node, ast.FunctionDef)}
    for scope in scopes:
        assigned = _assignments(tree, *([] if scope is tree else [scope]))
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and _name(node.func) in _CALLS:
                for argument in node.args[:1]:
                    yield from _templates(argument, assigned, functions, depth=0)
            if isinstance(node, ast.Call) and _name(node.func) in ("Proof", "Fact"):
                for argument in node.args[1:3]:
                    yield from _templates(argument, assigned, functions, depth=0)


def _assignments(*scopes: ast.Module | ast.FunctionDef) -> dict[str, list[ast.expr]]:
    assigned: dict[str, list[ast.expr]] = {}
    for scope in scopes:
        for node in scope.body if isinstance(scope, ast.Module) else ast.walk(scope):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                _assign(node.targets[0], node.value, assigned)
    return assigned


def _assign(target: ast.expr, value: ast.expr, assigned: dict[str, list[ast.expr]]) -> None:
    if isinstance(target, ast.Name):
        assigned.setdefault(target.id, []).append(value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=True):
            _assign(one, part, assigned)


def _name(function: ast.expr) -> str:
    return getattr(function, "id", getattr(function, "attr", ""))


def _templates(
    value: ast.expr,
    assigned: dict[str, list[ast.expr]],
    functions: dict[str, ast.FunctionDef],
    *,
    depth: int,
) -> Iterator[str]:
    """Yield the templates that an expression can give, and those of its parts."""
    if depth > 4:
        return
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    if isinstance(value, ast.JoinedStr):
        numbers = count()
        yield "".join(
            f"{{{next(numbers)}}}" if isinstance(part, ast.FormattedValue) else part.value  # type: ignore[attr-defined]
            for part in value.values
        )
    body = functions.get(_name(value.func)) if isinstance(value, ast.Call) else None
    for part in _parts(value, assigned, body):
        within = assigned if body is None else _assignments(body)
        for template in _templates(part, within, functions, depth=depth + 1):
            if not isinstance(part, ast.Constant) or " " in template:
                yield template


def _parts(
    value: ast.expr, assigned: dict[str, list[ast.expr]], body: ast.FunctionDef | None
) -> list[ast.expr]:
    """Return the expressions whose values an expression can consist of."""
    if isinstance(value, ast.JoinedStr):
        return [part.value for part in value.values if isinstance(part, ast.FormattedValue)]
    if isinstance(value, ast.IfExp):
        return [value.body, value.orelse]
    if isinstance(value, ast.BinOp):
        return [value.left, value.right]
    if isinstance(value, ast.BoolOp):
        return value.values
    if isinstance(value, ast.Name):
        return assigned.get(value.id, [])
    returns = [] if body is None else [x for x in ast.walk(body) if isinstance(x, ast.Return)]
    return [one.value for one in returns if one.value is not None]


def _helps(tree: ast.Module) -> Iterator[str]:
    """Yield help texts: of options, of commands paragraph by paragraph, and headings of groups."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "help":
            if isinstance(node.value, ast.Constant):
                yield str(node.value.value)
        elif isinstance(node, ast.FunctionDef) and _is_command(node):
            for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                if not paragraph.startswith("Example"):
                    yield paragraph if paragraph[:1] == " " else " ".join(paragraph.split())
        elif isinstance(node, ast.ClassDef) and node.name.endswith(("Flags", "Files")):
            yield (ast.get_docstring(node) or "").partition("\n")[0].rstrip(".")


def _is_command(node: ast.FunctionDef) -> bool:
    return node.name.endswith(("_command", "_bench"))


if __name__ == "__main__":
    import sys
    import tomllib

    known = tomllib.loads((PACKAGE / "messages.ko.toml").read_text("utf-8"))
    lines = [f"{name}: {one!r}\n" for one, name in messages().items() if one not in known]
    sys.stdout.write("".join(lines))
