"""The picture comes first at every size, and the page can be used by keyboard and by touch."""

import json
import re
from pathlib import Path

import pytest
import torch

from regard.server.html_export import write_html
from regard.trace.capture import trace_model

SITE = "decoder.layers.1.cross"
EDIT = f"site={SITE}&head=1&query=0&key=0&editing=1&edits=temperature:{SITE}:1:0.5"
SIZES = {
    "laptop": (1366, 768),
    "small laptop": (1280, 720),
    "tablet": (1024, 768),
    "phone": (390, 844),
    "laptop at 200 %": (683, 384),
    "phone held sideways": (844, 390),
}
TOUCH = {name: {"has_touch": True, "is_mobile": True} for name in SIZES if "phone" in name}
# Return the share of the window's height that the board takes, and the part of it that is seen
# above the bar at the bottom, without scrolling.
BOARD = """() => {
  const board = document.querySelector(".board");
  const box = board.getBoundingClientRect();
  const bottom = document.querySelector(".bottom").getBoundingClientRect();
  const seen = Math.min(box.bottom, innerHeight, bottom.top) - Math.max(box.top, 0);
  return { share: box.height / innerHeight, seen: seen / innerHeight };
}"""


@pytest.fixture(scope="module")
def longer_file(translator, tmp_path_factory):
    """A translation of 30 words: more rows than fit."""
    path = tmp_path_factory.mktemp("sizes") / "longer.html"
    trace = trace_model(translator, "the dog is sleeping " * 5, "der Hund schläft " * 6)
    write_html(trace, path)
    return path


@pytest.mark.parametrize("state", [EDIT, f"site={SITE}&head=1&query=0&key=0"], ids=["edit", "none"])
@pytest.mark.parametrize("size", SIZES)
def test_the_picture_takes_most_of_the_window(open_page, longer_file, size, state):
    width, height = SIZES[size]
    touch = TOUCH.get(size, {})
    explorer = open_page(longer_file, width=width, height=height, **touch)
    page = explorer.open(state)
    explorer.settle()
    cell = page.locator("svg.grid rect.chosen").bounding_box()  # what is inside the lines
    assert min(cell["width"], cell["height"]) >= (28 if touch else 22)
    board = page.evaluate(BOARD)
    assert board["share"] >= 0.6
    assert board["seen"] >= 0.6
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def longest_file(translator, tmp_path_factory):
    """A translation of 60 words: a heat map."""
    path = tmp_path_factory.mktemp("sizes") / "longest.html"
    trace = trace_model(translator, "the dog is sleeping " * 14, "der Hund schläft " * 18)
    write_html(trace, path)
    return path, trace


@pytest.mark.parametrize("size", SIZES)
def test_heat_maps_and_lines_show_both_versions_in_one_picture(open_page, longest_file, size):
    width, height = SIZES[size]
    explorer = open_page(longest_file[0], width=width, height=height, **TOUCH.get(size, {}))
    page = explorer.open(EDIT)
    for view, picture in (("grid", ".heat canvas"), ("lines", "svg.lines")):
        if view == "lines":
            page = explorer.open(f"{EDIT}&view=lines")
        explorer.settle()
        assert page.locator(f".board {picture}").count() == 1
        board = page.evaluate(BOARD)
        assert board["share"] >= 0.6
        assert board["seen"] >= 0.6
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate("document.querySelector('.plot').scrollTo(0, 1e6)")
        plot, last = (page.locator(one).bounding_box() for one in (".plot", f".board {picture}"))
        assert last["y"] + last["height"] <= plot["y"] + plot["height"] + 8  # the last row
    assert page.locator("svg.lines path.old").count() > 0


def test_a_heat_map_is_zoomed_by_buttons_and_keys_and_two_fingers(open_page, longest_file):
    explorer = open_page(longest_file[0], width=390, height=844, has_touch=True, is_mobile=True)
    page = explorer.open(f"site={SITE}&head=1&query=9&key=9")
    explorer.settle()

    def span():
        across, _ = json.loads(page.locator(".heat").get_attribute("data-window"))
        return across[1] - across[0]

    whole = span()
    page.click("[data-zoom=zoomIn]")
    assert span() == pytest.approx(whole * 0.625, abs=0.1)
    page.keyboard.press("-")
    assert span() == whole
    page.keyboard.press("+")
    page.keyboard.press("0")
    assert span() == whole
    page.evaluate(
        """() => {
          const over = document.querySelector(".heat svg.over");
          const box = document.querySelector(".heat canvas").getBoundingClientRect();
          const touch = (kind, id, x) => over.dispatchEvent(new PointerEvent(kind, { pointerId: id,
            pointerType: "touch", buttons: 1, bubbles: true, clientX: x, clientY: box.top + 90 }));
          touch("pointerdown", 1, box.left + 100);
          touch("pointerdown", 2, box.left + 140);
          touch("pointermove", 2, box.left + 180);
          touch("pointerup", 1, box.left + 100);
          touch("pointerup", 2, box.left + 180);
        }"""
    )
    assert span() == pytest.approx(whole / 2, abs=0.1)  # the fingers are twice as far apart


