import io
import json
import os
import sys

import pytest

from regard.errors import FileError, InputError
from regard.generation.bulk import (
    LineReader,
    OutputFile,
    OutputProgress,
    RemainingInput,
    windows_of_text,
)


def test_only_complete_lines_are_records(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"eins\n\nzwei\ndr")
    assert OutputFile(path, {}).progress() == OutputProgress(3, 11)
    path.write_bytes(b"")
    assert OutputFile(path, {}).progress() == OutputProgress(0, 0)
    path.write_bytes(b"torn")
    assert OutputFile(path, {}).progress() == OutputProgress(0, 0)
    assert OutputFile(tmp_path / "absent", {}).progress() == OutputProgress(0, 0)


def test_the_last_numbered_record_is_repeated(tmp_path):
    path = tmp_path / "out"
    whole = b"0 ||| a ||| -1\n0 ||| b ||| -2\n1 ||| c ||| -1\n1 ||| d ||| -2\n"
    for torn in (b"2 ||| e ||| -1\n", b"2 ||| e", b"2 ||| e ||| -1\n2 ||| f ||| -2\n"):
        path.write_bytes(whole + torn)
        progress = OutputFile(path, {}, numbered=True).progress()
        expected = OutputProgress(2, len(whole)) if b"\n" in torn else OutputProgress(1, 30)
        assert progress == expected


def test_resuming_keeps_complete_records(tmp_path):
    path = tmp_path / "out"
    path.write_text("eins\nzw")
    output = OutputFile(path, {"beam": 4})
    with output.open_from(output.progress()):
        output.write("zwei\n")
        assert path.read_text() == "eins\nzwei\n"
        assert json.loads(output.settings_file.read_text()) == {"beam": 4}
    assert path.read_text() == "eins\nzwei\n"
    assert not output.settings_file.exists()


def test_starting_again_replaces_the_file(tmp_path):
    path = tmp_path / "deep" / "out"
    for text in ("a long text\n", "short\n"):
        output = OutputFile(path, {})
        with output.open_from(OutputProgress(0, 0)):
            output.write(text)
        assert path.read_text() == text


def test_a_failed_run_keeps_its_settings(tmp_path):
    output = OutputFile(tmp_path / "out", {"beam": 4})

    def interrupted():
        with output.open_from(OutputProgress(0, 0)):
            output.save_settings(heads=[1])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert output.saved_settings() == {"beam": 4, "heads": [1]}


def test_other_settings_are_refused(tmp_path):
    path = tmp_path / "out"
    path.write_text("eins\n")
    (tmp_path / ".out.run").write_text('{"beam": 4, "unknown": 1}')
    assert OutputFile(path, {"beam": 4}).progress() == OutputProgress(1, 5)
    with pytest.raises(InputError, match="started with beam 4, but beam is 5 now"):
        OutputFile(path, {"beam": 5}).progress()
    (tmp_path / ".out.run").write_text("damaged")
    assert OutputFile(path, {"beam": 5}).progress() == OutputProgress(1, 5)


def test_a_locked_file_is_refused(tmp_path):
    first, second = (OutputFile(tmp_path / "out", {}) for _ in range(2))
    with first.open_from(OutputProgress(0, 0)):
        first.write("mine\n")
        with pytest.raises(FileError, match="being written by another process"):
            second.open_from(OutputProgress(0, 0)).__enter__()
    assert (tmp_path / "out").read_text() == "mine\n"


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"file/out cannot be written"):
        OutputFile(tmp_path / "file" / "out", {}).open_from(OutputProgress(0, 0)).__enter__()


@pytest.mark.parametrize(
    ("done", "numbers", "skip"), [(0, 0, 0), (3, 0, 3), (4, 4, 0), (6, 4, 2), (10, 10, 0)]
)
def test_complete_windows_are_skipped(tmp_path, done, numbers, skip):
    path = tmp_path / "in"
    path.write_text("".join(f"{i}\n" for i in range(10)))
    left = RemainingInput(done, LineReader(str(path)))
    windows = list(left.windows(4))
    every = [[str(i) for i in part] for part in (range(4), range(4, 8), range(8, 10))]
    assert windows == [window for window in every if int(window[-1]) >= done]
    assert (left.number, left.skip) == (numbers, skip)
    left.check(path)


def test_an_output_of_another_input_is_refused(tmp_path):
    path = tmp_path / "in"
    path.write_text("one\n")
    left = RemainingInput(5, LineReader(str(path)))
    assert list(left.windows(4)) == []
    with pytest.raises(InputError, match="has 5 lines, but the input has only 1"):
        left.check(tmp_path / "out")


def test_windows_limit_lines_and_characters(monkeypatch):
    monkeypatch.setattr("regard.generation.bulk._WINDOW_CHARACTERS", 10)
    lines = ["aaaa", "bbbb", "cccc", "d" * 25, "e", "f", "g", "h"]
    assert list(windows_of_text(lines, 3)) == [
        ["aaaa", "bbbb"],
        ["cccc"],
        ["d" * 25],
        ["e", "f", "g"],
        ["h"],
    ]
    assert list(windows_of_text([], 3)) == []


def test_invalid_utf8_is_replaced_and_counted(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"good\n\xff bad\n\nM\xc3\xa4dchen\n" + b"\xfe\n" * 9)
    reading = LineReader(str(path))
    (lines,) = reading.windows(100)
    assert lines == ["good", "\ufffd bad", "", "Mädchen"] + ["\ufffd"] * 9
    assert (reading.n_damaged, reading.damaged) == (10, [2, 5, 6, 7, 8])
    assert reading.n_bytes == sum(map(len, path.read_bytes().split(b"\n")))


def test_input_without_a_handle_is_read_in_windows(monkeypatch):
    given = io.TextIOWrapper(io.BytesIO(b"a\nb\r\nc"))
    monkeypatch.setattr(sys, "stdin", given)
    assert list(LineReader("-").available_windows(2)) == [["a", "b"], ["c"]]


@pytest.fixture
def pipe(monkeypatch):
    """The writing end of what standard input reads."""
    reading, writing = os.pipe()
    stream = os.fdopen(reading, "r")
    monkeypatch.setattr(sys, "stdin", stream)
    with os.fdopen(writing, "wb", buffering=0) as end:
        yield end
    stream.close()


def test_long_lines_make_small_windows(pipe, monkeypatch):
    monkeypatch.setattr("regard.generation.bulk._WINDOW_CHARACTERS", 10)
    windows = LineReader("-").available_windows(100)
    pipe.write(b"a" * 9 + b"\n" + b"b" * 9 + b"\n" + b"c\n")
    assert [next(windows) for _ in range(3)] == [["a" * 9], ["b" * 9, "c"], []]


def test_lines_are_available_once_complete(pipe):
    windows = LineReader("-").available_windows(100)
    pipe.write(b"first\nsec")
    assert next(windows) == ["first"]
    assert next(windows) == []  # nothing more is at hand
    pipe.write(b"ond\r\nthird\n")
    assert next(windows) == ["second", "third"]
    assert next(windows) == []
    pipe.write(b"last")
    assert next(windows) == []
    pipe.close()
    assert list(windows) == [["last"]]


def test_many_available_lines_make_full_windows(pipe):
    pipe.write(b"".join(b"%d\n" % i for i in range(250)))
    pipe.close()
    windows = list(LineReader("-").available_windows(100))
    assert [int(line) for window in windows for line in window] == list(range(250))
    assert max(map(len, windows)) == 100
