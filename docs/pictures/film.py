"""Record the animation of the README: the explorer with bundled models in a browser.

    .venv/bin/python docs/pictures/film.py [docs/pictures/explorer.webp]

Needs what `make test` installs: Playwright and Chromium.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Locator, Page, sync_playwright

SIZE = (1280, 830)
SHOWN = (1000, 648)
SENTENCE = "The dog is sleeping in the garden."
DATE = "12 août 2021"
WRITES_A_DATE = "() => document.querySelector('.answer').textContent.includes('-')"
MOVE = """(slider, share) => {
  slider.value = Number(slider.min) + share * (Number(slider.max) - Number(slider.min));
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  slider.dispatchEvent(new Event("change", { bubbles: true }));
}"""
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
TIMEOUT = 120_000


class Film:
    """Frames of a page with their durations; the mouse pointer is drawn in."""

    def __init__(self, page: Page) -> None:
        self.page, self.pointer = page, (640.0, 400.0)
        self.pictures: list[Image.Image] = []
        self.times: list[int] = []

    def shoot(self, milliseconds: int) -> None:
        """Record a frame after everything is drawn."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 700)))"
        )
        picture = Image.open(BytesIO(self.page.screenshot())).convert("RGB")
        draw, (x, y) = ImageDraw.Draw(picture), self.pointer
        arrow = [(0, 0), (0, 20), (5, 15), (9, 23), (12, 21), (8, 14), (15, 14)]
        draw.polygon([(x + a, y + b) for a, b in arrow], fill="#111111", outline="#FFFFFF")
        self.pictures.append(picture.resize(SHOWN, Image.Resampling.LANCZOS))
        self.times.append(milliseconds)

    def point(self, target: Locator) -> None:
        """Move the pointer to an element."""
        box = target.bounding_box()
        assert box is not None
        self.pointer = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.page.mouse.move(*self.pointer)

    def click(self, target: Locator, milliseconds: int) -> None:
        """Click on an element and record the result."""
        self.point(target)
        self.page.mouse.down()
        self.page.mouse.up()
        self.shoot(milliseconds)

    def save(self, path: Path) -> None:
        """Write the frames as an animated image."""
        first, *others = self.pictures
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=self.times,
            loop=0,
            quality=72,
            method=6,
        )


def play(film: Film) -> None:
    """Show a sentence with one of its heads, then a date with a high attention temperature."""
    page = film.page
    film.shoot(1000)
    ask(film, SENTENCE, "dog")
    words = page.locator(".token[data-side=output]")
    for i in (1, 2):
        film.click(words.nth(i), 1200)
    film.click(page.locator('[data-choice="lines"]'), 1600)
    film.click(page.locator('[data-choice="grid"]'), 700)
    film.point(page.locator("select.models"))
    page.select_option("select.models", "dates")
    page.wait_for_function(WRITES_A_DATE, timeout=TIMEOUT)
    film.shoot(900)
    ask(film, DATE, "û")
    slider = page.locator(".edit-controls input[type=range]").first
    for share in (0.5, 0.75, 1.0):
        film.point(slider)
        slider.evaluate(MOVE, share)
        film.shoot(400)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(3000)
    film.point(slider)  # the layout has moved for the answer
    film.shoot(3500)


def ask(film: Film, text: str, token: str) -> None:
    """Type a text and wait until one of its tokens is shown."""
    field = film.page.locator("textarea.text")
    film.point(field)
    for share in (0.3, 0.6, 1.0):
        field.fill(text[: round(share * len(text))])
        film.shoot(220)
    film.page.keyboard.press("Enter")
    tokens = film.page.locator(".token[data-side=source]", has_text=token)
    tokens.first.wait_for(timeout=TIMEOUT)
    film.shoot(1500)


@contextmanager
def served(model: str) -> Iterator[str]:
    """Start a server for the block and give its URL."""
    command = [sys.executable, "-u", "-m", "regard", "serve", model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        try:
            yield found[0]
        finally:
            server.terminate()


def main(path: Path) -> None:
    """Record and write the animation."""
    with served("en-de") as address, sync_playwright() as play_wright:
        browser = play_wright.chromium.launch(
            executable_path=shutil.which("chromium"), args=OPTIONS
        )
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.set_default_timeout(TIMEOUT)
        page.goto(f"{address}/#language=en")
        page.wait_for_selector("#regard[data-ready][data-pictures]")
        film = Film(page)
        play(film)
        browser.close()
    film.save(path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures/explorer.webp"))
