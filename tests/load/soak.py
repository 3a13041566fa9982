"""Serve, translate and train together for a while; memory, threads and open files must stay flat.

Run `make soak MINUTES=30`. Writes a plot of all samples (docs/pictures/soak.svg by default) and
ends with 1 if the server or a loop of translations grew after the warm-up, or if anything failed.
"""

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

import regard
from regard.figures.formats import to_svg
from regard.figures.plots import Series, draw_plot, linear_axis
from tests.load.__main__ import MALFORMED, SENTENCES, first_requests, say
from tests.load.server import Client, ServerProcess

ALLOWED = {"megabytes": 0.05, "threads": 0.1, "open files": 0.1}
"""Share by which the highest value of the last quarter may exceed that of the second."""


def sample(process):
    with process.oneshot():
        return process.memory_info().rss / 1e6, process.num_threads(), process.num_fds()


class Soak:
    """What runs, and its samples by name: (minutes, megabytes, threads, open files)."""

    def __init__(self, folder, minutes):
        self.folder = Path(folder)
        self.samples, self.faults = {"serve": [], "translate": [], "train": []}, []
        self.counts = dict.fromkeys(self.samples, 0)
        self.server = ServerProcess(("en-de", "dates-transformer", "shakespeare"), folder)
        self.start = time.monotonic()
        self.until = self.start + 60 * minutes

    @property
    def running(self):
        return time.monotonic() < self.until

    def record(self, name, values):
        minutes = (time.monotonic() - self.start) / 60
        self.samples[name].append((minutes, *values))

    async def ask(self):
        """Four clients ask the server everything, also malformed."""
        asked = [one for many in first_requests().values() for one in many]
        asked = [one for one in asked if b'"digits"' not in one[2]] + MALFORMED[:6]

        async def client(number):
            one, i = Client(self.server.port, f"client {number}"), number
            while self.running:
                answer = await one.ask(*asked[i % len(asked)])
                self.counts["serve"] += 1
                if answer.status >= 500 and answer.status != 503:
                    self.faults.append(f"serve: {asked[i % len(asked)][:2]}: {answer.status}")
                i += 7
            await one.close()

        await asyncio.gather(*(client(number) for number in range(4)))

    def translate(self):
        """Translate and trace in this process, with an engine that stays open."""
        model = regard.load("en-de")
        expected = [one.text for one in model.translate(SENTENCES)]
        while self.running:
            found = [one.text for one in model.translate(SENTENCES)]
            model.trace(SENTENCES[self.counts["translate"] % len(SENTENCES)])
            self.counts["translate"] += 1
            if found != expected:
                self.faults.append(f"translate: {found} instead of {expected}")
            gc.collect()

    def train(self):
        """Train small models one after the other, each in a separate process."""
        while self.running:
            run = self.folder / f"run-{self.counts['train']}"
            command = [sys.executable, "-m", "regard", "train", "dates", "-o", str(run)]
            command += ["--minutes", "2"]
            with subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            ) as process:
                watched = psutil.Process(process.pid)
                while process.poll() is None and self.running:
                    self.record("train", sample(watched))
                    time.sleep(2)
                if process.poll() is None:
                    process.terminate()
                message = process.communicate()[1]
            if process.returncode not in (0, -15, 130, 143):
                self.faults.append(f"train: exit code {process.returncode}: {message[-300:]}")
            self.counts["train"] += 1

    def watch(self):
        here = psutil.Process()
        while self.running:
            self.record("serve", self.server.sample())
            self.record("translate", sample(here))
            time.sleep(2)

    def check(self):
        for name in ("serve", "translate"):
            many = self.samples[name]
            quarter = max(1, len(many) // 4)
            for place, what in enumerate(ALLOWED, 1):
                values = [one[place] for one in many]
                second, last = max(values[quarter : 2 * quarter]), max(values[-quarter:])
                say(f"{name}: {what} {second:.0f} in the second quarter, {last:.0f} in the last")
                if last > second * (1 + ALLOWED[what]) + 4:
                    self.faults.append(f"{name}: {what} grew from {second:.0f} to {last:.0f}")

    def plot(self, path):
        series = [
            Series(name, [(one[0], one[1]) for one in many])
            for name, many in self.samples.items()
            if many
        ]
        points = [point for one in series for point in one.points]
        x = linear_axis("minutes", 0, max(point[0] for point in points), tight=True)
        y = linear_axis("megabytes", 0, max(point[1] for point in points))
        path.write_text(to_svg(draw_plot(series, x, y)), "utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--plot", type=Path, default=Path("docs/pictures/soak.svg"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(folder, given.minutes)
        work = [threading.Thread(target=one) for one in (soak.watch, soak.translate, soak.train)]
        for one in work:
            one.start()
        try:
            asyncio.run(soak.ask())
        finally:
            for one in work:
                one.join()
            soak.server.stop()
        log = soak.server.log.read_text()
    soak.faults += [line for line in log.splitlines() if '"ERROR"' in line or "Traceback" in line]
    say(json.dumps({"minutes": given.minutes, "done": soak.counts}))
    soak.check()
    soak.plot(given.plot)
    for fault in soak.faults[:20]:
        say(f"FAULT {fault}")
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
