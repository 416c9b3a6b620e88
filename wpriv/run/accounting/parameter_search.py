"""Search for the least private value of a parameter that meets a target, with few evaluations of the accountant.

An evaluation has one of four outcomes: the target is met; it is certainly missed; it lies inside a bracket as narrow as
asked; or the accountant has no answer, or only a wide bracket. The last is not a miss: the search continues on both
sides of such values, and the solution names them if they leave open whether it is optimal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from wpriv.numerics.safe_rounding import DIGITS
from wpriv.run.accounting.search_parameter import SearchParameter
from wpriv.run.accounting.search_record import Evaluation, Outcome, Search, Solution

# evaluations spent beyond values without an answer, on less private values that may meet the target
MAX_PROBES = 8
# a move of half an e-fold or more towards privacy that raises the excess by more than this: it is not monotone
FLAT = 1e-6
# step through the values of a scan once the search is out of work
SPARSE = 4


def solve(
    knob: SearchParameter,
    ask: Callable[[float], Evaluation],
    guess: float,
    slope: float,
    rtol: float,
    *,
    seen: dict[float, Evaluation] | None = None,
    looks: int = MAX_PROBES,
    show: bool = True,
    is_out_of_work: Callable[[], bool] = lambda: False,
) -> Solution:
    """Return the least private grid value that meets the target, to a relative ``rtol``; it was evaluated itself.

    Beyond values without an answer, less private ones are tried too: one of them may meet the target.

    Args:
        ask: evaluates a grid value. guess: a value near the solution.
        slope: a rough d excess / d ln x towards privacy (negative).
        seen: known evaluations; new ones are added. looks: how many evaluations may be spent beyond refused values.
        show: evaluate one more value, so that one is known that certainly misses the target.
        is_out_of_work: tells that the search is to end once some value is known to meet the target.
    Raises:
        Unreachable: no value tried in [low, high] meets the target.
    """
    search = Search(knob, ask, {} if seen is None else seen, is_out_of_work)
    good, bad = _bracket(search, guess, slope, rtol)
    while bad is not None:
        good, bad = _narrowed(search, good, bad, rtol)
        if search.at(bad).outcome is not Outcome.REFUSED or looks <= 0 or is_out_of_work():
            break
        before = len(search.seen)
        better = _beyond(search, bad, looks, rtol)
        looks -= len(search.seen) - before
        if better is None:
            break
        good, bad = better
    slope = _slope(search, good, rtol, slope)
    if show and not is_out_of_work():
        good = _round(search, good, rtol)
    if show and not is_out_of_work():
        _show(search, good, bad, slope, rtol)
    missed = search.below(good, Outcome.MISSES)
    silent = search.below(good, Outcome.REFUSED)
    open_below = silent is not None and (missed is None or search.u(missed) < search.u(silent))
    refusal = search.at(silent).refusal if open_below and silent is not None else ""
    return Solution(good, missed, search.below(good), slope, refusal)


def _round(search: Search, good: float, rtol: float) -> float:
    """A less private number of fewer digits that meets the target, if there is one within ``rtol`` of ``good``."""
    short = replace(search.knob, digits=DIGITS).snap(math.log(good), -1)
    if search.knob.whole or not 0 < search.u(good) - search.u(short) <= rtol:
        return good
    return short if search.at(short).outcome is Outcome.MEETS else good


def _slope(search: Search, good: float, rtol: float, slope: float) -> float:
    """d excess / d u towards a less private value that is far enough from ``good``; else ``slope`` as given."""
    far = [
        x for x, reply in search.seen.items() if search.u(good) - search.u(x) > 5 * rtol and math.isfinite(reply.excess)
    ]
    if not far:
        return slope
    x = max(far, key=search.u)
    rise = (search.excess(good) - search.excess(x)) / (search.u(good) - search.u(x))
    return rise if math.isfinite(rise) and rise < 0 else slope


def _show(search: Search, good: float, bad: float | None, slope: float, rtol: float) -> None:
    """Evaluate a value slightly beyond those whose bracket holds the target; it should certainly miss it."""
    floor = search.at(good).floor
    if bad is None or search.at(bad).outcome is Outcome.REFUSED or not math.isfinite(floor):
        return
    aim = search.u(good) + 1.2 * floor / abs(slope) - rtol
    missed = search.below(good, Outcome.MISSES)
    if missed is not None and search.u(missed) >= 2 * aim - search.u(good):
        return
    x = search.x(aim, -1)
    search.at(search.knob.beside(good, -1) if x == good else x)


def _narrowed(search: Search, good: float, bad: float, rtol: float) -> tuple[float, float]:
    """Narrow by false position to a value that meets the target and one within ``rtol`` that is not known to."""
    weight = {good: search.excess(good), bad: search.excess(bad)}
    last = 0
    while not (_close(search, good, bad, rtol) or search.is_out_of_work()):
        x = _between(search, good, bad, weight, rtol)
        f = search.excess(x)
        if f <= 0:
            # halve the weight of a side that did not move (the Illinois rule), so that both sides converge
            weight = {x: f, bad: weight[bad] / 2 if last == 1 else weight[bad]}
            good, last = x, 1
        else:
            weight = {x: f, good: weight[good] / 2 if last == -1 else weight[good]}
            bad, last = x, -1
    return good, bad


def _beyond(search: Search, silent: float, looks: int, rtol: float) -> tuple[float, float | None] | None:
    """Find a value beyond a refused one that meets the target, with its neighbour as in ``_bracket``; else None.

    Steps away from ``silent`` until a value misses the target, then bisects.
    """
    knob, end = search.knob, len(search.seen) + looks
    low = search.below(silent, Outcome.MISSES, Outcome.OPEN)
    high, step = silent, max(0.1, 2 * rtol)
    while low is None and not knob.at_end(high, -1):
        if len(search.seen) >= end:
            return None
        x = search.x(search.u(high) - step, -1)
        x = knob.beside(high, -1) if x == high else x
        outcome = search.at(x).outcome
        if outcome is Outcome.MEETS:
            return _descended(search, x, step)
        high, low, step = (x, None, 2 * step) if outcome is Outcome.REFUSED else (high, x, step)
    while low is not None and not _close(search, high, low, rtol):
        if len(search.seen) >= end:
            return None
        x = _middle(search, high, low)
        outcome = search.at(x).outcome
        if outcome is Outcome.MEETS:
            return x, low
        high, low = (x, low) if outcome is Outcome.REFUSED else (high, x)
    return None


def _descended(search: Search, good: float, step: float) -> tuple[float, float | None]:
    """Descend from ``good`` to the last value that meets the target, and the first that is not known to, if any."""
    while not search.knob.at_end(good, -1):
        x = search.x(search.u(good) - step, -1)
        x = search.knob.beside(good, -1) if x == good else x
        if search.excess(x) > 0:
            return good, x
        good, step = x, 2 * step
    return good, None


def _bracket(search: Search, guess: float, slope: float, rtol: float) -> tuple[float, float | None]:
    """A value that meets the target, and a less private one that is not known to; None if all of them meet it."""
    knob = search.knob
    x = search.x(search.u(guess))
    f, step = search.excess(x), 0.0
    toward = 1 if f > 0 else -1
    while True:
        if knob.at_end(x, toward):
            if f <= 0:
                return x, None
            # the excess did not rise on the way to the most private value
            if search.at(x).outcome is not Outcome.REFUSED:
                raise search.unreachable()
            return _scan(search, guess)
        # aim slightly beyond the predicted root, so that the two values enclose it
        aim = abs(f / slope) * 1.03 + rtol if math.isfinite(f) else 0.0
        step = max(min(aim, 3.0), 2 * step if step else 0.0) or 1.0
        before, f_before = x, f
        x = search.x(search.u(before) + toward * step, toward)
        if x == before:
            x = knob.beside(before, toward)
        f = search.excess(x)
        if (f > 0) != (toward > 0):
            return (x, before) if toward > 0 else (before, x)
        # equal values are no proof that none meets the target: sampled releases with little noise all have about the
        # same advantage, which falls further on
        if toward > 0 and step > 0.5 and math.isfinite(f) and f > f_before + FLAT:
            return _scan(search, guess)
        if math.isfinite(f) and math.isfinite(f_before) and f != f_before:
            slope = min((f - f_before) / (search.u(x) - search.u(before)), slope / 4)


def _scan(search: Search, guess: float) -> tuple[float, float | None]:
    """Evaluate a coarse grid: the excess may rise towards privacy (formulas that guarantee nothing), or be unknown.

    Out of work, it tries every fourth value, and those between only next to one that meets the target.
    """
    knob = search.knob
    centre = search.u(guess)
    values = {search.x(centre + k * 0.5) for k in range(-24, 25)}
    if knob.whole or knob.high <= 1:
        values |= {search.x(math.inf), search.x(-math.inf)}
    ordered = sorted(values, key=search.u)
    before, at, last = -1, 0, len(ordered) - 1
    while search.excess(ordered[at]) > 0:
        if at == last:
            raise search.unreachable()
        before, at = at, min(at + (SPARSE if search.is_out_of_work() else 1), last)
    while at - before > 1 and before >= 0:
        middle = (before + at) // 2
        before, at = (before, middle) if search.excess(ordered[middle]) <= 0 else (middle, at)
    return ordered[at], ordered[before] if before >= 0 else None


def _close(search: Search, good: float, bad: float, rtol: float) -> bool:
    knob = search.knob
    if knob.beside(good, -1) == bad or good == bad:
        return True
    width = search.u(good) - search.u(bad)
    if knob.whole and good * rtol < 1:
        return False
    f_good, f_bad = search.excess(good), search.excess(bad)
    if f_good <= 0 < f_bad and math.isfinite(f_good) and math.isfinite(f_bad) and width < 0.1:
        # within so short an interval the chord locates the root
        return width * f_good / (f_good - f_bad) <= rtol
    return width <= rtol


def _between(search: Search, good: float, bad: float, weight: dict[float, float], rtol: float) -> float:
    """A grid value strictly between: slightly on the private side of the zero of the chord, else the middle."""
    u_good, u_bad = search.u(good), search.u(bad)
    f_good, f_bad = weight[good], weight[bad]
    if not (math.isfinite(f_good) and math.isfinite(f_bad) and f_good < f_bad):
        return _middle(search, good, bad)
    u = u_bad + (u_good - u_bad) * f_bad / (f_bad - f_good) + 0.4 * rtol
    # for a root very near the good end, the value at ``rtol`` from it decides
    return _inside(search, good, bad, u if u < u_good - 0.1 * rtol else max(u_good - rtol, (u_good + u_bad) / 2))


def _middle(search: Search, good: float, bad: float) -> float:
    return _inside(search, good, bad, (search.u(good) + search.u(bad)) / 2)


def _inside(search: Search, good: float, bad: float, u: float) -> float:
    """The grid value next to u, strictly between two others that are not next to each other."""
    inner = sorted((search.knob.beside(good, -1), search.knob.beside(bad, +1)))
    return min(max(search.x(u), inner[0]), inner[1])
