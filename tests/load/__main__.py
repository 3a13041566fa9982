"""Many clients at once: every answer is compared with one that was computed before.

Run `make load`: 64 clients for two minutes, with 10 % malformed requests, 10 % that are left by
their client, and 200 idle connections. Ends with 1 if an answer was wrong or of 5xx (but 503), if
memory grew after the warm-up, if idle connections kept anybody out, or if a stopping server cut an
answer.
"""

import argparse
import asyncio
import base64
import io
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict

from PIL import Image

import regard
from tests.load.server import Client, ServerProcess, is_same

MODELS = ("en-de", "dates-transformer", "shakespeare", "digits")
SITE = "decoder.layers.0.cross"
SENTENCES = [
    f"{who} {what}."
    for who in ("The dog", "A man", "My sister", "The old house", "Nobody")
    for what in ("is sleeping on the sofa", "has read this book", "will be here tomorrow")
]
GROWTH = 0.05
"""Share by which the memory may grow between the second and the last quarter."""


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def post(path, **fields):
    return "POST", path, json.dumps(fields).encode()


def first_requests():
    """Requests of each kind that name no trace."""
    found = defaultdict(list)
    for text in SENTENCES:
        found["translate"].append(post("/api/translate", model="en-de", texts=[text]))
        found["libretranslate"].append(post("/translate", q=text, source="en", target="de"))
        found["trace"].append(post("/api/trace", model="en-de", text=text))
        edits = [{"kind": "ablate", "site": SITE, "head": len(text) % 4}]
        edits.append({"kind": "temperature", "site": "encoder.*", "value": 0.5})
        found["edit"].append(post("/api/answer", model="en-de", text=text, edits=edits))
    for day in range(1, 9):
        text = f"{day} August 2021"
        found["trace"].append(post("/api/trace", model="dates-transformer", text=text))
        asked = {"model": "shakespeare", "text": f"{day} dogs", "max_tokens": 12, "seed": day}
        found["generate"].append(post("/api/generate", **asked))
    file = io.BytesIO()
    Image.linear_gradient("L").resize((32, 32)).save(file, "PNG")
    image = base64.b64encode(file.getvalue()).decode()
    found["image"].append(post("/api/trace", model="digits", image=image))
    for path in ("/languages", "/api/errors", "/health", "/api/edits/schema", "/js/app.js"):
        found["files"].append(("GET", path, b""))
    return found


def requests_of_traces(ids):
    """Requests of each kind that name a trace of the translator."""
    found = defaultdict(list)
    for id in ids:
        place, head = f"/api/trace/{id}", f"site={SITE}&head=1"
        span = "row_start=0&row_stop=3&column_start=0&column_stop=4"
        for stage in ("scores", "weights"):
            found["tile"].append(("GET", f"{place}/tile?{head}&stage={stage}&{span}", b""))
        found["tile"].append(("GET", f"{place}/vectors?{head}", b""))
        found["tile"].append(("GET", f"{place}/thumbnails?size=16", b""))
        found["measures"].append(("GET", f"{place}/measures?site={SITE}", b""))
        found["measures"].append(("GET", f"{place}/lens?count=3", b""))
        found["measures"].append(("GET", f"{place}/alternatives?position=1&count=2", b""))
        found["export"].append(("GET", f"{place}/figure?kind=pattern&{head}&format=svg", b""))
    found["export"].append(("GET", f"/api/trace/{ids[0]}/html", b""))
    return found


MALFORMED = [
    ("POST", "/api/trace", b"{"),
    ("POST", "/api/trace", b'{"model": "en-de", "text": "\\ud800"}'),
    ("POST", "/api/trace", b'{"model": "en-de", "text": "a", "edits": [{"kind": ["ablate"]}]}'),
    ("POST", "/api/trace", b'{"model": "en-de", "text": "a", "beam": 1e400}'),
    post("/api/trace", model="en-de", text="a", target=[5] * 40_000),
    ("POST", "/api/generate", b'{"model": "shakespeare", "text": "a", "seed": ' + b"9" * 30 + b"}"),
    ("POST", "/translate", b'{"q": 7}'),
    ("POST", "/api/images", b"\x89PNG not an image"),
    ("GET", "/api/examples/digits/" + "9" * 30, b""),
    ("GET", "/api/trace/0123/tile?site=[", b""),
    ("GET", "/../../etc/passwd", b""),
    ("DELETE", "/api/models", b""),
]
WEIGHTS = {"trace": 3, "tile": 6, "translate": 3, "edit": 2, "export": 1, "libretranslate": 2}


