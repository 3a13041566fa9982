"""docs/recipes.md lists every key of a recipe with its default, and so does its translation."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from regard.data.text_checks import PROBLEMS, Checks
from regard.models.config import FAMILIES, config_class
from regard.training.recipe import (
    DataSettings,
    EvaluateSettings,
    Recipe,
    TokenizerSettings,
    TrainingSettings,
    load_recipe,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "recipes.md").read_text("utf-8")
PARTS = dict(zip(*[iter(re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))


def table_rows(page: str) -> list[tuple[str, ...]]:
    return re.findall(r"^\| (`\w+`) \| (.*?) \|", page, re.MULTILINE)


def test_the_korean_page_has_the_same_keys_defaults_and_values():
    path = Path(__file__).resolve().parents[2] / "docs" / "recipes.ko.md"
    korean = path.read_text("utf-8").split("## [model]")[0]
    english = PAGE.split("## [model]")[0]
    assert table_rows(korean) == table_rows(english)
    model = [
        re.findall(r"`[^`]+`", part.split("## [model]")[1])
        for part in (PAGE, path.read_text("utf-8"))
    ]
    assert set(model[0]) == set(model[1])


def rows(part: str) -> dict[str, str]:
    """Return the keys of a table with their defaults."""
    found = re.findall(r"^\| `(\w+)` \| (.*?) \|", PARTS[part], re.MULTILINE)
    assert len(found) == len(dict(found))
    return dict(found)


def written(value: Any) -> str:
    """A value as the page writes it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return str(list(value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    ("part", "section"),
    [
        ("[data]", DataSettings),
        ("[tokenizer]", TokenizerSettings),
        ("[training]", TrainingSettings),
        ("[evaluate]", EvaluateSettings),
    ],
)
def test_every_key_is_there_with_its_default(part, section):
    defaults = {name: written(field.default) for name, field in section.model_fields.items()}
    assert rows(part) == defaults


def test_every_check_is_there_with_its_default():
    defaults = {field.name: field.default for field in fields(Checks)}
    assert rows("data.checks") == {
        name: written(value) for name, value in defaults.items() if name in PROBLEMS
    }
    for name in defaults.keys() - PROBLEMS.keys():
        assert f"`{name}` ({written(defaults[name])})" in PARTS["data.checks"]


def test_every_field_of_a_model_is_there_and_no_other():
    named = set()
    for line in re.findall(r"^\| (`.*?) \|", PARTS["[model]"], re.MULTILINE):
        named |= set(re.findall(r"`(\w+)`", line))
    configs = map(config_class, FAMILIES)
    assert named == {field.name for config in configs for field in fields(config)}


def test_top_level_keys_are_named_and_the_shortest_recipe_is_valid():
    for name in Recipe.model_fields:
        assert f"`{name}`" in PAGE or f"## [{name}]" in PAGE
    load_recipe(tomllib.loads(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]))
