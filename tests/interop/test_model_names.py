"""Models by name: bundled, in other packages, or folders."""

import pytest
import torch

import regard
from regard.errors import FileError, MissingExtraError, UnknownNameError
from regard.interop import model_names as names
from regard.interop.model_names import PackagedModel, bundled, find_bundled, find_model, named
from regard.model_folder import read_card


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
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


def test_a_missing_package_is_named_with_its_extra(cache, monkeypatch):
    absent = PackagedModel(package="no-such-package", folder="model", data="", license="")
    monkeypatch.setitem(names.PACKAGED, "absent", absent)
    with pytest.raises(MissingExtraError, match=r"no-such-package.*pip install 'regard\[absent\]'"):
        find_model("absent")
    assert "absent" not in named()


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A shelf with two models and something else."""
    for name in ("en-de", "dates"):
        (tmp_path / "zoo" / name).mkdir(parents=True)
        (tmp_path / "zoo" / name / "config.json").write_text("{}")
    (tmp_path / "zoo" / "draft").mkdir()
    monkeypatch.setattr(names, "ZOO", tmp_path / "zoo")
    return tmp_path / "zoo"


def test_bundled_models_are_folders_with_a_configuration(shelf):
    assert bundled() == {"dates": shelf / "dates", "en-de": shelf / "en-de"}
    assert find_bundled("en-de") == shelf / "en-de"


def test_a_folder_with_the_name_of_a_bundled_model_is_mentioned(
    shelf, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO", "regard.files")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dates").mkdir()
    assert find_bundled("dates") == shelf / "dates"
    assert not caplog.messages  # not a model folder
    (tmp_path / "dates" / "config.json").write_text("{}")
    assert find_bundled("dates") == shelf / "dates"
    assert find_bundled("./dates").samefile(tmp_path / "dates")
    assert caplog.messages == [
        "dates is the bundled model; write ./dates for the folder of this name."
    ]


def test_a_folder_is_found_by_its_path(shelf, tmp_path):
    (tmp_path / "mine").mkdir()
    assert find_bundled(tmp_path / "mine") == tmp_path / "mine"
    assert find_bundled(str(tmp_path / "mine")) == tmp_path / "mine"


def test_an_unknown_name_gets_the_nearest_and_says_that_a_folder_is_possible(shelf):
    with pytest.raises(UnknownNameError, match=r"'en-df' .*the nearest is en-de.* model folder"):
        find_bundled("en-df")


def test_a_file_is_refused(shelf, tmp_path):
    (tmp_path / "weights.bin").write_text("")
    with pytest.raises(FileError, match=r"is a file: give a model folder.*regard import"):
        find_bundled(tmp_path / "weights.bin")


def test_without_a_shelf_there_are_no_names(tmp_path, monkeypatch):
    monkeypatch.setattr(names, "ZOO", tmp_path / "nowhere")
    assert bundled() == {}
    with pytest.raises(UnknownNameError, match="there are none"):
        find_bundled("en-de")
