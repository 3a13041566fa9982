"""How the explorer feels: bytes, nodes, waits and frames a second, in headless Chromium.

    python benchmarks/page.py [-o docs/benchmarks/page.md] [--long 16384]

The models have random weights: 12 layers of 12 heads for texts of 512 tokens, 2 layers of 12 heads
for the long text, whose trace would else take minutes. The server is a process of its own.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

import torch
from playwright.sync_api import Page, sync_playwright
from timing import about, table

from regard.bundle.bundle import Bundle
from regard.models.build import build
from regard.models.config import config_from_dict
from regard.text.train import train_tokenizer

WORDS = ["the", "dog", "is", "sleeping", "in", "a", "garden", "while", "two", "children", "play"]
FRAMES = 120
# Before anything else runs: note when the page is drawn, and after which answer.
WATCH = """
addEventListener("DOMContentLoaded", () => {
  const root = document.getElementById("regard");
  window.drawn = [];
  new MutationObserver(() => {
    if (!root.querySelector(".panes")) return;
    const done = performance.now();
    requestAnimationFrame(() => requestAnimationFrame(() => drawn.push([done, performance.now()])));
  }).observe(root, { childList: true });
});
"""
SINCE_TRACE = """() => {
  const all = performance.getEntriesByType("resource");
  const ready = all.filter((x) => x.name.endsWith("/api/trace"));
  const end = ready[ready.length - 1]?.responseEnd;
  const after = drawn.filter(([done]) => done >= end);
  return after.length ? after[0][1] - end : null;
}"""
OPEN_HEAD = """async () => {
  const name = () => document.querySelector(".pattern .headname").textContent;
  const [start, before] = [performance.now(), name()];
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "]", bubbles: true }));
  while (name() === before) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""
# Does something once for each picture on the screen; the time that each of them took.
EACH_FRAME = """async ([kind, frames]) => {
  const over = document.querySelector(".board svg.over");
  const box = over.getBoundingClientRect();
  const slider = document.querySelector(".hands input[type=range]");
  const at = (x, y) => ({ clientX: box.left + x * box.width, clientY: box.top + y * box.height });
  const send = (name, x, y, more = {}) => over.dispatchEvent(
    new (name === "wheel" ? WheelEvent : PointerEvent)(name,
      { ...at(x, y), bubbles: true, ...more }));
  const acts = {
    hover: (t) => send("pointermove", 0.3 + 0.5 * t, 0.35 + 0.5 * Math.abs(Math.sin(9 * t))),
    slide: (t) => {
      slider.value = -1 + 2 * t;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    },
    zoom: (t) => send("wheel", 0.5, 0.5, { deltaY: t < 0.5 ? -40 : 40, cancelable: true }),
    pan: (t) => send("pointermove", 0.5 + 0.3 * Math.sin(6 * t), 0.5, { buttons: 1 }),
  };
  if (kind === "pan") send("pointerdown", 0.5, 0.5, { buttons: 1 });
  const times = [];
  for (let i = 0; i < frames; i++) {
    acts[kind](i / frames);
    times.push(await new Promise(requestAnimationFrame));
  }
  if (kind === "hover") send("pointerleave", 0, 0);
  return times;
}"""


def save_encoder(folder: Path, *, width: int, n_layers: int) -> None:
    tokenizer = train_tokenizer(WORDS * 2, vocab_size=100, min_frequency=1)
    torch.manual_seed(0)
    config = {
        "family": "encoder",
        "n_vocab": len(tokenizer),
        "d_model": width,
        "n_heads": 12,
        "d_ff": 2 * width,
        "n_layers": n_layers,
        "positions": "sinusoidal",
    }
    model = build(config_from_dict(config)).eval()
    Bundle(model=model, task="masked", tokenizer=tokenizer).save(folder)


def text_of(n_tokens: int) -> str:
    """So many tokens, with the two that the tokenizer puts around them."""
    random.seed(0)
    return " ".join(random.choice(WORDS) for _ in range(n_tokens - 2))


def frames_per_second(page: Page, kind: str) -> float:
    """The best of three rounds: what else runs on the machine only ever slows it."""
    rounds = (page.evaluate(EACH_FRAME, [kind, FRAMES]) for _ in range(3))
    return max(1e3 * (len(times) - 1) / (times[-1] - times[0]) for times in rounds)


