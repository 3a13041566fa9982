"""All proofs on one model: the one that is given, or a tiny one that is made on the spot."""

import tempfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.generation.stepper import TranslationStepper, DecoderStepper
from regard.layers.attention_forms import CACHEABLE
from regard.model import Model
from regard.models.config import build, config_from_dict
from regard.training.batch import (
    Batch,
    ImageBatch,
    LabeledTextBatch,
    MaskedBatch,
    PairBatch,
    TextBatch,
)
from regard.training.checkpoint import Checkpoints, State, gather, restore
from regard.training.distributed import Team
from regard.training.objective import OBJECTIVES
from regard.training.optimizer import OptimizerPlan, make_optimizer
from regard.training.step import Learner


@dataclass(frozen=True)
class Proof:
    """How far two ways to compute the same are apart."""

    name: str
    claim: str
    measured: str
    """What the difference is a difference of; why there is none, where there is none."""
    difference: float | None = None
    """The largest; None where the claim does not apply to the model."""
    bound: float = 0.0

    @property
    def applies(self) -> bool:
        """Whether there was something to measure."""
        return self.difference is not None

    @property
    def holds(self) -> bool:
        """Whether the difference is within its bound; what does not apply cannot fail."""
        return self.difference is None or self.difference <= self.bound  # NaN is not


