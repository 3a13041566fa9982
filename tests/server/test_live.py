"""The live page in a real browser with a real server."""

import json
import re

import pytest
from playwright.sync_api import expect
from safetensors.numpy import load as load_arrays

from regard.model import load
from regard.server.app import make_app
from regard.server.catalog import Catalog
from regard.server.service import Service
from regard.trace.edits import unscaled
from tests.server.conftest import serving

CROSS = "decoder.layers.0.cross"
# Return what "copy data" of a pane copies, without a clipboard.
COPIED = """async (pane) => {
  let copied = "";
  navigator.clipboard.writeText = async (text) => void (copied = text);
  document.querySelector(`${pane} .save .items button:last-child`).click();
  await new Promise(requestAnimationFrame);
  return copied;
}"""


def opened(page, address):
    page.goto("about:blank")
    if "model=" in address and "site=" not in address:  # the page opens with the flow
        address += f"{'&' if '#' in address else '#'}page=explore"
    page.goto(address)
    page.wait_for_selector("#regard[data-ready]")
    return page


def text_of(page, selector):
    return " ".join(page.inner_text(selector).split())


def test_numbers_on_the_page_are_those_of_the_python_trace(page, address, folders, trace):
    model = load(folders["transformer"])
    described = trace(text="the dog is")
    ids = [model.target_tokenizer.start_id, *described["answer"]["ids"]]
    site = model.trace("the dog is", ids)[CROSS]
    opened(page, f"{address}/?model=transformer&text=the+dog+is#site={CROSS}&head=1&query=1&key=2")
    shown = text_of(page, ".pattern")
    assert f"weight {site.weights(1)[1, 2]:.3f}" in shown
    assert f"score {site.scores(1)[1, 2]:.3f}".replace("-", "−") in shown
    assert text_of(page, ".texts .text:first-child .tokens").split() == [
        piece.strip() for piece in described["tokens"]["source"]
    ]


def test_a_link_reopens_a_text(page, address, trace):
    opened(page, f"{address}/?model=transformer&text=the+dog")
    page.fill(".input-bar .text", "the garden is sleeping")
    page.press(".input-bar .text", "Enter")
    described = trace(text="the garden is sleeping")
    source = [piece.strip() for piece in described["tokens"]["source"]]
    page.wait_for_function(
        "n => document.querySelectorAll('.texts .text:first-child .token').length === n",
        arg=len(source),
    )
    assert page.evaluate("document.activeElement.className") == "text"  # to go on typing
    assert "text=the+garden+is+sleeping" in page.url
    page.go_back()
    fewer = "n => document.querySelectorAll('[data-side=source]').length < n"
    page.wait_for_function(fewer, arg=len(source))
    page.go_forward()
    page.wait_for_url(lambda url: "text=the+garden+is+sleeping" in url)  # not only a new hash
    opened(page, page.url)
    assert text_of(page, ".texts .text:first-child .tokens").split() == source
    assert page.input_value(".input-bar .text") == "the garden is sleeping"


def test_a_part_of_a_text_is_chosen(page, address, trace):
    text = "the dog is sleeping in the garden . The garden is sleeping ."
    tokens = [token.strip() for token in trace(text=text, part=1)["tokens"]["source"]]
    opened(page, f"{address}/?model=transformer&text={text}")
    page.select_option("select.parts", "1")
    page.wait_for_function(
        "n => document.querySelectorAll('.token[data-side=source]').length === n", arg=len(tokens)
    )
    assert "part=1" in page.url
    assert text_of(page, ".texts .text:first-child .tokens").split() == tokens