class Load:
    """The clients, what they expect, and what they got."""

    def __init__(self, server, given):
        self.server, self.given = server, given
        self.expected, self.seconds = {}, defaultdict(list)
        self.statuses, self.faults = defaultdict(Counter), []
        self.samples = []

    async def prepare(self):
        """Ask everything once, one after the other, and compare translations with Python's."""
        client, self.requests = Client(self.server.port), first_requests()
        for one in [x for many in self.requests.values() for x in many]:
            await self._expect(client, one)
        traces = self.requests["trace"][: len(SENTENCES)]
        ids = [json.loads(self.expected[asked])["id"] for asked in traces]
        for kind, many in requests_of_traces(ids[:6]).items():
            self.requests[kind] += many
            for one in many:
                await self._expect(client, one)
        model = regard.load("en-de")
        for text, asked in zip(SENTENCES, self.requests["translate"], strict=True):
            found = json.loads(self.expected[asked])["translations"][0]["text"]
            if found != model.translate(text).text:
                self.faults.append(f"{text}: the server has {found!r}")
        await client.close()

    async def _expect(self, client, asked):
        answer = await client.ask(*asked)
        if answer.status != 200:
            raise RuntimeError(f"{asked}: {answer.status} {answer.body[:300]}")
        self.expected[asked] = answer.body

    async def run(self, until):
        watcher = asyncio.create_task(self._watch(until))
        idle = [asyncio.create_task(self._idle(until)) for _ in range(self.given.idle)]
        clients = [self._client(number, until) for number in range(self.given.clients)]
        await asyncio.gather(*clients)
        for one in (watcher, *idle):
            one.cancel()
        await asyncio.gather(watcher, *idle, return_exceptions=True)

    async def _watch(self, until):
        while time.monotonic() < until:
            self.samples.append(self.server.sample())
            await asyncio.sleep(1)

    async def _idle(self, until):
        while time.monotonic() < until:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
            await reader.read()  # until the server closes it
            writer.transport.abort()

    async def _client(self, number, until):
        chance, client = random.Random(number), Client(self.server.port, f"client {number}")
        kinds = list(self.requests)
        weights = [WEIGHTS.get(kind, 1) for kind in kinds]
        while time.monotonic() < until:
            kind = chance.choices(kinds, weights)[0]
            asked, luck = chance.choice(self.requests[kind]), chance.random()
            try:
                if luck < 0.1:
                    await self._malformed(client, chance.choice(MALFORMED))
                elif luck < 0.2:
                    await client.leave(*asked, after=chance.choice((0, 0.01, 0.1, 1)))
                    self.statuses["left by its client"]["-"] += 1
                else:
                    await self._compare(client, kind, asked)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                self.faults.append(f"{kind}: {error!r}")
        await client.close()

    async def _malformed(self, client, asked):
        answer = await client.ask(*asked)
        self.statuses["malformed"][answer.status] += 1
        if not 400 <= answer.status < 500 or not json.loads(answer.body)["error"]:
            self.faults.append(f"{asked[:2]}: {answer.status} {answer.body[:200]!r}")

    async def _compare(self, client, kind, asked):
        answer = await client.ask(*asked)
        self.statuses[kind][answer.status] += 1
        if answer.status in (429, 503):
            if "retry-after" not in answer.headers:
                self.faults.append(f"{kind}: {answer.status} without Retry-After")
            await asyncio.sleep(0.2)
        elif answer.status != 200 or not is_same(answer.body, self.expected[asked]):
            self.faults.append(f"{asked[:2]}: {answer.status} {answer.body[:200]!r}")
        else:
            self.seconds[kind].append(answer.seconds)

    async def crowd(self, count):
        """Open so many idle connections, and ask something next to them."""
        opened = [
            await asyncio.open_connection("127.0.0.1", self.server.port) for _ in range(count)
        ]
        client = Client(self.server.port)
        answer = await client.ask("GET", "/languages")
        if answer.status != 200:
            self.faults.append(f"{answer.status} next to {count} idle connections")
        for _, writer in opened:
            writer.transport.abort()
        await client.close()
        return answer.seconds

    async def stop(self, count):
        """Stop the server while so many requests wait, and count the whole answers."""
        clients = [Client(self.server.port, f"last {number}") for number in range(count)]
        asked = [
            post("/api/trace", model="en-de", text=f"{SENTENCES[i % 15]} It is {i}.")
            for i in range(count)
        ]
        jobs = [
            asyncio.create_task(one.ask(*what)) for one, what in zip(clients, asked, strict=True)
        ]
        await asyncio.sleep(0.5)
        self.server.process.send_signal(signal.SIGTERM)
        found = await asyncio.gather(*jobs, return_exceptions=True)
        counts = Counter()
        for one in found:
            counts[repr(one) if isinstance(one, BaseException) else one.status] += 1
        cut = [one for one in counts if one not in (200, 429, 503)]
        self.faults += [f"{counts[one]} answers of a stopping server were {one}" for one in cut]
        return dict(counts)

    def report(self):
        say(f"{'requests':18}{'count':>7}{'200':>7}{'429':>6}{'503':>6}{'p50 ms':>9}{'p95 ms':>9}")
        for kind, counts in self.statuses.items():
            times = sorted(self.seconds[kind]) or [0.0]
            p50, p95 = (1000 * times[int(share * (len(times) - 1))] for share in (0.5, 0.95))
            numbers = f"{sum(counts.values()):7}{counts[200]:7}{counts[429]:6}{counts[503]:6}"
            say(f"{kind:18}{numbers}{p50:9.1f}{p95:9.1f}")
        quarter = max(1, len(self.samples) // 4)
        for place, name in enumerate(("megabytes", "threads", "open files")):
            values = [one[place] for one in self.samples]
            second, last = max(values[quarter : 2 * quarter] or values), max(values[-quarter:])
            say(f"{name}: {second:.0f} at most in the second quarter, {last:.0f} in the last")
            if name == "megabytes" and last > second * (1 + GROWTH) + 10:
                self.faults.append(f"memory grew from {second:.0f} to {last:.0f} MB")


async def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--idle", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(MODELS, folder)
        load = Load(server, given)
        try:
            await load.prepare()
            say(f"{len(load.expected)} answers were computed before; {given.clients} clients …")
            await load.run(time.monotonic() + given.seconds)
            load.report()
            seconds = await load.crowd(1_100)
            say(f"next to 1,100 idle connections an answer took {1000 * seconds:.0f} ms")
            say(f"40 requests of a stopping server: {await load.stop(40)}")
        finally:
            server.stop()
        log = server.log.read_text()
    load.faults += [line for line in log.splitlines() if '"ERROR"' in line or "Traceback" in line]
    for fault in load.faults[:20]:
        say(f"FAULT {fault}")
    say(f"{len(load.faults)} faults")
    return 1 if load.faults else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
