"""Steps of Gaussian noise as several libraries keep them, and whether one of them alone refutes a claim."""

from __future__ import annotations

from collections.abc import Sequence

from wpriv.checks.premises import StepSpec
from wpriv.checks.readers._documents import count, items, real
from wpriv.errors import UsageError

MAX_KINDS = 100_000


def gauss(sigma: float, rate: float, n: int) -> StepSpec:
    """Gaussian noise of a multiplier, on records drawn by Poisson sampling where the rate is below 1."""
    drawn: dict[str, object] = {"sampling": "poisson", "rate": rate} if rate != 1 else {}
    return {"mech": "gauss", "sigma": sigma, **drawn, "n": n}


def of_history(history: object, owner: str) -> tuple[StepSpec, ...]:
    """The steps of a history of Opacus, [[noise_multiplier, sample_rate, steps], ...]; UsageError for anything else."""
    rows = items(history, owner)
    if len(rows) > MAX_KINDS:
        raise UsageError(f"{owner} has up to {MAX_KINDS:,} kinds of steps; found {len(rows):,}")
    steps = []
    for index, row in enumerate(rows, 1):
        values: Sequence[object] = items(row, f"entry {index} of {owner}")
        name = f"entry {index} of {owner}"
        if len(values) != 3:
            raise UsageError(f"{name} must be [noise_multiplier, sample_rate, steps]; found {len(values)} values")
        data = dict(zip(("noise_multiplier", "sample_rate", "steps"), values, strict=True))
        n = count(data, "steps", name)
        if n:
            steps.append(gauss(real(data, "noise_multiplier", name), real(data, "sample_rate", name), n))
    return tuple(steps)


def total(steps: Sequence[StepSpec]) -> int:
    """The number of all steps."""
    return sum(int(step["n"]) for step in steps)  # type: ignore[call-overload]


def refutes(step: StepSpec, group: int, eps: float | None, delta: object, accounted: StepSpec) -> bool:
    """Tell whether a step alone, for a person of so many records, costs more than a claim.

    Without an eps the claim is that of the step that was accounted for; without a delta nothing is refuted.
    """
    from wpriv.accounting.budget import budget  # loads numpy

    if not isinstance(delta, (int, float)) or not 0 < delta < 1 or not step.get("sigma"):
        return False
    if eps is None:
        eps = budget(**accounted, delta=delta, tol=1e-3).epsilon.safe  # type: ignore[arg-type]
    lower = budget(**step, group=group, delta=delta, tol=1e-3).epsilon.lower  # type: ignore[arg-type]
    return lower is not None and lower > eps
