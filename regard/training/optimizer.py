"""Optimizers (Adam, AdamW, Muon), learning-rate schedules, weight averages and freezing."""

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

from regard.errors import InputError, UnknownNameError, check_choice, check_counts, nearest
from regard.training.distributed import World
from regard.training.recipe import TrainingSettings


class Muon(torch.optim.AdamW):
    """Orthogonalized momentum for the groups marked `orthogonal`, AdamW for the others.

    `torch.optim.Muon` computes the same update (with adjust_lr_fn="match_rms_adamw") in bfloat16,
    one matrix at a time, and does not divide the work among processes. Bfloat16 takes half the time
    of float32 on a processor with instructions for it, and 7 to 50 times as long without (AVX2).

    Args:
        groups: parameter groups with the keys `params`, `weight_decay` and `orthogonal`.
        betas: of AdamW; orthogonal groups use `momentum`.
        dtype: of the orthogonalization, which needs few digits.
        world: the processes that hold the same gradients and share the work.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        momentum: float = 0.95,
        dtype: torch.dtype = torch.float32,
        world: World | None = None,
    ) -> None:
        groups = [{"orthogonal": False, "weight_decay": 0.0, **group} for group in groups]
        super().__init__(groups, lr=lr, betas=betas, eps=eps, fused=True)
        self._step_supports_amp_scaling = False  # fp16 overflows skip the whole step
        self._momentum, self._dtype, self.world = momentum, dtype, world or World()

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update the parameters; closures are not supported."""
        gradients: dict[Tensor, Tensor] = {}
        for group in self.param_groups:
            if group["orthogonal"]:
                trained = [one for one in group["params"] if one.grad is not None]
                for one in trained:
                    one.mul_(1 - group["lr"] * group["weight_decay"])
                    gradients[one], one.grad = one.grad, None  # hidden from AdamW
                self._orthogonal_step({one: gradients[one] for one in trained}, group["lr"])
        super().step()
        for one, gradient in gradients.items():
            one.grad = gradient

    def _orthogonal_step(self, gradients: dict[Tensor, Tensor], lr: float) -> None:
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for one, gradient in gradients.items():
            state = self.state[one]
            if not state:
                state["momentum"] = torch.zeros_like(one)
            state["momentum"].lerp_(gradient, 1 - self._momentum)
            by_shape[one.shape].append((one, gradient.lerp(state["momentum"], self._momentum)))
        stacks = [torch.stack([update for _, update in pairs]) for pairs in by_shape.values()]
        for (shape, pairs), updates in zip(by_shape.items(), self._updates(stacks), strict=True):
            scale = 0.2 * max(shape) ** 0.5  # RMS of Adam's updates (Liu et al. 2025)
            for (one, _), update in zip(pairs, updates, strict=True):
                one.sub_(update, alpha=lr * scale)

    def _updates(self, stacks: list[Tensor]) -> list[Tensor]:
        """Orthogonalize all matrices, each in one of the processes."""
        if self.world.size == 1:
            return [orthogonalize(stack.to(self._dtype)) for stack in stacks]
        buffer = torch.zeros(sum(stack.numel() for stack in stacks), device=stacks[0].device)
        parts = buffer.split([stack.numel() for stack in stacks])
        updates = [part.view_as(stack) for part, stack in zip(parts, stacks, strict=True)]
        mine = slice(self.world.rank, None, self.world.size)
        for update, stack in zip(updates, stacks, strict=True):
            update[mine] = orthogonalize(stack[mine].to(self._dtype)).to(update.dtype)
        self.world.all_reduce(buffer)
        return updates


def orthogonalize(
    matrices: Float[Tensor, "many rows columns"], *, iterations: int = 5
) -> Float[Tensor, "many rows columns"]:
    """Keep the singular vectors and move the singular values near 1 (Newton–Schulz)."""
    x = matrices if matrices.size(-2) <= matrices.size(-1) else matrices.mT
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None]
    # x → ax + bx³ + cx⁵ moves singular values from (0, 1] to about 1 in few iterations (Jordan)
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(iterations):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x if matrices.size(-2) <= matrices.size(-1) else x.mT


