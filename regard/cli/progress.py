"""How far a long run has come, in one line at the bottom of a terminal."""

import sys
import time


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
