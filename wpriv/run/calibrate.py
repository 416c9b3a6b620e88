"""The verb ``calibrate``: the least noise, or the most use, that a target allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from wpriv.core.curve import Bracket, Guarantee
from wpriv.core.process import MAX_COUNT, Mechanism, Process
from wpriv.errors import Unsupported, UsageError, WprivError
from wpriv.run import build, classical, price
from wpriv.run.budget import implausible
from wpriv.run.number import number, whole
from wpriv.run.search import Knob, Unreachable, solve

# the answer comes within PRECISION of the least sufficient value, on top of the width of the accountant's bracket
PRECISION = 2e-5
TOL = 1e-4
# n is found to the last one below 1 / COUNTED, and its bracket made as narrow as FINEST
COUNTED, FINEST = 2e-6, 2e-7


def calibrate(
    mech: str | None = None,
    *,
    eps: float | None = None,
    delta: float | None = None,
    accountant: str = "pld",
    n: int | None = None,
    sampling: str = "none",
    rate: float | None = None,
    batch: int | None = None,
    records: int | None = None,
    epochs: float | None = None,
    adjacency: str | None = None,
    tol: float = TOL,
    compare_classical: bool = False,
    **params: Any,
) -> Guarantee:
    """Solves for whichever is missing: the mechanism's noise, or with the noise given n, or with both given the rate.

    The answer is rounded to 6 significant digits on the private side, and it is the rounded value that was priced: its own
    guarantee, which is returned, meets the target. n is the largest that meets it, as far as the accountant's bracket tells.

    Args:
        eps, delta: the target, both needed. Everything else as in ``budget``; n is 1 where the noise is solved for and no n is given.
        compare_classical: for Gauss and Laplace noise, add what older formulas ask for under ``extra["classical"]``.
        tol: relative width of the accountant's bracket, which the answer's distance from the best possible one follows.
    Returns:
        The Guarantee at ``delta`` (at eps = 0 where that is the target), whose safe ends meet the target, with
        ``extra["calibrated"] = {"parameter": name, "value": found}``; for n and the rate also ``"most"``, whether the next larger
        value was shown to miss the target.
    Raises:
        UsageError: the target or the step is faulty; nothing is missing, or too much.
        Unsupported: the target cannot be reached (the message says how near one gets).

    >>> round(calibrate("gauss", eps=1, delta=1e-5).extra["calibrated"]["value"], 3)
    3.731
    """
    if eps is None or delta is None:
        raise UsageError("calibrate needs a target: give both --eps and --delta")
    eps, delta, tol = number(eps, "--eps"), number(delta, "--delta"), number(tol, "--tol")
    _check_target(eps, delta)
    own = {"n": n, "sampling": sampling, "rate": rate, "batch": batch, "records": records, "epochs": epochs}
    knob, spec, notes = unknown({"mech": mech, **params, **own})

    def at(value: float) -> Process:
        return build.process([{**spec, knob.name: value}], adjacency)

    if compare_classical:
        _check_classical(spec)
    size = whole(records, "records") if records is not None else None
    value, row = solved(knob, at, accountant, eps, delta, tol)
    warnings = [note for note in (price.no_guarantee(row),) if note] + implausible(row, size)
    calibrated: dict[str, Any] = {"parameter": knob.name, "value": int(value) if knob.whole else value}
    if knob.sign < 0:
        calibrated["most"] = value == knob.high or _missed_beyond(knob, value, at, accountant, (eps, delta), tol)
        warnings += _most_warnings(knob, value, accountant, calibrated["most"])
    extra: dict[str, Any] = {"calibrated": calibrated}
    if compare_classical:
        extra["classical"] = classical.classical(row.process.steps[0].mechanism, eps, delta, int(spec["n"]))
    notes += row.process.steps[0].mechanism.reading()
    return price.with_warnings(row, warnings).with_extra(asked="eps" if eps > 0 else "delta", **extra, reading=notes)


def _most_warnings(knob: Knob, value: float, accountant: str, most: bool) -> list[str]:
    """What must be known of a value that was to be the largest: that it is not bounded, or that a larger one was not ruled out."""
    if value == knob.high:
        return [f"every {knob.name} up to the largest allowed meets the target"]
    if knob.whole and not most:
        return [f"n = {value + 1:.12g} may meet the target as well: the bracket of {accountant} is too wide to tell"]
    return []


def _check_target(eps: float, delta: float) -> None:
    if not 0 <= eps < math.inf:
        raise UsageError(f"--eps must be a finite number of at least 0; found {eps}")
    if not 0 < delta < 1:
        raise UsageError(f"--delta must lie strictly between 0 and 1; found {delta}")


def unknown(written: Mapping[str, Any]) -> tuple[Knob, dict[str, Any], list[str]]:
    """What a step leaves open, the rest of it, and how it was read.

    Args:
        written: the step as in a recipe, ``{mech, <parameters>, sampling, n | epochs, rate | batch with records}``.
    Raises:
        UsageError: nothing is left open, or too much.
    """
    spec, read = build.planned(written)
    knob, rest, notes = _missing(spec)
    return knob, rest, [*read, *notes]


def _missing(spec: dict[str, Any]) -> tuple[Knob, dict[str, Any], list[str]]:
    noise = build.mechanism(spec).noise
    sampled = (spec.get("sampling") or "none") != "none"
    if noise is not None and spec.get(noise) is None:
        if sampled and spec["rate"] is None:
            raise UsageError(f"{build.flag(noise)} and the sampling rate are both missing; give one of them")
        rest = {k: v for k, v in spec.items() if k != noise}
        notes = [] if rest["n"] is not None else ["n = 1, since neither --n nor --epochs was given"]
        rest["n"] = 1 if rest["n"] is None else rest["n"]
        return Knob(noise, +1, 1e-12, 1e15), rest, notes
    if spec["n"] is None:
        if sampled and spec["rate"] is None:
            raise UsageError("n and the sampling rate are both missing; give one of them")
        return Knob("n", -1, 1, MAX_COUNT, whole=True), spec, ["n, the number of compositions, is solved for"]
    if sampled and spec["rate"] is None:
        return Knob("rate", -1, 1e-15, 1.0), spec, ["the sampling rate is solved for"]
    build.step({**spec, "rate": spec["rate"] or (1.0 if sampled else None)})
    given = f"{build.flag(noise)}, " if noise is not None else ""
    raise UsageError(f"nothing is left to solve for; leave out {given}--n or (with --sampling) --rate, or ask budget for eps")


def solved(
    knob: Knob, at: Callable[[float], Process], accountant: str, eps: float, delta: float, tol: float = TOL
) -> tuple[float, Guarantee]:
    """The best value of a knob at which the process ``at(value)`` meets a target, and its guarantee there.

    Raises:
        Unsupported: no value meets it.
    """
    rows: dict[float, Guarantee] = {}
    trouble: list[WprivError] = []

    def miss(value: float) -> float:
        # a value out of the mechanism's range or out of the accountant's reach does not meet the target; others may
        try:
            row = _asked(knob, at(value), accountant, (eps, delta), tol)
        except (Unsupported, UsageError) as error:
            trouble.append(error)
            return math.inf
        except MemoryError:
            trouble.append(Unsupported(f"{accountant} needs more memory than there is at {knob.name} = {value:g}. Raise --tol, or use rdp"))
            return math.inf
        rows[value] = row
        bracket, wanted = _held(row, eps, delta)
        return math.log(bracket.safe / wanted) if bracket.safe > 0 else -math.inf

    try:
        slope = -0.55 if knob.name == "n" else -1.1
        value = solve(knob, miss, _guess(knob, at, eps, delta), slope, _precision(knob, at, accountant))
    except Unreachable as error:
        if not rows:
            raise trouble[0] from None
        raise Unsupported(_why_not(knob, accountant, error, rows.get(error.best), (eps, delta), trouble)) from None
    return value, price.checked(rows[value])


def _precision(knob: Knob, at: Callable[[float], Process], accountant: str) -> float:
    """How near the best value the search ends, relative: at a count itself where its answers have no width."""
    if not knob.whole:
        return PRECISION
    try:
        return COUNTED if price.curve(at(2), accountant).claim == "certified" else 0.0
    except (Unsupported, UsageError):
        return COUNTED


def _held(row: Guarantee, eps: float, delta: float) -> tuple[Bracket, float]:
    """The bracket that the target is held against, and the target: eps at delta, or delta where eps is 0."""
    return (row.epsilon, eps) if eps > 0 else (row.delta, delta)


def _asked(knob: Knob, process: Process, accountant: str, target: tuple[float, float], tol: float) -> Guarantee:
    """The accountant's answer at the target's delta (at eps = 0 where that is the target).

    For a whole number the bracket is made narrower until it does not hold the target, so that neighbouring numbers are told apart.
    """
    eps, delta = target
    while True:
        curve = price.curve(process, accountant, tol)
        row = curve.at(delta=delta) if eps > 0 else curve.at(eps=0.0)
        bracket, wanted = _held(row, eps, delta)
        undecided = row.claim == "certified" and (bracket.lower or 0.0) <= wanted < bracket.safe
        if not (knob.whole and undecided and tol > FINEST) or curve.is_wide(bracket):
            return row
        tol = max(tol / 10, FINEST)


def _missed_beyond(
    knob: Knob, value: float, at: Callable[[float], Process], accountant: str, target: tuple[float, float], tol: float
) -> bool:
    """Whether the next less private value on the knob's grid is shown to miss the target."""
    try:
        row = _asked(knob, at(knob.beside(value, -1)), accountant, target, tol)
    except (Unsupported, UsageError):
        return False
    bracket, wanted = _held(row, *target)
    return wanted < (bracket.lower if row.claim == "certified" and bracket.lower is not None else bracket.safe)


