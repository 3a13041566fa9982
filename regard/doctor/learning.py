"""Accumulation and resuming: that they do not change what a model learns."""

import tempfile
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from torch import Tensor

from regard.bundle.bundle import Bundle
from regard.doctor.proof import Proof, largest
from regard.doctor.samples import batch_of, examples
from regard.errors import InputError
from regard.training.batch import Batch
from regard.training.checkpoint import Checkpoints, State, gather, restore
from regard.training.distributed import Team
from regard.training.objective import OBJECTIVES
from regard.training.optimiser import OptimiserPlan, make_optimiser
from regard.training.step import Learner

_STEPS = 4
_LR = 1e-3
ACCUMULATION_BOUND = 1e-4
"""On gradients, relative to the largest: sums in another order differ in their last digits."""


def prove_accumulation(bundle: Bundle) -> Proof:
    """The gradients of small batches add up to those of the large one."""
    claim = "the gradient of one large batch is that of its parts, accumulated"
    measured = "gradients, relative to the largest"
    some = examples(bundle, seed=3)
    try:
        learner = _learner(bundle)
    except InputError as error:
        return Proof("accumulation", claim, _plain(error))
    learner.objective.eval()  # dropout draws other numbers for other batches
    whole = _gradients(learner, [batch_of(bundle, some)])
    parts = _gradients(learner, [batch_of(bundle, some[i : i + 2]) for i in range(0, len(some), 2)])
    scale = max(float(one.abs().max()) for one in whole)
    difference = largest(whole, parts) / max(scale, 1e-30)
    return Proof("accumulation", claim, measured, difference, ACCUMULATION_BOUND)


def prove_resuming(bundle: Bundle) -> Proof:
    """A run that was saved, ended and resumed has the weights of one that was not."""
    claim = f"stopped after {_STEPS // 2} of {_STEPS} steps, saved and resumed: the same weights"
    try:
        straight, first, second = (_learner(bundle) for _ in range(3))
    except InputError as error:
        return Proof("resuming", claim, _plain(error))
    batches = [batch_of(bundle, examples(bundle, seed=10 + step)) for step in range(_STEPS)]
    _learn(straight, batches, range(1, _STEPS + 1))
    half = _STEPS // 2
    _learn(first, batches, range(1, half + 1))
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        saved = gather(first.objective.model, first.optimiser, {})
        checkpoints.save(State(step=half), saved)
        state, tensors = checkpoints.load(half)
    restore(tensors, second.objective.model, second.optimiser, {})
    _learn(second, batches, range(state.step + 1, _STEPS + 1))
    return Proof("resuming", claim, "weights", largest(_weights(straight), _weights(second)), 0.0)


def _learner(bundle: Bundle) -> Learner:
    """A copy of the model, ready to learn; with dropout, as in training."""
    if bundle.task not in OBJECTIVES:
        raise InputError(f"nothing is learnt for the task {bundle.task!r}.")
    objective = OBJECTIVES[bundle.task](deepcopy(bundle.model), label_smoothing=0.1).train()
    return Learner(objective, make_optimiser(objective, OptimiserPlan()), Team(), seed=1)


def _gradients(learner: Learner, parts: Sequence[Batch]) -> list[Tensor]:
    learner.optimiser.zero_grad()
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
