from math import inf, log

import pytest
import torch

from regard.errors import InputError
from regard.generation.search import Found, SearchOptions
from regard.generation.stepper import Stepper, TranslationStepper
from regard.generation.torch_engine import TorchEngine, _Barred
from regard.generation.translator import WINDOW, Translator, Translation
from regard.models.transformer import Transformer, TransformerConfig
from regard.text.token_names import suppressed_ids
from regard.text.tokenizer_training import train_tokenizer

TEXTS = ["the dog is sleeping .", "a cat , and a dog ! who ?", "das ist ein hund ."]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, kind="bpe", vocab_size=120)


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 1}
    made = Transformer(TransformerConfig(n_vocab=len(tokenizer), **sizes))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return made.double().eval()


class Upper:
    """An engine that gives back what it was given, and remembers how it was asked."""

    name = "upper"

    def __init__(self):
        self.asked = []

    def submit(self, sources, options):
        self.asked.append(len(sources))
        found = [[Found(ids[1:-1], -1.0)] for ids in sources]
        return type("Done", (), {"wait": lambda self: found})()


def test_lines_come_back_in_order_whatever_they_hold(tokenizer):
    lines = ["the dog .", "", "a cat", "   ", "\x00", "the dog", "🍜🍜"]
    done = list(Translator(Upper(), tokenizer).translate(lines, SearchOptions()))
    assert [one.text for one in done] == ["the dog .", "", "a cat", "", "", "the dog", "🍜🍜"]


def test_long_lines_are_split_and_rejoined_and_never_cut(tokenizer):
    line = "the dog is sleeping . " * 50 + "a cat"
    engine = Upper()
    (done,) = Translator(engine, tokenizer, longest=20).translate([line], SearchOptions())
    assert done.text == line
    assert engine.asked[0] > 5


def test_a_paragraph_is_translated_by_sentences_and_keeps_all_of_them(tokenizer):
    line = "A dog. A cat ? The dog is sleeping ."
    for sentences, asked in ((1, 3), (2, 2), (3, 1)):
        engine = Upper()
        translator = Translator(engine, tokenizer, sentences=sentences)
        (done,) = translator.translate([line], SearchOptions())
        assert engine.asked == [asked]
        assert "".join(part.source + part.seam for part in done.parts) == line


def test_the_second_best_of_a_line_has_the_second_best_of_each_part(model, tokenizer):
    translator = Translator(TorchEngine([model], tokenizer), tokenizer)
    options = SearchOptions(beam=3, n_best=2)
    lines = ["a dog !", "A cat .", "a dog ! A cat ."]
    first, second, both = translator.translate(lines, options)
    assert both.text == f"{first.text} {second.text}"
    (other,) = both.alternatives
    assert other.text == f"{first.alternatives[0].text} {second.alternatives[0].text}"
    scores = first.alternatives[0].score, second.alternatives[0].score
    assert other.score == pytest.approx(sum(scores) / 2)


def test_a_forced_beginning_is_that_of_the_line_and_not_of_its_parts(model, tokenizer):
    translator = Translator(TorchEngine([model], tokenizer), tokenizer)
    (done,) = translator.translate(["a dog ! A cat ."], SearchOptions(prefix="the dog"))
    plain = next(translator.translate(["A cat ."], SearchOptions()))
    assert done.text.startswith("the dog")
    assert done.parts[1].text == plain.text


def test_a_word_of_a_hundred_kilobytes_comes_through(tokenizer):
    word = "dog" * 33_000
    (done,) = Translator(Upper(), tokenizer, longest=64).translate([word], SearchOptions())
    assert done.text == word


def test_memory_holds_two_windows_and_no_more(tokenizer):
    taken = 0

    def lines():
        nonlocal taken
        for _ in range(5 * WINDOW):
            taken += 1
            yield "the dog"

    stream = Translator(Upper(), tokenizer).translate(lines(), SearchOptions())
    next(stream)
    assert taken == 2 * WINDOW
    assert sum(1 for _ in stream) == 5 * WINDOW - 1


def test_an_empty_window_brings_out_what_is_being_translated(tokenizer):
    taken = []

    def windows():
        for window in (["a dog"], [], ["a cat"], ["the dog"], []):
            taken.append(window)
            yield window

    stream = Translator(Upper(), tokenizer).translate_windows(windows(), SearchOptions())
    assert [one.text for one in next(stream)] == ["a dog"]
    assert len(taken) == 2  # and not a window later
    assert [[one.text for one in window] for window in stream] == [["a cat"], ["the dog"]]


