"""Output of commands: progress lines, prompts, and translations as text or JSON."""

import io
import json
import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.errors import InputError, RegardError, translate

if TYPE_CHECKING:
    from regard.evaluation.alignment import Alignment
    from regard.evaluation.alignment_heads import Aligner
    from regard.generation.translator import Translation


class ProgressLine:
    """A line of progress on standard error, if that is a terminal.

    `n_bytes` is the size of the input, of which an earlier run processed the first `first`.
    """

    def __init__(self, n_bytes: int | None, *, first: int = 0, quiet: bool = False) -> None:
        self.n_bytes, self.first = n_bytes, first
        self.started = self._shown = time.monotonic()
        self.lines = self.tokens = 0
        self.active = sys.stderr.isatty() and not quiet

    def advance(self, done: Sequence["Translation"], read: int) -> None:
        """Count more lines and tokens; `read` is the number of bytes read in total."""
        self.lines += len(done)
        self.tokens += sum(len(one.tokens) for one in done)
        if self.active and time.monotonic() - self._shown > 0.2:
            self._shown = time.monotonic()
            parts = [translate(f"{self.lines:,} lines", short=True), self._pace()]
            if self.n_bytes:
                share = min(read / self.n_bytes, 1.0)
                left = max(self.n_bytes - read, 0) * self._seconds() / max(read - self.first, 1)
                parts += [f"{100 * share:.0f} %", translate(f"{duration(left)} left", short=True)]
            self._show(" · ".join(parts))

    def close(self) -> None:
        """Replace the line by a summary."""
        if self.active:
            done = translate(f"{self.lines:,} lines in {duration(self._seconds())}", short=True)
            self._show(f"{done} · {self._pace()}\n")

    def _pace(self) -> str:
        return translate(f"{self.tokens / self._seconds():,.0f} tokens/s")

    def _seconds(self) -> float:
        return max(time.monotonic() - self.started, 1e-6)

    def _show(self, text: str) -> None:
        end = "\n" if text.endswith("\n") else ""
        sys.stderr.write(f"\r{text.rstrip()}\x1b[K{end}")
        sys.stderr.flush()


class CountLine:
    """A count of finished inputs on standard error, if that is a terminal."""

    def __init__(self, total: int | None) -> None:
        self.total, self.done, self.active = total, 0, sys.stderr.isatty()
        self._started = self._shown = time.monotonic()

    def advance(self, count: int) -> None:
        """Count more inputs."""
        self.done += count
        if self.active and time.monotonic() - self._shown > 0.2:
            self._shown = time.monotonic()
            done = f"{self.done:,}"
            if self.total is not None:
                done = translate(f"{done} of {self.total:,}", short=True)
            pace = self.done / max(self._shown - self._started, 1e-6)
            sys.stderr.write(f"\r{done} · {pace:,.0f}/s\x1b[K")
            sys.stderr.flush()

    def close(self) -> None:
        """Remove the line."""
        if self.active:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def duration(seconds: float) -> str:
    """Format seconds as 3.2 s, 1:05 or 2:07:09."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def write_flushed(text: str) -> None:
    """Write to standard output at once; a closed pipe ends the command without an error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


def warn(text: str) -> None:
    """Print a message on standard error, in the user's language."""
    typer.echo(f"regard: {translate(text)}", err=True)


def say(text: str, *, err: bool = False) -> None:
    """Print a message in the user's language."""
    typer.echo(translate(text), err=err)


def cells(text: str) -> int:
    """Return the width of a text on a terminal, where Korean letters are two cells wide."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Fill up a text with spaces to a width in cells."""
    space = " " * (width - cells(text))
    return space + text if right else text + space


def terminal_width() -> int | None:
    """Return the columns of the terminal that is written to, or None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, width: int | None) -> Iterator[str]:
    """Yield the lines of a text that is broken at spaces to a width in cells, if there is one."""
    if width is None:
        yield text
        return
    line = ""
    for word in text.split(" "):
        if line and cells(line) + 1 + cells(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value as JSON."""
    typer.echo(to_json(value, indent=indent))


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON, without escapes for characters of other languages."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def answer_each(
    given: Sequence[str], answer: Callable[[str], None], *, what: str, as_json: bool = False
) -> None:
    """Answer the given texts or, if there are none, each line that is typed or piped in.

    A piped line that cannot be answered gives an empty line (the error with `as_json`), and the
    command fails at its end. `what` describes a line, for the prompt.
    """
    use_utf8()
    piped, failed = not given and not sys.stdin.isatty(), 0
    for line in given or (sys.stdin if piped else typed_lines(f"type {what}")):
        try:
            answer(line if given else line.rstrip("\n"))
        except RegardError as error:
            if given:
                raise
            warn(str(error))
            if piped:
                failed += 1
                typer.echo(_failure(error) if as_json else "")
    if failed:
        raise InputError(f"{failed:,} of the lines could not be answered; see the errors above.")


def answer_lines(
    source: str,
    answer: Callable[[list[str]], list[str]],
    *,
    as_json: bool = False,
    size: int = 1024,
) -> None:
    """Print the answers to the lines of a file, or of standard input for -, in batches of `size`.

    Lines that arrive slowly are answered at once. One that cannot be answered gives an empty line
    (the error with `as_json`), and the command fails at its end.
    """
    from regard.generation.bulk import LineReader

    failed = 0

    def answer_one(line: str) -> str:
        nonlocal failed
        try:
            return answer([line])[0]
        except RegardError as error:
            warn(str(error))
            failed += 1
            return _failure(error) if as_json else ""

    for window in LineReader(source).available_windows(size):
        try:
            printed = answer(window) if window else []
        except RegardError:
            printed = [answer_one(line) for line in window]
        if printed:
            write_flushed("".join(f"{one}\n" for one in printed))
    if failed:
        raise InputError(f"{failed:,} of the lines could not be answered; see the errors above.")