def _why_not(
    knob: Knob, accountant: str, error: Unreachable, row: Guarantee | None, target: tuple[float, float], trouble: list[WprivError]
) -> str:
    eps, delta = target
    reach = "from 1 to 2^40" if knob.whole else f"up to {knob.high:g}"
    wanted = f"no {knob.name} {reach} gives eps <= {eps:g} at delta = {delta:g} by {accountant}"
    if row is None:
        return f"{wanted}; {trouble[-1]}"
    if math.isinf(row.epsilon.safe):
        mass = price.infinity_mass(row.process)
        why = f": at {knob.name} = {error.best:g} the distinguishing events alone have probability {mass:.6g}" if mass > delta else ""
        return f"{wanted}; no finite eps was found{why}. Ask for a larger delta"
    best = f"eps = {row.epsilon.safe:.6g}" if eps > 0 else f"delta = {row.delta.safe:.6g} at eps = 0"
    return f"{wanted}; the best found is {best} (at {knob.name} = {error.best:g}). Relax the target, or change what was held fixed"


def _guess(knob: Knob, at: Callable[[float], Process], eps: float, delta: float) -> float:
    """Where the central limit puts the answer: n rate^2 chi^2 of one step is the mu^2 of a Gauss mechanism that meets the target."""
    wanted = _gauss_mu(eps, delta) ** 2

    def spread(value: float) -> float:
        try:
            step = at(value).steps[0]
        except (Unsupported, UsageError):
            return math.inf
        return float(step.n * step.sampling.rate**2 * _chi_square(step.mechanism))

    if knob.whole:
        return _clamp(wanted / max(spread(1), 1e-300), knob)
    if knob.sign < 0:
        return _clamp(math.sqrt(wanted / max(spread(1.0), 1e-300)), knob)
    value = 1.0
    for _ in range(60):
        # chi^2 falls like 1 / value^2 once it is small, and exponentially fast before
        ratio = spread(value) / wanted
        move = 0.5 * math.log(min(max(ratio, 1e-300), 1e300))
        move = min(max(move, -7.0), 0.7 if ratio > 1e3 else 7.0)
        value = _clamp(value * math.exp(move), knob)
        if abs(move) < 1e-3:
            break
    return value


