"""Lens and attribution in a file: computed when it is written, the same numbers as in Python."""

import pytest

SITE = "decoder.layers.1.cross"
TITLES = "cells => cells.map((cell) => +cell.title.split(': ').at(-1))"


@pytest.fixture
def visit(open_page, file):
    def visit(view, more=""):
        explorer = open_page(file)
        page = explorer.open(f"site={SITE}&head=1&query=1&key=0&view={view}{more}")
        explorer.settle()
        return page

    return visit


def test_the_lens_of_a_file_is_that_of_python(visit, trace):
    page, found = visit("lens"), trace.lens()
    shown = page.locator("table.lens td button").evaluate_all(TITLES)
    assert shown == pytest.approx(found.probabilities[..., 0].flatten().tolist(), rel=1e-5)


def test_the_attribution_of_a_file_is_that_of_python(visit, trace):
    page, found = visit("attribution"), trace.attribution(position=1)
    bars = page.locator(".pattern ol.parts li:not([data-kind=rest]) .digits")
    shown = bars.evaluate_all("all => all.map((x) => +x.title.replace('−', '-'))")
    ranked = [part.value for part in found.ranked()][: len(shown)]
    assert shown == pytest.approx(ranked, abs=1e-5)
    other = page.locator(".view-tools select").nth(1)
    id = other.locator("option").nth(1).get_attribute("value")
    other.select_option(id)
    against = trace.attribution(position=1, relative_to=int(id))
    page.wait_for_function(
        """(x) => {
          const { title } = document.querySelector(".parts-holder .digits");
          return Math.abs(title.replace("−", "-") - x) < 1e-4;
        }""",
        arg=against.ranked()[0].value,
    )


def test_the_rails_of_a_file_have_words(open_page, file, trace):
    explorer = open_page(file)
    page = explorer.open("page=flow&lens=1")
    page.wait_for_selector(".flow-lens[data-ready] .flow-word")
    found = trace.lens()
    station = found.stations.index("decoder.layers.0.feed_forward.residual")
    words = page.locator('.flow-word[data-place^="decoder.layers.0."] b').all_inner_texts()
    expected = [found.names[id] for id in found.ids[station, :, 0].tolist()]
    assert [word.lstrip("·") for word in words] == [word.lstrip("#▁") for word in expected]


def test_classes_are_on_the_rail_of_the_class_token(open_page, image_file, image_trace):
    page = open_page(image_file).open("page=flow&lens=1")
    page.wait_for_selector(".flow-lens[data-ready] .flow-word")
    found = image_trace.lens()
    words = page.locator(".flow-word b").all_inner_texts()
    names = [found.names[id] for id in found.ids[:, 0, 0].tolist()]
    assert words
    assert set(words) <= set(names)
    places = page.locator(".flow-word").evaluate_all("all => all.map((x) => x.dataset.place)")
    assert all(place.endswith("@0") for place in places)


def test_after_edits_a_file_does_not_know_the_words(visit):
    page = visit("lens", f"&edits=temperature:{SITE}:1:0.5")
    assert page.locator("table.lens").count() == 0
    assert page.locator(".custom-view .note").count() == 1
