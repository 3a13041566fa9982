"""Parts of pages that are generated: `<!-- generated: NAME -->` becomes what NAME returns."""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

import experiment_figures
import figure_gallery
import live_views
import notebooks
import reference_tables
import slip_figures

ONLY_ENGLISH = '!!! note "이 페이지는 영어로만 있습니다."'
"""Stands below the heading of a page of the Korean site that has no translation."""
DOCS = Path(__file__).resolve().parents[1]
MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the marks of a page, and add its figures and a link to its notebook."""
    path, language = page.file.dest_uri, "ko" if page.file.dest_uri.startswith("ko/") else "en"
    if language == "ko" and not page.file.src_uri.endswith(".ko.md"):
        markdown = re.sub(
            r"^# .*$", rf"\g<0>\n\n{ONLY_ENGLISH}", markdown, count=1, flags=re.MULTILINE
        )
    markdown = MARK.sub(lambda match: GENERATORS[match[1]](language), markdown)
    if page.file.src_uri.startswith(("learn/", "how-to/")):
        markdown = live_views.embed(markdown, path, language)
    name = Path(page.file.src_uri).stem
    if name.startswith("experiments"):
        up = "../" * path.count("/")
        markdown = experiment_figures.add_figures(markdown, up, language)
    if name.startswith("slips"):
        markdown = slip_figures.add_figures(markdown, "../" * path.count("/"), language)
    if name in notebooks.PAGES:
        link = live_views.notebook_link(name, "../" * path.count("/"), language)
        heading, _, rest = markdown.partition("\n\n")
        markdown = f"{heading}\n\n{link}\n\n{rest}"
    return markdown


def on_post_build(config: MkDocsConfig):
    """Add what pages refer to: figures, live views, notebooks, and llms.txt."""
    site = Path(config.site_dir)
    shutil.copytree(notebooks.NOTEBOOKS, site / "notebooks", dirs_exist_ok=True)
    for name, content in (
        figure_gallery.files | live_views.files | experiment_figures.files | slip_figures.files
    ).items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(content)
    if config.theme["language"] == "en":
        (site / "llms.txt").write_text(llms(config), "utf-8")


def heading_of(path: Path) -> str:
    """Return the title of a page."""
    found = re.search(r"^# (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return found[1] if found else path.stem


def chapters(language: str) -> str:
    """List the chapters of Learn by their headings."""
    lines = []
    for path in sorted((DOCS / "learn").glob("*.md")):
        if path.name == "index.md" or path.name.endswith(".ko.md"):
            continue
        translated = path.with_suffix(".ko.md")
        title = heading_of(translated if language == "ko" and translated.exists() else path)
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines)


def peers(language: str) -> str:
    """Return the comparison with other tools of the README."""
    readme = DOCS.parent / ("README.ko.md" if language == "ko" else "README.md")
    parts = re.split(r"^## .*$", readme.read_text("utf-8"), flags=re.MULTILINE)
    (found,) = (part for part in parts if "github.com/jessevig/bertviz)" in part)
    return re.sub(r"\n[^\n]*\(docs/benchmarks\)[^\n]*", "", found)


def llms(config: MkDocsConfig) -> str:
    """List all pages by section, with their first sentence, for programs that read the site."""
    lines = ["# regard", "", f"> {config.site_description}", "", "Korean pages are in ko/."]
    for section in config.nav or []:
        ((title, entries),) = section.items()
        lines += ["", f"## {title}", ""]
        for entry in flat(entries):
            path = DOCS / entry
            text = re.sub(r"(?s:<!--.*?-->)|(?m:^#.*$)", "", path.read_text("utf-8"))
            paragraphs = [part for part in text.split("\n\n") if re.match(r"\s*[\w*`\[]", part)]
            first = " ".join(paragraphs[0].split()) if paragraphs else ""
            first = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.split(r"(?<=[.:]) ", first)[0])
            lines.append(f"- [{heading_of(path)}]({entry.removesuffix('.md')}.html): {first}")
    return "\n".join(lines) + "\n"


def flat(entries: str | list) -> list[str]:
    """Return the pages of a part of the navigation."""
    if isinstance(entries, str):
        return [entries]
    if isinstance(entries, dict):
        return [page for part in entries.values() for page in flat(part)]
    return [page for entry in entries for page in flat(entry)]


GENERATORS: dict[str, Callable[[str], str]] = {
    "chapters": chapters,
    "gallery": figure_gallery.gallery,
    "commands": reference_tables.commands,
    "edits": reference_tables.edits,
    "errors": reference_tables.errors,
    "error-codes": reference_tables.error_codes,
    "http": reference_tables.http,
    "limits": reference_tables.limits,
    "peers": peers,
    "models": reference_tables.models,
}
