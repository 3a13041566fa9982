"""Foreign folders: parts, indices and everything that can be wrong with them."""

import json

import pytest
import torch
from safetensors.torch import save_file

from regard.errors import FileError, InputError
from regard.interop.families import Settings, read_settings, read_tensors

A, B = {"a": torch.ones(2)}, {"b": torch.zeros(3)}


def write_parts(folder, index):
    save_file(A, folder / "model-1.safetensors")
    save_file(B, folder / "model-2.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_parts_are_put_together(tmp_path):
    write_parts(tmp_path, {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
    assert {name: len(tensor) for name, tensor in read_tensors(tmp_path).items()} == {
        "a": 2,
        "b": 3,
    }


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ({}, "has no 'weight_map'"),
        ({"weight_map": {"a": "../model-1.safetensors"}}, "which is no file beside it"),
        ({"weight_map": {"a": "model-3.safetensors"}}, r"model-3\.safetensors is not there, but"),
        ({"weight_map": {"c": "model-1.safetensors"}}, "lists 'c', which none of its files has"),
    ],
)
def test_an_index_that_lists_what_is_not_there_is_refused(tmp_path, index, sentence):
    write_parts(tmp_path, index)
    with pytest.raises(FileError, match=sentence):
        read_tensors(tmp_path)


def test_pickled_weights_are_never_opened(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    with pytest.raises(FileError, match=r"pytorch_model\.bin, a pickle, .* regard never does"):
        read_tensors(tmp_path)
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(FileError, match=r"holds no model\.safetensors: fetch"):
        read_tensors(tmp_path)


def test_a_folder_without_settings_is_no_checkpoint(tmp_path):
    with pytest.raises(FileError, match=r"holds no config\.json, so it is no Hugging Face folder"):
        read_settings(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json is not valid JSON"):
        read_settings(tmp_path)


def test_settings_speak_for_themselves(tmp_path):
    settings = Settings(tmp_path / "config.json", {"a": 1, "b": None, "architectures": ["X"]})
    assert (settings.get("a"), settings.get("b", 2), settings.architecture) == (1, 2, "X")
    assert Settings(tmp_path, {}).architecture == Settings(tmp_path, {}).kind == ""
    with pytest.raises(FileError, match="does not say 'b'"):
        settings.need("b")
    settings.only("a", 1, why="")
    settings.only("b", 7, why="")
    with pytest.raises(InputError, match="says a = 1, and that is wrong"):
        settings.only("a", 2, why="and that is wrong")
