"""What may follow a text, at any temperature of sampling, and the text each choice leads to."""

from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.serve.store import Kept
from regard.text.tokenizer import Tokenizer

HOTTEST = 100.0


def following(
    kept: Kept, tokenizer: Tokenizer | None, *, temperature: float, count: int
) -> list[dict[str, Any]]:
    """The most probable next tokens of a language model's trace, the best first."""
    if kept.answer["kind"] != "next":
        raise InputError("only a language model says what comes next.")
    if not 0 <= temperature <= HOTTEST:
        raise InputError(f"temperature is {temperature}; ask for 0 to {HOTTEST:.0f}.")
    logits = kept.trace.values["output.logits"][0, -1]
    chances, ids = _chances(logits, temperature).topk(min(count, len(logits)))
    names = [str(id) if tokenizer is None else tokenizer.token_of(id) for id in ids.tolist()]
    texts = [None if tokenizer is None else _text_with(kept, tokenizer, id) for id in ids.tolist()]
    rows = zip(ids.tolist(), names, chances.tolist(), texts, strict=True)
    return [
        {"id": id, "name": name, "probability": chance, "text": text}
        for id, name, chance, text in rows
    ]


def _chances(logits: Tensor, temperature: float) -> Tensor:
    """The probabilities at a temperature; at 0 the largest logit has all."""
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(), len(logits)).to(logits.dtype)
    return (logits.double() / temperature).softmax(-1)


def _text_with(kept: Kept, tokenizer: Tokenizer, id: int) -> str | None:
    """The text that was read with one more token; None if that token is no text."""
    text = kept.asked["text"]
    before = tokenizer.encode(text)
    if len(before) > 1 and before[-1] == tokenizer.end_id:
        before = before[:-1]
    plain, longer = tokenizer.decode(before), tokenizer.decode([*before, id])
    if plain == longer:
        return None
    return text + longer.removeprefix(plain) if longer.startswith(plain) else longer
