"""Proofs that padding, batches, caches, threads, files and later tokens do not change results."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import pad
from regard.errors import InputError
from regard.generation.stepper import DecoderStepper, TranslationStepper
from regard.layers.attention_forms import CACHEABLE
from regard.model import Model
from regard.model_folder import EXAMPLES
from regard.models.config import build, config_from_dict
from regard.training.checkpoint import Checkpoints, TrainingState, gather, restore
from regard.training.distributed import World
from regard.training.loader import (
    Batch,
    ImageBatch,
    LabeledTextBatch,
    MaskedBatch,
    PairBatch,
    TextBatch,
)
from regard.training.objective import OBJECTIVES
from regard.training.optimizer import make_optimizer
from regard.training.step import TrainStep

LENGTHS = (9, 4, 7, 9, 5, 9)  # lengths of the sample inputs, some equal and some not
BOUND = 1e-4
"""On log-probabilities in float32, and on gradients relative to the largest: sums in another order
differ in their last digits."""
CLAIMS = {
    "padding": "a text in a padded batch gives the same results as alone",
    "batch size": "an input gives the same results alone and in a batch of 8",
    "caching": "decoding token by token with a cache gives the same results as reading all at once",
    "accumulation": "small batches, accumulated, give the same gradient as one large batch",
    "resuming": "a run stopped after 2 of 4 steps and resumed has the same weights",
    "causality": "a later token changes no result before it",
    "permutation": "without positions, permuted inputs give results that are permuted alike",
    "fused": "the fused kernel gives the same results as the definition of attention",
    "threads": "one thread gives the same results as two",
    "saving": "a model that was saved and loaded has the same weights",
    "definition": "recorded weights times values are what the model computed at every site",
    "trace": "a trace explains exactly the text that the model writes",
    "engines": "the fast engine gives the same answers as the model in PyTorch",
    "int8": "with 8-bit weights the scores stay near those of float32",
    "tokenizer": "texts that are decoded and encoded again have the same tokens",
    "export": "a model that was exported for transformers and imported gives the same results",
    "hidden states": "the residual stream before and after every layer is that of transformers",
    "attention": "the weights of every head are those of transformers",
    "logits": "the logits, or the vectors of a model without a head, are those of transformers",
}
"""What each proof claims. All texts of the proofs but the reasons of single models are here."""
_MEASURED = "log-probabilities"
_STEPS, _LR = 4, 1e-3


@dataclass(frozen=True)
class Proof:
    """The largest difference between two ways to compute the same result."""

    name: str
    claim: str
    measured: str  # the quantity that was compared, or the reason why the claim does not apply
    difference: float | None = None  # None if the claim does not apply to the model
    bound: float = 0.0

    @property
    def applies(self) -> bool:
        """True if something was measured."""
        return self.difference is not None

    @property
    def holds(self) -> bool:
        """True if the difference is within its bound, or the claim does not apply."""
        return self.difference is None or self.difference <= self.bound  # False for NaN


def prove(name: str, measured: str, difference: float | None = None, bound: float = 0.0) -> Proof:
    """Return the proof of a claim."""
    return Proof(name, CLAIMS[name], measured, difference, bound)


@dataclass(frozen=True)
class SampleInput:
    """One text (and its target) or one image, and a class for classifiers."""

    ids: Tensor
    target: Tensor | None = None
    label: int = 0


def largest_difference(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Return the largest difference between two lists of tensors; NaN if there is a NaN."""
    pairs = zip(left, right, strict=True)
    return float(torch.stack([(a - b).abs().max().double() for a, b in pairs]).max())


def sample_inputs(
    model: Model, lengths: Sequence[int] = LENGTHS, *, seed: int = 0
) -> list[SampleInput]:
    """Draw random inputs of these lengths; images for vision models."""
    random, config = torch.Generator().manual_seed(seed), model.config
    n_classes = getattr(config, "n_classes", None) or 1
    if model.family == "vision":
        shape = (config.n_channels, config.image_size, config.image_size)
        return [
            SampleInput(torch.randn(shape, generator=random), label=i % n_classes) for i in range(4)
        ]

    def draw(count: int, n_vocab: int) -> Tensor:
        ids = torch.randint(0, n_vocab - 1, (count,), generator=random)
        return ids + (ids >= config.pad_id)  # any id but padding

    n_source = getattr(config, "n_source_vocab", None) or config.n_vocab
    return [
        SampleInput(draw(n, n_source), draw(n + 2, config.n_vocab), i % n_classes)
        for i, n in enumerate(lengths)
    ]


