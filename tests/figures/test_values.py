"""Numbers read back from the tooltips of every kind of figure are those of the trace."""

import re
from itertools import chain, pairwise

import numpy as np
import pytest
import torch

import regard
from regard.analysis.heads import rollout
from regard.figures.kinds import concept_figure
from tests.figures.svg import texts, tooltips, weights_shown

SELF, CROSS = "encoder.layers.0.self", "decoder.layers.0.cross"


def tables(site, head, *names):
    return torch.cat([getattr(site, name)(head).flatten() for name in names]).tolist()


def vectors(site, head, *names):
    return torch.cat([site.vectors(name, head).flatten() for name in names]).tolist()


def expected_layer(trace):
    site = trace[SELF]
    parts = [trace.values[f"{SELF}.input"].flatten().tolist(), vectors(site, 1, *VECTORS)]
    return [
        *chain(*parts),
        *tables(site, 1, "masked", "weights", "context"),
    ]


def expected_temperatures(trace):
    masked = trace[SELF].masked(1, rows=[2])[0].double()
    cold = torch.nn.functional.one_hot(masked.argmax(), len(masked)).double()
    warm = [torch.softmax(masked / t, -1) for t in (0.25, 0.5, 1, 2, 5)]
    return torch.cat([cold, *warm]).tolist()


def expected_reference(trace):
    rows = [(trace[SELF].weights(head, rows=[2])[0], head) for head in range(3)]
    return torch.cat([row for row, _ in sorted(rows, key=lambda one: -one[0][1])]).tolist()


def expected_split(trace):
    site, heads = trace[SELF], range(3)
    parts = [vectors(site, head, name) for name in VECTORS for head in heads]
    parts += [tables(site, head, name) for name in ("weights", "context") for head in heads]
    parts += [tables(site, head, "context") for head in heads]
    return [
        *chain(*parts),
        *trace.values[f"{SELF}.output"].flatten().tolist(),
    ]


def expected_image(trace):
    site = trace[SELF]
    rows = [site.weights(head, rows=[0])[0, 1:] for head in range(site.n_heads)]
    return torch.cat([*rows, rollout(trace, SELF)[0, 1:].float()]).tolist()


def expected_additive(trace):
    site, pattern = trace["decoder.cross"], trace["decoder.cross"].pattern
    query, key, value = (site.vectors(name, 0) for name in ("query", "key", "value"))
    weights = site.weights(0, rows=[1])[0]
    mixed = torch.tanh(pattern.similarity.to_query(query[1]) + pattern.similarity.to_key(key))
    parts = (query[1], value, mixed, weights, weights[:, None] * value, weights @ value)
    return torch.cat([part.detach().flatten() for part in parts]).tolist()


VECTORS = ("query", "key", "value")
CASES = {
    "stages": lambda trace: tables(trace[SELF], 1, "scores", "masked", "weights"),
    "layer": expected_layer,
    "split": expected_split,
    "bars": lambda trace: trace[SELF].weights(1, rows=[2])[0].tolist(),
    "temperature": expected_temperatures,
    "reference": expected_reference,
    "image": expected_image,
    "additive": expected_additive,
    "compare": lambda trace: [
        *tables(trace[SELF], 1, "weights"),
        *tables(trace[SELF], 0, "weights"),
        *(trace[SELF].weights(0) - trace[SELF].weights(1)).flatten().tolist(),
    ],
}
OPTIONS = {
    "reference": {"query": 2, "key": 1},
    "compare": {"head": 1, "other_head": 0},
    "image": {"query": 0},
    "additive": {"query": 1, "site": None},
}


@pytest.mark.parametrize("kind", CASES)
def test_tooltips_have_the_numbers_of_the_trace(trace_of, kind):
    trace = trace_of(kind)
    options = {"site": SELF, **OPTIONS.get(kind, {"head": 1, "query": 2})}
    shown = [number for number, _ in weights_shown(trace.figure(kind, **options), "rect")]
    assert shown == [pytest.approx(x, abs=6e-5) for x in CASES[kind](trace)]


def test_a_graph_has_an_edge_for_each_weight_of_a_tenth(trace):
    weights = trace[CROSS].weights(0).flatten()
    edges = weights_shown(trace.figure("graph", site=CROSS, head=0), "polyline")
    expected = sorted(x for x in weights.tolist() if x >= 0.1)
    assert [x for x, _ in edges] == [pytest.approx(x, abs=6e-5) for x in expected]


