"""The selection: held in the address, moved with mouse and keyboard."""

SITE = "decoder.layers.1.cross"


def test_a_link_opens_the_same_view(open_page, file):
    state = f"site={SITE}&head=2&query=1&key=3&pinned=1&view=bars&stage=scores&turned=1&sort=peak"
    first = open_page(file)
    first.open(state)
    first.page.keyboard.press("ArrowRight")
    first.state()
    link, texts = first.page.url, []
    for _ in range(2):
        first.page.goto("about:blank")
        first.page.goto(link)
        first.page.wait_for_selector("#regard[data-ready]")
        first.settle(210)  # the table for screen readers comes last
        texts.append(first.text(".pattern"))
    assert texts[0] == texts[1]
    assert first.page.get_attribute('[data-choice="bars"]', "aria-checked") == "true"


def test_a_changed_hash_changes_the_view(explorer):
    page = explorer.open(f"site={SITE}&head=0")
    page.evaluate(f"location.hash = '#language=en&site={SITE}&head=2&query=0&key=0'")
    explorer.settle()
    assert "head 2" in explorer.text(".pattern .title")


def test_an_address_with_unknown_parts_opens_the_page(explorer):
    for state in (
        "site=nowhere&head=99&query=999&key=999",
        "head=-1&view=nonsense&mass=7&edits=x:y~~",
        "%E0%A4%A",
    ):
        explorer.open(state)
        assert explorer.text(".sentence"), state


def test_click_pins_and_escape_unpins(explorer):
    page = explorer.open(f"site={SITE}&head=0&query=0&key=0")
    box = page.locator("svg.grid rect.chosen").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 1.5, box["y"] + box["height"] * 2.5)
    state = explorer.state()
    assert (state["query"], state["key"], state["pinned"]) == ("2", "1", "1")
    pinned = explorer.text(".steps .who")
    page.mouse.move(box["x"] + 3, box["y"] + 3)
    explorer.settle(130)
    assert explorer.text(".steps .who") == pinned
    page.keyboard.press("Escape")
    page.mouse.move(box["x"] + 6, box["y"] + 6)
    explorer.settle(130)
    assert explorer.text(".steps .who") != pinned
    assert "pinned" not in explorer.state()


def test_hovering_previews_a_cell(explorer):
    page = explorer.open(f"site={SITE}&head=0&query=0&key=0")
    before = explorer.text(".reading .who")
    box = page.locator("svg.grid rect.chosen").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 2.5, box["y"] + box["height"] * 2.5)
    explorer.settle()
    assert explorer.text(".reading .who") != before
    page.mouse.move(5, 5)
    explorer.settle()
    assert explorer.text(".reading .who") == before


KEYS = [
    (["ArrowDown", "ArrowRight", "ArrowRight"], {"query": "1", "key": "2"}),
    (["ArrowUp", "ArrowLeft", "ArrowLeft"], {"query": "0", "key": "0"}),
    (["]", "]"], {"head": "2", "site": SITE}),  # there is no layer above
    (["[", "[", "["], {"head": "2", "site": "decoder.layers.0.cross"}),
    (["}", "{"], {"site": "decoder.layers.0.cross", "head": "2"}),
    (["2"], {"view": "lines"}),
    (["s"], {"stage": "all"}),
    (["t", "ArrowDown"], {"turned": "1", "key": "1"}),
    (["w"], {"words": "1"}),
    (["Enter"], {"pinned": "1"}),
]


def test_keys_move_the_selection(explorer):
    page = explorer.open(f"site={SITE}&head=1&query=0&key=0")
    for keys, expected in KEYS:
        for key in keys:
            page.keyboard.press(key)
            explorer.settle(0)
        assert expected.items() <= explorer.state().items(), keys


def test_a_head_is_selected_and_a_connection_forbidden_by_keyboard(explorer):
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


def test_rebuilt_buttons_keep_the_focus(explorer):
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


def test_keys_in_a_field_do_not_move_the_selection(explorer):
    page = explorer.open(f"site={SITE}&head=1&query=0&key=0&editing=1")
    page.focus(".edit-controls .score input")
    page.keyboard.press("]")
    page.keyboard.press("t")
    assert "turned" not in explorer.state()
    assert "head 1" in explorer.text(".pattern .title")


def test_help_lists_the_keys_and_closes(explorer):
    page = explorer.open()
    page.keyboard.press("?")
    page.locator("dialog dt").first.wait_for()
    assert page.locator("dialog dt").count() == 19
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")


def test_clicks_on_tokens_select_query_key_or_site(explorer):
    page = explorer.open(f"site={SITE}&head=0&query=0&key=0")
    page.click('.token[data-side="source"] >> nth=2')
    assert explorer.state()["key"] == "2"
    page.click('.token[data-side="output"] >> nth=1')
    assert explorer.state()["query"] == "1"
    explorer.open("site=encoder.layers.0.self&head=0&query=0&key=0")
    page.click('.token[data-side="output"] >> nth=1')  # opens a site that wrote it
    assert explorer.state()["site"].endswith("cross")


def test_a_pane_can_be_enlarged(explorer):
    page = explorer.open()
    page.click(".steps .large")
    explorer.settle()
    assert not page.is_visible(".pattern")
    assert page.is_visible(".steps")
    page.keyboard.press("Escape")
    explorer.settle()
    assert page.is_visible(".pattern")


def test_a_narrow_screen_has_tabs(open_page, file):
    explorer = open_page(file, width=390, height=844)
    page = explorer.open()
    names = ("overview", "pattern", "steps")
    for width in (1024, 683, 390):
        page.set_viewport_size({"width": width, "height": 768})
        for name in names:
            page.click(f'.tabs [data-tab="{name}"]')
            explorer.settle()
            assert [one for one in names if page.is_visible(f".pane.{one}")] == [name]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.click(".pages-button")
    page.click(".top nav button:last-child")
    explorer.settle()
    assert page.is_visible(".pane.worked")


def test_the_theme_follows_the_system_and_can_be_switched(open_page, file):
    explorer = open_page(file, color_scheme="dark")
    page = explorer.open()
    assert page.get_attribute("#regard", "data-theme") == "dark"
    page.click('.top button[title="switch between light and dark"]')
    assert page.get_attribute("#regard", "data-theme") == "light"
    page.reload()
    page.wait_for_selector("#regard[data-ready]")
    assert page.get_attribute("#regard", "data-theme") == "light"
    page.evaluate("localStorage.clear()")
