"""Everything a training run needs to go on: written whole or not at all, nothing pickled.

    checkpoints/step-00000500/
        model.safetensors        the weights, by name
        optimizer.safetensors    moments and step of every parameter, as exp_avg/NAME and so on
        average.safetensors      the moving average, if there is one
        state.json               step, place in the data, seed, scores, time

Random numbers need no state of their own: they are a function of seed, step, process and part (see
`Learner`), so seed and step restore those of every process, also for another number of processes.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.errors import FileError
from regard.training.distributed import like, whole

FORMAT = 1
_WEIGHTS, _OPTIMIZER, _AVERAGE, _STATE = (
    "model.safetensors",
    "optimizer.safetensors",
    "average.safetensors",
    "state.json",
)
_NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class State:
    """Where a training run is, apart from its tensors."""

    step: int = 0
    data: Mapping[str, int] = field(default_factory=dict)
    """The place in the data, from `Feed.state`."""
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What cannot change on the way, from `fixed_settings`."""
    seconds: float = 0.0
    """How long it has trained, over all its parts."""
    n_targets: int = 0
    best_score: float | None = None
    best_step: int = 0
    waited: int = 0
    """Validations since one was better than all before."""
    average_loss: float | None = None
    """The smoothed loss, by which an explosion is noticed."""
    sound: int | None = None
    """The last step whose weights are known to be good, because a loss of theirs was."""
    scaler: Mapping[str, Any] = field(default_factory=dict)
    """The scale of gradients in fp16."""
    regular: bool = True
    """Whether it was saved on schedule; those saved because somebody stopped the run are not
    averaged, so that stopping changes nothing."""


@dataclass(frozen=True)
class Tensors:
    """The tensors of a training run, each whole, by name."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    average: dict[str, Tensor]


class Checkpoints:
    """The folder of a run's checkpoints: the last few and the best."""

    def __init__(self, folder: Path, *, keep: int = 3) -> None:
        self.folder = folder
        self._keep = keep

    def steps(self) -> list[int]:
        """The steps of which there are checkpoints, in order."""
        if not self.folder.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is."""
        return self.folder / f"step-{step:08d}"

    def save(self, state: State, tensors: Tensors) -> Path:
        """Write a checkpoint; those that are not needed any more go when it is there."""
        final = self.path(state.step)
        fresh = self.folder / f".{final.name}.unfinished"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            save_file(_apart(tensors.weights), fresh / _WEIGHTS)
            save_file(_apart(tensors.optimizer), fresh / _OPTIMIZER)
            if tensors.average:
                save_file(_apart(tensors.average), fresh / _AVERAGE)
            text = json.dumps({"format": FORMAT, **asdict(state)}, indent=1)
            (fresh / _STATE).write_text(text, "utf-8")
            _flush(fresh)
            _remove(final)
            fresh.rename(final)
            _flush(self.folder)
        except (OSError, SafetensorError) as error:
            kept = self.steps()
            last = f"the checkpoint of step {kept[-1]:,} is whole" if kept else "there is none yet"
            raise FileError(
                f"the checkpoint {final} cannot be written ({_reason(error)}); {last}: make room "
                "and go on with --resume."
            ) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        self._prune(state)
        return final

    def _prune(self, newest: State) -> None:
        regular = [step for step in self.steps() if self._is_regular(step)]
        needed = {*regular[-self._keep :], newest.step, newest.best_step}
        for step in self.steps():
            if step not in needed:
                _remove(self.path(step))

    def remove_after(self, step: int) -> None:
        """Take away the checkpoints of later steps."""
        for one in self.steps():
            if one > step:
                _remove(self.path(one))

    def _is_regular(self, step: int) -> bool:
        return self.load_state(step).regular

    def last_regular(self, count: int) -> list[int]:
        """The steps of the last few checkpoints that were saved on schedule."""
        return [step for step in self.steps() if self._is_regular(step)][-count:]

    def load_state(self, step: int) -> State:
        """The state that was saved at a step."""
        path = self.path(step) / _STATE
        try:
            stored = json.loads(path.read_bytes())
            number = stored.pop("format")
            if number != FORMAT:
                raise FileError(
                    f"{path} has format {number}, and this version of regard reads {FORMAT}: "
                    "use the version that began the run."
                )
            return State(**stored)
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, FileError):
                raise
            raise _damaged(path, error) from error

    def load_weights(self, step: int) -> dict[str, Tensor]:
        """The weights of a step: the moving average, where there is one, in place of its own."""
        folder = self.path(step)
        weights = _load(folder / _WEIGHTS)
        return weights | (_load(folder / _AVERAGE) if (folder / _AVERAGE).is_file() else {})

    def load(self, step: int) -> tuple[State, Tensors]:
        """All that was saved at a step."""
        folder = self.path(step)
        averaged = (folder / _AVERAGE).is_file()
        tensors = Tensors(
            _load(folder / _WEIGHTS),
            _load(folder / _OPTIMIZER),
            _load(folder / _AVERAGE) if averaged else {},
        )
        return self.load_state(step), tensors


def gather(
    model: nn.Module, optimizer: Optimizer, average: Mapping[str, Tensor], *, keep: bool = True
) -> Tensors:
    """The tensors of a run, each whole; all processes must ask for them at the same time.

    Args:
        keep: False gives nothing, to a process that only helps others to gather.
    """
    moments = {}
    for name, parameter in model.named_parameters():
        for what, value in optimizer.state.get(parameter, {}).items():
            moments[f"{what}/{name}"] = value
    return Tensors(*(gathered(one, keep=keep) for one in (model.state_dict(), moments, average)))


def gathered(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Each tensor whole; those that processes hold parts of come one by one to the processor.

    So a device needs room for one of them only, and one process alone for all.
    """
    found = {}
    for name, value in tensors.items():
        full = whole(value)
        if keep:
            found[name] = full.cpu() if hasattr(value, "full_tensor") else full
    return found


@torch.no_grad()
def restore(
    tensors: Tensors, model: nn.Module, optimizer: Optimizer, average: Mapping[str, Tensor]
) -> None:
    """Put back what `gather` gave, into a model that may be shared out otherwise now."""
    put_weights(tensors.weights, model)
    for name, value in average.items():  # an average that was not kept before begins here
        value.copy_(like(tensors.average.get(name, tensors.weights[name]), value))
    parameters = dict(model.named_parameters())
    for key, value in tensors.optimizer.items():
        what, _, name = key.partition("/")
        parameter = parameters[name]
        value = value if what == "step" else like(value, parameter)
        optimizer.state.setdefault(parameter, {})[what] = value.clone()


@torch.no_grad()
def put_weights(weights: Mapping[str, Tensor], model: nn.Module) -> None:
    """Give a model these weights, whole or in the parts that this process holds."""
    for name, value in model.state_dict().items():
        value.copy_(like(weights[name], value))


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.detach().cpu().contiguous() for name, one in tensors.items()}


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> FileError:
    return FileError(
        f"the checkpoint's {path} is damaged ({_reason(error)}): delete {path.parent}, and "
        "--resume goes on from the one before."
    )


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _flush(folder: Path) -> None:
    """Wait until everything in the folder is on the disk."""
    for path in [*folder.iterdir(), folder]:
        if path.is_file() or path == folder:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _remove(folder: Path) -> None:
    """Take a checkpoint away so that no part of it is ever taken for a whole one."""
    if folder.exists():
        rubbish = folder.with_name(f".{folder.name}.rubbish")
        shutil.rmtree(rubbish, ignore_errors=True)
        folder.rename(rubbish)
        shutil.rmtree(rubbish, ignore_errors=True)
