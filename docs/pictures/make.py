"""Take the screenshots of the explorer in the documentation, with the bundled models.

    python docs/pictures/make.py [NAME…]

Screenshots are quantized to few colors to keep them small.
"""

import sys
import threading
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from regard.server.app import address_of, bind, make_app
from regard.server.catalog import Catalog
from regard.server.service import Service

HERE = Path(__file__).parent
CHROMIUM = {
    "executable_path": "/usr/bin/chromium",
    "args": ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
}
MOST_BYTES = 150_000
SENTENCE = "A dog is sleeping in the garden."


@dataclass(frozen=True)
class Screenshot:
    """Page state, window and theme of a screenshot.

    Args:
        temperature: temperature to set for the open head.
    """

    state: str = ""
    model: str = "en-de"
    language: str = "en"
    theme: str = "light"
    width: int = 1280
    height: int = 800
    temperature: str = ""


HEAD = "page=explore"
PICTURES = {
    "explorer": Screenshot(),
    "explorer-ko": Screenshot(language="ko", theme="dark"),
    "head": Screenshot(HEAD),
    "head-ko": Screenshot(HEAD, language="ko", theme="dark"),
    "writing": Screenshot("page=decoding"),
    "writing-ko": Screenshot("page=decoding", language="ko", theme="dark"),
    "steps": Screenshot(f"{HEAD}&pane=steps", height=1000),
    "steps-ko": Screenshot(f"{HEAD}&pane=steps", language="ko", height=1000),
    "edits": Screenshot(HEAD, height=900, temperature="3"),
    "edits-ko": Screenshot(HEAD, language="ko", theme="dark", height=900, temperature="3"),
    "lessons": Screenshot("lesson=7", theme="dark"),
    "lessons-ko": Screenshot("lesson=7", language="ko"),
    "images": Screenshot(model="digits"),
    "worked": Screenshot("page=worked", height=1060),
    "phone": Screenshot(width=390, height=844),
    "phone-ko": Screenshot(HEAD, language="ko", theme="dark", width=390, height=844),
}


def draw(browser: Browser, address: str, name: str) -> None:
    """Take one screenshot."""
    one = PICTURES[name]
    context = browser.new_context(
        viewport={"width": one.width, "height": one.height},
        color_scheme="dark" if one.theme == "dark" else "light",
        device_scale_factor=2 if one.width < 600 else 1,
        locale="ko-KR" if one.language == "ko" else "en-GB",
    )
    page = context.new_page()
    asked = f"model={one.model}" + (f"&text={quote(SENTENCE)}" if one.model == "en-de" else "")
    page.goto(f"{address}/?{asked}#language={one.language}&{one.state}")
    ready = "data-measured" if HEAD in one.state else "data-ready"
    page.wait_for_selector(f"#regard[{ready}]", state="attached")
    if one.temperature:
        page.keyboard.press("e")
        page.fill(".edit-controls input[type=range]", one.temperature)
        page.wait_for_selector(".comparison .after:not(.pending)")
    page.wait_for_timeout(2500)
    save(name, page.screenshot())
    context.close()


def save(name: str, png: bytes) -> None:
    """Write a screenshot with as many colors as fit into MOST_BYTES."""
    whole = Image.open(BytesIO(png)).convert("RGB")
    for colors in (256, 128, 64, 32):
        held = BytesIO()
        few = whole.quantize(colors, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(held, "PNG", optimize=True)
        if held.tell() < MOST_BYTES:
            break
    (HERE / f"{name}.png").write_bytes(held.getvalue())
    print(f"{name}.png  {held.tell() / 1000:.0f} kB, {colors} colors")  # noqa: T201


def main() -> None:
    """Take the named screenshots, or all."""
    service = Service(Catalog())
    bound = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(service), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(**CHROMIUM)
            for name in sys.argv[1:] or PICTURES:
                draw(browser, address_of(bound, "127.0.0.1"), name)
            browser.close()
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
