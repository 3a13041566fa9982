"""Hub names: fetched when somebody is online, refused with a sentence when not."""

import sys

import pytest

from regard.errors import FileError, MissingExtraError
from regard.interop.import_checkpoint import fetch


@pytest.mark.parametrize("name", ["/nowhere/at all", "./here", "a/b/c", "../up"])
def test_what_can_only_be_a_path_is_not_asked_for(name):
    with pytest.raises(FileError, match="there is no file or folder"):
        fetch(name)


def test_without_the_library_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        MissingExtraError, match=r"no folder gpt2; .* pip install 'regard\[interop\]"
    ):
        fetch("gpt2")


def test_offline_and_unknown_names_give_one_sentence(monkeypatch):
    import huggingface_hub

    def fail(name, **options):
        raise ConnectionError("no route to the hub.\nmany\nmore lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(FileError, match=r"did not give .* \(no route to the hub\): check the name"):
        fetch("somebody/something")


def test_only_files_that_cannot_run_code_are_fetched(monkeypatch, tmp_path):
    import huggingface_hub

    asked = {}

    def give(name, *, allow_patterns):
        asked[name] = allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", give)
    assert fetch("gpt2") == tmp_path
    assert not {"*.bin", "*.pt", "*.py", "*"} & set(asked["gpt2"])
    assert "*.safetensors" in asked["gpt2"]
