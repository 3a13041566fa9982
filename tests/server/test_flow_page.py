"""The flow in a real browser: its numbers are those of the trace, it plays, and it stays usable."""

import pytest
import torch

import regard
from regard.model import Model, load
from regard.models.config import build, config_from_dict
from regard.server.app import make_app
from regard.server.catalog import Catalog
from regard.server.service import Service
from regard.trace.capture import trace_model
from tests.server.conftest import serving, window

TEXT, TARGET = "the dog is sleeping", "der hund schläft"
# Where a station, or the zone in front of it, is on the screen at a position.
PLACE = """([part, path, position]) => {
  const board = document.querySelector(".flow-board");
  const box = board.querySelector("canvas").getBoundingClientRect();
  const columns = JSON.parse(board.dataset.columns);
  const [, zone, x] = columns.find(([one]) => one === path) ?? ["", 0, 0];
  const second = part === "prediction" || path.startsWith("decoder");
  const side = second && board.querySelector(".flow-side") ? 1 : 0;
  const row = board.querySelector(`[data-place="${side} ${position}"]`).getBoundingClientRect();
  const across = { strip: x + 4, zone: (zone + x) / 2, prediction: columns.at(-1)[2] + 50 }[part];
  return [box.left + across, (row.top + row.bottom) / 2];
}"""


@pytest.fixture(scope="module")
def deep(folders, tmp_path_factory):
    """A language model of 12 layers with more outputs than tokens, as many imported ones have."""
    tokenizer = load(folders["decoder"]).tokenizer
    n_vocab = len(tokenizer) + 40
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_layers": 12, "n_vocab": n_vocab}
    torch.manual_seed(2)
    module = build(config_from_dict({"family": "decoder", "positions": "rotary", **sizes})).eval()
    folder = tmp_path_factory.mktemp("deep") / "deep"
    Model(module=module, task="language", tokenizer=tokenizer).save(folder)
    return load(folder)


@pytest.fixture(scope="module")
def translator(folders, tmp_path_factory):
    """A translator of 6 + 3 layers, as the bundled ones."""
    tokenizer = load(folders["transformer"]).tokenizer
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_vocab": len(tokenizer)}
    layers = {"n_encoder_layers": 6, "n_decoder_layers": 3}
    torch.manual_seed(2)
    module = build(config_from_dict({"family": "transformer", **sizes, **layers})).eval()
    folder = tmp_path_factory.mktemp("translator") / "translator"
    Model(module=module, task="translation", tokenizer=tokenizer).save(folder)
    return load(folder)


def opened(page, address, *, model="transformer", text=TEXT, target=TARGET, state=""):
    page.goto("about:blank")
    more = f"&target={target}" if target else ""
    page.goto(f"{address}/?model={model}&text={text}{more}#page=flow&language=en{state}")
    page.wait_for_selector("#regard[data-ready]")
    page.wait_for_selector(".flow-page[aria-busy=false] .flow-board[data-at]")
    return page


def hover(page, part, path, position):
    page.mouse.move(*page.evaluate(PLACE, [part, path, position]))
    page.wait_for_selector(".flow-tip:not([hidden])")
    found = page.locator(".flow-tip dd").evaluate_all("all => all.map((x) => +x.dataset.value)")
    names = page.locator(".flow-tip dt").all_inner_texts()
    return dict(zip(names, found, strict=True))


@pytest.fixture(scope="module")
def run(folders):
    return trace_model(load(folders["transformer"]), TEXT, TARGET)


def test_the_page_opens_with_the_flow(page, address):
    page.goto(f"{address}/?model=transformer&text={TEXT}")
    page.wait_for_selector("#regard[data-ready]")
    assert page.get_attribute("#regard", "data-page") == "flow"
    assert page.inner_text(".pages [aria-current=page]") == "model"


