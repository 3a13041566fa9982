"""Bulk input and output: lines in windows, and an output file that an interrupted run resumes.

The output file itself says how far a run came, so nothing is lost or repeated however the run
ended. A small file next to it holds the run's settings, so that no other run resumes it.

On a cluster, Ray Data gives each window to a worker, and to another one if that worker dies, so
every window comes back exactly once. They come back in order, so the output is that of a single
process.
"""

import json
import logging
import os
import pickle
import select
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from regard.capabilities import choose_engine
from regard.errors import FileError, InputError, make_parent
from regard.files import (
    LONGEST_LINE,
    STANDARD_INPUT,
    file_errors,
    is_text,
    open_bytes,
    read_lines,
    stream_errors,
    write_atomic,
)
from regard.generation.search import SearchOptions
from regard.generation.translator import TORCH_WINDOW, WINDOW, Translation, open_translator
from regard.hardware import chosen_device, cpu_count
from regard.model_folder import read_description

_AT_ONCE = 64  # windows that are sent to the cluster together and held in memory here


class ClusterTranslator:
    """Translates windows of lines on a cluster, as a Translator does in one process.

    Args:
        folder: path of the model on every machine of the cluster.
        opening: arguments of `open_translator`.
        address: address of a running cluster; None starts one on this machine's cores.
    """

    def __init__(
        self, folder: Path, *, opening: Mapping[str, Any], address: str | None = None
    ) -> None:
        if chosen_device() != "cpu":
            raise InputError(
                f"the workers of --cluster run on CPUs, and the device is {chosen_device()}: leave "
                "one of them out."
            )
        if address:
            _enable_token()
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise InputError("--cluster needs Ray: pip install 'regard[ray]'.") from error
        ensemble = [Path(other).resolve() for other in opening.get("ensemble", ())]
        self.ray: Any = ray
        self.folder, self.opening = folder.resolve(), {**opening, "ensemble": ensemble}
        described = read_description(folder)
        names = ("engine", "precision", "torch_feature")
        chosen = {name: opening[name] for name in names if name in opening}
        engine, _ = choose_engine(described.family, described.model, **chosen)
        self.window = TORCH_WINDOW if engine == "torch" or ensemble else WINDOW
        self._start(address)

    def translate_windows(
        self, given: Iterable[Sequence[str]], options: SearchOptions
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each window, in order; an empty window forces output."""
        for batch in _batches(given):
            rows = [{"number": i, "lines": list(window)} for i, window in enumerate(batch)]
            for number, row in enumerate(self._translate(rows, options)):
                assert row["number"] == number, "windows come back in order"
                yield pickle.loads(row["done"])

    def close(self) -> None:
        """Leave the cluster; one that was started here is stopped."""
        self.ray.shutdown()

    def _start(self, address: str | None) -> None:
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if not address:
            options |= {"include_dashboard": False, "num_cpus": cpu_count()}
        # Ray waits half a minute for its own processes, which is too short on a busy machine.
        for left in reversed(range(1 if address else 3)):
            try:
                self.ray.init(address or "local", **options)
                return
            except Exception as error:  # Ray raises nothing more specific
                self.ray.shutdown()
                if left == 0:
                    where = f"at {address!r}" if address else "on this machine"
                    raise InputError(
                        f"Ray did not start {where} ({error}): start a cluster with `ray start "
                        "--head` and give its address (and, from another machine, its token in "
                        "RAY_AUTH_TOKEN), or translate without --cluster."
                    ) from error

    def _translate(
        self, rows: list[dict[str, Any]], options: SearchOptions
    ) -> Iterator[dict[str, Any]]:
        data = self.ray.data
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        workers = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        found = data.from_items(rows, override_num_blocks=len(rows)).map(
            TranslationActor,
            fn_constructor_args=(str(self.folder), self.opening, options),
            compute=data.ActorPoolStrategy(size=min(workers, len(rows))),
            num_cpus=1,
        )  # an actor that dies is restarted, and its window is translated again
        return iter(found.iter_rows())


class TranslationActor:
    """One worker of the cluster."""

    def __init__(self, folder: str, opening: dict[str, Any], options: SearchOptions) -> None:
        os.environ["REGARD_WORKERS"] = "1"  # every core has an actor
        self.translator, self.options = open_translator(Path(folder), **opening), options

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        (done,) = self.translator.translate_windows([list(row["lines"])], self.options)
        return {"number": row["number"], "done": pickle.dumps(done)}


def _enable_token() -> None:
    """Let Ray use the token of the environment or of `ray start`, which it ignores by default."""
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if "RAY_AUTH_TOKEN" in os.environ or file.is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _batches(windows: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    """Yield lists of up to `_AT_ONCE` windows; an empty window ends a list."""
    batch: list[Sequence[str]] = []
    for window in windows:
        batch += [window] if window else []
        if batch and (not window or len(batch) == _AT_ONCE):
            yield batch
            batch = []
    if batch:
        yield batch


_WINDOW_CHARACTERS = 4_000_000  # the most in a window, unless a single line has more


class LineReader:
    """Reads lines from a file, from standard input for "-", or from a text that is not a file.

    Bytes that are not valid UTF-8 become U+FFFD, so that one damaged line does not end a long run.
    """

    def __init__(self, path: str) -> None:
        self.path, self._n_lines = path, 0
        self.n_bytes = 0  # without line ends
        self.n_damaged = 0  # lines that are not valid UTF-8
        self.damaged: list[int] = []  # numbers of the first five of them

    def windows(self, size: int) -> Iterator[list[str]]:
        """Yield windows of `size` lines, fewer if lines are long; a file always gives the same."""
        lines = self.path.encode(errors="replace").split(b"\n") if is_text(self.path) else None
        given = read_lines(self.path) if lines is None else iter(lines)
        return windows_of_text((self._decode(line) for line in given), size)

    def available_windows(self, size: int) -> Iterator[list[str]]:
        """Yield windows of the lines at hand, and an empty one before waiting for more."""
        handle = None
        with suppress(AttributeError, OSError, ValueError):  # standard input can be replaced
            handle = sys.stdin.fileno()
        if self.path != STANDARD_INPUT or handle is None or not hasattr(select, "poll"):
            yield from self.windows(size)
            return
        gathered: list[str] = []
        with stream_errors("standard input"):
            for lines in _available_lines(handle):
                gathered += map(self._decode, lines)
                full = len(gathered) >= size or sum(map(len, gathered)) >= _WINDOW_CHARACTERS
                if not lines or full:
                    yield from windows_of_text(gathered, size)
                    gathered = []
                if not lines:
                    yield []
            yield from windows_of_text(gathered, size)

    def _decode(self, line: bytes) -> str:
        self._n_lines += 1
        self.n_bytes += len(line)
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.n_damaged += 1
            self.damaged += [self._n_lines] if len(self.damaged) < 5 else []
            return line.decode(errors="replace")


def windows_of_text(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of at most `size` lines and `_WINDOW_CHARACTERS` characters."""
    window: list[str] = []
    left = _WINDOW_CHARACTERS
    for line in lines:
        if window and (len(window) == size or len(line) > left):
            yield window
            window, left = [], _WINDOW_CHARACTERS
        window.append(line)
        left -= len(line)
    if window:
        yield window


def _available_lines(handle: int) -> Iterator[list[bytes]]:
    """Yield lines of standard input as soon as they are complete, and [] before waiting."""
    poll = select.poll()
    poll.register(handle, select.POLLIN | select.POLLHUP)
    unfinished: list[bytes] = []
    with open_bytes(STANDARD_INPUT) as stream:
        while data := stream.read1(2**18):
            first, *lines = data.split(b"\n")
            unfinished.append(first)
            if lines:
                *whole, rest = lines
                yield [line.removesuffix(b"\r") for line in (b"".join(unfinished), *whole)]
                unfinished = [rest]
            elif sum(map(len, unfinished)) > LONGEST_LINE:
                raise InputError(
                    f"a line of the input is longer than {LONGEST_LINE:,} bytes: give text with "
                    "one sentence per line."
                )
            if not poll.poll(10):  # milliseconds
                yield []
    if last := b"".join(unfinished):
        yield [last.removesuffix(b"\r")]


class OutputProgress(NamedTuple):
    """The complete part of an output file."""

    records: int = 0  # input lines whose output is complete
    n_bytes: int = 0  # size of that output; what follows is incomplete


class OutputFile:
    """An output file that is written from its start, or from where an earlier run stopped.

    Args:
        settings: what must be the same for a run to resume the file.
        numbered: a record has several lines that start with its number, as n-best lists do.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, numbered: bool = False) -> None:
        self.path, self.settings, self.numbered = path, dict(settings), numbered
        self.settings_file = path.with_name(f".{path.name}.run")

    def progress(self) -> OutputProgress:
        """Return how far the earlier run came; refuses one with other settings."""
        if not self.path.exists():
            return OutputProgress()
        for name, before in self.saved_settings().items():
            now = self.settings.get(name)
            if name in self.settings and before != now:
                raise InputError(
                    f"{self.path} was started with {name} {before}, but {name} is {now} now: use "
                    "the same settings, or start again without --resume."
                )
        with file_errors(self.path), self.path.open("rb") as stream:
            return _complete_records(stream, numbered=self.numbered)

    @contextmanager
    def open_from(self, progress: OutputProgress) -> Iterator["OutputFile"]:
        """Open the file after its complete part; success removes the settings file."""
        with file_errors(self.path, "written"):
            make_parent(self.path)
            # Unbuffered, so that what was written never remains in memory.
            self._stream = self.path.open("r+b" if self.path.exists() else "xb", buffering=0)
        regular = self.path.is_file()  # not a pipe or a device
        with self._stream:
            if regular:
                _lock(self._stream, self.path)
                self.save_settings()
                self._stream.truncate(progress.n_bytes)
                self._stream.seek(progress.n_bytes)
            yield self
            if regular:
                os.fsync(self._stream.fileno())
                self.settings_file.unlink(missing_ok=True)

    def write(self, text: str) -> None:
        left = memoryview(text.encode())
        with file_errors(self.path, "written"):
            while left:
                left = left[self._stream.write(left) :]

    def save_settings(self, **settings: Any) -> None:
        """Save the settings, with further ones that were decided during the run."""
        self.settings |= settings
        if self.path.is_file():
            write_atomic(self.settings_file, json.dumps(self.settings, ensure_ascii=False))

    def saved_settings(self) -> dict[str, Any]:
        """Return the settings of the interrupted run; empty if they are unknown."""
        with suppress(OSError, ValueError):
            saved = json.loads(self.settings_file.read_bytes())
            return saved if isinstance(saved, dict) else {}
        return {}


class RemainingInput:
    """The windows of the input that are not yet translated.

    A window that was written in part is translated again as a whole, so that batches are the same
    as in a run without interruption.
    """

    def __init__(self, records: int, reader: LineReader) -> None:
        self.records, self.reader = records, reader
        self.number = 0  # of the first line of the next window
        self.skipped_bytes = self._n_read = 0

    @property
    def skip(self) -> int:
        """The number of records of the next window that are already written."""
        return max(self.records - self.number, 0)

    def windows(self, size: int) -> Iterator[list[str]]:
        """Yield the windows that are not complete in the output."""
        for window in self.reader.windows(size):
            self._n_read += len(window)
            if self._n_read <= self.records:
                self.number = self._n_read
                self.skipped_bytes = self.reader.n_bytes
            else:
                yield window

    def check(self, path: Path) -> None:
        """Refuse an output with more records than the input has lines."""
        if self._n_read < self.records:
            raise InputError(
                f"{path} has {self.records:,} lines, but the input has only {self._n_read:,}: give "
                "the output of this input, or start again without --resume."
            )


def _complete_records(stream: BinaryIO, *, numbered: bool) -> OutputProgress:
    """Count lines that have an end, or numbers before the last, which may lack some lines."""
    records = complete = n_bytes = 0
    for line in stream:
        number, found, _ = line.partition(b" ")
        if not line.endswith(b"\n"):
            break
        if not numbered:
            records, complete = records + 1, n_bytes + len(line)
        elif found and number.isdigit() and int(number) != records:
            records, complete = int(number), n_bytes
        n_bytes += len(line)
    return OutputProgress(records, complete)


def _lock(stream: Any, path: Path) -> None:
    """Refuse a file that another process is writing."""
    try:
        import fcntl

        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FileError(f"{path} is being written by another process: wait for it.") from error
    except (ImportError, OSError):
        pass  # a system or a file system without locks
