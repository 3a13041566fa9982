"""One step of learning: the gradients of a whole step's batches, clipped, and the optimizer."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from regard.training.batch import Batch
from regard.training.distributed import Team, gradients_wait, whole
from regard.training.objective import Objective

PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Learned:
    """What one step came to, over all processes."""

    loss: float
    """For one target, label smoothing included."""
    surprise: float
    """-log p for one target."""
    right: float
    """The share of right answers, where there are classes."""
    n_targets: int
    norm: float
    """The length of the gradient before it was clipped."""

    @property
    def finite(self) -> bool:
        return isfinite(self.loss) and isfinite(self.norm)


class Learner:
    """An objective, its optimizer and how they are used.

    Random numbers are a function of seed, step, process and part: nothing that is done between two
    steps (validation, samples) can change training, and a run that is resumed draws the same ones.

    Args:
        module: the objective as `shared` has wrapped it for several processes.
        clip: the length beyond which gradients are shortened; 0 never does.
    """

    def __init__(
        self,
        objective: Objective,
        optimizer: Optimizer,
        team: Team,
        *,
        module: nn.Module | None = None,
        clip: float = 0.0,
        precision: str = "float32",
        seed: int = 0,
    ) -> None:
        self.objective, self.optimizer, self.team = objective, optimizer, team
        self.module = module or objective
        self._clip = clip
        self._precision = precision
        self._seed = seed
        self.scaler = torch.amp.GradScaler(team.device.type, enabled=precision == "fp16")

    def learn(self, parts: Sequence[Batch], *, step: int, lr: float) -> Learned:
        """Take a step; where loss or gradient is not finite, nothing is changed."""
        (count,) = self.team.total(sum(part.n_targets() for part in parts))
        n_targets = int(count)
        sums = self.gradients(parts, step=step, n_targets=n_targets)
        self.scaler.unscale_(self.optimizer)
        norm = self._norm()
        loss, surprise, right = (one / max(1, n_targets) for one in self.team.total(*sums))
        learned = Learned(loss, surprise, right, n_targets, norm)
        if learned.finite or self.scaler.is_enabled():
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.scaler.step(self.optimizer)  # leaves the step out where fp16 has overflown
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
        return learned

    def failed(self, learned: Learned) -> bool:
        """Whether a step came to nothing, other than by the overflows that fp16 lives with."""
        overflown = self.scaler.is_enabled() and isfinite(learned.loss)
        return not learned.finite and not (overflown and self.scaler.get_scale() >= 1)

    def _norm(self) -> float:
        """The length of the gradient, which is shortened if it is too long."""
        learning = [one for one in self.module.parameters() if one.grad is not None]
        if self._clip:
            return float(whole(nn.utils.clip_grad_norm_(learning, self._clip)))
        gradients = [one.grad for one in learning if one.grad is not None]
        return float(whole(nn.utils.get_total_norm(gradients)))

    def gradients(
        self, parts: Sequence[Batch], *, step: int, n_targets: int
    ) -> tuple[float, float, float]:
        """Add up the gradients of all parts; this process's loss, surprise and right answers."""
        sums = [torch.zeros(3, dtype=torch.float64)]
        # the wrappers average over processes, which is undone here
        scale = self.team.ranks / max(1, n_targets)
        for number, part in enumerate(parts):
            self.seed(step, number)
            with gradients_wait(self.module, number < len(parts) - 1):
                with self.narrow():
                    found = self.module(part.to(self.team.device))
                self.scaler.scale(found.loss * scale).backward()
            sums.append(torch.stack([one.detach().double().cpu() for one in found]))
        loss, surprise, right = torch.stack(sums).sum(dim=0).tolist()
        return loss, surprise, right

    def seed(self, step: int, part: int) -> None:
        """Set the random numbers of a part of a step."""
        place = ((self._seed * 1_000_003 + step) * 8191 + self.team.rank) * 1021 + part
        torch.manual_seed(place % 2**63)

    def narrow(self) -> AbstractContextManager[Any]:
        """The context in which products are computed in fewer bits, if they shall be."""
        if self._precision == "float32":
            return nullcontext()
        return torch.autocast(self.team.device.type, PRECISIONS[self._precision])
