"""Models of every family are traced on a text or image, and their outputs are typed."""

import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import regard
from regard.errors import InputError, ShapeError
from regard.text.tokenizer import Tokenizer
from regard.trace.capture import trace_model
from regard.trace.outputs import (
    ClassificationOutput,
    FillOutput,
    NextTokenOutput,
    TranslationOutput,
    output_from_dict,
)

TEXT = "A dog runs along the beach."


@pytest.mark.parametrize("family", ["transformer", "seq2seq"])
def test_a_translator_reads_a_text_and_its_target(make_bundle, small_tokenizer, family):
    model = make_bundle(family)
    trace = trace_model(model, TEXT, "Ein Hund läuft.")
    source, target = (small_tokenizer.encode(text) for text in (TEXT, "Ein Hund läuft."))
    assert trace.tokens["source"] == [piece.text for piece in small_tokenizer.pieces(TEXT)]
    assert trace.tokens["target"][0] == "[CLS]"
    assert trace.tokens["output"][-1] == "[SEP]"
    assert trace.tokens["target"][1:] == trace.tokens["output"][:-1]
    logits = model.module(torch.tensor([source]), torch.tensor([target]))[0].log_softmax(-1)
    expected = [logits[i, id].item() for i, id in enumerate(target[1:])]
    assert trace.output.log_probs == pytest.approx(expected, abs=1e-5)
    assert trace.output["log_probabilities"] == list(trace.output.log_probs)
    assert trace.output.text == trace.output["text"] == "Ein Hund läuft."
    assert trace.parts == [trace]
    site = "decoder.cross" if family == "seq2seq" else "decoder.layers.0.cross"
    assert trace[site].weights(0).shape == (len(target) - 1, len(source))


@pytest.mark.parametrize("family", ["transformer", "seq2seq"])
def test_without_a_target_the_models_own_translation_is_read(make_bundle, family):
    model = make_bundle(family, seed=5)
    trace, answer = model.trace(TEXT), model.translate(TEXT)
    assert trace.output.text == answer.text
    (part,) = answer.parts
    assert trace.output.ids == (*part.ids, *([3] if part.finished else []))
    again = trace_model(model, TEXT, part.ids).output.log_probs  # with its end
    log_probs = trace.output.log_probs
    assert again[: len(log_probs)] == pytest.approx(log_probs, abs=1e-5)
    with pytest.raises(InputError, match="needs a target"):
        trace_model(model, TEXT)


def test_start_and_padding_are_never_predicted(make_bundle):
    model = make_bundle("transformer", settings={"logits_bias": True})
    with torch.no_grad():
        model.module.logits_bias[[0, 2]] = 100.0
    assert not {0, 2} & set(model.trace([2, 5, 6, 3]).output.ids)


def test_start_and_end_are_added_to_texts_and_only_a_start_to_ids(make_bundle, small_tokenizer):
    model = make_bundle("transformer")
    ids = small_tokenizer.encode("Ein Hund", specials=False)
    text = trace_model(model, TEXT, "Ein Hund")
    whole = trace_model(model, small_tokenizer.encode(TEXT), [*ids, 3])
    assert whole.tokens == text.tokens
    assert whole.output.ids == text.output.ids == (*ids, 3)
    assert_close(whole.value("output.logits"), text.value("output.logits"))
    unfinished = trace_model(model, TEXT, ids)
    assert unfinished.output.ids == tuple(ids)
    assert unfinished.tokens["target"] == text.tokens["target"][:-1]
    assert trace_model(model, TEXT, [2, *ids]).tokens == unfinished.tokens


def test_an_encoder_fills_gaps(make_bundle):
    model = make_bundle("encoder")
    trace = trace_model(model, "A [MASK] runs.")
    (gap,) = trace.output.gaps
    assert trace.tokens["source"][gap.position].strip() == "[MASK]"
    probabilities = trace.value("output.logits")[0, gap.position].softmax(-1)
    best = gap.candidates[0]
    assert best.probability == pytest.approx(probabilities.max().item())
    assert best.name == model.tokenizer.token_of(int(probabilities.argmax()))
    assert len(gap.candidates) == 5
    assert trace.value("output.pooled").shape == (1, 8)
    assert trace_model(model, "A dog.").output == {"filled": []}


