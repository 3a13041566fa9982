"""Predictions of models without a target, in batches: filled gaps, classes, vectors."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.image_files import Picture
from regard.errors import InputError
from regard.files import chunks
from regard.generation.graph_engines import Reader, reader_of
from regard.generation.search import SamplingOptions
from regard.generation.sentences import batches_by_length
from regard.generation.text_generation import check_capacity
from regard.generation.torch_engine import pad_ids
from regard.generation.translator import max_positions
from regard.hardware import cpu_count
from regard.model import Model
from regard.text.tokenizer import Tokenizer
from regard.trace.capture import read_image

_TEXTS, _IMAGES = 32, 32  # texts and images that are read together
_TOKENS = 2**14  # of the texts that are read together, with padding


@dataclass(frozen=True)
class Candidate:
    """One possible answer."""

    text: str
    probability: float


class NamedAnswers(list[Any]):
    """The answers to one input, and the engine and precision that gave them."""

    def __init__(self, answers: Sequence[Any], reader: Reader) -> None:
        super().__init__(answers)
        self.engine, self.precision = reader.name, reader.precision


FilledGaps = list[list[Candidate]]
"""The candidates of each gap of a text."""


def decoder_prompt(
    model: Model, prompt: str, options: SamplingOptions
) -> tuple[Tokenizer, list[int]]:
    """Return the tokenizer of a decoder-only model and the ids of a prompt with space to write."""
    tokenizer = _tokenizer_of(model, "decoder", "continues a text")
    ids = tokenizer.encode_prompt(prompt)
    check_capacity(options, len(ids), max_positions(model.config.to_dict()))
    return tokenizer, ids


def fill(
    model: Model,
    texts: Sequence[str],
    *,
    count: int = 5,
    engine: str = "auto",
    precision: str = "float32",
) -> list[list[list[Candidate]]]:
    """Return the most probable tokens of each [MASK], for each text."""
    tokenizer = _tokenizer_of(model, "encoder", "fills gaps")
    if model.module.fill is None:
        raise InputError("this model cannot fill gaps: use one that was trained with masked text.")
    read = tokenizer.encode_batch(texts)
    for ids in read:
        if tokenizer.mask_id not in ids:
            name = None if tokenizer.mask_id is None else tokenizer.token_of(tokenizer.mask_id)
            raise InputError(f"the text has no gap: write {name} where a word is missing.")

    def gaps(states: Any, rows: list[list[int]], lengths: Tensor) -> list[list[list[Candidate]]]:
        found = []
        for state, ids in zip(states, rows, strict=True):
            where = [i for i, id in enumerate(ids) if id == tokenizer.mask_id]
            logits = model.module.fill_logits(state[where])
            names = _most_probable(logits, count, lambda id: tokenizer.decode([id]))
            found.append(NamedAnswers(names, reader))
        return found

    reader = reader_of(model, engine, precision, n_inputs=len(read))
    return _encode(reader, model, read, gaps)


def classify(
    model: Model,
    given: Sequence[Picture],
    *,
    count: int = 5,
    engine: str = "auto",
    precision: str = "float32",
) -> list[list[Candidate]]:
    """Return the most probable classes of each image, or of each text."""
    n_classes = getattr(model.config, "n_classes", None) or 0
    labels = model.labels or tuple(str(i) for i in range(n_classes))
    if not labels:
        raise InputError("this model has no classes: use one that was trained for classification.")

    def names(logits: Tensor) -> list[list[Candidate]]:
        ranked = _most_probable(logits, count, lambda i: labels[i])
        return [NamedAnswers(one, reader) for one in ranked]

    reader = reader_of(model, engine, precision, n_inputs=len(given))
    if model.family == "vision":
        return [one for logits in _image_batches(reader, model, given) for one in names(logits)]
    tokenizer = _tokenizer_of(model, "encoder", "classifies texts")
    for one in given:
        if not isinstance(one, str):
            raise InputError(
                f"this model classifies texts, and a {type(one).__name__} was given: give a text."
            )
    read = tokenizer.encode_batch([str(one) for one in given], literal=True)
    module = model.module
    return _encode(
        reader, model, read, lambda states, _, lengths: names(module.classify(states, lengths))
    )


def embed(
    model: Model,
    texts: Sequence[str],
    *,
    normalize: bool | None = None,
    engine: str = "auto",
    precision: str = "float32",
) -> Float[np.ndarray, "text d_model"]:
    """Return one vector for each text, pooled as the model's configuration says.

    Args:
        normalize: make every vector of length 1; by default as the checkpoint says.
    """
    tokenizer = _tokenizer_of(model, "encoder", "embeds texts")
    wanted = bool(model.extras.get("normalize")) if normalize is None else normalize
    read = tokenizer.encode_batch(list(texts), literal=True)

    def vectors(states: Any, _: list[list[int]], lengths: Tensor) -> list[np.ndarray]:
        pooled = model.module.pooled(states, lengths).float()
        pooled = torch.nn.functional.normalize(pooled, dim=-1) if wanted else pooled
        return list(pooled.cpu().numpy())

    found = _encode(reader_of(model, engine, precision, n_inputs=len(read)), model, read, vectors)
    return np.stack(found) if found else np.empty((0, model.config.d_model), np.float32)


T = TypeVar("T")


@torch.inference_mode()
def _encode(
    reader: Reader,
    model: Model,
    texts: Sequence[list[int]],
    answer: Callable[[Any, list[list[int]], Tensor], Sequence[T]],
) -> list[T]:
    """Read texts of similar length together, and return the answers in the order given."""
    config = model.config
    learned = config.max_positions if config.positions in ("learned", "own") else None
    most: int = min((n for n in (model.extras.get("longest_text"), learned) if n), default=0)
    for ids in texts if most else ():
        if len(ids) > most:
            start = model.tokenizer.decode(ids[:10]) if model.tokenizer else ""
            raise InputError(
                f"the text that starts with {start!r} has {len(ids)} tokens, but the model reads "
                f"at most {most}: shorten or split it."
            )
    found: dict[int, T] = {}
    # Padding takes as long as text. Graphs read every new shape slowly, so their batches are full.
    group = _length_class if reader.name == "torch" else lambda length: 0
    sizes = [len(ids) for ids in texts]
    for batch in batches_by_length(sizes, tokens=_TOKENS, rows=_TEXTS, group=group):
        rows = [texts[i] for i in batch]
        ids, lengths = pad_ids(rows, model.device)
        states = reader(ids, lengths)
        found |= zip(batch, answer(states, rows, lengths), strict=True)
    return [found[i] for i in range(len(texts))]


def _length_class(length: int) -> int:
    """Return a number that texts share if the longer has at most a quarter more tokens."""
    return int(log(max(length, 8)) / log(1.25))


@torch.inference_mode()
def _image_batches(reader: Reader, model: Model, given: Sequence[Picture]) -> Iterator[Tensor]:
    """Yield the logits of images; files are decoded on all cores."""
    read = partial(read_image, model)
    with ThreadPoolExecutor(cpu_count()) as pool:
        for batch in chunks(given, _IMAGES):
            each = map if all(isinstance(one, Tensor) for one in batch) else pool.map
            yield reader(torch.cat(list(each(read, batch))).to(model.device))


def _most_probable(logits: Tensor, count: int, name: Callable[[int], str]) -> list[list[Candidate]]:
    """Return the best candidates of each row."""
    if count < 1:
        raise InputError(f"count is {count}; it must be 1 or more.")
    values, ids = torch.softmax(logits, dim=-1).topk(min(count, logits.shape[-1]))
    return [
        [Candidate(name(id), value) for id, value in zip(*row, strict=True)]
        for row in zip(ids.tolist(), values.tolist(), strict=True)
    ]


def _tokenizer_of(model: Model, family: str, ability: str) -> Tokenizer:
    if model.family != family or model.tokenizer is None:
        raise InputError(
            f"this model is of the family {model.family}; only one of the family {family} with a "
            f"tokenizer {ability}."
        )
    return model.tokenizer
