"""How a trained tokenizer splits one word: BPE's merges, or WordPiece's longest pieces first."""

import json
from dataclasses import dataclass
from itertools import pairwise

from regard.errors import InputError
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class SplitStep:
    """The pieces of a word after a step, and what the step did."""

    pieces: tuple[str, ...]
    joined: str = ""  # the piece that this step made or found
    rank: int | None = None  # number of a BPE merge, in the order of training


@dataclass(frozen=True)
class WordSplit:
    """All steps from characters to tokens."""

    word: str
    kind: str  # "BPE" or "WordPiece"
    steps: tuple[SplitStep, ...]


def split_words(tokenizer: Tokenizer, text: str) -> list[WordSplit]:
    """Return the steps for every word of a text, as the tokenizer normalizes and cuts it."""
    backend = tokenizer.backend
    model = json.loads(backend.to_str())["model"]
    if model["type"] not in ("BPE", "WordPiece"):
        raise InputError(
            f"this tokenizer is a {model['type']} model, which has no merges: BPE and WordPiece do."
        )
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    words = [text]
    if backend.pre_tokenizer is not None:
        words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    split = _merge if model["type"] == "BPE" else _longest_first
    return [WordSplit(word, model["type"], tuple(split(word, model))) for word in words]


def _merge(word: str, model: dict) -> list[SplitStep]:
    """Join the pair that training joined first, again and again."""
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    ranks = {tuple(pair): rank for rank, pair in enumerate(pairs)}
    suffix = model.get("end_of_word_suffix") or ""
    pieces = (*word[:-1], word[-1:] + suffix)
    steps = [SplitStep(pieces)]
    while len(pieces) > 1:
        found = [ranks.get(pair, len(ranks)) for pair in pairwise(pieces)]
        rank = min(found)
        if rank == len(ranks):
            break
        joined, merged, i = "".join(pieces[found.index(rank) :][:2]), [], 0
        while i < len(pieces):
            if i < len(found) and found[i] == rank:
                merged.append(joined)
                i += 2
            else:
                merged.append(pieces[i])
                i += 1
        pieces = tuple(merged)
        steps.append(SplitStep(pieces, joined, rank + 1))
    return steps


def _longest_first(word: str, model: dict) -> list[SplitStep]:
    """Cut off the longest piece that the vocabulary has, again and again."""
    vocabulary, prefix = model["vocab"], model.get("continuing_subword_prefix", "##")
    steps, found, rest = [SplitStep((word,))], [], word
    while rest:
        start = prefix if found else ""
        ends = range(len(rest), 0, -1)
        end = next((end for end in ends if start + rest[:end] in vocabulary), 0)
        if not end:
            unknown = model.get("unk_token", "[UNK]")
            return [*steps, SplitStep((unknown,), unknown)]
        found.append(start + rest[:end])
        rest = rest[end:]
        steps.append(SplitStep((*found, *([rest] if rest else [])), found[-1]))
    return steps
