"""The plan of a tuned training: its candidates, their noise, the privacy of the best of K runs, and random choices.

The number of runs, the candidate of each and the order of equal scores are drawn once, before the first run, and kept
in a file that is deleted with the runs.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from wpriv.accounting import best_of_runs, evaluate
from wpriv.accounting.search import Unknown
from wpriv.accounting.target import Target, solve_for
from wpriv.config.grid_schema import Tune
from wpriv.config.recipe import Recipe
from wpriv.config.train_schema import Privacy
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.process import Process
from wpriv.core.repeats import MAX_DRAWN_MEAN, Repeats, parse
from wpriv.errors import Unsupported, UsageError
from wpriv.files import durable_writes
from wpriv.numerics.numbers import echo, text
from wpriv.results.model import Row
from wpriv.training import plan, training_grid
from wpriv.training.plan import Plan
from wpriv.training.training_grid import Cell, Labels, number_of

FILE = "draw.json"
BITS = 64


@dataclass(frozen=True)
class Draw:
    """The choices of one tuned training.

    Args:
        candidates: the number of each run's candidate; their count is the number of runs.
        ties: for each run a number; of runs with equal scores the one with the largest is the best.
        fingerprint: of the training records.
    """

    candidates: list[int]
    ties: list[int]
    fingerprint: str


def draw(repeats: Repeats, candidates: int, fingerprint: str, seed: int | None) -> Draw:
    """Draw the number of runs, and the candidate of each uniformly with replacement.

    Args:
        seed: makes the choices repeatable; None takes the randomness of the operating system.
    """
    bits = secrets.randbits if seed is None else _seeded(seed)
    runs = repeats.draw(bits)
    return Draw([_below(candidates, bits) for _ in range(runs)], [bits(BITS) for _ in range(runs)], fingerprint)


def write(choices: Draw, folder: Path) -> None:
    """Force the choices to disk, before anything depends on them."""
    durable_writes.replace(folder / FILE, json.dumps(asdict(choices)) + "\n", mode=0o600)


def read(folder: Path, fingerprint: str) -> Draw | None:
    """Return the choices made before; None where none were made.

    Raises:
        UsageError: runs exist without them, they cannot be read, or the training records are others.
    """
    path = folder / FILE
    if not path.is_file():
        if any(item.is_dir() for item in folder.glob("*")):
            raise _lost(path)
        return None
    try:
        choices = Draw(**json.loads(path.read_text(encoding="utf-8")))
        sound = len(choices.candidates) == len(choices.ties)
    except (OSError, ValueError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise _lost(path)
    if choices.fingerprint != fingerprint:
        raise UsageError(
            f"{folder.parent} holds an unfinished tuned training on other records. Give it these records, or name "
            f"another folder with --out"
        )
    return choices


def _lost(path: Path) -> UsageError:
    return UsageError(
        f"{path} is missing or cannot be read, and the number of runs must not be drawn a second time. Restore it, or "
        f"begin in another folder with --out: what was trained here is spent, and its cost is added to that"
    )


def _below(count: int, bits: Callable[[int], int]) -> int:
    """A number below ``count``, uniformly, by rejection."""
    while True:
        number = bits((count - 1).bit_length()) if count > 1 else 0
        if number < count:
            return number


def _seeded(seed: int) -> Callable[[int], int]:
    """Random bits from a seed, by SHA-256 of a counter."""
    calls = 0

    def bits(count: int) -> int:
        nonlocal calls
        calls += 1
        return number_of(f"draw {calls} of seed {seed}") >> (256 - count)

    return bits


def score_of(metrics: list[Row], column: str, best: str) -> float:
    """The score of a finished run, larger for better ones; -inf where it is missing or no number."""
    value = metrics[-1].get(column) if metrics else None
    if not isinstance(value, (int, float)) or math.isnan(value):
        return float("-inf")
    return float(value) if best == "highest" else -float(value)


# factor by which all noise is raised at a time where candidates of several costs exceed the target together, and the
# largest number of times
MORE_NOISE, MAX_RAISES = 1.005, 400


@dataclass(frozen=True)
class Candidate:
    """One setting: its labels in the sweep, and the plan of a run of it, whose recipe gives the noise and no target."""

    labels: Labels
    plan: Plan

    @classmethod
    def of(cls, cell: Cell, sizes: Mapping[str, int], sigma: float | None = None) -> Candidate:
        """Plan a setting, with a noise multiplier in the place of the target of its recipe if one is given."""
        recipe = cell.recipe
        if sigma is not None:
            kept = {key: value for key, value in recipe.data["privacy"].items() if key not in ("eps", "accountant")}
            data = {**recipe.data, "privacy": {**kept, "sigma": sigma}}
            recipe = training_grid.changed(replace(recipe, data=data), {})
        return cls(cell.labels, plan.plan(recipe, sizes))


@dataclass(frozen=True)
class TuningPlan:
    """A tuned training as planned.

    Args:
        recipe: with the key ``tune``. repeats: the distribution of the number of runs.
        candidates: each run draws one of them uniformly. notes: how the recipe was read.
    """

    recipe: Recipe
    repeats: Repeats
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()

    @property
    def tune(self) -> Tune:
        assert self.recipe.train.tune is not None
        return self.recipe.train.tune

    @property
    def private(self) -> Privacy:
        assert self.recipe.train.privacy is not None
        return self.recipe.train.privacy

    @cached_property
    def _processes(self) -> list[tuple[Process, float]]:
        """The different processes of the candidates, with the probability that a run has each of them."""
        shares: dict[str, tuple[Process, float]] = {}
        for candidate in self.candidates:
            process = candidate.plan.process()
            before = shares.get(_key(process), (process, 0.0))[1]
            shares[_key(process)] = process, before + 1
        return [(process, count / len(self.candidates)) for process, count in shares.values()]

    @property
    def distinct(self) -> int:
        """The number of different processes of the candidates."""
        return len(self._processes)

    def curve(self, accountant: str) -> Curve:
        """The curve of the best of K runs by one accountant.

        Raises:
            Unsupported: the accountant has no proven curve of some candidate.
        """
        processes, weights = zip(*self._processes, strict=True)
        tol = max(evaluate.answer_tol(process) for process in processes)
        return best_of_runs.of_candidates(processes, weights, accountant, tol, self.repeats)

    @cached_property
    def guarantees(self) -> tuple[list[Guarantee], list[evaluate.Refusal]]:
        """The guarantees of the best of K runs by the accountants of the recipe, and those without an answer.

        ``extra["repeats"]`` has ``one_run``, the eps of one run of the costliest candidate.
        """

        def answer(name: str) -> Guarantee:
            row = evaluate.ask(self.curve(name), delta=self.private.delta)
            one = max(self._one_run(process, name) for process, _ in self._processes)
            return best_of_runs.with_note(replace(row, accountant=name), self.repeats, one_run=one, all_runs=None)

        return evaluate.answers(self.recipe.train.accountants, answer)

    def _one_run(self, process: Process, accountant: str) -> float:
        tol = evaluate.answer_tol(process)
        return evaluate.ask(evaluate.curve(process, accountant, tol), delta=self.private.delta).epsilon.safe


def tuning_plan(recipe: Recipe, sizes: Mapping[str, int]) -> TuningPlan:
    """Plan every candidate of a recipe with ``tune``, and solve for the noise that keeps its target for the whole.

    Args:
        sizes: of the data, as its task reports them.
    Raises:
        UsageError: a candidate is no valid recipe. Unsupported: the target cannot be reached, the candidates have
            different neighbours, or the mean number of runs exceeds 500.
    """
    assert recipe.train.tune is not None
    repeats, private = parse(recipe.train.tune.repeats), recipe.train.privacy
    assert private is not None
    if repeats.mean > MAX_DRAWN_MEAN:
        raise Unsupported(
            f"{recipe.name}: tune: repeats: a number of runs is drawn for means of up to {MAX_DRAWN_MEAN:g}; found "
            f"{repeats.mean:g}"
        )
    cells = training_grid.points_of(recipe, recipe.train.tune.sweep)
    candidates = [Candidate.of(cell, sizes, None if private.eps is None else 1.0) for cell in cells]
    adjacencies = sorted({candidate.plan.adjacency for candidate in candidates})
    if len(adjacencies) > 1:
        raise Unsupported(
            f"{recipe.name}: the candidates are accounted for under {' and '.join(adjacencies)} neighbours, and have "
            f"no common cost. Keep one privacy.sampling for all of them"
        )
    draft = TuningPlan(recipe, repeats, tuple(candidates), candidates[0].plan.notes)
    return draft if private.eps is None else _calibrated(draft, private.eps, cells, sizes)


def _calibrated(draft: TuningPlan, eps: float, cells: list[Cell], sizes: Mapping[str, int]) -> TuningPlan:
    """The plan with the noise of each candidate at which the best of K runs of it alone keeps the target.

    Candidates of several costs are then accounted for together, and all noise is raised until they keep the target.
    """
    accountant = draft.private.accountant or plan.ACCOUNTANT
    noise: dict[str, float] = {}
    for candidate in draft.candidates:
        key = _key(candidate.plan.process())
        if key not in noise:
            noise[key] = _least_noise(candidate.plan, accountant, eps, draft.repeats)
    multipliers = [noise[_key(candidate.plan.process())] for candidate in draft.candidates]
    factor = 1.0
    for _ in range(MAX_RAISES):
        noisy = zip(cells, multipliers, strict=True)
        final = replace(draft, candidates=tuple(Candidate.of(cell, sizes, factor * value) for cell, value in noisy))
        row = evaluate.ask(final.curve(accountant), delta=draft.private.delta)
        if row.epsilon.safe <= eps:
            note = (
                f"with {_several(multipliers, factor)} the best of K runs ({draft.repeats}) keeps eps = "
                f"{text(row.epsilon.safe, up=True, limit=eps)} <= {echo(eps)}, by {accountant} ({row.claim})"
            )
            return replace(final, notes=(*draft.notes, note))
        factor *= MORE_NOISE if final.distinct > 1 else 1 + 1e-6
    raise Unsupported(f"no noise was found with which the best of K runs keeps eps = {eps:g} by {accountant}")


def _several(multipliers: list[float], factor: float) -> str:
    """The noise of the candidates in words, rounded up: noise that is rounded down would not keep the target."""
    low, high = (text(factor * value, up=True) for value in (min(multipliers), max(multipliers)))
    return f"sigma = {low}" if low == high else f"sigma from {low} to {high}"


def _least_noise(draft: Plan, accountant: str, eps: float, repeats: Repeats) -> float:
    """The least noise multiplier with which the best of K runs of one candidate keeps the target."""
    assert draft.private is not None
    assert draft.private.delta is not None

    def process(sigma: float) -> Process:
        return replace(draft, multiplier=sigma, _eps={}).process()

    def account(of: Process, tol: float) -> Curve:
        return best_of_runs.of_candidates([of], [1.0], accountant, tol, repeats)

    tol = max(evaluate.answer_tol(process(1.0)), best_of_runs.PROFILE_TOL)
    parameter = Unknown("sigma", +1, 1e-12, 1e15)
    return solve_for(parameter, process, accountant, Target(eps, draft.private.delta), tol, account=account).value


def _key(process: Process) -> str:
    return json.dumps(process.describe(), sort_keys=True)
