"""Commands of regard in forked processes that can be killed, limited and compared.

They are forked from one process that has imported everything, so that a command starts in
milliseconds and a hundred of them can be killed in minutes.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

TRACEBACK = "Traceback (most recent call last)"


class Child:
    """A forked process that runs a function or a command of regard; its output goes to a file."""

    def __init__(self, work, *, environment=None, limits=None):
        self.file = Path(tempfile.mkstemp(prefix="faults-")[1])
        self.start, self.code = time.monotonic(), None
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            handle = os.open(self.file, os.O_WRONLY)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            for name, number in (("stdout", 1), ("stderr", 2)):
                setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115
            os.environ.update(environment or {})
            for kind, size in (limits or {}).items():
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(kind, (size, size))
            work()
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError):
                    stream.flush()
            os._exit(code)

    @property
    def running(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._end(status)
        return self.code is None

    def _end(self, status):
        self.code = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - self.start
        self.text = self.file.read_text(errors="replace")
        self.file.unlink()

    def signal(self, number):
        """Send a signal; False if the process had ended before."""
        if not self.running:
            return False
        os.kill(self.pid, number)
        return True

    def wait(self, seconds=1500):
        """Wait for the end, and return the exit code and the output."""
        end = time.monotonic() + seconds
        while self.running:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.005)
        return self.code, self.text


def command(*words, **options):
    """Start a command of regard."""
    from regard.cli.main import run

    def work():
        sys.argv = ["regard", *map(str, words)]
        run()

    return Child(work, **options)


def finish(*words, **options):
    return command(*words, **options).wait()


def shell(*words, **options):
    """Run `python -m regard` as a user does, and return exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "regard", *map(str, words)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def shell_to_a_closed_pipe(*words, seconds=600):
    """Run `python -m regard … | head -c 1`, and return exit code and errors.

    A forked process would hold the reading end itself, so its pipe would never break.
    """
    place = [sys.executable, "-m", "regard", *map(str, words)]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(place, stdout=subprocess.PIPE, stderr=errors) as child,
    ):
        child.stdout.read(1)
        child.stdout.close()
        try:
            code = child.wait(seconds)
        finally:
            child.kill()
        errors.seek(0)
        return code, errors.read().decode(errors="replace")


def leftovers(folder):
    """Locks, temporary files and half-deleted folders."""
    ends = (".tmp", ".new", ".old", ".lock", ".deleted", ".run")
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.name.endswith(ends)]


def contents(folder):
    """The bytes of every file of a model or run, without the times that no two runs share."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or name in ("training/result.json", "training/curves.svg"):
            continue
        if path.name == "metrics.jsonl":
            lines = [json.loads(line) for line in path.read_text().split("\n") if line]
            found[name] = [_timeless(line) for line in lines]
        elif path.name in ("state.json", "recipe.json"):
            found[name] = _timeless(json.loads(path.read_text()))
        elif path.suffix == ".safetensors":  # the order of its metadata is random
            data = path.read_bytes()
            start = 8 + int.from_bytes(data[:8], "little")
            found[name] = json.loads(data[8:start]), data[start:]
        else:
            found[name] = path.read_bytes()
    return found


def _timeless(entry):
    return {name: value for name, value in entry.items() if name not in ("seconds", "speed")}


def differing(one, other):
    """The names of files that are not the same in both folders."""
    left, right = contents(one), contents(other)
    return sorted(name for name in {*left, *right} if left.get(name) != right.get(name))
