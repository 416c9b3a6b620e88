"""One training with canaries, and their scores: large where the noisy sums along a canary look as if it took part.

It is the engine of ``wpriv train`` on the records of a recipe and on canaries behind them.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wpriv.accounting import ledger
from wpriv.config.recipe import Recipe
from wpriv.core.process import Process
from wpriv.errors import Unsupported, UsageError
from wpriv.training import tasks, training_run
from wpriv.training.data import Data
from wpriv.training.plan import Plan

if TYPE_CHECKING:
    import torch

    from wpriv.config.train_schema import Train
    from wpriv.training.engine.job import Job

Array = NDArray[np.float64]
LEAST = 1e-3
"""The least noise, in clipping norms, that is told from none."""
SPREAD = 1.4826
"""Standard deviations of normal numbers over the median of their distances from the median."""


def sums(canaries: Array, others: Array, rate: float, absent: float) -> Array:
    """Return the logarithm of the likelihood ratio of "in" to "out" for independent steps.

    The noise of each step is measured on the outputs themselves, so that a step with less noise than planned counts
    for more.

    Args:
        canaries: [steps, m] noisy sums along each canary. others: [steps, k] along directions without one.
        rate: the chance of a record to be in a step. absent: what a canary that is out adds instead of 1.
    Returns:
        [m] scores.
    """
    noise = _noise(np.hstack([canaries, others]))
    present = _log_mixture(canaries, noise, {0.0: 1 - rate, 1.0: rate})
    missing = _log_mixture(canaries, noise, {0.0: 1 - rate, absent: rate}) if absent else 0.0
    scores: Array = np.sum(present - missing, axis=0)
    return scores


def differences(canaries: Array, others: Array, rate: float) -> Array:
    """Return the logarithm of the likelihood ratio of "in" to "out" for differences of consecutive steps.

    They are strong evidence where the noise of one step was used in the next one too. For canaries that add nothing
    where they are out.

    Args and Returns: as ``sums``.
    """
    gaps = np.diff(canaries, axis=0)
    noise = _noise(np.hstack([gaps, np.diff(others, axis=0)]))
    change = rate * (1 - rate)
    scores: Array = np.sum(_log_mixture(gaps, noise, {0.0: 1 - 2 * change, 1.0: change, -1.0: change}), axis=0)
    return scores


def _noise(numbers: Array) -> Array:
    """Return the standard deviation of each row [steps, 1], as its central half shows it."""
    centre = np.median(numbers, axis=1, keepdims=True)
    return np.maximum(SPREAD * np.median(np.abs(numbers - centre), axis=1, keepdims=True), LEAST)


def _log_mixture(numbers: Array, noise: Array, weights: dict[float, float]) -> Array:
    """Return the log density of a mixture of normal distributions with some means, over that of mean 0."""
    terms = [
        np.log(weight) + mean * (2 * numbers - mean) / (2 * noise**2) for mean, weight in weights.items() if weight > 0
    ]
    mixture: Array = np.logaddexp.reduce(terms, axis=0)
    return mixture


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
    """Refuse a task whose trainings cannot be audited."""
    if recipe.train.task not in TASKS:
        raise Unsupported(
            f"{recipe.name}: an audit adds canaries to sums of clipped gradients, as the tasks {' and '.join(TASKS)} "
            f"release them; found the task {recipe.train.task}"
        )


def require_auditable(plan: Plan) -> None:
    """Refuse a training that canaries cannot be added to."""
    recipe, private = plan.recipe.name, plan.private
    if private is None:
        raise Unsupported(f"{recipe}: a training without privacy makes no claim that an audit could test")
    if private.clip == "batch-mean":
        raise Unsupported(
            f"{recipe}: clip: batch-mean clips the mean of a batch, and canaries test the clipping of each record. "
            f"Give clip a number"
        )
    if private.by_group:
        raise Unsupported(
            f"{recipe}: clip has a norm for each group of parameters, and a canary has one length. Give clip a number"
        )
    if private.adapt is not None:
        raise Unsupported(
            f"{recipe}: adapt releases a count beside the gradients, which canaries do not test. Audit the recipe "
            f"without privacy.adapt, at a fixed norm"
        )
    if private.correlated is not None:
        raise Unsupported(
            f"{recipe}: the scores of an audit take the noise of each step for independent, and this training has "
            f"correlated noise. Audit the recipe with noise: rounded"
        )
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise Unsupported("an audit reads the sums of one process; run it without torchrun")
    if private.delta is None:
        raise UsageError(f"{recipe}: an audit needs privacy.delta, at which eps is compared; add it")
    if plan.eps() is None:
        raise Unsupported(f"{recipe}: no finite eps is certified for this training, so that no audit can exceed it")


def train(
    plan: Plan,
    data: Data,
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
    from wpriv.training.engine import batch_gradient, launch, saved_weights
    from wpriv.training.engine import canaries as engine_canaries

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

    def build_job(recipe: Train, data: Data, device: torch.device, /, *, adjacency: str) -> Job:
        return added.insert(tasks.load(plan.train.task).build_job(recipe, data, device, adjacency=adjacency))

    # places for canaries behind the records, at the same sampling rate: those that neither takes are empty
    schedule = training_run.schedule(plan, run)
    factor = math.ceil((schedule.records + canaries) / schedule.records)
    with tempfile.TemporaryDirectory(prefix="wpriv-audit-") as name:
        folder = Path(name)
        engine = launch.prepare(
            plan.train,
            data,
            replace(schedule, records=factor * schedule.records, batch=factor * schedule.batch),
            folder,
            identity="audit",
            device=device,
            build_job=build_job,
        )
        added.watch(engine)
        engine.run(on_step=on_step)
        process = _spent(plan, folder / saved_weights.LEDGER)
    observed, rate = added.observations(), plan.sampling.rate
    statistics = {"sums": sums(*observed, rate, added.absent)}
    if rate < 1 and plan.steps > 1 and not replaces:
        statistics["differences"] = differences(*observed, rate)
    return Outcome(added.coins, statistics, process)


def _spent(plan: Plan, path: Path) -> Process:
    """Return the releases in the ledger of a training, after checking that they are the planned ones."""
    entries = ledger.entries(path)
    process = ledger.process(entries, plan.adjacency)
    if process.describe() != plan.process().describe():
        raise UsageError(f"the ledger of the audited training has {len(entries)} releases other than the planned ones")
    return process