def _clamp(value: float, knob: Knob) -> float:
    return min(max(value, knob.low), knob.high)


def _chi_square(mechanism: Mechanism) -> float:
    """The chi-square divergence of one release, distinguishing events left out; capped where it overflows."""
    pair = mechanism.pair()
    if pair.infinity >= 1:
        return math.inf
    from wpriv.core.moments import log_moment

    return math.expm1(min(float(log_moment(pair, np.ones(1), finite=True)[0]), 600.0))


def _gauss_mu(eps: float, delta: float) -> float:
    """The mu at which N(mu, 1) against N(0, 1) has delta at eps, to a few digits."""
    low, high = 1e-12, 1e6
    for _ in range(60):
        mu = math.sqrt(low * high)
        a, b = float(log_ndtr(mu / 2 - eps / mu)), eps + float(log_ndtr(-mu / 2 - eps / mu))
        if math.exp(a) * -math.expm1(min(b - a, 0.0)) > delta:
            high = mu
        else:
            low = mu
        if high < low * (1 + 1e-4):
            break
    return low


def _check_classical(spec: dict[str, Any]) -> None:
    noise = build.mechanism(spec).noise
    if spec["mech"] not in classical.KNOWN or spec["sampling"] != "none" or (noise is not None and spec.get(noise) is not None):
        raise UsageError(
            f"--compare-classical shows other formulas for the noise of --mech {', '.join(classical.KNOWN)}: it needs one of them, "
            f"without sampling, and with the noise left to solve for"
        )
