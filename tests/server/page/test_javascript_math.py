"""The page's own arithmetic equals Python's, run in the browser."""

from math import exp, inf

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import regard
from regard.analysis.heads import rollout
from regard.analysis.measurements import approximation
from regard.analysis.steps import steps
from regard.analysis.worked_example import DEFAULT, work
from regard.attention.similarity import Alibi
from regard.attention.softmax import softmax_over_keys
from regard.server import html_export
from regard.trace.capture import trace_model

QUERIES, KEYS, WIDTH = 5, 7, 6


def matrix(table: torch.Tensor) -> dict:
    return {"matrix": [[x if abs(x) < inf else str(x) for x in row] for row in table.tolist()]}


def float32(values: torch.Tensor) -> dict:
    return {"float32": values.tolist()}


def numbers(given) -> torch.Tensor:
    """Read what the browser returned; infinities and NaN come as text."""
    if isinstance(given, list):
        return torch.stack([numbers(x) for x in given]) if given else torch.empty(0)
    return torch.tensor(float(str(given).replace("Infinity", "inf")), dtype=torch.float64)


def random_site(**options):
    """Return queries, keys, values and the site of one attention call without batch and heads."""
    query, key = 2 * torch.randn(QUERIES, WIDTH), 2 * torch.randn(KEYS, WIDTH)
    value = torch.randn(KEYS, 4)
    with regard.watch() as trace:
        regard.attend(query, key, value, site="s", **options)
    return query, key, value, trace["s"]


def _allowed_row():
    mask = torch.rand(QUERIES, KEYS) < 0.5
    bits = {"kind": "bits", "bits": {"uint8": np.packbits(mask.numpy()).tolist()}, "first": 0}
    return [bits, 3, KEYS], mask[3]


def _allowed_table():
    return [{"kind": "causal"}, 6, 6], regard.causal().tensor(6, 6).flatten()


def _compare():
    query, key, _, site = random_site(similarity="dot")
    return [matrix(query), matrix(key)], site.scores()


def _compare_additively():
    similarity = regard.Additive(WIDTH, WIDTH, 3)
    query, key, _, site = random_site(similarity=similarity)
    projected = [matrix(similarity.to_query(query)), matrix(similarity.to_key(key))]
    return [*projected, float32(similarity.to_score.weight[0])], site.scores()


def _scaled():
    similarity = Alibi(1)
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 1, 1, 6, WIDTH), similarity=similarity, site="s")
    site = trace["s"]
    given = [matrix(site.compared(0)), WIDTH**-0.5, similarity.slopes[0]]
    return given, site.scores(0)


def _masked():
    mask = torch.rand(QUERIES, KEYS) < 0.5
    *_, site = random_site(allowed=mask)
    return [matrix(site.scores()), {"uint8": mask.int().flatten().tolist()}], site.masked()


def _softmax():
    *_, site = random_site(allowed=torch.rand(QUERIES, KEYS) < 0.5, temperature=0.7)
    return [matrix(site.masked()), 0.7], site.weights()


def _softmax_into():
    scores = 3 * torch.randn(KEYS)
    return [float32(scores), 30.0, {"float32": [0.0] * KEYS}], softmax_over_keys(scores[None] / 30)[
        0
    ]


def _exponential():
    return [1.5, 2.25, 0.3], torch.tensor(exp((1.5 - 2.25) / 0.3))


def _rollout_layer():
    with regard.watch() as trace:
        for layer in range(2):
            regard.attend(*torch.randn(3, 1, 2, 6, WIDTH), site=f"encoder.layers.{layer}.self")
    first, second = "encoder.layers.0.self", "encoder.layers.1.self"
    heads = [matrix(trace[second].weights(head)) for head in range(2)]
    return [heads, matrix(rollout(trace, first))], rollout(trace, second)


def _weighted_sum():
    *_, value, site = random_site()
    return [matrix(site.weights()), matrix(value)], site.context()


def _mixture():
    *_, value, site = random_site()
    return [float32(site.weights()[2]), matrix(value)], site.context()[2]


def _project():
    linear, x = torch.nn.Linear(WIDTH, 4), torch.randn(WIDTH)
    return [float32(x), matrix(linear.weight), float32(linear.bias)], linear(x)


def _dot():
    a, b = torch.randn(2, WIDTH)
    return [float32(a), float32(b)], a.double() @ b.double()


def _pooled():
    table = torch.randn(6, 8)
    return [matrix(table), 3, 4, "mean"], table.view(3, 2, 4, 2).mean(dim=(1, 3))


def _largest():
    values = torch.randn(KEYS)
    return [float32(values)], values.max()


def _largest_size():
    values = torch.randn(KEYS)
    return [float32(values)], values.abs().max()


def _range_of():
    *_, site = random_site(allowed=regard.window(1))
    finite = site.masked()[site.masked().isfinite()]
    return [matrix(site.masked())], torch.stack([finite.min(), finite.max()])


