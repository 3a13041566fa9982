"""Bundles of every family are run on a text or image, and everything they compute is kept."""

import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import regard
from regard.errors import InputError, ShapeError, UnknownNameError
from regard.text.tokenizer import Tokenizer
from regard.trace.capture import trace_model, write_greedily

TEXT = "A dog runs along the beach."


@pytest.mark.parametrize("family", ["transformer", "seq2seq"])
def test_a_translator_runs_on_a_text_and_its_target(make_bundle, small_tokenizer, family):
    model = make_bundle(family)
    trace = trace_model(model, TEXT, "Ein Hund läuft.")
    source, target = (small_tokenizer.encode(text) for text in (TEXT, "Ein Hund läuft."))
    assert (source[0], source[-1], target[0], target[-1]) == (2, 3, 2, 3)
    assert trace.tokens["source"] == [piece.text for piece in small_tokenizer.pieces(TEXT)]
    assert trace.tokens["target"][0] == "[CLS]"
    assert trace.tokens["output"][-1] == "[SEP]"
    assert trace.tokens["target"][1:] == trace.tokens["output"][:-1]
    logits = model.module(torch.tensor([source]), torch.tensor([target]))[0].log_softmax(-1)
    chances = [logits[i, id].item() for i, id in enumerate(target[1:])]
    assert trace.output["log_probabilities"] == pytest.approx(chances, abs=1e-5)
    assert trace.output["text"] == "Ein Hund läuft."
    site = "decoder.cross" if family == "seq2seq" else "decoder.layers.0.cross"
    assert trace[site].weights(0).shape == (len(target) - 1, len(source))


@pytest.mark.parametrize("family", ["transformer", "seq2seq"])
def test_without_a_target_it_runs_on_what_the_model_writes(make_bundle, small_tokenizer, family):
    model = make_bundle(family, seed=5)
    ids = write_greedily(model, small_tokenizer.encode(TEXT))
    trace = trace_model(model, TEXT)
    assert trace.output["ids"] == ids[1:]
    # each token is the best one after those before it, apart from padding and the start
    logits = trace.value("output.logits")[0].clone()
    logits[:, [0, 2]] = -torch.inf
    assert logits.argmax(-1).tolist() == ids[1:]
    again = trace_model(model, TEXT, ids)  # with its end, if it was cut off before
    assert again.output["ids"] == ids[1:] + [3] * (ids[-1] != 3)
    n = len(ids) - 1
    expected = pytest.approx(trace.output["log_probabilities"], abs=1e-5)
    assert again.output["log_probabilities"][:n] == expected


def test_the_start_token_and_padding_are_never_written(make_bundle):
    model = make_bundle("transformer", settings={"logits_bias": True})
    with torch.no_grad():
        model.module.logits_bias[[0, 2]] = 100.0  # what it would like best
    written = write_greedily(model, [2, 5, 6, 3])
    assert written[0] == 2
    assert not {0, 2} & set(written[1:])


def test_a_target_without_its_ends_gets_them_and_ids_are_as_good_as_text(
    make_bundle, small_tokenizer
):
    model = make_bundle("transformer")
    ids = small_tokenizer.encode("Ein Hund", specials=False)
    bare = trace_model(model, small_tokenizer.encode(TEXT), ids)
    whole = trace_model(model, TEXT, "Ein Hund")
    assert bare.tokens == whole.tokens
    assert bare.output["ids"] == [*ids, 3]
    assert_close(bare.value("output.logits"), whole.value("output.logits"))


def test_an_encoder_fills_in_what_is_masked(make_bundle):
    model = make_bundle("encoder")
    trace = trace_model(model, "A [MASK] runs.")
    (filled,) = trace.output["filled"]
    assert trace.tokens["source"][filled["position"]].strip() == "[MASK]"
    chances = trace.value("output.logits")[0, filled["position"]].softmax(-1)
    best = filled["candidates"][0]
    assert best["probability"] == pytest.approx(chances.max().item())
    assert best["name"] == model.tokenizer.token_of(int(chances.argmax()))
    assert len(filled["candidates"]) == 5
    assert trace.value("output.pooled").shape == (1, 8)
    assert trace_model(model, "A dog.").output == {"filled": []}


