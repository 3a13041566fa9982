"""Predictions of models without a target: continued texts, filled gaps, classes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.data.image_files import Picture, read_pixels
from regard.errors import InputError
from regard.generation.sampling import sample
from regard.generation.search import SamplingOptions
from regard.generation.stepper import DecoderStepper
from regard.generation.text_generation import Generation, TextStream, check_capacity
from regard.generation.translator import max_positions
from regard.model import Model
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Candidate:
    """One possible answer."""

    text: str
    probability: float


@torch.inference_mode()
def generate(
    model: Model,
    prompt: str,
    options: SamplingOptions,
    on_text: Callable[[str], None] | None = None,
) -> Generation:
    """Continue a prompt, calling `on_text` with each new part of the text."""
    tokenizer = _tokenizer_of(model, "decoder", "continues a text")
    ids = tokenizer.encode_prompt(prompt)
    check_capacity(options, len(ids), max_positions(model.config.to_dict()))
    stream = None if on_text is None else TextStream(tokenizer, ids, on_text)
    read = torch.tensor([ids], device=model.device)
    stepper = DecoderStepper(model.module, torch.tensor([len(ids)], device=model.device))
    (found,) = sample(
        stepper,
        read,
        options,
        end_id=tokenizer.end_id,
        seen=[ids],
        on_token=None if stream is None else lambda _, token: stream.add(token),
    )
    text, before = tokenizer.decode([*ids, *found.ids]), tokenizer.decode(ids)
    return Generation(text, text[len(before) :], found.log_prob, found.finished)


@torch.inference_mode()
def fill(model: Model, text: str, *, count: int = 5) -> list[list[Candidate]]:
    """Return the most probable tokens of each [MASK] in a text."""
    tokenizer = _tokenizer_of(model, "encoder", "fills gaps")
    if model.module.fill is None:
        raise InputError("this model cannot fill gaps: use one that was trained with masked text.")
    ids = tokenizer.encode(text)
    gaps = [i for i, id in enumerate(ids) if id == tokenizer.mask_id]
    if not gaps:
        name = None if tokenizer.mask_id is None else tokenizer.token_of(tokenizer.mask_id)
        raise InputError(f"the text has no gap: write {name} where a word is missing.")
    read = torch.tensor([ids], device=model.device)
    logits = model.module.fill_logits(model.module(read))[0, gaps]
    return [_most_probable(line, count, lambda id: tokenizer.decode([id])) for line in logits]


@torch.inference_mode()
def classify(model: Model, given: Picture, *, count: int = 5) -> list[Candidate]:
    """Return the most probable classes of an image, or of a text."""
    n_classes = getattr(model.config, "n_classes", None) or 0
    labels = model.labels or tuple(str(i) for i in range(n_classes))
    if not labels:
        raise InputError("this model has no classes: use one that was trained for classification.")
    if model.family == "vision":
        config = model.config
        sizes = {"n_channels": config.n_channels, "size": config.image_size}
        pixels = read_pixels(given, normalization=model.pixels, **sizes)
        logits = model.module(pixels.to(model.device))[0]
    else:
        tokenizer = _tokenizer_of(model, "encoder", "classifies texts")
        ids = tokenizer.encode(str(given), literal=True)
        logits = model.module.classify(model.module(torch.tensor([ids], device=model.device)))[0]
    return _most_probable(logits, count, lambda i: labels[i])


def _most_probable(logits: Tensor, count: int, name: Callable[[int], str]) -> list[Candidate]:
    if count < 1:
        raise InputError(f"count is {count}; it must be 1 or more.")
    values, ids = torch.softmax(logits, dim=-1).topk(min(count, len(logits)))
    pairs = zip(ids.tolist(), values.tolist(), strict=True)
    return [Candidate(name(id), value) for id, value in pairs]


def _tokenizer_of(model: Model, family: str, ability: str) -> Tokenizer:
    if model.family != family or model.tokenizer is None:
        raise InputError(
            f"this model is of the family {model.family}; only one of the family {family} with a "
            f"tokenizer {ability}."
        )
    return model.tokenizer