def measure_512(page: Page, address: str) -> list[list[str]]:
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    sizes, urls = [], {}
    session.on(
        "Network.responseReceived", lambda x: urls.update({x["requestId"]: x["response"]["url"]})
    )
    session.on(
        "Network.loadingFinished",
        lambda x: sizes.append((urls.get(x["requestId"], ""), x["encodedDataLength"])),
    )
    page.goto(f"{address}/?model=wide&text={text_of(512)}#language=en")
    page.wait_for_selector("#regard[data-pictures]", timeout=300_000)
    page.wait_for_timeout(1000)
    data = sum(size for url, size in sizes if "/api/" in url)
    paints = []
    for _ in range(5):
        page.reload()
        page.wait_for_selector("#regard[data-pictures]", timeout=300_000)
        page.wait_for_timeout(500)
        paints.append(page.evaluate(SINCE_TRACE))
    nodes = page.evaluate("document.getElementsByTagName('*').length")
    heads = [page.evaluate(OPEN_HEAD) for _ in range(12)]
    hover, slide = (frames_per_second(page, kind) for kind in ("hover", "slide"))
    return [
        ["overview of 512 tokens, 12 × 12 heads: transferred", f"{data / 1e6:.2f} MB", "≤ 1 MB"],
        [
            "… first useful paint after the trace is ready, median of 5",
            f"{median(paints):.0f} ms",
            "≤ 500 ms",
        ],
        ["… fastest", f"{min(paints):.0f} ms", ""],
        ["… elements on the page", f"{nodes:,}", "≤ 2,000"],
        ["opening a head of 512 × 512, median of 12", f"{median(heads):.0f} ms", "≤ 100 ms"],
        ["… 95th percentile", f"{quantiles(heads, n=20)[-1]:.0f} ms", ""],
        ["hover over 512 × 512", f"{hover:.0f} frames/s", "≥ 50"],
        ["temperature slider at 512 × 512", f"{slide:.0f} frames/s", "≥ 50"],
    ]


def measure_long(page: Page, address: str, n_tokens: int) -> list[list[str]]:
    page.goto(f"{address}/?model=long&text=the dog#language=en")
    page.wait_for_selector("#regard[data-pictures]", timeout=300_000)
    page.evaluate("drawn.length = 0")
    page.fill(".ask input.text", text_of(n_tokens))
    start = time.perf_counter()
    page.click(".ask .run")
    page.wait_for_selector(".texts .more", timeout=1_200_000)
    traced = time.perf_counter() - start
    page.wait_for_timeout(500)
    painted = page.evaluate(SINCE_TRACE)
    page.wait_for_load_state("networkidle", timeout=600_000)
    nodes = page.evaluate("document.getElementsByTagName('*').length")
    zoom, pan = (frames_per_second(page, kind) for kind in ("zoom", "pan"))
    return [
        [
            f"{n_tokens:,} tokens (2 × 12 heads): asked for, traced and opened",
            f"{traced:.1f} s",
            "opens",
        ],
        ["… first useful paint after the trace is ready", f"{painted:.0f} ms", ""],
        ["… elements on the page", f"{nodes:,}", "≤ 2,000"],
        ["… zoom", f"{zoom:.0f} frames/s", "≥ 50"],
        ["… pan", f"{pan:.0f} frames/s", "≥ 50"],
    ]


def measure(folder: Path, n_long: int) -> list[list[str]]:
    save_encoder(folder / "wide", width=768, n_layers=12)
    save_encoder(folder / "long", width=96, n_layers=2)
    command = [sys.executable, "-m", "regard", "serve", str(folder / "wide"), str(folder / "long")]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads that wait for each other measure that
    server = subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, text=True, env=alone
    )
    assert server.stdout is not None
    try:
        address = server.stdout.readline().split()[3]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 800}, locale="en-GB")
            page.set_default_timeout(600_000)
            page.add_init_script(WATCH)
            rows = measure_512(page, address)
            print(table(["what", "measured", "bar"], rows), flush=True)
            rows += measure_long(page, address, n_long) if n_long else []
            browser.close()
    finally:
        server.terminate()
        server.wait()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--long", type=int, default=16_384, help="0 leaves the long text out")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        rows = measure(Path(place), options.long)
    busy = (
        f"a busy machine: {before:.0f} processes wanted its {os.cpu_count()} cores"
        if before > 1
        else "a quiet machine"
    )
    how = (
        f"Frames a second are the best of three rounds of {FRAMES} frames, one movement each. A "
        "trace is ready when the server has sent all that describes it."
    )
    text = f"""# The page, measured

{about()}, headless Chromium without a graphics card; {busy}. {how}

{table(["what", "measured", "bar"], rows)}
"""
    print(text, flush=True)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
