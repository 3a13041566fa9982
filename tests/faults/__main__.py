"""Faults of every kind, and what is left after them. Run `make faults`.

After each fault the previous state must be whole, the next run must work and give what a run
without faults gives, the message must say what happened in a sentence, and no lock or temporary
file may stay. Prints a table, with a line for everything that was not so, and ends with 1 then.
"""

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import regard
from regard.trace.trace import Trace
from tests.backwards import write_recipe
from tests.faults.processes import (
    TRACEBACK,
    Child,
    command,
    differing,
    finish,
    leftovers,
    shell,
    shell_to_a_closed_pipe,
)

TRAINING = "batch_tokens = 200\nsteps = 40\nvalidate_every = 8\nsave_every = 3\naverage = 2"
EVALUATE = 'metric = "exact"\nsentences = 5\nsnapshots = ["1 2 3"]'


class Faults:
    """One folder with a recipe, a trained model and texts; every method is a row of the table."""

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.problems, self.tries = [], 0
        self.recipe = write_recipe(folder, training=TRAINING, evaluate=EVALUATE)
        self.whole = folder / "whole"
        started = command("train", self.recipe, "-o", self.whole)
        code, text = started.wait()
        assert code == 0, text
        self.seconds = started.seconds
        self.texts = folder / "texts.txt"
        self.texts.write_text("".join(f"{' '.join(str(n * n))}\n" for n in range(1500)))
        self.translated = folder / "translated.txt"
        code, text = finish("translate", self.whole, self.texts, "-o", self.translated)
        assert code == 0, text
        self.exported = folder / "exported"
        code, text = finish("export", self.whole, "--to", "huggingface", "-o", self.exported)
        assert code == 0, text

    def check(self, holds, text):
        if not holds:
            self.problems.append(text)

    def check_refused(self, done, *words, code=2):
        """The exit code is that of an error, and one sentence has these words."""
        self.check(done[0] == code, f"exit code {done[0]}, not {code}: {done[1][-300:]}")
        self.check(TRACEBACK not in done[1], f"a traceback: {done[1][-300:]}")
        for word in words:
            self.check(word in done[1], f"{word!r} is not in: {done[1][-300:]}")

    def check_run(self, folder, *, what="the next run"):
        """Resume a run; it must end like the run without faults."""
        code, text = finish("train", self.recipe, "-o", folder, "--resume")
        self.check(code == 0, f"{what} ended with {code}: {text[-300:]}")
        other = differing(self.whole, folder)
        self.check(not other, f"{what} differs in {', '.join(other[:5])}")
        self.check(not leftovers(folder), f"{what} left {leftovers(folder)}")

    def interrupt_training(self, number, count):
        """Send a signal at random points of runs until so many have been sent."""
        while self.tries < count:
            folder = Path(tempfile.mkdtemp(dir=self.folder)) / "run"
            for _ in range(self.random.randrange(1, 6)):
                child = command("train", self.recipe, "-o", folder, "--resume")
                time.sleep(self.random.uniform(0.05, 0.9) * self.seconds)
                self.tries += child.signal(number)
                code, text = child.wait()
                allowed = (0, -number) if number == signal.SIGKILL else (0, 128 + number)
                self.check(code in allowed, f"exit code {code}: {text[-300:]}")
                self.check(TRACEBACK not in text, f"a traceback: {text[-600:]}")
            self.check_run(folder)
            shutil.rmtree(folder.parent)

    def training_killed(self):
        self.interrupt_training(signal.SIGKILL, 50)

    def training_interrupted(self):
        self.interrupt_training(signal.SIGINT, 15)

    def killed_in_a_loop(self, work, is_whole, folder, count=20):
        """Kill a process that writes the same place again and again, and look at the place."""
        work(1)
        for _ in range(count):
            child = Child(lambda: [work(100) for _ in range(50)])
            time.sleep(self.random.uniform(0, 0.4))
            self.tries += child.signal(signal.SIGKILL)
            child.wait()
            try:
                self.check(is_whole(), "neither the old nor the new contents")
            except Exception as error:
                self.check(False, f"cannot be read: {error}")
            work(1)
            self.check(not leftovers(folder), f"left {leftovers(folder)}")

    def model_save_killed(self):
        model, other = regard.load(self.whole), regard.load(self.whole)
        for parameter in other.module.parameters():
            parameter.data += 1
        place = self.folder / "saves" / "model"

        def work(times):
            for number in range(times):
                (model, other)[number % 2].save(place)

        def is_whole():
            found, given = regard.load(place).module.state_dict(), model.module.state_dict()
            steps = {float((found[name] - given[name]).mean().round()) for name in given}
            return steps in ({0.0}, {1.0})

        self.killed_in_a_loop(work, is_whole, place.parent)

    def trace_save_killed(self):
        model, place = regard.load(self.whole), self.folder / "traces" / "t.safetensors"
        traces = [model.trace(text) for text in ("1 2", "3 4 5 6")]

        def work(times):
            for number in range(times):
                traces[number % 2].save(place)

        def is_whole():
            return len(list(Trace.load(place))) == len(list(traces[0]))

        self.killed_in_a_loop(work, is_whole, place.parent)

    def translation_killed(self):
        words, output = ("translate", self.whole, self.texts), self.folder / "bulk" / "out.txt"
        output.parent.mkdir()
        for number in (signal.SIGKILL, signal.SIGINT) * 5:
            child = command(*words, "-o", output, "--resume")
            time.sleep(self.random.uniform(0.02, 1.0))
            self.tries += child.signal(number)
            code, text = child.wait()
            self.check(code in (0, -9, 130), f"exit code {code}: {text[-300:]}")
            self.check(TRACEBACK not in text, f"a traceback: {text[-300:]}")
        code, text = finish(*words, "-o", output, "--resume")
        self.check(code == 0, text[-300:])
        self.check(output.read_bytes() == self.translated.read_bytes(), "another translation")
        self.check(not leftovers(output.parent), f"left {leftovers(output.parent)}")

    def conversion_killed(self):
        exported = self.exported
        finish("import", exported, "-o", self.folder / "imported")
        places = {
            "export": (exported, ("export", self.whole, "--to", "huggingface")),
            "import": (self.folder / "imported", ("import", exported)),
        }
        for name, (expected, words) in places.items():
            place = self.folder / f"{name}-killed" / "x"
            took = max(finish_seconds(*words, "-o", place), 0.1)
            for number in (signal.SIGKILL, signal.SIGINT) * 5:
                child = command(*words, "-o", place)
                time.sleep(self.random.uniform(0, took))
                self.tries += child.signal(number)
                code, text = child.wait()
                self.check(code in (0, -9, 130), f"{name}: exit code {code}: {text[-300:]}")
                self.check(TRACEBACK not in text, f"{name}: a traceback: {text[-300:]}")
                found = place if place.exists() else place.with_name(".x.old")
                other = differing(expected, found)
                self.check(not other, f"{name}: the old folder differs in {other[:3]}")
            code, text = finish(*words, "-o", place)
            self.check(code == 0 and not differing(expected, place), f"{name}: {text[-300:]}")
            self.check(not leftovers(place.parent), f"{name} left {leftovers(place.parent)}")

    def full_disk(self):
        place = self.folder / "small"
        place.mkdir()
        size = sum(path.stat().st_size for path in self.whole.rglob("*") if path.is_file())
        with mounted(place, f"size={size // 3}") as is_mounted:
            limits = {} if is_mounted else {resource.RLIMIT_FSIZE: 8192}
            done = finish("train", self.recipe, "-o", place / "run", limits=limits)
            self.check_refused(done, "cannot be written")
            done = finish("translate", self.whole, self.texts, "-o", place / "o", limits=limits)
            self.check_refused(done, "cannot be written")
            trace = ("trace", self.whole, "1 2 3", "-o", place / "t.safetensors")
            fill(place / "fill", is_mounted)
            self.check_refused(finish(*trace, limits=limits), "cannot be written")
            export = ("export", self.whole, "--to", "huggingface", "-o", place / "e")
            self.check_refused(finish(*export, limits=limits), "cannot be written")
            self.tries += 4
            (place / "fill").unlink(missing_ok=True)
            if is_mounted:
                subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
            self.check_run(place / "run", what="the run after space was freed")
            (place / "o").unlink(missing_ok=True)
            (place / ".o.run").unlink(missing_ok=True)  # for --resume
            for words in (trace, export):
                self.check(finish(*words)[0] == 0, f"{words[0]} after space was freed")
            self.check(not leftovers(place), f"left {leftovers(place)}")

    def read_only_folder(self):
        place = self.folder / "locked"
        place.mkdir()
        with mounted(place, "size=8m") as is_mounted:
            if not is_mounted:
                return
            subprocess.run(["mount", "-o", "remount,ro", place], check=True)
            for words in (
                ("train", self.recipe, "-o", place / "run"),
                ("translate", self.whole, self.texts, "-o", place / "o"),
                ("trace", self.whole, "1 2 3", "-o", place / "t.html"),
                ("export", self.whole, "--to", "huggingface", "-o", place / "e"),
                ("import", self.exported, "-o", place / "i"),
            ):
                self.tries += 1
                self.check_refused(finish(*words), "cannot be written", "Read-only")
            environment = {"REGARD_CACHE": str(place / "cache")}
            done = finish("translate", self.whole, "1 2 3", environment=environment)
            self.tries += 1
            self.check(done[0] in (0, 2) and TRACEBACK not in done[1], f"cache: {done[1][-300:]}")

    def vanished_files(self):
        folder = self.folder / "vanishing"
        child = command("train", self.recipe, "-o", folder)
        time.sleep(0.6 * self.seconds)
        shutil.rmtree(folder, ignore_errors=True)
        code, text = child.wait()
        self.check(code in (0, 2) and TRACEBACK not in text, f"folder: {code} {text[-300:]}")
        shutil.rmtree(folder, ignore_errors=True)
        self.check_run(folder)
        missing = self.folder / "missing.txt"
        self.check_refused(finish("translate", self.whole, missing), "no such file")
        self.check_refused(finish("translate", self.folder / "none", self.texts), "none")
        half = self.folder / "half"
        shutil.copytree(self.whole, half)
        (half / "model.safetensors").unlink()
        self.check_refused(finish("translate", half, self.texts), "model.safetensors")
        self.tries += 4

    def two_writers(self):
        for _ in range(5):
            folder = Path(tempfile.mkdtemp(dir=self.folder)) / "run"
            two = [command("train", self.recipe, "-o", folder, "--resume") for _ in range(2)]
            done = sorted(child.wait() for child in two)
            self.tries += 1
            self.check(done[0][0] == 0, f"neither run worked: {done[0][1][-300:]}")
            pids = [f"process {child.pid}" for child in two]
            self.check_refused(done[1], "is being written by")
            known = any(pid in done[1][1] for pid in pids) or "just started" in done[1][1]
            self.check(known, f"the holder is not named: {done[1][1][-300:]}")
            self.check_run(folder)
        place = self.folder / "one" / "e"
        for _ in range(5):
            words = ("export", self.whole, "--to", "huggingface", "-o", place)
            done = [child.wait() for child in [command(*words) for _ in range(3)]]
            self.tries += 1
            codes = sorted(code for code, _ in done)
            self.check(codes[0] == 0 and set(codes) <= {0, 2}, f"exports: {done}")
            self.check(not differing(self.exported, place), "a mixed export")
            self.check(not leftovers(place.parent), f"left {leftovers(place.parent)}")

    def one_cache(self):
        for number in range(3):
            cache = self.folder / f"cache-{number}"
            words = ("translate", self.whole, self.texts)
            many = [command(*words, environment={"REGARD_CACHE": str(cache)}) for _ in range(4)]
            time.sleep(self.random.uniform(0.1, 0.6))
            many[0].signal(signal.SIGKILL)
            done = [child.wait() for child in many][1:]
            self.tries += len(done)
            for code, text in done:
                same = text == self.translated.read_text()
                self.check(code == 0 and same, f"{code}: {text[-300:]}")
            self.check(finish(*words, environment={"REGARD_CACHE": str(cache)})[0] == 0, "next")
            self.check(not leftovers(cache), f"left {leftovers(cache)}")

    def out_of_memory(self):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
        folder = self.folder / "memory"
        for more in (1, 24, 64, 128, 512):
            limits = {resource.RLIMIT_AS: used + more * 2**20}
            for words in (
                ("train", self.recipe, "-o", folder, "--resume"),
                ("translate", self.whole, self.texts),
            ):
                code, text = finish(*words, limits=limits)
                self.tries += 1
                name = f"{words[0]} {more} MB"
                self.check(code in (0, 2, -6), f"{name}: {code} {text[-300:]}")  # -6: by Rust
                self.check(code != 2 or "memory" in text, f"{name}: {text[-300:]}")
                self.check(TRACEBACK not in text, f"{name}: {text[-300:]}")
        self.check_run(folder)

    def clock_jumps(self):
        real = time.time

        def work(folder):
            shift = iter(range(0, 10**9, 86_400))
            time.time = lambda: real() + next(shift) * self.random.choice((-1, 1))
            sys.argv = ["regard", "train", str(self.recipe), "-o", str(folder), "--resume"]
            from regard.cli.main import run

            run()

        for number in range(3):
            folder = self.folder / f"clock-{number}"
            child = Child(lambda folder=folder: work(folder))
            time.sleep(self.random.uniform(0.3, 0.8) * self.seconds)
            self.tries += child.signal(signal.SIGKILL)
            child.wait()
            code, text = Child(lambda folder=folder: work(folder)).wait()
            self.check(code == 0, text[-300:])
            self.check_run(folder)

    def broken_pipes(self):
        folder = self.folder / "piped"
        for words in (
            ("translate", self.whole, self.texts),
            ("translate", self.whole, self.texts, "--json"),
            ("models",),
            ("show", self.whole, "1 2 3"),
            ("train", self.recipe, "-o", folder),
        ):
            code, text = shell_to_a_closed_pipe(*words)
            self.tries += 1
            self.check(code == 0 and TRACEBACK not in text, f"{words[0]}: {code} {text[-300:]}")
        self.check_run(folder)

    def interrupted_anywhere(self):
        """Ctrl-C also while Python starts and imports."""
        words = [sys.executable, "-m", "regard", "translate", str(self.whole), "1 2 3"]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        start = time.monotonic()
        subprocess.run(words, check=True, **options)
        took = time.monotonic() - start
        for _ in range(12):
            child = subprocess.Popen(words, **options)
            time.sleep(self.random.uniform(0.3, 1.0) * took)  # before, Python itself is starting
            child.send_signal(signal.SIGINT)
            text, _ = child.communicate()
            self.tries += 1
            self.check(child.returncode in (0, 130), f"exit code {child.returncode}")
            self.check(TRACEBACK not in text, f"a traceback: {text[-400:]}")

    def failed_starts(self):
        folder = self.folder / "retried"
        for change in ("data.train=nowhere.tsv", "model.n_heads=3", "training.lr=x"):
            done = finish("train", self.recipe, "-o", folder, "--set", change)
            self.tries += 1
            self.check_refused(done)
        code, text = finish("train", self.recipe, "-o", folder)
        self.check(code == 0, text[-300:])
        self.check(not differing(self.whole, folder), "another model")

    def ascii_terminals(self):
        environment = os.environ | {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}
        for more in ({}, {"PYTHONIOENCODING": "ascii"}, {"PYTHONCOERCECLOCALE": "0"}):
            for words in (
                ("show", "dates", "2019년 3월 1일"),
                ("models", "en-ko"),
                ("translate", "en-ko", "Save the file."),
                ("work", "--language", "ko"),
                ("doctor",),
            ):
                code, text = shell(*words, env=environment | more)
                self.tries += 1
                self.check(code == 0 and TRACEBACK not in text, f"{words[0]}: {code} {text[-300:]}")

    def dead_peer(self):
        for dead in (0, 1):
            folder = self.folder / f"peers-{dead}"
            with socket_port() as port:
                pair = [
                    command(
                        *("train", self.recipe, "-o", folder, "--set", "training.steps=100000"),
                        environment={
                            "WORLD_SIZE": "2",
                            "LOCAL_WORLD_SIZE": "2",
                            "RANK": str(rank),
                            "LOCAL_RANK": str(rank),
                            "MASTER_ADDR": "localhost",
                            "MASTER_PORT": str(port),
                        },
                    )
                    for rank in range(2)
                ]
            end = time.monotonic() + 60
            while not list(folder.glob("training/checkpoints/step-*3")) and time.monotonic() < end:
                time.sleep(0.05)
            pair[dead].signal(signal.SIGKILL)
            start = time.monotonic()
            done = pair[1 - dead].wait(90)
            took = time.monotonic() - start
            self.tries += 1
            self.check(took < 60, f"the other ended after {took:.0f} s")
            self.check_refused(done, "another process of the run", "--resume")
            pair[dead].wait()
            code, text = finish("train", self.recipe, "-o", folder, "--resume")
            self.check(code == 0, f"alone afterwards: {text[-300:]}")
            self.check(not leftovers(folder), f"left {leftovers(folder)}")

    def slow_tests(self, *words):
        """Count a test of `make test-slow` as one try."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
            check=False,
            capture_output=True,
            text=True,
        )
        self.tries += 1
        self.check(done.returncode == 0 and "1 passed" in done.stdout, done.stdout[-600:])

    def dead_ray_worker(self):
        self.slow_tests("tests/generation/test_ray_cluster.py", "-m", "slow", "-k", "killing")

    def other_number_of_processes(self):
        self.slow_tests("tests/training/test_distributed.py", "-m", "slow", "-k", "two_sharded")


def finish_seconds(*words):
    child = command(*words)
    child.wait()
    return child.seconds


class mounted:  # noqa: N801  a context
    """A memory file system of a small size; gives False if this user cannot mount one."""

    def __init__(self, place, options):
        self.place, self.options = place, options

    def __enter__(self):
        words = ["mount", "-t", "tmpfs", "-o", self.options, "tmpfs", str(self.place)]
        done = subprocess.run(words, check=False, capture_output=True)
        self.done = done.returncode == 0
        return self.done

    def __exit__(self, *error):
        if self.done:
            subprocess.run(["umount", "-l", str(self.place)], check=True)


class socket_port:  # noqa: N801  a context
    """A free port, which is closed when the block ends."""

    def __enter__(self):
        import socket

        with socket.socket() as free:
            free.bind(("localhost", 0))
            return free.getsockname()[1]

    def __exit__(self, *error):
        pass


def fill(file, is_mounted):
    """Write until the small file system is full."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        while is_mounted:
            stream.write(bytes(4096))


