"""Low and wide windows, as a laptop at 200 % zoom: one line each for what is around the picture."""

import pytest

from tests.server.page.test_sizes import EDIT, SITE, SIZES, TOUCH

LOW = [name for name, (_, height) in SIZES.items() if height < 500]


@pytest.fixture(params=LOW)
def low(request, open_page, file):
    width, height = SIZES[request.param]
    return open_page(file, width=width, height=height, **TOUCH.get(request.param, {}))


def inside(page, selector):
    """Return whether an element is inside the window."""
    box, window = page.locator(selector).bounding_box(), page.viewport_size
    right, bottom = box["x"] + box["width"], box["y"] + box["height"]
    return min(box["x"], box["y"]) >= 0 and right <= window["width"] and bottom <= window["height"]


def test_the_drawer_lies_next_to_the_picture(low):
    page = low.open(EDIT)
    low.settle()
    board, drawer = (page.locator(one).bounding_box() for one in (".board", ".drawer"))
    assert board["x"] + board["width"] <= drawer["x"]
    page.click(".edit-toggle")
    low.settle()
    assert page.locator(".board").bounding_box() == board
    assert inside(page, ".sentence")
    assert inside(page, ".reading .figure.weights")


def test_what_does_not_fit_the_header_is_in_the_menu(low):
    page = low.open(f"site={SITE}")
    menu = (".pages", ".language", ".share summary", ".palette-button")
    assert all(page.is_hidden(one) for one in menu)
    assert all(inside(page, f"[data-tab={one}]") for one in ("overview", "pattern", "steps"))
    page.click(".pages-button")
    assert all(inside(page, one) for one in menu)
    page.click(".share summary")
    assert inside(page, ".share .items")
    page.keyboard.press("Escape")
    assert all(page.is_hidden(one) for one in menu)


def test_the_story_of_a_lesson_stands_next_to_its_picture(low):
    page = low.open("lesson=5&step=6")
    page.wait_for_selector(".lesson .paragraph")
    low.settle()
    story, picture = (page.locator(one).bounding_box() for one in (".lesson", ".pattern"))
    assert story["x"] + story["width"] <= picture["x"] + 1
    assert min(story["height"], picture["height"]) > 0.75 * page.viewport_size["height"]
    assert inside(page, ".lesson .go")


@pytest.mark.parametrize("state", ["page=flow", "page=worked", "page=decoding", "view=space"])
def test_no_page_scrolls_sideways(low, state):
    page = low.open(state)
    low.settle()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
