"""The worked example: cells can be changed, and everything else is recomputed."""

import pytest

from regard.analysis.worked_example import DEFAULT, work


def table(page, name):
    cells = page.locator(f'[data-table="{name}"] >> nth=0').locator("td.made")
    return [float(text.replace("−∞", "-inf").replace("−", "-")) for text in cells.all_inner_texts()]


NAMES = {"Q": "query", "K": "key", "V": "value", "E": "compared", "S": "scores", "A": "weights"}


def check(page, example):
    worked = work(example)
    for letter, name in {**NAMES, "Y": "context"}.items():
        expected = [x for row in worked[name].values for x in row]
        assert table(page, letter) == pytest.approx(expected, abs=6e-5), letter


def test_it_starts_with_pythons_example(explorer):
    page = explorer.open("page=worked")
    check(page, DEFAULT)


def test_a_changed_cell_changes_everything_else(explorer):
    page = explorer.open("page=worked")
    page.fill('[data-cell="X:0:1"] >> nth=0', "1.5")
    page.keyboard.press("Tab")
    check(page, {**DEFAULT, "x": [[1, 1.5, 1], [0, 2, 0], [1, 1, 1]]})
    assert (
        page.locator('[data-cell="X:0:1"]').nth(1).input_value() == "1.5"
    )  # X is shown three times


def test_causal_mask_and_temperature(explorer):
    page = explorer.open("page=worked")
    page.check("text=causal mask")
    check(page, {**DEFAULT, "mask": "causal"})
    assert table(page, "M")[1] == float("-inf")
    page.fill(".worked input[type=range]", "0.5")
    explorer.settle()
    check(page, {**DEFAULT, "mask": "causal", "temperature": 0.5})


def test_changed_numbers_are_in_the_address(explorer):
    page = explorer.open("page=worked")
    page.fill('[data-cell="WV:2:3"] >> nth=0', "-4")
    page.keyboard.press("Tab")
    explorer.state()
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("#regard[data-ready]")
    weights = [row[:] for row in DEFAULT["w_value"]]
    weights[2][3] = -4
    check(page, {**DEFAULT, "w_value": weights})
    page.click(".worked button:has-text('reset')")
    check(page, DEFAULT)


def test_invalid_numbers_are_marked_and_ignored(explorer):
    page = explorer.open("page=worked")
    page.fill('[data-cell="X:0:0"] >> nth=0', "a lot")
    page.keyboard.press("Tab")
    assert "wrong" in page.locator('[data-cell="X:0:0"]').first.get_attribute("class")
    check(page, DEFAULT)


def test_hovering_a_number_shows_its_terms(explorer):
    page = explorer.open("page=worked")
    page.hover('td[data-cell="Q:0:0"]')
    assert explorer.text(".worked > .where").endswith("1.000·1.000 + 0.000·0.000 + 1.000·1.000 = 2")
    lit = page.evaluate("[...document.querySelectorAll('.lit')].map((x) => x.dataset.cell)")
    assert set(lit) == {"X:0:0", "X:0:1", "X:0:2", "WQ:0:0", "WQ:1:0", "WQ:2:0"}
