"""Notebooks are the pages that they are made from, and their cells run."""

import json
import subprocess
import sys
from copy import deepcopy

import nbformat
import pytest

from docs.hooks.notebooks import NOTEBOOKS, PAGES, notebook_of, without_outputs
from docs.hooks.page_blocks import blocks_of
from tests.test_documentation import assert_shown

# nbclient leaves sockets open, so it has its own process
RUN = """
import json, sys
from docs.hooks.notebooks import notebook_of, run
json.dump(run(notebook_of(sys.argv[1]), sys.argv[2]), sys.stdout)
"""


def read(name):
    return json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))


def printed(cell):
    return "".join(
        "".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream"
    )


def test_every_chapter_and_three_how_tos_have_a_notebook_in_both_languages():
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == sorted(PAGES)
    english = {name for name in PAGES if not name.endswith(".ko")}
    assert len(english) == 16 + 3
    assert {f"{name}.ko" for name in english} == set(PAGES) - english


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_is_what_make_notebooks_writes(name):
    stored = read(name)
    nbformat.validate(deepcopy(stored))
    cells = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    shown = [block.shown for block in blocks_of(PAGES[name].read_text("utf-8")) if block.runs]
    kept = [cell for cell in cells if "live" not in cell["metadata"].get("tags", [])]
    for cell, text in zip(kept, shown, strict=True):
        assert cell["execution_count"] is not None
        if text is not None:
            assert_shown(text, printed(cell))
    same = without_outputs(stored) == notebook_of(name)
    assert same, "the page has changed: run make notebooks (with TEXTS=1 if only its text has)"


@pytest.mark.processes
@pytest.mark.parametrize("name", ["02-embeddings.ko"])
def test_the_cells_of_a_notebook_run(name, tmp_path):
    words = [sys.executable, "-c", RUN, name, tmp_path]
    done = subprocess.run(words, cwd=NOTEBOOKS.parents[1], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    ran = json.loads(done.stdout)
    before = read(name)["cells"]
    assert [printed(cell) for cell in ran["cells"] if cell["cell_type"] == "code"] == [
        printed(cell) for cell in before if cell["cell_type"] == "code"
    ]
    (live,) = (cell for cell in ran["cells"] if "live" in cell["metadata"].get("tags", []))
    (shown,) = live["outputs"]
    assert "application/vnd.jupyter.widget-view+json" in shown["data"]
