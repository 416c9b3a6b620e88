"""The engine of a training, from a checked recipe and its data; through this file the verb ``train`` uses torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

from wpriv.config.train_schema import Train
from wpriv.core import registry
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.randomness import Seeds, training_seeds
from wpriv.training.data import Data
from wpriv.training.engine import distributed, loop, sharding
from wpriv.training.engine.job import Job, Schedule, evaluating
from wpriv.training.engine.loop import Engine
from wpriv.training.engine.saved_weights import inherit
from wpriv.training.noise import library


def device_of(name: str) -> torch.device:
    """Return the device called ``cpu`` or ``cuda``; under torchrun each process has its own GPU."""
    if name == "cuda":
        if not torch.cuda.is_available():
            raise MissingResource("`device='cuda'`: torch sees no usable GPU here; use `device='cpu'`")
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device
    if name != "cpu":
        raise UsageError(f"`device` must be cpu or cuda; found {name!r}")
    return torch.device("cpu")


def prepare(
    recipe: Train,
    data: Data,
    schedule: Schedule,
    folder: Path,
    *,
    identity: str,
    device: str = "cpu",
    resume: bool = False,
    fork: bool = False,
    begin: Callable[[], object] = lambda: None,
    build_job: Callable[..., Job] | None = None,
) -> Engine:
    """Return the engine of a training at its beginning, or where the checkpoint in its folder was made.

    Args:
        build_job: makes the job in place of the task of the recipe, from objects that only the caller has.
        begin: called once the task, and for a fork the weights in the folder, have been accepted; before that the
            folder is not changed.
    """
    distributed.join()
    loop.keep_memory()
    torch_device = device_of(device)
    if distributed.size() > 1 and recipe.privacy is not None and recipe.privacy.clip == "batch-mean":
        raise Unsupported(
            "clip: batch-mean clips the mean of a whole batch, which no single process has; run it without torchrun"
        )
    seeds: Seeds = distributed.broadcast(training_seeds(recipe.seed, schedule.run))
    # models draw their first weights, and dropout its masks, from torch's global generators
    torch.manual_seed(seeds.model)
    build = build_job or registry.load("tasks", recipe.task).TASK.build_job
    job = build(recipe, data, torch_device, adjacency=schedule.adjacency)
    if distributed.size() > 1 and (job.custom_step is not None or job.groups):
        raise Unsupported(f"the task {recipe.task} needs each whole batch in one process; run it without torchrun")
    if fork:
        inherit(job.model, folder, torch_device)
    if recipe.shard_weights:
        job = sharding.divided(job, recipe)
    if schedule.looks is not None:
        with evaluating(job.model):
            schedule.looks.figure(job.evaluate())
    begin()
    return Engine(job, schedule, seeds, folder, torch_device, identity=identity, resume=resume, fork=fork)


def about() -> dict[str, object]:
    """Return versions and devices for the provenance of a run."""
    versions: dict[str, object] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processes": distributed.size(),
        "kernels": library.used(),
    }
    if torch.cuda.is_available():
        versions["gpu"] = torch.cuda.get_device_name()
    return versions
