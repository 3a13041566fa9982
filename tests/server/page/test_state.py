"""One selection, held in the address, moved by mouse and keys."""

import pytest

SITE = "decoder.layers.1.cross"


def test_a_copied_link_opens_the_same_view(open_page, file):
    state = f"site={SITE}&head=2&query=1&key=3&pinned=1&view=bars&stage=scores&turned=1&sort=peak"
    first = open_page(file)
    first.open(state)
    first.page.keyboard.press("ArrowRight")
    link = first.page.evaluate("new Promise((f) => setTimeout(() => f(location.href), 300))")
    again = open_page(file)
    again.page.goto(link)
    for one in (first, again):
        one.page.wait_for_selector("#regard[data-ready]")
        one.page.wait_for_selector(".pattern table", state="attached")
        one.settle()
    assert again.text(".pattern") == first.text(".pattern")
    assert again.page.get_attribute('[data-choice="bars"]', "aria-checked") == "true"


def test_another_address_in_the_same_window_is_followed(explorer):
    page = explorer.open(f"site={SITE}&head=0")
    page.evaluate(f"location.hash = '#language=en&site={SITE}&head=2&query=0&key=0'")
    explorer.settle()
    assert "head 2" in explorer.text(".pattern .title")


@pytest.mark.parametrize(
    "state",
    [
        "site=nowhere&head=99&query=999&key=999",
        "head=-1&view=nonsense&mass=7&edits=x:y~~",
        "%E0%A4%A",
    ],
)
def test_an_address_of_another_trace_does_no_harm(explorer, state):
    explorer.open(state)
    assert explorer.text(".sentence")


def test_clicking_pins_and_escape_unpins(explorer):
    page = explorer.open(f"site={SITE}&head=0&query=0&key=0")
    box = page.locator("svg.grid rect.chosen").bounding_box()
    middle = (box["x"] + box["width"] * 1.5, box["y"] + box["height"] * 2.5)
    page.mouse.click(*middle)
    state = explorer.state()
    assert (state["query"], state["key"], state["pinned"]) == ("2", "1", "1")
    who = explorer.text(".steps .who")
    page.mouse.move(box["x"] + 3, box["y"] + 3)  # elsewhere: pinned steps stay
    explorer.settle(150)
    assert explorer.text(".steps .who") == who
    page.keyboard.press("Escape")
    page.mouse.move(box["x"] + 6, box["y"] + 6)
    explorer.settle(150)
    assert explorer.text(".steps .who") != who
    assert "pinned" not in explorer.state()


def test_hovering_previews_and_leaving_brings_the_selection_back(explorer):
    page = explorer.open(f"site={SITE}&head=0&query=0&key=0")
    before = explorer.text(".reading .who")
    box = page.locator("svg.grid rect.chosen").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 2.5, box["y"] + box["height"] * 2.5)
    explorer.settle()
    assert explorer.text(".reading .who") != before
    page.mouse.move(5, 5)
    explorer.settle()
    assert explorer.text(".reading .who") == before


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["ArrowDown", "ArrowRight", "ArrowRight"], {"query": "1", "key": "2"}),
        (["ArrowUp", "ArrowLeft"], {"query": "0", "key": "0"}),
        (["]"], {"head": "2", "site": SITE}),
        (["]", "]"], {"head": "2", "site": SITE}),
        (["[", "["], {"head": "2", "site": "decoder.layers.0.cross"}),
        (["{"], {"site": "decoder.layers.0.cross", "head": "1"}),
        (["2"], {"view": "lines"}),
        (["s"], {"stage": "all"}),
        (["t", "ArrowDown"], {"turned": "1", "key": "1"}),
        (["w"], {"words": "1"}),
        (["Enter"], {"pinned": "1"}),
    ],
)
def test_keys_move_the_selection(explorer, keys, expected):
    page = explorer.open(f"site={SITE}&head=1&query=0&key=0")
    for key in keys:
        page.keyboard.press(key)
        explorer.settle()
    assert expected.items() <= explorer.state().items()


