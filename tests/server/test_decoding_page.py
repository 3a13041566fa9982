"""Decoding in a real browser: what is written is the answer, and its numbers are the model's."""

import json
from urllib.request import urlopen

import pytest

from regard.model import load

TEXT = "the dog is sleeping"


def opened(page, address, *, model="transformer", text=TEXT, motion=False, state="page=decoding"):
    page.emulate_media(reduced_motion="no-preference" if motion else "reduce")
    page.goto(f"{address}/?model={model}&text={text}#language=en&{state}")
    page.wait_for_selector("#regard[data-ready]")
    return page


def ready(page):
    page.wait_for_selector(".decoding-page[aria-busy=false][data-at]")
    return page


def numbers(page, selector, name):
    return page.eval_on_selector_all(selector, f"all => all.map((x) => +x.dataset.{name})")


@pytest.mark.parametrize("model", ["transformer", "seq2seq"])
def test_the_text_is_the_answer_and_its_numbers_those_of_the_trace(page, address, trace, model):
    info = trace(model, TEXT)
    ready(opened(page, address, model=model))
    tokens = info["answer"]["tokens"]
    assert page.locator(".written-token").count() == len(tokens)
    for i in sorted({0, 1, len(tokens) // 2, len(tokens) - 1}):
        page.locator(".written-token").nth(i).click()
        page.wait_for_selector(f".decoding-page[data-at='{i + 1}']")
        (chance,) = numbers(page, ".candidate-row.chosen", "probability")
        assert chance == pytest.approx(tokens[i]["probability"], abs=1e-6)
        page.locator("input[aria-label='tokens written']").fill(str(len(tokens)))
    won = numbers(page, ".tree-node.won.finished", "score")
    assert won == [pytest.approx(info["answer"]["score"], abs=1e-4)]
    rows = numbers(page, ".row.newest circle", "weight")
    assert sum(rows) == pytest.approx(1, abs=1e-4)


def test_it_plays_pauses_and_steps(page, address):
    opened(page, address, motion=True, state="page=flow").click(".write-answer")
    page.wait_for_selector(".decoding-page[data-at='1']")
    page.wait_for_selector(".decoding-page[data-at='2']")
    page.click(".decoding-controls .play")
    at = int(page.get_attribute(".decoding-page", "data-at") or 0)
    page.click(".decoding-controls .back")
    page.wait_for_selector(f".decoding-page[data-at='{at - 1}']")
    page.click(".decoding-controls .next")
    page.wait_for_selector(f".decoding-page[data-at='{at}']")
    page.focus(".decoding-page")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(f".decoding-page[data-at='{at - 1}']")


def test_another_token_writes_the_rest_from_there(page, address):
    ready(opened(page, address))
    page.locator(".written-token").nth(0).click()
    other = page.locator(".candidate-row:not(.chosen)").first
    name = other.locator(".name").inner_text()
    other.click()
    page.wait_for_selector(".written-token.forced")
    assert page.locator(".written-token").first.inner_text() == name
    assert name in page.inner_text(".branch-note")
    page.click(".branch-note button >> nth=0")
    page.wait_for_selector(".written-token.forced", state="detached")


def test_sampling_gives_the_text_of_generate(page, address, folders):
    ready(opened(page, address, model="decoder", text="the dog"))
    page.fill(".sampling-line input.number >> nth=0", "5")
    page.keyboard.press("Tab")
    ready(page).wait_for_function("document.querySelectorAll('.candidate-row.cut').length > 0")
    page.fill(".sampling-line input.number >> nth=2", "2")  # a text that is read as it was written
    page.keyboard.press("Tab")
    said = "document.querySelector('.command code')?.textContent.includes('--seed 2')"
    ready(page).wait_for_function(said)
    options = {"max_tokens": 40, "top_k": 5, "seed": 2}
    wanted = load(folders["decoder"]).generate("the dog", **options)
    command = page.locator(".command code").text_content()
    assert "--top-k 5 --seed 2" in (command or "")
    assert "torch and numpy" in (page.locator(".command .engine").text_content() or "")
    with page.expect_request(
        lambda one: one.url.endswith("/api/trace") and one.method == "POST"
    ) as asked:
        page.click(".branch-note button >> nth=-1")  # explores what was written
    assert json.loads(asked.value.post_data or "{}")["text"] == wanted.text


def test_keys_that_are_not_written_yet_are_not_shown(page, address):
    ready(opened(page, address, model="decoder", text="the dog"))
    given = page.locator(".strip .given").count()
    page.locator(".written-token").nth(1).click()
    page.wait_for_selector(".decoding-page[data-at='2']")
    assert numbers(page, ".decoding-stage .key", "key") == list(range(given + 1))


def test_nothing_moves_under_reduced_motion(page, address):
    ready(opened(page, address))
    page.click(".decoding-controls .play")
    page.wait_for_selector(".decoding-page[data-at='1']")
    moving = "document.getAnimations().filter((x) => x.timeline instanceof DocumentTimeline)"
    assert page.evaluate(f"{moving}.length") == 0  # scrolling drives the others


def test_the_route_is_described(address):
    paths = json.load(urlopen(f"{address}/api/openapi.json"))["paths"]
    assert "/api/trace/{id}/decoding" in paths
