"""Adam and AdamW in torch's fused form, and Muon; names to freeze, and matrices to decay."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.errors import InputError, UnknownNameError, nearest
from regard.training.distributed import Team
from regard.training.muon import Muon

OPTIMISERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "muon": Muon}


@dataclass(frozen=True)
class OptimiserPlan:
    """Which optimiser; the defaults are those of the paper (section 5.3)."""

    name: str = "adam"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in OPTIMISERS:
            raise UnknownNameError(
                f"there is no optimiser {self.name!r}; {nearest(self.name, OPTIMISERS)}."
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas are {self.betas}; each is from 0 up to, not with, 1.")
        if self.eps <= 0 or self.weight_decay < 0:
            raise InputError(
                f"eps is {self.eps} and weight_decay {self.weight_decay}; eps must be above 0 and "
                "weight_decay 0 or more."
            )


def make_optimiser(
    module: nn.Module, plan: OptimiserPlan, *, team: Team | None = None
) -> Optimizer:
    """An optimiser for all parameters that learn; vectors (biases, norms) do not decay.

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
    return OPTIMISERS[plan.name](groups, lr=0.0, betas=plan.betas, eps=plan.eps, fused=True)


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
