import json
import math

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli.main import app
from regard.errors import FileError, InputError
from regard.evaluation.alignment_heads import Aligner
from tests.generation.toy import pairs, toy

pytestmark = pytest.mark.long

TEST = pairs(60, seed=-20)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def files(tmp_path):
    for name, side in (("en", 0), ("de", 1)):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in TEST))
    return ["--source", tmp_path / "en", "--reference", tmp_path / "de", "--samples", 20]


def run(*words):
    result = CliRunner().invoke(app, ["evaluate", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_all_scores_of_a_model(files, tmp_path):
    found = json.loads(run(toy(), *files, "--json"))
    assert found["sentences"] == 60
    (system,) = found["systems"]
    scores = {score["name"]: score for score in system["scores"]}
    assert set(scores) == {"BLEU", "chrF2", "TER"}
    assert scores["BLEU"]["value"] > 80
    assert scores["BLEU"]["signature"].startswith("nrefs:1|bs:20")
    assert system["exact_match"] > 0.8
    assert 1 <= system["perplexity"] < 2
    assert len(system["heads"]) == 4
    best = system["alignment_heads"]
    assert best["source"] == "dictionary"
    assert best["error"] <= min(min(h["error"], h["error_after"]) for h in system["heads"])
    # and translations are aligned by them from now on
    assert Aligner.of_folder(toy()).chosen.to_json() == best


def test_gold_links_replace_the_dictionary(files, tmp_path):
    lengths = [len(source.split()) for source, _ in TEST]
    gold = tmp_path / "gold"
    gold.write_text("".join(" ".join(f"{n - 1 - t}-{t}" for t in range(n)) + "\n" for n in lengths))
    found = json.loads(run(toy(), *files, "--gold", gold, "--json"))
    best = found["systems"][0]["alignment_heads"]
    assert (best["source"], best["n_links"]) == ("gold", sum(lengths))
    assert best["error"] < 0.2
    gold.write_text("0-0\n")
    with pytest.raises(InputError, match="1 lines of alignments and 60 of references"):
        run(toy(), *files, "--gold", gold)


def test_a_model_is_compared_with_a_file(files, tmp_path):
    other = tmp_path / "other.de"
    other.write_text("".join(" ".join(target.split()[::-1]) + "\n" for _, target in TEST))
    page, figure = tmp_path / "page.html", tmp_path / "figure.svg"
    found = run(toy(), *files, "--compare", other, "--html", page, "--figure", figure)
    assert "other.de" in found
    assert "p = 0.0" in found
    assert "alignment error" in found
    assert page.read_text().startswith("<!doctype html>")
    assert "정렬" not in figure.read_text()
    run(other, *files, "--figure", figure, "--language", "ko")
    assert "원문 길이" in figure.read_text()


def test_files_of_translations_need_no_model(files, tmp_path):
    found = json.loads(run(tmp_path / "de", *files, "--json"))
    (system,) = found["systems"]
    assert system["exact_match"] == 1
    assert system["perplexity"] is None
    assert system["alignment_heads"] is None


def test_words_are_counted_in_the_training_text(files, tmp_path):
    training = tmp_path / "train.de"
    training.write_text("eins zwei\n" * 3)
    found = json.loads(run(tmp_path / "de", *files, "--training", training, "--json"))
    assert found["words_counted_in"] == "training"
    labels = [group["label"] for group in found["systems"][0]["by_word_count"]]
    assert labels == ["0", "2–4"]


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        (["--figure", "x.jpg"], InputError, r"must end in \.svg"),
        (["--language", "fr"], InputError, "language is 'fr'"),
        (["--tokenize", "words"], InputError, "no tokenizer 'words'"),
        (["--compare", "{tmp}/short"], InputError, "1 lines of translations and 60"),
        (["--reference", "{tmp}/short"], InputError, "1 lines of references and 60 of references"),
        (["--reference", "{tmp}/bytes"], InputError, "is not valid UTF-8 at byte 0"),
        (["--reference", "{tmp}/absent"], FileError, "absent cannot be read"),
    ],
)
def test_invalid_options_are_refused(files, tmp_path, words, error, sentence):
    (tmp_path / "short").write_text("eins\n")
    (tmp_path / "bytes").write_bytes(b"\xff\n")
    with pytest.raises(error, match=sentence):
        run(tmp_path / "de", *files, *(word.format(tmp=tmp_path) for word in words))


@pytest.fixture
def language_model(tmp_path):
    from regard.text.tokenizer_training import train_tokenizer

    torch.manual_seed(0)
    tokenizer = train_tokenizer(["abcde edcba"] * 3, kind="characters", vocab_size=50)
    settings = {"n_vocab": len(tokenizer), "d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 1}
    module = regard.build({"family": "decoder", **settings}).eval()
    model = regard.Model(module=module, task="language", tokenizer=tokenizer)
    model.save(tmp_path / "writer")
    return model


def test_a_language_model_is_measured_by_perplexity(language_model, tmp_path):
    (tmp_path / "text").write_text("abc\ncba\n")
    found = json.loads(run(tmp_path / "writer", "--source", tmp_path / "text", "--json"))
    ids = language_model.tokenizer.encode("abc\ncba", specials=False)
    with torch.no_grad():
        logits = language_model.module(torch.tensor([ids[:-1]]))[0]
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]))
    assert found["tokens"] == len(ids) - 1
    assert found["perplexity"] == pytest.approx(loss.exp().item(), rel=1e-4)
    bits = loss.item() * (len(ids) - 1) / math.log(2) / len("abc\ncba")
    assert found["bits_per_byte"] == pytest.approx(bits, rel=1e-4)
    assert "perplexity" in run(tmp_path / "writer", "--source", tmp_path / "text")


def test_several_references_count_for_each_sentence(tmp_path):
    for name, lines in {"src": "a\nb\n", "own": "x y z w\nq\n", "one": "x y z w\nr\n"}.items():
        (tmp_path / name).write_text(lines)
    (tmp_path / "two").write_text("s\nq\n")
    given = [tmp_path / "own", "--source", tmp_path / "src", "--samples", 5, "--json"]
    both = ["--reference", tmp_path / "one", "--reference", tmp_path / "two"]
    (single,) = json.loads(run(*given, *both[:2]))["systems"]
    (several,) = json.loads(run(*given, *both))["systems"]
    assert (single["exact_match"], several["exact_match"]) == (0.5, 1.0)
    assert several["scores"][0]["signature"].startswith("nrefs:2")
    with pytest.raises(InputError, match="translations need references"):
        run(*given)


def test_a_classifier_is_measured_by_its_labels(make_bundle, tmp_path):
    from regard.evaluation.report import measure_model

    model = make_bundle("vision")
    names = model.labels or tuple(str(i) for i in range(model.config.n_classes))
    side, channels = model.config.image_size, model.config.n_channels
    images = [torch.rand(channels, side, side) for _ in range(4)]
    best = [one[0].text for one in model.classify(images, count=1)]
    found = measure_model(model, images, best)
    assert found["accuracy"] == 1
    assert set(found["by_class"].values()) == {1.0}
    assert 0 <= found["loss"] < math.log(len(names)) + 1
    with pytest.raises(InputError, match="no class 'missing'"):
        measure_model(model, images[:1], ["missing"])
    with pytest.raises(InputError, match="4 inputs and 0 labels"):
        measure_model(model, images)
