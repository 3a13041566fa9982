"""Model folders: saved and loaded bit by bit, safe against crashes, damage named."""

import json
import os
import shutil
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from regard.errors import FileError, InputError, RegardError, UnknownNameError
from regard.model import Model
from regard.model_folder import Card, parse_card, read_description
from regard.text.tokenizer_training import train_tokenizer

FAMILIES = ["transformer", "seq2seq", "encoder", "decoder", "vision"]


@pytest.fixture(scope="module")
def saved(make_bundle, tmp_path_factory):
    """A folder with a good model; never changed."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    make_bundle("transformer").save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of it that a test may damage."""
    return shutil.copytree(saved, tmp_path / "model")


def change_config(folder, **changes):
    file = folder / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: part for name, part in config.items() if part != "absent"}))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_every_family_is_loaded_as_it_was_saved(make_bundle, tmp_path, family):
    model = make_bundle(family, extras={"languages": ["en", "de"]})
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    old, new = model.module.state_dict(), again.module.state_dict()
    assert list(old) == list(new)
    assert all(torch.equal(old[name], new[name]) for name in old)
    assert again.config == model.config
    assert (again.task, again.labels, again.pixels) == (model.task, model.labels, model.pixels)
    assert again.extras == {"languages": ["en", "de"]}
    assert (again.card.data, again.card.license) == ("two sentences", "CC0")
    assert "parameters" in again.card.size
    assert not again.module.training
    assert all(weight.requires_grad for weight in again.module.parameters())
    if model.tokenizer is not None:
        assert again.tokenizer.fingerprint == model.tokenizer.fingerprint
        assert again.target_tokenizer is again.tokenizer


def test_a_folder_holds_exactly_the_four_files(saved):
    names = sorted(path.name for path in saved.iterdir())
    assert names == ["card.md", "config.json", "model.safetensors", "tokenizer.json"]
    config = json.loads((saved / "config.json").read_text())
    assert (config["format"], config["family"], config["task"]) == (2, "transformer", "translation")


def test_a_target_may_have_its_own_tokenizer_and_roles(make_bundle, tmp_path, small_tokenizer):
    other = train_tokenizer(["läuft am Strand"] * 2, kind="characters", vocab_size=30)
    other = type(other)(other.backend, roles={"start": "[PAD]"})
    make_bundle("transformer", target_tokenizer=other).save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert again.tokenizer.fingerprint == small_tokenizer.fingerprint
    assert again.target_tokenizer.fingerprint == other.fingerprint
    assert (again.tokenizer.start_id, again.target_tokenizer.start_id) == (2, 0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_sized_weights_are_loaded_as_float32_unless_asked_otherwise(
    make_bundle, tmp_path, dtype
):
    model = make_bundle("decoder")
    model.save(tmp_path / "model", dtype=dtype)
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {getattr(torch, dtype)}
    again = Model.load(tmp_path / "model")
    for name, weight in model.module.state_dict().items():
        assert again.module.state_dict()[name].dtype == torch.float32
        assert_close(again.module.state_dict()[name], weight, rtol=0.01, atol=1e-4)
    as_stored = Model.load(tmp_path / "model", dtype=None)
    assert next(as_stored.module.parameters()).dtype == getattr(torch, dtype)


def test_numbers_that_float16_cannot_hold_are_not_stored_in_it(make_bundle, tmp_path):
    model = make_bundle("decoder")
    with torch.no_grad():
        model.module.tokens.weight[0, 0] = 1e6
    with pytest.raises(InputError, match=r"tokens\.weight has numbers out of the range of float16"):
        model.save(tmp_path / "model", dtype="float16")
    assert not (tmp_path / "model").exists()
    with pytest.raises(InputError, match="float32, float16, bfloat16, not as 'int3'"):
        model.save(tmp_path / "model", dtype="int3")


def cut(file):
    file.write_bytes(file.read_bytes()[:-100])


def half_surrogate(file):
    file.write_text(file.read_text("utf-8").replace("[PAD]", "\\ud83d"), "utf-8")


def rename_weight(file):
    weights = load_file(file)
    weights["elsewhere"] = weights.pop("tokens.weight")
    save_file(weights, file)


def add_weight(file):
    save_file(load_file(file) | {"more": torch.zeros(1)}, file)


def transpose_weight(file):
    weights = load_file(file)
    weights["tokens.weight"] = weights["tokens.weight"].T.contiguous()
    save_file(weights, file)


def use_integers(file):
    weights = load_file(file)
    weights["tokens.weight"] = weights["tokens.weight"].int()
    save_file(weights, file)


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    [
        (
            "model.safetensors",
            cut,
            r"model\.safetensors is damaged, truncated or .*again",
        ),
        ("model.safetensors", lambda f: f.write_bytes(b""), r"model\.safetensors is empty"),
        ("model.safetensors", lambda f: f.write_bytes(b"PK\3\4" * 99), r"of another kind"),
        ("model.safetensors", rename_weight, r"has no weights 'tokens\.weight', so it belongs to"),
        ("model.safetensors", add_weight, r"has weights 'more' that the model does not"),
        ("model.safetensors", transpose_weight, r"tokens\.weight in .* has the shape \(8, \d+\)"),
        ("model.safetensors", use_integers, r"tokens\.weight in .* holds torch\.int32"),
        ("model.safetensors", lambda f: f.unlink(), r"model\.safetensors does not exist: download"),
        ("config.json", cut, r"config\.json is not valid JSON"),
        ("config.json", half_surrogate, r"config\.json is not valid JSON: .* surrogates"),
        ("config.json", lambda f: f.write_text("[]"), r"config\.json contains a JSON list"),
        ("config.json", lambda f: f.unlink(), r"has no config\.json, so it is not a model folder"),
        ("config.json", lambda f: f.write_bytes(b"\xff\xfe"), r"config\.json is not valid JSON"),
        ("tokenizer.json", cut, r"tokenizer .*tokenizer\.json cannot be used \(.*\): download the"),
        ("tokenizer.json", lambda f: f.write_text("{}"), r"tokenizer\.json cannot be used"),
        ("tokenizer.json", lambda f: f.unlink(), r"tokenizer\.json does not exist, but config"),
        ("card.md", lambda f: f.write_bytes(b"\xff"), r"card\.md cannot be read as text"),
    ],
)
def test_damaged_files_are_named(folder, name, damage, sentence):
    damage(folder / name)
    with pytest.raises(FileError, match=sentence) as caught:
        Model.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": 3}, r"has format 3, but this version of regard reads formats up to 2: update"),
        ({"format": "one"}, r"has the format 'one', which is not a number"),
        ({"format": True}, r"has the format True"),
        ({"format": -1}, r"has the format -1"),
        ({"task": "absent"}, r"config\.json has no 'task'"),
        ({"task": "cooking"}, r"the task in .* is 'cooking'; choose one of translation"),
        ({"model": []}, r"the value of 'model' in .* is damaged"),
        ({"labels": 3}, r"the value of 'labels' in .* is damaged"),
        ({"tokenizer": 7}, r"the value of 'tokenizer' in .* is damaged"),
        ({"extras": {"target_ratios": [1]}}, r"the value of 'extras' in .* is damaged"),
        ({"extras": {"longest_source": "x"}}, r"the value of 'extras' in .* is damaged"),
        ({"family": "bird"}, r"cannot be used because family is 'bird'"),
        ({"model": {"n_vocab": 4, "d_modle": 8}}, r"no setting 'd_modle'; the nearest are d_model"),
        ({"pixels": {"mean": [1]}}, r"pixels are described by"),
        ({"labels": ["a"]}, r"1 labels for a model of None classes"),
        ({"tokenizer": {"start": "[NO]"}}, r"no token '\[NO\]' for the role start"),
    ],
)
def test_invalid_configurations_are_refused(folder, changes, sentence):
    change_config(folder, **changes)
    with pytest.raises(RegardError, match=sentence) as caught:
        Model.load(folder)
    assert "config.json" in str(caught.value) or str(folder) in str(caught.value)


