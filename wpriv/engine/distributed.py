"""Several processes as one (torchrun): every record is drawn once, each process takes its share, one of them adds the noise.

All functions are the identity in a single process. The sum over processes has the law of the sum in one.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wpriv.engine.sampler import Indices
from wpriv.errors import UsageError


def join() -> bool:
    """Joins the group that torchrun has set up, if it has; True where there is one."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return False
    if not dist.is_available():
        raise UsageError("this torch has no torch.distributed; run wpriv train without torchrun")
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo")
    return True


def leave() -> None:
    """End the group of processes, where there is one, once all of them are here: threads of a group left open can abort the exit."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def size() -> int:
    """How many processes train together; 1 where torchrun did not start this one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this process is, from 0."""
    return dist.get_rank() if size() > 1 else 0


def is_main() -> bool:
    """Whether this process is the one that writes files and adds noise."""
    return rank() == 0


def broadcast(value: Any) -> Any:
    """The first process's value, for all."""
    if size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def share_weights(model: nn.Module) -> None:
    """The first process's weights and buffers, for all."""
    if size() > 1:
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor.data, src=0)


def own_share(indices: Indices) -> Indices:
    """Every so many-th of a step's records, so that all processes have nearly as many."""
    return indices[rank() :: size()]


def all_reduce_sum(parts: list[Tensor]) -> list[Tensor]:
    """The sums over all processes, the same bits in each."""
    if size() > 1:
        for part in parts:
            dist.all_reduce(part)
    return parts


def shared(parts: list[Tensor]) -> list[Tensor]:
    """The first process's tensors, for all; the others give tensors of the same shapes and precision."""
    if size() == 1:
        return parts
    parts = [part.contiguous() for part in parts]  # one layout in all processes, on whose bytes the broadcast works
    for part in parts:
        dist.broadcast(part, src=0)
    return parts


def agree_to_stop(reason: str | None) -> str | None:
    """The first reason that any process has, for all: they stop at the same step or not at all."""
    if size() == 1:
        return reason
    flag = torch.tensor([0 if reason is None else 1], device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(flag)
    return reason or ("another process" if int(flag) else None)
