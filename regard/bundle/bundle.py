"""A model with all that belongs to it: tokenizers, configuration, card."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.bundle.card import Card
from regard.bundle.folder import (
    CARD,
    CONFIG,
    TARGET_TOKENIZER,
    TASKS,
    TOKENIZER,
    WEIGHTS,
    Description,
    existing,
    read_card_of,
    read_description,
    read_tokenizers,
    replaced_folder,
    weights_file,
    write_tokenizer,
)
from regard.bundle.pixels import normalisation_from
from regard.bundle.weights import build_with, read_weights, write_weights
from regard.data.images import Normalisation
from regard.errors import FileError, InputError, RegardError, UnknownNameError, nearest
from regard.models.config import ModelConfig, config_from_dict
from regard.text.files import write_whole
from regard.text.tokenizer import Tokenizer


@dataclass(eq=False, kw_only=True)
class Bundle:
    """A model, ready to be run, saved and handed on."""

    model: Any
    """One of the families in regard.models."""
    task: str
    tokenizer: Tokenizer | None = None
    """How the source becomes ids; None for a model that reads no text."""
    target_tokenizer: Tokenizer | None = None
    """How the target does; like `tokenizer` unless given."""
    labels: tuple[str, ...] | None = None
    pixels: Normalisation | None = None
    """How the pixels of images are scaled."""
    card: Card = field(default_factory=Card)
    extras: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.target_tokenizer is None:
            self.target_tokenizer = self.tokenizer
        if self.task not in TASKS:
            raise UnknownNameError(f"there is no task {self.task!r}; {nearest(self.task, TASKS)}.")
        _check_vocabularies(self)
        n_classes = getattr(self.config, "n_classes", None)
        if self.labels is not None and len(self.labels) != n_classes:
            raise InputError(
                f"there are {len(self.labels)} labels for a model of {n_classes} classes: give one "
                "for each."
            )

    @property
    def config(self) -> Any:
        """What the model is made of."""
        return self.model.config

    @property
    def family(self) -> str:
        """The kind of model: transformer, seq2seq, encoder, decoder or vision."""
        return self.config.family

    @property
    def size(self) -> str:
        """How large the model is, for people."""
        return self._size(None)

    def _size(self, dtype: str | None) -> str:
        weights = list(self.model.parameters())
        each = None if dtype is None else getattr(torch, dtype).itemsize
        n_bytes = sum(weight.numel() * (each or weight.element_size()) for weight in weights)
        room = f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:,.1f} kB"
        return f"{sum(w.numel() for w in weights):,} parameters, {room}"

    def save(self, folder: str | Path, *, dtype: str | None = None) -> None:
        """Write the folder: it is there whole afterwards, or as it was before.

        Args:
            dtype: "float16" or "bfloat16" make the file half as large; as they are if None.
        """
        settings = self.config.to_dict()
        own_target = None if self.target_tokenizer is self.tokenizer else self.target_tokenizer
        family = settings.pop("family")
        described = Description(
            family=family,
            model=settings,
            task=self.task,
            tokenizer=None if self.tokenizer is None else self.tokenizer.roles,
            target_tokenizer=None if own_target is None else own_target.roles,
            labels=self.labels,
            pixels=None if self.pixels is None else asdict(self.pixels),
            extras=self.extras,
        )
        with replaced_folder(folder) as fresh:
            write_weights(fresh / WEIGHTS, self.model, dtype=dtype)
            if self.tokenizer is not None:
                write_tokenizer(fresh / TOKENIZER, self.tokenizer)
            if own_target is not None:
                write_tokenizer(fresh / TARGET_TOKENIZER, own_target)
            write_whole(fresh / CARD, str(self.card.filled(size=self._size(dtype))))
            write_whole(fresh / CONFIG, described.to_json())

    @classmethod
    def load(cls, folder: str | Path, *, dtype: torch.dtype | None = torch.float32) -> "Bundle":
        """Read a folder that `save` wrote, in this version or an earlier one.

        Args:
            dtype: the type of the model's numbers, whatever they are stored as; None keeps that.
        """
        path = existing(folder)
        if path is None:
            raise FileError(f"{folder} is no folder: give the path of a model folder.")
        described = read_description(path)
        file = weights_file(path)
        with _blamed_on(path / CONFIG):
            config = config_from_dict({"family": described.family, **described.model})
            pixels = normalisation_from(described.pixels)
        model: nn.Module = build_with(config, read_weights(file), dtype=dtype, source=file)
        tokenizer, target_tokenizer = read_tokenizers(path, described)
        with _blamed_on(path):
            return cls(
                model=model,
                task=described.task,
                tokenizer=tokenizer,
                target_tokenizer=target_tokenizer,
                labels=described.labels,
                pixels=pixels,
                card=read_card_of(path),
                extras=described.extras,
            )


@contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """What does not fit is the fault of this file or folder."""
    try:
        yield
    except RegardError as error:
        raise FileError(
            f"{path} cannot be used, for {error} Fetch the folder again, or save the model again."
        ) from error


def _check_vocabularies(bundle: Bundle) -> None:
    """Refuse a tokenizer that gives ids which the model has no embedding for."""
    config: ModelConfig = bundle.config
    n_target = getattr(config, "n_vocab", None)
    n_source = getattr(config, "n_source_vocab", None) or n_target
    pairs = [(bundle.tokenizer, n_source)]
    if bundle.family in ("transformer", "seq2seq"):
        pairs.append((bundle.target_tokenizer, n_target))
    for tokenizer, n_vocab in pairs:
        if tokenizer is not None and (n_vocab is None or len(tokenizer) > n_vocab):
            raise InputError(
                f"the tokenizer has {len(tokenizer):,} tokens, but the model was made for "
                f"{n_vocab or 0:,}: they do not belong together."
            )