def test_a_folder_without_a_card_loads(folder):
    (folder / "card.md").unlink()
    assert Model.load(folder).card.data == ""


def test_pickled_weights_are_never_opened(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(FileError, match=r"pytorch_model\.bin, a pickle, .* does not open it"):
        Model.load(folder)


def test_a_hugging_face_folder_is_recognized(folder):
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(FileError, match=r"is a Hugging Face folder: .*regard import"):
        Model.load(folder)


def test_missing_folders_and_too_large_tokenizers_are_refused(make_bundle, tmp_path):
    with pytest.raises(FileError, match="is not a folder"):
        Model.load(tmp_path / "nowhere")
    large = train_tokenizer(["abcdefghijklmnopqrstuvwxyz "] * 2, kind="byte-bpe", vocab_size=261)
    with pytest.raises(InputError, match="261 tokens, but the model was made for"):
        make_bundle("decoder", tokenizer=large)


def test_labels_and_tasks_that_do_not_match_are_refused(make_bundle):
    with pytest.raises(InputError, match="2 labels for a model of 3 classes"):
        make_bundle("vision", labels=("cat", "dog"))
    good = make_bundle("decoder")
    with pytest.raises(UnknownNameError, match=r"task is 'languages'; .*the nearest is language"):
        Model(module=good.module, task="languages")


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
def test_the_task_of_format_0_follows_from_the_family(tmp_path, family, model, task):
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
    assert json.loads(file.read_text())["format"] == 2


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


def test_a_save_killed_at_any_step_leaves_the_old_or_the_new_model(make_bundle, tmp_path):
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


def test_all_files_have_the_permissions_of_the_umask(make_bundle, tmp_path):
    before = os.umask(0o022)
    try:
        make_bundle("encoder").save(tmp_path / "model")
    finally:
        os.umask(before)
    files = list((tmp_path / "model").iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o644}


def test_a_card_is_written_as_facts_between_two_fences_and_text():
    card = Card(data="Tatoeba", license="CC-BY 2.0", score="30", size="9 MB", date="2025-01-02")
    lines = ["data: Tatoeba", "license: CC-BY 2.0", "score: 30", "size: 9 MB", "date: 2025-01-02"]
    assert str(card).splitlines() == ["---", *lines, "---"]


def test_a_card_is_parsed_as_it_was_written():
    card = Card(data="a: b", text="# Title\n\nprose\n---\nmore", others={"author": "a person"})
    assert parse_card(str(card)) == card


def test_a_file_without_fences_is_all_text():
    assert parse_card("# Mine\n\nwords") == Card(text="# Mine\n\nwords")
    assert parse_card("---\nno second fence") == Card(text="---\nno second fence")
    assert parse_card("") == Card()


def test_a_card_gets_a_size_and_todays_date_but_keeps_a_date_it_has():
    today = datetime.now(UTC).date().isoformat()
    assert Card().filled(size="1 kB").date == today
    assert Card(date="2020-01-01").filled(size="1 kB") == Card(date="2020-01-01", size="1 kB")
