import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli.tokenizer_commands import app
from regard.errors import FileError, InputError, UnknownNameError
from regard.files import zstd
from regard.text.tokenizer import Tokenizer

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = "A dog runs.\n저는 학생입니다.\nTwo dogs run, don't they?\n"


def run(*words, input=None):
    """What the command prints; errors come out as they are raised."""
    result = CliRunner().invoke(app, [str(word) for word in words], input=input)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def alone(*words, **options):
    program = "from regard.cli.tokenizer_commands import app; app()"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], cwd=REPOSITORY, check=True, **options
    )


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT * 3, encoding="utf-8")
    return path


@pytest.fixture
def learned(corpus, tmp_path):
    path = tmp_path / "tokenizer.json"
    run("train", corpus, "-o", path, "--kind", "byte-bpe", "--vocab-size", 300)
    return path


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "characters"])
def test_train_writes_a_tokenizer_that_gives_the_text_back(corpus, tmp_path, kind):
    printed = run("train", corpus, "-o", tmp_path / "t", "--kind", kind, "--vocab-size", 300)
    tokenizer = Tokenizer.load(tmp_path / "t")
    assert f"{len(tokenizer)} entries ({kind}) from 9 texts" in printed
    for line in TEXT.splitlines():
        assert tokenizer.decode(tokenizer.encode(line)) == line


def test_train_reads_packed_files_tables_json_and_input_together(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"first\n"))
    (tmp_path / "b.tsv.zst").write_bytes(zstd.compress(b"x\tsecond\tthird\n"))
    output = tmp_path / "t.json"
    files = [tmp_path / "a.txt.gz", tmp_path / "b.tsv.zst", "-"]
    options = ["-o", output, "--kind", "characters", "--json"]
    printed = json.loads(run("train", *files, *options, "--fields", "2,3", input="0\tfourth\t5\n"))
    assert printed["texts"] == 5
    assert (
        printed["entries"] == len(Tokenizer.load(output)) == 5 + len(set("firstsecondthirdfourth5"))
    )
    (tmp_path / "c.jsonl").write_text('{"en": "q", "de": "z"}\n')
    run("train", tmp_path / "c.jsonl", *options, "--fields", "en, de")
    assert len(Tokenizer.load(output)) == 5 + 2
    (tmp_path / "d.tsv").write_text("q\tz\tunread\n")
    run("train", tmp_path / "d.tsv", *options)
    assert len(Tokenizer.load(output)) == 5 + 2


def test_train_obeys_its_options(corpus, tmp_path):
    output = tmp_path / "t.json"
    run("train", corpus, "-o", output, "--lowercase", "--normalize", "nfkc", "--vocab-size", 100)
    assert Tokenizer.load(output).normalize("ＡB") == "ab"
    run("train", corpus, "-o", output, "--normalize", "none", "--vocab-size", 100)
    assert Tokenizer.load(output).normalize("ＡB") == "ＡB"


def test_pipes_of_ids_come_back_as_the_text(learned):
    ids = run("encode", learned, "-", input=TEXT)
    assert len(ids.splitlines()) == 3
    assert ids.split()[0] == "2"
    assert run("decode", learned, input=ids) == TEXT
    assert (
        run(
            "encode",
            learned,
            input="\n",
        )
        == "2 3\n"
    )
    assert run("decode", learned, input="\n\n") == "\n\n"


def test_many_lines_keep_their_order(learned, tmp_path):
    lines = "".join(f"{number} dogs\n" for number in range(5000))
    (tmp_path / "many.zst").write_bytes(zstd.compress(lines.encode()))
    ids = run("encode", learned, "--file", tmp_path / "many.zst")
    assert run("decode", learned, "-", input=ids) == lines