def test_hovered_numbers_are_those_of_the_trace(page, address, run):
    opened(page, address)
    path = "encoder.layers.1.self.residual"
    found = hover(page, "strip", path, 2)
    assert found["norm"] == pytest.approx(run.values[path][0, 2].norm().item(), rel=1e-5)
    added = run.values["encoder.layers.1.self.output"][0, 2].norm().item()
    assert found["norm of what was added"] == pytest.approx(added, rel=1e-5)
    name = next(name for name in found if name.startswith("dimension"))
    value = run.values[path][0, 2, int(name.split()[1])].item()
    assert found[name] == pytest.approx(value, abs=1e-5)
    found = hover(page, "zone", "decoder.layers.0.cross.residual", 1)
    found.pop("norm of what was added")
    weights = run["decoder.layers.0.cross"].weights().mean(0)[1]
    assert max(found.values()) == pytest.approx(weights.max().item(), rel=1e-5)
    found = hover(page, "prediction", "", 0)
    best = run.values["output.logits"][0, 0].softmax(-1).max().item()
    assert max(found.values()) == pytest.approx(best, rel=1e-5)


def test_a_click_opens_vector_units_and_head(page, address, run):
    opened(page, address)
    path = "decoder.layers.0.cross.residual"
    page.mouse.click(*page.evaluate(PLACE, ["strip", path, 1]))
    page.wait_for_selector(f".flow-card[data-path='{path}']")
    norms = page.locator(".flow-card .norm").evaluate_all("all => all.map((x) => +x.dataset.value)")
    names = ("decoder.layers.0.self.residual", "decoder.layers.0.cross.output", path)
    expected = [run.values[name][0, 1].norm().item() for name in names]
    assert norms == pytest.approx(expected, rel=1e-5)
    page.mouse.click(*page.evaluate(PLACE, ["zone", "encoder.layers.0.feed_forward.residual", 3]))
    page.wait_for_selector(".flow-card[data-path='encoder.layers.0.feed_forward'] table.units")
    index = int(page.inner_text(".units tbody th"))
    shown = float(page.get_attribute(".units tbody td", "data-value"))
    activation = run.values["encoder.layers.0.feed_forward.activation"][0, 3]
    assert shown == pytest.approx(activation[index].item(), abs=1e-5)
    page.mouse.click(*page.evaluate(PLACE, ["zone", path, 1]))
    page.wait_for_selector(".pane.pattern")
    page.wait_for_url(lambda url: "site=decoder.layers.0.cross" in url and "query=1" in url)


def test_a_selected_word_has_its_row_and_back_returns_from_a_head(page, address):
    opened(page, address)
    page.locator(".text.answer .token").nth(1).click()
    page.wait_for_selector(".flow-token.on[data-place='1 1']")
    page.locator(".text:not(.answer) .token").nth(3).click()
    page.wait_for_selector(".flow-token.on[data-place='0 3']")
    page.press(".flow-board", "Escape")
    page.wait_for_selector(".flow-token.on", state="detached")
    page.mouse.click(*page.evaluate(PLACE, ["zone", "decoder.layers.0.cross.residual", 1]))
    page.wait_for_selector(".pane.pattern")
    page.keyboard.press("e")
    page.check(".edit-controls label:has-text('head off') input")
    page.go_back()
    page.wait_for_selector(".flow-page[aria-busy=false] .flow-board[data-at]")
    page.wait_for_url(lambda url: "page=flow" in url and "edits=ablate" in url)
    page.go_forward()
    page.wait_for_selector(".pane.pattern")


def test_a_pass_plays_steps_and_scrubs(page, address):
    opened(page, address)
    at = lambda: float(page.get_attribute(".flow-board", "data-at"))  # noqa: E731
    end = at()
    page.click(".flow-controls .back")
    assert at() == end - 1
    page.click(".flow-controls .next")
    assert at() == end
    page.fill(".flow-controls input", "3")
    assert at() == 3
    assert "layer 0" in page.inner_text(".flow-controls output")
    page.click(".flow-controls .play")
    page.wait_for_selector(f".flow-board[data-at='{end:.2f}']")
    assert page.get_attribute(".flow-controls .play", "aria-label") == "play one pass"


def test_less_motion_shows_one_station_after_the_other(page, address):
    page.emulate_media(reduced_motion="reduce")
    opened(page, address)
    page.evaluate(
        """() => {
          window.seen = new Set();
          const board = document.querySelector(".flow-board");
          const note = () => window.seen.add(board.dataset.at);
          new MutationObserver(note).observe(board, { attributes: true });
        }"""
    )
    end = page.get_attribute(".flow-board", "data-at")
    page.click(".flow-controls .play")
    page.wait_for_selector(".flow-board[data-at='0.00'], .flow-board[data-at='1.00']")
    page.wait_for_selector(f".flow-board[data-at='{end}']")
    assert all(float(x).is_integer() for x in page.evaluate("[...window.seen]"))


