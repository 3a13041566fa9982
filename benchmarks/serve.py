"""Response times of the server: edits on a small translator, tiles, overview of a large model.

    python benchmarks/serve.py [MODEL] [-o docs/benchmarks/serve.md]

Without a model it uses a translator of the size of the bundled ones with random weights and targets
of 20 tokens, because such a model would generate until the length limit.
"""

import argparse
import random
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import httpx
import uvicorn
from random_models import save_encoder, save_model, text_of

from regard.bench.timing import describe_machine
from regard.server.app import address_of, bind, make_app
from regard.server.catalog import Catalog
from regard.server.service import Service

SENTENCES = [
    "The dog is sleeping in the garden.",
    "A man in a blue shirt is standing on a ladder.",
    "Two children are playing with a ball on the beach.",
    "Where is the nearest station?",
    "She does not know where he lives.",
]
EDITS, WARM, TILE, N_LONG = 40, 5, 256, 16_384


def save_translator(folder: Path) -> None:
    """Save a translator of the size and vocabulary of the bundled ones."""
    config = {
        "family": "transformer",
        "n_vocab": 8000,
        "d_model": 192,
        "n_heads": 6,
        "d_ff": 768,
        "n_encoder_layers": 3,
        "n_decoder_layers": 3,
    }
    save_model(folder, "translation", SENTENCES, config)


def trace(client: httpx.Client, **asked) -> dict:
    answer = client.post("/api/trace", json=asked)
    answer.raise_for_status()
    return answer.json()


def timed(client: httpx.Client, method: str, path: str, **options) -> tuple[float, httpx.Response]:
    start = time.perf_counter()
    answer = client.request(method, path, **options)
    taken = time.perf_counter() - start
    answer.raise_for_status()
    return taken, answer


@dataclass
class Times:
    """Wall-clock seconds, and CPU seconds of this process (server and client)."""

    wall: list[float] = field(default_factory=list)
    process: list[float] = field(default_factory=list)

    @contextmanager
    def one(self):
        wall, process = time.perf_counter(), time.process_time()
        yield
        self.wall.append(time.perf_counter() - wall)
        self.process.append(time.process_time() - process)

    def row(self, what: str, bar: str = "") -> str:
        cells = [
            f"{1e3 * median(times):.0f} ms | {1e3 * quantiles(times, n=20)[-1]:.0f} ms"
            for times in (self.process, self.wall)
        ]
        return f"| {what} | {cells[0]} | {cells[1]} | {bar} |"


@dataclass
class Edits:
    """Times until the effect of an edit on the given text is shown, then a new translation."""

    effect: Times = field(default_factory=Times)
    written: Times = field(default_factory=Times)
    n_tokens: list[int] = field(default_factory=list)


def edit_times(client: httpx.Client, model: str, *, write: bool) -> Edits:
    """Measure edits of one head each, all different, so that no response is cached."""
    random.seed(1)
    made = Edits()
    for number in range(-WARM, EDITS):
        text = SENTENCES[number % len(SENTENCES)]
        asked: dict = {"model": model, "text": text}
        if not write:
            asked["target"] = [20 + (number * 7 + i) % 50 for i in range(20)]
        found = trace(client, **asked)
        site = random.choice(found["sites"])
        edit = {"kind": "temperature", "site": site["path"], "value": 0.3 + abs(number) / 20}
        edit["head"] = random.randrange(site["n_heads"])
        if number < 0:
            edit["value"] += 0.01
        times = made if number >= 0 else Edits()
        with times.effect.one():
            show_effect(client, {**asked, "target": found["answer"]["ids"], "edits": [edit]})
        if write:
            with times.written.one():
                timed(client, "POST", "/api/answer", json={**asked, "edits": [edit]})
        times.n_tokens.append(len(found["answer"]["ids"]))
    return made


def show_effect(client: httpx.Client, asked: dict) -> None:
    """Send the requests of the page for an edit: probabilities, and the open head's vectors."""
    _, answer = timed(client, "POST", "/api/answer", json=asked)
    place = {"site": asked["edits"][0]["site"], "head": asked["edits"][0]["head"]}
    timed(client, "GET", f"/api/trace/{answer.json()['id']}/vectors", params=place)


