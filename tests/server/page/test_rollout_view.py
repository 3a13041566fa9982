"""Attention rollout: over an image, and as a grid."""

import pytest

from regard.analysis.heads import rollout

SITE = "encoder.layers.1.self"


def opened(explorer, more=""):
    page = explorer.open(f"site={SITE}&query=0&view=rollout{more}")
    page.wait_for_selector(".custom-view[data-ready]")
    explorer.settle()
    return page


def test_rollout_of_the_class_token_over_the_image(open_page, image_file, image_trace, shown):
    explorer = open_page(image_file)
    page = opened(explorer, "&key=5")
    table = rollout(image_trace, SITE)
    text = explorer.text(".reading")
    assert f"share {shown(table[0, 5].item())}" in text
    assert f"share of itself {shown(table[0, 0].item())}" in text
    assert page.locator(".custom-view .pictures canvas").count() == 2
    assert "mean of all heads" in explorer.text(".pattern .title")
    assert explorer.text(".sentence").startswith("Traced back to the input, [class] keeps")


def test_patch_and_layer_are_selected_by_clicks(open_page, image_file):
    explorer = open_page(image_file)
    page = opened(explorer)
    box = page.locator(".custom-view canvas").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.1)
    explorer.settle()
    assert explorer.state()["query"] == "4"  # the class token, then four patches of the first row
    page.click(".stack button >> nth=0")
    page.wait_for_url(lambda url: "encoder.layers.0.self" in url)
    page.wait_for_selector(".custom-view[data-ready] .stack button:nth-child(1)[aria-current]")


def test_rollout_of_a_text_has_rows_that_sum_to_one(explorer):
    page = opened(explorer)
    assert set(page.locator("svg.grid text.sum").all_text_contents()) == {"1.000", "sum"}
    explorer.settle(210)
    numbers = page.locator(".pattern .visually-hidden td").all_text_contents()
    assert sum(float(x) for x in numbers) == pytest.approx(1, abs=0.01)


def test_the_view_needs_layers_of_self_attention(explorer):
    page = explorer.open("site=decoder.layers.1.cross&view=rollout")
    assert page.locator("[data-choice=rollout]").is_hidden()
    assert page.locator("[data-choice=grid]").get_attribute("aria-checked") == "true"
