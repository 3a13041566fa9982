import io
import os
import subprocess
import sys
import time

import pytest

from regard.generation.bulk import Reading, windows_of_text


def test_windows_have_so_many_lines_and_never_too_many_characters(monkeypatch):
    monkeypatch.setattr("regard.generation.bulk._ROOM", 10)
    lines = ["aaaa", "bbbb", "cccc", "d" * 25, "e", "f", "g", "h"]
    assert list(windows_of_text(lines, 3)) == [
        ["aaaa", "bbbb"],
        ["cccc"],
        ["d" * 25],
        ["e", "f", "g"],
        ["h"],
    ]
    assert list(windows_of_text([], 3)) == []


def test_what_is_no_utf8_is_read_all_the_same_and_counted(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"good\n\xff bad\n\nM\xc3\xa4dchen\n" + b"\xfe\n" * 9)
    reading = Reading(str(path))
    (lines,) = reading.windows(100)
    assert lines == ["good", "\ufffd bad", "", "Mädchen"] + ["\ufffd"] * 9
    assert (reading.n_damaged, reading.damaged) == (10, [2, 5, 6, 7, 8])
    assert reading.n_bytes == sum(map(len, path.read_bytes().split(b"\n")))


def test_input_that_no_system_knows_is_read_in_whole_windows(monkeypatch):
    given = io.TextIOWrapper(io.BytesIO(b"a\nb\r\nc"))
    monkeypatch.setattr(sys, "stdin", given)
    assert list(Reading("-").windows_as_they_come(2)) == [["a", "b"], ["c"]]


@pytest.fixture
def pipe(monkeypatch):
    """The writing end of what standard input reads."""
    reading, writing = os.pipe()
    stream = os.fdopen(reading, "r")
    monkeypatch.setattr(sys, "stdin", stream)
    with os.fdopen(writing, "wb", buffering=0) as end:
        yield end
    stream.close()


def test_long_lines_are_handed_over_before_there_are_many(pipe, monkeypatch):
    monkeypatch.setattr("regard.generation.bulk._ROOM", 10)
    windows = Reading("-").windows_as_they_come(100)
    pipe.write(b"a" * 9 + b"\n" + b"b" * 9 + b"\n" + b"c\n")
    assert [next(windows) for _ in range(3)] == [["a" * 9], ["b" * 9, "c"], []]


def test_lines_come_as_soon_as_they_are_whole(pipe):
    windows = Reading("-").windows_as_they_come(100)
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


def test_many_lines_at_hand_make_full_windows(pipe):
    pipe.write(b"".join(b"%d\n" % i for i in range(250)))
    pipe.close()
    windows = list(Reading("-").windows_as_they_come(100))
    assert [int(line) for window in windows for line in window] == list(range(250))
    assert max(map(len, windows)) == 100


def test_a_program_that_reads_slowly_still_gets_its_lines_at_once(tmp_path):
    program = (
        "from regard.generation.bulk import Reading\n"
        "for window in Reading('-').windows_as_they_come(10):\n"
        "    print(window, flush=True)\n"
    )
    run = [sys.executable, "-c", program]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write("one\n")
        process.stdin.flush()
        assert process.stdout.readline() == "['one']\n"
        before = time.monotonic()
        process.stdin.write("two\n")
        process.stdin.close()
        assert "['two']\n" in process.stdout.read()
        assert time.monotonic() - before < 30