def test_an_encoder_with_classes_names_them(make_bundle):
    settings = {"n_classes": 2, "fill_head": False}
    labels = ("bad", "good")
    model = make_bundle("encoder", settings=settings, labels=labels, task="classification")
    trace = trace_model(model, TEXT)
    best = trace.value("output.classes")[0].argmax()
    assert trace.output["classes"][0]["name"] == labels[int(best)]
    assert sum(one["probability"] for one in trace.output["classes"]) == pytest.approx(1)


def test_a_decoder_says_what_may_come_next(make_bundle, small_tokenizer):
    model = make_bundle("decoder")
    trace = trace_model(model, "A dog")
    ids = small_tokenizer.encode("A dog")[:-1]  # a text that goes on has no end token
    assert trace.tokens["target"] == ["[CLS]", "A", " do", "g"]
    logits = model.module(torch.tensor([ids]))[0]
    assert trace.output["next"][0]["id"] == int(logits[-1].argmax())
    chances = logits.log_softmax(-1)
    expected = [chances[i, id].item() for i, id in enumerate(ids[1:])]
    assert trace.output["log_probabilities"] == pytest.approx(expected, abs=1e-5)


def test_a_vision_model_has_a_token_for_each_patch(make_bundle):
    model = make_bundle("vision")
    trace = trace_model(model, torch.randn(3, 8, 12))
    assert trace.tokens["source"] == ["[class]", *("0,0", "0,1", "0,2", "1,0", "1,1", "1,2")]
    assert trace["encoder.layers.0.self"].weights(0).shape == (7, 7)
    assert {one["name"] for one in trace.output["classes"]} == {"cat", "dog", "horse"}
    assert len(trace_model(model, Image.new("RGB", (30, 20))).tokens["source"]) == 5


def test_a_model_without_a_tokenizer_runs_on_ids(make_bundle):
    model = make_bundle("decoder", tokenizer=None)
    model.tokenizer = model.target_tokenizer = None
    trace = trace_model(model, [3, 4, 5])
    assert trace.tokens["target"] == ["3", "4", "5"]
    with pytest.raises(InputError, match=r"has no tokenizer, .* give token ids"):
        trace_model(model, "text")


def test_edits_change_what_is_written_and_what_is_kept(make_bundle):
    model = make_bundle("transformer", seed=3)
    edits = [regard.ablate("encoder.layers.0.self"), regard.ablate("decoder.layers.0.*")]
    plain, changed = trace_model(model, TEXT), trace_model(model, TEXT, edits=edits)
    assert plain.output["log_probabilities"] != changed.output["log_probabilities"]
    logits = changed.value("output.logits")[0].clone()
    logits[:, [0, 2]] = -torch.inf
    assert logits.argmax(-1).tolist() == changed.output["ids"]


def test_an_edit_of_a_token_that_comes_later_waits_for_it(make_bundle):
    model = make_bundle("transformer")
    edit = regard.set_weights("decoder.layers.0.self", 0.5, query=3, key=1, head=0)
    trace = trace_model(model, TEXT, edits=[edit])
    assert trace["decoder.layers.0.self"].weights(0)[3, 1] == 0.5
    with pytest.raises(UnknownNameError, match="has no head 9"):
        trace_model(model, TEXT, edits=[regard.ablate("decoder.layers.0.self", head=9)])


def test_learned_positions_bound_what_is_written(make_bundle):
    model = make_bundle("transformer", settings={"positions": "learned", "max_positions": 12})
    assert len(write_greedily(model, [2, 5, 6, 3])) <= 13
    with pytest.raises(InputError, match="has learned only 12 positions"):
        trace_model(model, TEXT * 3)


@pytest.mark.parametrize(
    ("family", "given", "target", "error", "sentence"),
    [
        ("decoder", "A", "B", InputError, "family decoder has no target"),
        ("vision", torch.zeros(2, 3, 8, 8), None, ShapeError, "give one image"),
        ("transformer", [], None, InputError, "the text has no tokens"),
        ("transformer", [1, 2], [999], InputError, "999 is no id of this vocabulary"),
    ],
)
def test_what_cannot_be_run_is_refused(make_bundle, family, given, target, error, sentence):
    with pytest.raises(error, match=sentence):
        trace_model(make_bundle(family), given, target)


def test_a_translator_that_does_not_know_how_to_start_wants_a_target(make_bundle, small_tokenizer):
    model = make_bundle("transformer")
    mute = Tokenizer(small_tokenizer.backend)
    mute.roles = {"pad": "[PAD]"}
    model.target_tokenizer = mute
    with pytest.raises(InputError, match="does not say how a target starts and ends"):
        trace_model(model, TEXT)
