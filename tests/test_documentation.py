"""Code in READMEs and docs runs and prints what is shown, or says why it is not run.

A page is run from top to bottom in an empty folder; docs/hooks/page_blocks.py says how it is
divided into blocks. In what a block prints, a line that ends in "…" means any end of the line, and
a line "…" any lines.
"""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from docs.hooks.page_blocks import Block, blocks_of
from regard.cli.main import app
from regard.errors import speaking

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text("utf-8")
    for path in [*REPOSITORY.glob("*.md"), *sorted(REPOSITORY.glob("docs/**/*.md"))]
}
BLOCKS = {name: blocks for name, text in PAGES.items() if (blocks := blocks_of(text))}


def translated(blocks: list[Block]) -> list[tuple]:
    """What a page and its translation have in common: code without comments and languages."""

    def plain(text: str) -> str:
        return re.sub(r" *#.*|,? ?language=\"ko\"| --language ko", "", text).replace("-ko.", ".")

    return [(block.language, plain(block.code), block.shown, block.title) for block in blocks]


def twin_of(name: str) -> str:
    return name.replace(".ko.md", ".md")


RUN = [
    name
    for name, blocks in BLOCKS.items()
    if any(block.runs for block in blocks)
    and (name == twin_of(name) or translated(blocks) != translated(BLOCKS.get(twin_of(name), [])))
]


def run_commands(block: Block) -> str:
    """Run the lines of a block in this process, where models stay loaded."""
    printed = ""
    for line in block.code.replace("\\\n", " ").splitlines():
        for command in split(shlex.split(line, comments=True), "&&"):
            printed += run_command(command, block.marks.get("run with", ""))
    return printed


def split(words: list[str], separator: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == separator:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def run_command(words: list[str], more: str) -> str:
    """Run one command: `regard …`, `echo … | regard …`, with `< FILE` or `> FILE` at its end."""
    *piped, words = split(words, "|")
    given = " ".join(piped[0][1:]) + "\n" if piped else None
    if len(words) > 2 and words[-2] == "<":
        given, words = Path(words[-1]).read_text("utf-8"), words[:-2]
    target = words[-1] if len(words) > 2 and words[-2] == ">" else None
    words = words[:-2] if target else words
    assert words[0] == "regard", f"{words[0]} is not run: add a reason, <!-- not run: … -->"
    language, command = language_of(words[1:])
    with speaking(language):
        done = CliRunner().invoke(app, [*command, *shlex.split(more)], input=given)
    assert done.exit_code == 0, f"{words}: {done.output}{done.exception!r}"
    if target:
        Path(target).write_text(done.stdout, "utf-8")
    return "" if target else done.stdout


def language_of(words: list[str]) -> tuple[str, list[str]]:
    """The language that `regard --language …` sets before its command, and the other words."""
    return (words[1], words[2:]) if words[:1] == ["--language"] else ("en", words)


def run_python(block: Block, variables: dict) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block.code, f"line {block.line}", "exec"), variables)
    return printed.getvalue()


def assert_shown(shown: str, printed: str):
    """Compare line by line, without spaces at the ends of lines."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    wanted = [line.rstrip() for line in shown.strip("\n").splitlines()]
    if not any(line.endswith("…") for line in wanted):
        assert lines == wanted
        return
    pattern = "\n".join(
        r"[^\0]*?"
        if line == "…"
        else re.escape(line).removesuffix("…") + (".*" * line.endswith("…"))
        for line in wanted
    )
    assert re.fullmatch(pattern, "\n".join(lines)), f"shown:\n{shown}\nprinted:\n{printed}"


@pytest.mark.long
@pytest.mark.parametrize("name", RUN)
def test_the_code_of_a_page_runs_and_prints_what_is_shown(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").symlink_to(REPOSITORY / "recipes")
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    torch.manual_seed(0)
    variables: dict = {}
    for block in BLOCKS[name]:
        if not block.runs:
            continue
        exec(block.marks.get("run first", ""), variables)
        if block.title:
            Path(block.title).write_text(block.code, "utf-8")
        elif block.language == "sh":
            printed = run_commands(block)
        else:
            printed = run_python(block, variables)
        if block.shown is not None and not block.title:
            assert_shown(block.shown, printed)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_page_names_only_commands_and_options_that_exist(name):
    group = typer.main.get_command(app)
    code = "\n".join(block.code for block in BLOCKS[name] if block.language == "sh")
    for line in code.replace("\\\n", " ").splitlines():
        if "regard" not in (words := shlex.split(line, comments=True)):
            continue
        for part in split(words, "&&"):
            if "regard" in part:
                check_command(group, language_of(part[part.index("regard") + 1 :])[1])


def check_command(group: typer.core.TyperGroup, words: list[str]):
    """Refuse a command or an option that does not exist."""
    if not words or words[0] in {"--install-completion", "--version", "--help"}:
        return
    command = group.commands[words[0]]
    if hasattr(command, "commands"):
        check_command(command, words[1:])
        return
    options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    given = {word.partition("=")[0] for word in words[1:] if re.match("--?[a-z]", word)}
    assert given <= options | {"--help"}, words


def test_reasons_are_sentences():
    reasons = [
        block.marks["not run"]
        for blocks in BLOCKS.values()
        for block in blocks
        if "not run" in block.marks
    ]
    assert all(len(reason) > 8 for reason in reasons)
