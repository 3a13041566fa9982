"""The site: it builds without warnings, needs no network, and speaks English and Korean."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

import regard

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
TRANSLATED = ["index.md", "getting-started/*.md", "learn/*.md", "how-to/*.md", "gallery/*.md"]
TRANSLATED += ["explanation/*.md", "slips.md", "recipes.md"]
TRANSLATED += [f"reference/{name}.md" for name in ("index", "commands", "edits", "errors", "files")]
RESOURCE = re.compile(
    r"<(?:script|link|img|iframe|source|video)\b[^>]*?\b(?:src|href)=\"([^\"]+)\""
)
ANCHOR = re.compile(r"<a\b[^>]*?\bhref=\"([^\"]+)\"")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built from the repository into another folder."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pages_load_nothing_from_the_network(site):
    loaded = {
        (path.name, address)
        for path in site.rglob("*.html")
        for address in RESOURCE.findall(path.read_text("utf-8"))
    }
    assert loaded
    assert [one for one in loaded if re.match("(https?:)?//", one[1])] == []
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert [
        style for style in styles if re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style)
    ] == []


def test_every_link_leads_to_a_file(site):
    missing = []
    for path in site.rglob("*.html"):
        if path.name == "404.html":
            continue  # its links are absolute, for any address that does not exist
        here = path.relative_to(site).as_posix()
        text = path.read_text("utf-8")
        for address in RESOURCE.findall(text) + ANCHOR.findall(text):
            parts = urlsplit(urljoin(here, address))
            if not parts.scheme and parts.path and not (site / unquote(parts.path)).exists():
                missing.append((here, address))
    assert missing == []


def test_chapters_embed_live_views_and_figures(site):
    for folder in (site / "learn", site / "ko" / "learn"):
        chapters = [path.read_text("utf-8") for path in folder.glob("[0-9]*.html")]
        assert len(chapters) == 16
        assert sum('<iframe class="live" loading="lazy"' in text for text in chapters) == 14
        assert all('<img class="figure"' in text for text in chapters)
        assert all(".ipynb" in text for text in chapters)


def test_pages_for_readers_have_a_korean_twin():
    pages = {path for pattern in TRANSLATED for path in DOCS.glob(pattern)}
    english = {path for path in pages if not path.name.endswith(".ko.md")}
    assert [str(path) for path in english if not path.with_suffix(".ko.md").exists()] == []
    lone = [path for path in DOCS.rglob("*.ko.md") if not Path(str(path)[:-6] + ".md").exists()]
    assert lone == []


def test_each_language_has_its_own_search_index(site):
    def index(folder: Path) -> dict:
        return json.loads((folder / "search" / "search_index.json").read_text("utf-8"))

    english, korean = index(site), index(site / "ko")
    assert korean["config"]["lang"] == ["en", "ko"]
    for folder, entries in ((site, english["docs"]), (site / "ko", korean["docs"])):
        assert entries
        assert all((folder / entry["location"].partition("#")[0]).is_file() for entry in entries)
    titles = [{entry["title"] for entry in found["docs"]} for found in (english, korean)]
    assert "Getting started" in titles[0] - titles[1]
    assert "시작하기" in titles[1] - titles[0]


def test_search_works_in_pages_that_are_opened_as_files(site, browser):
    found, page = {}, browser.new_page()
    for name, word in (("index.html", "ablate"), ("ko/index.html", "번역기")):
        page.goto((site / name).as_uri())
        page.locator("input.md-search__input").click()
        page.keyboard.type(word)
        page.keyboard.press("End")  # inserted letters send no key, which the page waits for
        first = page.locator(".md-search-result__item > a").first
        found[name] = urlsplit(first.get_attribute("href", timeout=30_000)).path
    page.close()
    assert found["index.html"] == f"{site}/reference/edits.html"
    assert found["ko/index.html"].startswith(f"{site}/ko/how-to/")


def test_the_reference_has_every_public_name():
    text = "".join(path.read_text("utf-8") for path in (DOCS / "reference").glob("*.md"))
    names = re.findall(r"\b\w+\b", text)
    assert set(regard.__all__) - set(names) == set()
