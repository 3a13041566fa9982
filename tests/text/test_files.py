import gzip
import io
import os
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from regard import files
from regard.errors import FileError, InputError
from regard.files import atomic_path, read_lines, write_atomic

LINES = [b"first", "둘째".encode(), b"", b"fourth"]
TEXT = b"\n".join(LINES) + b"\n"


def packed(name, data):
    if name.endswith(".gz"):
        return gzip.compress(data)
    if name.endswith(".zst"):
        return zstandard.ZstdCompressor(write_checksum=True).compress(data)
    return data


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_lines_are_read_from_plain_and_packed_files(tmp_path, name):
    (tmp_path / name).write_bytes(packed(name, TEXT))
    assert list(read_lines(tmp_path / name)) == LINES


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_files_packed_in_several_parts_are_read_to_the_end(tmp_path, pack):
    (tmp_path / "a").write_bytes(pack(b"one\ntw") + pack(b"o\nthree"))
    assert list(read_lines(tmp_path / "a")) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
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


def test_a_windows_line_end_and_a_missing_last_one_make_no_difference(tmp_path):
    (tmp_path / "a").write_bytes(b"one\r\ntwo\r\nthree \xe2\x80\xa8 still three")
    assert list(read_lines(tmp_path / "a")) == [b"one", b"two", b"three \xe2\x80\xa8 still three"]


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
@pytest.mark.parametrize("kept", [0.3, 0.7, 0.99])
def test_a_file_cut_off_in_the_middle_is_an_error_and_says_after_which_line(tmp_path, name, kept):
    whole = packed(name, b"".join(os.urandom(30).hex().encode() + b"\n" for _ in range(20_000)))
    (tmp_path / name).write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(FileError, match=r"damaged or cut off after line [\d,]+ .*fetch it again"):
        list(read_lines(tmp_path / name))


def test_a_damaged_file_is_an_error(tmp_path):
    for name in ("a.gz", "a.zst"):
        data = bytearray(packed(name, os.urandom(5000)))
        data[2000] ^= 255
        data[-3] ^= 255
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileError, match="damaged or cut off"):
            list(read_lines(tmp_path / name))


def test_an_empty_file_has_no_lines_but_an_empty_packed_one_is_damaged(tmp_path):
    for name in ("a.txt", "a.gz", "a.zst"):
        (tmp_path / name).touch()
    assert list(read_lines(tmp_path / "a.txt")) == []
    for name in ("a.gz", "a.zst"):
        with pytest.raises(FileError, match=r"is called \.(gz|zst) but is empty"):
            list(read_lines(tmp_path / name))


def test_names_that_lie_and_files_that_are_not_there_are_refused(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"plain text")
    with pytest.raises(FileError, match=r"is called \.gz but holds something else"):
        list(read_lines(tmp_path / "a.gz"))
    with pytest.raises(FileError, match="cannot be read: No such file"):
        list(read_lines(tmp_path / "absent"))
    with pytest.raises(FileError, match="cannot be read: Is a directory"):
        list(read_lines(tmp_path))


def test_a_line_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 100)
    (tmp_path / "a").write_bytes(b"short\n" + b"x" * 101)
    with pytest.raises(InputError, match=r"Line 2 of .* is longer than 100 bytes"):
        list(read_lines(tmp_path / "a"))
    (tmp_path / "a").write_bytes(b"short\n" + b"x" * 99 + b"\n")
    assert len(list(read_lines(tmp_path / "a"))) == 2


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
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


def test_a_written_file_may_be_read_by_others_as_far_as_the_umask_allows(tmp_path):
    write_atomic(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_folder_that_cannot_be_written_to_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be written"):
        write_atomic(tmp_path / "file" / "a", "x")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="not run: there is no /dev/full here")
def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(tmp_path):
    write_atomic(tmp_path / "a", "old")

    def fill():
        with atomic_path(tmp_path / "a"), Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")

    with pytest.raises(FileError, match="cannot be written: No space left"):
        fill()
    assert (tmp_path / "a").read_text() == "old"
