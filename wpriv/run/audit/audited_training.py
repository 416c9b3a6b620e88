"""One training with canaries: the engine of ``wpriv train`` on the records of a recipe and on canaries behind them."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv import tasks
from wpriv.config.recipe import Recipe
from wpriv.core.process import Process
from wpriv.engine import ledger
from wpriv.errors import Unsupported, UsageError
from wpriv.run.audit import scores
from wpriv.run.training import training_run
from wpriv.run.training.plan import Plan

TASKS = ("classify", "fit")
"""The tasks whose trainings can be audited."""


@dataclass(frozen=True)
class Outcome:
    """What an audit knows of the canaries of one training.

    Args:
        coins: [m] whether each canary took part. scores: [m] by the name of the statistic.
        process: the releases in the training's ledger.
    """

    coins: NDArray[np.bool_]
    scores: dict[str, NDArray[np.float64]]
    process: Process


def require_task(recipe: Recipe) -> None:
    """Refuse a task whose trainings cannot be audited.

    Raises:
        Unsupported: it is such a task; the message names the others.
    """
    if recipe.train.task not in TASKS:
        raise Unsupported(
            f"{recipe.name}: an audit adds canaries to sums of clipped gradients, as the tasks {' and '.join(TASKS)} "
            f"release them; found the task {recipe.train.task}"
        )


def require_auditable(plan: Plan) -> None:
    """Refuse a training that canaries cannot be added to.

    Raises:
        Unsupported: its clipping, or that it has no privacy or no finite eps. UsageError: the recipe has no delta.
    """
    recipe, private = plan.recipe.name, plan.private
    if private is None:
        raise Unsupported(f"{recipe}: a training without privacy makes no claim that an audit could test")
    if private.clip == "batch-mean":
        raise Unsupported(
            f"{recipe}: clip: batch-mean clips the mean of a batch, and canaries test the clipping of each record. "
            f"Give clip a number"
        )
    if private.adapt is not None:
        raise Unsupported(
            f"{recipe}: adapt releases a count beside the gradients, which canaries do not test. Audit the recipe "
            f"without privacy.adapt, at a fixed norm"
        )
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise Unsupported("an audit reads the sums of one process; run it without torchrun")
    if private.delta is None:
        raise UsageError(f"{recipe}: an audit needs privacy.delta, at which eps is compared; add it")
    if plan.eps() is None:
        raise Unsupported(f"{recipe}: no finite eps is certified for this training, so that no audit can exceed it")


def train(
    plan: Plan,
    data: Any,
    *,
    canaries: int,
    fewer: bool,
    run: int,
    seed: int,
    device: str,
    on_step: Callable[[int], None] = lambda step: None,
) -> Outcome:
    """Train once with canaries in a temporary folder, which is deleted; the model is not kept.

    Args:
        canaries: how many; ``fewer`` allows for as many as the model has weights.
        run: the number of the training, whose noise, batches and coins are its own.
        seed: of coins and coordinates. on_step: called with the number of each step.
    Raises:
        UsageError: there are more canaries than weights, or the ledger is not that of the plan.
        MissingResource: the device is missing.
    """
    from wpriv.engine import batch_gradient, launch, saved_weights
    from wpriv.engine import canaries as engine_canaries

    private = plan.private
    assert private is not None
    replaces = plan.adjacency == "replace-one"
    added = engine_canaries.Canaries(
        plan.records,
        canaries,
        fewer,
        absent=-1.0 if replaces else 0.0,
        norm=batch_gradient.scaling_of(private),
        exact=private.exact,
        subtract=plan.sampling.kind != "fixed",
        generator=np.random.default_rng([seed, run]),
    )

    def build_job(*arguments: Any, **keywords: Any) -> Any:
        return added.insert(tasks.load(plan.train.task).build_job(*arguments, **keywords))

    with tempfile.TemporaryDirectory(prefix="wpriv-audit-") as name:
        folder = Path(name)
        engine = launch.prepare(
            plan.train,
            data,
            _extended(training_run.schedule(plan, run), canaries),
            folder,
            identity="audit",
            device=device,
            build_job=build_job,
        )
        added.watch(engine)
        engine.run(on_step=on_step)
        process = _spent(plan, folder / saved_weights.LEDGER)
    observed, rate = added.observations(), plan.sampling.rate
    statistics = {"sums": scores.sums(*observed, rate, added.absent)}
    if rate < 1 and plan.steps > 1 and not replaces:
        statistics["differences"] = scores.differences(*observed, rate)
    return Outcome(added.coins, statistics, process)


def _extended(schedule: Any, canaries: int) -> Any:
    """Return the schedule with places for canaries behind the records, at the same sampling rate.

    Records and batch are multiplied by one factor; places that neither a record nor a canary takes are empty.
    """
    factor = math.ceil((schedule.records + canaries) / schedule.records)
    return replace(schedule, records=factor * schedule.records, batch=factor * schedule.batch)


def _spent(plan: Plan, path: Path) -> Process:
    """Return the releases in the ledger of a training, after checking that they are the planned ones."""
    entries = ledger.entries(path)
    process = ledger.process(entries, plan.adjacency)
    if process.describe() != plan.process().describe():
        raise UsageError(f"the ledger of the audited training has {len(entries)} releases other than the planned ones")
    return process
