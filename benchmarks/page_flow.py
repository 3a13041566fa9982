"""Parts of `page.py`: the flow, the sweep over all heads, and imported models of usual sizes."""

import time
from statistics import median
from typing import Protocol

from playwright.sync_api import Page
from random_models import text_of

Rows = list[list[str]]
ROUNDS = 5
"""Texts that a model opens with; each is new to the server."""
N_TOKENS = (32, 512)
# Milliseconds from the end of the model's run until the whole flow is drawn.
FLOW_DRAWN = """() => {
  const start = times.computed[times.computed.length - 1];
  return Math.min(...times.flow.filter((x) => x > start)) - start;
}"""
# Plays one pass and returns the time of each frame. The button says "pause" meanwhile.
PLAY = """async () => {
  const play = document.querySelector(".flow-controls .play");
  const [idle, times] = [play.ariaLabel, []];
  play.click();
  while (play.ariaLabel === idle) await new Promise(requestAnimationFrame);
  while (play.ariaLabel !== idle) times.push(await new Promise(requestAnimationFrame));
  return times;
}"""
DRAWN = ".flow-page[aria-busy=false] .flow-board[data-at]"


def open_flow(page: Page, address: str, model: str, text: str) -> float:
    """Open a text with the flow, wait until everything is drawn, and return the seconds."""
    page.goto("about:blank")
    start = time.perf_counter()
    page.goto(f"{address}/?model={model}&text={text}#language=en&page=flow")
    page.wait_for_selector("#regard[data-ready]", timeout=300_000)
    page.wait_for_selector(DRAWN, timeout=300_000)
    return time.perf_counter() - start


def play(page: Page) -> list[float]:
    """Return the frames per second of three passes."""
    passes = [page.evaluate(PLAY) for _ in range(3)]
    return [1e3 * (len(times) - 1) / (times[-1] - times[0]) for times in passes]


def flow(page: Page, address: str, translator: str, sentences: list[str]) -> Rows:
    """Measure the flow of a translator, and of 512 tokens and 12 layers."""
    open_flow(page, address, translator, sentences[0])  # loads the model
    rows: Rows = []
    for name, model, texts in (
        (translator, translator, [f"{text} {i}" for i, text in enumerate(sentences)]),
        ("512 tokens and 12 layers", "wide", [text_of(512, 100 + i) for i in range(ROUNDS)]),
    ):
        drawn = []
        for text in texts:
            open_flow(page, address, model, text)
            drawn.append(page.evaluate(FLOW_DRAWN))
        frames = play(page)
        rows += [
            [
                f"flow of {name}: drawn after the model has run, median of {len(drawn)}",
                f"{median(drawn):.0f} ms (slowest {max(drawn):.0f})",
                "≤ 500 ms",
            ],
            [
                "… playing one pass, median of 3",
                f"{median(frames):.0f} frames/s (best {max(frames):.0f})",
                "≥ 50",
            ],
        ]
    return rows


def sweep(page: Page, address: str, translator: str, text: str) -> Rows:
    """Measure switching every head off in turn."""
    page.goto("about:blank")
    page.goto(f"{address}/?model={translator}&text={text}#language=en&page=explore")
    page.wait_for_selector("#regard[data-measured]", timeout=300_000)
    start = time.perf_counter()
    page.click(".sweep-start")
    page.wait_for_selector(".sweep-table", timeout=300_000)
    taken = time.perf_counter() - start
    count = page.locator(".sweep-table [data-head]").count()
    return [[f"sweep over all {count} heads of {translator}", f"{taken:.1f} s", "≤ 20 s"]]


class Counter(Protocol):
    """Counts transferred bytes."""

    def total(self) -> int: ...


def imported(page: Page, address: str, models: list[str], traffic: Counter) -> Rows:
    """Measure opening imported models, after a first text has loaded the weights."""
    rows: Rows = []
    for name in models:
        open_flow(page, address, name, text_of(8, 7))
        for n_tokens in N_TOKENS:
            seconds, sizes = [], []
            for seed in range(ROUNDS):
                before = traffic.total()
                seconds.append(open_flow(page, address, name, text_of(n_tokens, seed)))
                page.goto("about:blank")
                sizes.append(traffic.total() - before)
            rows += [
                [
                    f"{name}, {n_tokens} tokens: opened, median of {ROUNDS}",
                    f"{median(seconds):.1f} s (slowest {max(seconds):.1f})",
                    "≤ 3 s",
                ],
                ["… bytes transferred, including the page", f"{max(sizes) / 1e6:.2f} MB", "≤ 1 MB"],
            ]
    return rows
