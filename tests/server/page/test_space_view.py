"""Tokens as points: Python's projection, and the arrows of the heads."""

import re
import xml.etree.ElementTree as ET

import pytest
import torch

import regard
from regard.analysis.steps import space
from regard.server.html_export import write_html

SITE = "encoder.layers.1.self"


@pytest.fixture(scope="session")
def seen(trace):
    return space(trace, SITE, n_axes=3)


def opened(explorer, more=""):
    page = explorer.open(f"site={SITE}&head=1&query=2&view=space{more}")
    page.wait_for_selector(".custom-view[data-ready]")
    explorer.settle()
    return page


def points(page, selector):
    """Return the positions of the circles of a path, in pixels."""
    path = page.get_attribute(selector, "d")
    return [(float(x), float(y)) for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)a", path)]


def test_points_are_pythons_projection_with_equal_scales(explorer, seen):
    page = opened(explorer)
    drawn = points(page, "path.before") + points(page, "path.after")
    expected_points = seen.before[:, :2].tolist() + seen.after[:, :2].tolist()
    scale = (drawn[3][0] - drawn[0][0]) / (expected_points[3][0] - expected_points[0][0])
    for (x, y), (a, b) in zip(drawn, expected_points, strict=True):
        shift = (x - drawn[0][0], y - drawn[0][1])
        expected = (
            scale * (a - expected_points[0][0]),
            -scale * (b - expected_points[0][1]),
        )
        assert shift == pytest.approx(expected, abs=0.6)  # the radius of rings and discs differs


def test_readout_gives_before_after_and_the_arrow_of_the_head(explorer, seen, shown):
    opened(explorer)
    text = explorer.text(".reading")
    for point in (seen.before[2], seen.after[2], seen.arrows[1, 2]):
        assert f"({shown(point[0].item())}, {shown(point[1].item())})" in text


def test_axes_give_their_share_of_the_variance_after_rotation(explorer, seen):
    page = opened(explorer)
    first, second = page.locator("svg.space text.axis").all_text_contents()
    percent = [100 * share for share in seen.share]
    assert first.startswith(f"axis 1: {percent[0]:.0f}")
    assert second.startswith(f"axis 2: {percent[1]:.0f}")
    page = opened(explorer, "&spin=90")
    turned = page.locator("svg.space text.axis").all_text_contents()[0]
    assert float(re.search(r"([\d.]+)%", turned)[1]) == pytest.approx(percent[2], abs=0.5)


def test_heads_are_shown_and_hidden(explorer):
    page = opened(explorer)
    ways = page.locator("svg.magnifier path.part")
    assert ways.count() == 4  # three heads and the bias
    page.click(".heads button >> nth=0")
    page.click(".heads button >> nth=2")
    explorer.settle()
    assert explorer.state()["heads"] == "1"
    assert ways.count() == 1
    assert page.locator("svg.space circle.partial").count() == 1
    page.click(".view-tools button.quiet")
    explorer.settle()
    assert "heads" not in explorer.state()
    assert page.locator("svg.space circle.partial").count() == 0


def test_arrows_add_up_to_the_movement_of_the_token(explorer):
    page = opened(explorer)
    last = page.locator("svg.magnifier path.part").last.get_attribute("d")
    end = [float(x) for x in re.search(r"L(-?[\d.]+) (-?[\d.]+)", last).groups()]
    disc = page.locator("svg.magnifier circle.after")
    there = [float(disc.get_attribute(name)) for name in ("cx", "cy")]
    assert end == pytest.approx(there, abs=0.5)


def test_keys_and_clicks_select_the_token(explorer, trace):
    page = opened(explorer)
    page.keyboard.press("ArrowDown")
    explorer.settle()
    assert explorer.state()["query"] == "3"
    page.locator("svg.space circle.hit").nth(1).dispatch_event("click")
    explorer.settle()
    assert explorer.state()["query"] == "1"
    page.keyboard.press("1")
    explorer.settle()
    assert page.locator("svg.grid").count() == 1
    page.keyboard.press("5")
    page.wait_for_selector(".custom-view[data-ready]")


def test_table_for_screen_readers_and_copied_data(open_page, file, seen, trace):
    explorer = open_page(file, permissions=["clipboard-read", "clipboard-write"])
    page = opened(explorer)
    explorer.settle(210)
    assert page.locator(".pattern .visually-hidden table tr").count() == 1 + len(
        trace.tokens["source"]
    )
    page.click(".pattern details.save summary")
    page.click(".pattern .save .items button:has-text('copy data')")
    page.wait_for_selector(".notice")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    row = [float(x) for x in lines[3].split("\t")[1:]]
    expected_points = [*seen.before[2], *seen.after[2], *seen.arrows[:, 2].flatten()]
    assert row == pytest.approx([float(x) for x in expected_points], abs=1e-4)


def test_the_view_is_saved_as_svg(explorer, tmp_path):
    page = opened(explorer)
    page.click(".pattern details.save summary")
    with page.expect_download() as found:
        page.click(".pattern .save .items button:has-text('SVG')")
    found.value.save_as(tmp_path / "space.svg")
    texts = {one.text for one in ET.parse(tmp_path / "space.svg").getroot().iter() if one.text}
    assert any("of the variance" in text for text in texts)
    assert any("dog" in text for text in texts)


def test_a_site_without_residual_streams_does_not_offer_the_view(open_page, tmp_path):
    with regard.watch() as bare:
        regard.attend(*torch.randn(3, 1, 2, 4, 6), site="s")
    write_html(bare, tmp_path / "bare.html")
    page = open_page(tmp_path / "bare.html").open("view=space")
    assert page.locator("[data-choice=space]").count() == 0
    assert page.locator("svg.grid").count() == 1
