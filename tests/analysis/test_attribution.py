"""Attribution: the parts sum to the logit in every family, and are what they are said to be."""

import pytest
import torch
from torch.testing import assert_close

from regard.analysis.hidden_units import hidden_units
from regard.errors import InputError, UnknownNameError
from regard.trace.edits import ablate, set_value
from tests.analysis.families import TEXT, own_logits, trace_of


def total(found) -> float:
    return sum(part.value for part in found.parts)


def test_the_parts_sum_to_the_logit_minus_the_bias(any_model):
    trace = trace_of(any_model)
    logits = own_logits(trace)
    for position in range(len(logits)):
        for token in (0, 2):
            found = trace.attribution(token, position=position)
            assert found.logit == pytest.approx(float(logits[position, token]), abs=1e-5)
            assert total(found) == pytest.approx(found.logit - found.bias, abs=1e-4)
        apart = trace.attribution(0, position=position, relative_to=2)
        difference = float(logits[position, 0] - logits[position, 2])
        assert total(apart) + apart.bias == pytest.approx(difference, abs=1e-4)


def test_the_parts_still_sum_under_edits(any_model):
    path = f"{'decoder' if any_model.family in ('transformer', 'decoder') else 'encoder'}.layers.0"
    edits = [ablate(f"{path}.self", head=1), set_value(f"{path}.feed_forward.residual", 0.3)]
    trace = trace_of(any_model, edits)
    found = trace.attribution(1)
    assert total(found) == pytest.approx(found.logit - found.bias, abs=1e-4)
    # what was written before the replaced stream has been overwritten, and the edit says so
    assert [part.path for part in found.parts if part.kind == "edit"] == [
        f"{path}.feed_forward.residual"
    ]


def test_a_head_of_a_pre_norm_model_by_hand(make_bundle):
    model = make_bundle("decoder", settings={"norm": "pre"})
    trace, module = model.trace(TEXT), model.module
    found = trace.attribution(4, position=2)
    layer = module.decoder.layers[0]
    output = layer.self_attention.inner.to_output.weight
    context = trace["decoder.layers.0.self"].context(1)[2]
    stream = trace.value("decoder.layers.0.feed_forward.residual")[0, 2]
    with torch.no_grad():
        written = output[:, 4:] @ context  # head 1 of two of width 4
        norm = module.decoder.norm
        scaled = (written - written.mean()) / (stream.var(correction=0) + norm.eps).sqrt()
        expected = float((scaled * norm.weight) @ module.tokens.weight[4])
    (head,) = [part for part in found.parts if part.head == 1]
    assert head.path == "decoder.layers.0.self.output"
    assert head.value == pytest.approx(expected, abs=1e-5)


def test_the_only_unit_of_a_layer_writes_what_the_layer_adds(make_bundle):
    model = make_bundle("encoder", settings={"norm": "pre"})
    path = "encoder.layers.0.feed_forward"
    output = model.module.encoder.layers[0].feed_forward.inner.to_output
    with torch.no_grad():
        output.weight[:, 1:] = 0.0
        output.bias.zero_()
        model.module.encoder.layers[0].feed_forward.inner.to_hidden.bias[0] = 5.0  # active
    trace = model.trace(TEXT)
    found = hidden_units(trace, path, 1)
    assert found.writes == "logits"
    written = found.units[0].written[0]
    part = trace.attribution(written.name, position=1)
    (layer,) = [one for one in part.parts if one.path == f"{path}.output"]
    assert written.amount == pytest.approx(layer.value, abs=1e-5)


def test_a_head_that_is_switched_off_adds_nothing(make_bundle):
    model = make_bundle("decoder", settings={"n_layers": 2, "norm": "pre"})
    trace = model.trace(TEXT, edits=[ablate("decoder.layers.1.self", head=0)])
    values = {(part.path, part.head): part.value for part in trace.attribution().parts}
    assert values["decoder.layers.1.self.output", 0] == 0
    assert values["decoder.layers.1.self.output", 1] != 0


def test_token_and_position_default_to_the_answer(make_bundle):
    translator = make_bundle("transformer")
    trace = translator.trace(TEXT, "Ein Hund läuft.")
    assert trace.attribution(position=1).token == trace.output.ids[1]
    assert trace.attribution().position == 0
    writer = make_bundle("decoder").trace(TEXT)
    found = writer.attribution()
    assert found.position == len(writer.tokens["target"]) - 1
    assert found.name == writer.output.candidates[0].name
    assert writer.attribution("d").name == "d"
    filled = make_bundle("encoder").trace("A dog [MASK] along the beach.")
    gap = filled.output.gaps[0]
    assert filled.attribution().position == gap.position
    assert filled.attribution().token == gap.candidates[0].id
    seen = trace_of(make_bundle("vision"))
    assert seen.attribution("dog").name == "dog"
    assert seen.attribution().position is None


def test_a_repr_lists_the_largest_parts_and_json_has_all(make_bundle):
    found = make_bundle("decoder").trace(TEXT).attribution(relative_to=3)
    sizes = [abs(part.value) for part in found.ranked()]
    assert sizes == sorted(sizes, reverse=True)
    assert repr(found).splitlines()[1].split()[0] == f"{found.ranked()[0].value:+.4f}"
    data = found.to_dict()
    assert [part["value"] for part in data["parts"]] == [part.value for part in found.parts]
    assert data["relative_to"] == 3


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"position": 99}, "no position 99"),
        ({"token": 10_000}, "no token 10000"),
        ({"token": "A dog"}, "tokens"),
    ],
)
def test_what_does_not_exist_is_refused(given, error, make_bundle):
    with pytest.raises((InputError, UnknownNameError), match=error):
        make_bundle("decoder").trace(TEXT).attribution(**given)


def test_parts_of_the_embedding_are_tokens_and_positions(make_bundle):
    trace = make_bundle("decoder", settings={"norm": "pre"}).trace(TEXT)
    parts = trace.attribution(position=0).parts
    assert [part.path for part in parts[:2]] == [
        "decoder.embedding.tokens",
        "decoder.embedding.positions",
    ]
    assert_close(
        trace.value("decoder.embedding.tokens") + trace.value("decoder.embedding.positions"),
        trace.value("decoder.embedding.output"),
    )
