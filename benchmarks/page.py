"""The explorer in headless Chromium: bytes, nodes, waits and frames per second.

    python benchmarks/page.py [-o docs/benchmarks/page.md] [--long 16384] [--translator en-de]
                              [--only moving] [--models FOLDER]

The models have random weights: 12 layers of 12 heads for texts of 512 tokens, 2 layers of 12 heads
for the long text, whose trace would otherwise take minutes; GPT-2 small and BERT base are made with
`transformers` and imported. Edits and the sweep use a bundled translator. The server runs in
its own process.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from page_flow import flow, imported, sweep
from playwright.sync_api import Page, sync_playwright
from random_models import save_encoder, save_imported, text_of

import regard
from regard.bench.timing import describe_machine, markdown_table

FRAMES = 120
TEXTS = 5
EDITS = 40
SENTENCES = [
    "The dog is sleeping in the garden.",
    "A man in a blue shirt is standing on a ladder.",
    "Two children are playing with a ball on the beach.",
    "A woman is reading a book in the park.",
]
# Runs before the page's scripts: records when the model has run and when each part is drawn.
WATCH = """
window.times = { computed: [], opened: [], pictures: [], measured: [], flow: [] };
const note = (name) =>
  requestAnimationFrame(() => setTimeout(() => times[name].push(performance.now())));
const plain = window.fetch;
window.fetch = async (address, options) => {
  const answer = await plain(address, options);
  if (address === "/api/trace") follow(answer.clone().body.getReader());
  return answer;
};
async function follow(reader) {
  for (let last = 0; ; ) {
    const { done, value } = await reader.read();
    const text = new TextDecoder().decode(value);
    if (text.includes("event: progress")) last = performance.now();
    if (text.includes("event: result")) times.result = performance.now();
    if (done) return times.computed.push(last || times.result);
  }
}
addEventListener("DOMContentLoaded", () => {
  const root = document.getElementById("regard");
  new MutationObserver(() => root.querySelector(".panes") && note("opened"))
    .observe(root, { childList: true });
  new MutationObserver((all) => times.flow.length < 9 && note("flow"))
    .observe(root, { attributes: true, attributeFilter: ["data-at"], subtree: true });
  const attributeFilter = ["data-pictures", "data-measured"];
  new MutationObserver((all) => all.forEach((one) => note(one.attributeName.slice(5))))
    .observe(root, { attributes: true, attributeFilter });
});
"""
# Milliseconds from the end of the model's run until a head or all pictures are drawn.
SINCE = """(name) => {
  const start = times.computed[times.computed.length - 1];
  return Math.min(...times[name].filter((x) => x > start)) - start;
}"""
FIRST_PICTURES = """() => {
  const known = performance.getEntriesByType("resource");
  const all = known.filter((x) => x.name.includes("/thumbnails?"));
  return Math.min(...all.map((x) => x.responseEnd)) - times.computed[times.computed.length - 1];
}"""
# Opens the next head by its key, or another by a click on its picture without hovering before.
# Title and pattern are drawn together; one more frame brings them onto the screen.
OPEN_HEAD = """async (far) => {
  const name = () => document.querySelector(".pattern .title").textContent;
  const canvas = document.querySelector(".overview canvas");
  const box = canvas.getBoundingClientRect();
  const gutter = 18;
  const at = ([layer, head]) => ({
    clientX: box.left + gutter + (head + 0.5) * (box.width - gutter) / 12,
    clientY: box.top + (layer + 0.5) * box.height / 12,
  });
  const [start, before] = [performance.now(), name()];
  if (far) canvas.dispatchEvent(new MouseEvent("click", { ...at(far), bubbles: true }));
  else document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "]", bubbles: true }));
  while (name() === before) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""
# Acts once per frame and returns the time of each frame.
EACH_FRAME = """async ([kind, frames]) => {
  const over = document.querySelector(".board svg.over");
  const box = over.getBoundingClientRect();
  const slider = document.querySelector(".edit-controls input[type=range]");
  const at = (x, y) => ({ clientX: box.left + x * box.width, clientY: box.top + y * box.height });
  const send = (name, x, y, more = {}) => over.dispatchEvent(
    new (name === "wheel" ? WheelEvent : PointerEvent)(name,
      { ...at(x, y), bubbles: true, ...more }));
  const acts = {
    hover: (t) => send("pointermove", 0.3 + 0.5 * t, 0.35 + 0.5 * Math.abs(Math.sin(9 * t))),
    slide: (t) => {
      slider.value = 0.5 + 2 * t;
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
  if (kind === "pan") send("pointerup", 0.5, 0.5);
  if (kind === "hover") send("pointerleave", 0, 0);
  return times;
}"""
# Milliseconds from moving the slider until the page shows the effect on the words.
EDIT = """async (value) => {
  const shown = document.querySelector(".comparison");
  const slider = document.querySelector(".edit-controls input[type=range]");
  const start = performance.now();
  const changed = new Promise((done) => {
    const watch = new MutationObserver(() => {
      if (!shown.querySelector(".moved li")) return;
      watch.disconnect();
      requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
    });
    watch.observe(shown, { childList: true });
  });
  slider.value = value;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  slider.dispatchEvent(new Event("change", { bubbles: true }));
  return changed;
}"""
PARTS = ("opening", "moving", "edits", "flow", "sweep", "imported", "long", "export")
IMPORTED = {"gpt2-small": "GPT2LMHeadModel", "bert-base": "BertForMaskedLM"}
NODES = "document.getElementsByTagName('*').length"
Rows = list[list[str]]


