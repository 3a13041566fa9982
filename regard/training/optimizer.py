"""Adam and AdamW in torch's fused form, and Muon; names to freeze, and matrices to decay."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import cos, pi, sqrt
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.adam import adam

from regard.errors import InputError, UnknownNameError, nearest
from regard.training.distributed import Team

_ALONE = Team()
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of a polynomial that drives singular values from (0, 1] to about 1 in few rounds (Jordan)."""
_ROUNDS = 5
_AS_LARGE_AS_ADAM = 0.2
"""The root mean square of Adam's updates, as it was measured (Liu et al. 2025)."""


class Muon(Optimizer):
    """Orthogonal momentum for the groups that say `orthogonal`, AdamW for the others.

    Args:
        groups: parameter groups with the keys `params`, `weight_decay` and `orthogonal`.
        betas: of AdamW; `momentum` is what orthogonal groups use.
        team: the processes that hold the same gradients and share the work.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        momentum: float = 0.95,
        team: Team = _ALONE,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "momentum": momentum}
        super().__init__(groups, defaults | {"weight_decay": 0.0, "orthogonal": False})
        self.team = team

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  nobody gives closures
        """Take a step with the gradients there are."""
        for group in self.param_groups:
            learning = [one for one in group["params"] if one.grad is not None]
            if group["weight_decay"]:
                for one in learning:
                    one.mul_(1 - group["lr"] * group["weight_decay"])
            (self._orthogonal if group["orthogonal"] else self._adam)(learning, group)

    def _orthogonal(self, learning: list[Tensor], group: dict[str, Any]) -> None:
        alike: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for one in learning:
            gradient = one.grad
            assert gradient is not None
            state = self.state[one]
            if not state:
                state["momentum"] = torch.zeros_like(one)
            state["momentum"].lerp_(gradient, 1 - group["momentum"])
            ahead = gradient.lerp(state["momentum"], group["momentum"])
            alike[one.shape].append((one, ahead))
        stacks = [torch.stack([ahead for _, ahead in pairs]) for pairs in alike.values()]
        for (shape, pairs), moves in zip(alike.items(), self._moves(stacks), strict=True):
            scale = _AS_LARGE_AS_ADAM * max(shape) ** 0.5
            for (one, _), move in zip(pairs, moves, strict=True):
                one.sub_(move, alpha=group["lr"] * scale)

    def _moves(self, stacks: list[Tensor]) -> list[Tensor]:
        """All matrices made orthogonal: by every process some of them, then added up."""
        if self.team.ranks == 1:
            return [orthogonalized(stack) for stack in stacks]
        together = torch.zeros(sum(stack.numel() for stack in stacks), device=stacks[0].device)
        parts = together.split([stack.numel() for stack in stacks])
        moves = [part.view_as(stack) for part, stack in zip(parts, stacks, strict=True)]
        own = slice(self.team.rank, None, self.team.ranks)
        for move, stack in zip(moves, stacks, strict=True):
            move[own] = orthogonalized(stack[own])
        self.team.add_up(together)
        return moves

    def _adam(self, learning: list[Tensor], group: dict[str, Any]) -> None:
        for one in learning:
            state = self.state[one]
            if not state:
                state["step"] = torch.zeros(())
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(one), torch.zeros_like(one)
        states = [self.state[one] for one in learning]
        beta1, beta2 = group["betas"]
        adam(
            learning,
            [one.grad for one in learning if one.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=0.0,
            eps=group["eps"],
            maximize=False,
        )


def orthogonalized(
    matrices: Float[Tensor, "many rows columns"], *, rounds: int = _ROUNDS
) -> Float[Tensor, "many rows columns"]:
    """Matrices with the same singular vectors and singular values near 1, by Newton and Schulz."""
    x = matrices if matrices.size(-2) <= matrices.size(-1) else matrices.mT
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None]
    a, b, c = _COEFFICIENTS
    for _ in range(rounds):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x if matrices.size(-2) <= matrices.size(-1) else x.mT


SCHEDULES = ("paper", "cosine", "linear", "constant")


@dataclass(frozen=True)
class Schedule:
    """The learning rate at every step: a straight rise to `lr` in `warmup` steps, then `kind`.

    paper      falls with 1/sqrt(step) (Vaswani et al. 2017, section 5.3)
    cosine     falls to `final` times lr along half a wave (Loshchilov and Hutter 2017)
    linear     falls to `final` times lr along a line
    constant   stays
    """

    kind: str
    lr: float
    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULES:
            raise UnknownNameError(
                f"there is no schedule {self.kind!r}; {nearest(self.kind, SCHEDULES)}."
            )
        if not self.lr > 0:
            raise InputError(f"the learning rate is {self.lr}; it must be above 0.")
        if self.warmup < 0 or (self.kind == "paper" and self.warmup < 1):
            least = 1 if self.kind == "paper" else 0
            raise InputError(f"warmup is {self.warmup} steps; it must be {least} or more.")
        if not 0 <= self.final <= 1:
            raise InputError(f"final is {self.final}; it is a share of lr, from 0 to 1.")

    def at(self, step: int, progress: float = 0.0) -> float:
        """The learning rate of a step, counted from 1.

        Args:
            progress: how much of the training is over, from 0 to 1, by steps or by the clock.
        """
        if step < self.warmup:
            return self.lr * step / self.warmup
        if self.kind == "constant":
            return self.lr
        if self.kind == "paper":
            return self.lr * sqrt(self.warmup / step)
        warm = progress * self.warmup / step  # the progress there was when warm-up ended
        left = 1.0 if warm >= 1 else 1 - (min(progress, 1.0) - warm) / (1 - warm)
        share = left if self.kind == "linear" else (1 - cos(pi * left)) / 2
        return self.lr * (self.final + (1 - self.final) * share)


def paper_rate(d_model: int, warmup: int) -> float:
    """The peak of the paper's own schedule: 1/sqrt(d_model · warmup)."""
    return (d_model * warmup) ** -0.5


