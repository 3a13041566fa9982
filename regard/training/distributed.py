"""Data-parallel training over several processes; a single process is the simplest case.

Every process computes its share of a step's batches. Gradients are summed over processes and
divided by the number of targets in the whole step, never averaged over processes, so the result
does not depend on the number of processes.
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

from regard.errors import InputError, RegardError

_TIMEOUT = timedelta(minutes=60)
"""Maximum wait for other processes, which may be evaluating or writing a checkpoint."""
_LOST_PEER = ("closed by peer", "reset by peer", "Broken pipe", "remote process exited", "gloo")
"""Words in the errors of torch with which processes notice that another one is gone."""
_last_group: list[Any] = []
"""The last process group, kept alive: the gradient reducer of a model refers to it too, and if that
reference were the last one, its destructor would deadlock on Python's lock (pytorch #56297)."""


@dataclass(frozen=True)
class World:
    """The processes that train together, seen from one of them."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009  a constant

    @property
    def is_main(self) -> bool:
        """True for the process that writes files and reports progress."""
        return self.rank == 0

    def sum(self, *numbers: float | int) -> list[float]:
        """Sum each number over all processes; every process gets the identical result."""
        if self.size == 1:
            return [float(number) for number in numbers]
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace the tensor by its sum over all processes."""
        if self.size > 1:
            dist.all_reduce(tensor)

    def barrier(self) -> None:
        """Wait until every process has arrived here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def join_world() -> Iterator[World]:
    """Join the process group that torchrun has started; a world of one process without torchrun."""
    size, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if size == 1:
        yield World(device=device)
        return
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    store, rank, _ = next(rendezvous("env://", timeout=_TIMEOUT))
    # Torchrun keeps one store for all attempts, so a restarted process may find the addresses of
    # dead ones. Hosts do not count attempts together: on several hosts the store itself has to be
    # recreated, with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 (docs/scaling.md).
    one_host = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if one_host else ""
    store = PrefixStore(f"attempt-{attempt}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
    try:
        yield World(rank, size, device)
    except RuntimeError as error:
        if not any(words in str(error) for words in _LOST_PEER):
            raise
        raise RegardError(
            "another process of the run has ended, or cannot be reached: see its message, and "
            "continue with --resume."
        ) from error
    finally:
        _last_group[:] = [dist.group.WORLD]
        dist.destroy_process_group()


def is_restart() -> bool:
    """Return True if torchrun has restarted this process after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def wrap_module(objective: nn.Module, world: World, *, shard: bool = False) -> nn.Module:
    """Wrap the module so that its gradients are reduced over all processes.

    Args:
        shard: each process holds only a part of every weight (FSDP2), for models that do not fit
            on one device; layers are gathered one after another when they are needed.
    """
    if world.size == 1:
        if shard:
            raise InputError(
                "training.shard = true needs several processes: start them with "
                "`torchrun --nproc-per-node=N -m regard train …`."
            )
        return objective
    if not shard:
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(objective)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    for module in objective.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                fully_shard(layer, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    return objective


def gradient_sync(module: Any, *, sync: bool) -> Any:
    """Return a context in which backward passes reduce gradients, or keep them local."""
    if hasattr(module, "set_requires_gradient_sync"):  # FSDP2
        module.set_requires_gradient_sync(sync)
        return nullcontext()
    return module.no_sync() if not sync and hasattr(module, "no_sync") else nullcontext()


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor; all processes must call this at the same time."""
    gather = getattr(tensor.detach(), "full_tensor", None)
    return tensor.detach() if gather is None else gather()


def shard_like(full: Tensor, tensor: Tensor) -> Tensor:
    """Return the part of a full tensor that this process holds of `tensor`."""
    full = full.to(device=tensor.device, dtype=tensor.dtype)
    if not hasattr(tensor, "full_tensor"):
        return full
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = tensor
    return distribute_tensor(full, sharded.device_mesh, sharded.placements, src_data_rank=None)
