"""What an engine knows of a vocabulary: names for ids, and what is never written."""

from regard.engine.search import SearchOptions
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer


def names_of(tokenizer: Tokenizer) -> list[str]:
    """The entry of each id, all at once; ids that nobody has are nameless."""
    names = [""] * len(tokenizer)
    for name, id in tokenizer.backend.get_vocab(with_added_tokens=True).items():
        names[id] = name
    return names


def entries(tokenizer: Tokenizer, n_vocab: int) -> list[str]:
    """The names by which a converted model of `n_vocab` tokens knows them."""
    names = [name or f"[unused {id}]" for id, name in enumerate(names_of(tokenizer))]
    return (names + [f"[unused {id}]" for id in range(len(names), n_vocab)])[:n_vocab]


def never_written(target: Tokenizer, n_vocab: int) -> list[int]:
    """The tokens that no translation holds: special ones except the end, and nobody's."""
    special = (target.pad_id, target.mask_id, target.start_id, target.unknown_id)
    ids = {id for id in special if id is not None} - {target.end_id}
    return [*sorted(ids), *range(len(target), n_vocab)]


def begun_with(target: Tokenizer, options: SearchOptions) -> list[int]:
    """The ids that every translation begins with."""
    return _known(target, options.prefix) if options.prefix else []


def phrases(target: Tokenizer, options: SearchOptions) -> list[list[int]]:
    """The ids of what must appear, as they stand in the middle of a text: after a space."""
    return [_known(target, f" {phrase.strip()}") for phrase in options.must]


def _known(target: Tokenizer, text: str) -> list[int]:
    ids = target.encode(text, specials=False, literal=True)
    if not ids or target.unknown_id in ids:
        raise InputError(f"the model cannot write {text.strip()!r}: it knows no such token.")
    return ids
