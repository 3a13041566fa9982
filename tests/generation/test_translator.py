import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import InputError
from regard.generation.search import Hypothesis, SearchOptions
from regard.generation.sentences import lost_spans
from regard.generation.stepper import TranslationStepper
from regard.generation.torch_engine import TorchEngine
from regard.generation.translator import (
    WINDOW,
    Translation,
    Translator,
    max_positions,
    open_translator,
)
from regard.interop.model_names import ZOO
from regard.model_folder import read_description
from regard.models.transformer import Transformer, TransformerConfig
from regard.text.tokenizer import suppressed_ids
from regard.text.tokenizer_training import train_tokenizer
from tests.generation.conftest import lively

TEXTS = ["the dog is sleeping .", "a cat , and a dog ! who ?", "das ist ein hund ."]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, kind="bpe", vocab_size=120)


@pytest.fixture(scope="module")
def module(tokenizer):
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 1}
    return lively(Transformer(TransformerConfig(n_vocab=len(tokenizer), **sizes))).double()


@pytest.fixture
def translator(module, tokenizer):
    return Translator(TorchEngine([module], tokenizer), tokenizer)


class EchoEngine:
    """Returns its input and counts the sources of each request."""

    name, precision = "echo", "float32"

    def __init__(self):
        self.requests = []

    def submit(self, sources, options, starts=None):
        self.requests.append(len(sources))
        return lambda: [[Hypothesis(ids[1:-1], [], -1.0)] for ids in sources]


def echoed(tokenizer, *lines, **limits):
    return list(Translator(EchoEngine(), tokenizer, **limits).translate(lines, SearchOptions()))


def joined(parts):
    return "".join(part.source + part.separator for part in parts)


def test_every_line_has_a_translation_in_order(tokenizer):
    lines = ["the dog .", "", "a cat", "   ", "\x00", "the dog", "🍜🍜"]
    texts = [one.text for one in echoed(tokenizer, *lines)]
    assert texts == ["the dog .", "", "a cat", "", "", "the dog", "🍜🍜"]


def test_long_lines_are_split_and_rejoined(tokenizer):
    line = "the dog is sleeping . " * 20 + "a cat"
    (done,) = echoed(tokenizer, line, max_source=20)
    assert done.text == joined(done.parts) == line
    assert len(done.parts) > 5
    for part in done.parts:
        assert part.source_ids == tokenizer.encode(part.source)
        assert tokenizer.decode(part.ids) == part.text
    word = "dog" * 33_000
    assert echoed(tokenizer, word, max_source=64)[0].text == word


@pytest.mark.parametrize(("sentences", "n_parts"), [(1, 3), (2, 2), (3, 1)])
def test_a_paragraph_is_translated_by_sentences(tokenizer, sentences, n_parts):
    line = "A dog. A cat ? The dog is sleeping ."
    (done,) = echoed(tokenizer, line, sentences=sentences)
    assert len(done.parts) == n_parts
    assert joined(done.parts) == line


def test_alternatives_of_a_line_consist_of_those_of_its_parts(translator):
    options = SearchOptions(beam=3, n_best=2)
    lines = ["a dog !", "A cat .", "a dog ! A cat ."]
    first, second, both = translator.translate(lines, options)
    assert both.text == f"{first.text} {second.text}"
    (other,) = both.alternatives
    assert other.text == f"{first.alternatives[0].text} {second.alternatives[0].text}"
    scores = first.alternatives[0].score, second.alternatives[0].score
    assert other.score == pytest.approx(sum(scores) / 2)


def test_a_prefix_concerns_the_first_part_only(translator):
    (done,) = translator.translate(["a dog ! A cat ."], SearchOptions(prefix="the dog"))
    plain = next(translator.translate(["A cat ."], SearchOptions()))
    assert done.text.startswith("the dog")
    assert done.parts[1].text == plain.text