def make_batch(model: Model, inputs: Sequence[SampleInput], *, extra: int = 0) -> Batch:
    """Collate the inputs, with `extra` positions of padding more than they need."""
    labels = torch.tensor([one.label for one in inputs])
    if model.family == "vision":
        return ImageBatch(torch.stack([one.ids for one in inputs]), labels)
    pad_id = model.config.pad_id
    ids, lengths = _pad([one.ids for one in inputs], pad_id, extra)
    if model.family in ("transformer", "seq2seq"):
        targets = [one.target for one in inputs if one.target is not None]
        target, target_lengths = _pad(targets, pad_id, extra)
        return PairBatch(ids, target, lengths, target_lengths)
    if model.family == "decoder":
        return TextBatch(ids, lengths)
    if model.task == "classification":
        return LabeledTextBatch(ids, lengths, labels)
    positions = torch.arange(ids.size(1))
    return MaskedBatch(ids, lengths, ids, (positions % 3 == 1) & (positions < lengths[:, None]))


def _pad(rows: Sequence[Tensor], pad_id: int, extra: int) -> tuple[Tensor, Tensor]:
    ids, lengths = pad([row.numpy() for row in rows], pad_id, extra=extra)
    return torch.from_numpy(ids), torch.from_numpy(lengths)


@torch.no_grad()
def prove_padding(model: Model) -> Proof:
    """Compare texts in a padded batch with each text alone."""
    if model.family == "vision":
        return prove("padding", "images of one size need no padding")
    inputs = sample_inputs(model)
    padded = outputs(model, make_batch(model, inputs, extra=3))
    difference = largest_difference(_outputs_alone(model, inputs), padded)
    return prove("padding", _MEASURED, difference, BOUND)


@torch.no_grad()
def prove_batch_size(model: Model) -> Proof:
    """Compare a batch of inputs of equal length with each input alone."""
    inputs = sample_inputs(model, (6,) * 8, seed=1)
    together = outputs(model, make_batch(model, inputs))
    difference = largest_difference(_outputs_alone(model, inputs), together)
    return prove("batch size", _MEASURED, difference, BOUND)


@torch.no_grad()
def prove_caching(model: Model) -> Proof:
    """Compare decoding token by token with a cache and reading all tokens at once."""
    if model.family not in ("transformer", "seq2seq", "decoder"):
        return prove("caching", "only models that generate text have a cache")
    form = getattr(model.config, "attention", "exact")
    if model.family != "seq2seq" and form not in CACHEABLE:
        return prove("caching", f"{form} attention has no cache")
    batch = make_batch(model, sample_inputs(model, (6,) * 3, seed=2))
    if isinstance(batch, PairBatch):
        stepper = TranslationStepper(model.module, batch.source_ids, batch.source_lengths)
        ids = batch.target_ids[:, :-1]
    else:
        assert isinstance(batch, TextBatch)
        stepper, ids = DecoderStepper(model.module, torch.ones_like(batch.lengths)), batch.ids
    steps = torch.stack([stepper.step(ids[:, i : i + 1]) for i in range(ids.size(1))], dim=1)
    difference = largest_difference(outputs(model, batch), list(steps))
    return prove("caching", _MEASURED, difference, BOUND)


def _outputs_alone(model: Model, inputs: Sequence[SampleInput]) -> list[Tensor]:
    return [outputs(model, make_batch(model, [one]))[0] for one in inputs]


