"""Networks whose weights are divided among the processes of a training, by torch's fully_shard (FSDP2).

Each process keeps a part of each weight, of its optimizer's state, of the clipped sum and of the noise. A layer has its
whole weight only while records pass through it. Records are divided as in data-parallel training (distributed.py).
Clipping is by the rules of layers (``ghost``), which need no weight; methods that need the gradient of a parameter as a
whole (``vmap``, ``loop`` and exact sums) are refused. The noise of a step is one vector for all coordinates, of which
every process draws all and keeps its own: the noise is that of one process.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from wpriv.config import validate_train
from wpriv.config.train_schema import Train
from wpriv.errors import Unsupported, UsageError
from wpriv.files import checkpoint, durable_writes
from wpriv.training.clipping import clip, ghost
from wpriv.training.clipping.example_gradients import Automatic, Scaling, Share, bound, clip_factors, losses_of
from wpriv.training.clipping.model_pass import draws
from wpriv.training.clipping.record_trees import Records
from wpriv.training.engine import batch_gradient, distributed
from wpriv.training.engine.batch_gradient import Batches, BatchGradient
from wpriv.training.engine.job import Job
from wpriv.training.engine.sampler import Indices, chunks
from wpriv.training.engine.update_rules import Updates
from wpriv.training.noise.release import Bounded, Part

# the layers whose weights are divided: their rules need no weight. Weights of other layers stay whole everywhere.
KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class Rows:
    """The rows of one parameter that this process keeps, of all that it has; all of them where it is not divided."""

    begin: int
    end: int
    shape: torch.Size

    def of(self, whole: Tensor) -> Tensor:
        """Return these rows of a tensor with the shape of the parameter."""
        return whole if self.all else whole[self.begin : self.end]

    @property
    def all(self) -> bool:
        return not self.shape or (self.begin, self.end) == (0, self.shape[0])

    def part(self, first: int) -> Part:
        """Return the coordinates of these rows, where the parameter begins at coordinate ``first`` of all."""
        width = math.prod(self.shape[1:])
        return Part(first + self.begin * width, (self.end - self.begin) * width) if self.shape else Part(first, 1)


def divided(job: Job, recipe: Train) -> Job:
    """Return a job whose model is divided among the processes; in one process, the job as it is."""
    if distributed.size() == 1:
        return job
    _refuse(job, recipe)
    batches, (norm, sensitivity, adjacency, divisor) = job.batches, _form(job)
    assert batches is not None
    empty = batches.fetch(np.arange(0))
    method = job.method or clip.choose(batches.model, batches.loss, *empty, method="ghost")
    distributed.broadcast_weights(batches.model)
    _divide(batches.model)

    def aggregate(indices: Indices) -> BatchGradient:
        parts, diagnostics = _clipped_sum(batches, indices, norm)
        return BatchGradient(Bounded(parts, sensitivity, adjacency), divisor, diagnostics)

    return replace(job, aggregate=aggregate, method=method, divided=True, with_loss=None, save_artifacts=None)


def _form(job: Job) -> tuple[Scaling, float, str, float | None]:
    """Return by what gradients are scaled (infinite without privacy), sensitivity, adjacency, and the sum's divisor."""
    function = job.aggregate.func if isinstance(job.aggregate, functools.partial) else None
    options = job.aggregate.keywords if isinstance(job.aggregate, functools.partial) else {}
    if function is batch_gradient.plain and not options:
        return math.inf, 0.0, "replace-one", None
    if function is batch_gradient.per_example and options.keys() == {"norm", "adjacency", "divisor", "method", "exact"}:
        factor = 1 if options["adjacency"] == "add-remove" else 2
        norm: Scaling = options["norm"]
        return norm, factor * bound(norm), options["adjacency"], options["divisor"]
    raise Unsupported(
        "shard_weights sums gradients of records, each clipped by itself, and this training sums something else. Leave "
        "shard_weights out"
    )


def rows_of(parameter: Tensor) -> Rows:
    """Return the rows of a parameter that this process keeps."""
    shape = parameter.shape
    if not is_divided(parameter):
        return Rows(0, shape[0] if shape else 1, shape)
    step = math.ceil(shape[0] / distributed.size())
    begin = min(distributed.rank() * step, shape[0])
    return Rows(begin, min(begin + step, shape[0]), shape)


