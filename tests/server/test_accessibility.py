"""axe finds no violation on the page: contrast, names, landmarks, headings, keyboard."""

from pathlib import Path

import axe_playwright_python
import pytest

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")
RUN = """async () => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  while (document.querySelector('[aria-busy="true"]')) await new Promise((x) => setTimeout(x, 50));
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html}`));
}"""
TEXT = "?model=transformer&text=the+dog+is+sleeping"
EDIT = "temperature:decoder.layers.0.cross:1:0.5"
COMPARED = "kind%3Dtext%26text%3Dthe%2520garden"
# address, and what is clicked there
WIDE = {
    "flow": (TEXT, ""),
    "grid with an edit": (f"{TEXT}#page=explore&editing=1&edits={EDIT}", ""),
    "lens": (f"{TEXT}#page=explore&view=lens", ""),
    "attribution": (f"{TEXT}#page=explore&view=attribution", ""),
    "space": (f"{TEXT}#page=explore&view=space", ""),
    "comparison": (f"{TEXT}#page=explore&compare={COMPARED}", ""),
    "writing": (f"{TEXT}#page=decoding", ""),
    "worked example": (f"{TEXT}#page=worked", ""),
    "lesson": (f"{TEXT}#lesson=3&step=1", ""),
    "palette": (TEXT, ".palette-button"),
}
DARK = {name: WIDE[name] for name in ("flow", "grid with an edit", "lens", "comparison", "lesson")}
NARROW = {
    "flow": (TEXT, ""),
    "grid with an edit": (f"{TEXT}#page=explore&editing=1&edits={EDIT}", ""),
    "comparison": (f"{TEXT}#page=explore&compare={COMPARED}", ""),
    "image": ("?model=vision#page=explore", ""),
    "sharing": (TEXT, ".share summary"),
    "lesson": (f"{TEXT}#lesson=17&step=2", ""),
}


@pytest.mark.parametrize(
    ("theme", "width", "views"),
    [("light", 1366, WIDE), ("dark", 1366, DARK), ("light", 390, NARROW)],
)
def test_axe_finds_no_violation(browser, address, theme, width, views):
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=theme, reduced_motion="reduce"
    )
    page, found = context.new_page(), {}
    for name, (where, clicked) in views.items():
        page.goto("about:blank")
        page.goto(f"{address}/{where}")
        page.wait_for_selector("#regard[data-ready]")
        if clicked:
            page.click(clicked)
        page.evaluate(AXE)
        found[name] = page.evaluate(RUN)
    context.close()
    assert found == {name: [] for name in views}


def test_axe_sees_the_page(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/{TEXT}#page=explore")
    page.wait_for_selector("#regard[data-ready]")
    page.evaluate("document.querySelector('.top .icon').outerHTML = '<button></button>'")
    page.evaluate(AXE)
    found = page.evaluate(RUN)
    page.close()
    assert [one.split(":")[0] for one in found] == ["button-name"]
