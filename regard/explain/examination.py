"""What a model says about references: how likely they are, and which heads align them."""

import re
from collections.abc import Sequence

from regard.engine.opening import room_of
from regard.engine.segment import clean
from regard.engine.translator import Part
from regard.errors import InputError
from regard.explain.aligner import Aligner, Measured, keep_heads
from regard.explain.alignment import Gold
from regard.explain.crossing import pair_part
from regard.explain.dictionary import dictionary_gold
from regard.explain.evaluation import Own
from regard.explain.perplexity import perplexity
from regard.model import Model

_MOST = 500
"""Pairs that heads are measured on."""
_FEW = 20
"""Links that a dictionary must at least be sure of, for a choice that means something."""
_LINK = re.compile(r"(\d+)([-p?])(\d+)")


def examine(
    model: Model,
    texts: list[str],
    sources: Sequence[str],
    references: Sequence[str],
    golds: Sequence[Gold] | None = None,
) -> Own:
    """Translations with the perplexity of the references and every head's alignment error."""
    tokenizers = model.tokenizer, model.target_tokenizer
    room = room_of(model.config.to_dict()) - 2
    parts = [
        pair_part(clean(source), clean(reference), tokenizers)
        for source, reference in zip(sources, references, strict=True)
    ]
    fitting = [i for i, part in enumerate(parts) if max(_sizes(part)) <= room]
    measured = _measured(model, parts, fitting, golds)
    return Own(texts, perplexity(model.bundle, [parts[i] for i in fitting]), measured)


def _sizes(part: Part) -> tuple[int, int]:
    return len(part.source_ids), len(part.ids)


def _measured(
    model: Model, parts: list[Part], fitting: list[int], golds: Sequence[Gold] | None
) -> Measured | None:
    """The error of each head; None for a model that has none, or where no links are known."""
    if not _attends(model):
        return None
    kind = "dictionary" if golds is None else "gold"
    known = golds or dictionary_gold([(part.source.split(), part.text.split()) for part in parts])
    some = [i for i in fitting if known[i].sure and parts[i].ids][:_MOST]
    if sum(len(known[i].sure) for i in some) < (_FEW if golds is None else 1):
        return None
    chosen = [parts[i] for i in some], [known[i] for i in some]
    measured = Aligner(model.bundle).measure(*chosen, source=kind)
    if model.folder is not None:
        keep_heads(model.folder, measured.best)
    return measured


def _attends(model: Model) -> bool:
    return getattr(model.config, "attention", "none") != "none"


def read_gold(line: str, number: int) -> Gold:
    """The links of a line: 1-2 is sure, 1p2 or 1?2 possible; words are counted from 0."""
    sure, possible = set(), set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise InputError(f"Line {number:,} has {word!r}, which is no link; write them as 1-2.")
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))
