"""Links that leave docs/, such as `../regard/tap.py`, lead to copies in the site; formulas."""

import html as html_entities
import posixpath
import re
import shutil
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
linked: set[str] = set()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ at the copies in the site."""
    folder = posixpath.dirname(page.file.src_uri)
    root = "../" * page.file.dest_uri.count("/")

    def replace(match: re.Match) -> str:
        text, target = match[1], match[2]
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path.startswith("docs/") and not path.endswith(".py"):
            return match[0]
        if not (REPOSITORY / path).is_file():
            return match[0]  # MkDocs reports it
        linked.add(path)
        return f'<a href="{root}source/{path}.txt">{text}</a>'

    parts = CODE.split(markdown)
    fences = [part.lstrip().startswith("```") for part in parts]
    joined = "".join(
        f"\0{number}\0" if fence else part
        for number, (part, fence) in enumerate(zip(parts, fences, strict=True))
    )
    replaced = LINK.sub(replace, joined)
    return re.sub(r"\0(\d+)\0", lambda match: parts[int(match[1])], replaced)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn formulas into MathML, which browsers draw without a library."""

    def formula(match: re.Match) -> str:
        return convert(
            html_entities.unescape(match[3]), display="block" if match[2] == "[" else "inline"
        )

    return FORMULA.sub(formula, html)


def on_post_build(config: MkDocsConfig):
    """Copy the files that pages link to."""
    for path in linked:
        copy = Path(config.site_dir) / "source" / f"{path}.txt"
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, copy)
