"""Connections that a mask forbids, allowed by an edit; and edits while a text is being written."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention.attend import attend
from regard.attention.mask import causal
from regard.errors import InputError
from regard.model import Model
from regard.models.transformer import Transformer, TransformerConfig
from regard.text.tokenizer_training import train_tokenizer
from regard.trace.capture import trace_model, write_greedily
from regard.trace.edits import allow, forbid, set_scores, set_weights
from regard.trace.trace import watch

# All scores are 0: a query's weights are equal over the keys that it may see.
ZEROS, VALUE = torch.zeros(1, 2, 2), torch.tensor([[[4.0], [8.0]]])


def test_an_allowed_look_ahead_by_hand():
    with watch(edits=[allow("attention", query=0, key=1)]) as trace:
        context = attend(ZEROS, ZEROS, VALUE, allowed=causal())
    assert context.flatten().tolist() == [6.0, 6.0]  # without the edit it is 4 and 6
    assert_close(trace["attention"].weights(0), torch.full((2, 2), 0.5))


def test_allowing_undoes_forbidding_and_means_one_head_only():
    edits = [forbid("attention", key=1), allow("attention", query=0, key=1, head=1)]
    with watch(edits=edits) as trace:
        attend(ZEROS.expand(2, 2, 2), ZEROS.expand(2, 2, 2), VALUE.expand(2, 2, 1))
    assert trace["attention"].weights()[:, :, 1].tolist() == [[0.0, 0.0], [0.5, 0.0]]


def test_who_is_allowed_to_see_whom_must_be_said():
    with pytest.raises(InputError, match="who may see whom"):
        allow("attention", head=1)


@pytest.fixture(scope="module")
def model():
    tokenizer = train_tokenizer(["the dog is here .", "ein hund ist da ."] * 2, vocab_size=60)
    torch.manual_seed(4)
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 1}
    module = Transformer(TransformerConfig(n_vocab=len(tokenizer), tie="none", **sizes))
    for weight in (one for one in module.parameters() if one.dim() > 1):
        torch.nn.init.normal_(weight, std=0.5)
    return Model(module=module.eval(), task="translation", tokenizer=tokenizer)


def test_an_edit_of_a_later_token_does_not_hold_up_that_of_an_earlier_one(model):
    source = model.tokenizer.encode("the dog")
    site = "decoder.layers.0.cross"
    early = [set_weights(site, 9.0, query=0, key=1), set_weights(site, -9.0, query=0, key=2)]
    late = set_weights(site, 1.0, query=30, key=0, head=0)
    alone = write_greedily(model, source, edits=early)
    assert alone != write_greedily(model, source)
    assert write_greedily(model, source, edits=[*early, late])[:20] == alone[:20]


def test_what_is_written_under_edits_is_what_the_trace_finds_best(model):
    edits = [set_scores("decoder.layers.0.cross", 20.0, query=0, key=0)]
    trace = trace_model(model, "the dog", edits=edits)
    best = trace.values["output.logits"][0].clone()
    best[:, [model.tokenizer.start_id, model.config.pad_id]] = -torch.inf
    assert best.argmax(-1).tolist() == trace.output["ids"]