def make_optimizer(
    module: nn.Module,
    name: str = "adam",
    *,
    betas: tuple[float, float] = (0.9, 0.98),
    eps: float = 1e-9,
    weight_decay: float = 0.0,
    dtype: torch.dtype = torch.float32,
    world: World | None = None,
) -> Optimizer:
    """Build an optimizer for all trainable parameters; vectors (biases, norms) do not decay.

    The defaults are those of Vaswani et al. 2017, section 5.3. The learning rate is set at each
    step (see `TrainStep`), and `dtype` is that of Muon's orthogonalization.
    """
    check_choice("optimizer", name, ("adam", "adamw", "muon"))
    trained = [one for one in module.parameters() if one.requires_grad]
    if not trained:
        raise InputError("every parameter is frozen: freeze fewer, or there is nothing to train.")
    stacks = [one for one in module.modules() if isinstance(one, nn.ModuleList)]
    linear = [one for stack in stacks for one in stack.modules() if isinstance(one, nn.Linear)]
    inner = {one.weight for one in linear if name == "muon"}
    parts = {
        "orthogonal": [one for one in trained if one in inner],
        "matrices": [one for one in trained if one.dim() > 1 and one not in inner],
        "vectors": [one for one in trained if one.dim() <= 1],
    }
    groups: list[dict[str, Any]] = [
        {"params": many, "weight_decay": 0.0 if part == "vectors" else weight_decay}
        for part, many in parts.items()
        if many
    ]
    if name == "muon":
        groups[0]["orthogonal"] = bool(parts["orthogonal"])
        return Muon(groups, betas=betas, eps=eps, dtype=dtype, world=world)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(groups, lr=0.0, betas=betas, eps=eps, fused=True)


def freeze(module: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Freeze parameters and modules that match a pattern ("encoder", "*.norm"); return names."""
    names = [name for name, _ in module.named_parameters()]
    frozen: set[str] = set()
    for pattern in patterns:
        matches = {n for n in names if fnmatchcase(n, pattern) or fnmatchcase(n, f"{pattern}.*")}
        if not matches:
            known = {f"{name.partition('.')[0]}.*" for name in names if "." in name} | set(names)
            raise UnknownNameError(
                f"training.freeze has {pattern!r}, which matches no parameter; "
                f"{nearest(pattern, known)}."
            )
        frozen |= matches
    for name in frozen:
        module.get_parameter(name).requires_grad_(False)
    return [name for name in names if name in frozen]


@dataclass(frozen=True)
class Schedule:
    """Learning rate by step: a linear warm-up to `lr` in `warmup` steps, then `kind`.

    paper      decays with 1/sqrt(step) (Vaswani et al. 2017, section 5.3)
    cosine     decays to `final` times lr along half a wave (Loshchilov and Hutter 2017)
    linear     decays to `final` times lr along a line
    constant   stays
    """

    kind: str
    lr: float
    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        if self.kind == "paper":
            check_counts(warmup=self.warmup)

    def at(self, step: int, progress: float = 0.0) -> float:
        """Return the learning rate of a step, counted from 1; `progress` runs from 0 to 1."""
        if step < self.warmup:
            return self.lr * step / self.warmup
        if self.kind == "constant":
            return self.lr
        if self.kind == "paper":
            return self.lr * sqrt(self.warmup / step)
        warm = progress * self.warmup / step  # the progress at the end of the warm-up
        left = 1.0 if warm >= 1 else 1 - (min(progress, 1.0) - warm) / (1 - warm)
        share = left if self.kind == "linear" else (1 - cos(pi * left)) / 2
        return self.lr * (self.final + (1 - self.final) * share)


def paper_rate(d_model: int, warmup: int) -> float:
    """Return the peak of the paper's schedule: 1/sqrt(d_model · warmup)."""
    return (d_model * warmup) ** -0.5


def make_schedule(settings: TrainingSettings, d_model: int) -> Schedule:
    """Build the schedule of a recipe; without lr, "paper" uses the paper's learning rate."""
    if settings.lr is None and settings.schedule != "paper":
        raise InputError(f"training.lr is missing: the schedule {settings.schedule!r} needs it.")
    lr = settings.lr or paper_rate(d_model, settings.warmup)
    return Schedule(settings.schedule, lr, settings.warmup, settings.final)


class MovingAverage:
    """Exponential moving average (EMA) of a module's parameters.

    After each step: average = decay · average + (1 - decay) · weights. Not torch's `AveragedModel`,
    which deep-copies the module: that fails for modules sharded by FSDP2, and a swap in place needs
    only one more set of weights.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self._module = module
        self.weights = {name: one.detach().clone() for name, one in module.named_parameters()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after a step, counted from 1; early steps count more."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in self._module.named_parameters():
            self.weights[name].lerp_(parameter, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the averages as the module's parameters inside the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self._module.named_parameters():
            current = parameter.detach().clone()
            parameter.copy_(self.weights[name])
            self.weights[name].copy_(current)


def mean_weights(many: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of several sets of weights, added up in double precision."""
    return {
        name: torch.stack([one[name].double() for one in many]).mean(dim=0).to(first.dtype)
        for name, first in many[0].items()
    }
