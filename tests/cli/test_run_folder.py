"""The run folder: settings that a resumed run may change, and what is reported."""

import pytest

import regard
from regard.errors import InputError
from regard.training.build import check_model
from regard.training.callbacks import Callback
from regard.training.prepare_data import prepare
from regard.training.recipe import load_recipe
from regard.training.run_folder import clear_folder, open_folder, stored_recipe

STEPS = {"steps": 1}


def recipe(**training):
    data = {"generate": "dates", "count": 10}
    return load_recipe({"task": "translation", "data": data, "training": {"steps": 9} | training})


def begin(folder, **training):
    """Open a folder; what was said."""
    said = []
    open_folder(folder, recipe(**training), resume=True, report=said.append)
    return said


def test_changed_settings_are_reported_and_used(tmp_path):
    assert begin(tmp_path, lr=0.1, betas=[0.5, 0.9]) == []
    assert begin(tmp_path, lr=0.2, ema=0.5, betas=[0.5, 0.9]) == [
        "training.lr has changed from 0.1 to 0.2",
        "training.ema has changed from 0.0 to 0.5",
    ]
    assert stored_recipe(tmp_path) == recipe(lr=0.2, ema=0.5, betas=[0.5, 0.9])


def test_time_limit_stays_until_another_is_given(tmp_path):
    begin(tmp_path, minutes=30)
    (said,) = begin(tmp_path)
    assert "still ends after 30 minutes of training" in said
    assert stored_recipe(tmp_path).training.minutes == 30
    (said,) = begin(tmp_path)  # and again: it was kept
    assert "still ends after 30 minutes" in said
    assert begin(tmp_path, minutes=40) == ["training.minutes has changed from 30.0 to 40.0"]
    assert stored_recipe(tmp_path).training.minutes == 40


@pytest.mark.parametrize(("gain", "precision"), [(2.3, "bf16"), (1.1, "float32")])
def test_automatic_precision_is_measured_once_and_kept(tmp_path, gain, precision):
    chosen = recipe(precision="auto")
    said = []
    open_folder(tmp_path, chosen, resume=False, report=said.append, bf16_gain=lambda: gain)
    assert said == [
        f"precision: {precision}, because bf16 is {gain:.1f} times as fast as float32 in matrix "
        "products here"
    ]
    assert stored_recipe(tmp_path).training.precision == precision
    (tmp_path / "training" / "checkpoints" / "step-00000001").mkdir(parents=True)
    open_folder(tmp_path, chosen, resume=True, report=said.append, bf16_gain=lambda: 9 - gain)
    assert len(said) == 1
    assert stored_recipe(tmp_path).training.precision == precision


def test_fixed_settings_are_refused_after_the_first_checkpoint(tmp_path):
    begin(tmp_path, batch_tokens=10)
    assert begin(tmp_path, batch_tokens=20) == ["training.batch_tokens has changed from 10 to 20"]
    (tmp_path / "training" / "checkpoints" / "step-00000001").mkdir(parents=True)
    with pytest.raises(InputError, match=r"batch_tokens = 20 and cannot continue with 40: change"):
        begin(tmp_path, batch_tokens=40)
    assert stored_recipe(tmp_path).training.batch_tokens == 20


def test_folders_with_a_run_or_a_model_are_refused(tmp_path):
    begin(tmp_path / "run")
    open_folder(tmp_path / "run", recipe(), resume=False, report=print)  # it failed before a step
    (tmp_path / "run" / "training" / "metrics.jsonl").touch()
    with pytest.raises(InputError, match="already contains a run: continue it with --resume"):
        open_folder(tmp_path / "run", recipe(), resume=False, report=print)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="already contains a model"):
        open_folder(tmp_path, recipe(), resume=True, report=print)


def test_overwriting_deletes_the_run_and_the_model_and_nothing_else(tmp_path):
    begin(tmp_path)
    (tmp_path / "training" / "metrics.jsonl").touch()
    for name in ("config.json", "model.safetensors", "notes.txt"):
        (tmp_path / name).write_text("{}")
    clear_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    open_folder(tmp_path, recipe(), resume=False, report=print)
    clear_folder(tmp_path / "missing")


def test_model_settings_are_checked_before_the_data_are_read(tmp_path):
    data = {"train": "missing.tsv", "validation": 0.1}
    given = {"task": "translation", "data": data, "training": STEPS}
    with pytest.raises(InputError, match="no setting 'd_modl'; the nearest"):
        regard.train(given | {"model": {"d_modl": 8}}, tmp_path / "x")
    with pytest.raises(InputError, match="d_model is 10, which 4 heads"):
        regard.train(given | {"model": {"d_model": 10, "n_heads": 4}}, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    for name in ("dates", "digits", "shakespeare", "masked", "rnn-additive"):
        check_model(load_recipe(name))


class Messages(Callback):
    def __init__(self):
        self.texts = []

    def on_message(self, text):
        self.texts.append(text)


def test_a_split_of_one_example_or_without_a_class_is_reported(tmp_path):
    rows = [f"{'good' if i < 11 else 'bad'}\ttext number {i}\n" for i in range(12)]
    (tmp_path / "train.tsv").write_text("".join(rows))
    (tmp_path / "one.tsv").write_text("good\ta text\n")
    files = {"train": str(tmp_path / "train.tsv"), "validation": str(tmp_path / "one.tsv")}
    said = Messages()
    recipe = {"task": "classification", "data": files, "tokenizer": {"kind": "characters"}}
    recipe["training"] = STEPS
    prepare(load_recipe(recipe), tmp_path / "run", n_tokens=int, callback=said)
    assert "validation has 1 example, so its scores say little: hold out more" in said.texts
    assert "validation has no example of the classes bad" in said.texts
