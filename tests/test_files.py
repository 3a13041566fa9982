"""Files and folders: read line by line, written completely or not at all, cached once."""

import gzip
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import files
from regard.errors import FileError, InputError
from regard.files import (
    atomic_folder,
    atomic_path,
    cache_key,
    cached_folder,
    existing_folder,
    read_lines,
    write_atomic,
    zstd,
)

LINES = [b"first", "둘째".encode(), b"", b"fourth"]
TEXT = b"\n".join(LINES) + b"\n"


def packed(name, data):
    if name.endswith(".gz"):
        return gzip.compress(data)
    if name.endswith(".zst"):
        return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})
    return data


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_lines_are_read_from_plain_and_packed_files(tmp_path, name):
    (tmp_path / name).write_bytes(packed(name, TEXT))
    assert list(read_lines(tmp_path / name)) == LINES


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_files_packed_in_several_parts_are_read_to_the_end(tmp_path, pack):
    (tmp_path / "a").write_bytes(pack(b"one\ntw") + pack(b"o\nthree"))
    assert list(read_lines(tmp_path / "a")) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress])
def test_standard_input_is_read_and_left_open(monkeypatch, pack):
    given = io.TextIOWrapper(io.BytesIO(pack(TEXT)))
    monkeypatch.setattr(sys, "stdin", given)
    assert list(read_lines("-")) == LINES
    assert not given.closed


@given(st.lists(st.binary().filter(lambda line: b"\n" not in line and not line.endswith(b"\r"))))
def test_only_newlines_end_lines(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "a"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    if path.read_bytes()[:2] != b"\x1f\x8b" and path.read_bytes()[:4] != b"\x28\xb5\x2f\xfd":
        assert list(read_lines(path)) == lines


def test_windows_line_ends_and_a_missing_last_one(tmp_path):
    (tmp_path / "a").write_bytes(b"one\r\ntwo\r\nthree \xe2\x80\xa8 still three")
    assert list(read_lines(tmp_path / "a")) == [b"one", b"two", b"three \xe2\x80\xa8 still three"]


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
@pytest.mark.parametrize("kept", [0.3, 0.7, 0.99])
def test_a_file_cut_off_in_the_middle_is_an_error_and_says_after_which_line(tmp_path, name, kept):
    whole = packed(name, b"".join(os.urandom(30).hex().encode() + b"\n" for _ in range(20_000)))
    (tmp_path / name).write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(
        FileError, match=r"damaged or truncated after line [\d,]+ .*download it again"
    ):
        list(read_lines(tmp_path / name))


def test_a_damaged_file_is_an_error(tmp_path):
    for name in ("a.gz", "a.zst"):
        data = bytearray(packed(name, os.urandom(5000)))
        data[2000] ^= 255
        data[-3] ^= 255
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileError, match="damaged or truncated"):
            list(read_lines(tmp_path / name))


def test_an_empty_file_has_no_lines_but_an_empty_packed_one_is_damaged(tmp_path):
    for name in ("a.txt", "a.gz", "a.zst"):
        (tmp_path / name).touch()
    assert list(read_lines(tmp_path / "a.txt")) == []
    for name in ("a.gz", "a.zst"):
        with pytest.raises(FileError, match=r"is named \.(gz|zst) but is empty"):
            list(read_lines(tmp_path / name))


def test_wrong_suffixes_and_missing_files_are_refused(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"plain text")
    with pytest.raises(FileError, match=r"is named \.gz but has other contents"):
        list(read_lines(tmp_path / "a.gz"))
    with pytest.raises(FileError, match="cannot be read: No such file"):
        list(read_lines(tmp_path / "absent"))
    with pytest.raises(FileError, match="cannot be read: Is a directory"):
        list(read_lines(tmp_path))


def test_a_line_that_is_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 100)
    (tmp_path / "a").write_bytes(b"short\n" + b"x" * 101)
    with pytest.raises(InputError, match=r"Line 2 of .* is longer than 100 bytes"):
        list(read_lines(tmp_path / "a"))
    (tmp_path / "a").write_bytes(b"short\n" + b"x" * 99 + b"\n")
    assert len(list(read_lines(tmp_path / "a"))) == 2


