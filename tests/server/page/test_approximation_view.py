"""Efficient forms of attention compared with exact attention."""

import pytest
import torch

from regard.analysis.measurements import approximation
from regard.model import Model
from regard.models.encoder import Encoder, EncoderConfig
from regard.server.html_export import write_html
from regard.trace.capture import trace_model

SITE = "encoder.layers.0.self"
SIZES = {"longformer": 1, "reformer": 2, "linformer": 4, "performer": 8, "efficient": None}


def trace_of(form):
    torch.manual_seed(5)
    config = EncoderConfig(
        n_vocab=20,
        d_model=16,
        n_heads=2,
        n_layers=1,
        d_ff=8,
        max_positions=16,
        attention=form,
        attention_size=SIZES[form],
    )
    model = Model(module=Encoder(config).eval(), task="masked")
    return trace_model(model, list(range(3, 11)))


@pytest.fixture(scope="module")
def windowed():
    return trace_of("longformer")


@pytest.fixture
def explorer(open_page, windowed, tmp_path):
    write_html(windowed, tmp_path / "x.html")
    explorer = open_page(tmp_path / "x.html", permissions=["clipboard-read", "clipboard-write"])
    explorer.open(f"site={SITE}&head=1&query=2&key=6&view=exact").wait_for_selector(
        ".custom-view[data-ready]"
    )
    explorer.settle()
    return explorer


def test_weights_and_errors_equal_python(explorer, windowed, shown):
    found = approximation(windowed[SITE], 1)
    numbers = explorer.page.locator(".errors b").all_text_contents()
    assert numbers == [shown(x) for x in (found.largest, found.mean, found.variation.mean().item())]
    weight, exact = found.weights[2, 6].item(), found.exact[2, 6].item()
    text = explorer.text(".reading")
    assert f"weight {shown(weight)} exact weight {shown(exact)}" in text
    assert f"difference {shown(weight - exact)}" in text
    assert shown(found.variation[2].item()) in explorer.text(".sentence")


def test_three_pictures_are_side_by_side_and_follow_the_keyboard(explorer, windowed, shown):
    page = explorer.page
    tops = [
        box["y"] for box in (x.bounding_box() for x in page.locator(".side-by-side figure").all())
    ]
    assert len(tops) == 3
    assert len(set(tops)) == 1
    page.keyboard.press("ArrowDown")
    explorer.settle()
    assert shown(approximation(windowed[SITE], 1).variation[3].item()) in explorer.text(".sentence")


def test_copied_data_has_both_weights_of_every_pair(explorer, windowed):
    page = explorer.page
    page.click(".pattern details.save summary")
    page.click(".pattern .save .items button:has-text('copy data')")
    page.wait_for_selector(".notice")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()[1:]
    both = [[float(x) for x in line.split("\t")[2:]] for line in lines]
    found = approximation(windowed[SITE], 1)
    expected = torch.stack([found.weights.flatten(), found.exact.flatten()], 1).tolist()
    assert both == [pytest.approx(pair, abs=1e-6) for pair in expected]


def test_exact_attention_does_not_offer_the_view(open_page, file):
    page = open_page(file).open("view=exact")
    assert page.locator("[data-choice=exact]").count() == 0


def test_every_efficient_form_opens_without_scores(open_page, tmp_path):
    for form in SIZES:
        write_html(trace_of(form), tmp_path / f"{form}.html")
        explorer = open_page(tmp_path / f"{form}.html")
        page = explorer.open("view=exact")
        page.wait_for_selector(".custom-view[data-ready] .errors")
        page.wait_for_selector(".steps[data-ready]")
        page.keyboard.press("1")
        explorer.settle()
        assert page.locator(".reading .figure.scores").count() == 0, form
        assert page.locator(".reading .figure.weights").count() == 1, form