def test_arrow_keys_move_and_enter_opens(page, address):
    opened(page, address)
    page.focus(".flow-board")
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_selector(".flow-ring:not([hidden])")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    status = page.inner_text(".flow-page > .visually-hidden")
    assert "layer 0" in status
    page.keyboard.press("Enter")
    page.wait_for_selector(".flow-card, .pane.pattern")


def test_the_table_has_every_station(page, address, run):
    opened(page, address)
    page.click(".flow-table summary")
    rows = page.locator(".flow-table tbody tr")
    assert rows.count() == 7
    path = "encoder.layers.0.self.residual"
    cell = page.inner_text(f".flow-table tr[data-path='{path}'] td")
    assert float(cell) == pytest.approx(run.values[path][0, 0].norm().item(), abs=6e-4)


@pytest.mark.parametrize("model", ["seq2seq", "encoder", "decoder"])
def test_every_family_is_drawn(page, address, model):
    opened(page, address, model=model, target=None)
    assert page.locator(".flow-token").count() >= 4
    ink = page.evaluate(
        """() => {
          const canvas = document.querySelector(".flow-board canvas");
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return data.filter((x, i) => i % 4 === 3 && x > 0).length / (data.length / 4);
        }"""
    )
    assert ink > 0.02
    # the rails of a recurrent model are not read as words
    assert page.is_visible(".flow-lens-switch") == (model != "seq2seq")


def test_a_long_text_has_a_window_and_a_phone_scrolls(page, address):
    text = "the dog is sleeping in the garden . " * 28
    opened(page, address, model="encoder", text=text, target=None)
    slider = page.locator(".flow-windows input")
    assert page.locator(".flow-token").count() < 80
    slider.fill(slider.get_attribute("max"))
    last = int(slider.get_attribute("max")) + page.locator(".flow-token").count() - 1
    assert last >= 200
    page.wait_for_selector(f".flow-token[data-place='0 {last}']")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_selector(".flow-layer")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    opened(page, address)  # on a phone the decoder of a translator stands below the encoder
    assert page.evaluate("document.querySelector('.flow-scroll').scrollWidth") <= 390
    heading, last = (page.locator(x).last.bounding_box() for x in (".flow-side", ".flow-token"))
    assert heading["x"] < 60
    assert last["y"] > heading["y"] > page.locator(".flow-side").first.bounding_box()["y"]
    assert (
        page.evaluate("document.querySelector('.flow-page').getBoundingClientRect().right") <= 390
    )


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (390, 844)])
def test_twelve_layers_and_512_tokens_stay_usable(browser, deep, width, height):
    text = "the dog is sleeping in the garden . " * 63 + "the dog is sleeping in the garden"
    run = trace_model(deep, text)
    n_tokens = len(run.tokens["target"])
    assert n_tokens >= 500
    service = Service(Catalog([deep.folder]))
    with serving(make_app(service)) as address, window(browser, address) as page:
        page.set_viewport_size({"width": width, "height": height})
        opened(page, address, model="deep", text=text, target=None)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shown = page.locator(".flow-token")
        rows = shown.evaluate_all("all => all.map((x) => x.getBoundingClientRect().height)")
        assert len(rows) < 100  # a window over the positions, with rows that can be read
        assert min(rows) >= 12
        layers = page.locator(".flow-layer")
        assert layers.count() == 12
        folded = page.locator(".flow-layer[aria-expanded=false]")
        assert (folded.count() > 0) == (width < 500)
        layer = folded.first if folded.count() else layers.first
        name, opens = layer.get_attribute("aria-label"), layer.get_attribute("aria-expanded")
        layer.click()  # others may fold or unfold instead
        now = {"true": "false", "false": "true"}[opens]
        page.wait_for_selector(f".flow-layer[aria-label='{name}'][aria-expanded={now}]")
        slider = page.locator(".flow-windows input")
        slider.fill(slider.get_attribute("max"))
        page.wait_for_selector(f".flow-token[data-place='0 {n_tokens - 1}']")
        page.locator(f".flow-token[data-place='0 {n_tokens - 1}']").scroll_into_view_if_needed()
        page.evaluate("document.querySelector('.flow-scroll').scrollLeft = 1e6")
        path = "decoder.layers.11.feed_forward.residual"
        found = hover(page, "strip", path, n_tokens - 1)
        norm = run.values[path][0, n_tokens - 1].norm().item()
        assert found["norm"] == pytest.approx(norm, rel=1e-4)
    service.close()