_EARLY = 10
"""In early steps the average follows closely, because the first weights say nothing."""


class MovingAverage:
    """The exponential moving average of a module's parameters (EMA).

    After each step: average = decay · average + (1 - decay) · weights.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self._module = module
        self.weights = {name: one.detach().clone() for name, one in module.named_parameters()}

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Take in the weights that a step, counted from 1, has led to."""
        decay = min(self.decay, (1 + step) / (_EARLY + step))
        for name, parameter in self._module.named_parameters():
            self.weights[name].lerp_(parameter, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module with the averages as its parameters; afterwards with its own again."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self._module.named_parameters():
            own = parameter.detach().clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(own)


def mean_of(many: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor over several sets of weights, added up in double precision."""
    return {
        name: torch.stack([one[name].double() for one in many]).mean(dim=0).to(first.dtype)
        for name, first in many[0].items()
    }


OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "muon": Muon}


@dataclass(frozen=True)
class OptimizerPlan:
    """Which optimizer; the defaults are those of the paper (section 5.3)."""

    name: str = "adam"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise UnknownNameError(
                f"there is no optimizer {self.name!r}; {nearest(self.name, OPTIMIZERS)}."
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas are {self.betas}; each is from 0 up to, not with, 1.")
        if self.eps <= 0 or self.weight_decay < 0:
            raise InputError(
                f"eps is {self.eps} and weight_decay {self.weight_decay}; eps must be above 0 and "
                "weight_decay 0 or more."
            )


def make_optimizer(
    module: nn.Module, plan: OptimizerPlan, *, team: Team | None = None
) -> Optimizer:
    """An optimizer for all parameters that learn; vectors (biases, norms) do not decay.

    Args:
        team: the processes that train together, if there are several.
    """
    learning = [one for one in module.parameters() if one.requires_grad]
    if not learning:
        raise InputError("every parameter is frozen, so there is nothing to learn: freeze fewer.")
    inner = _inside_layers(module) if plan.name == "muon" else set()
    parts = {
        "orthogonal": [one for one in learning if one in inner],
        "matrices": [one for one in learning if one.dim() > 1 and one not in inner],
        "vectors": [one for one in learning if one.dim() <= 1],
    }
    groups: list[dict[str, Any]] = [
        {"params": many, "weight_decay": 0.0 if part == "vectors" else plan.weight_decay}
        for part, many in parts.items()
        if many
    ]
    if plan.name == "muon":
        groups[0]["orthogonal"] = bool(parts["orthogonal"])
        return Muon(groups, betas=plan.betas, eps=plan.eps, team=team or Team())
    return OPTIMIZERS[plan.name](groups, lr=0.0, betas=plan.betas, eps=plan.eps, fused=True)


def _inside_layers(module: nn.Module) -> set[Tensor]:
    """The matrices inside layers: what is neither an embedding nor the last projection."""
    stacks = [one for one in module.modules() if isinstance(one, nn.ModuleList)]
    linear = [one for stack in stacks for one in stack.modules() if isinstance(one, nn.Linear)]
    return {one.weight for one in linear}


def freeze(module: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Stop the parameters that a pattern names ("encoder.*") from learning; their names."""
    names = [name for name, _ in module.named_parameters()]
    for pattern in patterns:
        if not any(_named(name, pattern) for name in names):
            raise UnknownNameError(
                f"freeze names {pattern!r}, which is no parameter; "
                f"{nearest(pattern, _parts(names))}."
            )
    frozen = []
    for name, parameter in module.named_parameters():
        if any(_named(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
            frozen.append(name)
    return frozen


def _named(name: str, pattern: str) -> bool:
    """Whether the pattern is the parameter's name or that of a module around it."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _parts(names: Iterable[str]) -> set[str]:
    """The names with the first parts of each: what a pattern could mean."""
    firsts = {f"{name.partition('.')[0]}.*" for name in names if "." in name}
    return firsts | set(names)
