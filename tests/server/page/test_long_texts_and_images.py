"""Long texts, images and models of other families."""

import pytest
import torch

import regard
from regard.models.encoder import Encoder, EncoderConfig
from regard.server.html_export import write_html
from regard.trace.capture import trace_model


@pytest.fixture(scope="module")
def long_file(tmp_path_factory):
    torch.manual_seed(0)
    config = EncoderConfig(n_vocab=99, d_model=32, n_heads=4, n_layers=2, d_ff=8, fill_head=False)
    model = regard.Model(module=Encoder(config).eval(), task="masked")
    path = tmp_path_factory.mktemp("long") / "long.html"
    trace = trace_model(model, torch.randint(0, 99, (512,)).tolist())
    write_html(trace, path)
    return path, trace


def test_every_view_of_a_long_text_has_few_elements(open_page, long_file):
    explorer = open_page(long_file[0])
    page = explorer.open("site=encoder.layers.1.self&head=2&query=300&key=301")
    page.wait_for_selector(".steps[data-ready]")
    for key in "1234":
        page.keyboard.press(key)
        explorer.settle(210)
        assert page.evaluate("document.querySelectorAll('*').length") <= 2000, key


def test_a_long_text_can_be_zoomed(open_page, long_file, shown):
    explorer = open_page(long_file[0])
    page = explorer.open("site=encoder.layers.1.self&head=2&query=0&key=0")
    before = page.locator(".heat text.tick").all_text_contents()
    box = page.locator(".heat canvas").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    for _ in range(12):
        page.mouse.wheel(0, -120)
    explorer.settle()
    assert page.locator(".heat text.tick").all_text_contents() != before
    page.mouse.click(box["x"] + 20, box["y"] + 20)
    state = explorer.state()
    page.mouse.move(5, 5)
    explorer.settle()
    weights = long_file[1]["encoder.layers.1.self"].weights(2)
    expected = weights[int(state["query"]), int(state["key"])].item()
    assert page.locator(".reading .weights b").inner_text() == shown(expected)


PICTURES = """() => [...document.querySelectorAll(".board figure")].map((one) =>
  [one.querySelector("canvas").toDataURL(), one.querySelector("figcaption").textContent])"""


def test_repainted_pictures_equal_new_ones(open_page, long_file):
    explorer = open_page(long_file[0])
    place = "editing=1&site=encoder.layers.1.self&query=9&key=8&head="
    page = explorer.open(f"{place}0")
    repainted = [page.evaluate(PICTURES)]
    page.keyboard.press("]")
    explorer.settle()
    repainted.append(page.evaluate(PICTURES))
    for value in ("2", "0.5"):
        page.fill(".edit-controls input[type=range]", value)
        explorer.settle()
    repainted.append(page.evaluate(PICTURES))
    states = ("1", "1&edits=temperature:encoder.layers.1.self:1:0.5")
    for state, seen in zip(states, repainted[1:], strict=True):
        page = explorer.open(place + state)
        explorer.settle()
        assert page.evaluate(PICTURES) == seen
    assert len({str(one) for one in repainted}) == 3


def test_patches_of_an_image_are_selected_by_clicks(open_page, image_file, image_trace, shown):
    explorer = open_page(image_file)
    page = explorer.open("site=encoder.layers.1.self&head=1&query=0&key=1")
    canvases = page.locator(".pictures canvas")
    assert canvases.count() == 2
    box = canvases.nth(0).bounding_box()
    # the patch in row 1 and column 2 of 4 × 4, behind the class token
    page.mouse.click(box["x"] + 2.5 * box["width"] / 4, box["y"] + 1.5 * box["height"] / 4)
    assert explorer.state()["query"] == str(1 + 1 * 4 + 2)
    box = canvases.nth(1).bounding_box()
    page.mouse.click(box["x"] + 0.5 * box["width"] / 4, box["y"] + 3.5 * box["height"] / 4)
    assert explorer.state()["key"] == str(1 + 3 * 4 + 0)
    page.mouse.move(5, 5)
    explorer.settle()
    weight = image_trace["encoder.layers.1.self"].weights(1)[7, 13].item()
    assert page.locator(".reading .weights b").inner_text() == shown(weight)
    page.click(".specials button")
    assert explorer.state()["query"] == "0"


def test_an_image_before_and_after_an_edit_fits_without_scrolling(open_page, image_file):
    explorer = open_page(image_file, height=720)
    page = explorer.open("edits=temperature:encoder.layers.0.self:0:3&site=encoder.layers.0.self")
    explorer.settle()
    board = page.locator(".board").bounding_box()
    boxes = [one.bounding_box() for one in page.locator(".pictures canvas").all()]
    assert len(boxes) == 4
    assert all(box["y"] + box["height"] <= board["y"] + board["height"] for box in boxes)
    assert page.locator("figcaption b").all_inner_texts() == ["before", "after"]


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1366, 768)])
def test_two_pictures_are_side_by_side(open_page, image_file, width, height):
    page = open_page(image_file, width=width, height=height).open("site=encoder.layers.0.self")
    one, other = (canvas.bounding_box() for canvas in page.locator(".pictures canvas").all())
    assert one["y"] == other["y"]
    assert one["width"] > 150
    name, tool = (page.locator(f".pattern {x}").first.bounding_box() for x in (".site", "summary"))
    assert tool["x"] > name["x"] + name["width"]
    assert tool["y"] < name["y"] + name["height"]


def test_mask_mode_forbids_a_patch(open_page, image_file):
    explorer = open_page(image_file)
    page = explorer.open("site=encoder.layers.0.self&head=1&query=0&key=1&editing=1")
    page.click(".pencil")
    page.locator(".pictures canvas").nth(1).click(position={"x": 4, "y": 4})  # the first patch
    assert explorer.state()["edits"] == "forbid:encoder.layers.0.self:1:0:1"


def test_the_answer_to_an_image_is_its_classes(open_page, image_file, image_trace, shown):
    explorer = open_page(image_file)
    explorer.open()
    best = image_trace.output["classes"][0]
    assert f"{best['name']} {shown(best['probability'])}" in explorer.text(".answer")


def test_attention_without_scores_cannot_be_edited(open_page, tmp_path):
    with regard.watch() as trace:
        regard.efficient_attention(*torch.randn(3, 1, 2, 5, 4), site="s")
    write_html(trace, tmp_path / "x.html")
    explorer = open_page(tmp_path / "x.html")
    page = explorer.open("stage=scores&editing=1")
    assert not page.is_visible(".edit-controls")
    assert "no scores" in explorer.text(".drawer")
    assert page.locator("svg.grid").count() == 1


def test_one_token_and_one_head(open_page, tmp_path):
    with regard.watch() as trace:
        regard.attend(*torch.randn(3, 1, 4), site="s")
    write_html(trace, tmp_path / "x.html")
    explorer = open_page(tmp_path / "x.html")
    for view in ("grid", "lines", "bars", "graph"):
        explorer.open(f"view={view}")
        assert "1.000" in explorer.text(".reading")


def test_a_broken_file_shows_an_error(browser, file, tmp_path):
    text = file.read_text("utf-8").replace('id="regard-data">{', 'id="regard-data">[', 1)
    (tmp_path / "x.html").write_text(text, "utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "x.html").as_uri())
    page.wait_for_timeout(300)
    assert "cannot open this trace" in page.inner_text("#regard")
    page.close()
