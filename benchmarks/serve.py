"""How fast the server answers: edits on a small translator, tiles, overview of a large model.

    python benchmarks/serve.py [MODEL] [-o docs/benchmarks/serve.md]

Without a model it makes a translator of the preset "tiny" with random weights.
"""

import argparse
import random
import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles

import httpx
import torch
import uvicorn
from timing import about

from regard.bundle.bundle import Bundle
from regard.models.build import build
from regard.models.config import config_from_dict
from regard.models.presets import get_preset
from regard.serve.address import address_of, bind
from regard.serve.app import make_app
from regard.serve.catalogue import Catalogue
from regard.serve.service import Service
from regard.text.train import train_tokenizer

SENTENCES = [
    "The dog is sleeping in the garden.",
    "A man in a blue shirt is standing on a ladder.",
    "Two children are playing with a ball on the beach.",
    "Where is the nearest station?",
    "She does not know where he lives.",
]
WORDS = sorted({word for line in SENTENCES for word in line.split()})
EDITS, TILE = 40, 256


def save_translator(folder: Path) -> None:
    tokenizer = train_tokenizer(SENTENCES * 2, vocab_size=200, min_frequency=1)
    torch.manual_seed(0)
    model = build(get_preset("tiny", n_vocab=len(tokenizer)).config).eval()
    Bundle(model=model, task="translation", tokenizer=tokenizer).save(folder)


def save_encoder(folder: Path, *, width: int, n_layers: int, n_heads: int) -> None:
    tokenizer = train_tokenizer(SENTENCES * 2, vocab_size=200, min_frequency=1)
    torch.manual_seed(0)
    config = {
        "family": "encoder",
        "n_vocab": len(tokenizer),
        "d_model": width,
        "n_heads": n_heads,
        "d_ff": 4 * width,
        "n_layers": n_layers,
        "positions": "sinusoidal",
    }
    model = build(config_from_dict(config)).eval()
    Bundle(model=model, task="masked", tokenizer=tokenizer).save(folder)


def text_of(n_tokens: int) -> str:
    random.seed(0)
    return " ".join(random.choice(WORDS) for _ in range(n_tokens))


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


def edit_times(client: httpx.Client, model: str) -> list[float]:
    """Edits of one head each, all different, so that no answer is known before."""
    random.seed(1)
    taken = []
    for number in range(EDITS):
        text = SENTENCES[number % len(SENTENCES)]
        sites = trace(client, model=model, text=text)["sites"]
        site = random.choice(sites)
        edit = {"kind": "temperature", "site": site["path"], "value": 0.3 + number / 20}
        edit["head"] = random.randrange(site["n_heads"])
        asked = {"model": model, "text": text, "edits": [edit]}
        taken.append(timed(client, "POST", "/api/answer", json=asked)[0])
    return taken


def tile_times(client: httpx.Client, told: dict, size: int, count: int) -> list[float]:
    random.seed(2)
    taken = []
    for _ in range(count):
        site = random.choice(told["sites"])
        place = {"site": site["path"], "head": random.randrange(site["n_heads"])}
        for what, n in (("row", site["n_query"]), ("column", site["n_key"])):
            start = random.randrange(max(1, n - size))
            place |= {f"{what}_start": start, f"{what}_stop": min(n, start + size)}
        path = f"/api/trace/{told['id']}/tile"
        taken.append(timed(client, "GET", path, params={**place, "dtype": "float16"})[0])
    return taken


def whole_times(client: httpx.Client, told: dict) -> tuple[float, float]:
    """The whole table of one head in 600 × 600 cells: the first time, and then."""
    site = told["sites"][0]
    place = {"site": site["path"], "head": 0, "dtype": "float16"}
    place |= {"row_start": 0, "row_stop": site["n_query"], "row_bins": 600}
    place |= {"column_start": 0, "column_stop": site["n_key"], "column_bins": 600}
    path = f"/api/trace/{told['id']}/tile"
    first, second = (timed(client, "GET", path, params=place)[0] for _ in range(2))
    return first, second


def measure(client: httpx.Client, translator: str) -> str:
    edits = edit_times(client, translator)
    wide = trace(client, model="wide", text=text_of(400))
    drawn, pictures = timed(client, "GET", f"/api/trace/{wide['id']}/thumbnails?size=64")
    place = {"site": wide["sites"][5]["path"], "head": 3}
    opened = [
        timed(client, "GET", f"/api/trace/{wide['id']}/vectors", params={**place, "head": h})[0]
        for h in range(8)
    ]
    tiles = tile_times(client, wide, TILE, 40)
    start = time.perf_counter()
    long = trace(client, model="long", text=text_of(13_000))
    traced = time.perf_counter() - start
    far = tile_times(client, long, TILE, 40)
    first, second = whole_times(client, long)
    n_wide, n_long = wide["sites"][0]["n_query"], long["sites"][0]["n_query"]
    p95 = quantiles(edits, n=20)[-1]
    return f"""# The server, measured

{about()}.

| what | measured | bar |
| --- | --- | --- |
| an edit on a small translator, median of {EDITS} | {1e3 * median(edits):.0f} ms | |
| … 95th percentile | {1e3 * p95:.0f} ms | ≤ 200 ms |
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_translator(folder / "translator")
        save_encoder(folder / "wide", width=768, n_layers=12, n_heads=12)
        save_encoder(folder / "long", width=64, n_layers=2, n_heads=2)
        translator = options.model or str(folder / "translator")
        service = Service(Catalogue([translator, folder / "wide", folder / "long"]))
        bound = bind("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(make_app(service), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            with httpx.Client(base_url=address_of(bound, "127.0.0.1"), timeout=600) as client:
                text = measure(client, next(iter(service.catalogue.entries)))
        finally:
            server.should_exit = True
            thread.join()
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
