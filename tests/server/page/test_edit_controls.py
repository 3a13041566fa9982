"""Edits recompute the open head at once, and can be undone, named and shared."""

import re

import pytest
import torch

import regard
from regard.trace.capture import trace_model

SITE = "decoder.layers.1.cross"
CELL = f"site={SITE}&head=1&query=2&key=3&pinned=1&editing=1"


@pytest.fixture(scope="session")
def edited(translator):
    """A function from edits to the trace that Python records with them."""
    return lambda *edits: trace_model(
        translator, "the dog is sleeping", "der Hund schläft", edits=list(edits)
    )


def weight(explorer) -> str:
    """Return the weight of the selected cell, with the mouse elsewhere."""
    explorer.page.mouse.move(5, 5)
    explorer.settle()
    return explorer.page.locator(".reading .weights b").inner_text()


def first_output(explorer) -> str:
    """Return the first number of the output of attention for the selected query."""
    explorer.page.wait_for_selector(".steps[data-ready]")
    strip = explorer.page.locator('[data-step="output"] canvas')
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    explorer.page.mouse.move(box["x"] + 0.5 * box["width"] / 24, box["y"] + 4)
    return explorer.page.locator('[data-step="output"] .where b').inner_text()


CASES = {
    f"temperature:{SITE}:1:0.5": [regard.temperature(SITE, 0.5, head=1)],
    f"temperature:{SITE}:1:0": [regard.temperature(SITE, 0.0, head=1)],
    f"forbid:{SITE}:1:2:0": [regard.forbid(SITE, query=2, key=0, head=1)],
    f"score:{SITE}:1:2:3:4.5": [regard.set_scores(SITE, 4.5, query=2, key=3, head=1)],
    f"unscaled:{SITE}~temperature:{SITE}:1:3": [
        regard.unscaled(SITE),
        regard.temperature(SITE, 3.0, head=1),
    ],
}


def test_edits_on_the_page_equal_edits_in_python(explorer, edited, shown):
    for edits, expected in CASES.items():
        page = explorer.open(f"{CELL}&view=bars&edits={edits}")
        line = edited(*expected)[SITE].weights(1)[2].tolist()
        numbers = page.locator("svg.bars text.number").all_text_contents()
        found = [x for x in numbers if "−∞" not in x][: len(line)]
        assert found == [shown(x) for x in line], edits
        assert weight(explorer) == shown(line[3]), edits


@pytest.mark.parametrize(
    ("control", "value", "edit"),
    [
        (".headOff input", True, regard.ablate(SITE, head=1)),
        (".headMean input", True, regard.ablate(SITE, head=1, to="mean")),
        (".weight input", "0.25", regard.set_weights(SITE, 0.25, query=2, key=3, head=1)),
    ],
)
def test_output_after_an_edit_equals_python(explorer, edited, shown, control, value, edit):
    page = explorer.open(CELL)
    if value is True:
        page.check(control)
    else:
        page.fill(f".edit-controls {control}", value)
        page.keyboard.press("Enter")
    explorer.settle(170)  # steps are drawn when a slider would have stopped
    expected = edited(edit).value(f"{SITE}.output")[0, 2, 0].item()
    assert first_output(explorer) == shown(expected)


def test_one_grid_shows_before_as_rings_and_after_as_discs(explorer, trace):
    page = explorer.open(f"site={SITE}&head=1&edits=temperature:{SITE}:1:0.2")
    assert page.locator(".board svg.grid").count() == 1
    assert page.locator(".board figcaption .overlay b").all_inner_texts() == ["before", "after"]
    old, new = trace[SITE].weights(1), torch.softmax(trace[SITE].scores(1) / 0.2, -1)
    for name, table in (("ring", old), ("weights", new)):
        path = page.get_attribute(f"svg.grid path.{name}", "d")
        radii = sorted(float(r) for r in re.findall(r"a([\d.]+) \1 0 1 0 \d", path))
        weights = sorted(table.flatten().tolist())[-len(radii) :]
        largest = max(radii) ** 2 / max(weights)
        for radius, weight in zip(radii, weights, strict=True):
            assert radius**2 / largest == pytest.approx(weight, abs=0.01), name