def _row():
    table = torch.randn(QUERIES, KEYS)
    return [matrix(table), 2], table[2]


def _matrix():
    table = torch.randn(2, 3)
    return [2, 3, table.flatten().tolist()], table


def _average_rows():
    weights = torch.rand(QUERIES, KEYS)
    return [matrix(weights)], weights.mean(0).expand(QUERIES, KEYS)


REFERENCES = {
    "attention": {
        "allowedRow": _allowed_row,
        "allowedTable": _allowed_table,
        "compare": _compare,
        "compareAdditively": _compare_additively,
        "scaled": _scaled,
        "masked": _masked,
        "softmax": _softmax,
        "softmaxInto": _softmax_into,
        "exponential": _exponential,
        "rolloutLayer": _rollout_layer,
    },
    "matrix": {
        "matrix": _matrix,
        "row": _row,
        "dot": _dot,
        "largest": _largest,
        "largestSize": _largest_size,
        "rangeOf": _range_of,
        "weightedSum": _weighted_sum,
        "mixture": _mixture,
        "project": _project,
        "pooled": _pooled,
    },
    "head": {"averageRows": _average_rows},
}
BY_TRACE = {"computeTables", "computeRow", "contextOf", "rowOf", "stageOf"}
"""Functions of head.js that the tests of whole traces below compare."""


@pytest.mark.parametrize("module", REFERENCES)
def test_every_exported_function_equals_python_on_random_input(modules, module):
    torch.manual_seed(0)
    names = set(modules("exportedFunctions", given=module))
    assert names - BY_TRACE == set(REFERENCES[module])
    for name, make in REFERENCES[module].items():
        with torch.no_grad():
            args, expected = make()
        changed = {"changed": 2} if name == "softmaxInto" else {}
        call = {"module": module, "name": name, "args": args, **changed}
        found = numbers(modules("call", given=call))
        assert_close(found, expected.double(), rtol=1e-6, atol=1e-6, msg=f"{name}: {{}}".format)


@pytest.mark.parametrize("temperature", [0.0, 0.02, 1.0, 30.0, inf])
def test_softmax_at_every_temperature(modules, temperature):
    scores = 3 * torch.randn(QUERIES, KEYS)
    scores[2] = -inf  # a query without allowed keys
    scores[3, :4] = 5.0  # ties
    given = "Infinity" if temperature == inf else temperature
    call = {"module": "attention", "name": "softmax", "args": [matrix(scores), given]}
    with regard.watch() as trace:
        similarity = lambda q, k: scores.masked_fill(scores == -inf, 0)  # noqa: E731
        regard.attend(
            torch.zeros(QUERIES, 1),
            *torch.zeros(2, KEYS, 1),
            scores > -inf,
            similarity=similarity,
            temperature=temperature,
            site="s",
        )
    expected = trace["s"].weights().double()
    found = numbers(modules("call", given=call))
    assert_close(found, expected, rtol=2e-5 / min(1, temperature or 1), atol=1e-6)


def test_the_worked_example_equals_python(modules):
    torch.manual_seed(1)
    example = {**DEFAULT, "mask": "causal", "temperature": 0.7}
    for name in ("x", "w_query", "w_key", "w_value"):
        example[name] = torch.randn_like(torch.tensor(DEFAULT[name], dtype=torch.float)).tolist()
    tables = {"X": "x", "WQ": "w_query", "WK": "w_key", "WV": "w_value"}
    given = {letter: matrix(torch.tensor(example[name])) for letter, name in tables.items()}
    given |= {"causal": True, "scaled": True, "temperature": 0.7}
    found = modules("call", given={"module": "views/worked", "name": "compute", "args": [given]})
    names = {
        "Q": "query",
        "K": "key",
        "V": "value",
        "E": "compared",
        "S": "scores",
        "M": "masked",
        "A": "weights",
    }
    for letter, name in {**names, "Y": "context"}.items():
        expected = torch.tensor(work(example)[name].values, dtype=torch.float64)
        assert_close(numbers(found[letter]), expected, rtol=1e-6, atol=1e-6)


def test_the_error_of_an_approximation_equals_python(modules):
    with regard.watch() as trace:
        regard.efficient_attention(*torch.randn(3, 1, 2, 6, 4), site="s")
    expected = approximation(trace["s"], 1)
    args = [matrix(expected.weights), matrix(expected.exact)]
    call = {"module": "views/approximation", "name": "errorOf", "args": args}
    found = modules("call", given=call)
    for name in ("largest", "mean", "variation"):
        reference = torch.as_tensor(getattr(expected, name), dtype=torch.float64)
        assert_close(numbers(found[name]), reference, rtol=1e-6, atol=1e-6)


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


def test_tables_of_every_head_of_a_translator(modules, trace, embedded):
    found = modules("tables", embedded(trace))
    assert all(one["scores"] for one in found)
    check(trace, found)