PIXEL = """([u, v]) => {
  const canvas = document.querySelector(".heat canvas");
  const [x, y] = [Math.floor(u * canvas.width), Math.floor(v * canvas.height)];
  const copy = new OffscreenCanvas(1, 1).getContext("2d"); // reading back slows the page's own down
  copy.drawImage(canvas, x, y, 1, 1, 0, 0, 1, 1);
  return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3);
}"""


def test_halves_and_differences_have_the_colors_of_their_numbers(open_page, longest_file):
    path, trace = longest_file
    explorer = open_page(path, width=1280, height=800)
    page = explorer.open(EDIT.replace("editing=1", "editing=0"))
    explorer.settle()
    scores = trace[SITE].scores(1)
    before, after = torch.softmax(scores, -1), torch.softmax(scores / 0.5, -1)
    n_query, n_key = before.shape
    assert page.locator("figcaption").get_attribute("data-overlay") == "difference"
    change = after - before
    i, j = divmod(int(change.argmax()), n_key)
    most = change.abs().max().item()
    assert f"+{most:.3f}" in explorer.text("figcaption")

    def darkness(u, v):
        return 765 - sum(page.evaluate(PIXEL, [u, v]))

    red, _, blue = page.evaluate(PIXEL, [(j + 0.5) / n_key, (i + 0.5) / n_query])
    assert blue > red  # a rise is blue
    i, j = divmod(int(change.argmin()), n_key)
    red, _, blue = page.evaluate(PIXEL, [(j + 0.5) / n_key, (i + 0.5) / n_query])
    assert red > blue  # a fall is orange
    i, j = divmod(int(change.argmax()), n_key)
    page = explorer.open(EDIT.replace("query=0&key=0&editing=1", f"query={i}&key={j}"))
    for _ in range(5):
        page.keyboard.press("+")
    explorer.settle()
    assert page.locator("figcaption").get_attribute("data-overlay") == "halves"
    across, down = json.loads(page.locator(".heat").get_attribute("data-window"))

    def at(x, y):
        return darkness(
            (x - across[0]) / (across[1] - across[0]), (y - down[0]) / (down[1] - down[0])
        )

    assert at(j + 0.8, i + 0.8) > at(j + 0.2, i + 0.2) + 60  # after is darker than before


@pytest.mark.parametrize("size", SIZES)
def test_the_last_row_and_column_are_reached_under_sticky_labels(open_page, longer_file, size):
    width, height = SIZES[size]
    explorer = open_page(longer_file, width=width, height=height)
    page = explorer.open(EDIT.replace("editing=1", "editing=0"))
    explorer.settle()
    page.evaluate("document.querySelector('.plot').scrollTo(1e6, 1e6)")
    explorer.settle()
    found = page.evaluate(
        """() => {
          const plot = document.querySelector(".plot").getBoundingClientRect();
          const labels = (name) => [...document.querySelectorAll(`svg.labels.${name} text.tick`)];
          const [row, column] = [labels("aside").at(-1), labels("above").at(-1)];
          const box = (one) => one.getBoundingClientRect();
          return [box(row).top >= plot.top - 1, box(row).bottom <= plot.bottom + 1,
            box(column).left >= plot.left - 1, box(column).top >= plot.top - 20];
        }"""
    )
    assert found == [True, True, True, True]
    corner = page.locator("svg.labels.corner").bounding_box()
    plot = page.locator(".plot").bounding_box()
    assert abs(corner["x"] - plot["x"]) < 2
    assert abs(corner["y"] - plot["y"]) < 2
    queries, keys = (page.locator(f"text.axis.{x}").last.bounding_box() for x in ("query", "key"))
    assert queries["x"] + queries["width"] < keys["x"]  # titles stay next to each other


