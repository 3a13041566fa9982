"""Tables of the reference, made from the code: commands, edits, errors, HTTP endpoints, models."""

import inspect
import re
from pathlib import Path
from typing import Any

import typer

import regard.errors
from regard.cli.main import app
from regard.cli.options import translate_help
from regard.errors import speaking, translate
from regard.interop.model_names import bundled
from regard.model_folder import read_card, read_description, translated_paragraph
from regard.server.app import make_app
from regard.server.catalog import Catalog
from regard.server.error_codes import ERROR_CODES
from regard.server.service import Service
from regard.server.settings import LIMITS
from regard.trace.edits import edit_schema

KOREAN = {  # what the catalogue of messages does not have: heads of tables, errors and edits
    "default": "기본값",
    "required": "필수",
    "kind": "종류",
    "effect": "하는 일",
    "fields (? can be left out)": "필드(?는 생략 가능)",
    "class": "클래스",
    "is also": "상위 클래스",
    "raised for": "발생하는 경우",
    "code": "코드",
    "status": "상태",
    "message": "메시지",
    "An error that the user can fix; the command line prints it in one line and exits with 2.": (
        "사용자가 고칠 수 있는 오류. 명령줄은 한 줄로 출력하고 2로 끝납니다."
    ),
    "A given value that is not allowed.": "허용되지 않는 값.",
    "A tensor whose axes do not fit the others.": "축이 다른 텐서와 맞지 않는 텐서.",
    "A mask of the wrong shape or kind.": "모양이나 종류가 맞지 않는 마스크.",
    "NaN or infinity where only finite numbers make sense.": (
        "유한한 수만 쓸 수 있는 곳의 NaN이나 무한대."
    ),
    "A name that does not exist.": "없는 이름.",
    "A file that is missing, damaged, of another kind, or cannot be written.": (
        "없거나, 손상되었거나, 다른 종류이거나, 쓸 수 없는 파일."
    ),
    "An optional dependency that this feature needs is not installed.": (
        "이 기능에 필요한 선택 패키지가 설치되지 않음."
    ),
    "Set the temperature of the softmax; 0 puts all weight on the best key.": (
        "소프트맥스의 온도를 정합니다. 0이면 가중치가 모두 가장 좋은 키로 갑니다."
    ),
    "Leave out the division of scores by √d_k.": "점수를 √d_k로 나누지 않습니다.",
    "Switch a head off: replace its output by zero, or by its mean over all queries.": (
        "헤드를 끕니다. 출력을 0이나 모든 쿼리의 평균으로 바꿉니다."
    ),
    "Hide a key from a query; without a query, from all of them.": (
        "쿼리가 키를 보지 못하게 합니다. 쿼리를 적지 않으면 모든 쿼리에 적용합니다."
    ),
    "Show a query a key that the mask hides, such as a later token.": (
        "마스크가 가린 키(예: 뒤에 오는 토큰)를 쿼리에 보여 줍니다."
    ),
    "Replace scores before mask and softmax.": "마스크와 소프트맥스 이전의 점수를 바꿉니다.",
    "Replace weights by exactly these; rows need not sum to 1.": (
        "가중치를 그대로 바꿉니다. 행의 합이 1이 아니어도 됩니다."
    ),
    "Replace a value by that of another run: of a head, at a position, or a row of weights.": (
        "값을 다른 실행의 값으로 바꿉니다. 헤드, 위치, 가중치의 한 행을 바꿀 수 있습니다."
    ),
    "Replace a token of the input, before the model runs.": (
        "모델이 계산하기 전에 입력의 토큰을 바꿉니다."
    ),
}
EXAMPLE = re.compile(r"^(Examples?|예): ((?:.|\n(?!\n))*)", re.MULTILINE)
CODES_IN_KOREAN = Path(regard.__file__).parent / "server" / "page" / "js" / "error_messages.js"


def said(text: str, language: str) -> str:
    """Return a text of a table in a language."""
    return KOREAN.get(text) or translate(text, language) if language == "ko" else text


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def commands(language: str) -> str:
    """Describe every command by its help text, arguments and options."""
    with speaking(language):
        return "\n".join(described(typer.main.get_command(app), "regard", language))


def described(group: Any, path: str, language: str) -> list[str]:
    """Return the sections of a group of commands."""
    parts = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            parts += described(command, f"{path} {name}", language)
            continue
        usage = " ".join(
            one.name if one.required else f"[{one.name}]"
            for one in command.params
            if one.param_type_name == "argument"
        )
        text = EXAMPLE.sub(as_code, help_text(command))
        rows = [option_row(one, language) for one in command.params if one.name != "help"]
        parts += [f"## {path} {name}\n", f"`{path} {name} [options] {usage}`\n", text + "\n"]
        parts.append(table(("", "", said("default", language)), rows))
    return parts


def as_code(match: re.Match) -> str:
    """Mark the commands of an example as code."""
    commands = re.sub(r" (or|또는) regard ", r"` \1 `regard ", " ".join(match[2].split()))
    return f"{match[1]}: `{commands}`"


def help_text(command: Any) -> str:
    """Return the help of a command, with lines that are indented as code."""
    text = translate_help(inspect.cleandoc(command.help or "").replace("\b", ""))
    return text.replace("{", "&#123;")


def option_row(one: Any, language: str) -> tuple[str, str, str]:
    """Return name, meaning and default of an argument or option."""
    names = [*one.opts, *one.secondary_opts] if one.param_type_name == "option" else [one.name]
    default = one.default
    silent = default in (None, False, (), []) or callable(default) or one.required
    help_line = said(getattr(one, "help", "") or "", language)
    help_line = help_line.replace("<", "&lt;").replace("[", "\\[")
    shown = said("required", language) if one.required else "" if silent else f"`{default}`"
    return ", ".join(f"`{name}`" for name in names), help_line, shown


def edits(language: str) -> str:
    """List every kind of edit with its fields."""
    rows = []
    for kind in edit_schema()["oneOf"]:
        fields = [name for name in kind["properties"] if name != "kind"]
        optional = set(fields) - set(kind["required"])
        shown = ", ".join(f"`{name}`" + ("?" if name in optional else "") for name in fields)
        rows.append((f"`{kind['title']}`", said(kind["description"], language), shown))
    head = ("kind", "effect", "fields (? can be left out)")
    return table(tuple(said(one, language) for one in head), rows)


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
            said(one.__doc__ or "", language),
        )
        for one in found
    ]
    return table(tuple(said(one, language) for one in ("class", "is also", "raised for")), rows)


def error_codes(language: str) -> str:
    """List the error codes of the server."""
    korean = dict(
        re.findall(r'^  (\w+): "(.*)",$', CODES_IN_KOREAN.read_text("utf-8"), re.MULTILINE)
    )
    rows = []
    for code, error in ERROR_CODES.items():
        message = korean.get(code, error.message) if language == "ko" else error.message
        rows.append((f"`{code}`", str(error.status), message.replace("{", "&#123;")))
    return table(tuple(said(one, language) for one in ("code", "status", "message")), rows)


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
            ("task", f"{said(description.task, language)}, {description.family}"),
            *((field, str(getattr(card, field))) for field in ("score", "size", "data", "license")),
        ]
        rows = [(said(field, language), said(fact, language)) for field, fact in rows]
        paragraphs = [translated_paragraph(one, language) for one in body.strip().split("\n\n")]
        body = "\n\n".join(paragraphs).replace("<", "&lt;") + "\n"
        parts += [
            f"## {name}\n",
            table(("", ""), rows),
            re.sub("^## ", "### ", body, flags=re.MULTILINE),
        ]
    return "\n".join(parts)
