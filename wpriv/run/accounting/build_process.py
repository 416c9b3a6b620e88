"""From plain data (flags, recipes, JSON) to a checked Process; every fault names the flag that mends it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wpriv.core import registry
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import MAX_COUNT, type_words
from wpriv.core.process import SAMPLINGS, Process, Sampling, Step
from wpriv.errors import UsageError, WprivError
from wpriv.hints import did_you_mean
from wpriv.numerics.parse_numbers import number, shown, whole
from wpriv.run.accounting import evaluate
from wpriv.run.accounting.adaptive_history import Declared
from wpriv.run.accounting.history import read_history

STEP_KEYS = ("mech", "n", "sampling", "rate", "observed")
MOST_READ = 20
SCHEDULE_KEYS = ("n", "rate", "batch", "records", "epochs")


def step(spec: Mapping[str, Any]) -> Step:
    """One step of a process from ``{mech, <parameters of the mechanism>, n, sampling, rate, observed}``.

    Numbers may be text as users type it: ``1e-5``, ``2^20``, ``2**20``, ``256/60000``. n defaults to 1 and sampling to none.

    Raises:
        UsageError: an unknown mechanism or parameter (with a suggestion), a missing parameter (naming its flag), a bad value.
    """
    cls = mechanism(spec)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values = {}
    for key, value in spec.items():
        if key in STEP_KEYS:
            continue
        if key not in fields:
            near = did_you_mean(str(key), [*fields, *STEP_KEYS]) or "."
            raise UsageError(f"{spec['mech']} has no parameter {str(key)!r}{near} Its parameters: {', '.join(fields)}")
        values[key] = _field_value(fields[key], value)
    for name, f in fields.items():
        if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise UsageError(
                f"{spec['mech']} needs {flag(name)} ({f.metadata.get('help', 'a parameter of the mechanism')}); found none"
            )
    kind = "none" if spec.get("sampling") is None else spec["sampling"]
    seen = None
    if spec.get("observed") is not None:
        from wpriv.run.accounting import load_distances

        seen = load_distances.observed(spec["observed"])
    return Step(cls(**values), whole(spec.get("n", 1), "n"), _sampling(kind, spec.get("rate")), seen)


def mechanism(spec: Mapping[str, Any]) -> type[Mechanism]:
    """The class of the mechanism that a step names."""
    if not isinstance(spec.get("mech"), str):
        raise UsageError(
            f"a step needs a mechanism, as in --mech gauss. Known: {', '.join(registry.names('mechanisms'))}"
        )
    return registry.mechanism(spec["mech"])


def process(specs: Iterable[Mapping[str, Any]], adjacency: str | None = None, places: Sequence[str] = ()) -> Process:
    """Build a Process from step mappings (see ``step``); equal neighbouring steps are merged into one with the counts added.

    Args:
        places: where each step was written, for messages; none where there is one step alone.
    """
    steps: list[Step] = []
    for index, spec in enumerate(specs):
        try:
            new = step(spec)
        except WprivError as error:
            if not places:
                raise
            raise type(error)(f"{places[index]}: {error}") from None
        alike = bool(steps) and dataclasses.replace(steps[-1], n=1) == dataclasses.replace(new, n=1)
        if alike and (new.observed is None or new.observed.steps == 1):
            new = dataclasses.replace(new, n=steps.pop().n + new.n)
        steps.append(new)
    if isinstance(adjacency, str) and not adjacency:
        raise UsageError("the adjacency is empty; give add-remove or replace-one, or leave it out")
    return Process(tuple(steps), "" if adjacency is None else adjacency)


def flag(name: str) -> str:
    """How a mechanism's parameter is given on the command line."""
    return f"--{name}" if name in ("sigma", "scale", "sensitivity") else f"--param {name}=..."


def _sampling(kind: Any, rate: Any) -> Sampling:
    if kind in SAMPLINGS and kind != "none" and rate is None:
        raise UsageError(f"--sampling {kind} needs a rate: give --rate, or --batch with --records")
    return Sampling(str(kind), 1.0 if rate is None else number(rate, "rate"))


def _field_value(f: dataclasses.Field[Any], value: Any) -> Any:
    """A parameter in the type of its field."""
    words = type_words(f)
    if words & {"str", "Path"}:
        return value
    if value is None and "None" in words:
        return None
    return whole(value, f.name) if "int" in words and "float" not in words else number(value, f.name)