@pytest.mark.long
def test_two_windows_are_in_memory_at_a_time(tokenizer):
    n_read = 0

    def lines():
        nonlocal n_read
        for _ in range(5 * WINDOW):
            n_read += 1
            yield "the dog"

    stream = Translator(EchoEngine(), tokenizer).translate(lines(), SearchOptions())
    next(stream)
    assert n_read == 2 * WINDOW
    assert sum(1 for _ in stream) == 5 * WINDOW - 1


def test_an_empty_window_forces_output(tokenizer):
    read = []

    def windows():
        for window in (["a dog"], [], ["a cat"], ["the dog"], []):
            read.append(window)
            yield window

    stream = Translator(EchoEngine(), tokenizer).translate_windows(windows(), SearchOptions())
    assert [one.text for one in next(stream)] == ["a dog"]
    assert len(read) == 2
    assert [[one.text for one in window] for window in stream] == [["a cat"], ["the dog"]]


def test_copied_lines_have_no_trace(tokenizer):
    (copied,) = echoed(tokenizer, "🍜")
    assert copied.parts[0].copied
    with pytest.raises(InputError, match="no trace because the line was copied"):
        copied.trace  # noqa: B018
    with pytest.raises(InputError, match="it was not requested"):
        Translation("x", 0.0, [], []).trace  # noqa: B018


def test_special_and_unused_tokens_are_never_predicted(module, tokenizer):
    options = SearchOptions(beam=4, n_best=4)
    sources = [tokenizer.encode(text) for text in TEXTS]
    found = TorchEngine([module], tokenizer).translate(sources, options)
    ids = {id for best in found for one in best for id in one.ids}
    assert not ids & set(suppressed_ids(tokenizer, len(tokenizer)))


@pytest.mark.long
@pytest.mark.parametrize("beam", [1, 3])
def test_batching_does_not_change_translations(module, tokenizer, beam):
    engine, options = TorchEngine([module], tokenizer), SearchOptions(beam=beam, n_best=beam)
    sources = [tokenizer.encode(text) for text in TEXTS * 3 + ["a", "dog dog dog dog dog dog"]]
    for source, found in zip(sources, engine.translate(sources, options), strict=True):
        (alone,) = engine.translate([source], options)
        assert [one.ids for one in alone] == [one.ids for one in found]
        assert [one.score for one in alone] == pytest.approx([one.score for one in found])
        assert len(found) == beam


@torch.no_grad()
def test_a_score_is_the_mean_log_probability_of_the_tokens(module, tokenizer):
    options, source = SearchOptions(beam=2), tokenizer.encode(TEXTS[0])
    ((best,),) = TorchEngine([module], tokenizer).translate([source], options)
    stepper = TranslationStepper(module, torch.tensor([source]), torch.tensor([len(source)]))
    total, before = 0.0, tokenizer.start_id
    tokens = [*best.ids, tokenizer.end_id] if best.finished else best.ids
    for token in tokens:
        probabilities = stepper.step(torch.tensor([[before]]))[0].exp()
        probabilities[suppressed_ids(tokenizer, len(tokenizer))] = 0
        probabilities[tokenizer.end_id] *= before != tokenizer.start_id  # at least one token
        total += float((probabilities / probabilities.sum())[token].log())
        before = token
    assert best.score == pytest.approx(total / len(tokens))


def test_the_number_of_threads_is_restored(module, tokenizer):
    before = torch.get_num_threads()
    TorchEngine([module], tokenizer).translate([tokenizer.encode("a dog")], SearchOptions())
    assert torch.get_num_threads() == before


