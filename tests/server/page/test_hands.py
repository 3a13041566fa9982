"""What readers change recomputes at once, and can be taken back and shared."""

import pytest
import torch

import regard
from regard.trace.capture import trace_model

SITE = "decoder.layers.1.cross"


def weight(explorer) -> str:
    """The weight of the chosen cell, with the mouse elsewhere."""
    explorer.page.mouse.move(5, 5)
    explorer.settle()
    return explorer.page.locator(".reading .weights b").inner_text()


CASES = {
    f"temperature:{SITE}:1:0.5": [regard.temperature(SITE, 0.5, head=1)],
    f"temperature:{SITE}:1:0": [regard.temperature(SITE, 0.0, head=1)],
    f"unscaled:{SITE}": [regard.unscaled(SITE)],
    f"forbid:{SITE}:1:2:0": [regard.forbid(SITE, query=2, key=0, head=1)],
    f"score:{SITE}:1:2:3:4.5": [regard.set_scores(SITE, 4.5, query=2, key=3, head=1)],
    f"unscaled:{SITE}~temperature:{SITE}:1:3": [
        regard.unscaled(SITE),
        regard.temperature(SITE, 3.0, head=1),
    ],
}


@pytest.mark.parametrize("edits", CASES)
def test_an_edit_in_the_page_does_what_it_does_in_python(explorer, translator, edits, shown):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1&edits={edits}")
    page.wait_for_selector(".steps[data-ready]")
    changed = trace_model(translator, "the dog is sleeping", "der Hund schläft", edits=CASES[edits])
    line = changed[SITE].weights(1)[2]
    assert weight(explorer) == shown(line[3].item())
    page.click('[data-choice="bars"]')
    explorer.settle()
    numbers = page.locator("svg.bars text.number").all_text_contents()
    assert [x for x in numbers if "−∞" not in x][: len(line)] == [shown(x) for x in line.tolist()]