def is_divided(tensor: object) -> bool:
    """Return whether a tensor is one whose rows are divided among the processes."""
    module = sys.modules.get("torch.distributed.tensor")  # loading it takes half a second
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process keeps."""
    return tensor.to_local().detach() if is_divided(tensor) else tensor  # type: ignore[attr-defined]


def like(part: Tensor, parameter: Tensor) -> Tensor:
    """Return a tensor that is divided as a parameter is, of the parts of all processes."""
    if not is_divided(parameter):
        return part
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part,
        parameter.device_mesh,  # type: ignore[attr-defined]
        parameter.placements,  # type: ignore[attr-defined]
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def coordinates(weights: list[nn.Parameter]) -> tuple[list[Part], int]:
    """Return the coordinates that this process keeps of each weight, and the number of all coordinates."""
    places, first = [], 0
    for weight in weights:
        places.append(rows_of(weight).part(first))
        first += weight.numel()
    return places, first


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the complete state of a model, in the memory of the CPU; every process must call it."""
    return {
        name: (value.full_tensor() if is_divided(value) else value).detach().cpu().clone()  # type: ignore[attr-defined]
        for name, value in model.state_dict().items()
    }


def _divide(model: nn.Module) -> None:
    """Divide the weights of all layers whose rules need no weight."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (distributed.size(),))
    for module in model.modules():
        kind, weights = type(module), list(module.parameters(recurse=False))
        if kind not in KINDS or not weights or not all(weight.requires_grad for weight in weights):
            continue
        for weight in weights:
            weight.data = weight.data.contiguous()
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
        # fully_shard gives the module a class with more methods, by which its rule is not found; its hooks stay
        module.__class__ = kind
        for weight in module.parameters(recurse=False):
            rows = rows_of(weight)
            if rows.end - rows.begin != len(local(weight)):
                raise RuntimeError("this torch divides weights in another way")


def _clipped_sum(batches: Batches, indices: Indices, norm: Scaling) -> tuple[list[Tensor], Tensor]:
    """Return the rows of the clipped sum over all processes that this one keeps, and the diagnostics of all records.

    All processes pass records through the model equally often, as each pass gathers the weights from all of them. A
    process without a record of its own in a pass takes another one's, which counts nothing.
    """
    parts = [torch.zeros_like(local(weight)) for weight in batches.trainable()]
    diagnostics = torch.zeros(3, device=parts[0].device)
    for chunk in chunks(indices, batches.physical * distributed.size()):
        places = distributed.own_share(chunk)
        inputs, targets = batches.fetch(places if len(places) else chunk[:1])
        losses, norms = _add_clipped(batches, inputs, targets, norm, parts, counted=len(places) > 0)
        if len(places):
            if isinstance(norm, Automatic) or math.isinf(norm):
                clipped = norms.new_tensor(math.nan)
            else:
                clipped = (norms > norm).sum()
            finite = torch.where(losses.isfinite(), losses, 0.0)
            diagnostics += torch.stack([losses.new_tensor(len(places)), finite.sum(), clipped])
    return parts, distributed.all_reduce_sum([diagnostics])[0]


def _add_clipped(
    batches: Batches, inputs: Records, targets: Records, norm: Scaling, parts: list[Tensor], *, counted: bool
) -> tuple[Tensor, Tensor]:
    """Add one pass's clipped sum over all processes, a parameter at a time; return losses and norms here."""
    restore = draws(inputs.device)
    losses, shares, squares = _shares(batches, inputs, targets)
    faulty = ~squares.isfinite()
    # every pass gathers the weights from all processes, and so they repeat it together
    if distributed.anywhere(bool(faulty.any())):
        good = (~faulty).nonzero()
        rows = torch.where(faulty, good[0] if len(good) else 0, torch.arange(len(faulty), device=faulty.device))
        restore()
        _, shares, _ = _shares(batches, inputs[rows], targets[rows])
        counted = counted and len(good) > 0
    with torch.no_grad():
        kept = None if counted and not bool(faulty.any()) else (~faulty).to(losses.dtype) * float(counted)
        factors = clip_factors({"shares": torch.where(faulty, 1.0, squares)}, norm, kept)
        for weight, part in zip(batches.trainable(), parts, strict=True):
            share = shares.pop(weight, None)
            whole = factors.new_zeros(weight.shape)
            if share is not None and counted:
                whole = share.weighted(factors)
            part += rows_of(weight).of(distributed.all_reduce_sum([whole])[0])
    return losses, torch.where(faulty, math.inf, squares.sqrt())