@pytest.mark.parametrize("size", SIZES)
def test_the_drawer_can_be_scrolled_off_the_last_row(open_page, longer_file, size):
    width, height = SIZES[size]
    explorer = open_page(longer_file, width=width, height=height, **TOUCH.get(size, {}))
    page = explorer.open(EDIT)
    explorer.settle()
    page.evaluate("document.querySelector('.plot').scrollTo(1e6, 1e6)")
    on_top = page.evaluate(
        """() => {
          const row = [...document.querySelectorAll("svg.labels.aside text.tick")].at(-1);
          row.scrollIntoView({ block: "start" });
          const { left, top, width, height } = row.getBoundingClientRect();
          const seen = document.elementFromPoint(left + width / 2, top + height / 2);
          return seen?.closest(".drawer, .bottom, .plot")?.className;
        }"""
    )
    assert page.is_visible(".drawer")
    assert on_top == "plot"


def test_the_drawer_does_not_move_the_picture(explorer):
    page = explorer.open(f"site={SITE}&head=1")
    before = page.locator(".board").bounding_box()
    page.keyboard.press("e")
    explorer.settle()
    assert page.is_visible(".drawer")
    assert page.locator(".board").bounding_box() == before
    page.check(".headOff input")
    explorer.settle()
    assert page.locator(".board").bounding_box()["height"] >= before["height"] - 1
    page.keyboard.press("Escape")
    explorer.settle()
    assert page.is_hidden(".drawer")


def test_the_page_scrolls_to_the_selected_cell_when_the_drawer_opens(open_page, longer_file):
    touch = {"has_touch": True, "is_mobile": True}
    page = open_page(longer_file, width=390, height=844, **touch).open(
        f"site={SITE}&head=1&query=14&key=1&pinned=1"
    )
    page.tap(".edit-toggle")
    page.wait_for_timeout(200)  # it has moved in
    cell = page.locator("svg.grid rect.chosen").bounding_box()
    assert cell["y"] + cell["height"] <= page.locator(".drawer").bounding_box()["y"]


def test_a_saved_picture_has_no_title_for_screen_readers(explorer):
    page = explorer.open()
    page.click(".pattern .save summary")
    with page.expect_download() as saved:
        page.click(".pattern .save button >> nth=0")
    assert ">PATTERN<" not in Path(saved.value.path()).read_text().upper()


def test_escape_closes_the_save_menu(explorer):
    page = explorer.open("pinned=1")
    page.click(".pattern .save summary")
    assert page.is_visible(".pattern .save .items")
    page.keyboard.press("Escape")
    assert page.is_hidden(".pattern .save .items")
    assert explorer.state()["pinned"] == "1"  # Escape did only one thing
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_arrow_keys_choose_in_a_radio_group(explorer):
    page = explorer.open(f"site={SITE}&query=1&key=1")
    page.set_viewport_size({"width": 1920, "height": 1000})  # so that the views are not folded
    page.wait_for_selector('.toolbar > .view [aria-checked="true"]')
    page.focus('.view [aria-checked="true"]')
    page.keyboard.press("ArrowRight")
    explorer.settle()
    state = explorer.state()
    assert (state["view"], state["query"], state["key"]) == ("lines", "1", "1")
    assert page.evaluate("document.activeElement.dataset.choice") == "lines"


def test_few_tab_stops_a_skip_link_and_one_live_region(explorer):
    page = explorer.open()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert "pattern" in page.evaluate("document.activeElement.className")
    page.wait_for_selector(".steps[data-ready]")
    explorer.settle()  # toolbars that do not fit are folded
    stops = """[...document.querySelectorAll("button, select, input, summary, [tabindex], a")]
      .filter((one) => one.tabIndex >= 0 && one.checkVisibility()).length"""
    assert page.evaluate(stops) <= 45
    page.locator(".steps .num[data-from]").first.focus()
    page.keyboard.press("ArrowDown")  # the numbers are one of them
    number = "[...document.querySelectorAll('.num[data-from]')].indexOf(document.activeElement)"
    assert page.evaluate(number) == 1
    page.evaluate("document.activeElement.blur()")
    assert page.locator("[aria-live], [role=status], [role=alert]").count() == 1
    page.keyboard.press("]")  # another head: its sentence is read out
    explorer.settle()
    sentence = explorer.text(".sentence")
    page.locator(".announcer", has_text=sentence).wait_for(state="attached")


