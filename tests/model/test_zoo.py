"""Models by name."""

import pytest

from regard.errors import FileError, UnknownNameError
from regard.interop import model_names as zoo
from regard.interop.model_names import bundled, find_bundled


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A shelf with two models and something else."""
    for name in ("en-de", "dates"):
        (tmp_path / "zoo" / name).mkdir(parents=True)
        (tmp_path / "zoo" / name / "config.json").write_text("{}")
    (tmp_path / "zoo" / "draft").mkdir()
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "zoo")
    return tmp_path / "zoo"


def test_bundled_models_are_folders_with_a_configuration(shelf):
    assert bundled() == {"dates": shelf / "dates", "en-de": shelf / "en-de"}
    assert find_bundled("en-de") == shelf / "en-de"


def test_a_folder_is_found_by_its_path(shelf, tmp_path):
    (tmp_path / "mine").mkdir()
    assert find_bundled(tmp_path / "mine") == tmp_path / "mine"
    assert find_bundled(str(tmp_path / "mine")) == tmp_path / "mine"


def test_an_unknown_name_gets_the_nearest_and_says_that_a_folder_is_possible(shelf):
    with pytest.raises(UnknownNameError, match=r"'en-df' .*the nearest is en-de.* model folder"):
        find_bundled("en-df")


def test_a_file_is_no_model(shelf, tmp_path):
    (tmp_path / "weights.bin").write_text("")
    with pytest.raises(FileError, match=r"is a file; give the folder .*regard import"):
        find_bundled(tmp_path / "weights.bin")


def test_without_a_shelf_there_are_no_names(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "nowhere")
    assert bundled() == {}
    with pytest.raises(UnknownNameError, match="there are none yet"):
        find_bundled("en-de")
