"""Recipes: defaults, overrides and errors."""

import pytest

from regard.errors import FileError, InputError, UnknownNameError
from regard.training.recipe import load_recipe, parse_override

LEAST = """
task = "translation"
[data]
generate = "dates"
[training]
epochs = 1
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(LEAST)
    return path


def test_task_data_and_a_limit_are_required(recipe):
    found = load_recipe(recipe)
    assert (found.task, found.data.generate, found.training.epochs) == ("translation", "dates", 1)
    assert found.training.betas == (0.9, 0.98)
    assert found.tokenizer.kind == "bpe"


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("training.lr=0.25", "lr", 0.25),
        ("training.lr = 3e-4", "lr", 3e-4),
        ("training.schedule=cosine", "schedule", "cosine"),
        ('training.schedule="linear"', "schedule", "linear"),
        ("training.compile=true", "compile", True),
        ('training.freeze=["encoder.*"]', "freeze", ["encoder.*"]),
        ("training.betas=[0.8, 0.9]", "betas", (0.8, 0.9)),
    ],
)
def test_every_key_can_be_set(recipe, change, key, value):
    assert getattr(load_recipe(recipe, dict([parse_override(change)])).training, key) == value


def test_missing_tables_can_be_set_and_the_last_override_wins(recipe):
    changes = ["model.preset=tiny", "evaluate.metric=exact", "evaluate.metric=bleu"]
    found = load_recipe(recipe, dict(map(parse_override, changes)))
    assert found.model == {"preset": "tiny"}
    assert found.evaluate.metric == "bleu"


def test_files_pairs_of_files_and_lists():
    two = {"source": "a.en", "target": "a.de"}
    base = {"task": "translation", "training": {"steps": 1}}
    found = load_recipe({**base, "data": {"train": ["x.tsv", two], "validation": two}})
    assert found.data.train[0] == "x.tsv"
    assert found.data.train[1].source == found.data.validation.source == "a.en"
    held_out = load_recipe({**base, "data": {"train": "x.tsv", "validation": 0.1}})
    assert held_out.data.validation == 0.1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("training.warmpu=1", r"mine\.toml: unknown key 'training\.warmpu'; the near.*warmup"),
        ("trainin.lr=1", r"unknown key 'trainin'; the nearest.*training"),
        ("data.augment={flp=true}", r"unknown key 'data\.augment\.flp'; the near.*flip"),
        ("training.lr=-1", r"mine\.toml: training\.lr is -1; it should be greater than 0"),
        ("training.schedule=cosin", r"training\.schedule is 'cosin'; it should be 'paper', "),
        ("training.epochs=many", r"training\.epochs is 'many'; it should be a valid number"),
        ("task=translate", r"task is 'translate'; it should be 'translation', 'language'"),
        ("data.train=x.tsv", r"\[data\] is not valid: give either train"),
        (
            "evaluate.metric=accuracy",
            r"mine\.toml: evaluate\.metric is 'accuracy', but the task translation has loss, "
            r"bleu, chrf, exact: choose one of these\.",
        ),
        ("training.lr", r"--set training\.lr is not KEY=VALUE: write it like"),
        ("task.x=1", r"the key task\.x cannot be set because task is not a table"),
    ],
)
def test_errors_name_file_and_key_in_one_sentence(recipe, change, sentence):
    with pytest.raises(InputError, match=sentence) as caught:
        load_recipe(recipe, dict([parse_override(change)]))
    assert "\n" not in str(caught.value)


def test_recipes_without_limit_task_or_valid_toml_are_refused(tmp_path):
    path = tmp_path / "r.toml"
    path.write_text('task = "language"\n[data]\ntrain = "x"\n[training]\nlr = 1.0')
    with pytest.raises(InputError, match="give a limit"):
        load_recipe(path)
    path.write_text('[data]\ntrain = "x"\n[training]\nsteps = 1')
    with pytest.raises(InputError, match="'task' is missing"):
        load_recipe(path)
    path.write_text("task = ")
    with pytest.raises(InputError, match=r"r\.toml is not valid TOML"):
        load_recipe(path)
    with pytest.raises(FileError, match="unknown recipe"):
        load_recipe(tmp_path / "none.toml")
    with pytest.raises(UnknownNameError):
        load_recipe({"task": "masked", "tsk": 1})


@pytest.mark.parametrize(
    ("task", "metric"), [("language", "bleu"), ("masked", "exact"), ("classification", "chrf")]
)
def test_metrics_of_other_tasks_are_refused(task, metric):
    given = {"task": task, "data": {"train": "x"}, "training": {"steps": 1}}
    with pytest.raises(InputError, match=f"'{metric}', but the task {task} has loss"):
        load_recipe({**given, "evaluate": {"metric": metric}})


def test_merge_dropout_is_for_translation_only():
    given = {"task": "masked", "data": {"train": "x"}, "training": {"steps": 1}}
    with pytest.raises(InputError, match=r"tokenizer\.split is 0\.1, but only .* is masked"):
        load_recipe({**given, "tokenizer": {"split": 0.1}})


def test_muon_cannot_be_sharded(recipe):
    changes = ["training.optimizer=muon", "training.shard=true"]
    with pytest.raises(InputError, match="muon needs whole matrices"):
        load_recipe(recipe, dict(map(parse_override, changes)))


def test_old_spellings_are_accepted_with_a_note(recipe, capsys):
    overrides = {"training.optimiser": "adamw", "model.initialisation": "normal", "licence": "CC0"}
    found = load_recipe(recipe, overrides)
    assert (found.training.optimizer, found.license) == ("adamw", "CC0")
    assert found.model == {"initialization": "normal"}
    assert "training.optimiser is now called training.optimizer" in capsys.readouterr().err
