import gzip
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from regard.cli.main import app
from regard.cli.output import ProgressLine, duration
from regard.errors import FileError, InputError, UnknownNameError
from tests.generation.toy import pairs, toy

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "regard", "translate"]


@pytest.fixture(scope="session")
def folder():
    return toy()


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(cache))


def run(*words, input=None):
    """What the command prints; errors come out as they are raised."""
    result = CliRunner().invoke(app, ["translate", *map(str, words)], input=input)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def lines_of(count, seed=-5):
    return [source for source, _ in pairs(count, seed=seed)]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(line + "\n" for line in lines_of(40)))
    return path


def test_every_line_is_translated(folder):
    assert run(folder, "-", input="one two three\nten nine\n") == "drei zwei eins\nneun zehn\n"
    assert run(folder, "-", input="one two three") == "drei zwei eins\n"
    assert run(folder, "-", input="") == ""


def test_a_text_on_the_command_line_is_translated(folder, tmp_path, monkeypatch):
    assert run(folder, "one two three") == "drei zwei eins\n"
    assert run(folder, "one two\nten nine") == "zwei eins\nneun zehn\n"
    run(folder, "one two", "-o", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "zwei eins\n"
    monkeypatch.chdir(tmp_path)
    Path("one two").write_text("ten nine\n")  # a file that exists is a file
    assert run(folder, "one two") == "neun zehn\n"


def test_each_line_can_require_words_of_its_own(folder, tmp_path):
    source = tmp_path / "lines.tsv"
    source.write_text("one two three\tacht\none two\nten nine\tdrei\tvier\n")
    first, second, third = run(folder, source, "--constraints").splitlines()
    assert "acht" in first.split()
    assert second == "zwei eins"
    assert {"drei", "vier"} <= set(third.split())
    record = json.loads(run(folder, source, "--constraints", "--json").splitlines()[0])
    assert (record["source"], record["text"]) == ("one two three", first)
    with pytest.raises(InputError, match="cannot be combined with --must"):
        run(folder, source, "--constraints", "--must", "acht")


@pytest.mark.parametrize("name", ["in/file", "absent.txt", "absent.en.gz"])
def test_what_looks_like_a_file_must_exist(folder, name):
    with pytest.raises(FileError, match=f"{name} cannot be read because there is no such file"):
        run(folder, name)


def test_files_and_compressed_files_equal_piped_input(folder, source, tmp_path):
    packed = tmp_path / "in.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    plain = run(folder, source)
    assert plain.count("\n") == 40
    assert run(folder, packed) == plain
    assert run(folder, "-", input=source.read_text()) == plain
    true = [target for _, target in pairs(40, seed=-5)]
    right = sum(one == two for one, two in zip(plain.splitlines(), true, strict=True))
    assert right >= 36


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_every_odd_line_gives_one_line(folder, tmp_path, engine):
    odd = [
        b"",
        b"one two",
        b"   \t  ",
        "🍜🍣".encode(),
        b"two\x00\x1b[31mthree\x07",
        b"x" * (100_000 if engine == "ctranslate2" else 3_000),
        b"one " * 300,
        "one 개 two أهلا".encode(),
        b"\xff\xfe broken \xc3",
        b"[SEP] [PAD] one",
        "a\u2028b\u0085c\ufeff".encode(),
        b"two one\r",
    ]
    path, output = tmp_path / "odd.txt", tmp_path / "out.txt"
    path.write_bytes(b"\n".join(odd) + b"\n")
    run(folder, path, "--engine", engine, "-o", output)
    written = output.read_bytes().decode().split("\n")
    assert len(written) == len(odd) + 1
    assert written[-1] == ""
    assert len(output.read_text().splitlines()) == len(odd)
    assert written[0] == written[2] == ""
    assert written[1] == "zwei eins"
    assert written[3] == "🍜🍣"
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", "".join(written))
    assert len(written[6]) > 300 * 3
    assert written[11] == "eins zwei"


def test_invalid_utf8_is_reported(folder, tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"one\n\xff\ntwo \xff\n")
    result = CliRunner().invoke(app, ["translate", str(folder), str(path)])
    assert result.stdout.count("\n") == 3
    assert "2 lines are not valid UTF-8 and were read with U+FFFD: 2, 3" in result.stderr


def test_n_best_lists_have_numbers_and_scores(folder):
    printed = run(folder, "-", "--n-best", 2, input="one two\nsix\n").splitlines()
    parts = [line.split(" ||| ") for line in printed]
    assert [part[0] for part in parts] == ["0", "0", "1", "1"]
    assert parts[0][1] == "zwei eins"
    assert float(parts[0][2]) >= float(parts[1][2])
    assert parts[0][1] != parts[1][1]


def test_json_has_scores_tokens_and_alternatives(folder):
    printed = run(folder, "-", "--json", "--n-best", 3, input="one two\n\n")
    one, empty = map(json.loads, printed.splitlines())
    assert one["source"] == "one two"
    assert one["text"] == "zwei eins"
    assert "".join(one["tokens"]).replace("▁", " ").strip() == "zwei eins"
    assert one["score"] < 0
    assert len(one["alternatives"]) == 2
    assert one["alternatives"][0]["score"] <= one["score"]
    assert one["source_tokens"][0] == "[CLS]"
    assert empty == {"source": "", "source_tokens": [], "text": "", "score": 0.0, "tokens": []}


def test_alignments_count_words_between_spaces(folder):
    lines = ["one two three", "ten nine", "", "🍜 x"]
    printed = run(folder, "-", "--alignments", input="\n".join(lines)).splitlines()
    assert printed[:3] == ["drei zwei eins ||| 0-2 1-1 2-0", "neun zehn ||| 0-1 1-0", " |||"]
    assert re.fullmatch(r".* \|\|\| \d+-\d+.*", printed[3])


def test_json_alignments_are_hard_and_soft(folder):
    printed = json.loads(run(folder, "-", "--alignments", "--json", input="seven eight nine\n"))
    found = printed["alignment"]
    assert found["source_words"] == ["seven", "eight", "nine"]
    assert found["target_words"] == ["neun", "acht", "sieben"]
    assert found["hard"] == "0-2 1-1 2-0"
    for target in range(3):
        weights = [weight for _, one, weight in found["soft"] if one == target]
        assert sum(weights) == pytest.approx(1, abs=0.05)


def alone(*words, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*PROGRAM, *map(str, words)], cwd=REPOSITORY, env=environment, **options
    )


