"""Lens and attribution on the page: their numbers are those of Python, by mouse and keyboard."""

import pytest

from tests.server.conftest import window

TEXT = "the dog is sleeping"
SITE = "decoder.layers.0.cross"


@pytest.fixture
def opened(browser, address):
    """Open a view of a text with a model of the real server; the page must log no errors."""
    with window(browser, address) as page:

        def visit(view, *, language="en", width=1366):
            page.goto("about:blank")
            page.set_viewport_size({"width": width, "height": 768})
            place = f"page=explore&language={language}&site={SITE}&head=0&query=1&key=0"
            page.goto(f"{address}/?model=transformer&text={TEXT}#{place}&view={view}")
            page.wait_for_selector(".custom-view[data-ready]")
            return page

        yield visit


def test_every_cell_of_the_lens_is_that_of_python(opened, model):
    page, found = opened("lens"), model.trace(TEXT).lens()
    cells = page.locator("table.lens td button")
    assert cells.count() == found.ids[..., 0].numel()
    titles = cells.evaluate_all("cells => cells.map((cell) => cell.title)")
    shown = [float(title.rsplit(": ", 1)[1]) for title in titles]
    assert shown == pytest.approx(found.probabilities[..., 0].flatten().tolist(), rel=1e-5)
    page.click("[data-choice=divergence]")
    titles = cells.evaluate_all("cells => cells.map((cell) => cell.title)")
    shown = [float(title.rsplit(": ", 1)[1]) for title in titles]
    assert shown == pytest.approx(found.divergence.flatten().tolist(), abs=1e-5)


def test_a_cell_opens_its_most_probable_tokens(opened, model):
    page, found = opened("lens"), model.trace(TEXT).lens()
    page.click('[data-station="1"][data-position="2"]')
    page.wait_for_function("() => location.hash.includes('query=2')")
    shown = page.locator("ol.lens-candidates .digits").evaluate_all(
        "all => all.map((x) => x.title)"
    )
    assert [float(x) for x in shown] == pytest.approx(found.probabilities[1, 2].tolist(), rel=1e-5)
    page.keyboard.press("ArrowDown")
    assert page.locator('[aria-pressed="true"]', has=page.locator(".lens-word")).count() == 1
    place = page.evaluate("({ ...document.activeElement.dataset })")
    assert place == {"station": "2", "position": "2"}


def test_bars_and_sum_are_those_of_python(opened, model):
    page, found = opened("attribution"), model.trace(TEXT).attribution(position=1)
    if len(found.parts) > 16:
        page.click(".more-parts")
    bars = page.locator(".parts-holder ol.parts")  # the steps have a list, too
    shown = bars.locator(".digits").evaluate_all("all => all.map((x) => x.title)")
    numbers = [float(x.replace("−", "-")) for x in shown]
    assert numbers == pytest.approx([part.value for part in found.ranked()], rel=1e-5, abs=1e-6)
    assert f"{found.logit:.3f}".replace("-", "−")[:5] in page.inner_text(".parts-sum")
    bars.locator("button.name").first.click()
    page.wait_for_function("() => !location.hash.includes('view=attribution')")
    best = next(part for part in found.ranked() if part.kind == "head")
    assert f"head={best.head}" in page.url


def test_the_steps_end_at_the_answer(opened, model):
    page, found = opened("lens"), model.trace(TEXT).attribution(position=1)
    page.wait_for_selector("[data-step=answer] ol.parts")
    assert page.locator(".step").last.get_attribute("data-step") == "answer"
    first = page.locator("[data-step=answer] ol.parts .digits").first.get_attribute("title")
    assert float((first or "").replace("−", "-")) == pytest.approx(
        found.ranked()[0].value, rel=1e-5
    )
    page.click("[data-step=answer] .to-cause >> nth=0")
    page.wait_for_selector(".parts-holder ol.parts")


def test_the_lens_is_not_shown_where_the_model_does_not_predict(opened):
    page = opened("lens")
    assert page.locator("[data-choice=lens]").get_attribute("aria-checked") == "true"
    page.evaluate("location.hash = 'language=en&site=encoder.layers.0.self&head=0&query=0&key=0'")
    page.wait_for_selector('[data-view="grid"]')
    assert page.locator("[data-choice=lens]").get_attribute("aria-checked") == "false"


def test_both_views_speak_korean_on_a_phone(opened):
    for view, words in (("lens", "정규화"), ("attribution", "로짓")):
        page = opened(view, language="ko", width=390)
        assert words in page.inner_text(".custom-view figcaption")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_words_can_be_opened_from_a_head_of_the_encoder_and_left_again(browser, address):
    here = "site=encoder.layers.0.self&head=1&query=3&key=2"
    with window(browser, address) as page:
        page.goto(f"{address}/?model=transformer&text={TEXT}#page=explore&language=en&{here}")
        page.wait_for_selector("#regard[data-ready]")

        def choose(view):
            if not page.is_visible(f".toolbar [data-choice={view}]"):
                page.click(".toolbar .more summary")
            page.click(f".toolbar [data-choice={view}]")

        choose("attribution")
        page.wait_for_selector(".custom-view[data-ready] ol.parts")
        page.wait_for_url(lambda url: f"site={SITE}" in url)
        choose("lens")
        page.wait_for_selector("table.lens")
        choose("grid")
        page.wait_for_url(lambda url: here in url)
