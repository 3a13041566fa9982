"""What a command works on: what it was given, or else line by line what is typed or piped in."""

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import typer

from regard.errors import InputError, RegardError

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
