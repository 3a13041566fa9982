"""The bundled recipes: each is valid, documents its time and score, and trains."""

import gzip
from itertools import islice
from pathlib import Path

import pytest
import torch

import regard
from regard.layers.attention_forms import FORMS
from regard.models.seq2seq import ATTENTIONS
from regard.training.build import (
    build_seeded,
    complete_config,
    config_fields,
    image_tokens,
    make_train_step,
)
from regard.training.distributed import World
from regard.training.optimizer import make_schedule
from regard.training.prepare_data import prepare
from regard.training.recipe import load_recipe, parse_override

FOLDER = Path(regard.__file__).parent / "recipes"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
NEEDS = {
    "attention": "shakespeare",
    "masked": "shakespeare",
    "shakespeare": "shakespeare",
    "multi30k": "multi30k",
    "rnn": "multi30k",
    "tatoeba": "tatoeba",
    "en": "localisation",
    "english": "english-german",
    "en-de": "english-german",
    "en-ko": "english-korean",
    "fashion": "fashion-mnist",
}


def data_of(name: str) -> str | None:
    return NEEDS.get(name) or NEEDS.get(name.partition("-")[0])


@pytest.fixture(scope="module")
def beginnings(data, tmp_path_factory):
    """The data with only the beginning of each text, so that preparing them takes no minutes."""
    folder = tmp_path_factory.mktemp("beginnings")
    for path in (path for part in set(NEEDS.values()) for path in (data / part).rglob("*")):
        copy = folder / path.relative_to(data)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".gz" and "idx" not in path.name:
            with gzip.open(path, "rb") as whole, gzip.open(copy, "wb", compresslevel=1) as part:
                part.writelines(islice(whole, 100 if "english-" in str(path) else 800))
        elif path.is_file():
            copy.symlink_to(path.resolve())
    return folder


def test_all_recipes_are_bundled():
    wanted = {
        "dates",
        "dates-transformer",
        "en-de",
        "multi30k-tiny",
        "multi30k-small",
        "tatoeba-en-de",
        "en-ko",
        "masked",
        "english-masked",
        "english-efficient",
    }
    wanted |= {"shakespeare", "shakespeare-bpe", "digits", "fashion"}
    wanted |= {f"rnn-{kind}" for kind in ATTENTIONS} | {f"attention-{form}" for form in FORMS}
    assert set(NAMES) == wanted


def test_the_folder_recipes_lists_them():
    assert {path.stem for path in (FOLDER.parents[1] / "recipes").glob("*.toml")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_recipes_are_valid_and_state_time_and_score(name):
    load_recipe(FOLDER / f"{name}.toml")
    head = "".join(
        line for line in (FOLDER / f"{name}.toml").read_text().splitlines() if line.startswith("#")
    )
    assert "Time and score: " in head
    assert len(head) > 80


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.data(data_of(n))] if data_of(n) else []) for n in NAMES],
)
def test_training_steps_lower_the_loss(name, tmp_path_factory, monkeypatch, request):
    changes = ["data.count=500", "training.batch_tokens=200", "training.warmup=1"]
    if data_of(name):
        monkeypatch.setenv("REGARD_DATA", str(request.getfixturevalue("beginnings")))
    recipe = load_recipe(
        FOLDER / f"{name}.toml",
        {**dict(map(parse_override, changes)), "training.precision": "float32"},
    )
    torch.set_num_threads(1)
    fields = config_fields(recipe)
    # recipes that share data and tokenizer share what is prepared
    key = f"{recipe.data.model_dump_json()}{recipe.tokenizer.model_dump_json()}"
    home = tmp_path_factory.getbasetemp() / f"recipe-{hash(key)}"
    datasets = prepare(recipe, home, n_tokens=lambda side: image_tokens(fields, side))
    config = complete_config(fields, recipe, datasets)
    train_step = make_train_step(recipe, build_seeded(config, 1), World())
    feed = datasets.loader(batch_tokens=200, accumulate=1, seed=1)
    assert make_schedule(recipe.training, config.d_model).lr > 0
    parts = feed.next_step()
    first, second = (train_step.run(parts, step=step, lr=1e-3).loss for step in (1, 2))
    assert second < first
