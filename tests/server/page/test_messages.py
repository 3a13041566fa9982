"""The message catalog is complete in both languages; codes and fields are those of Python."""

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

import regard
from regard.errors import UnknownNameError
from regard.server.error_codes import (
    ERROR_CODES,
    LIBRARY_MESSAGES,
    describe_error,
    validation_error,
)
from regard.server.html_export import PAGE
from regard.trace.edits import ablate, edit_from_dict, edit_schema

KEY = re.compile(r"""\bt(?:\.parts)?\(\s*(?:/\*\*.*?\*/ \()?["'](\w+)["']""")
KOREAN = re.compile(r"[가-힣]")


@pytest.fixture(scope="module")
def messages(modules):
    """The catalog as the module exports it: key → (English, Korean)."""
    return modules("constant", given={"module": "messages", "name": "MESSAGES"})


@pytest.fixture(scope="module")
def sources():
    """The page's modules except the catalogs, by name."""
    paths = [path for path in (PAGE / "js").rglob("*.js") if not path.stem.endswith("messages")]
    return {path.relative_to(PAGE / "js").as_posix(): path.read_text("utf-8") for path in paths}


def test_every_message_has_english_and_korean_with_the_same_parameters(messages):
    for key, (english, korean) in messages.items():
        assert english.strip(), key
        assert not KOREAN.search(english), key
        same = ("and", "captionFeedForwardShort")  # a comma in Korean lists, and an abbreviation
        assert key in same or KOREAN.search(korean), key
        names = [sorted(re.findall(r"\{(\w+)\}", text)) for text in (english, korean)]
        assert names[0] == names[1], key


def test_korean_sentences_are_polite_statements_or_instructions(messages):
    for key, (english, korean) in messages.items():
        if english.endswith((".", "?")):
            assert re.search(r"(니다|세요|까요|나요|가요)[.?(]|\.$", korean), key
            assert "십시오" not in korean, key
        assert not re.search(r"\}층|헤드 \{\w+\}가", korean), key


PARTICLE = re.compile(r"\{(\w+)\}[”\"]?(?:으로|[이가은는을를로와과])(?![가-힣(])")
# what these stand for always ends alike: 쿼리, 키, 밸류, √d_k, d_k, W_O, "… 어텐션"
ALIKE = {"q", "k", "v", "root", "dk", "wo", "form"}


def test_korean_particles_fit_the_values_before_them(messages, modules):
    def filled(text, x):
        given = {"module": "filled_messages", "name": "fillIn", "args": [text, {"x": x}]}
        return modules("call", given=given)

    def ends(particle, values):
        return [filled("{x}" + particle, x).removeprefix(x) for x in values.split()]

    assert ends("을(를)", "0.5 0.6 12 토큰 레이어 95%") == ["를", "을", "를", "을", "를", "를"]
    assert ends("(으)로", "0.3 0.1 20 레이블 float32") == ["으로", "로", "으로", "로", "로"]
    assert filled("“{x}”이(가) 됩니다", "3") == "“3”이 됩니다"
    assert filled("{x}은(는)", "snake") == "snake은(는)"  # its sound is not known
    for key, (_, korean) in messages.items():
        assert set(PARTICLE.findall(korean)) <= ALIKE, key


def test_korean_terms_are_those_of_the_glossary(messages):
    """Wordings that readers found wrong; they must not come back."""
    korean = "\n".join(text for _, text in messages.values())
    wrong = (
        r"\d층|\}층",
        r"헤드 \{\w+\}[가는이]",
        r"수 \{\w+\}개가 \{\w+\}개가",
        "벡터의 수가 많을수록",
        "혼합입니다",
        "키 하나가 이기고",
        "평균으로",
        "에폭",
        "워밍업",
        "정확한 어텐션",
    )
    for pattern in wrong:
        assert not re.search(pattern, korean), pattern
    pairs = (
        ("projectionHint", "{n}차원 벡터를 {d}차원으로 투영합니다"),
        ("headMean", "평균값으로 대체"),
        ("replayEpoch", "에포크"),
        ("exactForm", "표준(exact) 어텐션"),
        ("layerName", "레이어 {layer}"),
        ("sort", "정렬 기준"),
        ("sort_alignment", "단어 정렬"),
    )
    for key, text in pairs:
        assert text in messages[key][1], key
    for text in (
        "벡터의 차원이 클수록",
        "헤드의 출력은 밸류의 가중합",
        "가중치가 키 하나에 몰립니다",
        "번 헤드가",
    ):
        assert text in korean, text