class Traffic:
    """Transferred bytes by URL."""

    def __init__(self, page: Page) -> None:
        self.sizes: list[tuple[str, int]] = []
        urls: dict[str, str] = {}
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on(
            "Network.responseReceived",
            lambda x: urls.update({x["requestId"]: x["response"]["url"]}),
        )
        session.on(
            "Network.loadingFinished",
            lambda x: self.sizes.append((urls.get(x["requestId"], ""), x["encodedDataLength"])),
        )

    def total(self, part: str = "") -> int:
        """Return the bytes of URLs that contain `part`."""
        return sum(size for url, size in self.sizes if part in url)


def frames_per_second(page: Page, kind: str) -> float:
    """Return the best of three rounds, because other work can only slow them down."""
    rounds = (page.evaluate(EACH_FRAME, [kind, FRAMES]) for _ in range(3))
    return max(1e3 * (len(times) - 1) / (times[-1] - times[0]) for times in rounds)


def summary(times: list[float]) -> str:
    """Return the median and the slowest."""
    return f"{median(times):.0f} ms (slowest {max(times):.0f})"


def open_wide(page: Page, address: str, seed: int) -> None:
    """Open a text of 512 tokens and wait until everything is loaded."""
    page.goto(f"{address}/?model=wide&text={text_of(512, seed)}#language=en&page=explore")
    page.wait_for_selector("#regard[data-measured]", timeout=300_000)
    page.wait_for_timeout(500)


def opening(page: Page, address: str) -> Rows:
    """Measure opening texts that the server has not seen, each in a new page."""
    traffic, bytes_, sinces = Traffic(page), [], {name: [] for name in ("opened", "pictures")}
    first = []
    for seed in range(TEXTS):
        before = traffic.total()
        open_wide(page, address, seed)
        bytes_.append(traffic.total() - before)
        first.append(page.evaluate(FIRST_PICTURES))
        for name, times in sinces.items():
            times.append(page.evaluate(SINCE, name))
    return [
        [
            "overview of 512 tokens, 12 × 12 heads: bytes transferred, including the page",
            f"{max(bytes_) / 1e6:.2f} MB",
            "≤ 1 MB",
        ],
        [
            f"… after the model has run: a head open and drawn, median of {TEXTS}",
            summary(sinces["opened"]),
            "≤ 500 ms",
        ],
        ["… the first layer's pictures have come", summary(first), ""],
        ["… all 144 pictures drawn", summary(sinces["pictures"]), ""],
        ["… elements on the page", f"{page.evaluate(NODES):,}", "≤ 2,000"],
    ]


def moving(page: Page, address: str) -> Rows:
    """Measure opening heads, hovering and the slider on one page."""
    open_wide(page, address, TEXTS)
    page.keyboard.press("]")  # warm-up
    page.wait_for_timeout(500)
    heads = [page.evaluate(OPEN_HEAD) for _ in range(12)]
    others = [page.evaluate(OPEN_HEAD, [i, 5 * (i + 1) % 12]) for i in (2, 11, *range(3, 11), 1, 0)]
    hover, slide = (frames_per_second(page, kind) for kind in ("hover", "slide"))
    return [
        ["opening the next head of 512 × 512, median of 12", summary(heads), "≤ 100 ms"],
        ["… another one by a click without hovering before", summary(others), "≤ 100 ms"],
        ["hover over 512 × 512", f"{hover:.0f} frames/s", "≥ 50"],
        ["temperature slider at 512 × 512", f"{slide:.0f} frames/s", "≥ 50"],
    ]


def long_text(page: Page, address: str, n_tokens: int) -> Rows:
    """Measure a long text."""
    page.goto(f"{address}/?model=long&text=the dog#language=en&page=explore")
    page.wait_for_selector("#regard[data-measured]", timeout=300_000)
    page.fill(".input-bar textarea.text", text_of(n_tokens))
    start = time.perf_counter()
    page.click(".input-bar .run")
    page.wait_for_selector(".texts .more", timeout=1_200_000)
    traced = time.perf_counter() - start
    page.wait_for_timeout(500)
    painted = page.evaluate(SINCE, "opened")
    page.wait_for_load_state("networkidle", timeout=600_000)
    nodes = page.evaluate(NODES)
    zoom, pan = (frames_per_second(page, kind) for kind in ("zoom", "pan"))
    size = f"{n_tokens:,} tokens (2 × 12 heads)"
    return [
        [f"{size}: requested, traced and opened", f"{traced:.1f} s", "opens"],
        ["… of which after the model has run", f"{painted / 1e3:.1f} s", ""],
        ["… elements on the page", f"{nodes:,}", "≤ 2,000"],
        ["… zoom", f"{zoom:.0f} frames/s", "≥ 50"],
        ["… pan", f"{pan:.0f} frames/s", "≥ 50"],
    ]


