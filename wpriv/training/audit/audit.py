"""The verb ``audit``: of a recipe, a lower bound of eps from trainings with canaries; of others, a test of scores."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, overload

from wpriv._version import __version__
from wpriv.accounting import evaluate
from wpriv.config import yaml_document
from wpriv.config.plain_words import Claim
from wpriv.config.recipe import Recipe
from wpriv.core.guarantee import STATISTICAL, Guarantee
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process
from wpriv.errors import CheckFailed, UnknownName, Unsupported, UsageError, require
from wpriv.files import durable_writes
from wpriv.files.shown import Shown
from wpriv.numerics.numbers import echo, text
from wpriv.results import plot, storage
from wpriv.results.model import Json, Row
from wpriv.training import plan, train_data, training_grid
from wpriv.training import train as training
from wpriv.training.audit import audited_training
from wpriv.training.audit.audited_training import Outcome, Test
from wpriv.training.audit.score_tests import CONFIDENCE
from wpriv.training.audit.scores import CANARIES, MAX_RUNS, RUNS, SOURCES, ScoreAudit, Scores, Train, audit_scores

SCHEMA = "wpriv.audit/1"
METHODS = {"one-run": 1, "two-worlds": RUNS}
"""The methods for recipes, and the number of trainings of each where none is given."""
OF_RECIPES = ("out", "device", "set", "quick", "data_root")
OF_SCORES = ("references", "data", "delta", "confidence", "seed")
CONSISTENT, VIOLATED, POWERLESS = "consistent", "VIOLATED", "cannot contradict"
ANSWER, TABLE, FIGURE = "audit.json", "audit.csv", "audit"
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


@overload
def audit(
    source: str | Path,
    *,
    out: str | Path | None = None,
    method: str = "one-run",
    canaries: int | None = None,
    runs: int | None = None,
    device: str = "cpu",
    set: Mapping[str, Any] | None = None,
    quick: bool = False,
    data_root: str | Path | None = None,
) -> Audit: ...


@overload
def audit(
    source: str | Path | Scores | Train,
    claim: str | Claim | Process | Mechanism,
    *,
    method: str = "one-run",
    canaries: int | None = None,
    runs: int | None = None,
    references: int | None = None,
    data: Scores | None = None,
    delta: float | None = None,
    confidence: float = CONFIDENCE,
    seed: int | None = None,
) -> ScoreAudit: ...


def audit(
    source: str | Path | Scores | Train,
    claim: str | Claim | Process | Mechanism | None = None,
    *,
    method: str = "one-run",
    canaries: int | None = None,
    runs: int | None = None,
    **more: Any,
) -> Audit | ScoreAudit:
    """Audit a training: of a recipe, by training it with canaries; or of any other program, by scores of its canaries.

    Without ``claim``, a recipe is trained with canaries, and its eps is bounded from below at 95% confidence. With it,
    the hypothesis "the run has the claimed curve" is tested on scores, which are larger where a canary seems to have
    been in. A claim that is not refuted is not proved.

    Args:
        source: a recipe of kind train, by its path or its name. With ``claim``: a CSV or NPZ file with the columns
            ``score`` and ``in`` (1 or 0), a folder with a scores.csv or scores.npz, a tuple (scores, included), or a
            function. It is called with truth values, one for each canary, which say whether it takes part, and returns
            their scores. With ``data`` it is called with records and labels, canaries among them, and returns a
            function that gives the scores of records and labels.
        claim: ``"eps=4,delta=1e-5"``, ``"mu=1"``, or a process, such as ``"gauss sigma=4 n=10"``.
        method: ``one-run``: many canaries of one run, each in by a fair coin. ``two-worlds``: many runs with one canary
            each. With ``claim`` also ``independent``, for canaries of one run whose scores do not depend on each other,
            and ``sequential``: as these two, but the test may end after any score.
        canaries: of one training; by default 2000, or as many as the model of a recipe has weights.
        runs: number of trainings, by default 1, or 200 with one canary each. ``sequential`` stops when it refutes.
        out, device, set, quick, data_root: of a recipe, as in ``train``.
        references: with ``independent``, canaries of a function that never take part (default: as many).
        data: records and labels, of which canaries are made. delta: at which eps is bounded, where the claim has none.
        confidence: one minus the largest chance to refute a claim that holds. seed: of coins, of equal scores and of
            simulated rankings; by default that of scores is 0.
    Returns:
        The Audit of a recipe, or the ScoreAudit of a claim. ``require()`` raises if it contradicts what is claimed.
    Raises:
        UsageError: the recipe or the scores are faulty, an argument is out of range, or ``out`` holds other files.
        Unsupported: the training has no privacy, is of a kind that cannot be audited, or the claim has no proven curve.
        MissingResource: the data set, the device or torch is missing.

    >>> scores, included = [2.0, 1.0, 0.5, -1.0], [1, 1, 0, 0]
    >>> audit((scores, included), "eps=1,delta=1e-5", method="independent").verdict
    'not refuted'
    """
    known = OF_RECIPES if claim is None else OF_SCORES
    if wrong := [name for name in more if name not in known]:
        what = "audits of a recipe" if claim is None else "audits of a claim"
        raise UsageError(f"{what} have no argument `{wrong[0]}`; they have {', '.join(known)}")
    if claim is not None:
        return audit_scores(source, claim, method=method, canaries=canaries, runs=runs, **more)
    if not isinstance(source, (str, Path)):
        raise UsageError("scores and functions are audited against a claim: give `claim`, such as 'eps=4,delta=1e-5'")
    out = more.get("out")
    return run(
        training.recipe_of(source, quick=more.get("quick", False), changes=more.get("set") or {}),
        None if out is None else Path(out),
        method=method,
        canaries=canaries,
        runs=runs,
        device=more.get("device", "cpu"),
        root=more.get("data_root"),
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
    runs = runs or METHODS[method]
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
    if method not in METHODS:
        raise UnknownName("method", method, tuple(METHODS))
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
    bounds = audited_training.guess_tests if method == "one-run" else audited_training.rank_tests
    tests = bounds(outcomes, private.delta)
    most = audited_training.ceiling(outcomes, private.delta, method)
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