def test_a_killed_run_is_resumed(folder, tmp_path):
    source, output, whole = (tmp_path / name for name in ("in.txt", "out.txt", "whole.txt"))
    lines = lines_of(1100)
    lines[700] = ""
    source.write_text("".join(line + "\n" for line in lines))
    options = ["--engine", "torch", "--beam", 2]
    sizes = []
    for _ in range(2):
        process = alone(folder, source, *options, "-o", output, "--resume")
        before = output.stat().st_size if output.exists() else 0
        while process.poll() is None:
            if output.exists() and output.stat().st_size > before:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.01)
        assert process.returncode == -signal.SIGKILL
        sizes.append(output.stat().st_size)
        with output.open("ab") as stream:  # what a disk may leave of a line
            stream.write(b"zw")
    assert sizes == sorted(set(sizes))
    assert (tmp_path / ".out.txt.run").exists()
    assert alone(folder, source, *options, "-o", output, "--resume").wait() == 0
    assert not (tmp_path / ".out.txt.run").exists()
    assert alone(folder, source, *options, "-o", whole).wait() == 0
    assert output.read_bytes() == whole.read_bytes()
    assert whole.read_text().count("\n") == 1100
    assert whole.read_text().split("\n")[700] == ""


@pytest.mark.parametrize(
    ("options", "kept"),
    [([], 0), (["--json"], 17), (["--n-best", "2"], 40), (["--alignments"], 17)],
)
def test_a_truncated_file_is_completed(folder, source, tmp_path, options, kept):
    whole, output = tmp_path / "whole", tmp_path / "out"
    run(folder, source, *options, "-o", whole)
    text = whole.read_bytes()
    lines = text.splitlines(keepends=True)
    output.write_bytes(b"".join(lines[:kept]) + b"".join(lines[kept:])[:3])
    run(folder, source, *options, "-o", output, "--resume")
    if options == ["--alignments"]:  # heads are chosen again where none were cached
        assert output.read_bytes().count(b"\n") == 40
    else:
        assert output.read_bytes() == text


def test_resuming_a_complete_file_changes_nothing(folder, source, tmp_path):
    output = tmp_path / "out"
    run(folder, source, "-o", output)
    text = output.read_bytes()
    run(folder, source, "-o", output, "--resume")
    assert output.read_bytes() == text
    run(folder, source, "-o", output)
    assert output.read_bytes() == text