def test_pieces_are_shown_with_ids_characters_and_words(learned):
    rows = [line.split("\t") for line in run("encode", learned, "A 뷁", "--pieces").splitlines()]
    assert [row[0] for row in rows if row[0]] == ["[CLS]", "A", "␣", "뷁", "⋯", "⋯", "[SEP]"]
    assert rows[1][2:] == ["0–1", "0"]
    assert rows[2][2:] == ["1–2", "1"]
    assert rows[5][2:] == ["2–3", "1"]


def test_json_holds_everything(learned):
    printed = json.loads(run("encode", learned, "A dog", "--json", "--no-specials"))
    tokenizer = Tokenizer.load(learned)
    assert printed["text"] == "A dog"
    assert printed["ids"] == tokenizer.encode("A dog", specials=False)
    assert printed["pieces"][0] == {
        "text": "A",
        "id": printed["ids"][0],
        "start": 0,
        "end": 1,
        "word": 0,
    }
    back = json.loads(run("decode", learned, *printed["ids"], "--json"))
    assert back == {"ids": printed["ids"], "text": "A dog"}


def test_ids_may_be_written_with_commas_and_brackets(learned):
    ids = Tokenizer.load(learned).encode("A dog")
    assert run("decode", learned, str(ids)) == "A dog\n"
    assert run("decode", learned, *ids, "--specials") == "[CLS]A dog[SEP]\n"


def test_a_terminal_gets_a_table_and_a_pipe_gets_ids(learned):
    reader, writer = os.openpty()
    alone("encode", learned, "저는 dogs", stdout=writer, env={**os.environ, "COLUMNS": "80"})
    os.close(writer)
    shown = os.read(reader, 10_000).decode()
    os.close(reader)
    assert "piece" in shown
    assert "␣dogs" in shown
    assert "characters" in shown
    piped = alone("encode", learned, "저는", capture_output=True, text=True).stdout
    assert piped.split() == [str(id) for id in Tokenizer.load(learned).encode("저는")]


def test_text_is_utf8_whatever_the_machine_s_language_is(learned):
    ids = Tokenizer.load(learned).encode("저는")
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = alone("decode", learned, *ids, capture_output=True, env=env)
    assert done.stdout.decode() == "저는\n"


@pytest.mark.parametrize("command", ["train", "encode", "decode"])
def test_help_has_an_example(command):
    assert f"Example: regard tokenizer {command}" in " ".join(run(command, "--help").split())


@pytest.mark.parametrize(
    ("words", "input", "error", "message"),
    [
        (["encode", "LEARNED", "a", "--file", "b"], None, InputError, "texts or --file, not both"),
        (
            ["encode", "LEARNED"],
            b"ok\n\xff\n",
            InputError,
            "Line 2 of the input is not valid UTF-8",
        ),
        (["encode", "absent"], "", FileError, "absent does not exist"),
        (["decode", "LEARNED"], "2 3\n2 x\n", InputError, "Line 2 has 'x', which is not an id"),
        (["decode", "LEARNED", "99999"], None, InputError, "99999 is not an id of this vocabulary"),
        (["train", "absent", "-o", "t"], None, FileError, "No such file"),
        (["train", "-", "-o", "t", "--kind", "pbe"], "a", UnknownNameError, "the nearest .*bpe"),
        (["train", "-", "-o", "t", "--normalize", "nfd"], "a", UnknownNameError, "nfc, nfkc"),
        (["train", "-", "-o", "t", "--fields", "a"], "a", InputError, "must be column numbers"),
        (["train", "-", "-o", "t"], "", InputError, "no text to train"),
        (["train", "-", "-o", "t"], b"\xff\n", InputError, "1 lines that are not valid UTF-8"),
    ],
)
def test_faults_are_one_sentence(learned, tmp_path, monkeypatch, words, input, error, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        run(*[learned if word == "LEARNED" else word for word in words], input=input)


def test_a_bundled_model_lends_its_tokenizer_by_its_name():
    ids = run("encode", "en-de", "Good morning.", "--ids")
    assert run("decode", "en-de", *ids.split()) == "Good morning.\n"
