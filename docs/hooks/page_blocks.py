"""Code blocks of a page, as tests run them and notebooks contain them.

- ```python blocks share their variables; a ```toml block (or any other) with title="NAME" is a
  file.
- ```sh blocks, and blocks without a language that start with a command, are commands.
- A block without a language, or ```text, right after one of those is what it prints.
- `<!-- not run: reason -->` before a block leaves it out, `<!-- run with: OPTIONS -->` adds options
  to its commands, and `<!-- run first: CODE -->` runs Python code before it.
- `<!-- live: MODEL "TEXT" STATE -->` is a live view: the explorer with a trace, in a state.
"""

import re
from dataclasses import dataclass
from html import escape

BLOCK = re.compile(
    r"(?P<marks>(?:<!-- (?:not run|run with|run first):(?:(?!-->).)*-->\s*)*)"
    r"^(?P<indent> *)```(?P<language>\w*)(?P<options>[^\n]*)\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
MARK = re.compile(r"<!-- (not run|run with|run first):\s*(.*?)\s*-->", re.DOTALL)
LIVE = re.compile(r'<!-- live: (?P<model>[\w-]+) "(?P<text>[^"]+)"(?: (?P<state>\S+))? -->')
PROGRAMS = ("regard ", "echo ", "make ", "pip ", "python ", "torchrun ", ".venv/bin/", "export ")


def figure_tag(address: str, text: str) -> str:
    """Return a figure of a page; a click or a tap opens it alone, large enough to read."""
    image = f'<img class="figure" loading="lazy" src="{address}" alt="{escape(text)}">'
    return f'<a class="figure-link" href="{address}" target="_blank">{image}</a>'


@dataclass
class Block:
    """A fenced block and, if the next one shows it, its output."""

    language: str
    code: str
    marks: dict[str, str]
    title: str | None
    line: int
    shown: str | None = None

    @property
    def runs(self) -> bool:
        """True if the block is code, a command or a file, and no mark leaves it out."""
        return "not run" not in self.marks and self.is_code

    @property
    def is_code(self) -> bool:
        """True if the block is code, a command or a file."""
        return self.title is not None or self.language in ("python", "sh")


def split_page(text: str) -> list[str | Block]:
    """Return the texts and the blocks of a page in order."""
    parts: list[str | Block] = []
    last, end = None, 0
    for match in BLOCK.finditer(text):
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        language = {"bash": "sh", "console": "sh", "text": ""}.get(*[match["language"]] * 2)
        between = text[end : match.start()]
        if not language and last and not between.strip() and not match["marks"]:
            last.shown = code
        else:
            if not language and code.startswith(PROGRAMS):
                language = "sh"
            title = re.search(r'title="([^"]+)"', match["options"])
            line = text[: match.start("language")].count("\n") + 1
            marks = dict(MARK.findall(match["marks"]))
            last = Block(language, code, marks, title[1] if title else None, line)
            parts += [between, last]
        end = match.end()
    return [*parts, text[end:]]


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a page that are code, commands or files."""
    return [part for part in split_page(text) if isinstance(part, Block) and part.is_code]
