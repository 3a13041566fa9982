"""The string of every token id, and the tokens that a model never generates."""

from regard.text.tokenizer import Tokenizer


def token_names(tokenizer: Tokenizer, n_vocab: int | None = None) -> list[str]:
    """Return one unique name for each id: the vocabulary entry, or "[unused ID]" if it has none.

    CTranslate2 is given these names in place of ids.

    Args:
        n_vocab: the number of names; the size of the tokenizer's vocabulary if None.
    """
    size = len(tokenizer) if n_vocab is None else n_vocab
    entries = {id: name for name, id in tokenizer.backend.get_vocab().items()}
    return [entries.get(id) or f"[unused {id}]" for id in range(size)]


def suppressed_ids(target: Tokenizer, n_vocab: int) -> list[int]:
    """Return the ids that no output contains: special tokens except the end, and unused ids."""
    special = (target.pad_id, target.mask_id, target.start_id, target.unknown_id)
    ids = {id for id in special if id is not None} - {target.end_id}
    return [*sorted(ids), *range(len(target), n_vocab)]
