import os
import shutil
import subprocess
import sys
import time

import pytest

from regard.errors import FileError
from regard.files import cache_folder
from regard.generation.ctranslate2_engine import MODEL, converted, fingerprint


def test_a_model_is_converted_once(toy_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    place = converted(toy_folder, int8=False)
    before = (place / MODEL).stat().st_mtime_ns
    assert converted(toy_folder, int8=False) == place
    assert (place / MODEL).stat().st_mtime_ns == before
    small = converted(toy_folder, int8=True)
    assert small != place
    assert (small / MODEL).stat().st_size < (place / MODEL).stat().st_size
    assert not list(place.parent.glob(".making*"))


def test_another_weight_is_another_model_and_another_time_is_not(toy_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(toy_folder, copy)
    first = fingerprint(copy)
    assert first == fingerprint(toy_folder)
    os.utime(copy / "model.safetensors", (1, 1))
    assert fingerprint(copy) == first
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    assert fingerprint(copy) != first


def test_of_processes_that_convert_at_once_all_come_through(toy_folder, tmp_path):
    program = (
        "from pathlib import Path\nfrom regard.generation.ctranslate2_engine import converted\n"
        f"print(converted(Path({str(toy_folder)!r}), int8=False))"
    )
    environment = {"REGARD_CACHE": str(tmp_path), "PATH": "/usr/bin"}
    run = [sys.executable, "-c", program]
    both = [subprocess.Popen(run, env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    places = {one.communicate(timeout=120)[0] for one in both}
    assert [one.returncode for one in both] == [0, 0, 0]
    assert len(places) == 1
    assert len(list((tmp_path / "ctranslate2").iterdir())) == 1


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "regard"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "regard"


def test_a_cache_that_cannot_be_written_is_named(toy_folder, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file"))
    with pytest.raises(FileError, match="name another place in the environment as REGARD_CACHE"):
        converted(toy_folder, int8=False)


def test_large_files_are_read_once(toy_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    first = fingerprint(toy_folder)
    monkeypatch.setattr(
        "regard.generation.ctranslate2_engine._contents", lambda files: time.sleep(9)
    )
    assert fingerprint(toy_folder) == first