def test_no_instruction_mentions_keys_on_touch(open_page, file):
    explorer = open_page(file, width=390, height=844, has_touch=True, is_mobile=True)
    page = explorer.open("lesson=5&step=6")
    page.wait_for_selector(".lesson .task")
    assert page.locator(".lesson kbd").count() == 0
    assert not page.is_visible(".help-button")
    labels = page.evaluate("[...document.querySelectorAll('.group canvas')].map(x => x.ariaLabel)")
    assert not any("arrow" in (label or "") for label in labels)


def test_hovering_names_the_cell_of_every_weight(explorer):
    page = explorer.open(f"site={SITE}&head=1&query=0&key=0&editing=1")
    chosen = explorer.text(".edit-controls .cell")
    box = page.locator("svg.grid rect.chosen").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 2.5, box["y"] + box["height"] * 2.5)
    explorer.settle()
    assert explorer.text(".edit-controls .cell") == chosen  # what the fields change
    assert explorer.text(".reading .who") not in chosen


def test_the_temperature_is_in_the_formula_of_the_softmax(explorer):
    page = explorer.open(f"site={SITE}&head=1&edits=temperature:{SITE}:1:0.5")
    page.wait_for_selector(".steps[data-ready]")
    explorer.settle(170)
    assert len(re.findall("T", explorer.text('[data-step="softmax"] h3 .math'))) == 2
    page = explorer.open(f"site={SITE}&head=1&edits=unscaled:{SITE}")
    page.wait_for_selector(".steps[data-ready]")
    explorer.settle(170)
    assert explorer.text('[data-step="scale"] h3 .math').replace(" ", "") == "s=q·k"
    assert page.locator('[data-step="scale"] h3 .root').count() == 0


def test_small_probabilities_keep_significant_digits(modules):
    def shown(x):
        return modules("call", given={"module": "format", "name": "probability", "args": [x]})

    numbers = (0.25, 0.001, 0.00042, 0.0000031, 4.2e-9, 0)
    expected = ["0.250", "0.001", "0.00042", "0.0000031", "4.2e−9", "0.000"]
    assert [shown(x) for x in numbers] == expected


def test_continued_pieces_have_a_middle_dot_and_digits_none(modules):
    def label(token):
        return modules("call", given={"module": "tokens", "name": "labelOf", "args": [token, True]})

    assert [label(token) for token in ("테이션", "##ing", "9", "-")] == [
        "·테이션",
        "·ing",
        "9",
        "-",
    ]


def test_pieces_without_the_mark_of_a_new_word_continue_one(modules):
    def marked(*names):
        named = [{"name": name} for name in names]
        call = {"module": "tokens", "name": "markContinued", "args": [named], "changed": 0}
        return [one["name"] for one in modules("call", given=call)]

    assert marked("▁키", "쇠", "[SEP]", "?") == ["▁키", "##쇠", "[SEP]", "?"]
    assert marked("dog", "##ing") == ["dog", "##ing"]  # other marks
    assert marked("a", " ", "b") == ["a", " ", "b"]  # characters


def test_the_first_model_is_the_one_named_or_the_translator_of_the_reader(modules):
    def first(language, *, named=(), search=""):
        names = ("dates", "en-de", "en-ko")
        examples = [{"text": "x", "image": None, "target": None}]
        models = [{"name": name, "named": name in named, "examples": examples} for name in names]
        given = {"module": "live", "name": "parseRequest", "args": [search, models, language]}
        return {key: value for key, value in modules("call", given=given).items() if value}

    assert first("ko-KR")["model"] == "en-ko"
    assert first("en-US") == {"model": "en-de", "text": "x"}
    assert first("fr")["model"] == "en-de"
    assert first("ko", named=("dates",))["model"] == "dates"
    assert first("ko", search="?model=en-de&text=y") == {"model": "en-de", "text": "y"}


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_views_of_a_pattern_are_seen_next_to_its_title_from_1280_px_on(
    open_page, file, language
):
    page = open_page(file, width=1280, height=720).open(f"language={language}&site={SITE}")
    for name in ("grid", "lines", "bars", "graph"):
        assert page.is_visible(f".toolbar > .view [data-choice={name}]")
    page = open_page(file, width=1680, height=900).open(f"language={language}&site={SITE}")
    assert page.is_visible(".toolbar > .view [data-choice=space]")
    assert (
        page.evaluate("(x => x.scrollWidth - x.clientWidth)(document.querySelector('.site'))") == 0
    )
