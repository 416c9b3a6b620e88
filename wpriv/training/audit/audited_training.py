"""One training with canaries, their scores, and the lower bounds of eps that scores and coins give.

It is the engine of ``wpriv train`` on the records of a recipe and on canaries behind them. Scores are large where the
noisy sums along a canary look as if it took part. docs/theory/audits.md states the theorems and proves them.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wpriv.accounting import ledger
from wpriv.config.recipe import Recipe
from wpriv.core.kinds import Adjacency
from wpriv.core.process import Process
from wpriv.errors import Unsupported, UsageError
from wpriv.training import tasks, training_run
from wpriv.training.audit.claimed_curve import general, of_eps
from wpriv.training.audit.score_tests import CONFIDENCE, SHARES, Ranked, Ranks, is_possible
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


# --- lower bounds of eps from the scores and the coins of canaries, each wrong with at most a stated chance ---


def eps_of_guesses(
    guesses: int, correct: int, coins: int, delta: float, error: float, *, one_sided: bool = False
) -> float:
    """Return an eps that exceeds the true one with a chance of at most ``error``; 0 where nothing can be said.

    Args:
        guesses: the number of coins that are guessed, fixed in advance. coins: of all fair coins, each of which
            decides on one record; those that are not guessed are abstained from. one_sided: all guesses are "in".
        error: one minus the confidence, in (0, 1).
    Source: Theorem 1 of docs/theory/audits.md.
    """
    number = coins / 2 if one_sided else float(coins)
    return general(delta).bound(lambda null: not is_possible(null, number, guesses, correct, error))


@dataclass(frozen=True)
class Test:
    """One test of the audit and the bound that it gives.

    Args:
        statistic: ``sums`` or ``differences``.
        guesses, correct: how many canaries were guessed, and how many of the guesses were right; with two
            worlds, how many of the most extreme scores were counted, and how many were as their end says.
        epsilon_at_least: the lower bound, rounded down. error: the largest chance that it is wrong.
    """

    statistic: str
    guesses: int
    correct: int
    epsilon_at_least: float
    error: float


def guess_tests(outcomes: Sequence[Outcome], delta: float) -> tuple[Test, ...]:
    """Guess the coins of the canaries with the most extreme scores, for every statistic and share of guesses.

    The highest scores are guessed to be in. Half of the guesses are the lowest scores, guessed to be out, unless
    guesses of "in" alone can show more (``is_one_sided``). The canaries of all trainings are one set: each of them is
    in one training only.

    Returns:
        The tests, which together err with a chance of at most 5% (a union bound).
    """
    coins = np.concatenate([outcome.coins for outcome in outcomes])
    statistics = list(outcomes[0].scores)
    error = (1 - CONFIDENCE) / (len(statistics) * len(SHARES))
    one_sided = is_one_sided(outcomes[0].process, len(coins), delta, len(statistics))
    tests = []
    for name in statistics:
        order = np.argsort(np.concatenate([outcome.scores[name] for outcome in outcomes]), kind="stable")
        for share in SHARES:
            guesses = max(1, round(share * len(coins)))
            low = 0 if one_sided else guesses // 2  # guesses that a canary is out
            out, present = order[:low], order[len(coins) - (guesses - low) :]
            correct = int((~coins[out]).sum() + coins[present].sum())
            eps = eps_of_guesses(guesses, correct, len(coins), delta, error, one_sided=one_sided)
            tests.append(Test(name, guesses, correct, eps, error))
    return tuple(tests)


@dataclass(frozen=True)
class Design:
    """What an audit can see where its trainings have no noise at all.

    Args:
        present, missing: the number of canaries that are in, and out.
        seen_in, seen_out: the chance that the outputs show the coin of such a canary: without noise it is shown where
            the canary is drawn in some step, and under add-remove neighbours a canary that is out is never drawn.
    """

    present: float
    missing: float
    seen_in: float
    seen_out: float

    def right(self, guesses: int, low: int) -> float:
        """The expected number of right guesses, of which ``low`` are "out"; coins not shown are guessed by chance."""
        unseen = (1 - self.seen_in) * self.present, (1 - self.seen_out) * self.missing
        blind = sum(unseen)
        total = 0.0
        for number, shown, other in (
            (guesses - low, self.present - unseen[0], unseen[0]),
            (low, self.missing - unseen[1], unseen[1]),
        ):
            sure = min(float(number), shown)
            total += sure + (min(number - sure, blind) * other / blind if blind > 0 else 0.0)
        return total


def design(process: Process, present: float, missing: float) -> Design:
    """The design of an audit of a process with so many canaries in and out."""
    steps = process.steps
    seen = 1.0
    if all(step.sampling.kind in ("poisson", "fixed") and step.sampling.rate < 1 for step in steps):
        seen = -math.expm1(math.fsum(step.n * math.log1p(-step.sampling.rate) for step in steps))
    whole = any(step.sampling.rate == 1 for step in steps)
    shows_out = seen if process.adjacency != Adjacency.ADD_REMOVE else 1.0 if whole else 0.0
    # where every record is drawn for certain, what does not show is out
    return Design(present, missing, seen, 1.0 if seen == 1 else shows_out)


def _most(plan: Design, one_sided: bool, delta: float, statistics: int) -> float:
    """The largest bound of guesses over all shares, at the expected number of right ones."""
    canaries = round(plan.present + plan.missing)
    error = (1 - CONFIDENCE) / (statistics * len(SHARES))
    bounds = []
    for share in SHARES:
        guesses = max(1, round(share * canaries))
        correct = round(plan.right(guesses, 0 if one_sided else guesses // 2))
        bounds.append(eps_of_guesses(guesses, min(guesses, correct), canaries, delta, error, one_sided=one_sided))
    return max(bounds)


def is_one_sided(process: Process, canaries: int, delta: float, statistics: int) -> bool:
    """Decide, before any coin is known, whether guesses of "in" alone can show more than those of both kinds.

    They do where a canary that is in may be drawn in no step, so that it looks as if it were out.
    """
    plan = design(process, canaries / 2, canaries / 2)
    return _most(plan, True, delta, statistics) > _most(plan, False, delta, statistics)


def ceiling(outcomes: Sequence[Outcome], delta: float, method: str) -> float:
    """The bound that trainings without any noise would have given, on average: the most that the design can show."""
    process, statistics = outcomes[0].process, len(outcomes[0].scores)
    coins = np.concatenate([outcome.coins for outcome in outcomes])
    if method == "two-worlds":
        present, missing = int(coins.sum()), int((~coins).sum())
        hits = round(design(process, present, missing).seen_in * present)
        # canaries that are in and not seen stand at random among those that are out
        score = np.concatenate([np.ones(hits), np.zeros(present - hits + missing)])
        ranked = Ranked.of(score, np.arange(len(coins)) < present)
        return _rank_test("", ranked, delta, (1 - CONFIDENCE) / statistics).epsilon_at_least
    plan = design(process, float(coins.sum()), float((~coins).sum()))
    return _most(plan, is_one_sided(process, len(coins), delta, statistics), delta, statistics)


def rank_tests(outcomes: Sequence[Outcome], delta: float) -> tuple[Test, ...]:
    """Count the trainings with the canary among those with the highest scores, and those without it among the lowest.

    Returns:
        A test for each statistic; together they err with a chance of at most 5% (a union bound).
    """
    coins = np.array([bool(outcome.coins[0]) for outcome in outcomes])
    statistics = list(outcomes[0].scores)
    scores = {name: np.array([float(outcome.scores[name][0]) for outcome in outcomes]) for name in statistics}
    error = (1 - CONFIDENCE) / len(statistics)
    return tuple(_rank_test(name, Ranked.of(scores[name], coins), delta, error) for name in statistics)


def _rank_test(name: str, ranked: Ranked, delta: float, error: float) -> Test:
    """The bound of one statistic, and the count that gives it."""
    ranks = Ranks(ranked)
    eps = general(delta).bound(partial(ranks.rejects, error=error))
    best = min(ranks.parts(of_eps(eps, delta)), key=lambda part: part.p_value / part.share)
    return Test(name, best.of, best.number, eps, error)
