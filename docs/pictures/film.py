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
from urllib.parse import quote

from PIL import Image, ImageDraw
from playwright.sync_api import Locator, Page, sync_playwright

SIZE = (1280, 800)
SHOWN = (960, 600)
SENTENCE = "The animal did not cross the street because it was too tired."
PLACE = """([path, position]) => {
  const board = document.querySelector(".flow-board");
  const [, zone, x] = JSON.parse(board.dataset.columns).find(([one]) => one === path);
  const row = board.querySelector(`[data-place="${position}"]`).getBoundingClientRect();
  return [board.getBoundingClientRect().left + (zone + x) / 2, row.top + row.height / 2];
}"""
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

    def shoot(self, milliseconds: int, *, settle: int = 900) -> None:
        """Record a frame after everything is drawn, which takes `settle` milliseconds."""
        self.page.evaluate(
            "(wait) => new Promise((done) => requestAnimationFrame(() => setTimeout(done, wait)))",
            settle,
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
    """Play a pass through the model, open a head, change it, and watch the answer being written."""
    whole_model(film)
    one_head(film)
    writing(film)


def whole_model(film: Film) -> None:
    """Play one pass, show the words on the rails, and open the head of some lines."""
    page = film.page
    film.shoot(1200)
    slider = page.locator(".flow-controls input")
    film.point(page.locator(".flow-controls .play"))
    for step in range(1, 31):
        slider.evaluate(MOVE, step / 30)
        film.shoot(110, settle=60)
    film.shoot(700)
    film.click(page.locator(".flow-lens-switch input"), 2200)
    film.click(page.locator(".flow-lens-switch input"), 300)
    film.pointer = page.evaluate(PLACE, ["decoder.layers.1.cross.residual", "1 10"])
    page.mouse.click(*film.pointer)
    page.wait_for_selector("#regard[data-measured]")
    film.shoot(1800)


def one_head(film: Film) -> None:
    """Select words, draw lines, and raise the temperature."""
    page = film.page
    words = page.locator(".token[data-side=output]")
    for i in (4, 12):
        film.click(words.nth(i), 1100)
    film.click(page.locator(".toolbar [data-choice=lines]"), 1500)
    film.click(page.locator(".toolbar [data-choice=grid]"), 500)
    film.click(page.locator(".edit-toggle"), 700)
    temperature = page.locator(".edit-controls input[type=range]").first
    for share in (0.4, 0.6, 0.8, 1.0):
        film.point(temperature)
        temperature.evaluate(MOVE, share)
        film.shoot(350, settle=400)
    page.wait_for_selector(".comparison .after:not(.pending)")
    film.shoot(2600)
    page.get_by_role("button", name="reset", exact=True).first.click()
    page.keyboard.press("e")
    page.wait_for_selector("#regard:not(.changed)")


def writing(film: Film) -> None:
    """Write the answer token by token."""
    page = film.page
    film.click(page.locator(".write-answer"), 200)
    written = page.locator(".decoding-controls input")
    page.wait_for_selector(".decoding-page[aria-busy=false]")
    page.locator(".decoding-controls .play").click()  # it starts by itself: pause
    count = int(written.get_attribute("max") or 1)
    for step in range(1, count + 1):
        written.evaluate(MOVE, step / count)
        film.shoot(420, settle=250)
    film.shoot(2500)


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
        page.goto(f"{address}/?model=en-de&text={quote(SENTENCE)}#language=en")
        page.wait_for_selector("#regard[data-ready] .flow-page[aria-busy=false]")
        film = Film(page)
        play(film)
        browser.close()
    film.save(path)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures/explorer.webp"))