def test_vectors_of_the_next_head_are_prefetched(page, address):
    """The next head is loaded after a key press, and the head under the mouse pointer."""
    asked = []
    page.on("request", lambda one: asked.append(one.url) if "/vectors?" in one.url else None)
    first, second = (f"encoder.layers.{layer}.self" for layer in (0, 1))
    opened(page, f"{address}/?model=encoder&text=the+dog#site={first}&head=0&query=1&key=0")
    page.wait_for_selector("#regard[data-measured]")
    heads = lambda: [url.split("site=")[1].split("&head=") for url in asked]  # noqa: E731
    assert heads() == [[first, "0"]]
    with page.expect_request(lambda one: f"{second}&head=0" in one.url):
        page.keyboard.press("]")
    assert heads() == [[first, "0"], [first, "1"], [second, "0"]]
    with page.expect_request(lambda one: f"{second}&head=1" in one.url):
        box = page.locator(".overview canvas").bounding_box()
        page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.75 * box["height"])
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("() => document.querySelector('.headname').textContent.includes('1')")
    assert len(asked) == 4


def test_an_edit_shows_the_answer_before_and_after(page, address, client):
    edit = {"kind": "ablate", "site": "decoder.layers.0.self", "head": 0}
    asked = {"model": "transformer", "text": "the dog is sleeping", "edits": [edit]}
    answer = client.post("/api/answer", json=asked).json()["answer"]
    state = "site=decoder.layers.0.self&head=0&query=1&key=0"
    opened(page, f"{address}/?model=transformer&text=the+dog+is+sleeping#editing=1&{state}")
    assert page.is_hidden(".comparison")
    page.click(".headOff input")
    page.wait_for_selector(".comparison .moved li")
    page.wait_for_selector(".comparison .after:not(.pending)")
    shown = text_of(page, ".comparison")
    first = answer["compare"][0]
    assert f"{first['before']:.3f} → {first['after']:.3f}" in shown
    moved = re.findall(r"(\d\.\d+) → (\d\.\d+) ([=▲▼])", shown)
    assert all((was == now) == (sign == "=") for was, now, sign in moved)
    same = answer["ids"] == answer["before"]["ids"]
    assert ("stays the same" in shown) == same
    link = page.evaluate("new Promise(done => setTimeout(() => done(location.href), 300))")
    opened(page, link)
    page.wait_for_selector(".comparison .after:not(.pending)")
    assert text_of(page, ".comparison") == shown
    page.click(".edit-list button:has-text('reset')")
    page.wait_for_selector(".comparison", state="hidden")


def test_other_words_are_those_of_the_selected_position(page, address, client, trace):
    described = trace(text="the dog is")
    opened(page, f"{address}/?model=transformer&text=the+dog+is#site={CROSS}&query=0")
    page.click(".alternatives summary")
    tokens = [one["text"] for one in described["answer"]["tokens"]]
    for position in (0, 1):
        title = page.locator(".alternatives .other-words h3")
        expect(title).to_contain_text(tokens[position].strip())
        url = f"/api/trace/{described['id']}/alternatives?position={position}"
        best = client.get(url).json()["alternatives"][0]["probability"]
        assert f"{best:.3f}" in page.inner_text(".alternatives .other-words button >> nth=0")
        page.keyboard.press("ArrowDown")
    units = page.locator(".alternatives .heading .small").all_inner_texts()
    assert units == ["log-probability, divided by the length penalty", "probability"]


def test_a_slider_sends_one_request_at_a_time(page, address):
    """While it moves, effects are requested one at a time; one search follows when it stops."""
    asked = []
    page.on("request", lambda one: asked.append(one) if one.url.endswith("/api/answer") else None)
    state = f"site={CROSS}&head=0&query=1&key=0"
    opened(page, f"{address}/?model=transformer&text=the+dog+is+sleeping#editing=1&{state}")
    page.evaluate(
        """async () => {
          const slider = document.querySelector(".edit-controls input[type=range]");
          for (let i = 0; i < 40; i++) {
            slider.value = String(1.05 + i * 0.05);
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            await new Promise((done) => requestAnimationFrame(done));
          }
        }"""
    )
    page.wait_for_selector(".comparison .after:not(.pending)")
    bodies = [json.loads(one.post_data) for one in asked]
    searches = [one for one in bodies if "target" not in one]
    effects = [one for one in bodies if "target" in one]
    assert len(searches) == 1
    assert searches[0]["edits"][0]["value"] == pytest.approx(3.0)
    assert effects[-1]["edits"] == searches[0]["edits"]
    spans = [one.timing for one in asked if "target" in json.loads(one.post_data)]
    starts = [one["startTime"] for one in spans]
    # The page has read an answer a little before the browser calls it complete.
    halves = [one["startTime"] + one["responseEnd"] / 2 for one in spans]
    assert all(half <= start for half, start in zip(halves, starts[1:], strict=False))


