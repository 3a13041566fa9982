"""Bundles: saved and loaded bit by bit, and refused with a sentence when something is wrong."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from regard.errors import FileError, InputError, RegardError, UnknownNameError
from regard.model import Model
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
def test_a_bundle_of_every_family_comes_back_bit_by_bit(make_bundle, tmp_path, family):
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
    assert (config["format"], config["family"], config["task"]) == (1, "transformer", "translation")


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
    with pytest.raises(InputError, match=r"tokens\.weight has numbers that float16 cannot hold"):
        model.save(tmp_path / "model", dtype="float16")
    assert not (tmp_path / "model").exists()
    with pytest.raises(InputError, match="float32, float16, bfloat16, not as 'int3'"):
        model.save(tmp_path / "model", dtype="int3")


def cut(file):
    file.write_bytes(file.read_bytes()[:-100])


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
        ("model.safetensors", cut, r"model\.safetensors is damaged, cut off or another .*again"),
        ("model.safetensors", lambda f: f.write_bytes(b""), r"model\.safetensors is empty"),
        ("model.safetensors", lambda f: f.write_bytes(b"PK\3\4" * 99), r"another kind of file"),
        ("model.safetensors", rename_weight, r"has no weights 'tokens\.weight', so it belongs to"),
        ("model.safetensors", add_weight, r"has weights 'more' that the model does not"),
        ("model.safetensors", transpose_weight, r"tokens\.weight in .* has the shape \(8, \d+\)"),
        ("model.safetensors", use_integers, r"tokens\.weight in .* holds torch\.int32"),
        ("model.safetensors", lambda f: f.unlink(), r"model\.safetensors is not there: fetch"),
        ("config.json", cut, r"config\.json is damaged or cut off .*: fetch the folder again"),
        ("config.json", lambda f: f.write_text("[]"), r"config\.json holds no JSON object"),
        ("config.json", lambda f: f.unlink(), r"holds no config\.json, so it is no model folder"),
        ("config.json", lambda f: f.write_bytes(b"\xff\xfe"), r"config\.json is damaged"),
        ("tokenizer.json", cut, r"tokenizer .*tokenizer\.json cannot be used \(.*\): fetch the"),
        ("tokenizer.json", lambda f: f.write_text("{}"), r"tokenizer\.json cannot be used"),
        ("tokenizer.json", lambda f: f.unlink(), r"tokenizer\.json is not there, but config"),
        ("card.md", lambda f: f.write_bytes(b"\xff"), r"card\.md cannot be read as text"),
    ],
)
def test_a_damaged_or_foreign_file_gives_a_sentence_that_names_it(folder, name, damage, sentence):
    damage(folder / name)
    with pytest.raises(FileError, match=sentence) as caught:
        Model.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": 2}, r"has format 2, and this version of regard reads formats up to 1: update"),
        ({"format": "one"}, r"has the format 'one', which is no number"),
        ({"format": True}, r"has the format True"),
        ({"format": -1}, r"has the format -1"),
        ({"task": "absent"}, r"config\.json does not say 'task'"),
        ({"task": "cooking"}, r"names the task 'cooking'; the nearest"),
        ({"model": []}, r"are no JSON object"),
        ({"family": "bird"}, r"config\.json cannot be used, for there is no family .*'bird'"),
        ({"model": {"n_vocab": 4, "d_modle": 8}}, r"no setting 'd_modle'; the nearest are d_model"),
        ({"pixels": {"mean": [1]}}, r"pixels are described by"),
        ({"labels": ["a"]}, r"1 labels for a model of None classes"),
        ({"tokenizer": {"start": "[NO]"}}, r"no token '\[NO\]' for the role start"),
    ],
)
def test_a_configuration_that_makes_no_sense_gives_a_sentence(folder, changes, sentence):
    change_config(folder, **changes)
    with pytest.raises(RegardError, match=sentence) as caught:
        Model.load(folder)
    assert "config.json" in str(caught.value) or str(folder) in str(caught.value)


def test_a_folder_without_a_card_loads(folder):
    (folder / "card.md").unlink()
    assert Model.load(folder).card.data == ""


def test_pickled_weights_are_never_opened(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(FileError, match=r"pytorch_model\.bin, a pickle, .* never does"):
        Model.load(folder)


def test_a_hugging_face_folder_is_told_apart(folder):
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(FileError, match=r"is a Hugging Face folder: .*regard import"):
        Model.load(folder)


def test_a_folder_that_is_not_there_and_a_tokenizer_too_large_are_refused(make_bundle, tmp_path):
    with pytest.raises(FileError, match="is no folder"):
        Model.load(tmp_path / "nowhere")
    large = train_tokenizer(["abcdefghijklmnopqrstuvwxyz "] * 2, kind="byte-bpe", vocab_size=261)
    with pytest.raises(InputError, match="261 tokens, but the model was made for"):
        make_bundle("decoder", tokenizer=large)


def test_a_bundle_refuses_labels_and_tasks_that_do_not_fit(make_bundle):
    with pytest.raises(InputError, match="2 labels for a model of 3 classes"):
        make_bundle("vision", labels=("cat", "dog"))
    good = make_bundle("decoder")
    with pytest.raises(UnknownNameError, match=r"no task 'languages'; the nearest .* language"):
        Model(module=good.module, task="languages")