def _shares(batches: Batches, inputs: Records, targets: Records) -> tuple[Tensor, dict[Any, Share], Tensor]:
    """Return the losses of some records, the shares of their gradients by parameter, and their squared norms [B]."""
    with torch.enable_grad():
        outputs, calls = ghost.forward(batches.model, inputs)
        losses = losses_of(outputs, targets, batches.loss)
        deltas = ghost.gradients_at(calls, losses)
    with torch.no_grad():
        shares = ghost.shares(calls, deltas)
        return losses.detach(), shares, torch.stack([share.squares for share in shares.values()]).sum(dim=0)


def _refuse(job: Job, recipe: Train) -> None:
    fault = validate_train.sharding_fault(recipe)
    if fault is not None:
        raise Unsupported(fault[1])
    if job.batches is None or job.observe_distances is not None or job.groups:
        reason = f"the task {recipe.task}" if job.batches is None else "an accountant of observed distances (bdp, wdp)"
        raise Unsupported(f"shard_weights: {reason} needs each weight as a whole. Leave shard_weights out")
    if job.method not in ("", "ghost"):
        raise Unsupported(
            f"shard_weights clips by the method ghost, and this network needs {job.method}, which takes gradients of "
            f"whole weights. Use layers with rules ({', '.join(kind.__name__ for kind in KINDS)}), or leave "
            f"shard_weights out"
        )
    if not dist.is_available():
        raise Unsupported("shard_weights: this torch has no torch.distributed; run one process")


# Checkpoints of divided weights: a file for each process beside the checkpoint, which names their step and number.
#
# The files of a step are complete before the checkpoint names it, and those of the step before are deleted after that:
# a training that is killed at any moment continues from a whole set.

PATTERN = "checkpoint-*-of-*.pt"
Optimizers = Mapping[str, Updates]


def save(folder: Path, step: int, position: dict[str, Any] | None, model: nn.Module, optimizers: Optimizers) -> None:
    """Write what this process keeps of weights and optimizers, and wait until all processes have written theirs."""
    shared = distributed.broadcast(position)  # no process writes before the ledger is on disk
    assert shared is not None
    content = {
        **shared,
        "step": step,
        "weights": {name: local(value).clone() for name, value in model.state_dict().items()},
        "optimizers": {name: _local_state(each) for name, each in optimizers.items()},
    }
    checkpoint.save(_path(folder, step), content)
    dist.barrier()


def load(folder: Path, stored: dict[str, Any], model: nn.Module, optimizers: Optimizers) -> None:
    """Replace what this process keeps by its part of a checkpoint; UsageError if damaged, missing or of another run."""
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
    """Refuse a checkpoint of another number of processes."""
    before, now = stored.get("divided", 1), distributed.size() if divided else 1
    if before != now:
        command = "without torchrun" if before == 1 else f"with torchrun --nproc-per-node {before}"
        raise UsageError(
            f"the checkpoint in {folder} has the weights divided among {before} process{'es' * (before != 1)}; found "
            f"{now}. Continue {command}"
        )


def _path(folder: Path, step: int) -> Path:
    return folder / f"checkpoint-{step}-{distributed.rank() + 1}-of-{distributed.size()}.pt"


def _local_state(optimizer: Updates) -> dict[str, Any]:
    """Return the state of an optimizer with what this process keeps of each tensor."""
    stored: dict[str, Any] = optimizer.state_dict()
    state = {
        place: {key: local(value) if isinstance(value, Tensor) else value for key, value in each.items()}
        for place, each in stored["state"].items()
    }
    return {**stored, "state": state}


def _load_state(optimizer: Updates, stored: dict[str, Any]) -> None:
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
