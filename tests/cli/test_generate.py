"""fill, classify and generate answer what is piped in line by line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import InputError
from regard.interop.model_names import bundled
from regard.model import Model, load
from regard.models.encoder import Encoder, EncoderConfig
from regard.text.tokenizer_training import train_tokenizer


def piped(text: str, *words: str) -> list[str]:
    found = CliRunner().invoke(app, words, input=text)
    assert found.exit_code == 0, found.output
    return found.stdout.splitlines()


@pytest.fixture(scope="module")
def filler(tmp_path_factory) -> str:
    torch.manual_seed(0)
    tokenizer = train_tokenizer(["the dog is here", "a cat is there"] * 3, vocab_size=60)
    sizes = {"d_model": 8, "n_heads": 2, "d_ff": 8, "n_layers": 1}
    config = EncoderConfig(n_vocab=len(tokenizer), fill_head=True, **sizes)
    folder = tmp_path_factory.mktemp("filler") / "model"
    Model(module=Encoder(config).eval(), task="masked", tokenizer=tokenizer).save(folder)
    return str(folder)


def test_each_line_comes_out_with_its_gaps_filled_by_the_best_candidates(filler):
    best = [gap[0].text for gap in load(filler).fill("the [MASK] is [MASK]")]
    lines = piped("the [MASK] is [MASK]\nnothing is missing\n\n", "fill", filler)
    assert lines == [f"the {best[0]} is {best[1]}", "nothing is missing", ""]


def test_a_file_is_filled_like_its_lines_piped_in(filler, tmp_path):
    text = "the [MASK] is here\nnothing\na [MASK]\n"
    (tmp_path / "gaps.txt").write_text(text)
    assert piped("", "fill", filler, str(tmp_path / "gaps.txt")) == piped(text, "fill", filler)
    for command in ("fill", "embed"):
        refused = CliRunner().invoke(app, [command, filler, "absent.txt"])
        assert "absent.txt cannot be read" in str(refused.exception)


def test_json_has_the_candidates_of_every_gap_of_every_line(filler):
    lines = piped("the [MASK]\nnone\n", "fill", filler, "--json", "-n", "2")
    answers = [json.loads(line) for line in lines]
    assert [[len(gap) for gap in one["gaps"]] for one in answers] == [[2], []]
    assert [(one["engine"], one["precision"]) for one in answers] == [
        ("torch", "float32"),
        (None, None),  # nothing was asked
    ]


def test_each_line_names_an_image():
    files = sorted((bundled()["digits"] / "examples").glob("*.png"))[:2]
    lines = piped("".join(f"{file}\n" for file in files), "classify", "digits", "-n", "1")
    assert lines == piped("", "classify", "digits", "-n", "1", *map(str, files))
    assert [line.partition("\t")[0] for line in lines] == [str(file) for file in files]


def test_each_line_is_continued(tmp_path):
    one = ("generate", "shakespeare", "--max-tokens", "3", "--temperature", "0")
    both = piped("ROMEO:\nKING\n", *one)
    assert both == piped("", *one, "ROMEO:") + piped("", *one, "KING")
    long = "O " * 2000  # more than the model reads; a file is read in the same batches
    (file := tmp_path / "prompts.txt").write_text(f"ROMEO:\n{long}\nKING\n")
    for more, given in ((["--file", str(file)], ""), ([], file.read_text())):
        found = CliRunner().invoke(app, [*one, *more], input=given)
        assert [line for line in found.stdout.splitlines() if line] == both
        assert "the model has positions for" in found.stderr
        assert "1 of the lines could not be answered" in str(found.exception)
    absent = CliRunner().invoke(app, [*one, "--file", "absent.txt"])
    assert "absent.txt cannot be read" in str(absent.exception)


def test_nothing_in_is_nothing_out(filler):
    assert piped("", "fill", filler) == []


def test_a_line_that_cannot_be_answered_costs_no_other(filler):
    gone = "/nowhere/at/all.png"
    good = str(min((bundled()["digits"] / "examples").glob("*.png")))
    for words, lines in (((), [good, "", good]), (("--json",), [good, "error", good])):
        given = ["classify", "digits", *words]
        found = CliRunner().invoke(app, given, input=f"{good}\n{gone}\n{good}\n")
        printed = found.stdout.splitlines()
        assert len(printed) == 3
        assert all(mark in line for mark, line in zip(lines, printed, strict=True))
        assert gone in found.stderr
        assert "1 of the lines could not be answered" in str(found.exception)
    damaged = CliRunner().invoke(app, ["fill", filler], input=b"a \xff\nthe [MASK]\n")
    assert damaged.exit_code == 0
    assert damaged.stdout.splitlines()[0] == "a \ufffd"


def test_a_broken_file_in_a_folder_is_named_and_skipped_only_on_request(tmp_path):
    for number, file in enumerate(sorted((bundled()["digits"] / "examples").glob("*.png"))[:3]):
        (tmp_path / f"{number}.png").write_bytes(file.read_bytes())
    (tmp_path / "1.png").write_bytes(b"no image")
    refused = CliRunner().invoke(app, ["classify", "digits", str(tmp_path)])
    assert "1.png is not an image" in str(refused.exception)
    skipped = CliRunner().invoke(app, ["classify", "digits", str(tmp_path), "--skip-bad"])
    assert skipped.exit_code == 1
    assert [Path(x.split("\t")[0]).name for x in skipped.stdout.splitlines()] == ["0.png", "2.png"]
    assert "1.png is not an image" in skipped.stderr
    assert "1 of 3 inputs could not be read" in skipped.stderr


def test_vectors_are_printed_and_written_in_every_format(filler, tmp_path):
    (tmp_path / "texts.txt").write_text("the dog\na cat is there\n")
    words = ["embed", filler, str(tmp_path / "texts.txt")]
    wanted = load(filler).embed(["the dog", "a cat is there"])
    printed = [json.loads(line) for line in piped("", *words)]
    assert np.array(printed) == pytest.approx(wanted, abs=1e-6)
    assert json.loads(piped("the dog\n", "embed", filler, "-")[0]) == pytest.approx(wanted[0])
    for suffix, read in (
        (".npy", np.load),
        (".safetensors", lambda file: load_file(file)["vectors"]),
        (".jsonl", lambda file: np.array([json.loads(x) for x in file.read_text().splitlines()])),
    ):
        piped("", *words, "-o", str(tmp_path / f"x{suffix}"))
        assert read(tmp_path / f"x{suffix}") == pytest.approx(wanted, abs=1e-6)
    answer = json.loads(piped("the dog\n", "embed", filler, "-", "--json")[0])
    assert answer.pop("vector") == pytest.approx(wanted[0])
    assert answer == {"engine": "torch", "precision": "float32"}
    similar = json.loads(piped("", *words, "--similarity", "--json")[0])["similarity"]
    unit = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    assert np.array(similar) == pytest.approx(unit @ unit.T, abs=1e-5)
    for wrong in (["-o", "x.csv"], ["-o", "x.npy", "--similarity"]):
        assert isinstance(CliRunner().invoke(app, [*words, *wrong]).exception, InputError)
