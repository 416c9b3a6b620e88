"""Steps of Gaussian noise as several libraries keep them, and whether one of them alone refutes a claim."""

from __future__ import annotations

from collections.abc import Sequence

from wpriv.checks.premises import Fact, StepSpec
from wpriv.checks.readers._documents import count, items, real
from wpriv.errors import UsageError

MAX_KINDS = 100_000


def gauss(z: float, rate: float, n: int) -> StepSpec:
    """Gaussian noise of z times what one record adds, on records of Poisson sampling where the rate is below 1."""
    drawn: dict[str, object] = {"sampling": "poisson", "rate": rate} if rate != 1 else {}
    return {"mech": "gauss", "noise_multiplier": z, **drawn, "n": n}


def entry(row: object, name: str = "an entry of the history") -> tuple[float, float, int]:
    """Noise multiplier, rate and number of steps of one entry; UsageError for anything else."""
    values = items(row, name)
    if len(values) != 3:
        raise UsageError(f"{name} must be [noise_multiplier, sample_rate, steps]; found {len(values)} values")
    data = dict(zip(("noise_multiplier", "sample_rate", "steps"), values, strict=True))
    rate = real(data, "sample_rate", name)
    if not 0 < rate <= 1:
        raise UsageError(f"sample_rate of {name} must be above 0 and at most 1; found {rate:g}")
    return real(data, "noise_multiplier", name), rate, count(data, "steps", name)


def of_history(history: object, owner: str) -> tuple[StepSpec, ...]:
    """The steps of a history of Opacus, [[noise_multiplier, sample_rate, steps], ...]; UsageError for anything else."""
    rows = items(history, owner)
    if len(rows) > MAX_KINDS:
        raise UsageError(f"{owner} has up to {MAX_KINDS:,} kinds of steps; found {len(rows):,}")
    entries = [entry(row, f"entry {index} of {owner}") for index, row in enumerate(rows, 1)]
    return tuple(gauss(*each) for each in entries if each[2])


def counted(updates: int, owner: str = "") -> tuple[Fact, Fact]:
    """The premises that a counter of updates shows; ``owner`` is what has it, such as ``trainer.``."""
    name = f"{owner}global_step"
    return Fact("steps", updates, where=f"{name} is {updates}"), Fact("steps_source", "counter", where=name)


def total(steps: Sequence[StepSpec]) -> int:
    """The number of all steps."""
    return sum(int(step["n"]) for step in steps)  # type: ignore[call-overload]


def refutes(step: StepSpec, group: int, eps: float | None, delta: object, accounted: StepSpec) -> bool:
    """Tell whether a step alone, for a person of so many records, costs more than a claim.

    Without an eps the claim is that of the step that was accounted for; without a delta nothing is refuted.
    """
    from wpriv.accounting.budget import budget  # loads numpy

    if not isinstance(delta, (int, float)) or not 0 < delta < 1 or not step.get("noise_multiplier"):
        return False
    if eps is None:
        eps = budget(**accounted, delta=delta, tol=1e-3).epsilon.safe  # type: ignore[arg-type]
    lower = budget(**step, group=group, delta=delta, tol=1e-3).epsilon.lower  # type: ignore[arg-type]
    return lower is not None and lower > eps
