"""A shortlist for translation, learnt from sentences and their translations."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from regard.engine.shortlist import Shortlist
from regard.explain.dictionary import Lexicon
from regard.text.tokenizer import Tokenizer

_PAIRS = 50_000
"""Pairs that are looked at: a dictionary learns the same from more, and its tables grow."""


def learn_shortlist(
    pairs: Iterable[tuple[str, str]],
    source: Tokenizer,
    target: Tokenizer,
    *,
    per_token: int = 50,
    frequent: int = 100,
) -> Shortlist:
    """What each source token may become: the likeliest by a dictionary (IBM Model 1).

    Args:
        per_token: at most so many for each token of the source.
        frequent: so many of the most frequent tokens may always be written.
    """
    texts = list(islice(pairs, _PAIRS))
    sources = source.encode_batch([text for text, _ in texts], specials=False, literal=True)
    targets = target.encode_batch([text for _, text in texts], specials=False, literal=True)
    named = [(_names(s), _names(t)) for s, t in zip(sources, targets, strict=True)]
    often = Counter(id for ids in targets for id in ids)
    special = {id for id in target.special_ids if id != target.unknown_id}
    always = sorted({id for id, _ in often.most_common(frequent)} | special)
    likely = Lexicon(named).learn().likely(per_token)
    words = {int(word): sorted(map(int, found)) for word, found in likely.items()}
    return Shortlist(tuple(always), {id: tuple(ids) for id, ids in words.items()})


def _names(ids: Sequence[int]) -> list[str]:
    return [str(id) for id in ids]
