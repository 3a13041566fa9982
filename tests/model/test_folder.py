"""Folders: old formats are brought up, and a crash never takes a good folder away."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from regard.errors import FileError
from regard.files import atomic_folder, existing_folder
from regard.model import Model
from regard.model_folder import MODEL_FILES, read_description


@pytest.mark.parametrize(
    ("family", "model", "task"),
    [
        ("transformer", {}, "translation"),
        ("seq2seq", {}, "translation"),
        ("decoder", {}, "language"),
        ("encoder", {}, "masked"),
        ("encoder", {"fill_head": False}, "embedding"),
        ("encoder", {"n_classes": 2}, "classification"),
        ("vision", {"n_classes": 2}, "classification"),
        ("vision", {"n_classes": None}, "embedding"),
    ],
)
def test_format_0_named_no_task_and_its_family_tells_it(tmp_path, family, model, task):
    (tmp_path / "config.json").write_text(json.dumps({"family": family, "model": model}))
    assert read_description(tmp_path).task == task


@pytest.mark.parametrize("family", ["encoder", "vision"])
def test_a_whole_folder_of_format_0_loads_as_the_same_model(make_bundle, tmp_path, family):
    model = make_bundle(family)
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({name: config[name] for name in ("family", "model")}))
    again = Model.load(tmp_path / "model")
    assert again.task == model.task
    assert (again.tokenizer is None) == (model.tokenizer is None)
    for name, weight in model.module.state_dict().items():
        assert torch.equal(weight, again.module.state_dict()[name])
    again.save(tmp_path / "model")
    assert json.loads(file.read_text())["format"] == 1


def number_of(model):
    """One number that tells two models apart."""
    return model.module.tokens.weight[0, 0].item()


def die_at(step, model, folder):
    """In another process, save, and be killed at the given change of the file system."""
    child = os.fork()
    if child == 0:
        count = 0

        def counted(function):
            def call(*args, **options):
                nonlocal count
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **options)

            return call

        Path.rename, Path.replace = counted(Path.rename), counted(Path.replace)
        Path.mkdir, Path.unlink = counted(Path.mkdir), counted(Path.unlink)
        os.fsync, shutil.rmtree = counted(os.fsync), counted(shutil.rmtree)
        try:
            model.save(folder)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_a_save_that_is_killed_at_any_step_leaves_the_old_model_or_the_new(make_bundle, tmp_path):
    folder = tmp_path / "model"
    old, new = make_bundle("decoder", seed=1), make_bundle("decoder", seed=2)
    values = [number_of(old), number_of(new)]
    assert values[0] != values[1]
    seen, step = set(), 0
    while True:
        step += 1
        old.save(folder)
        (folder / "notes.txt").write_text("mine")
        killed = die_at(step, new, folder)
        value = number_of(Model.load(folder))
        assert value in values
        seen.add((value == values[1], folder.is_dir()))
        if not killed:
            break
    assert step > 12  # so many changes were tried
    assert seen == {(False, True), (False, False), (True, True)}  # before, between, after
    assert value == values[1]
    assert (folder / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]












def test_whoever_may_read_the_configuration_may_read_the_weights(make_bundle, tmp_path):
    before = os.umask(0o022)
    try:
        make_bundle("encoder").save(tmp_path / "model")
    finally:
        os.umask(before)
    files = list((tmp_path / "model").iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o644}
