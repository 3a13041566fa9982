"""What a translator writes under edits, by the same beam search that translates without them."""

from collections.abc import Iterator, Sequence
from math import exp
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.generation.beam import BeamOptions, alternatives
from regard.generation.search import Found, LengthPenalty, SearchOptions
from regard.generation.stepper import TranslationStepper
from regard.generation.torch_engine import PlainEngine
from regard.model import Model
from regard.server.jobs import Job, Watching
from regard.tap import listen
from regard.text.token_names import suppressed_ids
from regard.text.tokenizer import Tokenizer
from regard.trace.capture import Patient
from regard.trace.edits import Ablate, Edit


def search(
    model: Model, source_ids: Sequence[int], *, beam: int, edits: Sequence[Edit], job: Job
) -> list[Found]:
    """The best translations of a source, the best first, at most `beam` many.

    Edits that name positions hold from the moment the text is long enough to have them.
    """
    tokenizer = _writer(model)
    module = model.module if _goes_on(model.module, edits) else Rereading(model.module)
    options = SearchOptions(beam=beam, n_best=beam, most=_room(model.config))
    with listen(Watching(job, "writing"), *map(Patient, edits)):
        (found,) = PlainEngine([module], tokenizer).submit([list(source_ids)], options).wait()
    return found


def others(
    model: Model,
    source_ids: Sequence[int],
    begun: list[int],
    *,
    beam: int,
    edits: Sequence[Edit],
    count: int,
    job: Job,
) -> list[dict[str, Any]]:
    """The most probable tokens after what is begun, each with the text that follows from it."""
    tokenizer = _writer(model)
    module = model.module if _goes_on(model.module, edits) else Rereading(model.module)
    source = torch.tensor([list(source_ids)])
    options = BeamOptions(
        start_id=tokenizer.start_id or 0,
        end_id=tokenizer.end_id or 0,
        beam=beam,
        penalty=LengthPenalty("average", SearchOptions().alpha),
        never=tuple(suppressed_ids(tokenizer, model.config.n_vocab)),
    )

    def make(n: int) -> TranslationStepper:
        return TranslationStepper(
            module, source.expand(n, -1), torch.full((n,), source.size(1), dtype=torch.long)
        )

    limit = SearchOptions(most=_room(model.config)).limit(len(source_ids))
    with torch.inference_mode(), listen(Watching(job, "writing"), *map(Patient, edits)):
        found = alternatives(make, begun, options, count=count, limit=limit)
    return [
        {
            "token": tokenizer.pieces_of([*begun, one.token])[-1].text,
            "id": one.token,
            "probability": exp(one.log_prob),
            "text": tokenizer.decode(one.continuation.ids),
            "ids": one.continuation.ids,
        }
        for one in found
    ]


def _writer(model: Model) -> Tokenizer:
    tokenizer = model.target_tokenizer
    if tokenizer is None or tokenizer.start_id is None or tokenizer.end_id is None:
        raise InputError(
            "this model's tokenizer does not say how a target starts and ends, so it cannot write "
            "one by itself: give a target."
        )
    return tokenizer


def _room(config: Any) -> int | None:
    """How many tokens the model has positions for; None where there is no end."""
    return config.max_positions if getattr(config, "positions", "") == "learned" else None


def _goes_on(model: Any, edits: Sequence[Edit]) -> bool:
    """Whether a token can be read without those before it: from keys and values that are kept."""
    if any(isinstance(edit, Ablate) and edit.to == "mean" for edit in edits):
        return False  # the mean over all queries needs all queries
    return getattr(getattr(model, "decoder", None), "cacheable", True)


class _Read:
    """What each row has read so far, in the place of keys and values."""

    def __init__(self) -> None:
        self.ids: Tensor | None = None

    def keep(self, rows: Tensor) -> None:
        if self.ids is not None:
            self.ids = self.ids[rows]


class Rereading:
    """A model that reads the whole target again for each token: slow, and right for every edit."""

    def __init__(self, model: Any) -> None:
        self.model, self.config = model, model.config

    def encode(self, source_ids: Tensor, source_lengths: Any = None) -> Any:
        """The source as the decoder reads it."""
        return self.model.encode(source_ids, source_lengths)

    def decode(
        self, target_ids: Tensor, memory: Any, source_lengths: Any = None, *, cache: Any = None
    ) -> Tensor:
        """One vector for each new token."""
        read = cache["read"]
        read.ids = target_ids if read.ids is None else torch.cat([read.ids, target_ids], dim=1)
        states = self.model.decode(read.ids, memory, source_lengths)
        return states[:, -target_ids.size(1) :]

    def project(self, states: Tensor, *, first: int = 0) -> Tensor:
        """Logits of the next token."""
        return self.model.project(states, first=first)

    def parameters(self) -> Iterator[Tensor]:
        """The weights, which know on which device the model is."""
        return self.model.parameters()

    def new_cache(self) -> dict[str, _Read]:
        """Room for what is read."""
        return {"read": _Read()}
