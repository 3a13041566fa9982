"""Images of the reader: drawn, dropped, refused."""

import pytest

from tests.server.page.conftest import SETTLE

# Drop a file anywhere on the page.
DROP = """([name, type, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name, { type }));
  document.querySelector(".board").dispatchEvent(
    new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


@pytest.fixture
def page(browser, address, client):
    context = browser.new_context(locale="ko-KR")
    page = context.new_page()
    page.set_default_timeout(20_000)
    body = b"\x89PNG"
    assert client.post("/api/images", content=body).json()["error"]["code"] == "invalid_image"
    picture = _png()
    name = client.post("/api/images", content=picture).json()["image"]
    page.goto(f"{address}/?model=vision&image={name}#page=explore")
    page.wait_for_selector("#regard[data-ready]")
    yield page
    context.close()


def _png() -> bytes:
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "gray").save(buffer, "PNG")
    return buffer.getvalue()


def test_a_drawing_is_classified_like_the_same_image_through_the_api(page, client):
    page.click("button.draw")
    box = page.locator(".drawing-pad canvas").bounding_box()
    page.mouse.move(box["x"] + 110, box["y"] + 30)
    page.mouse.down()
    for step in range(1, 8):
        page.mouse.move(box["x"] + 110, box["y"] + 30 + 20 * step)
    page.mouse.up()
    before = page.url
    page.wait_for_function("() => !document.querySelector('.status progress')")
    page.evaluate(SETTLE, 600)
    assert "upload" in page.url
    assert page.evaluate("history.length") <= 3, before  # strokes do not fill the history
    asked = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
    answer = client.post("/api/trace", json=asked).json()["answer"]["candidates"]
    shown = page.inner_text(".answer").split()
    assert shown[1] == answer[0]["name"]
    assert float(shown[2]) == pytest.approx(answer[0]["probability"], abs=6e-4)
    assert page.locator(".drawing-pad").count() == 1  # still open for the next stroke
    assert page.locator(".texts canvas.thumbnail").count() == 1


def test_a_dropped_file_that_is_not_an_image_is_refused_in_korean(page):
    page.evaluate(DROP, ["notes.txt", "text/plain", "not an image"])
    page.wait_for_selector(".status .error")
    assert "이미지를 읽을 수 없습니다" in page.inner_text(".status .error")


def test_a_vision_model_without_images_opens_with_a_drawn_one(browser, address, client):
    (one,) = client.get("/api/examples?model=vision").json()["examples"]
    assert one["image"] == "example:0"
    file = client.get("/api/examples/vision/0")
    assert (file.headers["content-type"], file.content[:4]) == ("image/png", b"\x89PNG")
    assert client.get("/api/examples/vision/1").json()["error"]["code"] == "unknown_example"
    context = browser.new_context(locale="en-GB")
    page = context.new_page()
    page.goto(f"{address}/?model=transformer&text=the+dog#page=explore")
    page.wait_for_selector("#regard[data-ready]")
    page.select_option("select.models", "vision")
    page.wait_for_selector(".own-image")
    page.wait_for_url(lambda url: "image=example" in url)
    assert page.locator(".input-bar .text").count() == 0  # no text of the model before
    answer = client.post("/api/trace", json={"model": "vision", "image": "example:0"}).json()
    assert answer["answer"]["candidates"][0]["name"] in page.inner_text(".answer")
    context.close()


def test_a_model_that_refuses_its_input_is_still_the_chosen_one(browser, address):
    context = browser.new_context(locale="en-GB")
    page = context.new_page()
    page.goto(f"{address}/?model=transformer&text=the+dog#page=explore")
    page.wait_for_selector("#regard[data-ready]")
    error = {"code": "invalid_image", "params": {}, "message": "refused"}
    page.route("**/api/trace", lambda route: route.fulfill(status=422, json={"error": error}))
    page.select_option("select.models", "vision")
    page.wait_for_selector(".status .error")
    assert page.input_value("select.models") == "vision"
    assert page.locator(".own-image").count() == 1
    assert page.locator(".input-bar .text").count() == 0
    context.close()


def test_a_link_with_a_text_for_a_model_of_images_opens_its_first_example(page, address):
    page.goto(f"{address}/?model=vision&text=hello#page=explore")
    page.wait_for_selector("#regard[data-ready]")
    assert "이미지를 읽습니다" in page.inner_text(".input-bar .error")
    assert page.locator(".texts canvas.thumbnail").count() == 1  # not the words of another model
