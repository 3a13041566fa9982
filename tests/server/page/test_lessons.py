"""The course: each lesson opens by a link, can be done, and closes with its reader's numbers."""

import json
import re
from math import log2

import httpx
import numpy as np
import pytest
import torch
from safetensors.numpy import load as load_arrays

from regard.model import Model
from regard.models.config import build, config_from_dict
from regard.server.app import make_app
from regard.server.catalog import Catalog, Runs
from regard.server.service import Service
from regard.text.tokenizer_training import train_tokenizer
from tests.server.conftest import serving, window
from tests.server.page.conftest import SETTLE
from tests.server.test_replay import write_run

slow = pytest.mark.slow

NAMES = [
    *("Tokens", "Embeddings", "Positions", "Recurrent", "Vectors", "Scale", "Softmax", "Mask"),
    *("Heads", "FeedForward", "Residual", "Output", "Decoding", "Training", "Vision"),
    *("Efficient", "Complexity"),
]
SELF = "encoder.layers.1.self"
EFFICIENT = {"family": "encoder", "d_model": 16, "n_heads": 2, "d_ff": 24, "n_layers": 2}


@pytest.fixture(scope="module")
def run_folder(folders, tmp_path_factory):
    model = Model.load(folders["transformer"])
    return write_run(tmp_path_factory.mktemp("runs") / "toy", model, (10, 20, 40), metric="bleu")


@pytest.fixture(scope="module")
def efficient_folder(tmp_path_factory):
    """A model with efficient attention, by the name of the one that the course opens."""
    texts = ["the dog is sleeping in the garden .", "the cat is in the old tree ."]
    tokenizer = train_tokenizer(texts, vocab_size=80, min_frequency=1)
    torch.manual_seed(3)
    settings = {**EFFICIENT, "attention": "efficient", "n_vocab": len(tokenizer)}
    module = build(config_from_dict(settings)).eval()
    folder = tmp_path_factory.mktemp("models") / "english-efficient"
    Model(module=module, task="masked", tokenizer=tokenizer).save(folder)
    return folder


@pytest.fixture(scope="module")
def address(run_folder, efficient_folder):
    service = Service(Catalog([efficient_folder]), Runs([run_folder]))
    with serving(make_app(service)) as address:
        yield address
    service.close()


@pytest.fixture
def page(browser, address):
    with window(browser, address) as page:
        yield page


class Api:
    """The numbers of a page's trace, from the server."""

    def __init__(self, address: str, page):
        self.address = address
        given = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
        body = {name: given[name] for name in ("model", "text", "image") if name in given}
        self.trace = self.post("trace", body)

    def post(self, what: str, body: dict):
        return httpx.post(f"{self.address}/api/{what}", json=body, timeout=60).json()

    def get(self, what: str, **params):
        place = f"{self.address}/api/trace/{self.trace['id']}/{what}"
        found = httpx.get(place, params=params, timeout=60)
        assert found.status_code == 200, found.text
        is_json = found.headers["content-type"].startswith("application/json")
        return found.json() if is_json else load_arrays(found.content)

    def weights(self, site: str, head: int, query: int) -> np.ndarray:
        one = next(x for x in self.trace["sites"] if x["path"] == site)
        span = {"row_start": query, "row_stop": query + 1, "column_start": 0}
        return self.get("tile", site=site, head=head, column_stop=one["n_key"], **span)["tile"][0]

    def vector(self, path: str, position: int) -> np.ndarray:
        return self.get("stream", path=path, position=position)["vector"]


def bits(weights) -> float:
    return -sum(w * log2(w) for w in map(float, weights) if w > 0)


def settle(page):
    page.evaluate(SETTLE, 50)


def state_of(page) -> dict[str, str]:
    page.evaluate(SETTLE, 130)
    hash_ = page.evaluate("decodeURI(location.hash)")
    return dict(part.split("=", 1) for part in hash_.lstrip("#").split("&") if "=" in part)


def open_lesson(page, address, name, language="en"):
    page.goto("about:blank")
    page.goto(f"{address}/#lesson={NAMES.index(name) + 1}&language={language}")
    page.wait_for_selector(".story .paragraph, .story .why")
    page.wait_for_selector(".paragraph[aria-current]")
    settle(page)


