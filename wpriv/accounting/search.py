"""Search for the least private value of a parameter that meets a target, with few evaluations of the accountant.

An evaluation shows that the target is met, that it is certainly missed, that it lies inside a bracket as narrow as
asked, or nothing. The last is not a miss: the search continues on both sides of such values, and the root names them if
they leave open whether it is optimal. All distances are in u = privacy_direction * ln x. Values are on the grid of
numbers that they may be printed as.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from wpriv.errors import Unsupported
from wpriv.numerics.numbers import DIGITS, rounded

MAX_EVALUATIONS = 120
# evaluations spent beyond values without an answer, on less private values that may meet the target
MAX_PROBES = 8
# share of the distance from a refused value to one that misses the target, to which the border between them is found
PART_BEYOND = 0.02
# a move of half an e-fold or more towards privacy that raises the excess by more than this: it is not monotone
FLAT = 1e-6
# step through the values of a scan once the search is out of work, and the distance at which it then ends
SPARSE, ROUGH = 4, 0.02


@dataclass(frozen=True)
class Unknown:
    """A parameter that is solved for, on the grid of numbers it may be printed as.

    Args:
        privacy_direction: +1 where a larger value is more private (noise), -1 where a smaller one is (n, rate).
        whole: the grid has the multiples of ``unit``, and else the numbers of so many significant ``digits``.
    """

    name: str
    privacy_direction: int
    low: float
    high: float
    whole: bool = False
    digits: int = DIGITS
    unit: int = 1

    def clamp(self, x: float) -> float:
        return min(max(x, self.low), self.high)

    def u(self, x: float) -> float:
        return self.privacy_direction * math.log(x)

    def x(self, u: float, toward: int = +1) -> float:
        """The grid value at u or next to it, on the more private (toward=+1) or the less private side."""
        x = math.exp(min(max(self.privacy_direction * u, math.log(self.low)), math.log(self.high)))
        up = toward * self.privacy_direction > 0
        if not self.whole:
            return float(self.clamp(rounded(x, up=up, digits=self.digits)))
        count = math.ceil(x / self.unit - 1e-9) if up else math.floor(x / self.unit + 1e-9)
        return float(self.clamp(self.unit * count))

    def beside(self, x: float, toward: int) -> float:
        """The next grid value after x, which is on the grid itself."""
        step = float(self.unit) if self.whole else 10.0 ** (math.floor(math.log10(x) + 1e-12) + 1 - self.digits)
        moved = x + toward * self.privacy_direction * step
        return float(self.clamp(moved if self.whole else float(f"{moved:.{self.digits - 1}e}")))

    def moved(self, x: float, step: float, toward: int) -> float:
        """The grid value at a distance of ``step`` from x, or the next one where the grid is coarser."""
        other = self.x(self.u(x) + toward * step, toward)
        return self.beside(x, toward) if other == x else other

    def at_end(self, x: float, toward: int) -> bool:
        return x == (self.high if toward * self.privacy_direction > 0 else self.low)


class Outcome(enum.Enum):
    """The outcome of evaluating one value of the parameter against the target."""

    MEETS = "meets"
    MISSES = "misses"
    OPEN = "open"
    REFUSED = "refused"


@dataclass(frozen=True)
class Evaluation:
    """One evaluation.

    Args:
        excess: ln(upper end / target); at most 0 where the target is met; +-inf allowed.
        floor: ln(lower end / target); positive where the target is certainly missed.
        refusal: why there is no narrow answer; empty where there is one. It is ignored where the target is met.
    """

    excess: float
    floor: float = -math.inf
    refusal: str = ""

    @property
    def outcome(self) -> Outcome:
        if self.excess <= 0:
            return Outcome.MEETS
        if self.floor > 0:
            return Outcome.MISSES
        return Outcome.REFUSED if self.refusal else Outcome.OPEN


@dataclass(frozen=True)
class Root:
    """The least private value evaluated that meets the target.

    Args:
        missed: the nearest less private value that certainly misses the target; None where none was evaluated.
        beside: the nearest less private value that was evaluated, if any. slope: d excess / d u there.
        refusal: why values between ``missed`` and ``value`` have no answer; empty if all of those evaluated have one.
    """

    value: float
    missed: float | None
    beside: float | None
    slope: float
    refusal: str = ""


class Unreachable(Exception):
    """No value that was tried meets the target.

    Args:
        best: the value that comes nearest to it. miss: its ``Evaluation.excess``.
        refusal: why more private values than ``best`` have no answer; empty if all of those evaluated have one.
    """

    def __init__(self, best: float, miss: float, refusal: str = ""):
        super().__init__(f"best value {best:g}, {miss:g} short of the target")
        self.best, self.miss, self.refusal = best, miss, refusal


@dataclass
class Search:
    """A search over the values of one parameter.

    Args:
        ask: evaluates a grid value.
        is_out_of_work: tells that the search is to end once some value is known to meet the target, and one that is not
            is within ``ROUGH`` of it. is_exhausted: the same wherever the other is.
        seen: the values evaluated so far.
    """

    unknown: Unknown
    ask: Callable[[float], Evaluation]
    is_out_of_work: Callable[[], bool] = lambda: False
    is_exhausted: Callable[[], bool] = lambda: False
    seen: dict[float, Evaluation] = field(default_factory=dict)

    def solve(self, guess: float, slope: float, rtol: float, probes: int = MAX_PROBES, show: bool = True) -> Root:
        """Return the least private grid value that meets the target, to a relative ``rtol``; it was evaluated itself.

        Beyond values without an answer, less private ones are tried too: one of them may meet the target.

        Args:
            guess: a value near the root. slope: a rough d excess / d u (negative).
            probes: how many evaluations may be spent beyond refused values.
            show: evaluate one more value, so that one is known that certainly misses the target.
        Raises:
            Unreachable: no value tried in [low, high] meets the target.
        """
        good, bad = self._bracket(guess, slope, rtol)
        while bad is not None:
            good, bad = self._narrowed(good, bad, rtol, self._excess)
            if self.at(bad).outcome is not Outcome.REFUSED or probes <= 0 or self.is_out_of_work():
                break
            before = len(self.seen)
            better = self._beyond(bad, probes, rtol)
            probes -= len(self.seen) - before
            if better is None:
                break
            good, bad = better
        slope = self._slope(good, rtol, slope)
        # a less private number of fewer digits, where that meets the target as well
        fewer = replace(self.unknown, digits=DIGITS).x(self.unknown.u(good), -1)
        is_near = not self.unknown.whole and 0 < self._distance(good, fewer) <= rtol
        if show and is_near and not self.is_out_of_work() and self.at(fewer).outcome is Outcome.MEETS:
            good = fewer
        if show and not self.is_out_of_work():
            self._show(good, bad, slope, rtol)
        missed = self._below(good, Outcome.MISSES)
        refused = self._below(good, Outcome.REFUSED)
        is_open = refused is not None and (missed is None or self._distance(refused, missed) > 0)
        refusal = self.at(refused).refusal if is_open and refused is not None else ""
        return Root(good, missed, self._below(good), slope, refusal)

    def at(self, x: float) -> Evaluation:
        """The evaluation at x, computed once for each x."""
        if x not in self.seen:
            if len(self.seen) >= MAX_EVALUATIONS:
                name = self.unknown.name
                raise Unsupported(f"no {name} found within {MAX_EVALUATIONS} evaluations of the accountant")
            self.seen[x] = self.ask(x)
        return self.seen[x]

    def _excess(self, x: float) -> float:
        return self.at(x).excess

    def _distance(self, good: float, bad: float) -> float:
        return self.unknown.u(good) - self.unknown.u(bad)

    def _unreachable(self) -> Unreachable:
        u, best = self.unknown.u, min(self.seen, key=self._excess)
        refused = [x for x, reply in self.seen.items() if reply.outcome is Outcome.REFUSED and u(x) >= u(best)]
        return Unreachable(best, self._excess(best), self.at(min(refused, key=u)).refusal if refused else "")

    def _below(self, value: float, *outcomes: Outcome) -> float | None:
        """The nearest less private value evaluated with one of these outcomes (any, if none is given)."""
        u, wanted = self.unknown.u, outcomes or tuple(Outcome)
        below = (x for x, reply in self.seen.items() if u(x) < u(value) and reply.outcome in wanted)
        return max(below, key=u, default=None)

    def _slope(self, good: float, rtol: float, slope: float) -> float:
        """d excess / d u towards a less private value that is far enough from ``good``; else ``slope`` as given."""
        far = [x for x in self.seen if self._distance(good, x) > 5 * rtol and math.isfinite(self._excess(x))]
        if not far:
            return slope
        x = max(far, key=self.unknown.u)
        rise = (self._excess(good) - self._excess(x)) / self._distance(good, x)
        return rise if math.isfinite(rise) and rise < 0 else slope

    def _show(self, good: float, bad: float | None, slope: float, rtol: float) -> None:
        """Evaluate a value slightly beyond those whose bracket holds the target; it should certainly miss it."""
        floor, u = self.at(good).floor, self.unknown.u
        if bad is None or self.at(bad).outcome is Outcome.REFUSED or not math.isfinite(floor):
            return
        aim = u(good) + 1.2 * floor / abs(slope) - rtol
        missed = self._below(good, Outcome.MISSES)
        if missed is None or u(missed) < 2 * aim - u(good):
            x = self.unknown.x(aim, -1)
            self.at(self.unknown.beside(good, -1) if x == good else x)

    def _bracket(self, guess: float, slope: float, rtol: float) -> tuple[float, float | None]:
        """A value that meets the target, and a less private one that is not known to; None if all of them meet it."""
        unknown = self.unknown
        x = unknown.x(unknown.u(guess))
        f, step = self._excess(x), 0.0
        toward = 1 if f > 0 else -1
        while not unknown.at_end(x, toward):
            # aim slightly beyond the predicted root, so that the two values enclose it
            aim = abs(f / slope) * 1.03 + rtol if math.isfinite(f) else 0.0
            step = max(min(aim, 3.0), 2 * step if step else 0.0) or 1.0
            before, f_before = x, f
            x = unknown.moved(before, step, toward)
            f = self._excess(x)
            if (f > 0) != (toward > 0):
                return (x, before) if toward > 0 else (before, x)
            # equal values are no proof that none meets the target: sampled releases with little noise all have about
            # the same advantage, which falls further on
            if toward > 0 and step > 0.5 and math.isfinite(f) and f > f_before + FLAT:
                return self._scan(guess)
            if math.isfinite(f) and math.isfinite(f_before) and f != f_before:
                slope = min((f - f_before) / self._distance(x, before), slope / 4)
        if f <= 0:
            return x, None
        # the excess did not rise on the way to the most private value
        if self.at(x).outcome is not Outcome.REFUSED:
            raise self._unreachable()
        return self._scan(guess)

    def _scan(self, guess: float) -> tuple[float, float | None]:
        """Evaluate a coarse grid: the excess may rise towards privacy (formulas that guarantee nothing), or be unknown.

        Out of work, it tries every fourth value, and those between only next to one that meets the target.
        """
        unknown = self.unknown
        values = {unknown.x(unknown.u(guess) + k * 0.5) for k in range(-24, 25)}
        if unknown.whole or unknown.high <= 1:
            values |= {unknown.x(math.inf), unknown.x(-math.inf)}
        ordered = sorted(values, key=unknown.u)
        before, at, last = -1, 0, len(ordered) - 1
        while self._excess(ordered[at]) > 0:
            if at == last:
                raise self._unreachable()
            before, at = at, min(at + (SPARSE if self.is_out_of_work() else 1), last)
        while at - before > 1 and before >= 0:
            middle = (before + at) // 2
            before, at = (before, middle) if self._excess(ordered[middle]) <= 0 else (middle, at)
        return ordered[at], ordered[before] if before >= 0 else None

    def _narrowed(
        self, good: float, bad: float, rtol: float, end: Callable[[float], float], last: float = math.inf
    ) -> tuple[float, float]:
        """Narrow by false position to a value where ``end`` is at most 0 and one within ``rtol`` where it is above.

        With so many evaluations it ends earlier.
        """
        f_good, f_bad, moved = end(good), end(bad), 0
        while not (self._close(good, bad, rtol, end) or self._is_rough(good, bad) or len(self.seen) >= last):
            x = self._inside(good, bad, self._chord(good, bad, f_good, f_bad, rtol))
            f = end(x)
            # halve the value of a side that did not move (the Illinois rule), so that both sides converge
            if f <= 0:
                good, f_good, f_bad, moved = x, f, f_bad / 2 if moved == 1 else f_bad, 1
            else:
                bad, f_bad, f_good, moved = x, f, f_good / 2 if moved == -1 else f_good, -1
        return good, bad

    def _is_rough(self, good: float, bad: float) -> bool:
        return self.is_exhausted() or (self.is_out_of_work() and self._distance(good, bad) <= ROUGH)

    def _close(self, good: float, bad: float, rtol: float, end: Callable[[float], float]) -> bool:
        if self.unknown.beside(good, -1) == bad or good == bad:
            return True
        if self.unknown.whole and good * rtol < 1:
            return False
        width = self._distance(good, bad)
        f_good, f_bad = end(good), end(bad)
        if f_good <= 0 < f_bad and math.isfinite(f_good) and math.isfinite(f_bad) and width < 0.1:
            # within so short an interval the chord locates the root
            return width * f_good / (f_good - f_bad) <= rtol
        return width <= rtol

    def _chord(self, good: float, bad: float, f_good: float, f_bad: float, rtol: float) -> float:
        """u slightly on the private side of the zero of the chord, else in the middle."""
        u_good, u_bad = self.unknown.u(good), self.unknown.u(bad)
        middle = (u_good + u_bad) / 2
        if not (math.isfinite(f_good) and math.isfinite(f_bad) and f_good < f_bad):
            return middle
        u = u_bad + (u_good - u_bad) * f_bad / (f_bad - f_good) + 0.4 * rtol
        # for a root very near the good end, the value at ``rtol`` from it decides
        return u if u < u_good - 0.1 * rtol else max(u_good - rtol, middle)

    def _inside(self, good: float, bad: float, u: float) -> float:
        """The grid value next to u, strictly between two others that are not next to each other."""
        low, high = sorted((self.unknown.beside(good, -1), self.unknown.beside(bad, +1)))
        return min(max(self.unknown.x(u), low), high)

    def _beyond(self, refused: float, probes: int, rtol: float) -> tuple[float, float | None] | None:
        """Find a value beyond a refused one that meets the target, as ``_bracket`` does; else None.

        It looks between the refused values and those that miss the target by their lower ends.
        """
        unknown, last = self.unknown, len(self.seen) + probes
        low = self._below(refused, Outcome.MISSES, Outcome.OPEN)
        high, step = refused, max(0.1, 2 * rtol)
        while low is None:
            if unknown.at_end(high, -1) or len(self.seen) >= last:
                return None
            x = unknown.moved(high, step, -1)
            outcome = self.at(x).outcome
            if outcome is Outcome.MEETS:
                return self._descended(x, step)
            if outcome is Outcome.REFUSED:
                high, step = x, 2 * step
            else:
                low = x
        rtol = max(rtol, PART_BEYOND * self._distance(refused, low))
        self._narrowed(high, low, rtol, self._floor, last)
        # what was found to meet the target may lie between refused values
        good = min((x for x, reply in self.seen.items() if reply.outcome is Outcome.MEETS), key=unknown.u)
        return (good, self._below(good)) if unknown.u(good) < unknown.u(refused) else None

    def _floor(self, x: float) -> float:
        """ln(lower end / target); +inf where a narrow bracket holds the target, beyond which nothing meets it."""
        reply = self.at(x)
        return math.inf if reply.outcome is Outcome.OPEN else reply.floor

    def _descended(self, good: float, step: float) -> tuple[float, float | None]:
        """Descend from ``good`` to the last value that meets the target, and the first that is not known to, if any."""
        while not self.unknown.at_end(good, -1):
            x = self.unknown.moved(good, step, -1)
            if self._excess(x) > 0:
                return good, x
            good, step = x, 2 * step
        return good, None
