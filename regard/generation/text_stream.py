"""A text that grows token by token: complete characters are passed on, and stop texts end it."""

from collections.abc import Callable, Sequence

from regard.text.tokenizer import Tokenizer


class TextStream:
    """Decodes a growing text, passes on complete characters and looks for stop texts."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: list[int],
        on_text: Callable[[str], None] | None,
        stops: Sequence[str] = (),
    ) -> None:
        self.tokenizer, self.on_text, self.stops = tokenizer, on_text, tuple(stops)
        self.stopped = False
        self._ids = list(prompt_ids)
        # Tokens from `_context` on are decoded again, because a token's text depends on the one
        # before it; those from `_read` on have not been passed on.
        self._context, self._read = max(0, len(prompt_ids) - 4), len(prompt_ids)
        self._held = ""  # the end of the text, as long as a stop text could begin in it

    def add(self, token: int) -> bool:
        """Add a token; True if a stop text is complete."""
        self._ids.append(token)
        if self.on_text is None and not self.stops:
            return False
        text = self._new_text()
        if text.endswith("\ufffd"):  # an incomplete character
            return False
        self._context, self._read = self._read, len(self._ids)
        return self._pass_on(text)

    def close(self) -> None:
        """Pass on the rest, including incomplete characters."""
        if self.on_text is not None and (rest := self._held + self._new_text()):
            self.on_text(rest)

    def _new_text(self) -> str:
        before = self.tokenizer.decode(self._ids[self._context : self._read])
        return self.tokenizer.decode(self._ids[self._context :])[len(before) :]

    def _pass_on(self, text: str) -> bool:
        text = self._held + text
        found = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        self.stopped = bool(found)
        safe = min(found) if found else len(text) - _overlap(text, self.stops)
        self._held = text[safe:]
        if self.on_text is not None and safe:
            self.on_text(text[:safe])
        return self.stopped


def _overlap(text: str, stops: Sequence[str]) -> int:
    """Return how many characters at the end of a text could begin a stop text."""
    sizes = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return max(sizes, default=0)
