"""Checkpoints: everything a run needs to resume, written atomically and without pickle.

    checkpoints/step-00000500/
        model.safetensors        the weights, by name
        optimizer.safetensors    optimizer state of every parameter, as exp_avg/NAME and so on
        average.safetensors      the moving average, if there is one
        state.json               step, position in the data, seed, scores, time

Random number generators need no state: their numbers are a function of seed, step, process and
batch (see `TrainStep`), also for another number of processes.
"""

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.errors import FileError
from regard.files import atomic_folder
from regard.training.distributed import full_tensor, shard_like

FORMAT = 1
_FILES = ("model.safetensors", "optimizer.safetensors", "average.safetensors")
_STATE = "state.json"
_NAME = re.compile(r"step-(\d{8,})")
_RENAMED = {
    "waited": "n_worse",
    "sound": "last_good_step",
    "regular": "scheduled",
    "optimiser": "optimizer",
}
"""Names of version 0.1 in state.json, and the current ones."""


@dataclass(frozen=True)
class TrainingState:
    """The state of a run apart from its tensors."""

    step: int = 0
    data: Mapping[str, int] = field(default_factory=dict)
    """Position in the data, from `BatchLoader.state`."""
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that must not change, from `fixed_settings`."""
    seconds: float = 0.0
    """Training time since the first start."""
    n_targets: int = 0
    best_score: float | None = None
    best_step: int = 0
    n_worse: int = 0
    """Validations since the last improvement."""
    average_loss: float | None = None
    """Moving average of the loss, which shows explosions."""
    recent: Sequence[Sequence[float | int]] = ()
    """Results of the steps since the last entry of metrics.jsonl, as `StepResult` has them."""
    last_good_step: int | None = None
    """Last step whose weights are known to be good because their loss was."""
    scaler: Mapping[str, Any] = field(default_factory=dict)
    """State of the gradient scaler (fp16)."""
    scheduled: bool = True
    """False for a checkpoint outside the schedule, because of a signal or `save_every`: those are
    not averaged, so that an interruption changes nothing."""


class CheckpointTensors(NamedTuple):
    """The tensors of a run, unsharded, by name."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    average: dict[str, Tensor]


class Checkpoints:
    """The checkpoint folder of a run: the last few checkpoints and the best one."""

    def __init__(self, folder: Path, *, keep: int = 3) -> None:
        self.folder = folder
        self._keep = keep

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, in order."""
        if not self.folder.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def save(self, state: TrainingState, tensors: CheckpointTensors) -> None:
        """Write a checkpoint, then delete those that are no longer needed."""
        with atomic_folder(self.path(state.step)) as folder:
            for name, many in zip(_FILES, tensors, strict=True):
                if many or name != _FILES[2]:
                    many = {n: one.detach().cpu().contiguous() for n, one in many.items()}
                    save_file(many, folder / name)
            text = json.dumps({"format": FORMAT, **asdict(state)}, indent=1)
            (folder / _STATE).write_text(text, "utf-8")
        recent = self.scheduled_steps()[-self._keep :]
        self.delete(set(self.steps()) - {*recent, state.step, state.best_step})

    def delete(self, steps: Iterable[int]) -> None:
        """Delete checkpoints so that a half-deleted one is never taken for a whole one."""
        for step in steps:
            hidden = self.folder / f".{self.path(step).name}.deleted"
            shutil.rmtree(hidden, ignore_errors=True)
            self.path(step).rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)

    def scheduled_steps(self) -> list[int]:
        """Return the steps of the checkpoints that were saved on schedule."""
        return [step for step in self.steps() if self.load_state(step).scheduled]

    def load_state(self, step: int) -> TrainingState:
        path = self.path(step) / _STATE
        try:
            stored: dict[str, Any] = json.loads(path.read_bytes())
            number = stored.pop("format")
            if number != FORMAT:
                raise FileError(
                    f"{path} has format {number}, but this version of regard reads {FORMAT}: use "
                    "the version that started the run."
                )
            before: dict[str, Any] = stored.pop("settings", {})
            settings = {_RENAMED.get(name, name): value for name, value in before.items()}
            fields = {_RENAMED.get(name, name): value for name, value in stored.items()}
            return TrainingState(settings=settings, **fields)
        except FileError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from error

    def load_weights(self, step: int) -> dict[str, Tensor]:
        """Load the weights of a step; the moving average replaces them if there is one."""
        tensors = self.load(step)[1]
        return tensors.weights | tensors.average

    def load(self, step: int) -> tuple[TrainingState, CheckpointTensors]:
        tensors = []
        for name in _FILES:
            path = self.path(step) / name
            if name == _FILES[1] and not path.is_file():
                path = path.with_stem("optimiser")  # written by version 0.1
            try:
                tensors.append(load_file(path) if path.is_file() or name != _FILES[2] else {})
            except (OSError, SafetensorError) as error:
                raise _damaged(path, error) from error
        return self.load_state(step), CheckpointTensors(*tensors)


def gather(
    model: nn.Module, optimizer: Optimizer, average: Mapping[str, Tensor], *, keep: bool = True
) -> CheckpointTensors:
    """Collect the tensors of a run; all processes must call this, those that do not `keep` too."""
    moments = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            moments[f"{key}/{name}"] = value
    parts = model.state_dict(), moments, average
    return CheckpointTensors(*(gather_tensors(one, keep=keep) for one in parts))


def gather_tensors(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Unshard tensors one by one and move them to the CPU.

    So a device holds one full tensor at a time, and only the processes that `keep` them hold all.
    """
    gathered = {}
    for name, value in tensors.items():
        full = full_tensor(value)
        if keep:
            gathered[name] = full.cpu() if hasattr(value, "full_tensor") else full
    return gathered


@torch.no_grad()
def restore(
    tensors: CheckpointTensors,
    model: nn.Module,
    optimizer: Optimizer,
    average: Mapping[str, Tensor],
) -> None:
    """Load what `gather` returned, into a model that may be sharded differently."""
    load_weights(tensors.weights, model)
    for name, value in average.items():  # an average without a checkpoint starts at the weights
        value.copy_(shard_like(tensors.average.get(name, tensors.weights[name]), value))
    parameters = dict(model.named_parameters())
    for key, value in tensors.optimizer.items():
        kind, _, name = key.partition("/")
        parameter = parameters[name]
        value = value if kind == "step" else shard_like(value, parameter)
        optimizer.state.setdefault(parameter, {})[kind] = value.clone()


@torch.no_grad()
def load_weights(weights: Mapping[str, Tensor], model: nn.Module) -> None:
    """Copy full weights into a model that may be sharded."""
    for name, value in model.state_dict().items():
        value.copy_(shard_like(weights[name], value))


def _damaged(path: Path, error: Exception) -> FileError:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return FileError(
        f"the checkpoint file {path} is damaged ({reason}): delete {path.parent}, and "
        "--resume continues from the previous checkpoint."
    )