def test_int8_with_torch_changes_few_first_tokens(make_folder):
    folder = make_folder(n_vocab=9000, d_model=32, n_heads=2)
    lines = ["one two", "three", "four five six", "ten nine"] * 5
    exact, rough = (
        list(
            open_translator(folder, engine="torch", precision=one).translate(lines, SearchOptions())
        )
        for one in ("float32", "int8")
    )
    same = sum(one.tokens[0] == other.tokens[0] for one, other in zip(exact, rough, strict=True))
    assert same >= 0.9 * len(lines)
    assert [one.score for one in exact] != [one.score for one in rough]


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_learned_positions_are_never_exceeded(make_folder, engine):
    folder = make_folder(positions="learned", max_positions=12)
    translator = open_translator(folder, engine=engine)
    assert max_positions(read_description(folder).model) == 12
    line = "one two three four five six seven eight " * 4
    (done,) = translator.translate([line], SearchOptions())
    assert len(done.parts) > 2
    assert max(len(part.source_ids) for part in done.parts) <= 12
    assert max(len(part.ids) for part in done.parts) <= 12
    assert joined(done.parts) == line.strip()


class ForgetfulEngine(EchoEngine):
    """Returns its input without certain tokens."""

    def __init__(self, tokenizer, *forgotten):
        super().__init__()
        self.forgotten = {id for text in forgotten for id in tokenizer.encode(text, specials=False)}

    def submit(self, sources, options):
        wait = super().submit(sources, options)

        def forget(one):
            return replace(one, ids=[id for id in one.ids if id not in self.forgotten])

        return lambda: [[forget(one) for one in best] for best in wait()]


@pytest.mark.parametrize("forgotten", [("7",), ("7", "{", "}")])
def test_a_lost_number_is_put_back(forgotten):
    tokenizer = train_tokenizer(["a dog in 0123456789 {a} {b} ."], kind="characters", vocab_size=99)
    engine, line = ForgetfulEngine(tokenizer, *forgotten), "a dog in 1977 . a dog in 1988"
    without = Translator(engine, tokenizer)
    assert next(without.translate([line], SearchOptions())).text == "a dog in 19 . a dog in 1988"
    found = next(
        Translator(engine, tokenizer, carries_over=True).translate([line], SearchOptions())
    )
    assert found.text == line
    assert joined(found.parts) == line
    # with a placeholder, or between what is copied if the placeholder is lost, too
    assert [part.copied for part in found.parts] == (
        [False] if len(forgotten) == 1 else [False, True, False, True]
    )


def test_fifty_lines_with_numbers_addresses_tags_and_emoji_keep_them(tmp_path):
    folder, data = tmp_path / "en-de", Path(__file__).parents[1] / "data"
    shutil.copytree(ZOO / "en-de", folder)
    stated = json.loads((folder / "config.json").read_text())
    plain = {"copied_spans": 0.0}
    (folder / "config.json").write_text(json.dumps(stated | {"extras": stated["extras"] | plain}))
    without = open_translator(folder)
    copying = {"copied_spans": 0.9}
    (folder / "config.json").write_text(json.dumps(stated | {"extras": stated["extras"] | copying}))
    translator = open_translator(folder)
    lines = (data / "carried-over.txt").read_text("utf-8").splitlines()
    assert len(lines) == 50
    for line, found in zip(lines, translator.translate(lines, SearchOptions()), strict=True):
        assert lost_spans(line, found.text) == []
        assert found.text.isupper() == line.isupper()
        assert joined(found.parts) == line
    # nothing else changes
    usual = [
        row.partition("\t")[0]
        for row in (data / "everyday.en-de.tsv").read_text("utf-8").splitlines()[:20]
    ]
    one, other = (list(each.translate(usual, SearchOptions())) for each in (without, translator))
    assert [x.text for x in one] == [x.text for x in other]


def test_a_tag_of_the_model_is_read_before_every_sentence_and_never_carried_over():
    model = regard.load("en-ko")
    given = "<informal> Where is the station? I have 234 books."
    found = model.translate(given)
    tag = model.tokenizer.encode("<informal>", specials=False)
    assert [part.source_ids[1:2] for part in found.parts] == [tag, tag]
    assert "<" not in found.text
    assert "234" in found.text
    assert model.trace("<informal> Where is the station?").output.text == found.parts[0].text
