"""The run folder: settings that a resumed run may change, and what is reported."""

import pytest

from regard.errors import InputError
from regard.training.recipe import load_recipe
from regard.training.run_folder import open_folder, stored_recipe


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
