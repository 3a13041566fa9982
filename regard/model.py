"""What `regard.load` gives: a model that can be run, looked into and saved."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.bundle.bundle import Bundle
from regard.bundle.card import Card
from regard.bundle.zoo import find_model
from regard.text.tokenizer import Tokenizer
from regard.trace.edit import Edit
from regard.trace.run import trace_bundle
from regard.trace.trace import Trace


class Model:
    """A model with its tokenizer and card, of any family."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    @property
    def model(self) -> Any:
        """The network itself, a torch module."""
        return self.bundle.model

    @property
    def config(self) -> Any:
        """What the network is made of."""
        return self.bundle.config

    @property
    def tokenizer(self) -> Tokenizer | None:
        """How text becomes ids."""
        return self.bundle.tokenizer

    @property
    def target_tokenizer(self) -> Tokenizer | None:
        """How the target does; the same one where it has none of its own."""
        return self.bundle.target_tokenizer

    @property
    def card(self) -> Card:
        """Where the model comes from, and what it is worth."""
        return self.bundle.card

    def trace(self, given: Any, target: Any = None, *, edits: Sequence[Edit] = ()) -> Trace:
        """Everything the model computes on a text, ids or an image, changed by `edits`.

        Models with a target run on the one that is given, or on what they write themselves.
        """
        return trace_bundle(self.bundle, given, target, edits=edits)

    def save(self, folder: str | Path, *, dtype: str | None = None) -> None:
        """Write the model folder; with dtype "float16" its weights take half the room."""
        self.bundle.save(folder, dtype=dtype)

    def __repr__(self) -> str:
        return repr(self.model)


def load(name_or_folder: str | Path) -> Model:
    """The bundled model of this name, or the one in this folder."""
    return Model(Bundle.load(find_model(name_or_folder)))