def go_to_task(page):
    page.evaluate("document.querySelector('.paragraph.last').focus()")
    page.wait_for_selector(".task[data-ready]")
    settle(page)


def cell(page, right=0):
    box = page.locator(".plot svg.grid rect.chosen").last.bounding_box()
    return box["x"] + box["width"] * (right + 0.5), box["y"] + box["height"] * 0.5


def cut_own_text(page):
    page.fill(".own-text", "We are dancing enthusiastically")
    page.click(".own button")


def choose_opposite(page):
    page.wait_for_selector(".lesson-figure .cosine")
    values = [float(x.get_attribute("data-value")) for x in page.locator(".cosine").all()]
    page.click(f'.cosine[data-pair="{values.index(min(values))}"]')


def find_long_wave(page):
    page.fill(".lesson-figure input[type=range]", "150")


def click_output(page):
    page.click('.token[data-side="output"] >> nth=1')


def choose_largest(page):
    for key in ["ArrowLeft"] * 20 + ["ArrowRight"] * 20:
        settle(page)
        if page.get_attribute(".task", "data-done") == "true":
            return
        page.keyboard.press(key)


def switch_scaling_off(page):
    page.uncheck(".scaleOn input")


def change_temperature(page):
    page.fill(".edit-controls input[type=range]", "2.5")
    settle(page)
    assert page.get_attribute(".task", "data-done") == "false"  # both directions are asked for
    page.fill(".edit-controls input[type=range]", "0.3")


def forbid(page):
    page.click("button.pencil")
    settle(page)
    assert page.get_attribute(".task", "data-done") == "false"  # nothing is forbidden yet
    page.mouse.click(*cell(page))


def open_heads(page):
    page.wait_for_selector(".head-row")
    page.click(f'.head-row[data-row="{SELF} 0"]')
    settle(page)
    assert page.get_attribute(".task", "data-done") == "false"  # one other head is not two
    page.press(f'.head-row[data-row="{SELF} 4"]', "Enter")


def click_slab(page):
    columns = json.loads(page.get_attribute(".flow-board", "data-columns"))
    zone, x = next(
        (zone, x) for path, zone, x in columns if path == "encoder.layers.2.feed_forward.residual"
    )
    box = page.locator(".flow-board canvas").bounding_box()
    label = page.locator('.flow-token[data-place="0 4"]').bounding_box()
    page.mouse.click(box["x"] + (zone + x) / 2, label["y"] + label["height"] / 2)


def click_input(page):
    page.click('.token[data-side="source"] >> nth=2')


def sample(page):
    page.wait_for_selector(".lesson-figure .chance-row")
    page.fill(".lesson-figure input[type=range]", "0.5")
    page.dispatch_event(".lesson-figure input[type=range]", "change")
    page.wait_for_function("() => document.querySelector('.lesson-figure output').value === '0.50'")
    settle(page)
    page.click("button.sample")


def look_at_checkpoints(page):
    page.fill(".replay input[type=range]", "0")
    settle(page)
    page.fill(".replay input[type=range]", "1")


def click_patch(page):
    box = page.locator(".pictures canvas").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.6)


def lengthen(page):
    page.fill('.lesson-figure input[data-size="n"]', "90")


TASKS = dict(
    zip(
        NAMES,
        [
            *(cut_own_text, choose_opposite, find_long_wave, click_output, choose_largest),
            *(switch_scaling_off, change_temperature, forbid, open_heads, click_slab, click_input),
            *(click_output, sample, look_at_checkpoints, click_patch, click_input, lengthen),
        ],
        strict=True,
    )
)


def finish(page, name) -> str:
    """Do the task of the open lesson and return its closing line."""
    go_to_task(page)
    assert page.get_attribute(".task", "data-done") == "false"
    TASKS[name](page)
    page.wait_for_selector('.task[data-done="true"]')
    page.wait_for_function("() => document.querySelector('.closing').textContent")
    settle(page)
    return page.inner_text(".closing")


