"""The guarantee of several trainings together, all on the same records: the sum of their releases, accounted for once.

Proof in docs/theory/several-trainings.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wpriv.accounting import evaluate, ledger
from wpriv.config.train_schema import DataSet
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import Adjacency
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.randomness import key_digest, training_seeds
from wpriv.results import model, storage
from wpriv.results.model import Json
from wpriv.training.plan import Plan
from wpriv.training.reports import words
from wpriv.training.training_statement import PERSON

ACCOUNTANT = "pld"
TOL = 1e-4  # relative width of the bracket of all trainings together

# keys of a data set that leave its groups as they are
SIZES = ("records", "limit", "first", "root", "sha256")


@dataclass(frozen=True)
class Release:
    """What one training releases, or one privatisation of its records.

    Args:
        process: its releases. delta: at which its eps is stated.
        streams: digests of the keys of its noise; releases that share one have no common cost, since the noise cancels
            in their difference.
        unit: what is protected; groups are those of the named data set.
        problem: why it has no guarantee, if it has none.
    """

    process: Process
    delta: float
    streams: frozenset[str]
    unit: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Together:
    """The guarantee of some trainings together, or the reason why there is none.

    Args:
        trainings: their number. guarantee: of all of them; None if there is none. problem: the reason.
        unit: what it protects.
    """

    trainings: int
    guarantee: Guarantee | None = None
    problem: str = ""
    unit: str = ""

    @property
    def epsilon(self) -> float | None:
        """The eps of all trainings together, rounded up; None where it is not known."""
        return None if self.guarantee is None else self.guarantee.epsilon.safe

    def as_dict(self) -> Json:
        if self.guarantee is None:
            return {"trainings": self.trainings, "problem": self.problem}
        row = self.guarantee.as_dict()
        relation = Adjacency(row["adjacency"]).meaning
        return {"trainings": self.trainings, "problem": None, **row, "adjacency_means": relation, "unit": self.unit}

    def __str__(self) -> str:
        """The guarantee in words, for a line of its own."""
        if not self.trainings:
            return "no training is private: there is no guarantee"
        name = f"all {self.trainings} private trainings together" if self.trainings > 1 else "the only private training"
        return f"{name}: {words.guarantee_of_all(model.Together(**self.as_dict()))}"


def together(releases: Sequence[Release]) -> Together:
    """Compose all releases, on the records of a neighbour who is in all of them, at their largest delta."""
    count = len(releases)
    if not count:
        return Together(0, problem="no training is private")
    if problem := next((release.problem for release in releases if release.problem), ""):
        return Together(count, problem=problem)
    if len({release.process.adjacency for release in releases}) > 1:
        names = " and ".join(sorted({release.process.adjacency for release in releases}))
        return Together(count, problem=f"they are accounted for under {names} neighbours")
    if len({release.process.group for release in releases}) > 1:
        return Together(count, problem="they protect people with different numbers of records")
    if len(units := list(dict.fromkeys(release.unit for release in releases))) > 1:
        return Together(count, problem=f"they protect different things: {'; and '.join(units)}")
    streams = [stream for release in releases for stream in release.streams]
    if len(set(streams)) < len(streams):
        return Together(
            count,
            problem="some of them drew the same noise from one fixed seed or one checkpoint, and it cancels in their "
            "difference",
        )
    first, delta = releases[0].process, max(release.delta for release in releases)
    if delta == 0:
        return Together(count, problem="they are of pure DP (delta = 0), and their eps add up")
    try:
        steps = merged(step for release in releases for step in release.process.steps)
        size = max(release.process.records for release in releases)
        process = replace(first, steps=steps, records=size)
        curve = evaluate.curve(process, ACCOUNTANT, max(TOL, evaluate.answer_tol(process)))
        return Together(count, evaluate.ask(curve, delta=delta), unit=units[0])
    except (Unsupported, UsageError) as error:
        return Together(count, problem=str(error))


def of_plan(plan: Plan) -> Release | None:
    """Return what a planned training will release; None without privacy."""
    private = plan.private
    if private is None or private.delta is None:
        return None
    seed = plan.train.seed
    streams = frozenset() if seed is None else frozenset({key_digest(training_seeds(seed).noise)})
    return Release(plan.process(), private.delta, streams, _unit(plan))


def of_folder(plan: Plan, out: Path) -> Release | None:
    """Return what the finished training in a folder has released, from its ledger; None without privacy."""
    private = plan.private
    if private is None or private.delta is None:
        return None
    entries = ledger.entries(out / storage.LEDGER)
    process = plan.under_neighbours(ledger.process(entries, plan.adjacency).steps)
    return Release(process, private.delta, frozenset(entry.stream for entry in entries), _unit(plan))


def _unit(plan: Plan) -> str:
    """Return what a training protects. The same words may be about groups by one column and by another."""
    assert plan.release is not None
    unit = plan.release.unit
    if len(plan.sizes) > 1:
        data = {key: value for key, value in plan.train.data.model_dump(exclude_none=True).items() if key not in SIZES}
        unit += f" (groups of {', '.join(f'{key} {value}' for key, value in data.items())})"
    group = 1 if plan.private is None else plan.private.group
    return unit if group == 1 else PERSON.format(group=group, unit=unit)


def of_reports(reports: Iterable[tuple[DataSet, Json]]) -> list[Release]:
    """Return the different privatisations of records by local noise that trainings without noise used.

    Trainings on the same reports (one file of them, or noise from one seed on the same records) are post-processing of
    one release. Statements do not tell two files apart that the same command wrote: their noise is independent.
    """
    distinct = {(_origin(data), json.dumps(statement, sort_keys=True)): statement for data, statement in reports}
    releases = []
    for statement in distinct.values():
        row = statement["guarantees"][0]
        steps = tuple(Step.from_dict(step) for step in row["process"])
        streams = frozenset() if statement["seed"] is None else frozenset({f"reports {statement['seed']}"})
        process, unit = Process(steps, statement["adjacency"]), statement.get("unit", "")
        problem = "" if row.get("claim") != "as-published" else "the reports that they use have no guarantee"
        releases.append(Release(process, float(row["delta"]), streams, unit, problem))
    return releases


def _origin(data: DataSet) -> str:
    """Return the file of the reports, or the parameters of the data set where a training draws them itself."""
    return str(data.file) if data.privatize is None else json.dumps(data.model_dump(exclude_none=True), sort_keys=True)


def merged(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps with the counts of equal ones added up."""
    merged: list[Step] = []
    for step in steps:
        place = next((index for index, other in enumerate(merged) if other.adds_to(step)), None)
        if place is None:
            merged.append(step)
        else:
            merged[place] = replace(step, n=merged[place].n + step.n)
    return tuple(merged)
