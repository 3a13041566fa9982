"""Checks: each problem found, treated by its policy, and reported."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.readers import labeled_text, parallel_text
from regard.data.text_checks import (
    Checker,
    Checks,
    CleaningReport,
    SeenHashes,
    open_ledger,
    read_checked,
    row_hash,
)
from regard.errors import InputError, UnknownNameError
from regard.files import chunks

DEFAULT = Checks()
LENIENT = Checks(unequal="keep", malformed="drop", encoding="keep", empty="keep")
STRICT = Checks(
    **dict.fromkeys(["unequal", "encoding", "empty", "long", "ratio", "duplicate"], "drop")
)


def checked(rows, checks=DEFAULT, ledger=None):
    checker = Checker(rows.names, checks, ledger)
    examples = [one for chunk in chunks(rows) for one in checker.check(chunk)]
    return [example.texts for example in examples], checker


def two_files(write, source, target):
    return parallel_text(write("a.en", source), write("a.de", target))


def test_sound_rows_pass_as_they_are(write, pairs):
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    texts, checker = checked(parallel_text(write("a.tsv", text)))
    assert texts == pairs
    assert checker.report.lines() == ["4 lines read, 4 kept."]
    checker.finish()


def test_unequal_line_counts_stop_drop_or_leave_an_empty_side(write):
    rows = two_files(write, "1\n2\n3\n4\n", "eins\nzwei\n")
    texts, checker = checked(rows)
    assert texts == [("1", "eins"), ("2", "zwei")]
    with pytest.raises(InputError, match=r"2 lines without a partner .*a\.en line 3, 4\)\. Fix"):
        checker.finish()
    texts, checker = checked(rows, STRICT)
    assert len(texts) == 2
    checker.finish()
    texts, checker = checked(rows, LENIENT)
    assert texts[2:] == [("3", ""), ("4", "")]
    assert checker.report.problems["empty"].count == 2


def test_invalid_utf8_stops_is_dropped_or_replaced(write):
    rows = two_files(write, b"good\nb\xffad\ngood again\n", b"gut\nschlecht\nwieder gut\n")
    with pytest.raises(InputError, match=r"1 lines that are not valid UTF-8 \(.*a\.en line 2\)"):
        list(read_checked(rows, Checks()))
    assert [one.line for one in read_checked(rows, Checks(encoding="drop"))] == [1, 3]
    texts, checker = checked(rows, Checks(encoding="keep"))
    assert texts[1] == ("b\ufffdad", "schlecht")
    assert checker.report.problems["encoding"].changed == 1


@pytest.mark.parametrize(
    ("source", "target", "problem", "side"),
    [
        (b"b\xffad", b"gut", "encoding", "en"),
        (b"good", b"schl\xffecht", "encoding", "de"),
        (b"", b"gut", "empty", "en"),
        (b"good", b" ", "empty", "de"),
        (b"x" * 30, b"x" * 31, "long", "de"),
        (b"x" * 31, b"x" * 30, "long", "en"),
        (b"x" * 40, b"x", "ratio", "en"),
        (b"x", b"x" * 40, "ratio", "de"),
    ],
)
def test_a_problem_names_the_file_of_its_side(write, source, target, problem, side):
    rows = two_files(write, b"one\n" + source + b"\n", b"eins\n" + target + b"\n")
    limit = 30 if problem == "long" else 50
    _, checker = checked(rows, Checks(max_characters=limit, **{problem: "stop"}))
    ((file, line),) = checker.report.problems[problem].places
    assert (file.rpartition(".")[2], line) == (side, 2)
    with pytest.raises(InputError, match=rf"a\.{side} line 2\)"):
        checker.finish()


def test_extra_lines_and_marks_name_the_file_that_has_them(write):
    rows = two_files(write, "1\n", "\ufeffeins\nzwei\n")
    _, checker = checked(rows)
    ((file, line),) = checker.report.problems["unequal"].places
    assert file.endswith("a.de")
    assert line == 2
    ((file, line),) = checker.report.problems["mark"].places
    assert file.endswith("a.de")
    assert line == 1


def test_a_byte_order_mark_is_removed_and_reported(write):
    texts, checker = checked(two_files(write, b"\xef\xbb\xbfone\n", b"eins\n"))
    assert texts == [("one", "eins")]
    assert checker.report.problems["mark"].changed == 1
    checker.finish()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("\teins", "empty"),
        ("one\t  ", "empty"),
        ("\u3000\teins", "empty"),
        ("x" * 21 + "\teins", "long"),
        ("one\teins", "duplicate"),
    ],
)
def test_each_problem_is_treated_by_its_policy(write, line, problem):
    rows = parallel_text(write("a.tsv", f"one\teins\n{line}\n"))
    limits = {"max_characters": 20, "max_ratio": 100.0}
    for policy, kept in [("keep", 2), ("drop", 1), ("stop", 1)]:
        texts, checker = checked(rows, Checks(**limits, **{problem: policy}))
        assert len(texts) == checker.report.kept == kept
        assert list(checker.report.problems) == [problem]
        assert checker.report.problems[problem].places == [(rows.paths[0], 2)]
        if policy == "stop":
            with pytest.raises(InputError, match=rf"set checks\.{problem} to 'drop'"):
                checker.finish()
        else:
            checker.finish()


def test_lengths_are_compared_only_between_source_and_target_and_not_for_short_texts(write):
    line = "x\t" + "y" * 40 + "\nx\tyyyyyyyyyyyy\n"
    _, checker = checked(parallel_text(write("a.tsv", line)))
    assert checker.report.problems["ratio"].places[0][1] == 1
    assert checker.report.problems["ratio"].count == 1
    _, checker = checked(labeled_text(write("a.tsv", line)))
    assert not checker.report.problems


def test_malformed_lines_stop_or_are_dropped(write):
    rows = parallel_text(write("a.jsonl", '{"source": "a", "target": "b"}\nnonsense\n'))
    with pytest.raises(InputError, match="1 lines that are not valid rows"):
        list(read_checked(rows, Checks()))
    assert len(list(read_checked(rows, LENIENT))) == 1


def test_all_problems_that_stop_are_reported_at_once(write):
    source = b"".join(b"\xff\n" if n % 3 == 0 else b"line %d\n" % n for n in range(30))
    rows = two_files(write, source, b"x\n" * 20)
    with pytest.raises(InputError) as caught:
        list(read_checked(rows, Checks()))
    message = str(caught.value)
    assert "\n" not in message
    assert "Of 30 lines read there are 7 lines that are not valid UTF-8" in message
    assert "line 1, 4, 7, 10, 13, …" in message
    assert "10 lines without a partner" in message
    assert "checks.encoding, checks.unequal" in message


def test_the_ledger_lists_everything_dropped_or_changed_and_nothing_else(write, tmp_path):
    source = b"one\n\ntwo\tx\n\xff\none\nlonely\n"
    rows = two_files(write, source, b"eins\nleer\nzwei\\\ndrei\neins\n")
    with open_ledger(tmp_path / "ledger.tsv") as ledger:
        checks = Checks(unequal="drop", encoding="keep", duplicate="drop")
        texts, checker = checked(rows, checks, ledger)
    table = [line.split("\t") for line in (tmp_path / "ledger.tsv").read_text().splitlines()]
    assert table[0] == ["file", "line", "action", "problem", "text"]
    assert sorted(row[1:] for row in table[1:]) == [
        ["2", "dropped", "empty", "", "leer"],
        ["4", "changed", "encoding", r"\xff", "drei"],
        ["5", "dropped", "duplicate", "one", "eins"],
        ["6", "dropped", "unequal", "lonely", ""],
    ]
    assert checker.report.read - checker.report.kept == 3
    assert len(texts) == 3


def test_the_ledger_escapes_tabs_and_line_ends(tmp_path):
    with open_ledger(tmp_path / "l") as ledger:
        checker = Checker(("source", "target"), DEFAULT, ledger)
        checker._record("empty", ("f", 1), ["a\tb\\", "c\nd\r", b"\xff\\", None])
    assert (tmp_path / "l").read_text().splitlines()[1] == (
        "f\t1\tdropped\tempty\ta\\tb\\\\\tc\\nd\\r\t\\xff\\\\\t"
    )


def test_no_ledger_is_left_when_something_fails(tmp_path):
    def fail():
        with open_ledger(tmp_path / "l") as ledger:
            ledger.write("f\t1\tdropped\tempty\n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_report_survives_being_stored(write):
    _, checker = checked(two_files(write, "a\n\nb\n", "a\nb\nc\n"))
    stored = json.loads(json.dumps(asdict(checker.report)))
    assert CleaningReport.from_dict(stored) == checker.report
    assert checker.report.lines()[1].endswith("a.en line 2): 1 dropped")


def test_a_row_is_dropped_only_once(write):
    row = "x" * 50 + "\t\n"
    texts, checker = checked(parallel_text(write("a.tsv", row * 2)), Checks(max_characters=10))
    assert texts == []
    assert {name: found.count for name, found in checker.report.problems.items()} == {"empty": 2}


def test_invalid_policies_are_refused(no_shape_checks):
    with pytest.raises(UnknownNameError, match=r"checks\.empty is 'dorp'; .*the nearest are drop"):
        Checks(empty="dorp")
    for name in ("malformed", "label", "tokens"):
        with pytest.raises(InputError, match=f"checks.{name} cannot be 'keep'"):
            Checks(**{name: "keep"})


def test_many_rows_are_checked_in_little_memory(tmp_path):
    import subprocess
    import sys
    from pathlib import Path

    program = """