def edits(page: Page, address: str, translator: str) -> Rows:
    """Measure temperature edits of one head after another."""
    times: list[float] = []
    for text in SENTENCES:
        page.goto(f"{address}/?model={translator}&text={text}#language=en&page=explore")
        page.wait_for_selector("#regard[data-measured]", timeout=300_000)
        page.evaluate(EDIT, 2)  # warm-up
        for number in range(EDITS // len(SENTENCES)):
            page.wait_for_selector(".comparison .after:not(.pending)")
            page.keyboard.press("]")
            page.wait_for_timeout(200)
            times.append(page.evaluate(EDIT, 0.3 + 0.25 * number))
    return [
        [
            f"an edit on {translator} until its effect is shown, 95th percentile of {len(times)}",
            f"{quantiles(times, n=20)[-1]:.0f} ms",
            "≤ 200 ms",
        ],
        ["… median", f"{median(times):.0f} ms", ""],
    ]


def export(page: Page, folder: Path) -> Rows:
    """Measure an exported HTML file, opened from disk."""
    file = folder / "trace.html"
    regard.load(folder / "wide").trace(text_of(64)).html(file)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    start = time.perf_counter()
    page.goto(f"{file.as_uri()}#language=en&page=explore")
    page.wait_for_selector("#regard[data-pictures]")
    taken = time.perf_counter() - start
    elsewhere = [url for url in requests if not url.startswith(("file:", "data:", "blob:"))]
    return [
        [
            "HTML file of 64 tokens × 12 × 12 heads",
            f"{file.stat().st_size / 1e6:.2f} MB",
            "≤ 2.5 MB",
        ],
        ["… requests to other places", str(len(elsewhere)), "0"],
        ["… opened, with all pictures", f"{taken:.1f} s", ""],
    ]


@contextmanager
def served(models: list[str]) -> Iterator[str]:
    """Start a server for the block and give its URL."""
    command = [sys.executable, "-m", "regard", "serve", *models, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().split()[3]
    finally:
        server.terminate()
        server.wait()


def measure(folder: Path, n_long: int, translator: str, only: str | None) -> Rows:
    names = ["wide", "long", *IMPORTED]
    for name in (one for one in names if not (folder / one / "config.json").is_file()):
        if name in IMPORTED:
            save_imported(folder / name, IMPORTED[name])
        else:
            wide = name == "wide"
            save_encoder(folder / name, width=768 if wide else 96, n_layers=12 if wide else 2)
    models = [*(str(folder / name) for name in names), translator]
    with served(models) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800}, locale="en-GB")
        page.set_default_timeout(600_000)
        page.add_init_script(WATCH)
        rows: Rows = []
        parts = {
            "opening": lambda: opening(page, address),
            "moving": lambda: moving(page, address),
            "edits": lambda: edits(page, address, Path(translator).name),
            "flow": lambda: flow(page, address, Path(translator).name, SENTENCES),
            "sweep": lambda: sweep(page, address, Path(translator).name, SENTENCES[1]),
            "imported": lambda: imported(page, address, list(IMPORTED), Traffic(page)),
            "long": lambda: long_text(page, address, n_long) if n_long else [],
            "export": lambda: export(page, folder),
        }
        for part in parts.values() if only is None else [parts[only]]:
            rows += part()
            print(markdown_table(["what", "measured", "bar"], rows), "\n", flush=True)
        browser.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--long", type=int, default=16_384, help="0 leaves the long text out")
    parser.add_argument("--translator", default="en-de")
    parser.add_argument("--only", choices=PARTS, help="one part, not all of them")
    parser.add_argument("--models", type=Path, help="folder to keep the random models in")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        folder = options.models or Path(place)
        rows = measure(folder, options.long, options.translator, options.only)
    busy = f"load {before:.1f} on {os.cpu_count()} cores at the start"
    how = (
        f"Frames per second are the best of three rounds of {FRAMES} frames, one movement each; "
        "the screen shows 60. Every text is new to the server: waits count from the last progress "
        "event of the model's run, so they include the server's description of the trace."
    )
    text = f"""# The page, measured

{describe_machine()}, headless Chromium without a graphics card; {busy}. {how}

{markdown_table(["what", "measured", "bar"], rows)}
"""
    print(text, flush=True)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
