"""Killed and simultaneous writers: the previous state is whole, and nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from regard.errors import FileError
from regard.files import atomic_folder, atomic_path, read_lines, write_atomic, writing, zstd

_HOLD = """
import sys, time
from pathlib import Path
from regard.files import {name}
with {name}(Path(sys.argv[1])) as fresh:
    ({content}).write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""
pytestmark = pytest.mark.processes


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def hold(path, name, content):
    """Start a process that is inside the block, and return it."""
    code = _HOLD.format(name=name, content=content)
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    return child


def kill(child):
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()


def test_a_killed_writer_of_a_file_leaves_nothing_after_the_next_write(tmp_path):
    write_atomic(tmp_path / "a.txt", "old")
    child = hold(tmp_path / "a.txt", "atomic_path", "fresh")
    write_atomic(tmp_path / "a.txt", "new")  # at the same time: the living one's file stays
    assert len(names(tmp_path)) == 2
    kill(child)
    assert (tmp_path / "a.txt").read_text() == "new"
    write_atomic(tmp_path / "a.txt", "newer")
    assert names(tmp_path) == ["a.txt"]


def test_the_second_writer_of_a_folder_is_refused_with_the_number_of_the_first(tmp_path):
    folder = tmp_path / "model"
    with atomic_folder(folder) as fresh:
        (fresh / "a").write_text("old")
    child = hold(folder, "atomic_folder", "fresh / 'a'")
    sentence = f"model is being written by process {child.pid}: wait until it ends"
    with pytest.raises(FileError, match=sentence), atomic_folder(folder):
        pass
    assert (folder / "a").read_text() == "old"
    kill(child)
    assert (folder / "a").read_text() == "old"
    with atomic_folder(folder) as fresh:
        (fresh / "a").write_text("new")
    assert names(tmp_path) == ["model"]
    assert (folder / "a").read_text() == "new"


@pytest.mark.parametrize("write", [write_atomic, lambda path, _: fill(path)])
def test_what_a_killed_writer_left_goes_with_the_next_write_of_any_name(tmp_path, write):
    *killed, living = (
        hold(tmp_path / name, wrapper, content)
        for name, wrapper, content in (
            ("killed.d", "atomic_folder", "fresh / 'a'"),
            ("killed.txt", "atomic_path", "fresh"),
            ("living", "atomic_folder", "fresh / 'a'"),
        )
    )
    for child in killed:
        kill(child)
    others = [tmp_path / ".mine.lock", tmp_path / ".mine.new", tmp_path / ".bare.new"]
    others[0].write_text("not a number")
    others[1].mkdir()
    others[2].mkdir()
    assert len(names(tmp_path)) == 8
    write(tmp_path / "other", "new")
    kept = [*(path.name for path in others), ".living.lock", ".living.new", "other"]
    assert names(tmp_path) == sorted(kept)
    assert (tmp_path / ".living.new" / "a").read_text() == "half"
    kill(living)


def fill(path):
    with atomic_folder(path) as fresh:
        (fresh / "a").write_text("new")


_EXPORT = """
import sys, time
from regard.interop import export
def write(*_, **options):
    from regard.files import atomic_folder
    with atomic_folder(sys.argv[-1]) as fresh:
        (fresh / "a").write_text("half")
        print("ready", flush=True)
        time.sleep(60)
export.export = write
from regard.cli.main import run
run()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_is_asked_to_end_leaves_nothing(tmp_path, number):
    words = ["export", "dates", "--to", "huggingface", "-o", str(tmp_path / "out")]
    child = subprocess.Popen([sys.executable, "-c", _EXPORT, *words], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    assert ".out.new" in names(tmp_path)
    child.send_signal(number)
    assert child.wait(20) == 128 + number
    child.stdout.close()
    assert names(tmp_path) == []


def test_a_lock_that_was_released_can_be_taken_again(tmp_path):
    for _ in range(3):
        with writing(tmp_path / "x"):
            assert (tmp_path / ".x.lock").read_text() == str(os.getpid())
    assert names(tmp_path) == []


_TENSORS = "with atomic_path(sys.argv[1]) as new: save_file({'x': np.zeros(5000)}, new)"


@pytest.mark.parametrize("write", ["write_atomic(sys.argv[1], 'x' * 5000)", f"\n{_TENSORS}"])
def test_a_full_disk_keeps_the_old_file_and_says_so(tmp_path, write):
    write_atomic(tmp_path / "a", "old")
    code = (
        "import resource, signal, sys; from regard.files import *; import numpy as np;"
        "from safetensors.numpy import save_file;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));" + write
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert re.search(r"FileError: .*a cannot be written: .*File too large.*\.", done.stderr)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_temporary_file_that_vanishes_is_an_error(tmp_path):
    sentence = "a cannot be written: No such file"
    with pytest.raises(FileError, match=sentence), atomic_path(tmp_path / "a") as temporary:
        temporary.unlink()
    assert names(tmp_path) == []


def test_a_small_file_that_unpacks_without_end_is_refused_early(tmp_path):
    line = b"0" * 2**20 + b"\n"
    (tmp_path / "bomb.zst").write_bytes(zstd.compress(line) * 400)
    start = time.monotonic()
    with pytest.raises(FileError, match=r"bomb\.zst unpacks to more than 500 times its size"):
        for _ in read_lines(tmp_path / "bomb.zst"):
            pass
    assert time.monotonic() - start < 20
