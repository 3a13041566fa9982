"""What a command works on: what it was given, or else line by line what is typed or piped in."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

import typer

_PROMPT = "> "


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