CALLS = {
    "plain": {},
    "cosine": {"similarity": "cosine", "temperature": 0.1},
    "dot": {"similarity": "dot"},
    "general": {"similarity": regard.General(6, 6)},
    "additive": {"similarity": regard.Additive(6, 6, 5)},
    "alibi": {"similarity": Alibi(2), "allowed": regard.causal()},
    "custom": {"similarity": lambda q, k: -torch.cdist(q, k)},
    "padded": {"allowed": regard.padding([5])},
    "left": {"allowed": regard.padding([3], side="left") & regard.window(2)},
    "nothing": {"allowed": regard.edges([(0, 1), (2, 2)])},
    "cold": {"temperature": 0.0},
    "hot": {"temperature": inf, "allowed": regard.causal()},
    "by_head": {"temperature": torch.tensor([0.5, 2.0]).view(2, 1, 1)},
    "by_query": {"temperature": torch.rand(2, 7, 1) + 0.1},
}


def test_tables_of_every_similarity_mask_and_temperature(modules, embedded):
    torch.manual_seed(0)
    with regard.watch() as trace:
        for name, options in CALLS.items():
            regard.attend(*torch.randn(3, 1, 2, 7, 6) * 2, site=name, **options)
        for normalization in ("softmax", "scaling"):
            vectors = torch.randn(3, 1, 2, 7, 6)
            regard.efficient_attention(*vectors, normalization=normalization, site=normalization)
    found = modules("tables", embedded(trace))
    check(trace, found)
    assert {one["path"] for one in found if one["scores"] is None} == {"softmax", "scaling"}


def test_tables_of_a_trace_with_edits(modules, embedded):
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
    check(trace, modules("tables", embedded(trace)))


def test_tables_of_a_recurrent_decoder(modules, translator, embedded):
    from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig

    config = Seq2SeqConfig(n_vocab=64, d_model=8)
    model = regard.Model(
        module=Seq2Seq(config).eval(), task="translation", tokenizer=translator.tokenizer
    )
    trace = trace_model(model, "a cat sleeps", "eine Katze")
    found = modules("tables", embedded(trace))
    check(trace, found)
    assert [one["path"] for one in found] == ["decoder.cross"]


@pytest.mark.parametrize(
    ("plan", "dtypes", "atol"),
    [
        (html_export._HALF, {"float16"}, 4e-3),
        (html_export._ROUNDED[0], {"int8"}, 8e-2),
    ],
)
def test_smaller_files_hold_rounded_numbers(
    modules, trace, embedded, monkeypatch, plan, dtypes, atol
):
    monkeypatch.setattr(html_export, "_PLANS", (plan,))
    data = embedded(trace)
    assert {array["dtype"] for array in data["arrays"].values()} == dtypes
    for one in modules("tables", data):
        expected = trace[one["path"]].weights(one["head"])
        assert_close(tensor(one["weights"], expected), expected, rtol=0, atol=atol)


def test_streams_and_projections_equal_python(modules, trace, embedded):
    data = embedded(trace, megabytes=6)  # with exact matrices
    for one in modules("steps", data, {"head": 2, "query": 3, "key": 1}):
        expected = steps(trace, one["path"], 2, 3, 1)
        for name in ("joined", "output", "before", "after"):
            assert_close(torch.tensor(one[name]), getattr(expected, name), rtol=1e-5, atol=1e-5)
        value = expected.value[1]
        named = {"query": expected.query, "key": expected.key, "value": value}
        for name, vector in {**named, "output": expected.output}.items():
            assert_close(torch.tensor(one["projected"][name]), vector, rtol=1e-5, atol=1e-5)


def test_a_row_alone_equals_the_row_of_the_table(modules, trace, embedded):
    assert modules("rowDifference", embedded(trace)) == 0


def test_tiles_are_max_pooled_and_thumbnails_mean_pooled(modules, trace, embedded):
    found = modules("tiles", embedded(trace), "encoder.layers.0.self")
    site = trace["encoder.layers.0.self"]
    weights = site.weights(1)
    blocks = weights[1:5, :6].view(2, 2, 3, 2).amax(dim=(1, 3))
    assert_close(torch.tensor(found["weights"]).view(2, 3), blocks, rtol=0, atol=1e-5)
    n = site.n_query
    bands = [[i for i in range(n) if i * 3 // n == band] for band in range(3)]
    small = torch.stack([torch.stack([weights[a][:, b].mean() for b in bands]) for a in bands])
    assert_close(torch.tensor(found["thumbnail"]).view(3, 3), small, rtol=0, atol=1e-5)
    assert found["scores"] == pytest.approx(site.scores(1)[:4, :2].max().item(), abs=1e-5)


def test_rollout_of_a_file_equals_python(modules, trace, embedded):
    for path in ("encoder.layers.0.self", "encoder.layers.1.self", "decoder.layers.1.self"):
        expected = rollout(trace, path).float()
        found = modules("rollout", embedded(trace), path)
        assert_close(torch.tensor(found).view(expected.shape), expected, rtol=0, atol=1e-5)