def test_an_encoder_with_classes_classifies(make_bundle):
    settings = {"n_classes": 2, "fill_head": False}
    labels = ("bad", "good")
    model = make_bundle("encoder", settings=settings, labels=labels, task="classification")
    trace = trace_model(model, TEXT)
    best = trace.value("output.classes")[0].argmax()
    assert trace.output.candidates[0].name == labels[int(best)]
    assert sum(one["probability"] for one in trace.output["classes"]) == pytest.approx(1)


def test_a_decoder_predicts_the_next_token(make_bundle, small_tokenizer):
    model = make_bundle("decoder")
    trace = trace_model(model, "A dog")
    ids = small_tokenizer.encode("A dog")[:-1]  # a text to be continued has no end token
    assert trace.tokens["target"] == ["[CLS]", "A", " do", "g"]
    logits = model.module(torch.tensor([ids]))[0]
    assert trace.output.candidates[0].id == int(logits[-1].argmax())
    expected = [logits.log_softmax(-1)[i, id].item() for i, id in enumerate(ids[1:])]
    assert trace.output.log_probs == pytest.approx(expected, abs=1e-5)


def test_a_vision_model_has_a_token_for_each_patch(make_bundle):
    model = make_bundle("vision")
    trace = trace_model(model, torch.randn(3, 8, 12))
    assert trace.tokens["source"] == ["[class]", *("0,0", "0,1", "0,2", "1,0", "1,1", "1,2")]
    assert trace["encoder.layers.0.self"].weights(0).shape == (7, 7)
    assert {one.name for one in trace.output.candidates} == {"cat", "dog", "horse"}
    assert len(trace_model(model, Image.new("RGB", (30, 20))).tokens["source"]) == 5


@pytest.mark.parametrize(
    ("family", "given", "kind"),
    [
        ("transformer", TEXT, TranslationOutput),
        ("decoder", TEXT, NextTokenOutput),
        ("encoder", "A [MASK].", FillOutput),
        ("vision", torch.zeros(3, 8, 8), ClassificationOutput),
    ],
)
def test_outputs_survive_their_dictionary_form_and_a_file(
    make_bundle, tmp_path, family, given, kind
):
    trace = make_bundle(family).trace(given)
    assert isinstance(trace.output, kind)
    again = output_from_dict(trace.output.to_dict())
    assert isinstance(again, kind)
    assert vars(again) == vars(trace.output)
    trace.save(tmp_path / "trace.safetensors")
    loaded = regard.Trace.load(tmp_path / "trace.safetensors").output
    assert vars(loaded) == vars(trace.output)


def test_a_model_without_a_tokenizer_reads_ids(make_bundle):
    model = make_bundle("decoder", tokenizer=None)
    model.tokenizer = model.target_tokenizer = None
    trace = trace_model(model, [3, 4, 5])
    assert trace.tokens["target"] == ["3", "4", "5"]
    with pytest.raises(InputError, match="has no tokenizer: give token ids"):
        trace_model(model, "text")


def test_learned_positions_limit_what_is_written(make_bundle):
    model = make_bundle("transformer", settings={"positions": "learned", "max_positions": 12})
    assert len(model.trace([2, 5, 6, 3]).output.ids) <= 12
    with pytest.raises(InputError, match="12 positions"):
        trace_model(model, TEXT * 3, TEXT)


@pytest.mark.parametrize(
    ("family", "given", "target", "error", "message"),
    [
        ("decoder", "A", "B", InputError, "family decoder has no target"),
        ("vision", torch.zeros(2, 3, 8, 8), None, ShapeError, "give one"),
        ("transformer", [], [5], InputError, "has no tokens"),
        ("transformer", [1, 2], [999], InputError, "999"),
    ],
)
def test_invalid_inputs_are_refused(make_bundle, family, given, target, error, message):
    with pytest.raises(error, match=message):
        trace_model(make_bundle(family), given, target)


def test_a_target_tokenizer_without_ends_needs_a_target(make_bundle, small_tokenizer):
    model = make_bundle("transformer")
    mute = Tokenizer(small_tokenizer.backend)
    mute.roles = {"pad": "[PAD]"}
    model.target_tokenizer = mute
    with pytest.raises(InputError, match="has no start or no end token"):
        model.trace(TEXT)
