"""Several processes that train one model together, and the single process as the simplest case.

Every process computes its share of a step's batches. Gradients are summed over processes and
divided by the number of targets of the whole step, never averaged over processes, so that the
result does not depend on how many there are.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.errors import InputError

_PATIENCE = timedelta(minutes=60)
"""How long a process waits for the others, which may be evaluating or writing a checkpoint."""


_ended: list[Any] = []
"""The last group that was left. It lives on here because a model's gradient reducer holds it too,
and freed by that it waits for its threads while they wait for Python's lock (pytorch #56297)."""


@dataclass(frozen=True)
class Team:
    """The processes that train together, as one of them sees it."""

    rank: int = 0
    ranks: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009  a constant

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def total(self, *numbers: float | int) -> list[float]:
        """Each number summed over all processes, exactly the same for all of them."""
        if self.ranks == 1:
            return [float(one) for one in numbers]
        together = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(together)
        return together.tolist()

    def add_up(self, tensor: Tensor) -> None:
        """Put the sum over all processes in the tensor's place."""
        if self.ranks > 1:
            dist.all_reduce(tensor)

    def wait(self) -> None:
        """Go on when all have come here."""
        if self.ranks > 1:
            dist.barrier()


@contextmanager
def joined() -> Iterator[Team]:
    """The team that torchrun has started this process in; alone where it has not."""
    ranks, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if ranks == 1:
        yield Team(device=device)
        return
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    store, rank, _ = next(rendezvous("env://", timeout=_PATIENCE))
    store = PrefixStore(_round(), store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=_PATIENCE)
    try:
        yield Team(rank, ranks, device)
    finally:
        _ended[:] = [dist.group.WORLD]
        dist.destroy_process_group()


def _round() -> str:
    """A name for this attempt of torchrun, the same for all processes.

    Torchrun keeps one store for all attempts, in which a process that was started again may find
    the addresses of those that are gone. On several hosts attempts are not counted together, so
    there the store must be made anew: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 (docs/scaling.md).
    """
    alone = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    return f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}" if alone else "attempt"


def restarted() -> bool:
    """Whether torchrun has started this process again after a fault."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def shared(objective: nn.Module, team: Team, *, sharded: bool = False) -> nn.Module:
    """The module whose gradients are those of all processes together.

    Args:
        sharded: every process holds a part of each weight only (FSDP2), for models that outgrow
            one device; layers are gathered one after another as they are needed.
    """
    if team.ranks == 1:
        if sharded:
            raise InputError(
                "training.shard = true needs several processes: start it with "
                "`torchrun --nproc-per-node=N -m regard train …`."
            )
        return objective
    if not sharded:
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(objective)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(team.device.type, (team.ranks,))
    for module in objective.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                fully_shard(layer, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    return objective


def gradients_wait(module: Any, wait: bool) -> Any:
    """A context in which gradients stay with their process, until the last part of a step."""
    if hasattr(module, "set_requires_gradient_sync"):  # FSDP2
        module.set_requires_gradient_sync(not wait)
        return nullcontext()
    return module.no_sync() if wait and hasattr(module, "no_sync") else nullcontext()


def whole(tensor: Tensor) -> Tensor:
    """The tensor with the parts of all processes, which all must ask for at the same time."""
    gather = getattr(tensor.detach(), "full_tensor", None)
    return tensor.detach() if gather is None else gather()


def like(full: Tensor, tensor: Tensor) -> Tensor:
    """A full tensor as this process holds `tensor`: the whole of it, or a part."""
    full = full.to(device=tensor.device, dtype=tensor.dtype)
    if not hasattr(tensor, "full_tensor"):
        return full
    from torch.distributed.tensor import distribute_tensor

    placed: Any = tensor
    return distribute_tensor(full, placed.device_mesh, placed.placements, src_data_rank=None)
