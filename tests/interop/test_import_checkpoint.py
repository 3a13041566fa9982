"""Import: sharded weights, settings, hub names, and errors that say what is wrong."""

import json
import sys

import pytest
import torch
from safetensors.torch import save_file

from regard.errors import FileError, InputError, MissingExtraError
from regard.interop.families import REQUIRED, CheckpointSettings, read_settings, read_tensors
from regard.interop.import_checkpoint import download

A, B = {"a": torch.ones(2)}, {"b": torch.zeros(3)}


def write_parts(folder, index):
    save_file(A, folder / "model-1.safetensors")
    save_file(B, folder / "model-2.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_are_joined(tmp_path):
    write_parts(tmp_path, {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
    assert {name: len(tensor) for name, tensor in read_tensors(tmp_path).items()} == {
        "a": 2,
        "b": 3,
    }


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ({}, "has no 'weight_map'"),
        ({"weight_map": {"a": "../model-1.safetensors"}}, "which is outside of its folder"),
        ({"weight_map": {"a": "model-3.safetensors"}}, r"model-3\.safetensors does not exist, but"),
        ({"weight_map": {"c": "model-1.safetensors"}}, "lists 'c', which is in none of its files"),
    ],
)
def test_an_index_that_does_not_match_is_refused(tmp_path, index, sentence):
    write_parts(tmp_path, index)
    with pytest.raises(FileError, match=sentence):
        read_tensors(tmp_path)


def test_pickled_weights_are_never_opened(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    with pytest.raises(
        FileError, match=r"pytorch_model\.bin, a pickle, .* regard does not open it"
    ):
        read_tensors(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(FileError, match=r"model\.safetensors does not exist: download"):
        read_tensors(tmp_path)


def test_a_folder_without_settings_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"has no config\.json, so it is not a Hugging Face folder"):
        read_settings(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(FileError, match=r"config\.json is not valid JSON"):
        read_settings(tmp_path)


def test_settings_have_defaults_and_checks(tmp_path):
    settings = CheckpointSettings(
        tmp_path / "config.json", {"a": 1, "b": None, "architectures": ["X"]}
    )
    assert (settings.get("a"), settings.get("b", 2), settings.architecture) == (1, 2, "X")
    assert (
        CheckpointSettings(tmp_path, {}).architecture
        == CheckpointSettings(tmp_path, {}).model_type
        == ""
    )
    with pytest.raises(FileError, match="has no 'b'"):
        settings.get("b", REQUIRED)
    settings.check(a=1, b=7)
    with pytest.raises(InputError, match=r"has a = 1, but .* only with 2\."):
        settings.check(a=2)


@pytest.mark.parametrize("name", ["/nowhere/at all", "./here", "a/b/c", "../up"])
def test_paths_are_not_looked_up_on_the_hub(name):
    with pytest.raises(FileError, match="does not exist: check the path"):
        download(name)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        MissingExtraError, match=r"gpt2 is not a folder; .* pip install 'regard\[interop\]"
    ):
        download("gpt2")


def test_download_errors_are_one_sentence(monkeypatch):
    import huggingface_hub

    def fail(name, **options):
        raise ConnectionError("no route to the hub.\nmany\nmore lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(
        FileError, match=r"cannot be downloaded .* \(no route to the hub\): check the name"
    ):
        download("user/model")


def test_only_files_that_cannot_run_code_are_downloaded(monkeypatch, tmp_path):
    import huggingface_hub

    asked = {}

    def give(name, *, allow_patterns):
        asked[name] = allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", give)
    assert download("gpt2") == tmp_path
    assert not {"*.bin", "*.pt", "*.py", "*"} & set(asked["gpt2"])
    assert "*.safetensors" in asked["gpt2"]
