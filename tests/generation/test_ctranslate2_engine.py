import os
import shutil
import subprocess
import sys
from math import isnan
from typing import Any

import pytest
import torch

from regard.errors import FileError, InputError
from regard.generation import ctranslate2_engine
from regard.generation.beam import beam_search
from regard.generation.ctranslate2_engine import MODEL, converted, fingerprint
from regard.generation.search import SearchOptions
from regard.generation.stepper import TranslationStepper
from regard.generation.translator import open_translator
from regard.model import load
from tests.generation.toy import pairs

SENTENCES = [source for source, _ in pairs(120, seed=-3)]


def translated(folder, engine, *, int8=False, sentences=SENTENCES, **options):
    translator = open_translator(folder, engine=engine, precision="int8" if int8 else "float32")
    return list(translator.translate(sentences, SearchOptions(**options)))


def both(folder, **options):
    return [translated(folder, engine, **options) for engine in ("ctranslate2", "torch")]


def assert_same(fast, plain):
    assert [one.tokens for one in fast] == [one.tokens for one in plain]
    assert [one.score for one in fast] == pytest.approx([one.score for one in plain], abs=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
def test_both_engines_translate_the_same(toy_folder, beam):
    fast, plain = both(toy_folder, beam=beam)
    assert [one.text for one in fast] == [one.text for one in plain]
    assert_same(fast, plain)


def test_both_engines_obey_minimum_lengths(toy_folder):
    fast, plain = both(toy_folder, sentences=["one " * 20, "two three " * 9], least=2.0)
    assert all(len(one.tokens) >= 32 for one in plain)
    assert_same(fast, plain)


def test_no_n_gram_is_repeated_in_either_engine(toy_folder):
    sentences = ["two two two two", "one two one two one two"]
    given = {"sentences": sentences, "beam": 2, "penalty": "none"}
    plain = translated(toy_folder, "torch", **given)
    assert any(len(set(one.parts[0].ids)) < len(one.parts[0].ids) for one in plain)
    for size in (1, 2):
        found = [
            translated(toy_folder, x, no_repeat=size, **given) for x in ("ctranslate2", "torch")
        ]
        assert_same(*found)
        for one in found[1]:
            ids = one.parts[0].ids
            grams = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
            assert len(set(grams)) == len(grams)
    with pytest.raises(InputError, match="no_repeat is -1"):
        SearchOptions(no_repeat=-1)


@torch.no_grad()
def test_it_finds_what_the_definition_of_beam_search_finds(toy_folder):
    model = load(toy_folder)
    words = model.tokenizer
    ends = {"start_id": words.start_id, "end_id": words.end_id}
    few = SENTENCES[:10]
    for sentence, one in zip(
        few, translated(toy_folder, "ctranslate2", sentences=few), strict=True
    ):
        ids = torch.tensor([words.encode(sentence)])
        stepper = TranslationStepper(model.module, ids, torch.tensor([ids.size(1)]))
        ((best,),) = beam_search(stepper, [60], SearchOptions(), **ends)
        assert [words.text_of(id) for id in best.ids] == one.tokens


def test_batching_does_not_change_translations(make_folder):
    mixed = ["one", *SENTENCES[:30], "seven " * 20]
    translator, options = open_translator(make_folder()), SearchOptions(beam=3)
    assert translator.engine.name == "ctranslate2"
    together = list(translator.translate(mixed, options))
    alone = [next(translator.translate([line], options)) for line in mixed]
    assert [one.tokens for one in together] == [one.tokens for one in alone]


@pytest.mark.parametrize(
    ("cores", "int8", "shared"), [("2", False, False), ("2", True, True), ("1", False, True)]
)
def test_single_sentences_have_their_own_translator_in_float32(
    toy_folder, monkeypatch, cores, int8, shared
):
    monkeypatch.setenv("REGARD_WORKERS", cores)
    engine: Any = open_translator(toy_folder, precision="int8" if int8 else "float32").engine
    assert (engine.single_translator is engine.batch_translator) == shared


def test_int8_changes_few_translations(toy_folder):
    exact, rough = (translated(toy_folder, "ctranslate2", int8=int8) for int8 in (False, True))
    same = sum(one.text == other.text for one, other in zip(exact, rough, strict=True))
    assert same >= 0.75 * len(SENTENCES)  # every bit counts in so narrow a model
    assert any(one.score != other.score for one, other in zip(exact, rough, strict=True))


def test_greedy_search_is_the_same_without_scores(toy_folder):
    plain, quick = (
        translated(toy_folder, "ctranslate2", beam=1, scores=scores) for scores in (True, False)
    )
    assert [one.tokens for one in plain] == [one.tokens for one in quick]
    assert plain[0].score < 0
    assert isnan(quick[0].score)


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_translations_start_with_the_prefix(toy_folder, engine):
    free = translated(toy_folder, engine, sentences=SENTENCES[:8])
    held = translated(toy_folder, engine, sentences=SENTENCES[:8], prefix="neun")
    assert all(one.text.startswith("neun") for one in held)
    assert any(not one.text.startswith("neun") for one in free)
    first = free[0].text.split()[0]  # a prefix that would be written anyway
    (same,) = translated(toy_folder, engine, sentences=SENTENCES[:1], prefix=first)
    assert same.tokens == free[0].tokens


def test_scores_with_a_prefix_are_the_same_in_both_engines(toy_folder):
    given = {"sentences": SENTENCES[:8], "prefix": "neun", "beam": 1, "scores": True}
    fast, plain = (translated(toy_folder, name, **given) for name in ("ctranslate2", "torch"))
    assert [one.tokens for one in fast] == [one.tokens for one in plain]
    assert [one.score for one in fast] == pytest.approx([one.score for one in plain], abs=1e-4)


def test_required_words_need_the_torch_engine(toy_folder):
    lines = ["one two three", "five"]
    done = translated(toy_folder, "torch", sentences=lines, must=["neun"])
    assert all("neun" in one.text.split() for one in done)
    assert load(toy_folder).translate(lines, must=["neun"])[0].text == done[0].text
    with pytest.raises(InputError, match="CTranslate2 does not support required words"):
        load(toy_folder).translate(lines, must=["neun"], engine="ctranslate2")


def test_an_ensemble_needs_the_torch_engine(toy_folder, make_folder):
    alone = translated(toy_folder, "torch", sentences=SENTENCES[:6])
    pair = open_translator(toy_folder, ensemble=[toy_folder])
    assert pair.engine.name == "torch"
    found = list(pair.translate(SENTENCES[:6], SearchOptions()))
    assert [one.tokens for one in found] == [one.tokens for one in alone]
    mixed = open_translator(toy_folder, ensemble=[make_folder()])
    assert [one.score for one in mixed.translate(SENTENCES[:6], SearchOptions())] != [
        one.score for one in alone
    ]
    with pytest.raises(InputError, match="CTranslate2 does not support ensembles"):
        open_translator(toy_folder, engine="ctranslate2", ensemble=[toy_folder])


def test_neither_translation_nor_conversion_imports_torch(toy_folder, tmp_path):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from regard.generation.translator import open_translator\n"
        "from regard.generation.search import SearchOptions\n"
        f"made = open_translator(Path({str(toy_folder)!r}))\n"
        "print(next(made.translate(['one two'], SearchOptions())).text)\n"
        "print('torch' in sys.modules, made.engine.name)\n"
    )
    environment = {"REGARD_CACHE": str(tmp_path / "fresh"), "PATH": "/usr/bin"}
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "zwei eins\nFalse ctranslate2\n"


