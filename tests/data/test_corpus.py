"""Corpora: every example as the tokenizer encodes its line, built once, damage reported."""

import gzip
import io
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Corpus, Ragged, RaggedWriter, build_corpus, smallest_type
from regard.data.readers import labeled_text, parallel_text, plain_text
from regard.data.text_checks import Checks
from regard.errors import FileError, InputError
from regard.text.tokenizer_training import train_tokenizer

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def table(write, pairs):
    return write("a.tsv", "".join(f"{source}\t{target}\n" for source, target in pairs))


@pytest.fixture
def build(tmp_path, tokenizer):
    def build_here(rows, **options):
        return build_corpus(
            rows, options.pop("tokenizers", tokenizer), cache=tmp_path / "cache", **options
        )

    return build_here


def decoded(corpus, tokenizer):
    return [tuple(map(tokenizer.decode, corpus[n])) for n in range(len(corpus))]


def test_every_example_is_the_encoding_of_its_line(build, table, pairs, tokenizer):
    corpus = build(parallel_text(table))
    assert len(corpus) == 4
    for number, pair in enumerate(pairs):
        assert [ids.tolist() for ids in corpus[number]] == tokenizer.encode_batch(pair)
    assert decoded(corpus, tokenizer) == pairs
    assert [side.tolist() for side in corpus.lengths] == [
        [len(tokenizer.encode(pair[side])) for pair in pairs] for side in (0, 1)
    ]
    assert corpus[0][0].dtype == np.uint16


def test_the_same_corpus_is_built_once(build, table, tmp_path):
    seen = []
    first = build(parallel_text(table), progress=seen.append)
    again = build(parallel_text(table), progress=seen.append)
    assert seen == [4]
    assert first.folder == again.folder
    copy = Path(table).with_name("other-name.tsv")
    copy.write_bytes(Path(table).read_bytes())
    assert build(parallel_text(copy), progress=seen.append).folder == first.folder
    assert Corpus(first.folder)[3][1].tolist() == first[3][1].tolist()


def test_other_text_tokenizers_or_settings_give_another_corpus(build, table, write, pairs):
    other = train_tokenizer([text for pair in pairs for text in pair], kind="characters")
    rows = parallel_text(table)
    built = [
        build(rows),
        build(rows, tokenizers=other),
        build(rows, specials=False),
        build(rows, checks=Checks(max_tokens=100)),
        build(parallel_text(table, columns=(2, 1))),
        build(parallel_text(write("b.tsv", "x\ty\n"))),
    ]
    assert len({corpus.folder for corpus in built}) == len(built)


def test_each_side_may_have_its_own_vocabulary(build, table, pairs, tokenizer):
    other = train_tokenizer([target for _, target in pairs], kind="characters")
    corpus = build(parallel_text(table), tokenizers=[tokenizer, other], specials=False)
    assert other.decode(corpus[1][1]) == pairs[1][1]
    assert corpus.lengths[1][1] == len(pairs[1][1])
    with pytest.raises(InputError, match=r"source and target needs 2 tokenizers .* 3 were given"):
        build(parallel_text(table), tokenizers=[tokenizer] * 3)


def test_names_of_special_tokens_in_the_text_stay_text(build, write, tokenizer):
    corpus = build(parallel_text(write("a.tsv", "a [SEP] b\t[MASK]\n")), specials=False)
    assert not tokenizer.special_ids & set(np.concatenate(corpus[0]).tolist())
    assert decoded(corpus, tokenizer) == [("a [SEP] b", "[MASK]")]


def test_what_was_dropped_is_reported_and_in_the_ledger(build, write, tokenizer):
    text = "a\tb\n\tempty\na\tb\nlong " + "word " * 20 + "\tnot so short a text\n"
    checks = Checks(duplicate="drop", max_tokens=20)
    corpus = build(parallel_text(write("a.tsv", text)), checks=checks)
    assert decoded(corpus, tokenizer) == [("a", "b")]
    for report in (corpus.report, Corpus(corpus.folder).report):
        assert (report.read, report.kept) == (4, 1)
        counts = {name: found.dropped for name, found in report.problems.items()}
        assert counts == {"empty": 1, "duplicate": 1, "tokens": 1}
    ledger = corpus.ledger.read_text().splitlines()[1:]
    assert [line.split("\t")[1:4] for line in ledger] == [
        ["2", "dropped", "empty"],
        ["3", "dropped", "duplicate"],
        ["4", "dropped", "tokens"],
    ]


