"""A real browser, pages made of real traces, and the page's modules by themselves."""

import json
import mimetypes
import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, BrowserContext, Page, Route

from regard.model import Model
from regard.models.vision import Vision, VisionConfig
from regard.server.html_export import PAGE, as_html, write_html
from regard.trace.capture import trace_model
from regard.trace.trace import Trace
from tests.analysis.translators import small_translator

ORIGIN = "http://regard.test"
PROBE = Path(__file__).with_name("probe.js")
# Timers fire in order, so waiting in the page also waits for work that was deferred before,
# however busy the machine is. While heads are loading, the page is marked as busy.
SETTLE = """async (time) => {
  const frame = () => new Promise(requestAnimationFrame);
  const rest = async (time) => {
    await frame();
    await frame();
    await new Promise((done) => setTimeout(done, time));
  };
  await rest(time);
  while (document.querySelector('[aria-busy="true"]')) await rest(time);
  await frame();
}"""
ADDRESS_DELAY = 125
"""Milliseconds after which the page has written its state to the address."""


def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Mark all tests of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def translator() -> Model:
    model = small_translator(seed=3, vocab_size=64)
    with torch.no_grad():  # sharper heads: random ones look everywhere alike
        for name, weight in model.module.named_parameters():
            if "to_query.weight" in name or "to_key.weight" in name:
                weight.mul_(2.5)
    return model


@pytest.fixture(scope="session")
def trace(translator) -> Trace:
    return trace_model(translator, "the dog is sleeping", "der Hund schläft")


@pytest.fixture(scope="session")
def image_trace() -> Trace:
    torch.manual_seed(4)
    config = VisionConfig(
        n_classes=3, image_size=12, patch_size=3, d_model=16, n_heads=2, n_layers=2, d_ff=16
    )
    model = Model(module=Vision(config).eval(), task="classification", labels=("cat", "dog", "cup"))
    return trace_model(model, torch.rand(3, 12, 12) * 2 - 1)


@pytest.fixture(scope="session")
def file(trace, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "trace.html"
    write_html(trace, path, title="en-de")
    return path


@pytest.fixture(scope="session")
def image_file(image_trace, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "image.html"
    write_html(image_trace, path)
    return path


@pytest.fixture(scope="session")
def embedded():
    """A function from a trace to the JSON that its HTML file embeds."""

    def read(trace: Trace, **options) -> dict:
        html = as_html(trace, **options)
        return json.loads(re.search(r'id="regard-data">(.*?)</script>', html, re.DOTALL)[1])

    return read


class Explorer:
    """A browser tab with the explorer, its console errors and its requests."""

    def __init__(self, page: Page):
        self.page, self.path = page, Path()
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def reset(self, path: Path) -> "Explorer":
        """Prepare the tab for another test."""
        self.page.goto("about:blank")
        self.path = path
        self.errors.clear()
        self.requests.clear()
        return self

    def open(self, state: str = "") -> Page:
        if self.page.url != "about:blank":
            self.page.goto("about:blank")
        self.page.goto(f"{self.path.as_uri()}#language=en&{state}")
        self.page.wait_for_selector("#regard[data-ready]")
        return self.page

    def state(self) -> dict[str, str]:
        """Return the state in the address, after it has been written."""
        self.settle(ADDRESS_DELAY)
        hash_ = self.page.evaluate("decodeURI(location.hash)")
        return dict(part.split("=", 1) for part in hash_.lstrip("#").split("&") if "=" in part)

    def text(self, selector: str) -> str:
        return " ".join(self.page.inner_text(selector).split())

    def settle(self, milliseconds: int = 50):
        """Wait until everything that follows a change is drawn."""
        self.page.evaluate(SETTLE, milliseconds)


@pytest.fixture(scope="session")
def tabs(browser: Browser):
    """Tabs that tests share: creating one takes as long as a test."""
    contexts: list[BrowserContext] = []
    found: dict[str, Explorer] = {}

    def get(width: int, height: int, options: dict) -> Explorer:
        key = repr((width, height, sorted(options.items())))
        if key not in found:
            viewport = {"width": width, "height": height}
            contexts.append(browser.new_context(viewport=viewport, **options))
            contexts[-1].set_default_timeout(15_000)
            found[key] = Explorer(contexts[-1].new_page())
        return found[key]

    yield get
    for context in contexts:
        context.close()


@pytest.fixture
def open_page(tabs):
    """Opens the HTML file of a trace; fails the test if the page reports an error."""
    used: list[Explorer] = []

    def make(path: Path, *, width=1280, height=800, **options) -> Explorer:
        explorer = tabs(width, height, options).reset(path)
        explorer.page.set_viewport_size({"width": width, "height": height})
        used.append(explorer)
        return explorer

    yield make
    assert [error for explorer in used for error in explorer.errors] == []


@pytest.fixture
def explorer(open_page, file) -> Explorer:
    return open_page(file)


@pytest.fixture(scope="session")
def modules(browser: Browser):
    """Calls a function of probe.js in a blank page that can import the page's modules."""
    context = browser.new_context()
    page = context.new_page()
    data: dict[str, str] = {}

    def serve(route: Route):
        name = re.sub(r"^https?://[^/]+/", "", route.request.url)
        if name == "data.json":
            route.fulfill(body=data[name], content_type="application/json")
        elif name == "":
            body = "<!doctype html><div class='regard'></div>"
            route.fulfill(body=body, content_type="text/html")
        else:
            path = PROBE if name == PROBE.name else PAGE / name
            kind = mimetypes.guess_type(name)[0] or "text/plain"
            route.fulfill(body=path.read_bytes(), content_type=kind)

    page.route("**/*", serve)
    page.goto(f"{ORIGIN}/")

    def run(name: str, embedded: object = None, given: object = None):
        data["data.json"] = json.dumps(embedded)
        return page.evaluate(
            """async ([name, given]) => (await import("/probe.js"))[name](given)""", [name, given]
        )

    yield run
    context.close()


@pytest.fixture(scope="session")
def shown():
    """A function from a number to its text on the page."""

    def write(x: float, digits: int = 3) -> str:
        size = abs(x)
        places = digits - 2 if size >= 100 else digits - 1 if size >= 10 else digits
        text = f"{x:.{places}f}"
        return (text.lstrip("-") if float(text) == 0 else text).replace("-", "−")

    return write