def test_a_model_is_converted_once(toy_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    place = converted(toy_folder, int8=False)
    before = (place / MODEL).stat().st_mtime_ns
    assert converted(toy_folder, int8=False) == place
    assert (place / MODEL).stat().st_mtime_ns == before
    small = converted(toy_folder, int8=True)
    assert (small / MODEL).stat().st_size < (place / MODEL).stat().st_size
    assert not list(place.parent.glob(".*.new"))


def test_the_fingerprint_depends_on_the_contents(toy_folder, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(toy_folder, copy)
    first = fingerprint(copy)
    assert first == fingerprint(toy_folder)
    os.utime(copy / "model.safetensors", (1, 1))
    assert fingerprint(copy) == first
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    assert fingerprint(copy) != first
    monkeypatch.setattr(ctranslate2_engine, "_hash_files", lambda files: "read again")
    assert fingerprint(toy_folder) == first


def test_processes_can_convert_at_the_same_time(toy_folder, tmp_path):
    program = (
        "from pathlib import Path\nfrom regard.generation.ctranslate2_engine import converted\n"
        f"print(converted(Path({str(toy_folder)!r}), int8=False))"
    )
    environment = {"REGARD_CACHE": str(tmp_path), "PATH": "/usr/bin"}
    run = [sys.executable, "-c", program]
    several = [subprocess.Popen(run, env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    places = {one.communicate(timeout=120)[0] for one in several}
    assert [one.returncode for one in several] == [0, 0, 0]
    assert len(places) == 1
    assert len(list((tmp_path / "ctranslate2").glob("[!.]*"))) == 1


def test_an_unwritable_cache_is_named(toy_folder, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "file"))
    with pytest.raises(FileError, match="REGARD_CACHE to another folder"):
        converted(toy_folder, int8=False)