def test_slow_lines_are_answered_at_once(folder):
    process = alone(folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for line, answer in (("one two", "zwei eins"), ("", ""), ("six one", "eins sechs")):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == answer + "\n"  # with the input still open
    process.stdin.close()
    assert process.stdout.read() == ""
    process.stdout.close()
    assert process.wait() == 0


def test_a_closed_pipe_is_not_an_error(folder, source):
    process = alone(folder, source, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr.read() == b""
    process.stderr.close()
    listing = [sys.executable, "-m", "regard", "models"]  # prints with typer, which would fail
    with subprocess.Popen(listing, stdout=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait() == 0


def test_lines_typed_on_a_terminal(folder):
    ours, theirs = pty.openpty()
    process = alone(folder, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert "Ctrl-D ends" in _until(ours, "> ")
    os.write(ours, b"one two three\n")
    assert "drei zwei eins\r\n" in _until(ours, "> ")
    os.write(ours, b"\n")
    _until(ours, "> ")
    os.write(ours, b"six one\n")
    assert "eins sechs\r\n" in _until(ours, "> ")
    os.write(ours, b"\x04")
    assert process.wait(timeout=60) == 0
    os.close(ours)


def _until(handle, text, seconds=60):
    seen, end = "", time.monotonic() + seconds
    while text not in seen and time.monotonic() < end:
        if select.select([handle], [], [], 0.1)[0]:
            seen += os.read(handle, 4096).decode(errors="replace")
    return seen


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        (["--resume"], InputError, "--resume continues a file: name it with -o"),
        (["-o", "x.gz"], InputError, "would not be compressed"),
        (["--beam", "0"], InputError, "beam is 0"),
        (["--beam", "2", "--n-best", "3"], InputError, "n_best is 3 with a beam of 2"),
        (["--engine", "magic"], InputError, "engine is 'magic'"),
        (["-o", "{source}"], InputError, "is the input itself"),
        (["-o", "{source}/x"], FileError, "cannot be written"),
    ],
)
def test_invalid_options_are_refused(folder, source, words, error, sentence):
    words = [word.format(source=source) for word in words]
    before = source.read_bytes()
    with pytest.raises(error, match=sentence):
        run(folder, source, *words)
    assert source.read_bytes() == before


def test_missing_files_and_models_are_named(folder, tmp_path):
    with pytest.raises(FileError, match=r"absent\.txt cannot be read"):
        run(folder, tmp_path / "absent.txt")
    with pytest.raises(UnknownNameError, match="neither a bundled model"):
        run("absent", "-", input="x")


def test_unreadable_input_leaves_the_output_unchanged(folder, tmp_path):
    kept, damaged = tmp_path / "kept.txt", tmp_path / "in.gz"
    kept.write_text("hours of work\n")
    damaged.write_bytes(b"no gzip at all")
    for absent in (tmp_path / "absent.txt", damaged):
        with pytest.raises(FileError):
            run(folder, absent, "-o", kept)
        assert kept.read_text() == "hours of work\n"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in.gz", "kept.txt"]


def test_penalties_and_stopping_rules(folder):
    by_hand = run(folder, "-", "--penalty", "gnmt", "--alpha", "0.6", "--json", input="one two\n")
    plain = run(folder, "-", "--penalty", "none", "--json", input="one two\n")
    first, second = json.loads(by_hand), json.loads(plain)
    assert first["text"] == second["text"] == "zwei eins"
    length = len(second["tokens"]) + 1
    assert first["score"] == pytest.approx(second["score"] / ((5 + length) / 6) ** 0.6, abs=1e-4)
    assert run(folder, "-", "--stop", "bound", input="one two\n") == "zwei eins\n"
    with pytest.raises(InputError, match="stop is 'late'; choose one of beam, bound, first"):
        run(folder, "-", "--stop", "late", input="x\n")
    with pytest.raises(UnknownNameError, match=r"penalty is 'gnmd'; .*the nearest is gnmt"):
        run(folder, "-", "--penalty", "gnmd", input="x\n")


def test_progress_by_hand(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    now = [0.0]
    monkeypatch.setattr("regard.cli.output.time.monotonic", lambda: now[0])
    progress = ProgressLine(3000, first=1000)
    now[0] = 10.0
    progress.advance(
        [SimpleNamespace(tokens=["a"] * 10)] * 50, 2000
    )  # 1000 bytes in 10 s, 1000 to go
    now[0] = 20.0
    progress.close()
    printed = capsys.readouterr().err
    assert "50 lines · 50 tokens/s · 67 % · 10 s left" in printed
    assert "50 lines in 20 s · 25 tokens/s" in printed


def test_durations_by_hand():
    assert [duration(s) for s in (3.21, 59, 65, 7629)] == ["3.2 s", "59 s", "1:05", "2:07:09"]