def test_points_of_a_space_move_by_what_the_layer_adds(trace):
    from regard.analysis.steps import space

    found = space(trace, SELF)
    shown = [
        text.rsplit(": ")[-1] for text, _ in tooltips(trace.figure("space", site=SELF), "polyline")
    ]
    numbers = np.array([[float(x) for x in text.split(", ")] for text in shown])
    assert numbers == pytest.approx(torch.cat([found.before, found.after], -1).numpy(), abs=6e-5)


def test_written_tokens_have_their_probability_and_weights(trace):
    figure = trace.figure("decode", site=CROSS, head=1)
    logits, weights = trace.values["output.logits"][0], trace[CROSS].weights(1)
    rows = zip(logits.softmax(-1).amax(-1).tolist(), weights.tolist(), strict=True)
    expected = [number for probability, row in rows for number in (probability, *row)]
    assert [x for x, _ in weights_shown(figure, "rect")] == [
        pytest.approx(x, abs=6e-5) for x in expected
    ]


def test_grids_can_have_their_queries_as_columns(trace):
    rows = trace.figure("pattern", site=CROSS, head=0, style="heat")
    columns = trace.figure("pattern", site=CROSS, head=0, style="heat", queries="columns")
    assert sorted(text for text, _ in tooltips(rows, "rect")) == sorted(
        text for text, _ in tooltips(columns, "rect")
    )
    places = [
        {text: (box.get("x"), box.get("y")) for text, box in tooltips(figure, "rect")}
        for figure in (rows, columns)
    ]
    first = next(iter(places[0]))  # the first query's first key stays, its second one moves
    second = next(text for text in places[0] if text != first)
    assert places[0][second][1] == places[0][first][1]
    assert places[1][second][0] == places[1][first][0]


def test_special_tokens_can_be_hidden(trace):
    shown = texts(trace.figure("pattern", site=SELF, head=0, hide_special=True))
    assert "[CLS]" not in shown
    assert any("hidden" in text for text in shown)
    kept = [i for i, word in enumerate(trace.words["source"]) if word is not None]
    figure = trace.figure("stages", site=SELF, head=0, hide_special=True)
    numbers = [x for x, _ in weights_shown(figure, "rect")][-(len(kept) ** 2) :]
    assert numbers == [
        pytest.approx(x, abs=6e-5) for x in trace[SELF].weights(0)[kept][:, kept].flatten().tolist()
    ]


@pytest.mark.parametrize("length", [3, 12, 40, 60])
@pytest.mark.parametrize("kind", ["pattern", "stages", "lines", "bars", "temperature", "heads"])
def test_every_token_has_a_label_that_touches_no_other(kind, length):
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 2, length, 4), site=SELF)
    trace.tokens = {"source": [f"tok{i}en" for i in range(length)]}
    drawing = trace.figure(kind).drawing
    labels = [
        shape for shape in drawing.shapes if re.fullmatch(r"tok\d+en", getattr(shape, "text", ""))
    ]
    if kind == "heads" and length > 20:  # too small to label
        return
    assert {label.text for label in labels} == set(trace.tokens["source"])
    columns = {}
    for label in labels:
        place = (
            (label.y, "row") if label.rotation or label.anchor == "middle" else (label.x, "column")
        )
        columns.setdefault(place, []).append(label)
    for (_, along), group in columns.items():
        where = sorted((label.x if along == "row" else label.y) for label in group)
        size = group[0].size * (0.7 if group[0].rotation == 45 else 1)
        if along == "row" and not group[0].rotation:
            size *= 3
        assert all(b - a >= size * 0.99 for a, b in pairwise(where))


def test_padding_has_the_mask_of_the_lengths():
    shown = [text.endswith(": allowed") for text, _ in tooltips(concept_figure("padding"), "rect")]
    right = [[j < n for j in range(8)] for n in (5, 8, 3)]
    left = [row[::-1] for row in right]
    assert np.array(shown).reshape(2, 3, 8).tolist() == [right, left]
    assert "1 1 1 1 1 0 0 0" in texts(concept_figure("padding"))
