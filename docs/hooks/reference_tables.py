"""Tables of the reference, made from the code: commands, edits, errors, HTTP endpoints, models."""

import inspect
import re
from typing import Any

import typer

import regard.errors
from regard.cli.main import app
from regard.interop.model_names import bundled
from regard.model_folder import read_card, read_description
from regard.server.app import make_app
from regard.server.catalog import Catalog
from regard.server.error_codes import ERROR_CODES
from regard.server.service import Service
from regard.server.settings import LIMITS
from regard.trace.edits import edit_schema


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def commands(language: str) -> str:
    """Describe every command by its help text, arguments and options."""
    return "\n".join(described(typer.main.get_command(app), "regard"))


def described(group: Any, path: str) -> list[str]:
    """Return the sections of a group of commands."""
    parts = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            parts += described(command, f"{path} {name}")
            continue
        usage = " ".join(
            one.name if one.required else f"[{one.name}]"
            for one in command.params
            if one.param_type_name == "argument"
        )
        text = re.sub(r"^Example: (.*)$", r"Example: `\1`", help_text(command), flags=re.MULTILINE)
        rows = [option_row(one) for one in command.params if one.name != "help"]
        parts += [f"## {path} {name}\n", f"`{path} {name} [options] {usage}`\n", text + "\n"]
        parts.append(table(("", "", "default"), rows))
    return parts


def help_text(command: Any) -> str:
    """Return the help of a command, with lines that are indented as code."""
    text = inspect.cleandoc(command.help or "").replace("\b", "")
    return text.replace("{", "&#123;")


def option_row(one: Any) -> tuple[str, str, str]:
    """Return name, meaning and default of an argument or option."""
    names = [*one.opts, *one.secondary_opts] if one.param_type_name == "option" else [one.name]
    default = one.default
    silent = default in (None, False, (), []) or callable(default) or one.required
    help_line = (getattr(one, "help", "") or "").replace("<", "&lt;").replace("[", "\\[")
    shown = "required" if one.required else "" if silent else f"`{default}`"
    return ", ".join(f"`{name}`" for name in names), help_line, shown


def edits(language: str) -> str:
    """List every kind of edit with its fields."""
    rows = []
    for kind in edit_schema()["oneOf"]:
        fields = [name for name in kind["properties"] if name != "kind"]
        optional = set(fields) - set(kind["required"])
        shown = ", ".join(f"`{name}`" + ("?" if name in optional else "") for name in fields)
        rows.append((f"`{kind['title']}`", kind["description"], shown))
    return table(("kind", "effect", "fields (? can be left out)"), rows)


def errors(language: str) -> str:
    """List the classes of errors."""
    found = [
        one
        for one in vars(regard.errors).values()
        if inspect.isclass(one)
        and issubclass(one, regard.errors.RegardError)
        and one.__module__ == "regard.errors"
    ]
    rows = [
        (
            f"`{one.__name__}`",
            ", ".join(f"`{base.__name__}`" for base in one.__bases__),
            one.__doc__,
        )
        for one in found
    ]
    return table(("class", "is also", "raised for"), rows)


def error_codes(language: str) -> str:
    """List the error codes of the server."""
    rows = [
        (f"`{code}`", str(error.status), error.message.replace("{", "&#123;"))
        for code, error in ERROR_CODES.items()
    ]
    return table(("code", "status", "message"), rows)


def http(language: str) -> str:
    """Describe every endpoint of the OpenAPI schema."""
    schema = make_app(Service(Catalog())).openapi()
    parts = []
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts.append(f"## {method.upper()} `{path}`\n")
            parts.append(operation.get("description") or operation.get("summary", ""))
            rows = [parameter_row(one) for one in operation.get("parameters", [])]
            rows += body_rows(operation, schema)
            parts.append("\n" + table(("field", "in", "type"), rows) if rows else "")
    return "\n".join(parts)


def limits(language: str) -> str:
    """Return a table of the limits of the server."""
    del language
    rows = [
        (f"`{name}`", f"{getattr(LIMITS, name):,}", " ".join((field.description or "").split()))
        for name, field in type(LIMITS).model_fields.items()
    ]
    return table(("limit", "value", "of what"), rows)


def parameter_row(one: dict[str, Any]) -> tuple[str, str, str]:
    """Describe a parameter of a path or a query."""
    return (
        f"`{one['name']}`" + ("" if one.get("required") else "?"),
        one["in"],
        kind_of(one["schema"]),
    )


def body_rows(operation: dict[str, Any], schema: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Describe the fields of a JSON body."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    model = schema.get("components", {}).get("schemas", {}).get(name, {})
    needed = model.get("required", [])
    return [
        (f"`{field}`" + ("" if field in needed else "?"), "body", kind_of(value))
        for field, value in model.get("properties", {}).items()
    ]


def kind_of(schema: dict[str, Any]) -> str:
    """Return a type in a word or two."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(kind_of(one) for one in schema["anyOf"] if one.get("type") != "null")
    if schema.get("type") == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    return schema.get("type") or (
        "one of " + ", ".join(map(str, schema["enum"])) if "enum" in schema else "any"
    )


def models(language: str) -> str:
    """Show the card of every bundled model."""
    parts = []
    for name, folder in bundled().items():
        card, description = read_card(folder), read_description(folder)
        text = (folder / "card.md").read_text("utf-8")
        _, _, body = text.removeprefix("---\n").partition("\n---\n")
        rows = [
            ("task", f"{description.task}, {description.family}"),
            *((field, str(getattr(card, field))) for field in ("score", "size", "data", "license")),
        ]
        parts += [
            f"## {name}\n",
            table(("", ""), rows),
            re.sub("^## ", "### ", body, flags=re.MULTILINE),
        ]
    return "\n".join(parts)