ROWS = {
    "training, SIGKILL": Faults.training_killed,
    "training, Ctrl-C": Faults.training_interrupted,
    "model save, SIGKILL": Faults.model_save_killed,
    "trace save, SIGKILL": Faults.trace_save_killed,
    "bulk translation, SIGKILL and Ctrl-C": Faults.translation_killed,
    "export and import, SIGKILL and Ctrl-C": Faults.conversion_killed,
    "full disk": Faults.full_disk,
    "read-only folder": Faults.read_only_folder,
    "vanished files": Faults.vanished_files,
    "several writers of one folder": Faults.two_writers,
    "several writers of one cache, one killed": Faults.one_cache,
    "out of memory": Faults.out_of_memory,
    "clock jumps": Faults.clock_jumps,
    "broken pipes": Faults.broken_pipes,
    "Ctrl-C while Python starts": Faults.interrupted_anywhere,
    "failed start, then another": Faults.failed_starts,
    "ASCII terminals": Faults.ascii_terminals,
    "dead process of several": Faults.dead_peer,
    "dead Ray worker": Faults.dead_ray_worker,
    "another number of processes": Faults.other_number_of_processes,
}


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", choices=ROWS, nargs="*", default=list(ROWS), metavar="ROW")
    parser.add_argument("--after", choices=ROWS, metavar="ROW", help="only the rows after this one")
    options = parser.parse_args()
    torch.set_num_threads(1)
    say(f"seed {options.seed}")
    say("| fault                                    | tries | failed | seconds |")
    say("|------------------------------------------|------:|-------:|--------:|")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REGARD_CACHE"] = f"{folder}/cache"
        faults = Faults(Path(folder), options.seed)
        rows = list(ROWS)[list(ROWS).index(options.after) + 1 :] if options.after else options.only
        for name in rows:
            faults.problems, faults.tries, start = [], 0, time.monotonic()
            try:
                ROWS[name](faults)
            except Exception as error:
                faults.check(False, f"the row itself ended with {error!r}")
            took = time.monotonic() - start
            say(f"| {name:40} | {faults.tries:5} | {len(faults.problems):6} | {took:7.1f} |")
            for problem in sorted(set(faults.problems))[:6]:
                say(f"    {problem}")
            failed = failed or bool(faults.problems)
    sys.exit(failed)


if __name__ == "__main__":
    main()
