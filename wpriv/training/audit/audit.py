"""The verb ``audit``: an empirical lower bound of eps from trainings with canaries, beside the certified bracket."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from wpriv._version import __version__
from wpriv.accounting import evaluate
from wpriv.config import yaml_document
from wpriv.config.recipe import Recipe
from wpriv.core.guarantee import STATISTICAL, Guarantee
from wpriv.errors import CheckFailed, UnknownName, Unsupported, UsageError, require
from wpriv.files import durable_writes
from wpriv.files.shown import Shown
from wpriv.numerics.numbers import echo, text
from wpriv.results import plot, storage
from wpriv.results.model import Json, Row
from wpriv.training import plan, train_data, training_grid
from wpriv.training import train as training
from wpriv.training.audit import audited_training, coin_tests
from wpriv.training.audit.audited_training import Outcome
from wpriv.training.audit.coin_tests import CONFIDENCE, Test

SCHEMA = "wpriv.audit/1"
CANARIES = 2000
"""The number of canaries of a training with enough weights, where none is given."""
RUNS = {"one-run": 1, "two-worlds": 200}
"""The methods, and the number of trainings of each where none is given."""
MAX_RUNS = 100_000
CONSISTENT, VIOLATED, POWERLESS = "consistent", "VIOLATED", "cannot contradict"
ANSWER, TABLE, FIGURE = "audit.json", "audit.csv", "audit"
SOURCES = {
    "one-run": "Steinke, Nasr, Jagielski 2023 (one training, many canaries); Theorem 1 of docs/theory/audits.md",
    "two-worlds": "Clopper, Pearson 1934; Jagielski, Ullman, Oprea 2020; Theorem 2 of docs/theory/audits.md",
}
NOT_PRIVATE = (
    "the audit computes with the records and the coins of the canaries without noise: its files are not covered by the "
    "certified guarantee of the training"
)
OF_GROUPS = (
    "the certified eps is that of people with up to {group} records, as the recipe promises it; a canary is one "
    "record, so that faults which only show with several records of a person are not met"
)
VERDICTS = {
    VIOLATED: "the audit's lower bound exceeds the certified upper end",
    CONSISTENT: "the audit's lower bound does not exceed the certified upper end",
    POWERLESS: "no outcome of this audit could have exceeded the certified upper end",
}


@dataclass(frozen=True, repr=False)
class Audit(Shown):
    """The answer of an audit.

    Args:
        certified: the certified bracket of eps of the releases in the ledgers of the trainings.
        tests: all of them; together they err with a chance of at most 5%. method: one-run or two-worlds.
        canaries: of each training. runs: number of trainings.
        ceiling: the lower bound that trainings without any noise would have given.
        files: what was written.
    """

    recipe: str
    certified: Guarantee
    tests: tuple[Test, ...]
    method: str
    canaries: int
    runs: int
    ceiling: float
    files: tuple[Path, ...] = ()

    def sentence(self) -> str:
        return f"{self.verdict}: {VERDICTS[self.verdict]}"

    def facts(self) -> list[tuple[str, str]]:
        """The certified guarantee, the lower bound of the audit, the most that it could have shown, and the method."""
        # a lower bound of eps at one delta holds at smaller ones too
        at = f"at delta {text(self.certified.delta.safe, up=False)}"
        least = text(self.best.epsilon_at_least, up=False)
        canaries = "1 canary" if self.canaries == 1 else f"{self.canaries} canaries"
        return [
            ("certified", self.certified.sentence()),
            ("audit", f"eps at least {least} {at} with {CONFIDENCE:.0%} confidence (statistical, not a guarantee)"),
            ("ceiling", f"eps at least {text(self.ceiling, up=False)}, for a training without any noise"),
            ("method", f"{self.method}, {self.runs} run{'s' * (self.runs != 1)} of {canaries}"),
        ]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the certified guarantee, and what an audit does not show."""
        group = self.certified.process.group
        of_groups = (OF_GROUPS.format(group=group),) if group > 1 else ()
        return (*self.certified.warnings, *of_groups, NOT_PRIVATE)

    @property
    def best(self) -> Test:
        """The test with the largest lower bound."""
        return max(self.tests, key=lambda test: test.epsilon_at_least)

    @property
    def violated(self) -> bool:
        """Whether the lower bound exceeds the certified upper end."""
        return self.best.epsilon_at_least > self.certified.epsilon.safe

    @property
    def verdict(self) -> str:
        """VIOLATED, consistent, or that no outcome of this audit could have exceeded the certified upper end."""
        if self.violated:
            return VIOLATED
        return CONSISTENT if self.ceiling > self.certified.epsilon.safe else POWERLESS

    def require_power(self) -> None:
        """Raise if no outcome of the audit could have contradicted the certified bracket."""
        if self.verdict == POWERLESS:
            raise Unsupported(
                f"this audit cannot contradict eps = {text(self.certified.epsilon.safe, up=True)}: it would show at "
                f"most {echo(self.ceiling)} of a training without any noise. Give more `canaries` or `runs`, or a "
                f"smaller delta"
            )

    def require(self) -> None:
        """Raise if the audit contradicts the certified bracket.

        Raises:
            CheckFailed: it does.
        """
        if self.violated:
            raise CheckFailed(
                f"the audit's lower bound {echo(self.best.epsilon_at_least)} exceeds the certified upper end "
                f"{text(self.certified.epsilon.safe, up=True, limit=self.best.epsilon_at_least)}: the training is not "
                f"as private as certified"
            )

    def as_dict(self) -> Json:
        """Return the answer as JSON holds it."""
        row, group = self.certified.as_dict(), self.certified.process.group
        return {
            "schema": SCHEMA,
            "recipe": self.recipe,
            "claim": STATISTICAL,
            "epsilon_at_least": self.best.epsilon_at_least,
            "confidence": CONFIDENCE,
            "delta": row["delta"],
            "certified": {
                key: row[key] for key in ("claim", "accountant", "epsilon", "epsilon_lower", "epsilon_upper")
            },
            "verdict": self.verdict,
            "ceiling": self.ceiling,
            "gap": self.certified.epsilon.safe - self.best.epsilon_at_least,
            "method": self.method,
            "canaries": self.canaries,
            "runs": self.runs,
            "adjacency": row["adjacency"],
            "group": group,
            "process": row["process"],
            "tests": [asdict(test) for test in self.tests],
            "source": SOURCES[self.method],
            "warnings": list(self.warnings),
            "version": __version__,
        }

    def rows(self) -> list[Row]:
        """Return the table: a row for each test, with the certified bracket beside it."""
        bracket = self.certified.epsilon
        ends = {"certified_lower": bracket.lower, "certified_upper": bracket.safe}
        return [{**asdict(test), **ends} for test in self.tests]