def outputs(model: Model, batch: Batch) -> list[Tensor]:
    """Return the log-probabilities of each input, without padding."""
    module = model.module.eval()
    if isinstance(batch, ImageBatch):
        return list(_log_softmax(module(batch.images)))
    if isinstance(batch, PairBatch):
        states = module.states(batch.source_ids, batch.target_ids, batch.source_lengths)
        return _rows(_log_softmax(module.project(states)), batch.target_lengths - 1)
    assert isinstance(batch, TextBatch | MaskedBatch | LabeledTextBatch)
    if isinstance(batch, TextBatch):
        states = module.states(batch.ids, batch.lengths)
        return _rows(_log_softmax(module.project(states)), batch.lengths)
    states = module(batch.ids, batch.lengths)
    if module.fill is not None:
        return _rows(_log_softmax(module.fill_logits(states)), batch.lengths)
    if module.classifier is not None:
        return list(_log_softmax(module.classify(states, batch.lengths)))
    return _rows(states, batch.lengths)


def _rows(values: Tensor, lengths: Tensor) -> list[Tensor]:
    return [row[:n] for row, n in zip(values, lengths.tolist(), strict=True)]


def _log_softmax(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits.float(), dim=-1)


def prove_accumulation(model: Model) -> Proof:
    """Compare the gradient of one batch with that of its parts, accumulated."""
    inputs = sample_inputs(model, seed=3)
    try:
        train_step = _train_step(model)
    except InputError as error:
        return prove("accumulation", str(error).rstrip("."))
    train_step.objective.eval()  # dropout differs between batches
    whole = _gradients(train_step, [make_batch(model, inputs)])
    pairs = [make_batch(model, inputs[i : i + 2]) for i in range(0, len(inputs), 2)]
    scale = max(float(one.abs().max()) for one in whole)
    difference = largest_difference(whole, _gradients(train_step, pairs)) / max(scale, 1e-30)
    return prove("accumulation", "gradients, relative to the largest", difference, BOUND)