def test_before_and_after_can_be_next_to_each_other(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&split=1&edits=temperature:{SITE}:1:0.2")
    assert page.locator(".board svg.grid").count() == 2
    assert page.locator(".board figcaption b").all_inner_texts() == ["before", "after"]
    title, plot = (page.locator(f".board {x}").first.bounding_box() for x in ("figcaption", "svg"))
    assert title["y"] < plot["y"]
    ranges = page.locator(".board figcaption .range").all_inner_texts()
    old, new = trace[SITE].weights(1), torch.softmax(trace[SITE].scores(1) / 0.2, -1)
    assert shown(old.max().item()) in ranges[0]
    assert shown(new.max().item()) in ranges[1]


def test_temperature_slider_and_its_reset(explorer, trace, shown):
    page = explorer.open(CELL)
    before = weight(explorer)
    page.locator(".edit-controls input[type=range]").fill("2")
    expected = torch.softmax(trace[SITE].scores(1)[2] / 2, -1)[3].item()
    assert weight(explorer) == shown(expected)
    assert explorer.state()["edits"] == f"temperature:{SITE}:1:2"
    page.click(".slider button")
    assert weight(explorer) == before
    assert "edits" not in explorer.state()


def test_clicks_change_the_mask_in_mask_mode(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&query=0&key=0&editing=1")
    page.click("button.pencil")
    box = page.locator("svg.grid rect.chosen").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert explorer.state()["edits"] == f"forbid:{SITE}:1:0:0"
    assert weight(explorer) == "0.000"
    box = page.locator(".board rect.chosen").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert "edits" not in explorer.state()
    assert weight(explorer) == shown(trace[SITE].weights(1)[0, 0].item())


def test_a_later_token_can_be_allowed(explorer, trace, shown):
    site = "decoder.layers.0.self"
    explorer.open(f"site={site}&head=0&query=0&key=1&pinned=1&edits=allow:{site}:0:0:1")
    expected = torch.softmax(trace[site].scores(0)[0, :2], -1)[1].item()
    assert weight(explorer) == shown(expected)


def test_a_head_is_switched_off_or_replaced_by_its_mean(explorer, trace, shown):
    page = explorer.open(CELL)
    page.check(".headOff input")
    assert explorer.state()["edits"] == f"ablate:{SITE}:1"
    assert "switched off" in explorer.text(".sentence")
    explorer.settle(170)
    assert weight(explorer) == "0.000"
    assert explorer.text(".board .range") == "0.000 … 0.000"
    assert page.input_value(".edit-controls .weight input") == "0"
    assert "its context vector is 0" in explorer.text('[data-step="values"]')
    page.check(".headMean input")  # replaces the ablation
    assert explorer.state()["edits"] == f"mean:{SITE}:1"
    assert weight(explorer) == shown(trace[SITE].weights(1).mean(0)[3].item())


def test_a_score_is_set_in_a_field(explorer, trace, shown):
    page = explorer.open(CELL)
    page.fill(".edit-controls .score input", "6.5")
    page.keyboard.press("Enter")
    scores = trace[SITE].scores(1)[2].clone()
    scores[3] = 6.5
    assert weight(explorer) == shown(torch.softmax(scores, -1)[3].item())
    assert page.locator(".board rect.edited").count() >= 1


def test_a_link_contains_edits_and_their_name(explorer):
    page = explorer.open(f"site={SITE}&head=1&editing=1&edits=unscaled:{SITE}")
    assert page.is_hidden(".edit-controls .replaced")  # another token needs a model
    page.click(".edit-list summary")
    page.fill(".edit-list .name", "no √d_k & more = 50 %")
    page.keyboard.press("Tab")
    explorer.state()
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#regard[data-ready]")
    assert page.input_value(".edit-list .name") == "no √d_k & more = 50 %"
    assert page.locator(".edit-list li").count() == 1


def test_undo_reset_and_removal_of_one_edit(explorer):
    page = explorer.open(CELL)
    page.check(".headOff input")
    explorer.settle()
    page.uncheck(".scaleOn input")
    explorer.settle()
    assert page.locator(".edit-list li").count() == 2
    page.click(".edit-list li:first-child .icon")
    assert explorer.state()["edits"] == f"unscaled:{SITE}"
    page.click(".edit-list button:has-text('reset')")
    explorer.settle()
    assert not page.is_visible(".edit-list")
    for count in (1, 2, 1):
        page.keyboard.press("u")
        explorer.settle()
        assert page.locator(".edit-list li").count() == count


def test_edits_of_other_heads_do_not_change_this_one(explorer, trace, shown):
    explorer.open(f"site={SITE}&head=0&query=1&key=1&edits=temperature:{SITE}:1:3")
    assert explorer.page.locator(".board svg.grid").count() == 1
    assert weight(explorer) == shown(trace[SITE].weights(0)[1, 1].item())