def test_a_file_is_written_completely_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    write_atomic(path, "old")

    def stop_in_the_middle():
        with atomic_path(path) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        stop_in_the_middle()
    assert path.read_text() == "old"
    write_atomic(path, b"new")
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_a_written_file_has_the_permissions_of_the_umask(tmp_path):
    write_atomic(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be written"):
        write_atomic(tmp_path / "file" / "a", "x")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="not run: there is no /dev/full here")
def test_a_full_disk_leaves_the_old_file(tmp_path):
    write_atomic(tmp_path / "a", "old")

    def fill():
        with atomic_path(tmp_path / "a"), Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")

    with pytest.raises(FileError, match="cannot be written: No space left"):
        fill()
    assert (tmp_path / "a").read_text() == "old"


def test_an_error_in_the_middle_leaves_the_old_folder_and_no_other(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("old")

    def save_half():
        with atomic_folder(folder, names=["config.json", "tokenizer.target.json"]) as fresh:
            (fresh / "config.json").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_half()
    assert (folder / "config.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_own_files_are_replaced_and_others_kept(tmp_path):
    folder = tmp_path / "deep" / "model"
    with atomic_folder(folder, names=["config.json", "tokenizer.target.json"]) as fresh:
        (fresh / "tokenizer.target.json").write_text("old")
    (folder / "log").mkdir()
    (folder / "log" / "1.txt").write_text("mine")
    with atomic_folder(folder, names=["config.json", "tokenizer.target.json"]) as fresh:
        (fresh / "config.json").write_text("new")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "log"]
    assert (folder / "log" / "1.txt").read_text() == "mine"


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_folder(tmp_path / "link") as fresh:
        (fresh / "config.json").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "config.json").read_text() == "new"


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"file/model cannot be written"):
        atomic_folder(tmp_path / "file" / "model").__enter__()


def test_existing_folder_finds_an_interrupted_replacement(tmp_path):
    assert existing_folder(tmp_path / "model") is None
    (tmp_path / ".model.old").mkdir()
    assert existing_folder(tmp_path / "model") == tmp_path / ".model.old"
    (tmp_path / "model").mkdir()
    assert existing_folder(tmp_path / "model") == tmp_path / "model"


REPOSITORY = Path(__file__).resolve().parents[1]
MAKER = """
import sys, time, types
root = types.ModuleType("regard"); root.__path__ = ["regard"]; sys.modules["regard"] = root
from pathlib import Path
from regard.files import cached_folder
def make(folder):
    (folder / "started").touch()
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


def test_a_failure_leaves_nothing_and_can_be_retried(tmp_path):
    def fail(folder):
        (folder / "half").touch()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        cached_folder(tmp_path / "key", fail)
    assert [path.name for path in tmp_path.iterdir()] == []
    cached_folder(tmp_path / "key", lambda folder: None)
    assert (tmp_path / "key").is_dir()


def test_of_several_processes_one_makes_the_folder(tmp_path):
    makers = [start(tmp_path / "key", 0.3) for _ in range(3)]
    printed = [maker.communicate()[0] for maker in makers]
    assert sorted(printed) == ["", "", "making\n"]
    assert [maker.returncode for maker in makers] == [0, 0, 0]
    assert (tmp_path / "key" / "done").exists()


def test_a_killed_process_leaves_no_folder_and_no_lock(tmp_path):
    maker = start(tmp_path / "key", 60)
    assert maker.stdout.readline() == "making\n"
    os.kill(maker.pid, signal.SIGKILL)
    maker.communicate()
    assert not (tmp_path / "key").exists()
    cached_folder(tmp_path / "key", lambda folder: (folder / "mine").touch())
    assert [path.name for path in (tmp_path / "key").iterdir()] == ["mine"]


def test_cache_keys_depend_on_values_and_not_on_order():
    assert cache_key({"a": 1, "b": [2]}) == cache_key({"b": [2], "a": 1})
    assert len({cache_key({"a": 1}), cache_key({"a": 2}), cache_key({"b": 1})}) == 3
