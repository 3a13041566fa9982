"""One training step: gradients, clipping and the optimizer; and what to say of a diverging run."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.errors import NotFiniteError
from regard.tap import Tapped, listen, split_path
from regard.training.distributed import World, full_tensor, gradient_sync
from regard.training.loader import Batch
from regard.training.objective import Objective

PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class StepResult:
    """Loss and gradient norm of one step, over all processes."""

    loss: float
    """Mean per target, label smoothing included."""
    nll: float
    """Mean -log p per target."""
    accuracy: float
    """Share of correct answers, for classification."""
    n_targets: int
    norm: float
    """Norm of the gradient before clipping."""

    @property
    def finite(self) -> bool:
        """True if neither loss nor gradient is NaN or infinite."""
        return isfinite(self.loss) and isfinite(self.norm)


class TrainStep:
    """An objective with its optimizer.

    Random numbers are a function of seed, step, process and batch: what happens between two steps
    (validation, samples) cannot change training, and a resumed run draws the same numbers.

    Args:
        module: the objective as `wrap_module` returned it.
        clip: maximum norm of the gradient; 0 for no clipping.
    """

    def __init__(
        self,
        objective: Objective,
        optimizer: Optimizer,
        world: World,
        *,
        module: nn.Module | None = None,
        clip: float = 0.0,
        precision: str = "float32",
        seed: int = 0,
    ) -> None:
        self.objective, self.optimizer, self.world = objective, optimizer, world
        self.module = module or objective
        self._clip, self._precision, self._seed = clip, precision, seed
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=precision == "fp16")

    def run(self, batches: Sequence[Batch], *, step: int, lr: float) -> StepResult:
        """Take a step; if loss or gradient is not finite, the weights stay unchanged."""
        (count,) = self.world.sum(sum(batch.n_targets() for batch in batches))
        n_targets = int(count)
        sums = self.compute_gradients(batches, step=step, n_targets=n_targets)
        self.scaler.unscale_(self.optimizer)
        norm = float(self.clip_gradients())
        loss, nll, correct = (x / max(1, n_targets) for x in self.world.sum(*sums.tolist()))
        result = StepResult(loss, nll, correct, n_targets, norm)
        if result.finite or self.scaler.is_enabled():
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.scaler.step(self.optimizer)  # skips the step if fp16 has overflowed
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
        return result

    def failed(self, result: StepResult) -> bool:
        """Return True for a non-finite step, except for the overflows that are normal in fp16."""
        overflow = self.scaler.is_enabled() and isfinite(result.loss)
        return not result.finite and not (overflow and self.scaler.get_scale() >= 1)

    def clip_gradients(self) -> Tensor:
        """Clip the gradient in place and return its norm from before."""
        parameters = list(self.module.parameters())
        norm = nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None])
        if self._clip:
            nn.utils.clip_grads_with_norm_(parameters, self._clip, norm)
        return full_tensor(norm)

    def compute_gradients(self, batches: Sequence[Batch], *, step: int, n_targets: int) -> Tensor:
        """Add up the gradients of all batches; return the sums of their losses, in float64."""
        sums = torch.zeros(3, dtype=torch.float64)
        # DDP and FSDP average over processes; multiplying by their number undoes that.
        scale = self.world.size / max(1, n_targets)
        for index, batch in enumerate(batches):
            self.seed(step, index)
            with gradient_sync(self.module, sync=index == len(batches) - 1):
                with self.autocast():
                    losses = self.module(batch.to(self.world.device))
                self.scaler.scale(losses.loss * scale).backward()
            sums += torch.stack([one.detach().double().cpu() for one in losses])
        return sums

    def seed(self, step: int, index: int) -> None:
        """Seed the random numbers of one batch of a step."""
        place = ((self._seed * 1_000_003 + step) * 8191 + self.world.rank) * 1021 + index
        torch.manual_seed(place % 2**63)

    def autocast(self) -> AbstractContextManager[Any]:
        if self._precision == "float32":
            return nullcontext()
        return torch.autocast(self.world.device.type, PRECISIONS[self._precision])


_MAY_BE_INFINITE = frozenset({"masked", "temperature"})


class DivergenceError(NotFiniteError):
    """A loss that is NaN or infinite, or that has exploded."""


class LossMonitor:
    """A moving average of the loss that shows when the loss explodes."""

    def __init__(self, average: float | None = None) -> None:
        self.average = average

    def explodes(self, loss: float) -> bool:
        """Return True if the loss is not finite or far above the average."""
        if not isfinite(loss):
            return True
        return self.average is not None and loss > 3.0 * self.average + 1.0

    def update(self, loss: float) -> bool:
        """Add a step's loss to the average unless it explodes; return True if it does."""
        if self.explodes(loss):
            return True
        before = loss if self.average is None else self.average
        self.average = 0.95 * before + (1 - 0.95) * loss
        return False


class ExtremeValues:
    """Tap listener that records the first non-finite value and the largest finite one."""

    changes = False

    def __init__(self) -> None:
        self.first: str | None = None
        self.largest, self.size = "", 0.0

    def __str__(self) -> str:
        if self.first is not None:
            return f"{self.first} is the first inner value that is not finite"
        return f"the largest inner value is {self.largest}, up to {self.size:,.0f}"

    def wants(self, path: str) -> bool:
        del path
        return False

    def see(self, tapped: Tapped) -> Any:
        value = tapped.value
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
            name = split_path(tapped.path)[2]
            size = float(value.detach().abs().max())
            if not isfinite(size):
                if self.first is None and name not in _MAY_BE_INFINITE:
                    self.first = tapped.path
            elif size > self.size:
                self.largest, self.size = tapped.path, size
        return value


def find_extremes(train_step: TrainStep, batches: Iterable[Batch], *, step: int) -> ExtremeValues:
    """Run the batches of a step again, with the same dropout, and record extreme inner values."""
    extremes = ExtremeValues()
    with torch.no_grad():
        for index, batch in enumerate(batches):
            train_step.seed(step, index)
            with listen(extremes), train_step.autocast():
                train_step.module(batch.to(train_step.world.device))
    return extremes


def explain_divergence(
    train_step: TrainStep, batches: Sequence[Batch], result: StepResult, *, step: int
) -> str:
    """Return one clause that says where the divergence started."""
    extremes = find_extremes(train_step, batches, step=step)
    gradients = ((n, p.grad) for n, p in train_step.module.named_parameters() if p.grad is not None)
    name = first_nonfinite(dict(gradients))
    if extremes.first is None and not result.finite and name is not None:
        name = name.removeprefix("module.").removeprefix("model.")
        return f"all inner values are finite, but the gradient of {name} is not; {extremes}"
    return str(extremes)


def first_nonfinite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with a NaN or infinite entry, if there is one."""
    return next((n for n, value in tensors.items() if not bool(torch.isfinite(value).all())), None)
