"""Patches: a run with itself, one value, all values, step by step, and refusals."""

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.errors import InputError, UnknownNameError
from regard.generation.search import SearchOptions
from regard.generation.tracing import trace_answer
from regard.trace.edits import edit_from_dict

ONE, OTHER = "A dog runs along the beach.", "A beach runs along the dog."
TARGET, OTHER_TARGET = "Ein Hund läuft.", "Ein Strand läuft."
LAYERS = {"n_encoder_layers": 2, "n_decoder_layers": 2}


@pytest.fixture
def model(make_bundle):
    return make_bundle("transformer", seed=3, settings=LAYERS)


def padded(model, text: str, length: int) -> list[int]:
    """The first `length` ids of a text, so that two texts have as many."""
    ids = model.tokenizer.encode(text)
    assert len(ids) >= length
    return ids[:length]


@pytest.fixture
def runs(model):
    """Inputs of two runs with as many tokens, and the trace of the second."""
    one, other = padded(model, ONE, 6), padded(model, OTHER, 6)
    target, other_target = padded(model, TARGET, 5), padded(model, OTHER_TARGET, 5)
    assert one != other
    assert target != other_target
    return (one, target), (other, other_target)


def logits(trace):
    return trace.value("output.logits")


@pytest.mark.parametrize(
    "options",
    [
        {"path": "decoder.layers.0.cross.context", "head": 1},
        {"path": "decoder.layers.1.self.weights", "head": 0, "query": 2},
        {"path": "encoder.layers.*.self.weights"},
        {"path": "encoder.layers.0.feed_forward.residual", "position": 3},
        {"path": "decoder.embedding.output"},
        {"path": "encoder.layers.1.self.value", "head": 1},
    ],
    ids=lambda options: options["path"],
)
def test_patching_a_run_with_itself_changes_nothing(options, model, runs):
    trace = model.trace(*runs[0])
    options = dict(options)
    again = model.trace(*runs[0], edits=[regard.patch(options.pop("path"), trace, **options)])
    assert_close(logits(again), logits(trace), atol=1e-5, rtol=0)


def test_all_heads_and_embeddings_of_another_run_give_its_logits(model, runs):
    other = model.trace(*runs[1])
    paths = ["*.self.context", "*.cross.context", "*.embedding.output"]
    patched = model.trace(*runs[0], edits=[regard.patch(path, other) for path in paths])
    assert_close(logits(patched), logits(other), atol=1e-5, rtol=0)
    assert not torch.allclose(logits(model.trace(*runs[0])), logits(other))


def test_a_patch_replaces_one_head_at_one_position_only(model, runs):
    site, before, other = "encoder.layers.0.self", model.trace(*runs[0]), model.trace(*runs[1])
    patch = regard.patch(f"{site}.context", other, head=1, position=2)
    context = model.trace(*runs[0], edits=[patch])[site].context()
    expected = before[site].context().clone()
    expected[1, 2] = other[site].context(1)[2]
    assert_close(context, expected)


def test_a_row_of_weights_is_that_of_the_other_run(model, runs):
    site, other = "decoder.layers.1.cross", model.trace(*runs[1])
    changed = model.trace(*runs[0], edits=[regard.patch(f"{site}.weights", other, query=1)])
    assert_close(changed[site].weights()[:, 1], other[site].weights()[:, 1])
    assert not torch.allclose(changed[site].weights()[:, 2], other[site].weights()[:, 2])


def test_a_residual_at_the_last_station_gives_the_other_runs_logits_there(model, runs):
    other = model.trace(*runs[1])
    patch = regard.patch("decoder.layers.1.feed_forward.residual", other, position=3)
    changed = model.trace(*runs[0], edits=[patch])
    assert_close(logits(changed)[:, 3], logits(other)[:, 3], atol=1e-5, rtol=0)
    assert_close(logits(changed)[:, 2], logits(model.trace(*runs[0]))[:, 2])


