import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.errors import FileError
from regard.files import cache_key, cached_folder

REPOSITORY = Path(__file__).resolve().parents[2]
MAKER = """
import sys, time, types
root = types.ModuleType("regard"); root.__path__ = ["regard"]; sys.modules["regard"] = root
from pathlib import Path
from regard.files import cached_folder
def make(folder):
    (folder / "begun").touch()
    print("making", flush=True)
    time.sleep(float(sys.argv[2]))
    (folder / "done").touch()
cached_folder(Path(sys.argv[1]), make)
"""


def start(folder, seconds):
    return subprocess.Popen(
        [sys.executable, "-c", MAKER, str(folder), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )


def test_a_folder_is_made_once(tmp_path):
    calls = []

    def make(folder):
        calls.append(folder)
        (folder / "a").write_text("x")

    for _ in range(2):
        assert (cached_folder(tmp_path / "deep" / "key", make) / "a").read_text() == "x"
    assert len(calls) == 1
    assert calls[0] != tmp_path / "deep" / "key"


def test_nothing_is_left_when_making_fails_and_the_next_may_try(tmp_path):
    def fail(folder):
        (folder / "half").touch()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        cached_folder(tmp_path / "key", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    cached_folder(tmp_path / "key", lambda folder: None)
    assert (tmp_path / "key").is_dir()


def test_several_processes_make_it_once_and_all_find_it(tmp_path):
    makers = [start(tmp_path / "key", 0.3) for _ in range(3)]
    told = [maker.communicate()[0] for maker in makers]
    assert sorted(told) == ["", "", "making\n"]
    assert [maker.returncode for maker in makers] == [0, 0, 0]
    assert (tmp_path / "key" / "done").exists()


def test_a_maker_that_is_killed_leaves_nothing_that_counts(tmp_path):
    maker = start(tmp_path / "key", 60)
    assert maker.stdout.readline() == "making\n"
    os.kill(maker.pid, signal.SIGKILL)
    maker.communicate()
    assert not (tmp_path / "key").exists()
    before = time.monotonic()
    cached_folder(tmp_path / "key", lambda folder: (folder / "mine").touch())
    assert [path.name for path in (tmp_path / "key").iterdir()] == ["mine"]
    assert time.monotonic() - before < 30  # its lock died with it


def test_a_place_that_cannot_be_written_to_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be written"):
        cached_folder(tmp_path / "file" / "key", lambda folder: None)


def test_a_full_disk_while_making_is_one_sentence(tmp_path):
    def fill(folder):
        raise OSError(28, "No space left on device")

    with pytest.raises(FileError, match="cannot be written: No space left on device"):
        cached_folder(tmp_path / "key", fill)
    assert not (tmp_path / "key").exists()


def test_keys_tell_any_difference():
    assert cache_key({"a": 1, "b": [2]}) == cache_key({"b": [2], "a": 1})
    assert len({cache_key({"a": 1}), cache_key({"a": 2}), cache_key({"b": 1})}) == 3
