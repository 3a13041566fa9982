"""Muon: matrices move by the nearest orthogonal matrix to their momentum, all else by AdamW.

A gradient's momentum is a matrix with few large and many small singular values; making them all
equal (Jordan et al. 2024) lets a step learn in every direction at once. Scaled so that its numbers
are as large as Adam's (Liu et al. 2025), one learning rate serves both kinds of parameters.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adam import adam

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
            return [orthogonalised(stack) for stack in stacks]
        together = torch.zeros(sum(stack.numel() for stack in stacks), device=stacks[0].device)
        parts = together.split([stack.numel() for stack in stacks])
        moves = [part.view_as(stack) for part, stack in zip(parts, stacks, strict=True)]
        own = slice(self.team.rank, None, self.team.ranks)
        for move, stack in zip(moves, stacks, strict=True):
            move[own] = orthogonalised(stack[own])
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


def orthogonalised(
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
