"""Sharing, presenting and the command palette, in a real browser with a real server."""

import html
import re
from urllib.parse import quote

import torch

from regard.figures.kinds import TRACE_KINDS
from regard.server.html_export import PAGE
from tests.server.page.conftest import ADDRESS_DELAY, SETTLE

SELF = "encoder.layers.1.self"
CROSS = "decoder.layers.0.cross"
TEXT = "the dog is sleeping"
EDIT = f"temperature:{CROSS}:1:0.4~ablate:{SELF}:0"
# Click an item of the share menu and return what it copies.
COPIED = """async (name) => {
  let copied = "";
  navigator.clipboard.writeText = async (text) => void (copied = text);
  document.querySelector(name).click();
  await new Promise((done) => setTimeout(done, 50));
  return copied;
}"""


def opened(page, address, state):
    page.goto(f"{address}/?model=transformer&text={TEXT}#language=en&page=explore&{state}")
    page.wait_for_selector("#regard[data-ready]")
    page.evaluate(SETTLE, ADDRESS_DELAY)


def state(page):
    page.evaluate(SETTLE, ADDRESS_DELAY)
    parts = page.evaluate("decodeURIComponent(location.hash)").lstrip("#").split("&")
    return dict(part.split("=", 1) for part in parts if "=" in part)


def test_the_copied_python_computes_the_weights_of_the_page(page, address, folders, monkeypatch):
    opened(page, address, f"site={CROSS}&head=1&edits={EDIT}&pane=pattern")
    code = page.evaluate(COPIED, "[data-share=python]")
    shown = page.evaluate(COPIED, ".pattern .save .items button:last-child")
    rows = [line.split("\t")[1:] for line in shown.splitlines()[1:]]
    monkeypatch.chdir(folders["transformer"].parent)
    found: dict = {}
    exec(code, found)
    expected = torch.tensor([[float(x) for x in row] for row in rows])
    torch.testing.assert_close(found["weights"], expected, atol=1e-5, rtol=1e-4)


def test_the_html_file_opens_with_the_same_head_and_edits(page, browser, address, tmp_path):
    edit = f"temperature:{CROSS}:1:0.4"  # other heads need the model, which a file does not have
    opened(page, address, f"site={CROSS}&head=1&query=2&edits={edit}")
    page.click(".share summary")
    with page.expect_download() as download:
        page.click("[data-share=html]")
    path = tmp_path / "shared.html"
    download.value.save_as(path)
    other = browser.new_page()
    errors = []
    other.on("pageerror", lambda error: errors.append(str(error)))
    other.goto(path.as_uri())
    other.wait_for_selector("#regard[data-ready]")
    now = state(other)
    assert (now["site"], now["head"], now["query"]) == (CROSS, "1", "2")
    assert now["edits"] == edit
    assert other.inner_text(".reading") == page.inner_text(".reading")
    assert errors == []
    other.close()


def test_the_pdf_is_a_pdf(page, address, tmp_path):
    opened(page, address, f"site={CROSS}&head=1&edits={EDIT}")
    page.click(".share summary")
    with page.expect_download() as download:
        page.click("[data-share=pdf]")
    download.value.save_as(tmp_path / "figure.pdf")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF-")
    page.click(".share summary")
    page.click("[data-share=figures]")
    page.wait_for_selector("dialog.figures")
    kinds = page.locator("dialog.figures option").evaluate_all("all => all.map((x) => x.value)")
    assert set(kinds) == set(TRACE_KINDS) - {"compare", "additive", "image"} | {"architecture"}
    assert page.locator("dialog.figures optgroup").count() == 4
    page.select_option("dialog.figures select", "alignment")
    page.evaluate("() => document.querySelector('dialog.figures img').decode()")  # it is drawn
    page.click("[data-format=svg]")
    with page.expect_download() as download:
        page.click("[data-figure=save]")
    assert download.value.suggested_filename == "regard-alignment.svg"
    assert download.value.path().read_text("utf-8").startswith(("<svg", "<?xml"))
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog.figures", state="detached")
    opened(page, address, f"site={CROSS}&head=1&compare={quote(f'kind=head&site={CROSS}&head=0')}")
    page.click(".share summary")
    page.click("[data-share=figures]")
    page.select_option("dialog.figures select", "compare")
    page.evaluate("() => document.querySelector('dialog.figures img').decode()")  # it is drawn