def test_every_key_in_the_code_is_in_the_catalog_and_every_message_is_used(messages, sources):
    for name, text in sources.items():
        assert set(KEY.findall(text)) <= set(messages), name
    catalog = (PAGE / "js/messages.js").read_text("utf-8")
    code = "".join([*sources.values(), catalog[catalog.index("export function") :]])
    composed = (
        "sort_",
        "view_",
        "how_",
        "form_",
        "intro_",
        "shows_",
        "station_",
        "flowHeads_",
        "lens_",
        "lensCaption_",
        "attribution_",
        "progress_",
        "cost_",
        "cut_",
        "fate_",
        "figureB",
        "figure_",
    )  # followed by a value of a list
    for key in messages:
        used = re.search(rf"""["'`]{key}["'`]""", code) or key.startswith(composed)
        built = re.search(r"^(query|key|value)Rows$|Help$", key)
        assert used or built, key


def test_the_code_contains_no_texts(sources):
    for name, text in sources.items():
        code = re.sub(r"/\*\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
        assert not KOREAN.search(code.replace('"한"', "")), name
        if name != "formula.js":
            assert re.findall(r'"[A-Z][a-z]+ [a-z]+ [^"]*"', code) == [], name


def test_every_error_code_of_the_server_has_a_korean_message(modules):
    korean = modules("constant", given={"module": "error_messages", "name": "ERROR_MESSAGES"})
    fields = {
        code: {name for _, name, _, _ in Formatter().parse(one.message) if name}
        for code, one in ERROR_CODES.items()
    }
    assert set(korean) == set(fields)
    for code, names in fields.items():
        assert set(re.findall(r"\{(\w+)\}", korean[code])) <= names, code
        assert not PARTICLE.search(korean[code]), code
        assert re.search(r"(니다|세요)[.(]", korean[code]), code


def test_errors_are_shown_in_the_language_of_the_page(modules):
    def shown(language, error):
        return modules("errorText", given={"language": language, "error": error})

    params = {"count": 900, "limit": 512}
    error = {"code": "too_many_tokens", "params": params, "message": "the text has 900 tokens."}
    assert shown("en", error) == "the text has 900 tokens."
    assert shown("ko", error).startswith("텍스트가 900토큰입니다. 최대 512토큰까지")
    assert shown("ko", {**error, "code": "new_code"}) == error["message"]
    found = {"type": "less_than_equal", "loc": ("body", "beam"), "input": 99, "ctx": {"le": 16}}
    wrong = describe_error(validation_error({**found, "msg": "Input should be at most 16"}))
    assert (
        shown("ko", wrong.model_dump()) == "beam 필드에 99 값은 쓸 수 없습니다(16 이하여야 합니다)."
    )
    assert shown("ko", "only a message.") == "only a message."
    assert "응답하지 않습니다" in shown("ko", None)


def in_code(node: ast.expr) -> str:
    """Return the text of a string in the code, with {} for each value in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(in_code(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def test_errors_of_the_library_are_worded_as_the_server_expects():
    root, found = Path(regard.__file__).parent, set()
    for path in (
        one
        for part in ("analysis", "generation", "layers", "trace")
        for one in (root / part).rglob("*.py")
    ):
        calls = (x for x in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(x, ast.Call))
        found |= {in_code(call.args[0]) for call in calls if call.args}
    for code, template in LIBRARY_MESSAGES.items():
        assert re.sub(r"\{\w+\}", "{}", template) in found, code
        needed = {name for _, name, _, _ in Formatter().parse(ERROR_CODES[code].message) if name}
        assert needed <= set(re.findall(r"\{(\w+)\}", template)), code


def test_errors_of_the_library_are_korean_too(modules, translator):
    with pytest.raises(UnknownNameError) as caught:
        translator.trace("the dog", edits=[ablate("encoder.layers.9.self", head=0)])
    error = describe_error(caught.value).model_dump()
    assert error["code"] == "edit_unmatched"
    assert error["params"]["path"] == "'encoder.layers.9.self.context'"
    text = modules("errorText", given={"language": "ko", "error": error})
    assert "적용할 곳이 없습니다" in text
    assert "비슷한 이름: encoder.layers.1.self.context" in text
    assert not re.search("matched|nearest|computed", text)


LINKS = (
    "temperature:a.b:1:0.5",
    "unscaled:a.b",
    "ablate:a.b:1",
    "mean:a.b:1",
    "forbid:a.b:0:1:2",
    "allow:a.b:0:1:2",
    "score:a.b:0:1:2:-3",
    "weight:a.b:0:1:2:0.5",
    "token:source:2:%3ax",
)


def test_edits_in_links_follow_the_schema_of_python(modules):
    edits = modules("editsOfLink", given={"schema": edit_schema(), "link": "~".join(LINKS)})
    assert edits["link"] == "~".join(LINKS)
    assert [type(edit_from_dict(one)).kind for one in edits["json"]] == [
        "ablate" if link.startswith("mean") else link.split(":")[0] for link in LINKS
    ]
    assert edits["json"][0] == {"kind": "temperature", "site": "a.b", "head": 1, "value": 0.5}
    assert edits["json"][3] == {"kind": "ablate", "site": "a.b", "head": 1, "to": "mean"}
    assert edits["json"][-1]["token"] == ":x"


@pytest.mark.parametrize(
    "link",
    ["forbid:a.b:0:1", "forbid:a.b:0:-1:2", "token:middle:0:x", "score:a.b:0:1:2:", "toString"],
)
def test_edits_that_do_not_fit_the_schema_are_skipped(modules, link):
    assert modules("editsOfLink", given={"schema": edit_schema(), "link": link})["json"] == []


KOREAN_STATES = (
    "explore",
    "worked",
    "flow&lens=1",
    "explore&view=lens&editing=1",
    "explore&view=attribution&lesson=5",
)


@pytest.mark.parametrize("page", KOREAN_STATES)
def test_the_korean_page_shows_no_english_messages(explorer, messages, page):
    explorer.page.goto(f"{explorer.path.as_uri()}#language=ko&page={page}")
    explorer.page.wait_for_selector("#regard[data-ready]")
    explorer.settle()
    seen = explorer.page.evaluate(
        """() => {
          const parts = [document.getElementById("regard").innerText];
          for (const one of document.querySelectorAll("[title], [aria-label]")) {
            parts.push(one.getAttribute("title") ?? "", one.getAttribute("aria-label") ?? "");
          }
          return parts.join("\\n");
        }"""
    )
    for english, korean in messages.values():
        if "{" not in english and english != korean and len(english.split()) > 1:
            assert english.lower() not in seen.lower(), english
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
    assert "this head" in explorer.text(".sentence")


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_tools_of_a_pane_are_inside_it(open_page, file, language):
    page = open_page(file).open(f"language={language}")
    outside = page.evaluate(
        """() => [...document.querySelectorAll(".pane")].flatMap((pane) => {
          const { left, right } = pane.getBoundingClientRect();
          const tools = [...pane.querySelectorAll(".head :is(button, summary, select)")];
          const open = tools.filter((tool) => tool.checkVisibility());  // not in a closed menu
          const boxes = open.map((tool) => [tool.textContent, tool.getBoundingClientRect()]);
          const seen = boxes.filter(([, box]) => box.width);
          return seen.filter(([, box]) => box.left < left || box.right > right);
        })"""
    )
    assert outside == []


def test_labels_of_tokens_show_spaces_as_symbols(modules):
    labels = [
        modules("call", given={"module": "tokens", "name": "labelOf", "args": [token]})
        for token in ("▁dog", " dog ", "▁", "\n", "")
    ]
    assert labels == ["dog", "dog", "␣", "⏎", "∅"]