def test_steps_after_an_edited_layer_start_from_the_new_inputs(page, address, folders):
    model, edit = load(folders["encoder"]), unscaled("encoder.layers.0.self")
    traces = [model.trace("the dog is", edits=edits) for edits in ([], [edit])]
    sites = [trace["encoder.layers.1.self"] for trace in traces]
    products = [float(site.compared(0)[1, 2]) for site in sites]
    assert abs(products[0] - products[1]) > 1e-3
    state = "site=encoder.layers.1.self&head=0&query=1&key=2&edits=unscaled:encoder.layers.0.self"
    opened(page, f"{address}/?model=encoder&text=the+dog+is#{state}")
    shown = "Number(document.querySelector('[data-name=compared]').title.replace('−', '-'))"
    page.wait_for_function(f"x => Math.abs({shown} - x) < 1e-4", arg=products[1])
    weight = float(sites[1].weights(0)[1, 2])
    page.wait_for_function(
        "x => document.querySelector('.reading .weights b').textContent === x", arg=f"{weight:.3f}"
    )
    described = page.evaluate(f"({COPIED})('.steps')")
    rows = dict(line.split("\t", 1) for line in described.splitlines())
    assert_close(
        [float(x) for x in rows["query"].split("\t")[1:]], sites[1].query[0, 0, 1].tolist()
    )
    context = sites[1].context(0)[1]
    assert_close([float(x) for x in rows["context"].split("\t")], context.tolist())


def assert_close(found, expected):
    assert found == pytest.approx(expected, abs=1e-5)


def test_stepwise_sites_offer_no_ablation_to_the_mean(page, address):
    opened(page, f"{address}/?model=seq2seq&text=the+dog#editing=1&site=decoder.cross")
    assert page.is_visible(".headOff")
    assert page.is_hidden(".headMean")


def test_a_token_is_replaced(page, address, client):
    text, site = "the dog is sleeping", "encoder.layers.0.self"
    described = client.post("/api/trace", json={"model": "transformer", "text": text}).json()
    edit = {"kind": "token", "side": "source", "position": 1, "token": "garden"}
    asked = {"model": "transformer", "text": text, "edits": [edit]}
    same = client.post("/api/answer", json={**asked, "target": described["answer"]["ids"]}).json()
    state = f"editing=1&site={site}&head=0&query=0&key=1"
    opened(page, f"{address}/?model=transformer&text={text}#{state}")
    page.fill(".edit-controls .replaced input", "garden")
    page.press(".edit-controls .replaced input", "Enter")
    page.wait_for_selector(".comparison .after:not(.pending)")
    moved = max(same["answer"]["compare"], key=lambda one: abs(one["after"] - one["before"]))
    assert f"{moved['before']:.3f} → {moved['after']:.3f}" in text_of(page, ".comparison")
    put = page.locator(".texts .token.replaced")
    assert put.count() == 1
    assert put.inner_text().endswith("→garden")
    after = client.get(f"/api/trace/{same['id']}/tile", params=cell_of(site, 0, 1))
    expected = load_arrays(after.content)["tile"][0, 0]
    page.wait_for_function(
        "x => document.querySelector('.reading .weights b').textContent === x",
        arg=f"{expected:.3f}",
    )
    assert page.locator(".board svg.grid path.ring").count() == 1  # before and after
    page.click(".edit-list button:has-text('undo')")
    page.wait_for_function("() => !document.querySelector('.token.replaced')")


