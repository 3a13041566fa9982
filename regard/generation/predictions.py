"""What models other than translators answer: text that goes on, gaps filled, images named."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.image_files import Picture, read_pixels
from regard.errors import InputError
from regard.generation.sampling import sample
from regard.generation.stepper import WritingStepper
from regard.generation.text_generation import Generation, Telling, begun, checked
from regard.generation.translator import room_of
from regard.model import Model
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Candidate:
    """One possible answer and how probable the model finds it."""

    text: str
    probability: float


@torch.inference_mode()
def generate(
    model: Model,
    prompt: str,
    *,
    on_text: Callable[[str], None] | None = None,
    **options: Any,
) -> Generation:
    """Go on with a text; `options` are those of SampleOptions.

    `on_text` is called with each further part of the text as soon as it is complete.
    """
    tokenizer = _tokenizer_of(model, "decoder", "goes on with a text")
    ids = begun(tokenizer, prompt)
    chosen = checked(tokenizer, ids, room_of(model.config.to_dict()), **options)
    told = Telling(tokenizer, ids, on_text)
    read = torch.tensor([ids], device=_device(model))
    stepper = WritingStepper(model.module, torch.tensor([len(ids)], device=read.device))
    on_token = told.token if on_text is not None else None
    (found,) = sample(stepper, read, chosen, seen=[ids], on_token=on_token)
    text, before = tokenizer.decode([*ids, *found.ids]), tokenizer.decode(ids)
    return Generation(text, text[len(before) :], found.log_prob, found.finished)


@torch.inference_mode()
def fill(model: Model, text: str, *, count: int = 5) -> list[list[Candidate]]:
    """For each [MASK] in the text the most probable tokens."""
    tokenizer = _tokenizer_of(model, "encoder", "fills gaps")
    if model.module.fill is None:
        raise InputError("this model has no head that fills gaps: it was not trained to.")
    ids = tokenizer.encode(text)
    gaps = [i for i, id in enumerate(ids) if id == tokenizer.mask_id]
    if not gaps:
        name = None if tokenizer.mask_id is None else tokenizer.token_of(tokenizer.mask_id)
        raise InputError(f"the text has no gap: write {name} where a word is missing.")
    read = torch.tensor([ids], device=_device(model))
    logits = model.module.fill_logits(model.module(read))[0, gaps]
    return [_most_probable(line, count, lambda id: tokenizer.decode([id])) for line in logits]


@torch.inference_mode()
def classify(model: Model, images: Sequence[Picture], *, count: int = 5) -> list[list[Candidate]]:
    """For each image (or text, for a text classifier) the most probable classes."""
    labels = model.labels or tuple(
        str(i) for i in range(getattr(model.config, "n_classes", None) or 0)
    )
    if not labels:
        raise InputError("this model names no classes: it was not trained to.")
    return [
        _most_probable(_class_logits(model, image), count, lambda i: labels[i]) for image in images
    ]


def _class_logits(model: Model, image: Picture) -> Tensor:
    if model.family == "vision":
        config = model.config
        pixels = read_pixels(
            image,
            normalization=model.pixels,
            n_channels=config.n_channels,
            size=config.image_size,
        )
        return model.module(pixels.to(_device(model)))[0]
    tokenizer = _tokenizer_of(model, "encoder", "names classes")
    ids = tokenizer.encode(str(image), literal=True)
    read = torch.tensor([ids], device=_device(model))
    return model.module.classify(model.module(read))[0]


def _device(model: Model) -> torch.device:
    return next(model.module.parameters()).device


def _most_probable(logits: Tensor, count: int, name: Callable[[int], str]) -> list[Candidate]:
    if count < 1:
        raise InputError(f"{count} candidates were asked for; ask for at least 1.")
    chances, places = torch.softmax(logits, dim=-1).topk(min(count, len(logits)))
    pairs = zip(places.tolist(), chances.tolist(), strict=True)
    return [Candidate(name(place), chance) for place, chance in pairs]


def _tokenizer_of(model: Model, family: str, does: str) -> Tokenizer:
    if model.family != family or model.tokenizer is None:
        raise InputError(
            f"this model is of the family {model.family}; only one of the family {family} with a "
            f"tokenizer {does}."
        )
    return model.tokenizer