def test_a_problem_with_the_policy_stop_leaves_no_corpus(build, write, tmp_path):
    rows = parallel_text(write("a.tsv", b"a\tb\n\xff\tc\n"))
    with pytest.raises(InputError, match="1 lines that are not valid UTF-8"):
        build(rows)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == []
    assert len(build(rows, checks=Checks(encoding="drop"))) == 1


@pytest.mark.parametrize("contents", ["", "\t\n", "a\t\n"])
def test_a_corpus_without_examples_is_refused(build, write, contents):
    with pytest.raises(
        InputError, match=r"There is no example to train on\. \d lines read, 0 kept"
    ):
        build(parallel_text(write("a.tsv", contents)))


def test_a_damaged_file_stops_and_leaves_no_corpus(build, write, tmp_path, pairs):
    packed = gzip.compress("".join(f"{n} a\t{n} b\n" for n in range(5_000)).encode())
    with pytest.raises(FileError, match="damaged or truncated after line"):
        build(parallel_text(write("a.tsv.gz", packed[: len(packed) // 2])))
    assert [path.name for path in (tmp_path / "cache").iterdir()] == []


def test_standard_input_makes_the_same_corpus_as_a_file(build, table, monkeypatch):
    given = io.TextIOWrapper(io.BytesIO(gzip.compress(Path(table).read_bytes())))
    monkeypatch.setattr(sys, "stdin", given)
    assert build(parallel_text("-")).folder == build(parallel_text(table)).folder


def test_labels_are_numbered_by_name_and_may_be_given(build, write, tokenizer):
    rows = labeled_text(write("a.tsv", "sad\tIt rains.\nhappy\tThe sun.\nsad\tNo sun.\n"))
    corpus = build(rows)
    assert corpus.classes == ("happy", "sad")
    assert corpus.labels.tolist() == [1, 0, 1]
    assert tokenizer.decode(corpus[1][1]) == "The sun."
    assert len(corpus.lengths) == 1
    given = build(rows, classes=["sad", "bored", "happy"])
    assert given.labels.tolist() == [0, 2, 0]
    with pytest.raises(
        InputError, match=r"2 rows with a label that is not among the classes .*line 1, 3"
    ):
        build(rows, classes=["happy"])
    some = build(rows, classes=["happy"], checks=Checks(label="drop"))
    assert (len(some), some.report.kept) == (1, 1)
    with pytest.raises(InputError, match="This corpus has no labels"):
        build(plain_text(write("b", "x\n"))).labels  # noqa: B018


def test_missing_and_damaged_corpora_are_named(build, table, tmp_path):
    with pytest.raises(FileError, match=r"corpus\.json cannot be read: No such file"):
        Corpus(tmp_path)
    corpus = build(parallel_text(table))
    (corpus.folder / "corpus.json").write_text("{")
    with pytest.raises(FileError, match=r"corpus\.json is damaged: delete its folder"):
        Corpus(corpus.folder)


@pytest.mark.data("multi30k")
def test_a_real_corpus_comes_back_line_by_line(build, data):
    files = [data / "multi30k" / f"val.{side}.gz" for side in ("en", "de")]
    texts = [gzip.decompress(file.read_bytes()).decode().splitlines() for file in files]
    tokenizer = train_tokenizer(texts[0] + texts[1], vocab_size=2000)
    corpus = build(parallel_text(*files), tokenizers=tokenizer)
    assert len(corpus) == 1014
    for side in (0, 1):
        expected = [tokenizer.normalize(text) for text in texts[side]]
        assert (
            tokenizer.decode_batch(field[n] for n in range(1014) for field in [corpus.fields[side]])
            == expected
        )


def test_a_large_corpus_is_built_and_opened_in_little_memory(tmp_path):
    train_tokenizer(["A dog runs Ein Hund 0123456789."], kind="characters").save(
        tmp_path / "t.json"
    )
    with gzip.open(tmp_path / "large.tsv.gz", "wb", compresslevel=1) as packed:
        for start in range(0, 60_000, 1000):
            rows = (b"A dog runs %d.\tEin Hund %d.\n" % (n, n) for n in range(start, start + 1000))
            packed.write(b"".join(rows))
    program = """
import json, resource, sys, types
root = types.ModuleType("regard"); root.__path__ = ["regard"]; sys.modules["regard"] = root
from regard.data.text_checks import Checks
from regard.data.corpus import build_corpus
from regard.data.readers import parallel_text
from regard.text.tokenizer import Tokenizer
folder = sys.argv[1]
tokenizer = Tokenizer.load(folder + "/t.json")
peaks = []
def note(lines):
    peaks.append((lines, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
rows = parallel_text(folder + "/large.tsv.gz")
corpus = build_corpus(rows, tokenizer, cache=folder, progress=note)
assert len(corpus) == 60_000 and "torch" not in sys.modules
early = next(peak for lines, peak in peaks if lines > 20_000)
print(peaks[-1][1] - early)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    assert float(run.stdout) < 25  # MiB for 40,000 more rows


UINT16 = np.dtype(np.uint16)


def written(folder, chunks, dtype=UINT16):
    with closing(RaggedWriter(folder, "x", dtype)) as writer:
        for chunk in chunks:
            writer.append(chunk)
    return Ragged(folder, "x", dtype, count=sum(map(len, chunks)), total=writer.total)


@given(st.lists(st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=5), max_size=4), max_size=4))
def test_lists_are_read_as_they_were_written(tmp_path_factory, chunks):
    ragged = written(tmp_path_factory.mktemp("ragged"), chunks)
    lists = [one for chunk in chunks for one in chunk]
    assert [ragged[n].tolist() for n in range(len(ragged))] == lists
    assert ragged.lengths.tolist() == [len(one) for one in lists]
    assert ragged.flat.tolist() == [id for one in lists for id in one]


def test_numbers_from_arrays_and_from_the_end_find_their_list(tmp_path):
    ragged = written(tmp_path, [[[1], [2, 3]] + [[n] for n in range(400)]])
    assert ragged[np.uint8(1)].tolist() == [2, 3]
    assert ragged[-1].tolist() == [399]
    with pytest.raises(IndexError, match="list 402 does not exist; there are 402"):
        ragged[402]


def test_mapped_ids_are_read_only(tmp_path):
    ragged = written(tmp_path, [[[1, 2]]])
    with pytest.raises(ValueError, match="read-only"):
        ragged[0][0] = 7


def test_ids_take_two_bytes_while_they_fit():
    assert smallest_type(65_536) == np.uint16
    assert smallest_type(65_537) == np.uint32


def test_truncated_and_missing_files_are_named(tmp_path):
    written(tmp_path, [[[1, 2, 3]]])
    (tmp_path / "x.ids").write_bytes(b"12345")
    with pytest.raises(
        FileError, match=r"x\.ids is damaged: it has 5 bytes instead of 6; delete its folder"
    ):
        Ragged(tmp_path, "x", UINT16, count=1, total=3)
    (tmp_path / "x.ids").unlink()
    with pytest.raises(FileError, match=r"x\.ids cannot be read: No such file"):
        Ragged(tmp_path, "x", UINT16, count=1, total=3)


PACKAGE = Path(__file__).resolve().parents[2] / "regard"


def test_data_does_not_import_torch():
    # commands that only read text must start fast
    modules = [f"regard.data.{path.stem}" for path in (PACKAGE / "data").glob("[a-z]*.py")]
    assert len(modules) > 7
    program = (
        "import sys, types; root = types.ModuleType('regard'); "
        f"root.__path__ = [{str(PACKAGE)!r}]; sys.modules['regard'] = root; "
        f"import {', '.join(modules)}; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