def test_without_a_mouse_a_head_is_chosen_and_a_connection_forbidden_and_taken_back(explorer):
    page = explorer.open(f"site={SITE}&head=1&query=1&key=2")
    page.focus(".group:nth-child(3) canvas")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    expected = {"site": SITE.replace("1", "0"), "head": "0", "query": "1", "key": "2"}
    assert explorer.state().items() >= expected.items()
    page.keyboard.press("ArrowUp")  # there is no layer above
    assert explorer.state().items() >= expected.items()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("m")
    assert explorer.state()["edits"] == f"forbid:{SITE.replace('1', '0')}:0:1:2"
    page.keyboard.press("m")
    assert "edits" not in explorer.state()
    page.keyboard.press("u")
    assert "forbid" in explorer.state()["edits"]


def test_buttons_that_are_made_anew_keep_the_focus(explorer):
    page = explorer.open(f"site={SITE}&head=0&query=1&key=2&edits=unscaled:{SITE}~ablate:{SITE}:0")
    page.focus(".pattern .title button:last-child")
    page.keyboard.press("Enter")
    explorer.settle()
    page.keyboard.press("Enter")
    assert explorer.state()["head"] == "2"
    page.focus(".edit-list button:has-text('undo')")
    page.keyboard.press("Enter")
    explorer.settle()
    page.keyboard.press("Enter")
    assert "edits" not in explorer.state()
    page.focus(".language button:last-child")
    page.keyboard.press("Enter")
    explorer.settle()
    assert page.evaluate("document.activeElement.textContent") == "한"


def test_keys_typed_into_a_field_move_nothing(explorer):
    page = explorer.open(f"site={SITE}&head=1&query=0&key=0")
    page.focus(".edit-controls .score input")
    page.keyboard.press("]")
    page.keyboard.press("t")
    assert "turned" not in explorer.state()
    assert "head 1" in explorer.text(".pattern .title")


def test_help_lists_every_key_and_closes(explorer):
    page = explorer.open()
    page.keyboard.press("?")
    assert page.locator("dialog dt").count() == 15
    page.keyboard.press("Escape")
    assert page.locator("dialog").count() == 0


def test_tokens_of_input_and_answer_are_ways_in(explorer):
    page = explorer.open(f"site={SITE}&head=0&query=0&key=0")
    page.click('.token[data-side="source"] >> nth=2')
    assert explorer.state()["key"] == "2"
    page.click('.token[data-side="output"] >> nth=1')
    assert explorer.state()["query"] == "1"
    explorer.open("site=encoder.layers.0.self&head=0&query=0&key=0")
    page.click('.token[data-side="output"] >> nth=1')  # a written word leads to who wrote it
    assert explorer.state()["site"].endswith("cross")


def test_every_pane_can_fill_the_window(explorer):
    page = explorer.open()
    page.click(".steps .large")
    explorer.settle()
    assert not page.is_visible(".pattern")
    assert page.is_visible(".steps")
    page.keyboard.press("Escape")
    explorer.settle()
    assert page.is_visible(".pattern")


def test_a_narrow_screen_has_tabs_and_loses_nothing(open_page, file):
    explorer = open_page(file, width=390, height=800)
    page = explorer.open()
    for name in ("overview", "pattern", "steps"):
        page.click(f'.tabs [data-tab="{name}"]')
        explorer.settle()
        assert page.is_visible(f".pane.{name}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.click(".top nav button:last-child")
    explorer.settle()
    assert page.is_visible(".pane.worked")


def test_the_theme_follows_the_system_and_can_be_turned(open_page, file):
    explorer = open_page(file, color_scheme="dark")
    page = explorer.open()
    assert page.get_attribute("#regard", "data-theme") == "dark"
    page.click('.top button[title="light or dark"]')
    assert page.get_attribute("#regard", "data-theme") == "light"
    page.reload()
    page.wait_for_selector("#regard[data-ready]")
    assert page.get_attribute("#regard", "data-theme") == "light"