def audit(
    recipe: str | Path,
    *,
    out: str | Path | None = None,
    method: str = "one-run",
    canaries: int | None = None,
    runs: int | None = None,
    device: str = "cpu",
    set: Mapping[str, Any] | None = None,
    quick: bool = False,
    data_root: str | Path | None = None,
) -> Audit:
    """Train a recipe with canaries, and bound its eps from below at 95% confidence.

    Args:
        recipe: a path, or the name of a shipped recipe, of kind train.
        out: folder of the results; None to write none.
        method: ``one-run`` guesses the coins of many canaries of one training; ``two-worlds`` trains many times with
            one canary each, and measures the rates of a test whose threshold the first half of the trainings sets.
        canaries: of each training with ``one-run``; by default 2000, or as many as the model has weights.
        runs: number of trainings, by default 1, or 200 with ``two-worlds``.
        device: ``cpu`` or ``cuda``.
        set, quick, data_root: as in ``train``.
    Returns:
        The Audit. ``Audit.require()`` raises if it contradicts the certified bracket.
    Raises:
        UsageError: the recipe is faulty, an argument is out of range, or ``out`` holds other files.
        Unsupported: the training has no privacy, or is of a kind that cannot be audited.
        MissingResource: the data set, the device or torch is missing.
    """
    return run(
        training.recipe_of(recipe, quick=quick, changes=set or {}),
        None if out is None else Path(out),
        method=method,
        canaries=canaries,
        runs=runs,
        device=device,
        root=data_root,
    )


