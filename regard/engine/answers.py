"""What models other than translators answer: text that goes on, gaps filled, images named."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.bundle.bundle import Bundle
from regard.bundle.pixels import Picture, read_pixels
from regard.decoding.sample import sample
from regard.decoding.stepper import WritingStepper
from regard.engine.opening import room_of
from regard.engine.writing import Generation, Telling, begun, checked
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Candidate:
    """One possible answer and how probable the model finds it."""

    text: str
    probability: float


@torch.inference_mode()
def generate(
    bundle: Bundle,
    prompt: str,
    *,
    on_text: Callable[[str], None] | None = None,
    **options: Any,
) -> Generation:
    """Go on with a text; `options` are those of SampleOptions.

    `on_text` is called with each further part of the text as soon as it is complete.
    """
    tokenizer = _tokenizer_of(bundle, "decoder", "goes on with a text")
    ids = begun(tokenizer, prompt)
    chosen = checked(tokenizer, ids, room_of(bundle.config.to_dict()), **options)
    told = Telling(tokenizer, ids, on_text)
    read = torch.tensor([ids], device=_device(bundle))
    stepper = WritingStepper(bundle.model, torch.tensor([len(ids)], device=read.device))
    on_token = told.token if on_text is not None else None
    (found,) = sample(stepper, read, chosen, seen=[ids], on_token=on_token)
    text, before = tokenizer.decode([*ids, *found.ids]), tokenizer.decode(ids)
    return Generation(text, text[len(before) :], found.log_prob, found.finished)


@torch.inference_mode()
def fill(bundle: Bundle, text: str, *, count: int = 5) -> list[list[Candidate]]:
    """For each [MASK] in the text the most probable tokens."""
    tokenizer = _tokenizer_of(bundle, "encoder", "fills gaps")
    if bundle.model.fill is None:
        raise InputError("this model has no head that fills gaps: it was not trained to.")
    ids = tokenizer.encode(text)
    gaps = [i for i, id in enumerate(ids) if id == tokenizer.mask_id]
    if not gaps:
        name = None if tokenizer.mask_id is None else tokenizer.token_of(tokenizer.mask_id)
        raise InputError(f"the text has no gap: write {name} where a word is missing.")
    read = torch.tensor([ids], device=_device(bundle))
    logits = bundle.model.fill_logits(bundle.model(read))[0, gaps]
    return [_most_probable(line, count, lambda id: tokenizer.decode([id])) for line in logits]


@torch.inference_mode()
def classify(bundle: Bundle, images: Sequence[Picture], *, count: int = 5) -> list[list[Candidate]]:
    """For each image (or text, for a text classifier) the most probable classes."""
    labels = bundle.labels or tuple(
        str(i) for i in range(getattr(bundle.config, "n_classes", None) or 0)
    )
    if not labels:
        raise InputError("this model names no classes: it was not trained to.")
    return [
        _most_probable(_class_logits(bundle, image), count, lambda i: labels[i]) for image in images
    ]


def _class_logits(bundle: Bundle, image: Picture) -> Tensor:
    if bundle.family == "vision":
        config = bundle.config
        pixels = read_pixels(
            image,
            normalisation=bundle.pixels,
            n_channels=config.n_channels,
            size=config.image_size,
        )
        return bundle.model(pixels.to(_device(bundle)))[0]
    tokenizer = _tokenizer_of(bundle, "encoder", "names classes")
    ids = tokenizer.encode(str(image), literal=True)
    read = torch.tensor([ids], device=_device(bundle))
    return bundle.model.classify(bundle.model(read))[0]


def _device(bundle: Bundle) -> torch.device:
    return next(bundle.model.parameters()).device


def _most_probable(logits: Tensor, count: int, name: Callable[[int], str]) -> list[Candidate]:
    if count < 1:
        raise InputError(f"{count} candidates were asked for; ask for at least 1.")
    chances, places = torch.softmax(logits, dim=-1).topk(min(count, len(logits)))
    pairs = zip(places.tolist(), chances.tolist(), strict=True)
    return [Candidate(name(place), chance) for place, chance in pairs]


def _tokenizer_of(bundle: Bundle, family: str, does: str) -> Tokenizer:
    if bundle.family != family or bundle.tokenizer is None:
        raise InputError(
            f"this model is of the family {bundle.family}; only one of the family {family} with a "
            f"tokenizer {does}."
        )
    return bundle.tokenizer
