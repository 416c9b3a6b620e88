"""Checkpoints of divided weights: a file for each process beside the checkpoint, which names their step and number.

The files of a step are complete before the checkpoint names it, and those of the step before are deleted after that: a
training that is killed at any moment continues from a whole set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wpriv.engine import checkpoint, distributed
from wpriv.engine.sharding import like, local
from wpriv.errors import UsageError
from wpriv.files import durable_writes

PATTERN = "checkpoint-*-of-*.pt"
Optimizers = dict[str, torch.optim.Optimizer]


def save(folder: Path, step: int, position: dict[str, Any] | None, model: nn.Module, optimizers: Optimizers) -> None:
    """Write what this process keeps of weights and optimizers, and wait until all processes have written theirs.

    Args:
        position: of the main process, whose ledger is on disk: identity, run, position in the ledger; else None.
    """
    shared = distributed.broadcast(position)  # no process writes before the ledger is on disk
    content = {
        **shared,
        "step": step,
        "weights": {name: local(value).clone() for name, value in model.state_dict().items()},
        "optimizers": {name: _local_state(each) for name, each in optimizers.items()},
    }
    checkpoint.save(_path(folder, step), content)
    dist.barrier()


def load(folder: Path, stored: dict[str, Any], model: nn.Module, optimizers: Optimizers) -> None:
    """Replace what this process keeps by what it kept at a checkpoint.

    Args:
        stored: the content of the checkpoint.
    Raises:
        UsageError: the part of this process is missing, damaged, or of another run or network.
    """
    path = _path(folder, stored["step"])
    part = checkpoint.load(path, next(model.parameters()).device)
    state = model.state_dict()
    fits = state.keys() == part["weights"].keys() and all(
        local(state[name]).shape == value.shape for name, value in part["weights"].items()
    )
    if not fits or any(part[key] != stored[key] for key in ("identity", "run", "step", "ledger")):
        raise UsageError(f"{path} is of another run than the checkpoint; put the right one back, or use `fresh=True`")
    with torch.no_grad():
        for name, value in state.items():
            local(value).copy_(part["weights"][name])
    for name, each in optimizers.items():
        _load_state(each, part["optimizers"][name])


def delete(folder: Path, *, but_step: int | None = None) -> None:
    """Delete the parts of all steps, or of all but one."""
    for path in folder.glob(PATTERN):
        if but_step is None or not path.name.startswith(f"checkpoint-{but_step}-"):
            durable_writes.remove(path)


def require_processes(stored: dict[str, Any], divided: bool, folder: Path) -> None:
    """Refuse a checkpoint of another number of processes.

    Raises:
        UsageError: weights were divided among more, fewer or no processes.
    """
    before, now = stored.get("divided", 1), distributed.size() if divided else 1
    if before != now:
        command = "without torchrun" if before == 1 else f"with torchrun --nproc-per-node {before}"
        raise UsageError(
            f"the checkpoint in {folder} has the weights divided among {before} process{'es' * (before != 1)}; found "
            f"{now}. Continue {command}"
        )


def _path(folder: Path, step: int) -> Path:
    return folder / f"checkpoint-{step}-{distributed.rank() + 1}-of-{distributed.size()}.pt"


def _local_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state of an optimizer with what this process keeps of each tensor."""
    stored: dict[str, Any] = optimizer.state_dict()
    state = {
        place: {key: local(value) if isinstance(value, Tensor) else value for key, value in each.items()}
        for place, each in stored["state"].items()
    }
    return {**stored, "state": state}


def _load_state(optimizer: torch.optim.Optimizer, stored: dict[str, Any]) -> None:
    """Undo ``_local_state``; numbers such as Adam's count of steps are not divided."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    state = {
        place: {
            key: like(value, weights[place]) if isinstance(value, Tensor) and value.dim() else value
            for key, value in each.items()
        }
        for place, each in stored["state"].items()
    }
    optimizer.load_state_dict({**stored, "state": state})
