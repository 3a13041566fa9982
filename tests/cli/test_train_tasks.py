"""`regard train` for every task: text that goes on, gaps, classes of texts and of images."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from regard.cli.main import app
from regard.data.image_files import read_image
from regard.errors import InputError
from regard.model import Model
from regard.server.catalog import Catalog
from regard.server.jobs import Job
from regard.server.model_inputs import TraceRequest
from regard.server.service import Service

pytestmark = pytest.mark.long

SMALL = "d_model = 16\nn_heads = 2\nd_ff = 32\nn_layers = 1\ndropout = 0.0\n"
TRAINING = """
[training]
lr = 0.02
schedule = "cosine"
warmup = 3
label_smoothing = 0.0
batch_tokens = 512
steps = 30
validate_every = 15
threads = 1
"""


@pytest.fixture
def train(tmp_path):
    """A function that trains a recipe: train(text, *changes) gives the outcome and the bundle."""

    def trained(text, *changes, folder="m"):
        path = tmp_path / "recipe.toml"
        path.write_text(text)
        sets = [part for change in changes for part in ("--set", change)]
        given = ["train", str(path), "-o", str(tmp_path / folder), "--json", *sets]
        found = CliRunner().invoke(app, given)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        first = next(
            json.loads(line)
            for line in (tmp_path / folder / "training/metrics.jsonl").read_text().splitlines()
            if "validation" in line
        )
        return first["validation"], json.loads(found.stdout), Model.load(tmp_path / folder)

    return trained


def examples(model):
    """The texts or images that the explorer offers for a model, each of which it can trace."""
    service = Service(Catalog([model.folder]))
    entry = next(iter(service.catalog.entries.values()))
    found = entry.examples()
    for one in found:
        asked = {"model": entry.name, "text": one.text, "image": one.image}
        service.trace(TraceRequest.model_validate(asked), Job(lambda job: None))
    service.close()
    return [one.text or one.name for one in found]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "song.txt"
    path.write_text("one and two and three and four\n" * 200)
    return path


def test_language_models_learn_the_next_token(train, text):
    recipe = f'task = "language"\n[data]\ntrain = "{text}"\nvalidation = 0.1\nwindow = 16\n'
    recipe += f'[tokenizer]\nkind = "characters"\n[model]\nmax_positions = 16\n{SMALL}{TRAINING}'
    first, last, model = train(recipe, 'evaluate.snapshots=["one and"]')
    assert last["validation"]["loss"] < first["loss"]
    assert last["validation"]["perplexity"] < 4
    assert model.task == "language"
    assert model.tokenizer.id_of("\n") is not None
    shown = examples(model)  # they leave half of the 16 positions for what the model writes
    assert "one and" in shown
    assert all("one and".startswith(one) for one in shown)


def test_masked_models_learn_to_fill_gaps(train, text):
    recipe = f'task = "masked"\n[data]\ntrain = "{text}"\n'
    recipe += f'validation = "{text}"\n[tokenizer]\nkind = "wordpiece"\nsize = 60\n[model]\n'
    first, last, model = train(f"{recipe}{SMALL}{TRAINING}")
    assert last["validation"]["loss"] < first["loss"]
    assert model.task == "masked"
    assert examples(model) == ["one and two [MASK] three and four"]


def test_classes_of_texts_are_learned_and_named(train, tmp_path):
    path = tmp_path / "labels.tsv"
    rows = [
        ("warm", "sun sun light"),
        ("cold", "snow and ice"),
        ("warm", "hot sun"),
        ("cold", "ice"),
    ]
    path.write_text(
        "".join(f"{label}\t{text} {n % 9}\n" for n in range(60) for label, text in rows)
    )
    recipe = f'task = "classification"\n[data]\ntrain = "{path}"\nvalidation = 0.2\n'
    recipe += f"[tokenizer]\nsize = 80\n[model]\n{SMALL}{TRAINING}"
    _, last, model = train(recipe, "evaluate.metric=accuracy")
    assert last["validation"]["accuracy"] > 0.95
    assert model.labels == ("cold", "warm")
    shown = examples(model)
    assert len(shown) == 8
    assert set(shown) <= {f"{text} {n}" for n in range(9) for _, text in rows}
    assert {model.classify(one)[0].text for one in shown} <= {"cold", "warm"}


def test_classes_of_images_are_learned_from_folders(train, tmp_path):
    dice = np.random.default_rng(0)
    for label, level in (("dark", 60), ("light", 180)):
        folder = tmp_path / "images" / label
        folder.mkdir(parents=True)
        for number in range(40):
            pixels = dice.integers(level - 50, level + 50, (8, 8, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    recipe = f'task = "classification"\n[data]\ntrain = "{tmp_path / "images"}"\n'
    recipe += "validation = 0.2\naugment = {shift = 1, flip = true}\n[model]\npatch_size = 4\n"
    _, last, model = train(f"{recipe}{SMALL}{TRAINING}", "evaluate.metric=accuracy")
    assert last["validation"]["accuracy"] > 0.9
    assert (model.family, model.labels) == ("vision", ("dark", "light"))
    assert model.config.image_size == 8
    assert model.pixels is not None
    assert examples(model) == ["dark", "light"]
    shown = read_image(model.folder / "examples" / "dark.png")
    files = map(read_image, (tmp_path / "images" / "dark").iterdir())
    assert any((shown == one).all() for one in files)  # as it is in the data


def test_recurrent_models_and_separate_vocabularies(train, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{n} {n}\tx{n}y\n" for n in range(10, 300)))
    recipe = f'task = "translation"\n[data]\ntrain = "{path}"\nvalidation = 0.1\n'
    recipe += '[tokenizer]\nkind = "characters"\njoint = false\n'
    recipe += f'[model]\nfamily = "seq2seq"\nd_model = 16\nattention = "dot"\n{TRAINING}'
    first, last, model = train(recipe)
    assert last["validation"]["loss"] < first["loss"]
    assert model.tokenizer.id_of("x") is None
    assert model.target_tokenizer.id_of("x") is not None
    shown = examples(model)
    assert len(set(shown)) == 8
    assert set(shown) <= {f"{n} {n}" for n in range(10, 300)}


def test_a_model_can_be_trained_further_with_frozen_parts(train, text, tmp_path):
    recipe = f'task = "masked"\n[data]\ntrain = "{text}"\nvalidation = "{text}"\n'
    recipe += f'[tokenizer]\nkind = "wordpiece"\nsize = 60\n[model]\n{SMALL}{TRAINING}'
    _, _, before = train(recipe, folder="first")
    path = tmp_path / "labels.tsv"
    path.write_text("a\tone and two\nb\tthree and four\n" * 50)
    other = f'task = "classification"\n[data]\ntrain = "{path}"\nvalidation = "{path}"\n'
    other += f'[model]\nstart_from = "{tmp_path / "first"}"\n{TRAINING}'
    changes = ['training.freeze=["encoder.*", "tokens"]', "evaluate.metric=accuracy"]
    _, last, after = train(other, *changes, folder="second")
    assert last["validation"]["accuracy"] == 1.0
    assert after.config.n_classes == 2
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    weights = after.module.state_dict()
    for name, value in before.module.state_dict().items():
        if name.startswith(("encoder.", "tokens")):
            assert (weights[name] == value).all(), name


def test_families_that_do_not_fit_the_task_are_refused(train, text):
    recipe = f'task = "language"\n[data]\ntrain = "{text}"\n[model]\nfamily = "vision"\n{TRAINING}'
    with pytest.raises(
        InputError, match="which cannot be trained on the task language: use decoder"
    ):
        train(recipe)