def test_before_and_after_stand_side_by_side(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&edits=temperature:{SITE}:1:0.2")
    assert page.locator(".board svg.grid").count() == 2
    names = page.locator(".board figcaption b").all_inner_texts()
    assert names == ["before", "after"]
    said, drawn = (page.locator(f".board {x}").first.bounding_box() for x in ("figcaption", "svg"))
    assert said["y"] < drawn["y"]  # where it is seen however little room there is
    ranges = page.locator(".board figcaption .range").all_inner_texts()
    old, scores = trace[SITE].weights(1), trace[SITE].scores(1)
    new = torch.softmax(scores / 0.2, -1)
    assert shown(old.max().item()) in ranges[0]
    assert shown(new.max().item()) in ranges[1]


def test_the_slider_changes_the_head_and_goes_back(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    before = weight(explorer)
    slider = page.locator(".edit-controls input[type=range]")
    slider.fill("2")
    explorer.settle()
    expected = torch.softmax(trace[SITE].scores(1)[2] / 2, -1)[3].item()
    assert weight(explorer) == shown(expected)
    assert explorer.state()["edits"] == f"temperature:{SITE}:1:2"
    page.click(".slider button")
    explorer.settle()
    assert weight(explorer) == before
    assert "edits" not in explorer.state()


def test_mask_cells_are_clicked_off_and_on(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&query=0&key=0")
    page.click("button.pencil")
    box = page.locator("svg.grid rect.chosen").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    explorer.settle()
    assert explorer.state()["edits"] == f"forbid:{SITE}:1:0:0"
    assert weight(explorer) == "0.000"
    box = page.locator(".board figure:nth-child(2) rect.chosen").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    explorer.settle()
    assert "edits" not in explorer.state()
    assert weight(explorer) == shown(trace[SITE].weights(1)[0, 0].item())


def test_a_future_token_can_be_allowed(explorer, trace, shown):
    site = "decoder.layers.0.self"
    explorer.open(f"site={site}&head=0&query=0&key=1&pinned=1&edits=allow:{site}:0:0:1")
    scores = trace[site].scores(0)[0]
    expected = torch.softmax(scores[:2], -1)[1].item()
    assert weight(explorer) == shown(expected)


def test_a_head_that_is_off_gives_nothing(explorer):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    page.check(".headOff input")
    explorer.settle()
    assert explorer.state()["edits"] == f"ablate:{SITE}:1"
    assert "switched off" in explorer.text(".sentence")
    explorer.settle(150)
    assert "its context is 0" in explorer.text('[data-step="values"]')


def test_the_output_after_an_edit_is_the_one_that_the_model_computes(explorer, translator, shown):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1&edits=ablate:{SITE}:1")
    page.wait_for_selector(".steps[data-ready]")
    changed = trace_model(
        translator, "the dog is sleeping", "der Hund schläft", edits=[regard.ablate(SITE, head=1)]
    )
    said = output_of(page, explorer)
    assert said == shown(changed.value(f"{SITE}.output")[0, 2, 0].item())


def test_a_score_is_set_by_hand(explorer, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    page.fill(".edit-controls .score input", "6.5")
    page.keyboard.press("Enter")
    explorer.settle()
    scores = trace[SITE].scores(1)[2].clone()
    scores[3] = 6.5
    assert weight(explorer) == shown(torch.softmax(scores, -1)[3].item())
    assert page.locator(".board rect.edited").count() >= 1


def test_a_weight_is_set_by_hand(explorer, translator, shown):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    page.fill(".edit-controls .weight input", "0.25")
    page.keyboard.press("Enter")
    explorer.settle()
    assert weight(explorer) == "0.250"
    assert explorer.state()["edits"] == f"weight:{SITE}:1:2:3:0.25"
    changed = trace_model(
        translator,
        "the dog is sleeping",
        "der Hund schläft",
        edits=[regard.set_weights(SITE, 0.25, query=2, key=3, head=1)],
    )
    page.wait_for_selector(".steps[data-ready]")
    assert output_of(page, explorer) == shown(changed.value(f"{SITE}.output")[0, 2, 0].item())


def test_a_head_that_gives_its_mean_gives_every_query_the_same(explorer, translator, trace, shown):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    page.check(".headOff input")
    page.check(".headMean input")  # takes the place of switching off
    explorer.settle(150)
    assert explorer.state()["edits"] == f"mean:{SITE}:1"
    assert weight(explorer) == shown(trace[SITE].weights(1).mean(0)[3].item())
    changed = trace_model(
        translator,
        "the dog is sleeping",
        "der Hund schläft",
        edits=[regard.ablate(SITE, head=1, to="mean")],
    )
    page.wait_for_selector(".steps[data-ready]")
    assert output_of(page, explorer) == shown(changed.value(f"{SITE}.output")[0, 2, 0].item())


def output_of(page, explorer) -> str:
    """The first number of what attention gives to the chosen query."""
    strip = page.locator('[data-step="output"] canvas')
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"] / 24, box["y"] + 4)
    return page.locator('[data-step="output"] .where b').inner_text()


def test_edits_have_a_name_that_links_carry(explorer):
    page = explorer.open(f"site={SITE}&head=1&edits=unscaled:{SITE}")
    page.fill(".edit-list .name", "no √d_k & more = 50 %")
    page.keyboard.press("Tab")
    explorer.settle(200)
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#regard[data-ready]")
    assert page.input_value(".edit-list .name") == "no √d_k & more = 50 %"
    assert page.locator(".edit-list li").count() == 1


def test_a_file_has_no_field_for_what_only_a_model_can_do(explorer):
    page = explorer.open(f"site={SITE}&head=1")
    assert page.is_hidden(".edit-controls .replaced")


def test_edits_are_undone_one_by_one_and_all_at_once(explorer):
    page = explorer.open(f"site={SITE}&head=1&query=2&key=3&pinned=1")
    page.check(".headOff input")
    explorer.settle()
    page.uncheck(".scaleOn input")
    explorer.settle()
    assert page.locator(".edit-list li").count() == 2
    page.keyboard.press("u")
    explorer.settle()
    assert page.locator(".edit-list li").count() == 1
    page.click(".edit-list button:has-text('reset')")
    explorer.settle()
    assert not page.is_visible(".edit-list")
    page.keyboard.press("u")
    explorer.settle()
    assert page.locator(".edit-list li").count() == 1


def test_one_edit_of_several_can_be_taken_back(explorer):
    edits = f"temperature:{SITE}:1:2~unscaled:{SITE}"
    page = explorer.open(f"site={SITE}&head=1&edits={edits}")
    page.click(".edit-list li:first-child .icon")
    assert explorer.state()["edits"] == f"unscaled:{SITE}"


def test_edits_of_other_heads_leave_this_one_alone(explorer, trace, shown):
    explorer.open(f"site={SITE}&head=0&query=1&key=1&edits=temperature:{SITE}:1:3")
    assert explorer.page.locator(".board svg.grid").count() == 1
    assert weight(explorer) == shown(trace[SITE].weights(0)[1, 1].item())
