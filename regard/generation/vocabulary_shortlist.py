"""Shortlists: the target tokens that each source token can become, stored in a model folder."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import FileError, InputError
from regard.files import write_atomic
from regard.text.tokenizer import Tokenizer

SHORTLIST = "shortlist.json"
_SPACES = set(" \t\n\r")


@dataclass(frozen=True)
class Shortlist:
    """Target ids that can be predicted: always, and for each source id."""

    always: Sequence[int]
    words: Mapping[int, Sequence[int]]

    def candidates(self, sources: Iterable[Sequence[int]]) -> list[int]:
        """Return the sorted target ids for a batch of sources."""
        found = set(self.always)
        for id in {id for source in sources for id in source}:
            found.update(self.words.get(id, ()))
        return sorted(found)

    def save(self, folder: Path, source: Tokenizer, target: Tokenizer) -> None:
        """Write the shortlist into a model folder, with the fingerprints of its tokenizers."""
        data = {
            "tokenizers": [source.fingerprint, target.fingerprint],
            "always": list(self.always),
            "words": {str(id): list(ids) for id, ids in sorted(self.words.items())},
        }
        write_atomic(folder / SHORTLIST, json.dumps(data, separators=(",", ":")))

    def vocabulary_map(self, source: Sequence[str], target: Sequence[str]) -> str:
        """Return CTranslate2's format: source token, tab, target tokens; the general ones first."""
        rules = [("", self.always), *((source[id], ids) for id, ids in sorted(self.words.items()))]
        named = [(name, [target[id] for id in ids]) for name, ids in rules]
        return "".join(
            f"{name}\t{' '.join(one for one in found if not _SPACES & set(one))}\n"
            for name, found in named
            if not _SPACES & set(name)
        )


def read_shortlist(folder: Path, source: Tokenizer, target: Tokenizer) -> Shortlist:
    """Read the shortlist of a model folder; refuses one of other tokenizers."""
    file = folder / SHORTLIST
    if not file.is_file():
        raise InputError(
            f"{folder} has no shortlist: learn one with `regard shortlist {folder} SOURCE TARGET`."
        )
    try:
        data = json.loads(file.read_bytes())
        tokenizers, always = data["tokenizers"], tuple(map(int, data["always"]))
        words = {int(id): tuple(map(int, ids)) for id, ids in data["words"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{file} is damaged ({error}): learn the shortlist again.") from error
    if tokenizers != [source.fingerprint, target.fingerprint]:
        raise InputError(f"{file} was learned with other tokenizers: learn the shortlist again.")
    return Shortlist(always, words)