@pytest.mark.long
@pytest.mark.parametrize("family", ["transformer", "seq2seq"])
def test_a_search_under_a_patch_answers_what_its_trace_computes(family, make_bundle):
    model = make_bundle(family, seed=3)
    site = "decoder.cross" if family == "seq2seq" else "decoder.layers.0.cross"
    one, other = padded(model, ONE, 6), model.trace(padded(model, OTHER, 6))
    edits = [regard.patch(f"{site}.context", other, position=1)]
    found = trace_answer(model, one, edits=edits)
    forced = model.trace(one, [model.tokenizer.start_id, *found.output.ids], edits=edits)
    assert found.output.log_probs == pytest.approx(forced.output.log_probs, abs=1e-5)
    if family == "transformer":  # keys that a step does not know yet have no weight
        rows = [regard.patch("decoder.layers.0.self.weights", other, query=1)]
        assert (
            trace_answer(model, one, edits=rows)["decoder.layers.0.self"].weights(0)[1, 2:].sum()
            == 0
        )


def test_a_search_with_a_whole_value_of_itself_answers_the_same(model):
    greedy = SearchOptions(beam=1)  # in a beam, the value replaces that of the losers too
    trace = trace_answer(model, ONE, search=greedy)
    edits = [regard.patch("decoder.layers.*.self.context", trace)]
    assert trace_answer(model, ONE, edits=edits, search=greedy).output.ids == trace.output.ids


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda t: regard.patch("context", t), InputError, "not the path of a value"),
        (lambda t: regard.patch("a.context", t, query=1), InputError, "choose a row with position"),
        (lambda t: regard.patch("a.weights", t, position=1), InputError, "choose a row with query"),
        (lambda t: regard.patch("a.residual", t, head=1), InputError, "leave out the head"),
        (lambda t: regard.patch("a.context", t, head=-1), InputError, "0 or larger"),
    ],
)
def test_patches_that_make_no_sense_are_refused(make, error, sentence, model, runs):
    with pytest.raises(error, match=sentence):
        make(model.trace(*runs[0]))


def test_patches_that_do_not_fit_are_refused(model, runs, make_bundle):
    (ids, target), site = runs[0], "encoder.layers.0.self"
    shorter = model.trace(ids[:4], target)
    smaller = make_bundle("transformer", settings={"d_model": 4}).trace(ids, target)

    def run(path, trace, **options):
        model.trace(ids, target, edits=[regard.patch(path, trace, **options)])

    with pytest.raises(InputError, match="runs of the same length"):
        run(f"{site}.residual", shorter)
    with pytest.raises(InputError, match="runs of the same length"):
        run(f"{site}.weights", shorter, query=1)
    with pytest.raises(InputError, match="shape"):
        run(f"{site}.residual", smaller, position=0)
    with pytest.raises(UnknownNameError, match="only 4 in the other run"):
        run(f"{site}.context", shorter, position=5)
    with pytest.raises(UnknownNameError, match="no head 7"):
        run(f"{site}.context", shorter, head=7, position=0)
    with pytest.raises(UnknownNameError, match="the other run has no value"):
        run("encoder.layers.1.self.context", smaller)
    with pytest.raises(UnknownNameError, match="matched nothing"):
        run("encoder.layers.9.self.context", shorter)
    with pytest.raises(InputError, match="give its trace"):
        run(f"{site}.context", {"text": "a"})
    with pytest.raises(InputError, match="not made of numbers"):
        run(f"{site}.allowed", shorter)


def test_json_names_the_other_run_by_its_request():
    given = {"kind": "patch", "path": "a.context", "source": {"text": "b"}, "position": 2}
    patch = edit_from_dict(given)
    assert patch.to_dict() == given
    assert repr(patch) == "patch('a.context', {'text': 'b'}, position=2)"
    with pytest.raises(InputError, match="type must be object"):
        edit_from_dict({**given, "source": "b"})
