"""Messages in Korean: they fit their templates, and are found when a message is printed.

`test_architecture.py` checks that every message of the source has one.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

from regard.cli.main import _COMMANDS
from regard.errors import InputError, check_choice, speaking, translate, user_language
from regard.figures.captions import CAPTIONS
from tests.messages import PACKAGE

REPOSITORY = PACKAGE.parent
KOREAN = tomllib.loads((PACKAGE / "messages.ko.toml").read_text("utf-8"))
PLACE = re.compile(r"\{\d+\}")
LOCALE = ("REGARD_LANGUAGE", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")


def test_korean_texts_have_the_places_of_their_templates():
    for template, text in KOREAN.items():
        assert set(PLACE.findall(text)) <= set(PLACE.findall(template)), template
        korean = re.search(r"[가-힣]", text) or template.startswith("pip install")
        assert korean or not re.search(r"[A-Za-z]{3} [a-z]{3}", template), text


DOUBLED = re.compile(
    r"은\(는\)|는\(은\)|이\(가\)|가\(이\)|을\(를\)|를\(을\)|\(으\)로|[와과]\([와과]\)"
)
# After {value} the form depends on the value; "이다" and "이며" fit all. "{x}을(를)" of the page
# is filled in by filled_messages.js, which knows how numbers end.
AFTER_VALUE = re.compile(r"\{\w*\}[\"'”’]?(?:으로|[이가은는을를로와과]|이라|라고|이나)(?![가-힣(])")
NUMBER_OR_KOREAN = re.compile(
    r"\{(?:[a-z]|best|deviation2|value|engine|head|precision)\}[”\"]?" + f"(?:{DOUBLED.pattern})"
)


def korean_texts() -> Iterator[tuple[str, str]]:
    """Yield every file of the package and the documentation that has Korean texts."""
    docs = [REPOSITORY / "README.ko.md", *(REPOSITORY / "docs").rglob("*.ko.md")]
    kinds = (".toml", ".json", ".md", ".py", ".html", ".js")
    for path in [*docs, *(path for path in PACKAGE.rglob("*") if path.suffix in kinds)]:
        if path.name != "filled_messages.js":
            yield path.name, path.read_text("utf-8")


def test_no_korean_text_leaves_the_choice_of_a_particle_to_the_reader():
    read = dict(korean_texts())
    assert {"messages.ko.toml", "captions.toml", "course_messages.js", "README.ko.md"} <= set(read)
    for name, text in read.items():
        filled = NUMBER_OR_KOREAN.sub("", text) if name.endswith("messages.js") else text
        assert DOUBLED.findall(filled) == [], name
    for text in [*KOREAN.values(), *(korean for _, korean in CAPTIONS.values())]:
        assert not AFTER_VALUE.search(text.replace("{share}", "%")), text


def test_every_template_is_found_when_its_places_are_filled():
    for template, text in KOREAN.items():

        def fill(one: str) -> str:
            return re.sub(r"\{(\d+)\}", r"⟨\1⟩", one)

        assert translate(fill(template), "ko", short=True) == fill(text)


def test_what_is_filled_in_is_translated_too():
    with pytest.raises(InputError) as caught:
        check_choice("stop", "beem", ("beam", "first"))
    assert translate(str(caught.value), "en") == str(caught.value)
    assert translate(str(caught.value), "ko") == (
        "stop 값이 'beem'입니다. beam, first 가운데 하나를 고르세요(비슷한 이름: beam)."
    )


def test_text_without_a_template_stays_as_it_is():
    assert translate("an unknown sentence.", "ko") == "an unknown sentence."
    assert translate("A Tale of Two Cities, part 2", "ko") == "A Tale of Two Cities, part 2"
    assert translate("12 s left", "ko") == "12 s left"
    assert translate("12 s left", "ko", short=True) == "12 s 남음"
    assert translate("", "ko") == ""


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "en_US.UTF-8", "LANGUAGE": "de:ko:en"}, "ko"),
        ({"LANG": "ko_KR.UTF-8", "REGARD_LANGUAGE": "en"}, "en"),
    ],
)
def test_the_environment_chooses_the_language(monkeypatch, environment, language):
    for name in LOCALE:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert user_language() == language
    with speaking("ko"):
        assert user_language() == "ko"
    assert user_language() == language


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if name not in LOCALE}
    return subprocess.run(
        [sys.executable, "-m", "regard", *arguments],
        env=plain | {"PYTHONIOENCODING": "utf-8", "TERMINAL_WIDTH": "80"} | environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


ALL_HELP = """
import sys
from regard.cli import main
for command in sys.argv.pop(1).split(","):
    sys.argv[1:] = [*command.split(), "--help"]
    try:
        main.run()
    except SystemExit:
        pass
"""


def test_help_in_korean_fits_the_terminal_and_has_no_english_sentence():
    groups = {"tokenizer": ["train", "encode", "decode"], "bench": ["translate", "attention"]}
    commands = [f"{name} {sub}" for name in groups for sub in groups[name]] + [*_COMMANDS, ""]
    done = subprocess.run(
        [sys.executable, "-c", ALL_HELP, ",".join(commands)],
        env=os.environ | {"REGARD_LANGUAGE": "ko", "TERMINAL_WIDTH": "80"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    lines = done.stdout.splitlines()
    assert sum("사용법:" in line for line in lines) == len(commands)
    assert [line for line in lines if cell_len(line) > 80 or line.endswith("… │")] == []
    english = re.compile(r"\b(the|this|that|with|from|each|every|Example|Options|default)\b")
    assert [line for line in lines if english.search(line) and "regard " not in line] == []


def test_errors_of_options_are_korean_and_english_is_unchanged():
    korean = run("--language", "ko", "translate", "en-de", "hi", "--beam", "x")
    assert korean.returncode == 2
    assert "'--beam' 값이 잘못되었습니다: 정수를 써야 합니다" in korean.stderr
    assert "오류" in korean.stderr
    unknown = run("translate", "en-xx", "hi", LANG="ko_KR.UTF-8")
    assert unknown.returncode == 2
    assert "제공되는 모델" in unknown.stderr
    english = run("translate", "en-xx", "hi", LANG="en_US.UTF-8")
    assert "is neither a bundled model" in english.stderr
    other = run("--language", "fr")
    assert other.returncode == 2
    assert "language is 'fr'; it can be en or ko" in other.stderr


def test_the_limits_of_a_model_are_said_in_korean():
    printed = run("--language", "ko", "models", "dates").stdout
    assert "## 한계" in printed
    assert "24개 언어의 형식으로 읽습니다" in printed
    assert "라이선스: Apache-2.0" in printed
