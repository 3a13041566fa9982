"""Tokenizers from outside, made to put a start and an end token around every text."""

from tokenizers import Tokenizer as Backend
from tokenizers import processors

from regard.errors import InputError
from regard.text.tokenizer import Tokenizer


def with_ends(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer itself if its texts begin with start and end with end, or one whose texts do.

    Byte-level BPE as GPT-2 has it adds neither token and Llama's only the first: whoever learnt to
    write from such texts would never learn to end them.
    """
    start_id, end_id = (end_of(tokenizer, role) for role in ("start", "end"))
    front, back = _added(tokenizer)
    if front[:1] == [start_id] and back[-1:] == [end_id]:
        return tokenizer
    front = front if front[:1] == [start_id] else [start_id, *front]
    back = back if back[-1:] == [end_id] else [*back, end_id]
    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.post_processor = processors.TemplateProcessing(
        single="front $A back",
        pair="front $A back $B:1 back:1",
        special_tokens=[
            {"id": name, "ids": ids, "tokens": [tokenizer.token_of(id) for id in ids]}
            for name, ids in (("front", front), ("back", back))
        ],
    )
    return Tokenizer(backend, roles=tokenizer.roles)


def end_of(tokenizer: Tokenizer, role: str) -> int:
    """The id of the start or the end token; refused where a tokenizer has none."""
    found = tokenizer.start_id if role == "start" else tokenizer.end_id
    if found is None:
        raise InputError(
            f"the target's tokenizer has no {role} token, which translation needs: name one in a "
            "special_tokens_map.json beside it, or let a tokenizer be learnt."
        )
    return found


def _added(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids that are put before and behind a text."""
    found = tokenizer.backend.encode("a")
    added = found.special_tokens_mask
    if 0 not in added:  # "a" is no part of this vocabulary
        cut = int(found.ids[:1] == [tokenizer.start_id])
        return found.ids[:cut], found.ids[cut:]
    return found.ids[: added.index(0)], found.ids[len(added) - added[::-1].index(0) :]
