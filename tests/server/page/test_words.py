"""Both languages are complete, and every word that is asked for is there."""

import re

import pytest

from regard.server.html_export import PAGE

SAID = re.compile(r"""\bsay(?:\.parts)?\(\s*(?:/\*\*.*?\*/ \()?["'](\w+)["']""")
KOREAN = re.compile(r"[가-힣]")


@pytest.fixture(scope="module")
def words():
    """The tables as the modules hold them: word → (English, Korean)."""
    text = (PAGE / "js/words.js").read_text("utf-8")
    table = text[text.index("export const WORDS = {") : text.index("/** @typedef {keyof")]
    table += (PAGE / "js/lesson_words.js").read_text("utf-8")
    quoted = r'"((?:[^"\\]|\\.)*)"'
    entry = re.compile(rf"^  (\w+): \[\s*{quoted},\s*{quoted},?\s*\],", re.MULTILINE)
    found = {name: (english, korean) for name, english, korean in entry.findall(table)}
    assert len(found) == len(re.findall(r"^  \w+: \[", table, re.MULTILINE))
    return found


def test_every_word_is_there_in_english_and_in_korean(words):
    assert len(words) > 120
    for name, (english, korean) in words.items():
        assert english.strip(), name
        if name != "and":  # Korean puts a comma there
            assert KOREAN.search(korean), name
        assert not KOREAN.search(english), name


def test_both_languages_fill_in_the_same_names(words):
    for name, pair in words.items():
        english, korean = (sorted(re.findall(r"\{(\w+)\}", text)) for text in pair)
        assert english == korean, name


def test_korean_sentences_are_polite(words):
    for name, (english, korean) in words.items():
        if english.endswith(".") and "{" not in english:
            assert re.search(r"(니다|개|십시오)[.(]|regard serve\.$", korean), name


def sources():
    names = {path.relative_to(PAGE / "js").as_posix(): path for path in PAGE.rglob("*.js")}
    return {name: path.read_text("utf-8") for name, path in names.items()}


def test_every_word_that_is_said_is_in_the_table(words):
    for name, text in sources().items():
        assert set(SAID.findall(text)) <= set(words), name


def test_no_word_is_in_the_table_for_nothing(words):
    text = "".join(text for name, text in sources().items() if not name.endswith("words.js"))
    lessons = re.findall(r'^    name: "(\w+)",$', sources()["lessons.js"], re.MULTILINE)
    assert len(lessons) == 10
    made_up = {"sort_", "view_", "how_", "form_"}  # the ends of these come from lists
    for name in words:
        known = re.search(rf"""["'`]{name}["'`]""", text) or any(map(name.startswith, made_up))
        built = re.search(r"^(query|key|value)Rows$|Help$", name)
        taught = name.removeprefix("lesson").removesuffix("Text") in lessons
        assert known or built or taught, name


def test_no_text_stands_in_the_code(words):
    """What readers see comes from the table: views hold no sentences of their own."""
    for path in (PAGE / "js").rglob("*.js"):
        if path.name in ("words.js", "lesson_words.js", "math.js"):
            continue
        code = re.sub(r"/\*\*.*?\*/|//[^\n]*", "", path.read_text("utf-8"), flags=re.DOTALL)
        assert not KOREAN.search(code.replace('"한"', "")), path.name
        sentences = re.findall(r'"[A-Z][a-z]+ [a-z]+ [^"]*"', code)
        assert sentences == [], path.name


@pytest.mark.parametrize("page", ["explore", "worked"])
def test_the_korean_page_shows_no_english_words(explorer, words, page):
    explorer.page.goto("about:blank")
    explorer.page.goto(f"{explorer.path.as_uri()}#language=ko&page={page}")
    explorer.page.wait_for_selector("#regard[data-ready]")
    seen = explorer.page.evaluate(
        """() => {
          const parts = [document.getElementById("regard").innerText];
          for (const one of document.querySelectorAll("[title], [aria-label]")) {
            parts.push(one.getAttribute("title") ?? "", one.getAttribute("aria-label") ?? "");
          }
          return parts.join("\\n");
        }"""
    )
    english = [text for text, korean in words.values() if text != korean and len(text.split()) > 1]
    for text in english:
        if "{" not in text:
            assert text.lower() not in seen.lower(), text
    assert explorer.page.get_attribute("html", "lang") == "ko"


def test_the_language_is_switched_in_place(explorer):
    page = explorer.open("site=decoder.layers.1.cross&head=1&query=1&key=2")
    page.click('.language [lang="ko"]')
    explorer.settle()
    assert "패턴" in explorer.text(".pattern h2")
    assert explorer.state()["language"] == "ko"
    assert "니다" in explorer.text(".sentence")
    page.click('.language [lang="en"]')
    explorer.settle()
    assert "this head looks" in explorer.text(".sentence") or "spreads" in explorer.text(
        ".sentence"
    )


@pytest.mark.parametrize("language", ["en", "ko"])
def test_all_tools_of_a_pane_lie_inside_it(open_page, file, language):
    page = open_page(file).open(f"language={language}")
    outside = page.evaluate(
        """() => [...document.querySelectorAll(".pane")].flatMap((pane) => {
          const { left, right } = pane.getBoundingClientRect();
          const tools = [...pane.querySelectorAll(".head :is(button, summary, select)")];
          const places = tools.map((tool) => [tool.textContent, tool.getBoundingClientRect()]);
          const seen = places.filter(([, box]) => box.width);
          return seen.filter(([, box]) => box.left < left || box.right > right);
        })"""
    )
    assert outside == []


def test_spaces_are_not_shown_as_tokenizers_write_them(modules):
    shown = [modules("label", given=token) for token in ("▁dog", " dog ", "▁", "\n", "")]
    assert shown == ["dog", "dog", "␣", "⏎", "∅"]