def cell_of(site, query, key):
    rows = {"row_start": query, "row_stop": query + 1}
    return {"site": site, "head": 0, **rows, "column_start": key, "column_stop": key + 1}


def test_a_language_model_continues_a_text_at_a_temperature(page, address, client):
    asked = {"model": "decoder", "text": "the dog", "temperature": 0.0, "max_tokens": 40}
    written = client.post("/api/generate", json=asked).json()["written"]
    opened(page, f"{address}/?model=decoder&text=the+dog")
    page.fill(".others input[type=range]", "0")
    page.click(".continue")
    page.wait_for_selector(".written button")
    assert text_of(page, ".written b") == " ".join(written.split())
    url = page.evaluate("new Promise(done => setTimeout(() => done(location.href), 300))")
    assert "sampling=0" in url


def test_a_click_on_a_next_token_appends_it(page, address, client, trace):
    described = trace(model="decoder", text="the dog")
    asked = f"/api/trace/{described['id']}/next?temperature=0.5"
    likely = client.get(asked).json()["candidates"]
    assert likely[0]["probability"] > described["answer"]["candidates"][0]["probability"]
    opened(page, f"{address}/?model=decoder&text=the+dog#sampling=0.5")
    page.wait_for_selector("button.candidate")
    shown = page.locator(".candidate .digits").all_inner_texts()
    assert shown == [f"{one['probability']:.3f}" for one in likely]
    page.click("button.candidate >> nth=0")
    longer = len(described["tokens"]["target"]) + 1
    page.wait_for_function(
        "n => document.querySelectorAll('.token[data-side=target]').length === n", arg=longer
    )
    first = next(one["text"] for one in likely if one["text"])
    assert page.input_value(".input-bar .text") == first


def test_the_best_next_token_is_shown_before_and_after_an_edit(page, address, client):
    site = "decoder.layers.0.self"
    edit = {"kind": "ablate", "site": site, "head": 0}
    asked = {"model": "decoder", "text": "the dog", "edits": [edit]}
    answer = client.post("/api/answer", json=asked).json()["answer"]
    state = f"site={site}&head=0&query=1&key=0&edits=ablate:{site}:0"
    opened(page, f"{address}/?model=decoder&text=the+dog#{state}")
    page.wait_for_selector(".comparison .pair")
    for when, best in (
        ("before", answer["before"]["candidates"][0]),
        ("after", answer["candidates"][0]),
    ):
        assert text_of(page, f".comparison .pair .{when} .digits") == f"{best['probability']:.3f}"
        assert best["name"].strip("Ġ ▁") in text_of(page, f".comparison .pair .{when}")
    moved = answer["compare"][0]
    assert f"{moved['before']:.3f} → {moved['after']:.3f}" in text_of(page, ".comparison .moved")


def test_an_error_is_shown(page, address):
    error = {"code": "any", "params": {}, "message": "the text is too long."}
    opened(page, f"{address}/?model=transformer&text=the+dog")
    page.route(
        "**/api/trace",
        lambda route: route.fulfill(
            body=f"event: error\ndata: {json.dumps({'error': error})}\n\n",
            content_type="text/event-stream",
        ),
    )
    page.fill(".input-bar .text", "the dog the dog")
    page.press(".input-bar .text", "Enter")
    page.wait_for_selector(".input-bar .error")
    assert text_of(page, ".input-bar .error") == error["message"]


def test_without_a_model_the_worked_example_is_open(browser, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.interop.model_names.ZOO", tmp_path)
    with serving(make_app(Service(Catalog()))) as address:
        context = browser.new_context(locale="ko-KR")
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("#regard[data-ready]")
        assert "regard serve FOLDER" in text_of(page, ".input-bar")
        assert page.is_visible(".worked input")
        assert "니다" in text_of(page, ".input-bar")
        context.close()
