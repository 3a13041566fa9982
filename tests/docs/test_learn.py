"""Learn, the slips and the experiments: both languages agree, and every number was computed.

tests/test_documentation.py runs their code and commands.
"""

import re
from pathlib import Path

import pytest

from tests.test_documentation import REPOSITORY, blocks_of, translated

DOCS = REPOSITORY / "docs"
PAGES = [page for page in (DOCS / "learn").glob("*.md") if not page.name.endswith(".ko.md")]
PAGES = [*sorted(PAGES), DOCS / "slips.md"]
each = pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])


def korean(page: Path) -> Path:
    return page.with_suffix(".ko.md")


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```\n", "", text, flags=re.DOTALL | re.MULTILINE)


def test_there_are_sixteen_chapters_with_the_same_parts():
    chapters = [page for page in PAGES if page.name[0].isdigit()]
    parts = [
        re.findall("^## .*", prose(page.read_text("utf-8")), re.MULTILINE) for page in chapters
    ]
    names = ["Formula", "By hand", "Run it", "In the explorer", "Figure", "Exercise"]
    assert parts == [[f"## {name}" for name in names]] * 16


@each
def test_every_decimal_number_of_the_text_is_in_the_code_or_its_output(page):
    for text in (page.read_text("utf-8"), korean(page).read_text("utf-8")):
        computed = "".join(block.code + (block.shown or "") for block in blocks_of(text))
        numbers = re.findall(r"(?<![\w.])\d+\.\d\d+", prose(text))
        assert [number for number in numbers if number not in computed] == []


@each
def test_the_korean_page_has_the_code_the_formulas_and_the_parts_of_the_english_one(page):
    english, other = page.read_text("utf-8"), korean(page).read_text("utf-8")
    assert translated(blocks_of(english)) == translated(blocks_of(other))
    for pattern in (r"^#+ ", r"^\$\$\n.*?^\$\$$", r"^<details", r"^\|"):
        texts = [re.sub(r"\\text\{ ?[^}]*[ 가-힣][^}]*\}", "", prose(x)) for x in (english, other)]
        found = [re.findall(pattern, text, re.MULTILINE | re.DOTALL) for text in texts]
        assert found[0] == found[1], pattern


@each
def test_links_lead_to_files(page):
    for path in (page, korean(page)):
        links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", path.read_text("utf-8"))
        assert [link for link in links if not (path.parent / link).exists()] == []
