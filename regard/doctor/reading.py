"""Padding, batch size and caching: that they do not change what a model answers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.bundle.bundle import Bundle
from regard.decoding.stepper import TranslationStepper, WritingStepper
from regard.doctor.proof import Proof, largest
from regard.doctor.samples import Example, batch_of, examples
from regard.layers.form import CACHEABLE
from regard.training.batch import Batch, ImageBatch, PairBatch, TextBatch

BOUND = 1e-4
"""On log-probabilities in float32: sums in another order differ in their last digits."""
_MEASURED = "log-probabilities"


@torch.no_grad()
def prove_padding(bundle: Bundle) -> Proof:
    """What is padded to another's length, and beyond, answers as it does alone."""
    claim = "a text padded to the length of others answers as it does alone"
    if bundle.family == "vision":
        return Proof("padding", claim, "images of one size have no padding")
    some = examples(bundle)
    alone = _alone(bundle, some)
    padded = _answers(bundle, batch_of(bundle, some, extra=3))
    return Proof("padding", claim, _MEASURED, largest(alone, padded), BOUND)


@torch.no_grad()
def prove_batch_size(bundle: Bundle) -> Proof:
    """An example among others of its size answers as it does alone."""
    some = examples(bundle, (6,) * 8, seed=1)
    together = _answers(bundle, batch_of(bundle, some))
    claim = f"an example answers alone as it does in a batch of {len(some)}"
    return Proof("batch size", claim, _MEASURED, largest(_alone(bundle, some), together), BOUND)


@torch.no_grad()
def prove_caching(bundle: Bundle) -> Proof:
    """Token by token with a cache gives what all tokens at once give."""
    claim = "written token by token with a cache, as when all tokens are read at once"
    if bundle.family not in ("transformer", "seq2seq", "decoder"):
        return Proof("caching", claim, "only models that write keep a cache")
    form = getattr(bundle.config, "attention", "exact")
    if bundle.family != "seq2seq" and form not in CACHEABLE:
        return Proof("caching", claim, f"{form} attention keeps no cache")
    batch = batch_of(bundle, examples(bundle, (6,) * 3, seed=2))
    stepper, ids = _stepper(bundle, batch)
    steps = [stepper.step(ids[:, i : i + 1]) for i in range(ids.size(1))]
    at_once = _answers(bundle, batch)
    found = list(torch.stack(steps, dim=1))
    return Proof("caching", claim, _MEASURED, largest(at_once, found), BOUND)


def _stepper(bundle: Bundle, batch: Batch) -> tuple[TranslationStepper | WritingStepper, Tensor]:
    if isinstance(batch, PairBatch):
        stepper = TranslationStepper(bundle.model, batch.source_ids, batch.source_lengths)
        return stepper, batch.target_ids[:, :-1]
    assert isinstance(batch, TextBatch)
    return WritingStepper(bundle.model, torch.ones_like(batch.lengths)), batch.ids


def _alone(bundle: Bundle, some: Sequence[Example]) -> list[Tensor]:
    return [_answers(bundle, batch_of(bundle, [one]))[0] for one in some]


def _answers(bundle: Bundle, batch: Batch) -> list[Tensor]:
    """For each example the log-probabilities of everything it could answer, without padding."""
    model = bundle.model.eval()
    if isinstance(batch, PairBatch):
        states = model.states(batch.source_ids, batch.target_ids, batch.source_lengths)
        return _rows(model.project(states), batch.target_lengths - 1)
    if isinstance(batch, TextBatch):
        return _rows(model.project(model.states(batch.ids, batch.lengths)), batch.lengths)
    if isinstance(batch, ImageBatch):
        return list(_log_softmax(model(batch.images)))
    states = model(getattr(batch, "ids"), getattr(batch, "lengths"))  # noqa: B009
    lengths: Tensor = getattr(batch, "lengths")  # noqa: B009
    if model.fill is not None:
        return _rows(model.fill_logits(states), lengths)
    if model.classifier is not None:
        return list(_log_softmax(model.classify(states, lengths)))
    return [row[:n] for row, n in zip(states, lengths.tolist(), strict=True)]


def _rows(logits: Tensor, lengths: Tensor) -> list[Tensor]:
    pairs = zip(_log_softmax(logits), lengths.tolist(), strict=True)
    return [row[:n] for row, n in pairs]


def _log_softmax(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits.float(), dim=-1)