def test_parts_tell_what_was_translated_at_a_time(tokenizer):
    line = "the dog is sleeping . a cat , and a dog !"
    (done,) = Translator(Upper(), tokenizer, longest=8).translate([line], SearchOptions())
    assert "".join(part.source + part.seam for part in done.parts) == line
    assert "".join(part.text + part.seam for part in done.parts) == done.text
    for part in done.parts:
        assert part.source_ids == tokenizer.encode(part.source)
        assert tokenizer.decode(part.ids) == part.text
    (copied,) = Translator(Upper(), tokenizer).translate(["🍜"], SearchOptions())
    assert copied.parts[0].copied
    with pytest.raises(InputError, match="no trace of this translation: the line was copied"):
        copied.trace  # noqa: B018
    with pytest.raises(InputError, match="none was asked for"):
        Translation("x", 0.0, [], []).trace  # noqa: B018


def test_no_engine_writes_special_or_unused_tokens(model, tokenizer):
    options = SearchOptions(beam=4, n_best=4)
    sources = [tokenizer.encode(text) for text in TEXTS]
    found = TorchEngine([model], tokenizer).submit(sources, options).wait()
    written = {id for best in found for one in best for id in one.ids}
    assert not written & set(suppressed_ids(tokenizer, len(tokenizer)))
    assert suppressed_ids(tokenizer, len(tokenizer) + 2)[-2:] == [
        len(tokenizer),
        len(tokenizer) + 1,
    ]
    assert tokenizer.end_id not in suppressed_ids(tokenizer, len(tokenizer))


@pytest.mark.parametrize("beam", [1, 3])
def test_the_torch_engine_translates_alike_alone_and_in_batches(model, tokenizer, beam):
    engine, options = TorchEngine([model], tokenizer), SearchOptions(beam=beam, n_best=beam)
    sources = [tokenizer.encode(text) for text in TEXTS * 3 + ["a", "dog dog dog dog dog dog"]]
    together = engine.submit(sources, options).wait()
    for source, found in zip(sources, together, strict=True):
        (alone,) = engine.submit([source], options).wait()
        assert [one.ids for one in alone] == [one.ids for one in found]
        assert [one.score for one in alone] == pytest.approx([one.score for one in found])
        assert len(found) == beam


@torch.no_grad()
def test_a_score_is_the_mean_log_probability_of_what_was_written(model, tokenizer):
    options = SearchOptions(beam=2, alpha=1.0)
    source = tokenizer.encode(TEXTS[0])
    ((best,),) = TorchEngine([model], tokenizer).submit([source], options).wait()
    stepper = TranslationStepper(model, torch.tensor([source]), torch.tensor([len(source)]))
    total, before = 0.0, tokenizer.start_id
    ended = len(best.ids) < options.limit(len(source))
    written = [*best.ids, tokenizer.end_id] if ended else best.ids
    never = suppressed_ids(tokenizer, len(tokenizer))
    for token in written:
        chances = stepper.step(torch.tensor([[before]]))[0].exp()
        chances[never] = 0  # what is never written leaves its probability to the others
        chances[tokenizer.end_id] *= before != tokenizer.start_id  # there is at least one token
        total += float((chances / chances.sum())[token].log())
        before = token
    assert best.score == pytest.approx(total / len(written))


def test_two_equal_models_vote_like_one(model, tokenizer):
    source = tokenizer.encode(TEXTS[1])
    one, two = (
        TorchEngine([model] * count, tokenizer).submit([source], SearchOptions()).wait()
        for count in (1, 2)
    )
    assert one[0][0].ids == two[0][0].ids


class Certain(Stepper):
    """Says with certainty that the text ends."""

    n_rows = 1

    def step(self, ids):
        logits = torch.zeros(1, 6)
        logits[0, 2] = 60.0
        return logits.log_softmax(dim=1)

    def keep(self, rows):
        del rows


def test_what_is_left_when_a_certain_token_is_barred_has_probabilities():
    found = _Barred(Certain(), [0], 2, 1).step(torch.tensor([[1]]))
    assert found[0].tolist() == pytest.approx([-inf, -log(4), -inf, *[-log(4)] * 3], abs=1e-5)


def test_threads_are_given_back(model, tokenizer):
    before = torch.get_num_threads()
    TorchEngine([model], tokenizer).submit([tokenizer.encode("a dog")], SearchOptions()).wait()
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beam": 0}, "beam is 0; it must be 1"),
        ({"beam": 2, "n_best": 3}, "3 best translations were asked for with a beam of 2"),
        ({"alpha": -0.5}, "alpha is -0.5"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        SearchOptions(**options)
