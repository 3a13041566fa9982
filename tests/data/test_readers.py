"""Rows from parallel files, TSV, JSONL and standard input."""

import gzip
import io
import json
import sys

import pytest

from regard.data.readers import (
    JoinedRows,
    TextRows,
    format_of,
    labeled_text,
    parallel_text,
    plain_text,
)
from regard.errors import FileError, InputError, UnknownNameError
from regard.files import zstd


def fields(rows):
    return [row.fields for row in rows]


def expected(pairs):
    return [(source.encode(), target.encode()) for source, target in pairs]


def lines(texts):
    return "".join(text + "\n" for text in texts)


def test_two_files_are_read_side_by_side(write, pairs):
    source = write("a.en", lines(source for source, _ in pairs))
    target = write("a.de.gz", gzip.compress(lines(target for _, target in pairs).encode()))
    rows = list(parallel_text(source, target))
    assert fields(rows) == expected(pairs)
    assert [(row.file, row.line) for row in rows] == [(source, n) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress])
@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_tables_and_json_lines_are_read_packed_and_plain(write, pairs, pack, ending):
    as_tsv = lines(f"{source}\t{target}\tthird column" for source, target in pairs)
    as_json = lines(json.dumps({"source": source, "target": target}) for source, target in pairs)
    end = {bytes: "", gzip.compress: ".gz", zstd.compress: ".zst"}[pack]
    path = write(f"a.{ending}{end}", pack((as_tsv if ending == "tsv" else as_json).encode()))
    assert fields(parallel_text(path)) == expected(pairs)


def test_columns_and_keys_are_chosen(write):
    table = write("a.tsv", "1\teins\tone\n2\tzwei\ttwo\n")
    assert fields(parallel_text(table, columns=(3, 2))) == [(b"one", b"eins"), (b"two", b"zwei")]
    records = write("a.jsonl", '{"en": "one", "de": "eins", "id": 1}\n')
    assert fields(parallel_text(records, keys=("en", "de"))) == [(b"one", b"eins")]
    assert fields(labeled_text(records, keys=("id", "de"))) == [(b"1", b"eins")]


def test_standard_input_is_read_as_tsv_by_default(monkeypatch):
    def give(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    give(b"one\teins\n")
    assert [(row.file, row.fields) for row in parallel_text("-")] == [
        ("standard input", (b"one", b"eins"))
    ]
    give(gzip.compress(b'{"source": "one", "target": "eins"}\n'))
    assert fields(parallel_text("-", format="jsonl")) == [(b"one", b"eins")]


def test_saved_standard_input_can_be_read_again(monkeypatch, tmp_path, write):
    target = write("a.de", "eins\nzwei\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    rows = parallel_text("-", target).with_stdin_saved(tmp_path)
    for _ in range(2):
        assert fields(rows) == [(b"one", b"eins"), (b"two", b"zwei")]
    assert next(iter(rows)).file == "standard input"
    assert rows.fingerprint() == parallel_text(write("a.en", "one\ntwo\n"), target).fingerprint()
    assert rows.with_stdin_saved(tmp_path) is rows


def test_a_shorter_file_leaves_its_side_empty(write):
    rows = parallel_text(write("a", "1\n2\n3\n"), write("b", "1\n"))
    assert fields(rows) == [(b"1", b"1"), (b"2", None), (b"3", None)]


@pytest.mark.parametrize(
    ("name", "line", "fault"),
    [
        ("a.tsv", b"only one", "1 of 2 columns"),
        ("a.tsv", b"", "1 of 2 columns"),
        ("a.jsonl", b"{", "not JSON"),
        ("a.jsonl", b"", "not JSON"),
        ("a.jsonl", b"[" * 100_000, "not JSON"),
        ("a.jsonl", b'"text"', "not a JSON object"),
        ("a.jsonl", b'{"source": "x"}', "no text under 'target'"),
        ("a.jsonl", b'{"source": "x", "target": true}', "no text under 'target'"),
    ],
)
def test_a_malformed_line_says_why(write, name, line, fault):
    good = {"a.tsv": b"x\ty", "a.jsonl": b'{"source": "x", "target": "y"}'}[name]
    rows = list(parallel_text(write(name, good + b"\n" + line + b"\n" + good + b"\n")))
    assert [row.fault for row in rows] == [None, fault, None]
    assert rows[1].line == 2
    assert rows[1].fields == (line,)


def test_invalid_bytes_in_json_are_kept(write):
    path = write("a.jsonl", b'{"source": "a\xffb", "target": "\\ud800"}\n')
    (row,) = parallel_text(path)
    assert row.fault is None
    assert row.fields[0] == b"a\xffb"
    with pytest.raises(UnicodeDecodeError):
        row.fields[1].decode()


def test_a_byte_order_mark_before_json_is_ignored(write):
    (row,) = parallel_text(write("a.jsonl", b'\xef\xbb\xbf{"source": "a", "target": "b"}\n'))
    assert row.fields == (b"a", b"b")


def test_plain_texts_are_read_one_after_another(write):
    rows = plain_text(write("a", "1\n2\n"), write("b", "3\n"))
    assert fields(rows) == [(b"1",), (b"2",), (b"3",)]
    assert [row.line for row in rows] == [1, 2, 1]


def test_the_fingerprint_follows_the_contents_and_not_the_name(write):
    one = write("a.tsv", "x\ty\n")
    assert parallel_text(one).fingerprint() == parallel_text(write("b.tsv", "x\ty\n")).fingerprint()
    others = [
        parallel_text(write("c.tsv", "x\tz\n")),
        parallel_text(one, columns=(2, 1)),
        labeled_text(one),
        plain_text(one),
        JoinedRows((parallel_text(one), parallel_text(one))),
    ]
    assert len({rows.fingerprint() for rows in [parallel_text(one), *others]}) == 6


def test_the_format_is_the_suffix_before_the_compression():
    names = ["a.tsv.gz", "b.jsonl", "b.ndjson.zst", "c.txt", "-", "dir.tsv/file"]
    assert [format_of(name) for name in names] == ["tsv", "jsonl", "jsonl", None, None, None]


def test_invalid_arguments_are_refused(write):
    with pytest.raises(InputError, match="does not say how source and target are separated"):
        parallel_text("a.txt")
    with pytest.raises(InputError, match=r"Columns are counted from 1; 0 was given"):
        parallel_text("a.tsv", columns=(0, 1))
    with pytest.raises(InputError, match="Standard input can be read only once"):
        parallel_text("-", "-")
    with pytest.raises(InputError, match="needs 2 columns or keys, not 0"):
        TextRows(("a",), ("source", "target"), "tsv")
    with pytest.raises(InputError, match="same fields"):
        JoinedRows((parallel_text("a.tsv"), labeled_text("a.tsv")))
    with pytest.raises(FileError, match="No such file"):
        list(parallel_text("absent.tsv"))
    with pytest.raises(FileError, match="No such file"):
        parallel_text("absent.tsv").fingerprint()


def test_an_unknown_format_is_refused_with_the_nearest(no_shape_checks):
    with pytest.raises(UnknownNameError, match=r"format is 'tvs'; .*the nearest is tsv"):
        TextRows(("a",), ("text",), "tvs")
