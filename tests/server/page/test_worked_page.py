"""The worked example: cells can be changed, and everything else is recomputed."""

import pytest

from regard.analysis.worked_example import DEFAULT, work


def table(page, name):
    cells = page.locator(f'[data-table="{name}"] >> nth=0').locator("td.made")
    return [float(text.replace("−∞", "-inf").replace("−", "-")) for text in cells.all_inner_texts()]


NAMES = {"Q": "query", "K": "key", "V": "value", "E": "compared", "S": "scores", "A": "weights"}


def check(page, example, tolerance=6e-5):  # the page shows four decimals and at most five digits
    worked = work(example)
    for letter, name in {**NAMES, "Y": "context"}.items():
        expected = [x for row in worked[name].values for x in row]
        assert table(page, letter) == pytest.approx(expected, rel=5.1e-5, abs=tolerance), letter


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


def test_the_words_are_real_in_both_languages_and_keys_are_transposed(explorer):
    page = explorer.open("page=worked")
    assert explorer.text('[data-table="X"] >> nth=0').split()[1:] == DEFAULT["words"]
    keys = work(DEFAULT)["key"].values
    transposed = [x for column in zip(*keys, strict=True) for x in column]
    assert table(page, "KT") == pytest.approx(transposed)
    assert "softmax" in explorer.text(".worked .arrow >> nth=1")
    box = page.locator(".worked .flow .line >> nth=0").bounding_box()
    whole, middle = (page.locator(one).bounding_box() for one in ("body", ".worked .flow"))
    assert middle["x"] + middle["width"] / 2 == pytest.approx(whole["width"] / 2, abs=12)
    assert box["x"] > 60  # not at the left edge
    page.click('.language [lang="ko"]')
    explorer.settle()
    assert "고양이를" in explorer.text('[data-table="X"] >> nth=0')


def test_the_formula_has_the_temperature(explorer):
    page = explorer.open("page=worked")
    page.fill(".worked input[type=range]", "0.5")
    explorer.settle()
    spoken = page.get_attribute(".worked .flow > .math", "aria-label")
    assert spoken == "Attention(Q, K, V) = softmax(Q Kᵀ / √d_k / 0.50) V"


def test_new_numbers_are_computed_like_the_others(explorer):
    page = explorer.open("page=worked")
    page.click(".worked .new")
    explorer.settle()

    def given(name, columns):
        cells = page.locator(f'[data-table="{name}"] >> nth=0').locator("input").all()
        values = [float(cell.input_value()) for cell in cells]
        return [values[i : i + columns] for i in range(0, len(values), columns)]

    example = {"x": given("X", 3), "w_query": given("WQ", 4), "w_key": given("WK", 4)}
    assert {**example, "w_value": given("WV", 4)} != {name: DEFAULT[name] for name in example}
    whole = {"words": DEFAULT["words"], **example, "w_value": given("WV", 4)}
    check(page, whole, tolerance=6e-4)  # numbers from 10 on have three decimals
    assert "work" in explorer.state()  # a link keeps them


def test_the_quiz_checks_an_answer(explorer):
    page = explorer.open("page=worked")
    page.click(".worked .ask")
    asked = explorer.text(".quiz form > span")
    i, j = map(int, asked.split("Q")[1].split("=")[0].strip().split(","))
    hidden = page.locator("td.asked-for")
    assert {one.inner_text() for one in hidden.all()} == {"?"}
    value = work(DEFAULT)["query"].values[i][j]
    page.fill(".quiz .answer", str(value + 1))
    page.keyboard.press("Enter")
    assert explorer.text(".quiz .says").startswith("Not yet.")
    assert page.locator(".lit").count() > 0
    assert page.locator("td.asked-for").count() == hidden.count() > 0
    page.fill(".quiz .answer", f"{value:.2f}")
    page.keyboard.press("Enter")
    assert explorer.text(".quiz .says").startswith("Right.")
    assert "1 of 1 right" in explorer.text(".quiz .says")
    assert page.locator("td.asked-for").count() == 0
    page.click(".quiz .says button")
    assert "K" in explorer.text(".quiz form > span")