import resource, sys, types
root = types.ModuleType("regard"); root.__path__ = ["regard"]; sys.modules["regard"] = root
from regard.data.text_checks import Checker, Checks, chunks
from regard.data.readers import Row
def rows(n):
    for i in range(n):
        yield Row("f", i + 1, (b"source line %d" % i, b"target line %d" % i))
def peak(n):
    checker = Checker(("source", "target"), Checks(duplicate="drop"))
    for chunk in chunks(rows(n)):
        checker.check(chunk)
    assert checker.report.kept == n
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small = peak(20_000)
print((peak(120_000) - small) / 1024)
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert float(run.stdout) < 15  # MiB: 8 bytes per row, twice while runs are merged


def test_repeated_hashes_are_found_within_and_across_chunks():
    seen = SeenHashes()
    assert seen.add([5, 3, 5]).tolist() == [False, False, True]
    assert seen.add([3, 4]).tolist() == [True, False]
    assert seen.add([]).tolist() == []
    assert len(seen) == 3


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=30))
def test_seen_hashes_equal_a_set(chunks):
    seen, reference = SeenHashes(), set()
    for chunk in chunks:
        expected = []
        for number in chunk:
            expected.append(number in reference)
            reference.add(number)
        assert seen.add(chunk).tolist() == expected
    assert len(seen) == len(reference)


def test_hashes_depend_on_the_sides_and_not_on_the_process():
    assert row_hash(["ab", "c"]) != row_hash(["a", "bc"])
    assert row_hash(["ab", "c"]) == 16542635060684481341
