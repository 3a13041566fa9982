"""Notebooks of the chapters of Learn and of three how-tos: `make notebooks` writes and runs them.

A notebook is the page itself: its text, and its code as cells. What the cells printed is kept,
except for live views, which are megabytes: they appear when their cell is run.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docs.hooks.page_blocks import LIVE, Block, split_page

DOCS = Path(__file__).resolve().parents[1]
NOTEBOOKS = DOCS.parent / "examples" / "notebooks"
PATTERNS = (
    "learn/[0-9]*.md",
    "how-to/explain-a-translation*.md",
    "how-to/publish-a-figure*.md",
    "how-to/use-the-layers*.md",
)
PAGES = {path.stem: path for pattern in PATTERNS for path in sorted(DOCS.glob(pattern))}
ANSWER = re.compile(r'<details markdown="1"><summary>(?P<title>.*?)</summary>')
PLACE = re.compile(rf"^(?:{LIVE.pattern}|{ANSWER.pattern}|</details>)$", re.MULTILINE)
LINK = re.compile(r"\[([^\[\]]+)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")
SAVED = re.compile(r"""(?:-o |\.save\(")([\w-]+\.svg)\b""")
LARGEST = 100_000  # bytes of a figure that is kept
NOTES = {
    "made": {
        "en": "Made from [this page]({page}) by `make notebooks`. Needs regard with its widget "
        '(`pip install "regard[notebook]"`) and a program for notebooks such as JupyterLab.',
        "ko": "[이 페이지]({page})를 `make notebooks`로 옮긴 노트북입니다. 위젯을 포함한 regard"
        '(`pip install "regard[notebook]"`)와 JupyterLab 같은 노트북 프로그램이 필요합니다.',
    },
    "live": {
        "en": "Run the next cell to look around in the model itself.",
        "ko": "다음 셀을 실행하면 모델 안을 직접 둘러볼 수 있습니다.",
    },
}


def notebook_of(name: str) -> dict[str, Any]:
    """Return the notebook of a page, without outputs."""
    page = PAGES[name]
    language = "ko" if name.endswith(".ko") else "en"
    cells = list(cells_of(page, language))
    heading, _, rest = cells[0]["source"].partition("\n\n")
    made = NOTES["made"][language].format(page=relative(page))
    cells[0]["source"] = f"{heading}\n\n> {made}\n\n{rest}"
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
        cell["source"] = cell["source"].splitlines(keepends=True)
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def cells_of(page: Path, language: str) -> Iterator[dict[str, Any]]:
    """Yield the cells of a page; texts that follow each other are one cell."""
    texts: list[str] = []
    for part in parts_of(page, language):
        if isinstance(part, str):
            texts += [part] if part else []
            continue
        if texts:
            yield cell("markdown", "\n\n".join(texts))
            texts = []
        yield part
    if texts:
        yield cell("markdown", "\n\n".join(texts))


def parts_of(page: Path, language: str) -> Iterator[str | dict[str, Any]]:
    """Yield texts, and cells of code, live views and headings of answers."""
    for part in split_page(page.read_text("utf-8")):
        if isinstance(part, Block) and part.runs:
            yield cell("code", source_of(part))
        elif isinstance(part, Block):
            yield f"```{part.language}\n{part.code}```"
        else:
            yield from places_of(LINK.sub(lambda found: link(found, page), part), language)


def places_of(text: str, language: str) -> Iterator[str | dict[str, Any]]:
    """Yield a text, divided at its live views and answers."""
    end = 0
    for match in PLACE.finditer(text):
        yield text[end : match.start()].strip()
        end = match.end()
        if match["title"]:  # JupyterLab shows what follows this heading after a click
            yield cell("markdown", f"### {match['title']}", {"jp-MarkdownHeadingCollapsed": True})
        elif match["model"]:
            yield NOTES["live"][language]
            yield cell("code", live_source(match), {"tags": ["live"]})
    yield text[end:].strip()


def live_source(match: re.Match) -> str:
    """Return the code that shows a live view."""
    name, text = match["model"], f'"{match["text"]}"'
    imports = "import regard\n"
    if text.endswith('.png"'):
        imports += "from regard.interop.model_names import bundled\n"
        text = f'bundled()["{name}"] / "examples" / {text}'
    return f'{imports}\nregard.load("{name}").trace({text})'


def cell(kind: str, source: str, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a cell."""
    more = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": metadata or {}, **more, "source": source}


def source_of(block: Block) -> str:
    """Return the code of a block, followed by the figures that it writes."""
    code = block.code.rstrip("\n")
    if block.title:
        return f"%%writefile {block.title}\n{code}"
    if block.language == "sh":
        lines = code.replace("\\\n", " ").splitlines()
        code = "\n".join(f"%run -m {line}" for line in lines)
    figures = SAVED.findall(code)
    if not figures:
        return code
    shown = "\n".join(f'display(SVG("{name}"))' for name in figures)
    return f"from IPython.display import SVG, display\n\n{code}\n{shown}"


def link(match: re.Match, page: Path) -> str:
    """Return a link of a page as the notebook needs it."""
    target = (page.parent / match[2]).resolve()
    korean = target.with_suffix(".ko.md")
    if page.stem.endswith(".ko") and korean.exists():
        target = korean
    found = f"{target.stem}.ipynb" if target in PAGES.values() else relative(target)
    return f"[{match[1]}]({found}{match[3] or ''})"


def relative(path: Path) -> str:
    """Return a path as seen from the folder of notebooks."""
    return Path(os.path.relpath(path, NOTEBOOKS)).as_posix()


def run(notebook: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, run in a folder."""
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_core.utils import run_sync
    from nbclient import NotebookClient

    opened = nbformat.reads(json.dumps(notebook), as_version=4)
    sockets = str(Path(folder).resolve() / "kernel")
    kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=sockets)
    client = NotebookClient(opened, km=kernel, resources={"metadata": {"path": folder}})
    client.timeout = 600
    try:
        client.execute()
    finally:
        run_sync(kernel.shutdown_kernel)(now=True)
    return json.loads(nbformat.writes(opened))


def without_noise(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook without times, live views and large figures."""
    for one in notebook["cells"]:
        one["metadata"].pop("execution", None)
        for data in (output.get("data", {}) for output in one.get("outputs", [])):
            if len("".join(data.get("image/svg+xml", []))) > LARGEST:
                data.clear()
                data["text/plain"] = ["A large figure: run this cell to see it."]
        if "live" in one["metadata"].get("tags", []):
            one["outputs"], one["execution_count"] = [], None
    notebook["metadata"].pop("widgets", None)
    notebook["metadata"]["language_info"] = {"name": "python"}
    return notebook


def without_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook as the page alone makes it."""
    for one in notebook["cells"]:
        if one["cell_type"] == "code":
            one["outputs"], one["execution_count"] = [], None
    return notebook


def keep_outputs(notebook: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of an old one that has the same code."""
    new, before = (
        [one for one in each["cells"] if one["cell_type"] == "code"] for each in (notebook, old)
    )
    if [one["source"] for one in new] != [one["source"] for one in before]:
        raise SystemExit("the code has changed: run make notebooks.")
    for one, last in zip(new, before, strict=True):
        one |= {name: last[name] for name in ("outputs", "execution_count")}
    return notebook


def write(name: str, *, texts_only: bool):
    """Run the notebook of a page and write it."""
    path = NOTEBOOKS / f"{name}.ipynb"
    if texts_only:
        notebook = keep_outputs(notebook_of(name), json.loads(path.read_text("utf-8")))
    else:
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(notebook_of(name), folder)
    notebook = without_noise(notebook)
    NOTEBOOKS.mkdir(exist_ok=True)
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":  # names of pages; --texts keeps the outputs
    chosen = [name for name in sys.argv[1:] if name != "--texts"]
    for name in chosen or PAGES:
        sys.stdout.write(f"{name}\n")
        write(name, texts_only="--texts" in sys.argv)