def largest(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """The largest difference between two lists of tensors."""
    pairs = zip(left, right, strict=True)
    return float(torch.stack([(a - b).abs().max().double() for a, b in pairs]).max())  # NaN stays


LENGTHS = (9, 4, 7, 9, 5, 9)
"""Of the examples: some alike, some not."""


@dataclass(frozen=True)
class Example:
    """One text (and its target), or one image; and a class for models that tell classes."""

    ids: Tensor | None = None
    target: Tensor | None = None
    image: Tensor | None = None
    label: int = 0


def examples(model: Model, lengths: Sequence[int] = LENGTHS, *, seed: int = 0) -> list[Example]:
    """Examples of these lengths; the same for the same seed."""
    draw, config = torch.Generator().manual_seed(seed), model.config
    if model.family == "vision":
        shape = (config.n_channels, config.image_size, config.image_size)
        count = config.n_classes or 1
        return [
            Example(image=torch.randn(shape, generator=draw), label=i % count) for i in range(4)
        ]
    n_classes = getattr(config, "n_classes", None) or 1
    n_source = getattr(config, "n_source_vocab", None) or config.n_vocab
    return [
        Example(
            ids=_ids(n, n_source, config.pad_id, draw),
            target=_ids(n + 2, config.n_vocab, config.pad_id, draw),
            label=i % n_classes,
        )
        for i, n in enumerate(lengths)
    ]


def _ids(count: int, n_vocab: int, pad_id: int, draw: torch.Generator) -> Tensor:
    """Random ids, none of which is padding."""
    ids = torch.randint(0, n_vocab - 1, (count,), generator=draw)
    return ids + (ids >= pad_id)


def batch_of(model: Model, some: Sequence[Example], *, extra: int = 0) -> Batch:
    """These examples in one batch, with `extra` places of padding more than they need."""
    labels = torch.tensor([one.label for one in some])
    if model.family == "vision":
        return ImageBatch(torch.stack([_given(one.image) for one in some]), labels)
    pad_id = model.config.pad_id
    ids, lengths = _padded([_given(one.ids) for one in some], pad_id, extra)
    if model.family in ("transformer", "seq2seq"):
        target, target_lengths = _padded([_given(one.target) for one in some], pad_id, extra)
        return PairBatch(ids, target, lengths, target_lengths)
    if model.family == "decoder":
        return TextBatch(ids, lengths)
    if model.task == "classification":
        return LabeledTextBatch(ids, lengths, labels)
    told = (torch.arange(ids.size(1)) % 3 == 1) & (torch.arange(ids.size(1)) < lengths[:, None])
    return MaskedBatch(ids, lengths, ids, told)


def _padded(rows: Sequence[Tensor], pad_id: int, extra: int) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    table = torch.full((len(rows), int(lengths.max()) + extra), pad_id)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table, lengths


def _given(value: Any) -> Tensor:
    assert value is not None, "examples of a family have what it reads"
    return value


BOUND = 1e-4
"""On log-probabilities in float32: sums in another order differ in their last digits."""
_MEASURED = "log-probabilities"


@torch.no_grad()
def prove_padding(model: Model) -> Proof:
    """What is padded to another's length, and beyond, answers as it does alone."""
    claim = "a text padded to the length of others answers as it does alone"
    if model.family == "vision":
        return Proof("padding", claim, "images of one size have no padding")
    some = examples(model)
    alone = _alone(model, some)
    padded = _answers(model, batch_of(model, some, extra=3))
    return Proof("padding", claim, _MEASURED, largest(alone, padded), BOUND)


@torch.no_grad()
def prove_batch_size(model: Model) -> Proof:
    """An example among others of its size answers as it does alone."""
    some = examples(model, (6,) * 8, seed=1)
    together = _answers(model, batch_of(model, some))
    claim = f"an example answers alone as it does in a batch of {len(some)}"
    return Proof("batch size", claim, _MEASURED, largest(_alone(model, some), together), BOUND)


@torch.no_grad()
def prove_caching(model: Model) -> Proof:
    """Token by token with a cache gives what all tokens at once give."""
    claim = "written token by token with a cache, as when all tokens are read at once"
    if model.family not in ("transformer", "seq2seq", "decoder"):
        return Proof("caching", claim, "only models that write keep a cache")
    form = getattr(model.config, "attention", "exact")
    if model.family != "seq2seq" and form not in CACHEABLE:
        return Proof("caching", claim, f"{form} attention keeps no cache")
    batch = batch_of(model, examples(model, (6,) * 3, seed=2))
    stepper, ids = _stepper(model, batch)
    steps = [stepper.step(ids[:, i : i + 1]) for i in range(ids.size(1))]
    at_once = _answers(model, batch)
    found = list(torch.stack(steps, dim=1))
    return Proof("caching", claim, _MEASURED, largest(at_once, found), BOUND)


def _stepper(model: Model, batch: Batch) -> tuple[TranslationStepper | DecoderStepper, Tensor]:
    if isinstance(batch, PairBatch):
        stepper = TranslationStepper(model.module, batch.source_ids, batch.source_lengths)
        return stepper, batch.target_ids[:, :-1]
    assert isinstance(batch, TextBatch)
    return DecoderStepper(model.module, torch.ones_like(batch.lengths)), batch.ids


def _alone(model: Model, some: Sequence[Example]) -> list[Tensor]:
    return [_answers(model, batch_of(model, [one]))[0] for one in some]


def _answers(model: Model, batch: Batch) -> list[Tensor]:
    """For each example the log-probabilities of everything it could answer, without padding."""
    module = model.module.eval()
    if isinstance(batch, PairBatch):
        states = module.states(batch.source_ids, batch.target_ids, batch.source_lengths)
        return _rows(module.project(states), batch.target_lengths - 1)
    if isinstance(batch, TextBatch):
        return _rows(module.project(module.states(batch.ids, batch.lengths)), batch.lengths)
    if isinstance(batch, ImageBatch):
        return list(_log_softmax(module(batch.images)))
    states = module(getattr(batch, "ids"), getattr(batch, "lengths"))  # noqa: B009
    lengths: Tensor = getattr(batch, "lengths")  # noqa: B009
    if module.fill is not None:
        return _rows(module.fill_logits(states), lengths)
    if module.classifier is not None:
        return list(_log_softmax(module.classify(states, lengths)))
    return [row[:n] for row, n in zip(states, lengths.tolist(), strict=True)]


def _rows(logits: Tensor, lengths: Tensor) -> list[Tensor]:
    pairs = zip(_log_softmax(logits), lengths.tolist(), strict=True)
    return [row[:n] for row, n in pairs]


def _log_softmax(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits.float(), dim=-1)


_STEPS = 4
_LR = 1e-3
ACCUMULATION_BOUND = 1e-4
"""On gradients, relative to the largest: sums in another order differ in their last digits."""


def prove_accumulation(model: Model) -> Proof:
    """The gradients of small batches add up to those of the large one."""
    claim = "the gradient of one large batch is that of its parts, accumulated"
    measured = "gradients, relative to the largest"
    some = examples(model, seed=3)
    try:
        learner = _learner(model)
    except InputError as error:
        return Proof("accumulation", claim, _plain(error))
    learner.objective.eval()  # dropout draws other numbers for other batches
    whole = _gradients(learner, [batch_of(model, some)])
    parts = _gradients(learner, [batch_of(model, some[i : i + 2]) for i in range(0, len(some), 2)])
    scale = max(float(one.abs().max()) for one in whole)
    difference = largest(whole, parts) / max(scale, 1e-30)
    return Proof("accumulation", claim, measured, difference, ACCUMULATION_BOUND)


def prove_resuming(model: Model) -> Proof:
    """A run that was saved, ended and resumed has the weights of one that was not."""
    claim = f"stopped after {_STEPS // 2} of {_STEPS} steps, saved and resumed: the same weights"
    try:
        straight, first, second = (_learner(model) for _ in range(3))
    except InputError as error:
        return Proof("resuming", claim, _plain(error))
    batches = [batch_of(model, examples(model, seed=10 + step)) for step in range(_STEPS)]
    _learn(straight, batches, range(1, _STEPS + 1))
    half = _STEPS // 2
    _learn(first, batches, range(1, half + 1))
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        saved = gather(first.objective.model, first.optimizer, {})
        checkpoints.save(State(step=half), saved)
        state, tensors = checkpoints.load(half)
    restore(tensors, second.objective.model, second.optimizer, {})
    _learn(second, batches, range(state.step + 1, _STEPS + 1))
    return Proof("resuming", claim, "weights", largest(_weights(straight), _weights(second)), 0.0)


def _learner(model: Model) -> Learner:
    """A copy of the model, ready to learn; with dropout, as in training."""
    if model.task not in OBJECTIVES:
        raise InputError(f"nothing is learned for the task {model.task!r}.")
    objective = OBJECTIVES[model.task](deepcopy(model.module), label_smoothing=0.1).train()
    return Learner(objective, make_optimizer(objective, OptimizerPlan()), Team(), seed=1)


def _gradients(learner: Learner, parts: Sequence[Batch]) -> list[Tensor]:
    learner.optimizer.zero_grad()
    learner.gradients(parts, step=1, n_targets=sum(part.n_targets() for part in parts))
    learning = (one.grad for one in learner.objective.parameters())
    return [one.clone() for one in learning if one is not None]


def _learn(learner: Learner, batches: Sequence[Batch], steps: range) -> None:
    for step in steps:
        learner.learn([batches[step - 1]], step=step, lr=_LR)


def _weights(learner: Learner) -> list[Tensor]:
    return [one.detach() for one in learner.objective.model.state_dict().values()]


def _plain(error: Exception) -> str:
    return str(error).rstrip(".")


PROOFS = (prove_padding, prove_batch_size, prove_caching, prove_accumulation, prove_resuming)


def examine(model: Model) -> Iterator[Proof]:
    """The proofs, one by one; the model and the caller's random numbers stay as they were."""
    mode = model.module.training
    for prove in PROOFS:
        with torch.random.fork_rng(devices=[]):
            proof = prove(model)
        model.module.train(mode)
        yield proof


def tiny_model() -> Model:
    """A Transformer of two layers with random weights."""
    settings = {"n_vocab": 50, "d_model": 32, "n_heads": 4, "d_ff": 64, "dropout": 0.1}
    layers = {"n_encoder_layers": 2, "n_decoder_layers": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(config_from_dict({"family": "transformer", **settings, **layers}))
    return Model(module=model.eval(), task="translation")
