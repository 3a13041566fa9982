"""What a token has of the input, through all layers: over an image, and as a grid."""

import json
import re

import pytest
import torch
from torch.testing import assert_close

from regard.analysis.rollout import rollout
from regard.server.html_export import as_html

SITE = "encoder.layers.1.self"


def opened(explorer, more=""):
    page = explorer.open(f"site={SITE}&query=0&view=rollout{more}")
    page.wait_for_selector(".custom-view[data-ready]")
    explorer.settle()
    return page


def data_of(trace):
    text = as_html(trace)
    return json.loads(re.search(r'id="regard-data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_computes_what_python_computes(modules, trace):
    for path in ("encoder.layers.0.self", SITE, "decoder.layers.1.self"):
        expected = rollout(trace, path).float()
        found = modules("rollout", data_of(trace), path)
        assert_close(torch.tensor(found).view(expected.shape), expected, rtol=0, atol=1e-5)


def test_the_class_token_is_followed_back_over_the_image(open_page, image_file, image_trace, shown):
    explorer = open_page(image_file)
    page = opened(explorer, "&key=5")
    table = rollout(image_trace, SITE)
    text = explorer.text(".reading")
    assert f"share {shown(table[0, 5].item())}" in text
    assert f"kept of itself {shown(table[0, 0].item())}" in text
    assert page.locator(".custom-view .pictures canvas").count() == 2
    assert "mean of all heads" in explorer.text(".pattern .title")
    assert explorer.text(".sentence").startswith("Followed back to the input, [class] keeps")


def test_a_patch_is_chosen_with_the_mouse_and_the_layer_with_buttons(open_page, image_file):
    explorer = open_page(image_file)
    page = opened(explorer)
    box = page.locator(".custom-view canvas").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.1)
    explorer.settle()
    assert explorer.state()["query"] == "4"  # the class token, then four patches of the first row
    page.click(".stack button >> nth=0")
    page.wait_for_function("location.hash.includes('encoder.layers.0.self')")
    page.wait_for_selector(".custom-view[data-ready] .stack button:nth-child(1)[aria-current]")


def test_a_text_has_a_grid_whose_rows_sum_to_one(explorer):
    page = opened(explorer)
    assert set(page.locator("svg.grid text.sum").all_text_contents()) == {"1.000", "sum"}
    page.wait_for_timeout(300)
    numbers = page.locator(".pattern .visually-hidden td").all_text_contents()
    assert sum(float(x) for x in numbers) == pytest.approx(1, abs=0.01)


def test_it_is_offered_only_where_layers_of_self_attention_lie_below(explorer):
    page = explorer.open("site=decoder.layers.1.cross&view=rollout")
    assert page.locator("[data-choice=rollout]").is_hidden()
    assert page.locator("[data-choice=grid]").get_attribute("aria-checked") == "true"
