"""From a checked recipe and its data to a finished training: the one function through which the verb reaches torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from wpriv.config.train_schema import Train
from wpriv.core import registry
from wpriv.engine import distributed, loop, seeds
from wpriv.engine.job import Schedule
from wpriv.engine.loop import Engine, Row
from wpriv.errors import MissingResource, Unsupported


def device_of(name: str) -> torch.device:
    """``cpu`` or ``cuda`` (under torchrun each process its own).

    Raises:
        MissingResource: torch sees no usable GPU.
    """
    if name == "cuda":
        if not torch.cuda.is_available():
            raise MissingResource("--device cuda: torch sees no usable GPU here; use --device cpu")
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device
    return torch.device("cpu")


def launch(
    recipe: Train,
    data: Any,
    schedule: Schedule,
    folder: Path,
    *,
    identity: str,
    device: str = "cpu",
    resume: bool = False,
    fork: bool = False,
    begin: Callable[[], object] = lambda: None,
    stop: Callable[[], str | None] = lambda: None,
    on_epoch: Callable[[Row], Row] = lambda row: row,
    on_step: Callable[[int], None] = lambda step: None,
) -> Engine:
    """Trains what a recipe names on data that were read, and returns the engine at its end.

    Args:
        begin: called once the task, and for a fork the weights in the folder, are found to fit; before it the folder is not changed.
    Raises:
        Interrupted: ``stop`` gave a reason; everything is saved. UsageError, Unsupported, MissingResource: as the task and device say.
    """
    distributed.join()
    where = device_of(device)
    if distributed.size() > 1 and recipe.privacy is not None and recipe.privacy.clip == "batch-mean":
        raise Unsupported(
            "clip: batch-mean clips the mean of a whole batch, which no single process sees; run it without torchrun"
        )
    own = distributed.broadcast(seeds.seeds(recipe.seed, schedule.run))
    seeds.seed_model(own)
    job = registry.load("tasks", recipe.task).TASK.build_job(recipe, data, where, adjacency=schedule.adjacency)
    if distributed.size() > 1 and (job.custom_step is not None or job.groups):
        raise Unsupported(f"the task {recipe.task} needs every batch whole in one process; run it without torchrun")
    if fork:
        loop.inherit(job.model, folder, where)
    begin()
    engine = Engine(job, schedule, own, folder, where, identity=identity, resume=resume, fork=fork)
    engine.run(stop=stop, on_epoch=on_epoch, on_step=on_step)
    return engine


def about() -> dict[str, Any]:
    """Versions and devices for the provenance of a run."""
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processes": distributed.size(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found
