"""Models by name, those of other packages among them."""

import pytest
import torch

import regard
from regard.errors import MissingExtraError
from regard.interop import model_names as names
from regard.interop.model_names import Elsewhere, find_model, named
from regard.model_folder import read_card


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_minilm_is_imported_once_and_found_from_then_on(cache):
    assert "minilm" not in named()
    folder = find_model("minilm")
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert named()["minilm"] == folder == find_model("minilm")
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    assert read_card(folder).license == "Apache-2.0"
    site = regard.load("minilm").trace("The dog sleeps.")["encoder.layers.5.self"]
    assert site.n_heads == 12
    torch.testing.assert_close(site.weights(head=3).sum(-1), torch.ones(site.n_query))


def test_a_folder_of_that_name_comes_first(cache, tmp_path, monkeypatch):
    (tmp_path / "minilm").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_model("minilm").resolve() == tmp_path / "minilm"


def test_a_package_that_is_not_installed_is_named_with_its_extra(cache, monkeypatch):
    absent = Elsewhere(package="no-such-package", folder="model", data="", license="")
    monkeypatch.setitem(names.ELSEWHERE, "absent", absent)
    with pytest.raises(MissingExtraError, match=r"no-such-package.*pip install 'regard\[absent\]'"):
        find_model("absent")
    assert "absent" not in named()
