import subprocess
import sys
from math import isnan
from typing import Any

import pytest
import torch

from regard.errors import InputError
from regard.generation.beam import BeamOptions, beam_search
from regard.generation.search import LengthPenalty, SearchOptions
from regard.generation.stepper import TranslationStepper
from regard.generation.translator import open_translator
from regard.model import load
from tests.generation.toy import pairs

SENTENCES = [source for source, _ in pairs(120, seed=-3)]


def translated(folder, engine, *, int8=False, sentences=SENTENCES, **options):
    translator = open_translator(folder, engine=engine, int8=int8)
    return list(translator.translate(sentences, SearchOptions(**options)))


@pytest.mark.parametrize("beam", [1, 4])
def test_both_engines_write_the_same(toy_folder, beam):
    fast, plain = (translated(toy_folder, name, beam=beam) for name in ("ctranslate2", "torch"))
    assert [one.text for one in fast] == [one.text for one in plain]
    assert [one.tokens for one in fast] == [one.tokens for one in plain]
    assert [one.score for one in fast] == pytest.approx([one.score for one in plain], abs=1e-4)


@pytest.mark.parametrize(
    "settings",
    [{"unused": 5}, {"positions": "learned", "max_positions": 24}, {"norm": "pre"}, {"d_k": 4}],
    ids=str,
)
def test_both_engines_write_the_same_where_nothing_was_learned(make_folder, settings):
    folder = make_folder(**settings)
    few = [*SENTENCES[:20], "one", "ten " * 9]
    fast, plain = (
        translated(folder, name, sentences=few, beam=3, n_best=2)
        for name in ("ctranslate2", "torch")
    )
    for ours, theirs in zip(fast, plain, strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)
        assert [x.tokens for x in ours.alternatives] == [x.tokens for x in theirs.alternatives]


@torch.no_grad()
def test_the_fast_engine_finds_what_the_definition_of_beam_search_finds(toy_folder):
    model = load(toy_folder)
    words = model.tokenizer
    options = BeamOptions(
        words.start_id, words.end_id, beam=4, penalty=LengthPenalty("average", 1.0)
    )
    for sentence, one in zip(
        SENTENCES[:20], translated(toy_folder, "ctranslate2", sentences=SENTENCES[:20]), strict=True
    ):
        ids = torch.tensor([words.encode(sentence)])
        stepper = TranslationStepper(model.module, ids, torch.tensor([ids.size(1)]))
        ((best,),) = beam_search(stepper, [60], options)
        assert [words.token_of(id) for id in best.ids] == one.tokens


def test_alone_and_together_every_sentence_has_the_same_translation(make_folder):
    folder = make_folder()
    mixed = ["one", *SENTENCES[:30], "seven " * 20]
    translator, options = open_translator(folder), SearchOptions(beam=3)
    assert translator.engine.name == "ctranslate2"
    together = list(translator.translate(mixed, options))
    alone = [next(translator.translate([line], options)) for line in mixed]
    assert [one.tokens for one in together] == [one.tokens for one in alone]
    turned = list(translator.translate(mixed[::-1], options))[::-1]
    assert [one.tokens for one in together] == [one.tokens for one in turned]


@pytest.mark.parametrize(
    ("cores", "int8", "shared"), [("2", False, False), ("2", True, True), ("1", False, True)]
)
def test_only_in_float32_a_sentence_by_itself_has_threads_of_its_own(
    toy_folder, monkeypatch, cores, int8, shared
):
    monkeypatch.setenv("REGARD_WORKERS", cores)
    engine: Any = open_translator(toy_folder, int8=int8).engine
    assert (engine.alone is engine.many) == shared


def test_eight_bits_are_enough_for_nearly_all(toy_folder):
    exact, rough = (translated(toy_folder, "ctranslate2", int8=int8) for int8 in (False, True))
    same = sum(one.text == other.text for one, other in zip(exact, rough, strict=True))
    assert same >= 0.75 * len(SENTENCES)  # so narrow a model feels every bit
    assert any(one.score != other.score for one, other in zip(exact, rough, strict=True))


