"""Translations as lines of text or JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.engine.translator import Translation
    from regard.explain.aligner import Aligner
    from regard.explain.alignment import Alignment

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
            from regard.explain.aligner import Aligner

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