def tile_times(client: httpx.Client, found: dict, size: int, count: int) -> list[float]:
    random.seed(2)
    taken = []
    for _ in range(count):
        site = random.choice(found["sites"])
        place = {"site": site["path"], "head": random.randrange(site["n_heads"])}
        for what, n in (("row", site["n_query"]), ("column", site["n_key"])):
            start = random.randrange(max(1, n - size))
            place |= {f"{what}_start": start, f"{what}_stop": min(n, start + size)}
        path = f"/api/trace/{found['id']}/tile"
        taken.append(timed(client, "GET", path, params={**place, "dtype": "float16"})[0])
    return taken


def whole_times(client: httpx.Client, found: dict) -> tuple[float, float]:
    """Measure the whole table of one head in 600 × 600 cells, the first and the second time."""
    site = found["sites"][0]
    place = {"site": site["path"], "head": 0, "dtype": "float16"}
    place |= {"row_start": 0, "row_stop": site["n_query"], "row_bins": 600}
    place |= {"column_start": 0, "column_stop": site["n_key"], "column_bins": 600}
    path = f"/api/trace/{found['id']}/tile"
    first, second = (timed(client, "GET", path, params=place)[0] for _ in range(2))
    return first, second


def measure_edits(client: httpx.Client, translator: str, *, write: bool) -> str:
    edits = edit_times(client, translator, write=write)
    rows = [edits.effect.row("its effect on what was written, and the open head", "≤ 200 ms")]
    if write:
        rows.append(edits.written.row("… what the model writes instead (beam 4)"))
    return f"""# The server, measured

{describe_machine()}.

An edit of one head on a translator, {EDITS} times, all different; answers of \
{min(edits.n_tokens)} to {max(edits.n_tokens)} tokens. Process time is what server and client \
computed; the clock also counts what other programs took meanwhile.

| what | process, median | 95th percentile | clock, median | 95th percentile | bar |
| --- | --- | --- | --- | --- | --- |
{chr(10).join(rows)}
"""


def measure(client: httpx.Client) -> str:
    wide = trace(client, model="wide", text=text_of(512))
    drawn, pictures = timed(client, "GET", f"/api/trace/{wide['id']}/thumbnails?size=64")
    place = {"site": wide["sites"][5]["path"], "head": 3}
    opened = [
        timed(client, "GET", f"/api/trace/{wide['id']}/vectors", params={**place, "head": h})[0]
        for h in range(8)
    ]
    tiles = tile_times(client, wide, TILE, 40)
    start = time.perf_counter()
    long = trace(client, model="long", text=text_of(N_LONG))
    traced = time.perf_counter() - start
    far = tile_times(client, long, TILE, 40)
    first, second = whole_times(client, long)
    n_wide, n_long = wide["sites"][0]["n_query"], long["sites"][0]["n_query"]
    return f"""
| what | clock | bar |
| --- | --- | --- |
| 12 × 12 heads, {n_wide} tokens: all thumbnails | {len(pictures.content) / 1e6:.2f} MB | ≤ 1 MB |
| … time | {1e3 * drawn:.0f} ms | |
| … vectors of one head, median | {1e3 * median(opened):.0f} ms | ≤ 100 ms |
| … a tile of {TILE} × {TILE}, median | {1e3 * median(tiles):.1f} ms | < 50 ms |
| … slowest of {len(tiles)} | {1e3 * max(tiles):.1f} ms | |
| {n_long:,} tokens: traced and described | {traced:.1f} s | |
| … a tile of {TILE} × {TILE}, median | {1e3 * median(far):.1f} ms | < 50 ms |
| … slowest of {len(far)} | {1e3 * max(far):.1f} ms | |
| … a whole head in 600 × 600 cells, the first time | {first:.2f} s | |
| … again, or another part | {1e3 * second:.1f} ms | < 50 ms |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--edits-only", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_translator(folder / "translator")
        save_encoder(folder / "wide", width=768, n_layers=12, n_heads=12)
        save_encoder(folder / "long", width=64, n_layers=2, n_heads=2)
        translator = options.model or str(folder / "translator")
        service = Service(Catalog([translator, folder / "wide", folder / "long"]))
        bound = bind("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(make_app(service), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            with httpx.Client(base_url=address_of(bound, "127.0.0.1"), timeout=600) as client:
                first = next(iter(service.catalog.entries))
                text = measure_edits(client, first, write=options.model is not None)
                text += "" if options.edits_only else measure(client)
        finally:
            server.should_exit = True
            thread.join()
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
