"""Pictures of exactly what is shown, and data to copy."""

import re
import xml.etree.ElementTree as ET

import pytest

SITE = "decoder.layers.1.cross"
SVG = "{http://www.w3.org/2000/svg}"


def saved(explorer, pane, kind):
    page = explorer.page
    page.click(f".{pane} details.menu summary")
    with page.expect_download() as found:
        page.click(f".{pane} .items button:has-text('{kind}')")
    return found.value


@pytest.mark.parametrize("view", ["grid", "lines", "bars", "graph"])
def test_a_pattern_is_saved_as_svg_whose_text_is_text(explorer, trace, view, tmp_path):
    explorer.open(f"site={SITE}&head=1&query=1&key=2&view={view}")
    download = saved(explorer, "pattern", "SVG")
    assert download.suggested_filename == "regard-pattern.svg"
    download.save_as(tmp_path / "p.svg")
    root = ET.parse(tmp_path / "p.svg").getroot()
    texts = {text.text for text in root.iter(f"{SVG}text")}
    for word in ("dog", "sleep"):
        assert any(word in (text or "") for text in texts), word
    assert any("this head" in (text or "") for text in texts)
    assert not [one for one in root.iter() if one.tag.endswith("foreignObject")]
    assert "class=" not in (tmp_path / "p.svg").read_text("utf-8")  # looks the same anywhere


def test_circles_in_the_file_are_those_on_the_screen(explorer, tmp_path):
    page = explorer.open(f"site={SITE}&head=1")
    path = page.get_attribute("svg.grid path.weights", "d")
    saved(explorer, "pattern", "SVG").save_as(tmp_path / "p.svg")
    assert path in (tmp_path / "p.svg").read_text("utf-8")


def test_what_would_have_to_be_scrolled_to_lies_on_nothing_else(open_page, file, tmp_path):
    explorer = open_page(file, height=640)
    page = explorer.open(f"site={SITE}&head=1&query=1&key=2&view=graph")
    hidden = page.eval_on_selector(".board", "one => one.scrollHeight - one.clientHeight")
    assert hidden > 20
    saved(explorer, "pattern", "SVG").save_as(tmp_path / "p.svg")
    texts = ET.parse(tmp_path / "p.svg").iter(f"{SVG}text")
    places = {one.text or "": float(one.get("y", 0)) for one in texts}
    words = ("thicker", "score")
    told, read = (next(y for text, y in places.items() if word in text) for word in words)
    assert told + 10 < read


@pytest.mark.parametrize("pane", ["overview", "pattern", "steps"])
def test_every_pane_is_saved_as_png(explorer, pane, tmp_path):
    from PIL import Image

    page = explorer.open(f"site={SITE}&head=1&query=1&key=2&pinned=1")
    page.wait_for_selector("#regard[data-pictures]")
    page.wait_for_selector(".steps[data-ready]")
    saved(explorer, pane, "PNG").save_as(tmp_path / "p.png")
    image = Image.open(tmp_path / "p.png").convert("RGB")
    assert image.width >= 400
    assert len(image.getcolors(maxcolors=1 << 24)) > 20  # something is on it


def test_copied_data_is_the_table_in_full(open_page, file, trace):
    explorer = open_page(file, permissions=["clipboard-read", "clipboard-write"])
    page = explorer.open(f"site={SITE}&head=1")
    page.click(".pattern details.menu summary")
    page.click(".pattern .items button:has-text('copy data')")
    page.wait_for_selector(".notice")
    text = page.evaluate("navigator.clipboard.readText()")
    lines = [line.split("\t") for line in text.splitlines()]
    found = [[float(x) for x in line[1:]] for line in lines[1:]]
    for row, expected in zip(found, trace[SITE].weights(1).tolist(), strict=True):
        assert row == pytest.approx(expected, abs=1e-6)


def test_pictures_in_the_dark_have_a_dark_ground(open_page, file, tmp_path):
    explorer = open_page(file, color_scheme="dark")
    explorer.open(f"site={SITE}&head=1")
    saved(explorer, "pattern", "SVG").save_as(tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text("utf-8")
    assert re.search(r'<rect [^>]*fill="#101114"', text)
