"""Figures of lenses and attributions: their numbers are those of the analysis."""

import pytest
import torch

from regard.errors import InputError
from tests.figures.svg import texts, tooltips, weights_shown


def test_a_lens_shows_every_station_and_position(trace):
    found, figure = trace.lens(count=1), trace.figure("lens")
    cells = weights_shown(figure, "rect")
    assert [value for value, _ in cells] == pytest.approx(
        found.probabilities[..., 0].flatten().tolist(), abs=1e-4
    )
    shown = texts(figure)
    assert "layer 0 · cross-attention" in shown
    assert any("there is no final norm" in text for text in shown)
    assert shown.count("답") == 0
    assert "답" in texts(trace.figure("lens", language="ko"))


def test_a_lens_can_start_at_a_later_position(trace):
    n = len(trace.tokens["target"])
    stations = len(trace.lens().stations)
    assert len(tooltips(trace.figure("lens", query=1), "rect")) == stations * (n - 1)
    note = f"Positions 1 to {n - 1} of {n}, counted from 0; --query chooses the first."
    assert note in texts(trace.figure("lens", query=1))
    with pytest.raises(InputError, match="no position"):
        trace.figure("lens", query=99)


def test_bars_sum_to_the_logit(trace):
    found, figure = trace.attribution(position=1), trace.figure("attribution", query=1)
    bars = weights_shown(figure, "rect")
    assert sum(value for value, _ in bars) == pytest.approx(found.logit, abs=5e-3)
    assert bars[0][0] == pytest.approx(found.ranked()[0].value, abs=1e-4)
    widths = [float(bar.get("width") or 0) for _, bar in bars]
    assert widths[1] / widths[0] == pytest.approx(abs(bars[1][0] / bars[0][0]), rel=0.02)
    assert any(found.name.replace("▁", "␣") in text for text in texts(figure))


def test_an_image_has_a_lens_of_classes(make_bundle):
    trace = make_bundle("vision").trace(torch.zeros(3, 8, 8))
    assert any("class the model would predict" in text for text in texts(trace.figure("lens")))
    assert "token embedding" in texts(trace.figure("attribution"))