def test_a_translator_is_whole_at_every_width_with_words_on_the_rails(browser, translator):
    service = Service(Catalog([translator.folder]))
    with serving(make_app(service)) as address, window(browser, address) as page:
        for width, stacked in ((1366, False), (1280, True), (1024, True)):
            page.set_viewport_size({"width": width, "height": 768})
            opened(page, address, model="translator")
            assert page.locator(".flow-layer[aria-expanded=false]").count() == 0
            across = "(one) => one.scrollWidth - one.clientWidth"
            assert page.locator(".flow-scroll").evaluate(across) <= 0  # the predictions are in view
            assert (page.locator(".flow-side").last.bounding_box()["x"] < 60) == stacked
            captions = page.locator(".flow-caption").all_inner_texts()
            assert len(captions) == 3 + 4 + 1  # each part of both sides, and the predictions
            page.check(".flow-lens-switch input")
            page.wait_for_selector(".flow-lens[data-ready] .flow-word")
            places = page.locator(".flow-word").evaluate_all(
                "all => all.map((x) => x.dataset.place)"
            )
            stations = {place.split("@")[0] for place in places}
            assert len(stations) == 3  # the prediction is the fourth
    service.close()


def test_a_visitor_without_a_link_sees_one_pass_which_a_key_ends(page, address):
    board, seen = ".flow-board[data-at]", "document.querySelector('.flow-board').dataset.at"
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.goto(address)
    page.wait_for_selector(board)
    page.keyboard.press("Shift")
    end = page.evaluate(seen)
    opened(page, address)
    assert page.evaluate(seen) == end
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(board)
    assert float(page.evaluate(seen)) < float(end)
    page.wait_for_selector(f".flow-board[data-at='{end}']")
    assert failed == []


def test_edits_change_the_flow(page, address, folders):
    path = "decoder.layers.0.cross"
    opened(page, address, state=f"&edits=ablate:{path}:1")
    found = hover(page, "strip", f"{path}.residual", 1)["norm of what was added"]
    model = load(folders["transformer"])
    edited = trace_model(model, TEXT, TARGET, edits=[regard.ablate(path, head=1)])
    assert found == pytest.approx(edited.values[f"{path}.output"][0, 1].norm().item(), rel=1e-5)


@pytest.mark.parametrize("model", ["transformer", "decoder", "encoder"])
def test_words_on_the_rails_are_those_of_the_lens(page, address, folders, model):
    given = (TEXT, TARGET) if model == "transformer" else (TEXT,)
    opened(page, address, model=model, target=(*given, None)[1], state="&lens=1")
    page.wait_for_selector(".flow-lens[data-ready] .flow-word")
    words = page.locator(".flow-word").evaluate_all(
        "all => all.map((x) => [x.dataset.place, parseFloat(x.style.getPropertyValue('--share'))])"
    )
    found = trace_model(load(folders[model]), *given).lens()
    assert {place.split("@")[1] for place, _ in words} == set(map(str, range(len(found.positions))))
    for place, share in words:
        path, position = place.split("@")
        best = found.probabilities[found.stations.index(path), int(position), 0].item()
        assert share == pytest.approx(100 * best, abs=0.51)  # whole percents
    box = page.locator(".flow-word").last.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector(".flow-card .flow-reading")
    values = "all => all.map((x) => +x.dataset.value)"
    numbers = page.locator(".flow-card .flow-reading dd").evaluate_all(values)
    at = found.stations.index(path), int(position)
    read = (found.probabilities[at][0], found.entropy[at], found.divergence[at])
    assert numbers == pytest.approx([x.item() for x in read], rel=1e-4, abs=1e-6)
    page.click(".flow-card .to-cause")
    page.wait_for_selector("table.lens")
    page.go_back()
    page.uncheck(".flow-lens-switch input")
    page.wait_for_selector(".flow-word", state="detached")
