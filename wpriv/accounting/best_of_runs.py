"""The best of K runs, K random: bounds of its profile, its privacy curve, and its guarantee (docs/theory/tuning.md)."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from wpriv.accounting import evaluate
from wpriv.accounting import membership_figures as attacks
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.membership import delta_ends
from wpriv.core.process import Process
from wpriv.core.repeats import FixedRuns, Repeats, parse
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.numbers import echo, text
from wpriv.numerics.root_finding import smallest_meeting

# relative allowance for the rounding of all sums here
ROUNDING = 1e-10
# points of the lines below which the profile is integrated, and the smallest of them, in units of 1 / E[K]
CELLS, SMALLEST = 1500, 1e-5
# ends of the cells that the probability of a set is divided into, for a lower bound
SIZES = 25

# beyond this eps an upper bound keeps its value
MAX_EXPONENT = 600.0


@dataclass(frozen=True)
class ProfileTable:
    """Bounds of the privacy profile of one run, for both orders of the neighbours, at increasing eps from 0.

    Args:
        eps: [k] in nats, the first 0. upper, lower: [k] bounds of the larger of the two deltas; both do not increase.
    """

    eps: Array
    upper: Array
    lower: Array

    def hockey_stick(self, t: Array) -> Array:
        """Bound E_Q[(dP/dQ - t)_+] from above at t > 0: by chords of the table, convex in t, and its last value."""
        t = np.asarray(t, dtype=float)
        above = np.interp(np.maximum(t, 1 / np.maximum(t, 1e-300)), np.exp(self.eps), self.upper)
        return np.asarray(np.where(t >= 1, above, 1 - np.minimum(t, 1) * (1 - above)))

    def lines(self) -> tuple[Array, Array]:
        """Lines (a, b), of falling slope, below which lies the largest Q(S) at P(S) = x: Q(S) <= a x + b.

        Q(S) <= e^eps P(S) + delta(eps), and the same of the complement: 1 - P(S) <= e^eps (1 - Q(S)) + delta(eps).
        """
        t = np.exp(self.eps)
        a = np.concatenate([t[::-1], 1 / t[1:]])
        return a, np.concatenate([self.upper[::-1], 1 - (1 - self.upper[1:]) / t[1:]])

    def reachable(self, x: Array) -> tuple[Array, Array]:
        """Bound the largest Q(S) at P(S) = x by the least of ``lines`` and 1; return it with the slope of that line."""
        a, b = self.lines()
        heights = a[:, None] * np.asarray(x, dtype=float) + b[:, None]
        best, least = heights.argmin(axis=0), heights.min(axis=0)
        return np.minimum(least, 1.0), np.where(least < 1, a[best], 0.0)

    def kinks(self) -> Array:
        """The abscissae in (0, 1) at which consecutive lines intersect."""
        a, b = self.lines()
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.diff(b) / -np.diff(a)
        return np.asarray(x[(x > 0) & (x < 1)])


@dataclass(frozen=True)
class Selection:
    """Bounds of the profile of the best of K runs, for the worst order of the outcomes, from those of one run."""

    table: ProfileTable
    repeats: Repeats

    @cached_property
    def _lines(self) -> tuple[Array, Array]:
        """Lines (a, b): on cells of x, sup (slope(x) t - c slope(g(x))) is at most max (a t - c b), for c, t > 0."""
        mean = float(self.repeats.slope(np.zeros(1))[0])
        cells = np.geomspace(SMALLEST / max(mean, 1.0), 1.0, CELLS)
        x = np.unique(np.concatenate([[0.0], cells, self.table.kinks()]))
        a = self.repeats.slope(x)
        middle, half = (x[1:] + x[:-1]) / 2, np.diff(x) / 2
        g, steepness = self.table.reachable(middle)
        height = self.repeats.slope(g)
        fall = height * self.repeats.log_fall(g) * steepness * half
        share, crosses = np.ones_like(fall), fall > height
        share[crosses] = (height + fall)[crosses] / (2 * fall[crosses])
        ends = a[:-1] + share * np.diff(a)
        return np.concatenate([a[:-1], ends]), np.concatenate([height + fall, np.maximum(height - fall, 0.0)])

    def upper(self, eps: float) -> float:
        """An upper bound of delta at eps: E_Q phi(dP/dQ), phi the maximum of 0 and of the lines, by its kinks."""
        slopes, heights = self._lines
        a, kinks = _envelope(slopes, math.exp(min(eps, MAX_EXPONENT)) * heights)
        weights = np.diff(np.concatenate([[0.0], a]))
        integral = float(weights @ self.table.hockey_stick(kinks))
        # all runs together differ with probability at most reach(delta(0)), by coupling each of them
        every = float(self.repeats.reach(np.minimum(self.table.upper[:1], 1.0))[0])
        return min(1.0, min(integral, every) * (1 + ROUNDING))

    @cached_property
    def _sets(self) -> tuple[Array, Array]:
        """Sets S = {dP/dQ > e}: e, a bound d of delta(e), and a range of Q(S); docs/theory/tuning.md, "Lower ends".

        Returns:
            [k, 2] e and d, and [k, m] values of Q(S), which divide its range into cells.
        """
        table, falls, t = self.table, np.exp(-self.table.eps[:0:-1]), np.exp(self.table.eps)
        e = np.concatenate([falls, t])
        rest, bounds = -np.expm1(-table.eps[:0:-1]), (table.lower, table.upper)
        d, most = (np.concatenate([rest + falls * known[:0:-1], known]) for known in bounds)
        rise, rounding = most[None, :] - d[:, None], 1e-15 * (most[None, :] + d[:, None])
        gap = e[:, None] - e[None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            above = np.where(gap > 0, (rise + rounding) / gap, np.inf).min(axis=1)
            below = np.where(gap < 0, (rise + rounding) / gap, 0.0).max(axis=1)
        high = np.minimum(np.minimum(above * (1 + 1e-12), (1 - d) / e), 1.0)
        low = np.clip(below * (1 - 1e-12), 0.0, high)
        chosen = (d > 0) & (high >= 0)
        q = low[chosen, None] + (high - low)[chosen, None] * np.linspace(0, 1, SIZES) ** 2
        return np.stack([e, d], axis=1)[chosen], q

    def lower(self, eps: float) -> float:
        """A lower bound of delta at eps: that of the best of several scores, the larger or the smaller privacy loss.

        A score that prefers a set S makes the best run lie in S with probability r(P(S)), r = reach, one that avoids it
        with w(P(S)), w = within. The smallest difference to the neighbour over all admitted Q(S) counts
        (docs/theory/tuning.md, "Lower ends").
        """
        sets, q = self._sets
        if not len(sets):
            return 0.0
        e, d = sets[:, :1], sets[:, 1:]
        ratio = math.exp(min(eps, MAX_EXPONENT)) * (1 + ROUNDING)
        p = np.minimum(d + e * q, 1.0)
        middle, half = (q[:, 1:] + q[:, :-1]) / 2, np.diff(q) / 2
        p_middle = np.minimum(d + e * middle, 1.0)
        reached, other = self.repeats.reach(p) * (1 - ROUNDING), ratio * self.repeats.reach(middle)
        change = ratio * self.repeats.slope(middle) * half
        prefers = np.minimum(reached[:, :-1] - other + change, reached[:, 1:] - other - change)
        kept, other = self.repeats.within(p_middle) * (1 - ROUNDING), ratio * self.repeats.within(q)
        change = self.repeats.slope(1 - p_middle) * e * half
        avoids = np.minimum(kept - change - other[:, :-1], kept + change - other[:, 1:])
        return max(0.0, float(np.max([prefers.min(axis=1), avoids.min(axis=1)])))


def _envelope(slopes: Array, heights: Array) -> tuple[Array, Array]:
    """The maximum of 0 and of the lines slopes t - heights, t > 0: increasing slopes, and where each line begins."""
    order = np.lexsort((heights, slopes))
    hull = [(0.0, 0.0, 0.0)]  # slope, height, beginning
    for a, b in zip(slopes[order].tolist(), heights[order].tolist(), strict=True):
        if a <= hull[-1][0]:
            continue  # of lines of one slope the highest came first
        while True:
            a0, b0, start = hull[-1]
            begin = (b - b0) / (a - a0)
            if begin > start or len(hull) == 1:
                break
            hull.pop()
        hull.append((a, b, begin))
    lines = np.array(hull[1:])
    return lines[:, 0], lines[:, 2]


# Curves of the best of K runs, K random, from the certified profile of one run.

SOURCE = "the best of K runs: Koskela, Redberg, Wang 2024 and Papernot, Steinke 2022, sharpened (docs/theory/tuning.md)"
# intervals between points of the profile of one run, and the largest eps at which it is used
POINTS, LARGEST_EPS = 159, 300.0
# the same for shuffled batches, where each point takes a composition of many parts, and for largest batches, whose
# wide brackets are intersected with other bounds at each point; these reach farther than asked, by the first factor,
# for the next question, and serve up to the second one
SLOW_POINTS, FARTHER, REUSED_UP_TO = 24, 1.25, 2.0
# counted work (nanoseconds of a usual processor) after which slow points are left to bounds that are quick, or left out
TABLE_WORK = 2.5e9
# times that the profile is evaluated anew, up to where delta is as small as the answer before
PASSES = 4
# relative width asked of the profile of one run: its bracket is wider than this anyway after the selection
PROFILE_TOL = 1e-5
# the same for largest batches, whose bracket is wide however finely its two ends are computed
CUT_TOL = 0.1
# share by which the largest loss of a run is raised for rounding
LOSS_ROUNDING = 1e-12
# the same for a mean of deltas
MEAN_ROUNDING = 1e-12
# delta at which the profile of one run ends where bounds on attacks are computed
ATTACK_DELTA = 1e-7


@dataclass(frozen=True)
class OneRun:
    """The privacy profile of one run, evaluated once for all questions about the best of K such runs.

    Args:
        curve: of one run; a rigorous one of (eps, delta)-DP. largest: an upper bound of its privacy loss, in nats.
    Raises:
        Unsupported: the curve is no such guarantee.
    """

    curve: Curve
    largest: float
    _tables: list[tuple[float, ProfileTable]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        curve = self.curve
        if not curve.is_proven:
            raise Unsupported(
                f"`repeats` needs a proven curve of (eps, delta)-DP of one run; {curve.accountant} gives one of "
                f"{curve.notion}, claim {curve.claim}. Use `accountant='pld'` or `accountant='rdp'`"
            )

    def table(self, top: float) -> ProfileTable:
        """Return bounds of delta at increasing eps up to ``top`` nats, and at the largest loss."""
        if top > LARGEST_EPS:
            raise Unsupported(
                f"`repeats` needs the profile of one run, whose eps is {text(top, up=True)} here: beyond "
                f"{LARGEST_EPS:g} no bound is computed. Add noise, or run fewer steps"
            )
        most = top * (1.0 if is_quick(self.curve.process) else REUSED_UP_TO)
        for reach, table in self._tables:
            if top <= reach <= most:
                return table
        top = top if is_quick(self.curve.process) else min(top * FARTHER, LARGEST_EPS)
        grid, points = self._points(max(min(top, self.largest), 1e-9))
        if grid[-1] < self.largest <= LARGEST_EPS:
            grid, points = np.append(grid, self.largest), [*points, delta_ends(self.curve.delta_bracket, self.largest)]
        upper = np.minimum.accumulate([high for _, high in points])
        upper[grid >= self.largest] = 0.0
        lower = np.minimum(np.maximum.accumulate([low for low, _ in points][::-1])[::-1], upper)
        table = ProfileTable(grid, upper, lower)
        self._tables.append((top, table))
        return table

    def _points(self, top: float) -> tuple[Array, list[tuple[float, float]]]:
        """Evaluate delta at evenly spaced eps up to ``top``: at seven first, and between them as far as work allows.

        The largest eps, which can take by far the most work and matters least, comes last.

        Returns:
            [k] increasing eps in nats, and the lower and the upper end of delta at each.
        """
        last = POINTS if is_quick(self.curve.process) else SLOW_POINTS
        grid, end, known = np.linspace(0.0, top, last + 1), counted_work.total() + TABLE_WORK, {}
        first = range(0, last, last // 6)
        for at in (*first, *(k for k in range(last) if k % 2 == 0), *range(1, last, 2), last):
            if at not in known and (at in first or at == last or counted_work.total() < end):
                with counted_work.stop_at(end):
                    known[at] = delta_ends(self.curve.delta_bracket, float(grid[at]))
        return grid[sorted(known)], [known[at] for at in sorted(known)]

    def selection(self, repeats: Repeats, top: float) -> Selection:
        """The bounds of the best run, from the profile of one run up to an eps of ``top``."""
        return Selection(self.table(top), repeats)

    def top(self, delta: float) -> float:
        """The eps of one run at a small delta; 0 where none is known."""
        try:
            value = float(self.curve.epsilon_bracket(min(max(delta, 1e-290), 0.5)).safe)
        except Unsupported:
            return 0.0
        return value if math.isfinite(value) else 0.0


def one_run(process: Process, accountant: str, tol: float) -> OneRun:
    """The profile of one run, asked for a relative width ``tol``; Unsupported without a proven curve."""
    return OneRun(evaluate.curve(process, accountant, profile_tol(process, tol)), largest_loss([process]))


def of_best(run: OneRun, repeats: Repeats) -> Curve:
    """The curve of the best of K runs, from the profile of one run.

    From pld, the bound by the profile that Renyi divergences give is taken where it is smaller. It can be, by about the
    spacing of the points, only where every loss is bounded.
    """
    best = repeated(run, repeats)
    if run.curve.accountant != "pld" or math.isinf(run.largest):
        return best
    try:
        return _least(best, repeated(OneRun(evaluate.curve(run.curve.process, "rdp"), run.largest), repeats))
    except Unsupported:
        return best


def of_candidates(
    processes: Sequence[Process], weights: Sequence[float], accountant: str, tol: float, repeats: Repeats
) -> Curve:
    """The curve of the best of K runs, each of which draws its process with these probabilities and shows which."""
    curves = [evaluate.curve(process, accountant, profile_tol(process, tol)) for process in processes]
    return repeated(OneRun(_mixture(curves, weights), largest_loss(processes)), repeats)


def _mixture(curves: Sequence[Curve], weights: Sequence[float]) -> Curve:
    """The curve of a run that draws one of several processes: ``docs/theory/tuning.md``, Lemma 5.

    delta is at most the mean of the deltas, and eps at most the largest eps. The lower end of delta is that of one
    process, times its probability.
    """
    if len(curves) == 1:
        return curves[0]
    weak = next((curve for curve in curves if not curve.is_proven), curves[0])

    def delta(eps: float) -> Bracket:
        ends = [delta_ends(curve.delta_bracket, eps) for curve in curves]
        high = math.fsum(weight * high for weight, (_, high) in zip(weights, ends, strict=True))
        low = max(weight * low for weight, (low, _) in zip(weights, ends, strict=True))
        high = min(high * (1 + MEAN_ROUNDING), 1.0)
        return Bracket(high, min(low, high), high)

    def epsilon(delta: float) -> Bracket:
        return Bracket.above(max(curve.epsilon_bracket(delta).safe for curve in curves))

    return dataclasses.replace(weak, delta_bracket=delta, epsilon_bracket=epsilon, tol=None, orders=())


def _least(best: Curve, other: Curve) -> Curve:
    """The curve ``best`` with the smaller of the upper bounds of two curves."""

    def smaller(first: Bracket, second: Bracket) -> Bracket:
        high = min(first.safe, second.safe)
        return Bracket(high, min(first.lower or 0.0, high), high)

    return dataclasses.replace(
        best,
        delta_bracket=lambda eps: smaller(best.delta_bracket(eps), other.delta_bracket(eps)),
        epsilon_bracket=lambda delta: smaller(best.epsilon_bracket(delta), other.epsilon_bracket(delta)),
    )


def repeated(run: OneRun, repeats: Repeats) -> Curve:
    """The curve of the best of K runs, by any score that a run itself reveals.

    Returns:
        A curve of claim upper-bound; its lower end is that of the score for which it costs most among those tried.
    """
    curve, mean, pure = run.curve, float(repeats.mean), float(repeats.pure_eps(run.largest))

    def epsilon(delta: float) -> Bracket:
        # where one run has distinguishing events, a smaller delta has no eps
        tops = (run.top(share * delta / max(mean, 1.0)) for share in (0.03, 0.3, 0.95))
        # a score that ranks all runs alike releases one of them, if any
        alike, share = 0.0, delta / float(repeats.reach(1.0))
        with contextlib.suppress(Unsupported):
            alike = float(curve.epsilon_bracket(share).lower or 0.0) if share < 1 else 0.0
        if math.isinf(alike):
            return Bracket(math.inf, math.inf, math.inf)
        selection = run.selection(repeats, next((top for top in tops if top > 0), 0.0))
        high, low = _solved(selection, delta)
        high = min(high, pure)
        return Bracket(high, min(max(low, alike), high), high)

    def delta(eps: float) -> Bracket:
        top = max(1.25 * eps, run.top(1e-3))
        high, low = 1.0, 0.0
        for _ in range(PASSES):
            selection = run.selection(repeats, top)
            before, high = high, min(high, selection.upper(eps) if eps < pure else 0.0)
            low = max(low, selection.lower(eps))
            top = run.top(max(0.03 * high / max(mean, 1.0), 1e-100))
            if top == 0 or not 0 < high < 0.99 * before:
                break
        alike = float(repeats.reach(1.0)) * delta_ends(curve.delta_bracket, eps)[0] * (1 - 1e-12)
        return Bracket(high, min(max(low, alike), high), high)

    best = dataclasses.replace(curve, delta_bracket=delta, epsilon_bracket=epsilon, tol=None, orders=())
    source = f"{curve.source}; {SOURCE}"
    return dataclasses.replace(best, claim="upper-bound", source=source, pure_epsilon=lambda: Bracket.above(pure))


def curve_for_attacks(run: OneRun, repeats: Repeats) -> Curve:
    """Upper bounds of delta of the best of K runs at many eps, from one table of the profile of one run.

    They hold for either order of the neighbours; they have no lower ends, since the best run by the score at hand may
    show less than the best run by the worst score.
    """
    selection = run.selection(repeats, run.top(ATTACK_DELTA / max(float(repeats.mean), 1.0)))
    return dataclasses.replace(repeated(run, repeats), delta_bracket=lambda eps: Bracket.above(selection.upper(eps)))


def largest_loss(processes: Iterable[Process]) -> float:
    """The largest privacy loss of several processes, raised for rounding: they are DP with this eps and delta = 0."""
    return max(map(evaluate.largest_loss, processes)) * (1 + LOSS_ROUNDING)


def _solved(selection: Selection, delta: float) -> tuple[float, float]:
    """The upper and a lower end of eps at delta."""
    guess = float(selection.table.eps[-1])
    limit = 4 * LARGEST_EPS
    if selection.upper(limit) > delta:
        return math.inf, 0.0
    high = smallest_meeting(lambda eps: selection.upper(eps) - delta, guess, high=limit, rtol=1e-9)
    # where the lower bound exceeds delta, eps is too small; the last eps tried that does is a lower end
    low, step = 0.0, high / 2
    for _ in range(40):
        if selection.lower(low + step) > delta:
            low += step
        step /= 2
    return high, low


def profile_tol(process: Process, tol: float) -> float:
    """The relative width of the profile of one run, where ``tol`` was asked."""
    return max(tol, PROFILE_TOL if is_quick(process) else CUT_TOL)


def is_quick(process: Process) -> bool:
    """Return whether delta at one eps is quick to compute: not for shuffled batches, nor with a largest batch."""
    return not any(step.sampling.kind == "shuffle" or step.sampling.max_batch for step in process.steps)


# Private tuning: the guarantee of the best of K runs, K random, beside that of one run and of all runs.

SELECTED = (
    "the best of K runs is released, by a score that the run itself reveals or that uses no private records; K "
    "{number} with mean {mean:g}, drawn afresh and independently of the records and of all results; K itself, the "
    "other runs and their scores are never shown"
)


def answer(
    process: Process,
    accountant: str,
    repeats: str | Repeats,
    *,
    eps: float | None = None,
    delta: float | None = None,
    tol: float,
    attack: bool = False,
) -> Guarantee:
    """The guarantee of the best of K runs at one eps or delta, with that of one run and of the release of all runs.

    ``extra["repeats"]`` has the distribution, and ``one_run`` and ``all_runs``: the answer for a single run, and for
    the mean number of runs (rounded) if every one were released; None where the accountant has none. With ``attack``,
    ``extra["attack"]`` has upper bounds on attacks.

    Raises:
        UsageError: the distribution is not written as one. Unsupported: a fixed number of runs, or no proven curve.
    """
    try:
        chosen = parse(repeats)
    except FixedRuns as error:
        raise _fixed(process, accountant, error, eps, delta, tol) from None
    run = one_run(process, accountant, tol)
    row = evaluate.ask(of_best(run, chosen), eps=eps, delta=delta)
    others = {
        name: _figure(process, accountant, n, eps, delta, tol)
        for name, n in (("one_run", 1), ("all_runs", max(1, round(chosen.mean))))
    }
    row = with_note(row, chosen, **others)
    if not attack:
        return row
    if is_quick(process):
        run = one_run(process, accountant, attacks.WIDEST_TOL)
    return row.with_extra(attack=attacks.attack_bounds(curve_for_attacks(run, chosen), from_above=True))


def with_note(row: Guarantee, repeats: Repeats, **figures: float | None) -> Guarantee:
    """The guarantee with the distribution in ``extra["repeats"]``, and what it assumes in ``extra["reading"]``."""
    note = SELECTED.format(number=f"of a {repeats.kind} distribution", mean=repeats.mean)
    return row.with_extra(reading=[note], repeats={**repeats.describe(), **figures})


def curve_of(process: Process, accountant: str, tol: float, repeats: str | Repeats | None) -> Curve:
    """The curve of a process, or of the best of K runs of it."""
    if repeats is None:
        return evaluate.curve(process, accountant, tol)
    return of_best(one_run(process, accountant, tol), parse(repeats))


def facts(repeats: dict[str, Any], unknown: str) -> list[tuple[str, str]]:
    """Return the budgets of one run and of the release of all runs, each with its label."""
    name = "delta" if unknown == "delta" else "eps"
    one, every = repeats["one_run"], repeats["all_runs"]
    count = max(1, round(repeats["mean"]))
    rows = [] if one is None else [("one run", f"{name} = {text(one, up=True)}")]
    return rows if every is None or count == 1 else [*rows, (f"all {count} runs", f"{name} = {text(every, up=True)}")]


def _figure(
    process: Process, accountant: str, runs: int, eps: float | None, delta: float | None, tol: float
) -> float | None:
    """The safe end for a number of runs that are all released; None where the accountant has no answer."""
    try:
        steps = tuple(dataclasses.replace(step, n=step.n * runs) for step in process.steps)
        curve = evaluate.curve(process.with_steps(steps), accountant, profile_tol(process, tol))
        row = evaluate.ask(curve, eps=eps, delta=delta)
    except (Unsupported, UsageError):
        return None
    return float((row.delta if delta is None else row.epsilon).safe)


def _fixed(
    process: Process, accountant: str, error: FixedRuns, eps: float | None, delta: float | None, tol: float
) -> Unsupported:
    """The refusal of a fixed number of runs, with what composition gives for it."""
    value = None if error.runs is None else _figure(process, accountant, error.runs, eps, delta, tol)
    if value is None:
        return Unsupported(str(error))
    name, at = ("eps", f"delta = {echo(delta)}") if delta is not None else ("delta", f"eps = {echo(eps or 0.0)}")
    return Unsupported(
        f"{error}. All {error.runs} runs together have {name} = {text(value, up=True)} at {at} by {accountant}"
    )