def question(**given: Any) -> dict[str, float]:
    """eps, delta and tol as numbers, without those that are None."""
    return {name: number(value, f"--{name}") for name, value in given.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How often and at which rate: n compositions, the sampling rate (None without sampling), and how the flags were read."""

    n: int | None
    rate: float | None
    notes: tuple[str, ...]


def schedule(
    *,
    n: Any = None,
    rate: Any = None,
    batch: Any = None,
    records: Any = None,
    epochs: Any = None,
    sampling: str = "none",
) -> Schedule:
    """Reads n and the rate from whichever of the flags were given.

    rate = batch / records. One epoch is 1 / rate steps, and n = ceil(epochs / rate): the whole run is rounded up once, not every
    epoch. ``None`` stays None where nothing was said.

    Raises:
        UsageError: the flags contradict each other, or one of them lacks another.
    """
    if not isinstance(sampling, str) or sampling not in SAMPLINGS:
        raise UsageError(f"--sampling must be one of {', '.join(SAMPLINGS)}; found {shown(sampling)}")
    notes = []
    if batch is not None:
        if rate is not None:
            raise UsageError("--rate and --batch both set the sampling rate; give one of them")
        if records is None:
            raise UsageError("--batch needs --records (the data-set size): the rate is batch / records")
        size, of = whole(batch, "batch"), whole(records, "records")
        if not 1 <= size <= of:
            raise UsageError(f"--batch must lie between 1 and --records; found {size} of {of} records")
        found: float | None = size / of
        notes.append(f"rate = batch / records = {size} / {of} = {found:.6g}")
    else:
        size = of = 0
        found = None if rate is None else number(rate, "rate")
    if found is not None and sampling == "none":
        given = "--batch" if batch is not None else "--rate"
        raise UsageError(
            f"{given} needs --sampling: poisson (each record by itself) or fixed (batches without replacement)"
        )
    if epochs is None:
        return Schedule(None if n is None else whole(n, "n"), found, tuple(notes))
    if n is not None:
        raise UsageError("--n and --epochs both set the number of compositions; give one of them")
    if found is None or not 0 < found <= 1:
        raise UsageError(
            "--epochs needs a sampling rate in (0, 1]: give --batch with --records, or --rate (one epoch is 1 / rate steps)"
        )
    passes = number(epochs, "epochs")
    exact = passes * of / size if size else passes / found
    if not 0 < exact <= MAX_COUNT:
        raise UsageError(f"--epochs {passes:g} at this rate is {exact:g} steps; wanted 1 to 2^40")
    # 60 / 0.01 may come out a hair above 6000, which must not become one step more
    count = max(1, math.ceil(exact * (1 - 1e-14)))
    per_epoch = of / size if size else 1 / found
    notes.append(
        f"n = {count} steps = ceil({passes:g} epochs x {per_epoch:.6g} steps an epoch), rounded up once over the whole run"
    )
    return Schedule(count, found, tuple(notes))


@dataclasses.dataclass(frozen=True)
class Job:
    """A process, in words how the arguments that made it were read, and the size of the data set where it was given.

    ``declared`` is what a ledger says was fixed before its first release; None for anything else than a ledger.
    """

    process: Process
    notes: tuple[str, ...] = ()
    records: int | None = None
    declared: Declared | None = None

    def tol(self) -> float:
        """The width of a bracket where none is asked for: for a ledger that of the statement beside it, so that both say the same."""
        return evaluate.answer_tol(self.process)


def job(
    mech: str | None,
    *,
    params: Mapping[str, Any],
    n: Any = None,
    sampling: str = "none",
    rate: Any = None,
    batch: Any = None,
    records: Any = None,
    epochs: Any = None,
    adjacency: str | None = None,
    history: str | Path | None = None,
    observed: Any = None,
) -> Job:
    """The process that the arguments of ``budget`` describe: one mechanism under one schedule, or the steps of a history file."""
    if history is not None:
        others = {
            "--mech": mech,
            "--n": n,
            "--rate": rate,
            "--batch": batch,
            "--epochs": epochs,
            "--observed": observed,
            **{flag(k): v for k, v in params.items()},
        }
        given = [name for name, value in others.items() if value is not None]
        if given or sampling != "none":
            raise UsageError(
                f"--history holds whole steps; it cannot be combined with {', '.join(given) or '--sampling'}"
            )
        read = read_history(history)
        if read.adjacency is not None and adjacency not in (None, read.adjacency):
            wanted = f"--history {history} is accounted for under {read.adjacency} neighbours"
            raise UsageError(f"{wanted}; found --adjacency {shown(adjacency)}")
        made = process(read.steps, read.adjacency or adjacency, read.places)
        notes = (f"{len(read.steps)} different steps read from {history}", *read.notes, *_readings(made))
        return Job(made, notes, _size([{"records": records}]), read.declared)
    own = {"n": n, "sampling": sampling, "rate": rate, "batch": batch, "records": records, "epochs": epochs}
    seen = {} if observed is None else {"observed": observed}
    return job_of_steps([{"mech": mech, **params, **own, **seen}], adjacency)


def job_of_steps(steps: Iterable[Mapping[str, Any]], adjacency: str | None = None) -> Job:
    """The process of steps as a recipe has them, each ``{mech, <parameters>, sampling, n | epochs, rate | batch with records}``."""
    specs, notes = [], []
    steps = list(steps)
    for written in steps:
        spec, read = planned(written)
        notes += read
        if spec["n"] is None:
            spec["n"] = 1
            notes.append("n = 1, since neither --n nor --epochs was given")
        specs.append(spec)
    size = _size(steps)
    made = process(specs, adjacency)
    told = [step.observed.told() for step in made.steps if step.observed is not None]
    notes += [f"sigma and sensitivity are multiples of the observed unit: {words}" for words in told]
    return Job(made, (*dict.fromkeys(notes), *_readings(made)), size)


def _size(steps: Iterable[Mapping[str, Any]]) -> int | None:
    """The size of the data set, the largest that some step names; None where none does."""
    sizes = [whole(step["records"], "records") for step in steps if step.get("records") is not None]
    if sizes and min(sizes) < 1:
        raise UsageError(f"--records is the size of the data set, at least 1; found {min(sizes)}")
    return max(sizes, default=None)


def _readings(made: Process) -> list[str]:
    """How the mechanisms read their parameters, for as many kinds of step as anybody reads."""
    return list(dict.fromkeys(line for step in made.steps[:MOST_READ] for line in step.mechanism.reading()))


def planned(written: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A step with batch, records and epochs turned into n and rate (None where nothing was said), and how they were read."""
    sampling = "none" if written.get("sampling") is None else written["sampling"]
    plan = schedule(**{key: written.get(key) for key in SCHEDULE_KEYS}, sampling=sampling)
    rest = {key: value for key, value in written.items() if key not in SCHEDULE_KEYS}
    return {**rest, "n": plan.n, "rate": plan.rate}, list(plan.notes)