def prove_resuming(model: Model) -> Proof:
    """Compare the weights of a run that was saved, stopped and resumed with those of another."""
    try:
        straight, first, second = (_train_step(model) for _ in range(3))
    except InputError as error:
        return prove("resuming", str(error).rstrip("."))
    batches = [make_batch(model, sample_inputs(model, seed=10 + step)) for step in range(_STEPS)]

    def run(train_step: TrainStep, start: int, end: int) -> None:
        for step in range(start, end):
            train_step.run([batches[step]], step=step + 1, lr=_LR)

    run(straight, 0, _STEPS)
    run(first, 0, _STEPS // 2)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        saved = gather(first.objective.model, first.optimizer, {})
        checkpoints.save(TrainingState(step=_STEPS // 2), saved)
        state, tensors = checkpoints.load(_STEPS // 2)
    restore(tensors, second.objective.model, second.optimizer, {})
    run(second, state.step, _STEPS)
    weights = [list(one.objective.model.state_dict().values()) for one in (straight, second)]
    return prove("resuming", "weights", largest_difference(*weights), 0.0)


def _train_step(model: Model) -> TrainStep:
    """Return a training step for a copy of the model, with dropout."""
    if model.task not in OBJECTIVES:
        raise InputError(f"the task {model.task!r} cannot be trained.")
    objective = OBJECTIVES[model.task](deepcopy(model.module), label_smoothing=0.1).train()
    return TrainStep(objective, make_optimizer(objective), World(), seed=1)


def _gradients(train_step: TrainStep, batches: Sequence[Batch]) -> list[Tensor]:
    train_step.optimizer.zero_grad()
    n_targets = sum(batch.n_targets() for batch in batches)
    train_step.compute_gradients(batches, step=1, n_targets=n_targets)
    gradients = (one.grad for one in train_step.objective.parameters())
    return [one.clone() for one in gradients if one is not None]


@torch.no_grad()
def prove_causality(model: Model) -> Proof:
    """Change the last token that is read and compare the results before it."""
    if model.family not in ("transformer", "seq2seq", "decoder"):
        return prove("causality", "only models that generate text read from left to right")
    inputs = sample_inputs(model, (9,), seed=4)
    batch = make_batch(model, inputs)
    ids = batch.target_ids if isinstance(batch, PairBatch) else batch.ids  # type: ignore[union-attr]
    place = ids.size(1) - (2 if isinstance(batch, PairBatch) else 1)  # the last target is not read
    before = outputs(model, batch)[0]
    ids[0, place] = ids[0, place - 1] if ids[0, place] != ids[0, place - 1] else ids[0, 0]
    after = outputs(model, batch)[0]
    difference = largest_difference([before[:place]], [after[:place]])
    return prove("causality", _MEASURED, difference, BOUND)


@torch.no_grad()
def prove_threads(model: Model) -> Proof:
    """Compare one thread with two."""
    batch, count, found = (
        make_batch(model, sample_inputs(model, seed=8)),
        torch.get_num_threads(),
        [],
    )
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(outputs(model, batch))
    finally:
        torch.set_num_threads(count)
    return prove("threads", _MEASURED, largest_difference(*found), BOUND)


PROOFS: tuple[Callable[[Model], Proof], ...] = (
    prove_padding,
    prove_batch_size,
    prove_caching,
    prove_causality,
    prove_threads,
    prove_accumulation,
    prove_resuming,
)


def run_proofs(
    model: Model, proofs: Sequence[Callable[[Model], Proof]] = PROOFS
) -> Iterator[Proof]:
    """Yield all proofs; the model and the caller's random numbers stay unchanged."""
    mode = model.module.training
    for one in proofs:
        with torch.random.fork_rng(devices=[]):
            proof = one(model)
        model.module.train(mode)
        yield proof


@dataclass(frozen=True)
class ChangedAnswers:
    """The number of answers of a model that another precision changes."""

    precision: str
    engine: str
    changed: int
    of: int


def compare_precisions(model: Model) -> list[ChangedAnswers]:
    """Answer the model's examples, or random inputs, in float32, bfloat16 and int8.

    A precision that no engine has for the model is left out.
    """
    given = _example_inputs(model)
    exact, found = _answers(model, given, "float32") if given else [], []
    for precision in ("bfloat16", "int8") if given else ():
        try:
            answers = _answers(model, given, precision)
        except InputError:
            continue
        changed = sum(a[0] != b[0] for a, b in zip(answers, exact, strict=True))
        found.append(ChangedAnswers(precision, answers[0][1], changed, len(given)))
    return found


def _example_inputs(model: Model) -> list[Any]:
    inputs = [one.ids for seed in range(8) for one in sample_inputs(model, seed=seed)]
    if model.family == "vision" or model.tokenizer is None:
        return inputs if model.family == "vision" else []
    texts = [model.tokenizer.decode(ids.tolist()) for ids in inputs]
    texts = [*model.extras.get(EXAMPLES, ()), *(text for text in texts if text.strip())]
    if model.task == "masked" and model.tokenizer.mask_id is not None:
        texts = [f"{text} {model.tokenizer.token_of(model.tokenizer.mask_id)}" for text in texts]
    return texts


def _answers(model: Model, given: list[Any], precision: str) -> list[tuple[Any, str]]:
    """Return each answer and the engine that gave it."""
    if model.task == "translation":
        return [(one.text, one.engine) for one in model.translate(given, precision=precision)]
    if model.task == "language":
        greedy: Any = {"temperature": 0.0, "max_tokens": 20, "precision": precision}
        return [(one.written, one.engine) for one in model.generate(given, **greedy)]
    if model.task == "masked":
        gaps = model.fill(given, precision=precision, count=1)
        return [([gap[0].text for gap in one], getattr(one, "engine", "")) for one in gaps]
    if model.task == "classification":
        named = model.classify(given, precision=precision, count=1)
        return [(one[0].text, getattr(one, "engine", "")) for one in named]
    raise InputError("vectors have no answers to count.")


def tiny_model() -> Model:
    """Return a Transformer of two layers with random weights."""
    settings = {"n_vocab": 50, "d_model": 32, "n_heads": 4, "d_ff": 64, "dropout": 0.1}
    layers = {"n_encoder_layers": 2, "n_decoder_layers": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(config_from_dict({"family": "transformer", **settings, **layers}))
    return Model(module=model.eval(), task="translation")
