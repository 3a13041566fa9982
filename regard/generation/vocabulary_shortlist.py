"""A shortlist for translation, learned from sentences and their translations."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import FileError, InputError
from regard.files import write_atomic
from regard.text.tokenizer import Tokenizer

SHORTLIST = "shortlist.json"


@dataclass(frozen=True)
class Shortlist:
    """Token ids that may be written, always and for each token of the source."""

    always: Sequence[int]
    words: Mapping[int, Sequence[int]]

    def candidates(self, sources: Iterable[Sequence[int]]) -> list[int]:
        """All that the translations of these sentences may be made of, in order."""
        found = set(self.always)
        for id in {id for source in sources for id in source}:
            found.update(self.words.get(id, ()))
        return sorted(found)

    def save(self, folder: Path, source: Tokenizer, target: Tokenizer) -> None:
        """Write it into a model folder, with what tells its tokenizers from others."""
        told = {
            "tokenizers": [source.fingerprint, target.fingerprint],
            "always": list(self.always),
            "words": {str(id): list(ids) for id, ids in sorted(self.words.items())},
        }
        write_atomic(folder / SHORTLIST, json.dumps(told, separators=(",", ":")))

    def vocabulary_map(self, source: Sequence[str], target: Sequence[str]) -> str:
        """The same as CTranslate2 reads it: token, tab, tokens; and what is always there first."""
        rules = [("", self.always), *((source[id], ids) for id, ids in sorted(self.words.items()))]
        return "".join(
            f"{name}\t{' '.join(target[id] for id in ids if _is_plain(target[id]))}\n"
            for name, ids in rules
            if _is_plain(name)
        )


def read_shortlist(folder: Path, source: Tokenizer, target: Tokenizer) -> Shortlist:
    """The shortlist of a model folder; refused if it has none, or one of other tokenizers."""
    file = folder / SHORTLIST
    if not file.is_file():
        raise InputError(
            f"{folder} has no shortlist: learn one with `regard shortlist {folder} SOURCE TARGET`."
        )
    try:
        told = json.loads(file.read_bytes())
        tokenizers, always = told["tokenizers"], tuple(map(int, told["always"]))
        words = {int(id): tuple(map(int, ids)) for id, ids in told["words"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{file} is damaged ({error}): learn the shortlist again.") from error
    if tokenizers != [source.fingerprint, target.fingerprint]:
        raise InputError(f"{file} was learned with other tokenizers: learn the shortlist again.")
    return Shortlist(always, words)


def _is_plain(name: str) -> bool:
    """Whether the name can stand between spaces and tabs."""
    return not any(mark in name for mark in " \t\n\r")
