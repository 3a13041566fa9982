from math import inf

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.steps import head_temperature, steps
from regard.errors import UnknownNameError
from regard.models.transformer import Transformer, TransformerConfig
from regard.trace.capture import trace_model


def test_one_weight_by_hand():
    # q·k = 1·2 + 1·0 = 2, ÷ √2; the other key has 0: softmax(√2, 0)
    query, key = torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    with regard.watch() as trace:
        regard.attend(query, key, key, site="s")
    way = steps(trace, "s", 0, 0, 0)
    assert way.terms is not None
    assert way.terms.tolist() == [2.0, 0.0]
    assert way.compared == 2.0
    assert way.score == pytest.approx(2**0.5)
    assert way.weights[0].item() == pytest.approx(
        2.718281828 ** (2**0.5) / (1 + 2.718281828 ** (2**0.5))
    )
    assert_close(way.context, way.weights @ key)


@pytest.mark.parametrize(
    "path", ["encoder.layers.1.self", "decoder.layers.0.self", "decoder.layers.1.cross"]
)
def test_every_step_follows_from_the_one_before(trace, path):
    way = steps(trace, path, 2, 1, 0)
    made = {name: p.weight @ x + p.bias for name, p, x in _inputs(way)}
    assert_close(made["query"], way.query, rtol=0, atol=1e-5)
    assert_close(made["key"], way.key, rtol=0, atol=1e-5)
    assert_close(way.terms.sum().item(), way.compared, rtol=0, atol=1e-5)
    assert_close(way.compared * way.scale, way.score, rtol=0, atol=1e-5)
    assert_close(torch.softmax(way.row / way.temperature, -1), way.weights, rtol=0, atol=1e-5)
    assert_close(way.weights @ way.value, way.context, rtol=0, atol=1e-5)
    d_v = way.context.numel()
    assert_close(way.joined[2 * d_v : 3 * d_v], way.context, rtol=0, atol=1e-5)
    output = way.projections["output"]
    assert_close(output.weight @ way.joined + output.bias, way.output, rtol=0, atol=1e-5)
    assert_close(way.before + way.output, way.after, rtol=0, atol=1e-5)


def _inputs(way):
    yield "query", way.projections["query"], way.query_input
    yield "key", way.projections["key"], way.key_input


def test_the_output_is_added_to_the_residual_stream(trace):
    way = steps(trace, "decoder.layers.0.cross", 0, 2, 0)
    assert_close(way.before, trace.value("decoder.layers.0.self.residual")[0, 2], rtol=0, atol=1e-5)


def test_a_masked_key_has_minus_infinity_and_no_weight(trace):
    way = steps(trace, "decoder.layers.0.self", 0, 0, 2)
    assert not way.allowed
    assert way.row[2] == -inf
    assert way.weights[2] == 0


def test_post_norm_reads_the_residual_stream(translator):
    model = type(translator)(
        module=Transformer(TransformerConfig(n_vocab=70, d_model=24, n_heads=3, d_ff=8)).eval(),
        task="translation",
        tokenizer=translator.tokenizer,
    )
    way = steps(trace_model(model, "a cat", "eine Katze"), "encoder.layers.0.self", 0, 1, 1)
    assert way.norm_first is False
    assert way.before is way.query_input


def test_grouped_heads_share_the_projections_of_keys(translator):
    config = TransformerConfig(n_vocab=70, d_model=24, n_heads=4, n_kv_heads=2, d_ff=8)
    model = type(translator)(
        module=Transformer(config).eval(), task="translation", tokenizer=translator.tokenizer
    )
    trace = trace_model(model, "a cat", "eine Katze")
    for head in range(4):
        way = steps(trace, "encoder.layers.0.self", head, 1, 1)
        p = way.projections["key"]
        assert_close(p.weight @ way.key_input + p.bias, way.key, rtol=0, atol=1e-5)


def test_without_a_model_projections_and_streams_are_missing():
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 2, 2, 4), site="s")
    way = steps(trace, "s", 1, 0, 0)
    assert way.projections == {}
    assert way.query_input is way.output is way.before is None


def test_efficient_attention_has_weights_but_no_scores():
    with regard.watch() as trace:
        regard.efficient_attention(*torch.randn(3, 1, 2, 3, 4), site="s")
    way = steps(trace, "s", 1, 0, 2)
    assert way.score is way.compared is way.terms is None
    assert_close(way.weights.sum().item(), 1.0)


def test_each_head_has_its_own_temperature():
    with regard.watch(edits=[regard.temperature("s", 0.5, head=1)]) as trace:
        regard.attend(*torch.randn(3, 1, 2, 3, 4), site="s")
    assert [head_temperature(trace["s"], head) for head in (0, 1)] == [1.0, 0.5]


@pytest.mark.parametrize(("query", "key", "said"), [(9, 0, "no query 9"), (0, 9, "no key 9")])
def test_unknown_positions_are_refused(trace, query, key, said):
    with pytest.raises(UnknownNameError, match=said):
        steps(trace, "decoder.layers.1.cross", 0, query, key)
