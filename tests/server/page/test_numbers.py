"""What the page computes equals what Python's trace holds."""

import json
import re
from math import inf

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.steps import steps
from regard.attention.similarity import Alibi
from regard.server import html_export as export
from regard.server.html_export import as_html
from regard.trace.capture import trace_model


def data_of(trace, **options):
    text = as_html(trace, **options)
    return json.loads(re.search(r'id="regard-data">(.*?)</script>', text, re.DOTALL)[1])


def tensor(values, like):
    return torch.tensor([float(x) for x in values]).view(like.shape).to(like.dtype)


def check(trace, found, atol=1e-5):
    assert {(one["path"], one["head"]) for one in found} == {
        (path, head) for path in trace for head in range(trace[path].n_heads)
    }
    for one in found:
        site = trace[one["path"]]
        head = one["head"] if site.lead else None
        for name in ("scores", "masked", "weights", "context"):
            if one[name] is not None:
                expected = getattr(site, name)(head)
                assert_close(tensor(one[name], expected), expected, rtol=1e-5, atol=atol)


def test_every_table_of_every_head_of_a_translator(modules, trace):
    found = modules("tables", data_of(trace))
    assert all(one["scores"] for one in found)
    check(trace, found)


CALLS = {
    "plain": {},
    "cosine": {"similarity": "cosine", "temperature": 0.1},
    "dot": {"similarity": "dot"},
    "general": {"similarity": regard.General(6, 6)},
    "additive": {"similarity": regard.Additive(6, 6, 5)},
    "alibi": {"similarity": Alibi(2), "allowed": regard.causal()},
    "own": {"similarity": lambda q, k: -torch.cdist(q, k)},
    "padded": {"allowed": regard.padding([5])},
    "left": {"allowed": regard.padding([3], side="left") & regard.window(2)},
    "nothing": {"allowed": regard.edges([(0, 1), (2, 2)])},
    "cold": {"temperature": 0.0},
    "hot": {"temperature": inf, "allowed": regard.causal()},
    "by_head": {"temperature": torch.tensor([0.5, 2.0]).view(2, 1, 1)},
    "by_query": {"temperature": torch.rand(2, 7, 1) + 0.1},
}


def test_every_similarity_mask_and_temperature(modules):
    torch.manual_seed(0)
    with regard.watch() as trace:
        for name, options in CALLS.items():
            vectors = torch.randn(3, 1, 2, 7, 6) * 2
            regard.attend(*vectors, site=name, **options)
        for normalization in ("softmax", "scaling"):
            vectors = torch.randn(3, 1, 2, 7, 6)
            regard.efficient_attention(*vectors, normalization=normalization, site=normalization)
    found = modules("tables", data_of(trace))
    check(trace, found)
    absent = {one["path"] for one in found if one["scores"] is None}
    assert absent == {"softmax", "scaling"}


def test_what_an_edit_has_changed_in_the_trace_is_what_the_page_shows(modules):
    edits = [
        regard.set_scores("a", 3.0, query=1, key=2, head=0),
        regard.set_weights("b", 0.25, head=1),
        regard.ablate("c", head=0),
        regard.forbid("d", query=0, key=1, head=1),
        regard.temperature("e", 0.3, head=0),
        regard.unscaled("f"),
    ]
    with regard.watch(edits=edits) as trace:
        for site in "abcdef":
            regard.attend(*torch.randn(3, 1, 2, 4, 6), site=site)
    check(trace, modules("tables", data_of(trace)))


def test_a_recurrent_decoder_that_aligns_itself(modules, translator):
    from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig

    config = Seq2SeqConfig(n_vocab=64, d_model=8)
    model = regard.Model(
        module=Seq2Seq(config).eval(), task="translation", tokenizer=translator.tokenizer
    )
    trace = trace_model(model, "a cat sleeps", "eine Katze")
    found = modules("tables", data_of(trace))
    check(trace, found)
    assert [one["path"] for one in found] == ["decoder.cross"]


@pytest.mark.parametrize(("number", "dtype", "atol"), [(-6, "float16", 4e-3), (-5, "int8", 8e-2)])
def test_smaller_pages_hold_rounded_numbers_that_are_still_close(
    modules, trace, monkeypatch, number, dtype, atol
):
    monkeypatch.setattr(export, "_PLANS", export._PLANS[number : number + 1])
    data = data_of(trace)
    assert {array["dtype"] for array in data["arrays"].values()} == {dtype}
    for one in modules("tables", data):
        expected = trace[one["path"]].weights(one["head"])
        assert_close(tensor(one["weights"], expected), expected, rtol=0, atol=atol)


def test_what_stands_before_and_after_attention(modules, trace):
    # 6 megabytes: matrices exact
    for one in modules("steps", data_of(trace, megabytes=6), {"head": 2, "query": 3, "key": 1}):
        way = steps(trace, one["path"], 2, 3, 1)
        for name in ("joined", "output", "before", "after"):
            assert_close(torch.tensor(one[name]), getattr(way, name), rtol=1e-5, atol=1e-5)
        for name, expected in (("query", way.query), ("key", way.key), ("value", way.value[1])):
            assert_close(torch.tensor(one["made"][name]), expected, rtol=1e-5, atol=1e-5)
        assert_close(torch.tensor(one["made"]["output"]), way.output, rtol=1e-5, atol=1e-5)


def test_one_query_alone_has_the_numbers_it_has_among_all(modules, trace):
    """Heads too large to be held are computed row by row."""
    assert modules("rowsApart", data_of(trace)) == 0


def test_tiles_are_pooled_by_the_largest_and_thumbnails_by_the_mean(modules, trace):
    found = modules("parts", data_of(trace), "encoder.layers.0.self")
    site = trace["encoder.layers.0.self"]
    weights = site.weights(1)
    blocks = weights[1:5, :6].view(2, 2, 3, 2).amax(dim=(1, 3))
    assert_close(torch.tensor(found["tile"]).view(2, 3), blocks, rtol=0, atol=1e-5)
    n = site.n_query
    bands = [[i for i in range(n) if i * 3 // n == band] for band in range(3)]
    small = torch.stack([torch.stack([weights[a][:, b].mean() for b in bands]) for a in bands])
    assert_close(torch.tensor(found["small"]).view(3, 3), small, rtol=0, atol=1e-5)
    assert found["low"] == pytest.approx(site.scores(1)[:4, :2].max().item(), abs=1e-5)


def test_numbers_compared_several_at_a_time_are_those_of_one_at_a_time(modules):
    torch.manual_seed(0)
    for n_query, n_key, temperature in [(1, 1, 1.0), (2, 4, 0.02), (3, 7, 30.0), (6, 5, 1.0)]:
        query, key = 3 * torch.randn(n_query, 5), 3 * torch.randn(n_key, 5)
        scores = query.double() @ key.double().T
        given = {"query": query.tolist(), "key": key.tolist(), "temperature": temperature}
        found, weights = (torch.tensor(x).double() for x in modules("compared", given=given))
        assert_close(found, scores.flatten(), rtol=1e-6, atol=1e-6)
        expected = torch.softmax(scores / temperature, -1).flatten()
        assert_close(weights, expected, rtol=2e-5 / min(1, temperature), atol=1e-37)
