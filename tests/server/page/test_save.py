"""Panes saved as pictures of exactly what is shown, and copied data."""

import re
import xml.etree.ElementTree as ET

import pytest
from PIL import Image

from regard.server.html_export import write_html
from regard.trace.capture import trace_model

SITE = "decoder.layers.1.cross"
SVG = "{http://www.w3.org/2000/svg}"


def saved(explorer, pane, kind):
    page = explorer.page
    page.click(f".{pane} details.save summary")
    with page.expect_download() as found:
        page.click(f".{pane} .items button:has-text('{kind}')")
    return found.value


def test_views_are_saved_as_svg_with_real_text(explorer, tmp_path):
    for view in ("grid", "lines", "bars", "graph"):
        page = explorer.open(f"site={SITE}&head=1&query=1&key=2&view={view}")
        circles = page.get_attribute("svg.grid path.weights", "d") if view == "grid" else ""
        download = saved(explorer, "pattern", "SVG")
        assert download.suggested_filename == "regard-pattern.svg"
        download.save_as(tmp_path / "p.svg")
        svg = (tmp_path / "p.svg").read_text("utf-8")
        root = ET.fromstring(svg)
        texts = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
        assert all(word in texts for word in ("dog", "sleep", "this head")), view
        assert not [one for one in root.iter() if one.tag.endswith("foreignObject")]
        assert "class=" not in svg  # styles are inline
        assert circles in svg


def test_parts_out_of_view_do_not_overlap_others_when_saved(open_page, translator, tmp_path):
    longer = trace_model(translator, "the dog is sleeping " * 5, "der Hund schläft " * 6)
    write_html(longer, tmp_path / "longer.html")
    explorer = open_page(tmp_path / "longer.html", height=640)
    page = explorer.open(f"site={SITE}&head=1&query=1&key=2")
    hidden = page.eval_on_selector(".plot", "one => one.scrollHeight - one.clientHeight")
    assert hidden > 20
    saved(explorer, "pattern", "SVG").save_as(tmp_path / "p.svg")
    texts = ET.parse(tmp_path / "p.svg").iter(f"{SVG}text")
    places = {one.text or "": float(one.get("y", 0)) for one in texts}
    words = ("weights", "score")
    legend, numbers = (next(y for text, y in places.items() if x in text) for x in words)
    assert legend + 10 < numbers


def test_panes_are_saved_as_png(explorer, tmp_path):
    page = explorer.open(f"site={SITE}&head=1&query=1&key=2&pinned=1")
    page.wait_for_selector("#regard[data-pictures]")
    page.wait_for_selector(".steps[data-ready]")
    for pane in ("overview", "pattern", "steps"):
        saved(explorer, pane, "PNG").save_as(tmp_path / "p.png")
        image = Image.open(tmp_path / "p.png").convert("RGB")
        assert image.width >= 400
        assert len(image.getcolors(maxcolors=1 << 24)) > 20, pane  # it is not empty


def test_copied_data_is_the_whole_table(open_page, file, trace):
    explorer = open_page(file, permissions=["clipboard-read", "clipboard-write"])
    page = explorer.open(f"site={SITE}&head=1")
    page.click(".pattern details.save summary")
    page.click(".pattern .save .items button:has-text('copy data')")
    page.wait_for_selector(".notice")
    text = page.evaluate("navigator.clipboard.readText()")
    lines = [line.split("\t") for line in text.splitlines()]
    found = [[float(x) for x in line[1:]] for line in lines[1:]]
    for row, expected in zip(found, trace[SITE].weights(1).tolist(), strict=True):
        assert row == pytest.approx(expected, abs=1e-6)


def test_pictures_in_dark_mode_have_a_dark_background(open_page, file, tmp_path):
    explorer = open_page(file, color_scheme="dark")
    explorer.open(f"site={SITE}&head=1")
    saved(explorer, "pattern", "SVG").save_as(tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text("utf-8")
    assert re.search(r'<rect [^>]*fill="#101114"', text)
