"""A real browser, pages made of real traces, and the page's modules by themselves."""

import json
import mimetypes
import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, Route

from regard.model import Model
from regard.models.vision import Vision, VisionConfig
from regard.server.html_export import PAGE, write_html
from regard.trace.capture import trace_model
from regard.trace.trace import Trace
from tests.analysis.translators import small_translator

HERE = "http://regard.test"
PROBE = Path(__file__).with_name("probe.js")
SETTLE = """async (time) => {
  const frame = () => new Promise(requestAnimationFrame);
  const rest = async (time) => {
    await frame();
    await frame();
    await new Promise((done) => setTimeout(done, time));
  };
  await rest(time);
  while (document.querySelector('[aria-busy="true"]')) await rest(time);
  await rest(0); // what came last is drawn with the next picture on the screen
}"""


@pytest.fixture(scope="session")
def translator() -> Model:
    model = small_translator(seed=3, vocab_size=64)
    with torch.no_grad():  # heads with something to see: random ones look everywhere alike
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


class Explorer:
    """A page with the explorer in it, and everything that went wrong there."""

    def __init__(self, page: Page, path: Path):
        self.page, self.path = page, path
        self.faults: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda m: self.faults.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, state: str = "") -> Page:
        self.page.goto("about:blank")
        self.page.goto(f"{self.path.as_uri()}#language=en&{state}")
        self.page.wait_for_selector("#regard[data-ready]")
        return self.page

    def state(self) -> dict[str, str]:
        """The state that the address holds, once it has settled."""
        self.settle(200)
        hash_ = self.page.evaluate("decodeURI(location.hash)")
        return dict(part.split("=", 1) for part in hash_.lstrip("#").split("&") if "=" in part)

    def text(self, selector: str) -> str:
        return " ".join(self.page.inner_text(selector).split())

    def settle(self, milliseconds: int = 100):
        """Until everything that follows a change is drawn, however busy the machine is.

        The page's own clock is asked: what it has put off before comes before what is put off now.
        Heads that are still being opened make the page say that it is busy.
        """
        self.page.evaluate(SETTLE, milliseconds)


@pytest.fixture
def open_page(browser: Browser, request):
    """Opens a file of a trace in a fresh window; at the end nothing may have gone wrong."""
    windows = []

    def make(path: Path, *, width=1280, height=800, **options) -> Explorer:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        explorer = Explorer(context.new_page(), path)
        windows.append((context, explorer))
        return explorer

    yield make
    faults = [fault for _, explorer in windows for fault in explorer.faults]
    for context, _ in windows:
        context.close()
    assert faults == []


@pytest.fixture
def explorer(open_page, file) -> Explorer:
    return open_page(file)


@pytest.fixture
def modules(browser: Browser):
    """A blank page that can import the page's modules, and data that a test puts beside them."""
    context = browser.new_context()
    page = context.new_page()
    beside: dict[str, str] = {}

    def serve(route: Route):
        name = re.sub(r"^https?://[^/]+/", "", route.request.url)
        if name in beside:
            route.fulfill(body=beside[name], content_type="application/json")
        elif name == "":
            route.fulfill(
                body="<!doctype html><div class='regard'></div>", content_type="text/html"
            )
        else:
            path = PROBE if name == PROBE.name else PAGE / name
            kind = mimetypes.guess_type(name)[0] or "text/plain"
            route.fulfill(body=path.read_bytes(), content_type=kind)

    page.route("**/*", serve)
    page.goto(f"{HERE}/")

    def run(name: str, data: object = None, given: object = None):
        """What the function of this name in probe.js finds out about the data."""
        beside["data.json"] = json.dumps(data)
        return page.evaluate(
            """async ([name, given]) => (await import("/probe.js"))[name](given)""", [name, given]
        )

    yield run
    context.close()


@pytest.fixture(scope="session")
def shown():
    """A function from a number to how the page writes it."""

    def write(x: float, digits: int = 3) -> str:
        size = abs(x)
        places = digits - 2 if size >= 100 else digits - 1 if size >= 10 else digits
        text = f"{x:.{places}f}"
        return (text.lstrip("-") if float(text) == 0 else text).replace("-", "−")

    return write