def test_every_kind_of_figure_has_a_place_and_a_name():
    script = (PAGE / "js/views/figure_dialog.js").read_text("utf-8")
    messages = (PAGE / "js/action_messages.js").read_text("utf-8")
    for kind in (*TRACE_KINDS, "architecture"):
        assert f'"{kind}"' in script
        assert f"  figure_{kind}: [" in messages


def test_a_frame_shows_only_the_pane_and_only_frames_may_be_embedded(page, address, client):
    opened(page, address, f"site={CROSS}&head=1")
    snippet = page.evaluate(COPIED, "[data-share=frame]")
    source = html.unescape(re.search(r'src="([^"]+)"', snippet)[1])
    assert "embed=pattern" in source
    page.goto("about:blank")
    page.goto(source)
    page.wait_for_selector("#regard[data-ready]")
    page.evaluate(SETTLE, 50)
    assert page.is_visible(".pane.pattern .board")
    for hidden in (".top", ".texts", ".bottom", ".pane.overview", ".pane.steps"):
        assert not page.is_visible(hidden)
    assert state(page)["head"] == "1"
    policy = "content-security-policy"
    assert "frame-ancestors" not in client.get("/?embed=flow&model=x").headers[policy]
    for path in ("/", "/?embed=all", "/api/models?embed=flow"):
        assert "frame-ancestors 'self'" in client.get(path).headers[policy]


def test_the_palette_opens_heads_tokens_and_views_by_keyboard(page, address):
    opened(page, address, f"site={CROSS}&head=0")
    page.keyboard.press("/")
    page.keyboard.type("l1h1")
    field = page.locator(".palette input")
    active = field.get_attribute("aria-activedescendant")
    assert page.get_attribute(f"#{active}", "aria-selected") == "true"
    assert page.inner_text(f"#{active} b") == "L1H1"
    page.keyboard.press("Enter")
    now = state(page)
    assert (now["site"], now["head"], now["kept"]) == (SELF, "1", f"{SELF}@1")
    page.keyboard.press("Control+k")
    page.keyboard.type("bar")
    page.keyboard.press("Enter")
    assert state(page)["view"] == "bars"
    page.keyboard.press("/")
    page.keyboard.type("dog")
    page.keyboard.press("Enter")
    page.locator(".token.asks", has_text="dog").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("zzzz")
    assert page.locator(".palette [role=option]").count() == 0
    page.keyboard.press("Escape")
    page.locator(".palette").wait_for(state="detached")


def test_presenting_shows_one_large_pane_with_keys_and_ends(page, address):
    opened(page, address, f"site={SELF}&head=0&query=0")
    small = page.locator(".pattern .sentence").bounding_box()["height"]
    page.keyboard.press("p")
    page.evaluate(SETTLE, 100)
    assert not page.is_visible(".top")
    assert not page.is_visible(".pane.steps")
    assert page.locator(".pattern .sentence").bounding_box()["height"] > 1.3 * small
    page.keyboard.press("ArrowRight")
    assert state(page)["head"] == "1"
    page.keyboard.press("ArrowUp")
    assert state(page)["site"] == "encoder.layers.0.self"
    cell = page.locator("svg.grid rect.chosen").bounding_box()
    down = cell["y"] + 2.5 * cell["height"]  # two rows below, on a page that is enlarged
    page.mouse.click(cell["x"] + cell["width"] / 2, down)
    page.evaluate(SETTLE, ADDRESS_DELAY)
    assert state(page)["query"] == "2"
    page.keyboard.press("p")
    page.evaluate(SETTLE, 100)
    assert page.is_visible(".top")
    assert page.is_visible(".pane.steps")