def test_the_fast_engine_needs_no_torch_not_even_to_convert(toy_folder, cache, tmp_path):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from regard.generation.translator import open_translator\n"
        "from regard.generation.search import SearchOptions\n"
        f"made = open_translator(Path({str(toy_folder)!r}))\n"
        "print(next(made.translate(['one two'], SearchOptions())).text)\n"
        "print('torch' in sys.modules, made.engine.name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"REGARD_CACHE": str(tmp_path / "fresh"), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "zwei eins\nFalse ctranslate2\n"


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_every_translation_begins_as_it_is_told_to(toy_folder, engine):
    free = translated(toy_folder, engine, sentences=SENTENCES[:8])
    held = translated(toy_folder, engine, sentences=SENTENCES[:8], prefix="neun")
    assert all(one.text.startswith("neun") for one in held)
    assert any(not one.text.startswith("neun") for one in free)
    begun = free[0].text.split()[0]  # what is written anyway changes nothing
    (same,) = translated(toy_folder, engine, sentences=SENTENCES[:1], prefix=begun)
    assert same.tokens == free[0].tokens


def test_words_that_must_appear_appear_by_the_engine_torch(toy_folder):
    lines = ["one two three", "five"]
    done = translated(toy_folder, "torch", sentences=lines, must=["neun"])
    assert all("neun" in one.text.split() for one in done)
    assert load(toy_folder).translate(lines, must=["neun"])[0].text == done[0].text
    with pytest.raises(InputError, match="CTranslate2 has no words that must appear"):
        load(toy_folder).translate(lines, must=["neun"], engine="ctranslate2")
    with pytest.raises(InputError, match="put the one into"):
        SearchOptions(must="neun")
    with pytest.raises(InputError, match="one of them at a time"):
        SearchOptions(must=["neun"], prefix="acht")


def test_both_engines_hold_the_fewest_tokens(toy_folder):
    lines = ["one " * 20, "two three " * 9]
    fast, plain = (
        translated(toy_folder, name, sentences=lines, least=2.0)
        for name in ("ctranslate2", "torch")
    )
    assert all(len(one.tokens) >= 32 for one in plain)
    assert [one.tokens for one in fast] == [one.tokens for one in plain]
    assert [one.score for one in fast] == pytest.approx([one.score for one in plain], abs=1e-4)


def test_greedy_search_writes_the_same_without_scores(toy_folder):
    plain, quick = (
        translated(toy_folder, "ctranslate2", beam=1, scores=scores) for scores in (True, False)
    )
    assert [one.tokens for one in plain] == [one.tokens for one in quick]
    assert plain[0].score < 0
    assert isnan(quick[0].score)


def test_several_folders_write_together(toy_folder, make_folder):
    alone = translated(toy_folder, "torch", sentences=SENTENCES[:6])
    pair = open_translator(toy_folder, others=[toy_folder])
    assert pair.engine.name == "torch"
    found = list(pair.translate(SENTENCES[:6], SearchOptions()))
    assert [one.tokens for one in found] == [one.tokens for one in alone]
    mixed = open_translator(toy_folder, others=[make_folder()])
    assert [one.score for one in mixed.translate(SENTENCES[:6], SearchOptions())] != [
        one.score for one in alone
    ]
    with pytest.raises(InputError, match="CTranslate2 has no ensembles"):
        open_translator(toy_folder, engine="ctranslate2", others=[toy_folder])


def test_the_engine_torch_writes_nearly_the_same_in_eight_bits(make_folder):
    folder = make_folder(n_vocab=9000, d_model=32, n_heads=2)
    exact, rough = (translated(folder, "torch", int8=int8, beam=1) for int8 in (False, True))
    same = sum(one.tokens[0] == other.tokens[0] for one, other in zip(exact, rough, strict=True))
    assert 0.9 * len(exact) <= same
    assert [one.score for one in exact] != [one.score for one in rough]