def run(
    recipe: Recipe,
    out: Path | None,
    *,
    method: str = "one-run",
    canaries: int | None = None,
    runs: int | None = None,
    device: str = "cpu",
    root: str | Path | None = None,
    counting: Callable[[int, int], None] | None = None,
) -> Audit:
    """Audit a validated recipe of kind train; see ``audit``."""
    require("torch", "an audit")
    _check(recipe, method, canaries, runs)
    if recipe.train.has_several:
        recipe = training_grid.changed(recipe, {"seeds": 1})  # an audit trains as often as its method needs
    runs = runs or RUNS[method]
    # an earlier audit is replaced
    if out and out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / ANSWER).is_file())):
        raise UsageError(f"{out} holds other files than those of an audit. Name another folder with `out`")
    data = train_data.data(recipe, root)
    job = plan.plan(recipe, train_data.sizes_of(recipe, data))
    audited_training.require_auditable(job)
    seed = job.train.seed if job.train.seed is not None else secrets.randbits(64)
    number_of_canaries = 1 if method == "two-worlds" else canaries or CANARIES
    outcomes = []
    for number in range(1, runs + 1):

        def on_step(step: int, done: int = (number - 1) * job.steps) -> None:
            if counting is not None:
                counting(done + step, runs * job.steps)

        outcomes.append(
            audited_training.train(
                job,
                data,
                canaries=number_of_canaries,
                fewer=canaries is None,
                run=number,
                seed=seed,
                device=device,
                on_step=on_step,
            )
        )
    return _concluded(recipe, job, outcomes, method, out)


def _check(recipe: Recipe, method: str, canaries: int | None, runs: int | None) -> None:
    """Refuse arguments that are out of range, sweeps, and tasks that cannot be audited."""
    if recipe.train.sweep is not None:
        raise UsageError(f"{recipe.name} is a sweep of several trainings, and an audit is of one: set its keys instead")
    if recipe.train.tune is not None:
        raise UsageError(
            f"{recipe.name} trains a random number of runs and keeps the best (tune), and an audit is of one training. "
            f"Audit a recipe without tune: its bound holds for one run"
        )
    audited_training.require_task(recipe)
    if method not in RUNS:
        raise UnknownName("method", method, tuple(RUNS))
    if method == "two-worlds" and canaries not in (None, 1):
        raise UsageError(f"`method='two-worlds'` trains with one canary at a time; found `canaries={canaries}`")
    if canaries is not None and canaries < 1:
        raise UsageError(f"`canaries` must be at least 1; found {canaries}")
    least = 8 if method == "two-worlds" else 1
    if runs is not None and not least <= runs <= MAX_RUNS:
        raise UsageError(f"`runs` must be from {least} to {MAX_RUNS} with the method {method}; found {runs}")


def _concluded(recipe: Recipe, job: plan.Plan, outcomes: list[Outcome], method: str, out: Path | None) -> Audit:
    """Account for the ledgers, bound eps from below and write the results: the answer last."""
    private = job.private
    assert private is not None
    assert private.delta is not None
    process = job.under_neighbours(outcomes[0].process.steps)
    tol = evaluate.answer_tol(process)
    certified = evaluate.ask(evaluate.curve(process, plan.ACCOUNTANT, tol), delta=private.delta)
    tests = coin_tests.METHODS[method](outcomes, private.delta)
    most = coin_tests.ceiling(outcomes, private.delta, method)
    result = Audit(recipe.name, certified, tests, method, len(outcomes[0].coins), len(outcomes), most)
    if out is None:
        return result
    durable_writes.make_folder(out)
    durable_writes.replace(out / storage.RECIPE, yaml_document.as_yaml(recipe.data))
    durable_writes.replace(out / TABLE, storage.csv_text(result.rows()))
    files = [out / ANSWER, out / TABLE, out / storage.RECIPE]
    files += plot.draw(result.rows(), [plot.View(figure=FIGURE, title=recipe.name)], out, ("png",), stem=FIGURE)
    storage.write_json(out / ANSWER, {**result.as_dict(), **storage.provenance()})
    return replace(result, files=tuple(files))
