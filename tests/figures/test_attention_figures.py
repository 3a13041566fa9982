import re
from math import pi, sqrt

import numpy as np
import pytest
import torch

import regard
from regard.errors import InputError
from regard.figures.grid import circle_radius
from regard.figures.kinds import concept_figure
from regard.layers.embedding import sinusoid
from tests.figures.svg import SVG, parse, texts, tooltips, weights_shown

CROSS = "decoder.layers.0.cross"


def test_circle_areas_are_proportional_to_weights_and_fit_a_cell():
    areas = [pi * circle_radius(weight, 40) ** 2 for weight in (0.25, 0.5, 1.0)]
    assert areas[1] == pytest.approx(2 * areas[0])
    assert areas[2] == pytest.approx(4 * areas[0])
    assert 16 < circle_radius(1.0, 40) <= 20


def test_circles_show_the_weights_of_the_trace(trace):
    figure = trace.figure("pattern", site=CROSS, head=1)
    weights = trace[CROSS].weights(1).flatten().tolist()
    found = weights_shown(figure, "circle")
    assert [number for number, _ in found] == [pytest.approx(w, abs=6e-5) for w in weights]
    radii = [float(circle.get("r")) for _, circle in found]
    assert radii == [pytest.approx(circle_radius(w, 46.0), abs=0.01) for w in weights]


def test_heat_cells_show_the_weights_as_digits(trace):
    weights = trace["encoder.layers.0.self"].weights(0)
    figure = trace.figure("pattern", site="encoder.layers.0.self", head=0, style="heat")
    shown = [text for text in texts(figure) if re.fullmatch(r"\d\.\d\d", text)]
    assert shown == [f"{w:.2f}" for w in weights.flatten().tolist()]


def test_lines_are_as_thick_as_their_weights(trace):
    figure = trace.figure("lines", site=CROSS, head=2)
    weights = trace[CROSS].weights(2)
    found = weights_shown(figure, "polyline")
    assert len(found) == int((weights >= 0.005).sum())
    for number, line in found:
        assert float(line.get("stroke-width")) == pytest.approx(0.5 + 5 * number, abs=0.01)


def test_queries_of_cross_attention_are_labeled_with_the_tokens_they_write(trace):
    shown = texts(trace.figure("lines", site=CROSS, head=0))
    assert shown.count(trace.tokens["target"][0]) == trace.tokens["source"].count("[CLS]")
    assert "query tokens: the token being written" in shown


def test_steps_of_a_query_end_with_its_weights_and_their_sum(trace):
    site, row = trace["decoder.layers.0.self"], 1
    shown = texts(trace.figure("steps", site=site.path, head=2, query=row))
    for name, digits in (("compared", 4), ("scores", 4), ("weights", 4)):
        for number in getattr(site, name)(2, rows=[row])[0].tolist():
            assert f"{number:.{digits}f}".replace("-", "−") in shown
    assert shown.count("−∞") == site.n_key - 2  # it may see itself and the one before
    assert "Σ = 1.0000" in shown
    assert f"÷ √{site.key.size(-1)}" in shown


def test_steps_by_hand():
    # q·k = 2 and 0, ÷ √2; exp(0) = 1 and exp(−√2) = 0.2431; 1 / 1.2431 = 0.8044
    query, key = torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    with regard.watch() as trace:
        regard.attend(query, key, key, site="s")
    shown = texts(trace.figure("steps", site="s"))
    for number in ("2.0000", f"{sqrt(2):.4f}", "1.0000", "0.2431", "0.8044", "0.1956"):
        assert number in shown


def test_steps_of_a_query_that_sees_nothing():
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 2, 4), allowed=torch.tensor([[False, False]] * 2), site="s")
    shown = texts(trace.figure("steps", site="s", query=0))
    assert shown.count("−∞") == 2
    assert "Σ = 0.0000" in shown


def test_alignments_sum_over_source_tokens_and_average_over_target_tokens(trace):
    figure = trace.figure("alignment", site=CROSS, head=0)
    weights = trace[CROSS].weights(0).numpy()
    source, written = trace.words["source"], trace.words["output"]
    shown = [number for number, _ in weights_shown(figure, "rect")]
    expected = [
        weights[[i for i, w in enumerate(written) if w == target]][
            :, [j for j, w in enumerate(source) if w == word]
        ]
        .sum(axis=1)
        .mean()
        for target in sorted({w for w in written if w is not None})
        for word in sorted({w for w in source if w is not None})
    ]
    assert shown == [pytest.approx(x, abs=6e-5) for x in expected]
    assert "dog" in texts(figure)


def test_every_head_has_its_own_thumbnail(trace):
    figure = trace.figure("heads", site=CROSS)
    assert [f"head {i}" in texts(figure) for i in range(4)] == [True, True, True, False]
    images = parse(figure).findall(f"{SVG}image")
    assert len({image.get("href") for image in images[:3]}) == 3


def test_long_texts_become_one_small_image():
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 300, 4), site="s")
    svg = trace.figure("pattern").svg
    assert svg.count("<image") == 2  # the pattern and the color scale
    assert len(svg) < 300_000
    with pytest.raises(InputError, match="300 keys, but this figure can show at most 64"):
        trace.figure("steps")


def test_masks_are_drawn_as_they_mask():
    found = [text for text, _ in tooltips(concept_figure("masks", length=6), "rect")]
    masks = np.array([text.endswith(": allowed") for text in found]).reshape(4, 6, 6)
    assert (masks[0] == np.tri(6, dtype=bool)).all()
    assert (masks[1] == (np.arange(6) < 3)).all()
    assert (masks[2] == (abs(np.subtract.outer(range(6), range(6))) <= 1)).all()
    assert (masks[3] == masks[0] & masks[1]).all()


def test_positions_are_colored_by_sign():
    image = concept_figure("positions", length=9).drawing.shapes[2]
    assert image.pixels.shape == (9, 128, 3)
    blue, orange = (image.pixels[..., i].astype(int) for i in (2, 0))
    assert ((blue >= orange) == (sinusoid(9, 128).numpy() >= 0)).all()
