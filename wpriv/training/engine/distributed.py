"""Data-parallel training under torchrun: the processes split each batch, and the main one adds the noise.

In a single process every function is the identity. The sum over processes is distributed as the sum in one process.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wpriv.errors import UsageError
from wpriv.training.engine.sampler import Indices

T = TypeVar("T")
# the numbers of the groups of this process, one after another, the same in each process
_joined = itertools.count()


def join() -> bool:
    """Join the group of processes that torchrun started; return whether there is one."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return False
    if not dist.is_available():
        raise UsageError("this torch has no torch.distributed; run wpriv train without torchrun")
    if not dist.is_initialized():
        from torch.distributed import distributed_c10d
        from torch.distributed.rendezvous import rendezvous

        store, place, count = next(rendezvous("env://"))
        # the store outlives a group: addresses of an earlier group of this program must not be taken for those of this
        store = distributed_c10d.PrefixStore(f"wpriv {next(_joined)}", store)
        backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=place, world_size=count)
    return True


def leave() -> None:
    """Close the group, if there is one, once all processes are here: threads of an open group can abort the exit."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def size() -> int:
    """Return the number of processes that train together; 1 without torchrun."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if size() > 1 else 0


def is_main() -> bool:
    """Return whether this process writes the files and adds the noise."""
    return rank() == 0


def broadcast(value: T) -> T:
    """Return the value of the main process."""
    if size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def broadcast_weights(model: nn.Module) -> None:
    """Replace weights and buffers by those of the main process."""
    if size() > 1:
        for tensor in [*model.parameters(), *model.buffers()]:
            dist.broadcast(tensor.data, src=0)


def broadcast_tensors(parts: list[Tensor]) -> list[Tensor]:
    """Return the tensors of the main process; those of the others must have the same shapes and precision."""
    return _exchanged(parts, lambda part: dist.broadcast(part, src=0))


def _exchanged(parts: list[Tensor], exchange: Callable[[Tensor], object]) -> list[Tensor]:
    """Return tensors after an exchange with all processes, by their places in memory: all need one layout."""
    if size() == 1:
        return parts
    # a gradient of a kernel has another layout than one of no record
    parts = [part.contiguous() for part in parts]
    for part in parts:
        exchange(part)
    return parts


def own_share(indices: Indices) -> Indices:
    """Return this process's share of the records of a step; shares differ by at most one record."""
    return indices[rank() :: size()]


def all_reduce_sum(parts: list[Tensor]) -> list[Tensor]:
    """Return the sums over all processes, with the same bits in each."""
    return _exchanged(parts, dist.all_reduce)


def anywhere(flag: bool) -> bool:
    """Return whether a flag is set in any process."""
    if size() == 1:
        return flag
    count = torch.tensor([int(flag)], device=_device())
    dist.all_reduce(count)
    return bool(count)


def agree_to_stop(reason: str | None) -> str | None:
    """Return a reason to stop if any process has one, so that all stop after the same step."""
    stop = anywhere(reason is not None)
    return reason or ("another process" if stop else None)


def separate_draws() -> None:
    """Let each process draw its own random numbers in the next step, by a seed from the main one's generator.

    The masks of dropout must be independent between records, whichever process has them: otherwise a record that is
    left out would change which of the others share a mask, which no clipping bounds. The seeds follow from the state of
    the main generator, which checkpoints hold.
    """
    if size() == 1:
        return
    seed = torch.randint(2**62, (1,)).to(_device())
    dist.broadcast(seed, src=0)
    if not is_main():
        torch.manual_seed(int(seed) + rank())


def _device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"