def _failure(error: RegardError) -> str:
    return json.dumps({"error": translate(str(error))}, ensure_ascii=False)


def typed_lines(request: str) -> Iterator[str]:
    """Ask for lines on a terminal and yield those that are not empty."""
    with suppress(ImportError):
        import readline  # noqa: F401  arrow keys and history for input()
    say(f"{request} and press Enter; Ctrl-D ends.", err=True)
    while True:
        try:
            line = input("> ")
        except EOFError:
            typer.echo(err=True)
            return
        if line.strip():
            yield line


def decoded_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file, or of standard input for -, which must be valid UTF-8."""
    from regard.files import read_lines

    for number, line in enumerate(read_lines(path), 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            place = f"Line {number:,} of {'the input' if path == '-' else path}"
            raise InputError(f"{place} is not valid UTF-8 at byte {error.start}.") from error


def write_vectors(output: Path, windows: Iterable[Any], width: int) -> tuple[int, int]:
    """Write vectors as they come, because all of them may not fit in memory."""
    import tempfile

    import numpy as np

    from regard.files import atomic_path

    count = 0
    with tempfile.TemporaryFile() as numbers, atomic_path(output) as fresh:
        for vectors in windows:
            count += len(vectors)
            if output.suffix == ".jsonl":
                numbers.write("".join(f"{json.dumps(one)}\n" for one in vectors.tolist()).encode())
            else:
                numbers.write(vectors.astype("<f4").tobytes())
        numbers.seek(0)
        with fresh.open("wb") as stream:
            if output.suffix == ".npy":
                header = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
                np.lib.format.write_array_header_1_0(stream, header)
            elif output.suffix == ".safetensors":
                entry = {"dtype": "F32", "shape": [count, width]}
                about = {"vectors": {**entry, "data_offsets": [0, 4 * count * width]}}
                header = json.dumps(about).encode()
                header += b" " * (-len(header) % 8)
                stream.write(len(header).to_bytes(8, "little") + header)
            shutil.copyfileobj(numbers, stream)
    return count, width


def use_utf8() -> None:
    """Read and write UTF-8 whatever the locale is."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


class RecordWriter:
    """Formats one record for each line of input, with alignments if the model's folder is given.

    With `n_best` above 1, records have numbers and scores.
    """

    def __init__(self, *, as_json: bool, n_best: int, folder: Path | None = None) -> None:
        self.as_json, self.n_best, self.folder = as_json, n_best, folder
        self._aligner: Aligner | None = None
        self._heads: Mapping[str, Any] | None = None

    def restore(self, settings: Mapping[str, Any]) -> None:
        """Align with the heads that an earlier run has chosen."""
        self._heads = settings.get("heads")

    def settings(self) -> dict[str, Any]:
        """Return what a later run needs to write the same."""
        known = None if self._aligner is None else self._aligner.chosen
        return {} if known is None else {"heads": known.to_json()}

    def format(
        self, lines: Sequence[str], done: Sequence["Translation"], number: int = 0, *, skip: int = 0
    ) -> str:
        """Return the records of lines `number`, `number` + 1, …, without the first `skip`."""
        ranked = [[one, *one.alternatives] for one in done]
        aligned = iter(self._align([one for best in ranked for one in best]))
        records = []
        for i, (line, best) in enumerate(zip(lines, ranked, strict=True)):
            pairs = [(one, next(aligned)) for one in best]
            if self.as_json:
                records.append(_json_record(line, pairs))
            elif self.n_best > 1:
                records += [
                    _text_record(f"{number + i} ||| ", one, f" ||| {one.score:.4f}", alignment)
                    for one, alignment in pairs
                ]
            else:
                records.append(_text_record("", pairs[0][0], "", pairs[0][1]))
            if i + 1 == skip:
                records = []
        return "".join(record + "\n" for record in records)

    def _align(self, done: list["Translation"]) -> list["Alignment | None"]:
        if self.folder is None:
            return [None] * len(done)
        if self._aligner is None:
            from regard.evaluation.alignment_heads import Aligner

            self._aligner = Aligner.of_folder(self.folder, self._heads)
        return list(self._aligner.align(done))


def _text_record(before: str, one: "Translation", after: str, alignment: "Alignment | None") -> str:
    # Some program treats each of these characters as the end of a line.
    text = re.sub(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+", " ", one.text)
    record = f"{before}{text}{after}"
    return record if alignment is None else f"{record} ||| {alignment.pharaoh()}".rstrip()


def _json_record(line: str, pairs: list[tuple["Translation", "Alignment | None"]]) -> str:
    first, *others = [_json_translation(*pair) for pair in pairs]
    record: dict[str, Any] = {"source": line, "source_tokens": pairs[0][0].source_tokens, **first}
    if others:
        record["alternatives"] = others
    trees = [part.tree.to_json() for part in pairs[0][0].parts if part.tree is not None]
    if trees:
        record["beam_trees"] = trees
    return json.dumps(record, ensure_ascii=False)


def _json_translation(one: "Translation", alignment: "Alignment | None") -> dict[str, Any]:
    record: dict[str, Any] = {"text": one.text, "score": round(one.score, 6), "tokens": one.tokens}
    if one.engine:
        record |= {"engine": one.engine, "precision": one.precision}
    if one.differs is not None:
        record["differs"] = list(one.differs)
    if alignment is not None:
        record["alignment"] = alignment.to_json()
    return record
