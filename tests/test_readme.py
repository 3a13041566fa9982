"""READMEs and guides: links and files exist, and both languages say the same.

test_documentation.py runs their code.
"""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli.main import app

REPOSITORY = Path(__file__).resolve().parents[1]
READMES = {name: (REPOSITORY / name).read_text("utf-8") for name in ("README.md", "README.ko.md")}
each = pytest.mark.parametrize("readme", READMES.values(), ids=READMES)


@each
def test_the_readme_links_only_to_files_that_exist(readme):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", readme)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_both_readmes_have_the_same_parts():
    counts = [
        [line.count("#") for line in text.splitlines() if re.match("#+ ", line)]
        for text in READMES.values()
    ]
    assert counts[0] == counts[1]


def test_the_korean_readme_has_the_tree_of_the_english_one():
    trees = [re.findall(r"^[├└] (\S+)", text, re.MULTILINE) for text in READMES.values()]
    assert trees[0] == trees[1]
    assert all((REPOSITORY / "regard" / name).exists() for name in trees[0])


def test_the_readmes_show_the_first_lines_that_make_run_prints():
    shown = CliRunner().invoke(app, ["show", "en-de", "The dog is sleeping on the sofa."]).stdout
    lines = [line.rstrip() for line in shown.strip("\n").splitlines()]
    for readme in READMES.values():
        assert "```\n" + "\n".join(lines[:14]) in readme


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_guides_name_only_files_that_exist(name):
    path = REPOSITORY / name
    text = path.read_text("utf-8")
    links = [path.parent / link for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text)]
    files = [REPOSITORY / word for word in re.findall(r"`((?:regard|tests|docs)/[\w/.]+)`", text)]
    assert links
    assert [str(one) for one in links + files if not one.exists()] == []
