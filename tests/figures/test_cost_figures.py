"""Figures of cost: measured numbers obey their laws, and drawings show them."""

from math import sqrt

import pytest
import torch

from regard.analysis.measurements import LayerCost, measure_costs, measure_scaling
from regard.figures.concept_figures import draw_cost, draw_efficient
from tests.figures.svg import texts, weights_shown


def test_unscaled_scores_grow_with_the_root_of_the_width():
    found = measure_scaling()
    assert found.spread["dot"] == [pytest.approx(sqrt(d), rel=0.15) for d in found.widths]
    assert found.spread["scaled"] == [pytest.approx(1, rel=0.15)] * len(found.widths)
    assert found.entropy["dot"][-1] < 1 < 4 < found.entropy["scaled"][-1]


def test_the_norm_of_the_gradient_is_that_of_autograd():
    found = measure_scaling([8], n_keys=4, n_queries=2)
    chance = torch.Generator().manual_seed(0)
    query = torch.randn(2, 8, generator=chance, dtype=torch.float64)
    key = torch.randn(4, 8, generator=chance, dtype=torch.float64)
    norms = [
        torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores).norm()
        for scores in query @ key.T
    ]
    assert found.gradient["dot"] == [pytest.approx(float(sum(norms) / 2))]


def test_exponents_are_fitted_to_the_seconds():
    rows = [
        LayerCost(
            "self-attention", "n² · d", "1", "1", 2.0, {n: 3e-9 * n**2 for n in (64, 256, 512)}
        ),
        LayerCost("recurrent", "n · d²", "n", "n", 1.0, {n: 2e-6 * n for n in (64, 256, 512)}),
    ]
    shown = texts(draw_cost(rows))
    assert "n^2.00  (n^2)" in shown
    assert "n^1.00  (n^1)" in shown
    assert "O(n² · d)" in shown


def test_every_layer_of_the_table_is_measured():
    rows = measure_costs([64, 128], rounds=1)
    assert len(rows) == 8
    assert all(second > 0 for row in rows for second in row.seconds.values())


def test_efficient_attention_keeps_a_small_matrix():
    shown = [
        number for number, _ in weights_shown(draw_efficient(length=100, d_k=10, d_v=20), "rect")
    ]
    assert shown == [1000, 1000, 10_000, 2000, 2000, 1000, 1000, 2000, 200, 2000]
