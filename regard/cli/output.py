"""Translations as lines of text or JSON."""

import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.errors import InputError, RegardError

if TYPE_CHECKING:
    from regard.evaluation.alignment import Alignment
    from regard.evaluation.alignment_heads import Aligner
    from regard.generation.translator import Translation


class Progress:
    """A line on standard error, if that is a terminal; nothing elsewhere.

    Args:
        n_bytes: how much there is to read, where that is known.
        first: how much of it was read and done by an earlier run.
    """

    def __init__(self, n_bytes: int | None, *, first: int = 0) -> None:
        self.n_bytes, self.first = n_bytes, first
        self.begun = self._shown = time.monotonic()
        self.lines = self.tokens = 0
        self.active = sys.stderr.isatty()

    def advance(self, lines: int, tokens: int, read: int) -> None:
        """So many more lines with so many tokens are done; `read` bytes were read by now."""
        self.lines += lines
        self.tokens += tokens
        if self.active and time.monotonic() - self._shown > 0.2:
            self._shown = time.monotonic()
            sys.stderr.write(f"\r{self._text(read)}\x1b[K")
            sys.stderr.flush()

    def _text(self, read: int) -> str:
        parts = [f"{self.lines:,} lines", f"{self.tokens / self._seconds:,.0f} tokens/s"]
        if self.n_bytes:
            share = min(read / self.n_bytes, 1.0)
            pace = max(read - self.first, 1) / self._seconds
            left = max(self.n_bytes - read, 0) / pace
            parts += [f"{100 * share:.0f} %", f"{duration(left)} left"]
        return " · ".join(parts)

    @property
    def _seconds(self) -> float:
        return max(time.monotonic() - self.begun, 1e-6)

    def close(self) -> None:
        """End the line with what was done in all."""
        if self.active:
            told = f"{self.lines:,} lines in {duration(self._seconds)}"
            rate = f"{self.tokens / self._seconds:,.0f} tokens/s"
            sys.stderr.write(f"\r{told} · {rate}\x1b[K\n")
            sys.stderr.flush()


class LinesRead:
    """How many lines were read so far, on standard error; what is said next takes its place."""

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def __call__(self, lines: int) -> None:
        if time.monotonic() - self._shown > 0.2:
            self._shown = time.monotonic()
            sys.stderr.write(f"\r{lines:,} lines read\x1b[K\r")
            sys.stderr.flush()


def duration(seconds: float) -> str:
    """3.2 s, 1:05 or 2:07:09."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


_PROMPT = "> "


def answer_each(
    given: Sequence[str], answer: Callable[[str], None], *, what: str, as_json: bool = False
) -> None:
    """Answer what was given or, without that, line by line what is typed or piped in.

    A line of a pipe that cannot be answered has an empty line (with `as_json`, the reason) in its
    place, and the others are answered; that some were not is said at the end.
    """
    speak_utf8()
    piped, failed = not given and not sys.stdin.isatty(), 0
    for line in lines_of(given, what=what):
        try:
            answer(line)
        except RegardError as error:
            if given:
                raise
            typer.echo(f"regard: {error}", err=True)
            if piped:
                failed += 1
                typer.echo(json.dumps({"error": str(error)}, ensure_ascii=False) if as_json else "")
    if failed:
        raise InputError(f"{failed:,} of the lines could not be answered, for the reasons above.")


def lines_of(given: Sequence[str], *, what: str) -> Iterator[str]:
    """What was given, if anything; otherwise every line of the input, asked for on a terminal.

    Args:
        what: what a line should hold, told to somebody who types.
    """
    if given:
        yield from given
    elif sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  arrow keys and history for input()
        typer.echo(f"type {what} and press Enter; Ctrl-D ends.", err=True)
        while (line := typed()) is not None:
            if line.strip():
                yield line
    else:
        for line in sys.stdin:
            yield line.rstrip("\n")


def typed() -> str | None:
    """A line that somebody typed; None at the end."""
    try:
        return input(_PROMPT)
    except EOFError:
        typer.echo(err=True)
        return None


def speak_utf8() -> None:
    """Files and pipes of text are UTF-8, whatever the machine's language is."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


_ENDS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
"""What some program or other takes for the end of a line."""


class Records:
    """Writes one record for each line of input.

    Args:
        n_best: with more than one, lines have numbers and scores.
        folder: the model's, where its alignments are wanted.
    """

    def __init__(self, *, as_json: bool, n_best: int, folder: Path | None = None) -> None:
        self.as_json, self.n_best, self.folder = as_json, n_best, folder
        self._aligner: Aligner | None = None
        self._heads: Mapping[str, Any] | None = None

    def remember(self, notes: Mapping[str, Any]) -> None:
        """Align with the heads that an earlier run has chosen."""
        self._heads = notes.get("heads")

    def notes(self) -> dict[str, Any]:
        """What a later run must know to write the same."""
        known = None if self._aligner is None else self._aligner.chosen
        return {} if known is None else {"heads": known.to_json()}

    def write(
        self,
        lines: Sequence[str],
        done: Sequence["Translation"],
        number: int = 0,
        *,
        skip: int = 0,
    ) -> str:
        """The records of these lines, the first of which is line `number`; `skip` are left out."""
        several = [[one, *one.alternatives] for one in done]
        aligned = iter(self._aligned([one for best in several for one in best]))
        records = []
        for i, (line, best) in enumerate(zip(lines, several, strict=True)):
            pairs = [(one, next(aligned)) for one in best]
            if self.as_json:
                records.append(_as_json(line, pairs))
            elif self.n_best > 1:
                records += [_numbered(number + i, *pair) for pair in pairs]
            else:
                records.append(_plain(*pairs[0]))
            if i + 1 == skip:
                records = []
        return "".join(record + "\n" for record in records)

    def _aligned(self, done: list["Translation"]) -> list["Alignment | None"]:
        if self.folder is None:
            return [None] * len(done)
        if self._aligner is None:
            from regard.evaluation.alignment_heads import Aligner

            self._aligner = Aligner.of_folder(self.folder, self._heads)
        return list(self._aligner.align(done))


def one_line(text: str) -> str:
    """The text without what would end its line."""
    return _ENDS.sub(" ", text)


def _plain(one: "Translation", alignment: "Alignment | None") -> str:
    text = one_line(one.text)
    return text if alignment is None else f"{text} ||| {alignment.pharaoh()}".rstrip()


def _numbered(number: int, one: "Translation", alignment: "Alignment | None") -> str:
    record = f"{number} ||| {one_line(one.text)} ||| {one.score:.4f}"
    return record if alignment is None else f"{record} ||| {alignment.pharaoh()}".rstrip()


def _as_json(line: str, pairs: list[tuple["Translation", "Alignment | None"]]) -> str:
    first, *others = [_described(*pair) for pair in pairs]
    record: dict[str, Any] = {"source": line, "source_tokens": pairs[0][0].source_tokens, **first}
    if others:
        record["alternatives"] = others
    trees = [part.tree.to_json() for part in pairs[0][0].parts if part.tree is not None]
    if trees:
        record["beam_trees"] = trees
    return json.dumps(record, ensure_ascii=False)


def _described(one: "Translation", alignment: "Alignment | None") -> dict[str, Any]:
    record: dict[str, Any] = {"text": one.text, "score": round(one.score, 6), "tokens": one.tokens}
    if alignment is not None:
        record["alignment"] = alignment.to_json()
    return record