def guess_all(page):
    """Answer the questions of the open lesson; each marks its best option."""
    for i in range(page.locator(".paragraph").count() - 1):
        guess = page.locator(f'.paragraph[data-step="{i}"] button.option')
        if not guess.count():
            continue
        page.evaluate(f"document.querySelector('.paragraph[data-step=\"{i}\"]').focus()")
        page.wait_for_selector(".veil")
        guess.first.evaluate("option => option.click()")  # it may still be scrolling under a mouse
        page.wait_for_selector(f'.paragraph[data-step="{i}"] .reveal:not(:empty)')
        settle(page)
        assert page.locator(".veil").count() == 0
        marked = page.locator(f'.paragraph[data-step="{i}"] .option.best')
        values = page.locator(f'.paragraph[data-step="{i}"] .option [data-value]').all()
        numbers = [float(one.get_attribute("data-value")) for one in values]
        best = float(marked.locator("[data-value]").get_attribute("data-value"))
        assert best in (min(numbers), max(numbers))


def check_texts(page, language):
    """Every paragraph and the closing line are complete and in one language."""
    texts = [*page.locator(".paragraph").all_inner_texts(), page.inner_text(".closing")]
    for text in texts:
        assert not re.search(r"\{|NaN|undefined|null", text), text
        assert bool(re.search("[가-힣]", text)) == (language == "ko"), text


def walk(page, address, names):
    """Do lessons that follow each other in English, and read each of them in Korean too."""
    open_lesson(page, address, names[0])
    for i, name in enumerate(NAMES):
        if name not in names:
            continue
        page.wait_for_selector(f'[data-course="{name}"] .paragraph[aria-current]')
        settle(page)
        assert page.inner_text(".course-toggle").startswith(f"{i + 1}/{len(NAMES)}")
        guess_all(page)
        finish(page, name)
        check_texts(page, "en")
        page.click('[data-code="ko"]')
        closes = "() => /[가-힣]/.test(document.querySelector('.closing').textContent)"
        page.wait_for_function(closes)
        check_texts(page, "ko")
        page.click('[data-code="en"]')
        page.wait_for_selector(".regard[lang=en]")
        if name == "Training":  # the page of a run has no other lessons
            open_lesson(page, address, NAMES[i + 1])
        elif name != names[-1]:
            page.click('[data-go="on"]')


def test_lessons_can_be_done_one_after_the_other_in_both_languages(page, address):
    walk(page, address, NAMES[NAMES.index("FeedForward") : NAMES.index("Decoding") + 1])


@slow
def test_all_lessons_can_be_done_one_after_the_other_in_both_languages(page, address):
    walk(page, address, NAMES)


@slow
@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("name", NAMES)
def test_every_lesson_opens_by_a_link_and_can_be_done(page, address, name, language):
    open_lesson(page, address, name, language)
    number = page.inner_text(".course-toggle").split("/")[0]
    assert int(number) == NAMES.index(name) + 1
    guess_all(page)
    finish(page, name)
    check_texts(page, language)


def test_a_link_to_a_later_paragraph_opens_the_sentence_of_the_lesson(page, address):
    page.goto(f"{address}/#lesson={NAMES.index('Heads') + 1}&step=2&language=en")
    page.wait_for_selector('.paragraph[data-step="2"][aria-current]')
    settle(page)
    assert "snake" in page.input_value(".input-bar .text")


