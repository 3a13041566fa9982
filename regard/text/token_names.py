"""Names of token ids for engines, and the tokens that are never generated."""

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
