"""Parts of pages that are generated: `<!-- generated: NAME -->` is replaced by what NAME prints."""

import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parents[1]
MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the marks of a page."""
    language = "ko" if page.file.dest_uri.startswith("ko/") else "en"
    return MARK.sub(lambda match: GENERATORS[match[1]](language), markdown)


def chapters(language: str) -> str:
    """List the chapters of Learn by their headings."""
    lines = []
    for path in sorted((DOCS / "learn").glob("*.md")):
        if path.name == "index.md" or path.name.endswith(".ko.md"):
            continue
        translated = path.with_suffix(".ko.md")
        text = (translated if language == "ko" and translated.exists() else path).read_text("utf-8")
        heading = re.search(r"^# (.+)$", text, re.MULTILINE)
        lines.append(f"1. [{heading[1] if heading else path.stem}]({path.name})")
    return "\n".join(lines)


GENERATORS: dict[str, Callable[[str], str]] = {"chapters": chapters}