def test_on_a_phone_the_replay_is_next_to_its_lesson(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    open_lesson(page, address, "Training")
    finish(page, "Training")


def test_on_a_phone_the_edit_controls_are_above_the_story(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    open_lesson(page, address, "Scale")
    go_to_task(page)
    settle(page)
    page.click(".edit-toggle")
    settle(page)
    switch_scaling_off(page)  # it fails if something covers the checkbox
    page.wait_for_selector('.task[data-done="true"]')


def test_scrolling_marks_what_a_paragraph_talks_about(page, address):
    open_lesson(page, address, "Positions")
    shown = []
    for i in range(3):
        page.evaluate(f"document.querySelector('.paragraph[data-step=\"{i}\"]').focus()")
        settle(page)
        if page.locator(".veil").count():
            page.locator(".anyway").evaluate("button => button.click()")
            settle(page)
        shown.append(int(page.input_value(".lesson-figure input[type=range]")))
    assert shown == sorted(set(shown))  # slower and slower waves
    go_to_task(page)
    assert page.get_attribute(".task", "data-done") == "false"


def test_steps_that_follow_each_other_quickly_end_at_the_last(page, address):
    open_lesson(page, address, "Residual")
    held = []

    def hold(route):
        held.append(route)

    page.route("**/vectors?*", hold)  # the third paragraph needs them
    page.evaluate(
        """async () => {
          for (let i = 0; i < 2; i++) {
            document.querySelector('[data-go="down"]').click();
            for (let k = 0; k < 30; k++) await null; // before the next frame
          }
        }"""
    )
    settle(page)
    assert page.get_attribute(".paragraph[aria-current]", "data-step") == "2"
    for route in held:
        route.continue_()
    page.unroute_all(behavior="wait")
    assert state_of(page)["step"] == "2"


def pieces_of(api):
    return api.trace["tokens"]["source"]


@slow
def test_closing_lines_of_tokens_and_vectors(page, address, shown):
    open_lesson(page, address, "Tokens")
    line = finish(page, "Tokens")
    api = Api(address, page)
    words = api.trace["words"]["source"]
    counts = [words.count(one) for one in sorted({x for x in words if x is not None})]
    assert line.startswith(f"Your {len(counts)} words became {sum(counts)} pieces;")
    assert line.endswith(f"alone became {max(counts)}.")

    open_lesson(page, address, "Embeddings")
    line = finish(page, "Embeddings")
    api = Api(address, page)
    tokens = [token.strip() for token in pieces_of(api)]
    state = state_of(page)
    pair = [int(state["query"]), int(state["key"])]

    def cosine(a, b):
        x, y = (api.vector("encoder.embedding.tokens", at) for at in (a, b))
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    assert f"cosine of {shown(cosine(*pair))};" in line
    assert line.endswith(f"have {shown(cosine(tokens.index('dog'), tokens.index('cat')))}.")

    open_lesson(page, address, "Positions")
    line = finish(page, "Positions")
    api = Api(address, page)
    first, last = (
        api.vector("encoder.embedding.positions", at) for at in (0, len(pieces_of(api)) - 1)
    )
    wavelength = 2 * np.pi * 10000 ** (150 / len(first))
    assert f"Dimension 150 has a wavelength of {wavelength:.0f} positions" in line
    assert line.endswith(f"go from {shown(first[150])} to {shown(last[150])}.")


@slow
def test_closing_lines_of_attention(page, address, shown):
    open_lesson(page, address, "Recurrent")
    line = finish(page, "Recurrent")
    weights = Api(address, page).weights("decoder.cross", 0, 1)
    assert f"largest weight, {shown(weights.max())}" in line
    assert f"{shown(bits(weights), 2)} bits" in line

    open_lesson(page, address, "Vectors")
    line = finish(page, "Vectors")
    api, state = Api(address, page), state_of(page)
    site, head, query, key = state["site"], *(int(state[x]) for x in ("head", "query", "key"))
    vectors = api.get("vectors", site=site, head=head)
    score = vectors["query"][query] @ vectors["key"][key] / vectors["key"].shape[1] ** 0.5
    weights = api.weights(site, head, query)
    assert weights.argmax() == key
    assert f"that is {shown(score)}, and softmax makes {shown(weights.max())} of it" in line

    open_lesson(page, address, "Softmax")
    line = finish(page, "Softmax")
    api, state = Api(address, page), state_of(page)
    at = (state["site"], int(state["head"]), int(state["query"]))
    before = api.weights(*at)
    edit = {"kind": "temperature", "site": at[0], "head": at[1], "value": 0.3}
    request = {**api.trace["asked"], "target": api.trace["answer"]["ids"], "edits": [edit]}
    api.trace["id"] = api.post("answer", request)["id"]
    after = api.weights(*at)
    assert "You moved the temperature to 0.30;" in line
    assert line.endswith(f"fell from {shown(bits(before), 2)} to {shown(bits(after), 2)} bits.")

    open_lesson(page, address, "Heads")
    line = finish(page, "Heads")
    api = Api(address, page)
    it = [token.strip() for token in pieces_of(api)].index("it")
    spread = sorted((bits(api.weights(SELF, head, it)), head) for head in (0, 1, 4))
    assert f"layer 1 · head {spread[0][1]} is the sharpest" in line
    assert f"({shown(spread[0][0], 2)} bits of entropy)" in line
    assert f"({shown(spread[-1][0], 2)} bits)" in line


@slow
def test_closing_lines_of_layers_and_output(page, address, shown):
    open_lesson(page, address, "FeedForward")
    line = finish(page, "FeedForward")
    found = Api(address, page).get("units", path="encoder.layers.2.feed_forward", position=4)
    assert f"in layer 2, {found['n_active']} of {found['n_units']} units are active" in line
    assert line.endswith(f"with an activation of {shown(found['units'][0]['activation'])}.")

    open_lesson(page, address, "Residual")
    line = finish(page, "Residual")
    api, at = Api(address, page), int(state_of(page)["query"])
    added = np.linalg.norm(api.vector("encoder.layers.0.self.output", at))
    stream = np.linalg.norm(api.vector("encoder.embedding.output", at))
    assert f"length {shown(added, 2)} to" in line
    assert f"had length {shown(stream, 2)}: {100 * added / stream:.0f}%." in line

    open_lesson(page, address, "Output")
    line = finish(page, "Output")
    api = Api(address, page)
    token = api.trace["answer"]["tokens"][1]
    lens = api.get("lens")
    assert f"Before writing “{token['text'].strip()}”" in line
    assert f"a probability of {shown(token['probability'])};" in line
    assert line.endswith(f"is {shown(lens['entropy'][-1][1], 2)} bits.")
    other = lens["names"][str(lens["ids"][-1][1][1])].strip("▁ ")
    assert f"the most probable other token, “{other}”, had" in line

    open_lesson(page, address, "Complexity")
    line = finish(page, "Complexity")
    n, d = map(int, re.findall(r"[nd] = (\d+)", line))
    assert n > d
    assert f"needs {n * n * d:,} operations and the recurrent layer {n * d * d:,}" in line


@slow
def test_training_replays_a_run(page, address):
    open_lesson(page, address, "Training")
    assert "run=toy" in page.url
    finish(page, "Training")
    said = "() => document.querySelector('.closing').textContent.endsWith('from 3.000 to 1.000.')"
    page.wait_for_function(said)


@slow
def test_progress_is_kept_and_listed(page, address):
    open_lesson(page, address, "Scale")
    finish(page, "Scale")
    assert page.inner_text('[data-go="on"]').startswith("next lesson")
    page.click('[data-go="on"]')
    page.wait_for_selector('[data-course="Softmax"] .paragraph')
    open_lesson(page, address, "Tokens")  # another visit
    page.click(".course-toggle")
    done = page.locator('.course [data-done="true"]')
    assert [one.get_attribute("data-lesson") for one in done.all()] == ["Scale"]
    assert "learned" not in state_of(page)
    page.click('.course [data-lesson="Mask"]')
    page.wait_for_selector('[data-course="Mask"] .paragraph[aria-current]')
    page.click(".lesson .close")
    settle(page)
    assert page.is_hidden(".lesson")
    assert "lesson" not in state_of(page)


@slow
def test_scrolling_the_story_drives_the_page(page, address):
    open_lesson(page, address, "Vectors")
    page.mouse.move(200, 500)
    seen = []
    for _ in range(60):
        page.mouse.wheel(0, 120)
        settle(page)
        step = state_of(page).get("step", "0")
        if step not in seen:
            seen.append(step)
        if step == "6":
            break
    assert seen == sorted(seen)
    assert seen[-1] == "6"
    page.reload()  # the paragraph is part of the address
    page.wait_for_selector('.paragraph[data-step="6"][aria-current]')


@slow
def test_a_click_on_a_token_answers_a_question(page, address):
    open_lesson(page, address, "Vectors")
    page.click('[data-go="down"]')
    page.wait_for_selector(".veil")
    settle(page)
    page.click('.token[data-side="source"] >> nth=2')
    page.wait_for_selector('.paragraph[data-step="1"] .reveal:not(:empty)')
    assert page.inner_text('.paragraph[data-step="1"] .reveal').startswith("Right.")
    settle(page)
    assert page.locator(".plot svg.grid").bounding_box()["height"] > 300  # drawn at its full size


@slow
def test_the_spread_of_scores_is_measured(modules):
    def measure(width, scaled):
        args = [width, scaled]
        return modules(
            "call", given={"module": "course/random", "name": "measureSpread", "args": args}
        )

    for width in (4, 64, 1024):
        scaled, unscaled = measure(width, True), measure(width, False)
        assert unscaled["deviation"] == pytest.approx(width**0.5, rel=0.12)
        assert unscaled["deviation"] == pytest.approx(scaled["deviation"] * width**0.5)
        assert scaled["entropy"] > unscaled["entropy"]
    row = modules(
        "call",
        given={"module": "course/random", "name": "measureRow", "args": [{"float32": [1, 2, -1]}]},
    )
    weights = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64).softmax(0)
    jacobian = torch.diag(weights) - weights[:, None] * weights
    assert row["gradient"] == pytest.approx(float(jacobian.norm()), rel=1e-5)
    assert row["entropy"] == pytest.approx(bits(weights), rel=1e-5)


@slow
def test_reduced_motion_is_respected(browser, address):
    context = browser.new_context(reduced_motion="reduce", viewport={"width": 1366, "height": 768})
    page = context.new_page()
    open_lesson(page, address, "Scale")
    page.evaluate(
        """() => {
          const story = document.querySelector(".story");
          window.scrolls = [];
          const scrollTo = story.scrollTo.bind(story);
          story.scrollTo = (how) => { window.scrolls.push(how.behavior); scrollTo(how); };
        }"""
    )
    page.click('[data-go="down"]')
    assert page.evaluate("window.scrolls") == ["instant"]
    context.close()


@slow
@pytest.mark.parametrize("language", ["en", "ko"])
def test_on_a_phone_the_figure_stays_above_the_text(browser, address, language):
    viewport = {"width": 390, "height": 844}
    context = browser.new_context(viewport=viewport, has_touch=True, is_mobile=True)
    page = context.new_page()
    for name in ("Tokens", "Recurrent", "Vectors", "Scale", "Heads", "Complexity"):
        open_lesson(page, address, name, language)
        go_to_task(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        story = page.locator(".lesson").bounding_box()
        assert 300 < story["y"] < 500, name
        assert story["y"] + story["height"] <= 845, name
        shown = page.locator(".lesson-figure, .panes, .flow-page").all()
        boxes = [one.bounding_box() for one in shown if one.is_visible()]
        assert len(boxes) == 1, name
        assert boxes[0]["y"] + boxes[0]["height"] <= story["y"] + 1, name
        assert boxes[0]["height"] > 220, name
    context.close()


@slow
def test_lessons_of_a_file_use_its_trace(explorer):
    page = explorer.open("lesson=5")
    page.wait_for_selector(".paragraph[aria-current]")
    assert explorer.text(".lesson-bar h2") == "Query, key, value"
    page.click(".course-toggle")
    closed = page.locator(".course [aria-disabled]")
    assert "Tokens" in [one.get_attribute("data-lesson") for one in closed.all()]
    assert "regard serve" in explorer.text(".course li:first-child .note")
    page.evaluate("location.hash = '#lesson=1&language=ko'")
    page.wait_for_selector(".story .why")
    assert "en-de 모델이 필요" in explorer.text(".story .why")


@slow
def test_lessons_by_keyboard(explorer):
    page = explorer.open()
    assert page.is_hidden(".lesson")
    page.keyboard.press("l")
    explorer.settle()
    assert explorer.text(".lesson-bar h2") == "Tokens and pieces"
    for _ in range(4):
        page.keyboard.press(">")
        explorer.settle()
    assert explorer.text(".lesson-bar h2") == "Query, key, value"
    page.keyboard.press("<")
    explorer.settle()
    assert explorer.text(".course-toggle").startswith("4/17")
    page.keyboard.press("l")
    explorer.settle()
    assert page.is_hidden(".lesson")
