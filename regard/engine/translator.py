"""From text to text: lines are cleaned, split, tokenised, translated in batches and put together.

Lines flow through in windows: while the engine translates one window, the next is tokenised, so
memory does not grow with the file and no worker waits. Results come back in the order of lines.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from regard.engine.batch import windows
from regard.engine.search import Engine, Found, Pending, SearchOptions
from regard.engine.segment import Segment, clean, segments
from regard.text.tokenizer import Tokenizer

WINDOW = 2048
"""Lines that are in memory at once, times two."""


@dataclass(frozen=True)
class Translation:
    """One line's translation."""

    text: str
    score: float
    """Log-probability over the length penalty; the mean over its parts for a line in parts."""
    tokens: list[str]
    source_tokens: list[str]
    alternatives: list["Translation"] = field(default_factory=list)
    """The next best ones, where several were asked for and the line is one part."""


@dataclass(frozen=True)
class _Line:
    """A line on its way: its parts, their tokens, and where these stand in the batch."""

    parts: list[Segment]
    ids: list[list[int]]
    first: int


class LineTranslator:
    """A tokenizer in front of an engine and one behind it.

    Args:
        longest: the most tokens a part of a line may have; longer lines are translated in parts.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        *,
        longest: int = 256,
    ) -> None:
        self.engine, self.longest = engine, longest
        self.tokenizer, self.target = tokenizer, target_tokenizer or tokenizer
        self._empty = tokenizer.special_ids | {tokenizer.unknown_id}

    def translate(self, lines: Iterable[str], options: SearchOptions) -> Iterator[Translation]:
        """The translation of each line, in order."""
        before: tuple[list[_Line], Pending] | None = None
        for window in windows(lines, WINDOW):
            ready = self._prepare([clean(line) for line in window])
            sources = [ids for line in ready for ids in line.ids if not self._is_silent(ids)]
            pending = self.engine.submit(sources, options)
            if before is not None:
                yield from self._finish(*before)
            before = ready, pending
        if before is not None:
            yield from self._finish(*before)

    def _prepare(self, lines: list[str]) -> list[_Line]:
        ready, first = [], 0
        for line, ids in zip(lines, self.tokenizer.encode_batch(lines, literal=True), strict=True):
            parts = [Segment(line, "")] if len(ids) <= self.longest else segments(line, self._fits)
            tokens = [ids] if len(parts) == 1 else [self._encode(p.text) for p in parts]
            ready.append(_Line(parts, tokens, first))
            first += sum(not self._is_silent(ids) for ids in tokens)
        return ready

    def _fits(self, text: str) -> bool:
        # A token covers at least a quarter of a character (a byte), so long texts need no look.
        if len(text) > 64 * self.longest:
            return False
        return len(self._encode(text)) <= self.longest

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, literal=True)  # "[SEP]" in a text is text

    def _is_silent(self, ids: list[int]) -> bool:
        """Whether there is nothing to translate: no token at all, or none that is known."""
        if len(ids) > 2 and self.tokenizer.unknown_id not in ids:
            return False
        return not self.tokenizer.decode([id for id in ids if id not in self._empty]).strip()

    def _finish(self, lines: list[_Line], pending: Pending) -> Iterator[Translation]:
        found = pending.wait()
        for line in lines:
            yield self._put_together(line, found)

    def _put_together(self, line: _Line, found: list[list[Found]]) -> Translation:
        """The line's translation; parts that hold no known token are copied as they are."""
        ready, place = [], line.first
        for part, ids in zip(line.parts, line.ids, strict=True):
            if self._is_silent(ids):
                ready.append(Translation(part.text, 0.0, [], []))
            else:
                ready.append(self._translated(ids, found[place]))
                place += 1
        if len(ready) == 1:
            return ready[0]
        seams = [part.seam for part in line.parts]
        text = "".join(one.text + seam for one, seam in zip(ready, seams, strict=True))
        score = sum(one.score for one in ready) / len(ready)
        tokens = [token for one in ready for token in one.tokens]
        source = [token for one in ready for token in one.source_tokens]
        return Translation(text, score, tokens, source)

    def _translated(self, ids: list[int], found: list[Found]) -> Translation:
        source = [self.tokenizer.token_of(id) for id in ids]
        texts = [
            Translation(
                self.target.decode(one.ids),
                one.score,
                [self.target.token_of(id) for id in one.ids],
                source,
            )
            for one in found
        ]
        first = texts[0]
        return Translation(first.text, first.score, first.tokens, source, texts[1:])
