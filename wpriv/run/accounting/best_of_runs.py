"""Curves of the best of K runs, K random, from the certified profile of one run.

``docs/theory/tuning.md`` has the theorem and its proof; ``wpriv/numerics/selection_bound.py`` computes it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from wpriv.core.guarantee import RIGOROUS, Curve
from wpriv.core.process import Process
from wpriv.core.repeats import Repeats
from wpriv.errors import Unsupported
from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.root_finding import smallest_meeting
from wpriv.numerics.safe_rounding import text
from wpriv.numerics.selection_bound import ProfileTable, Selection
from wpriv.run.accounting import evaluate

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
        if curve.notion != "approximate-dp" or curve.claim not in RIGOROUS:
            raise Unsupported(
                f"`repeats` needs a proven curve of (eps, delta)-DP of one run; {curve.accountant} gives one of "
                f"{curve.notion}, claim {curve.claim}. Use `accountant='pld'` or `accountant='rdp'`"
            )

    def table(self, top: float) -> ProfileTable:
        """Return bounds of delta at increasing eps up to ``top`` nats, and at the largest loss.

        Raises:
            Unsupported: ``top`` is beyond every bound.
        """
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
            grid, points = np.append(grid, self.largest), [*points, _bracket(self.curve, self.largest)]
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
                    known[at] = _bracket(self.curve, float(grid[at]))
        return grid[sorted(known)], [known[at] for at in sorted(known)]

    def selection(self, repeats: Repeats, top: float) -> Selection:
        """The bounds of the best run, from the profile of one run up to an eps of ``top``."""
        return Selection(self.table(top), repeats.slope, repeats.log_fall, repeats.reach, repeats.within)

    def top(self, delta: float) -> float:
        """The eps of one run at a small delta; 0 where none is known."""
        try:
            value = float(self.curve.epsilon_bracket(min(max(delta, 1e-290), 0.5)).safe)
        except Unsupported:
            return 0.0
        return value if math.isfinite(value) else 0.0


def one_run(process: Process, accountant: str, tol: float) -> OneRun:
    """The profile of one run by an accountant, where a relative width of ``tol`` was asked.

    Raises:
        Unsupported: the accountant has no proven curve of (eps, delta)-DP.
    """
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
    """The curve of the best of K runs, each of which draws its process with these probabilities and shows which.

    Args:
        processes: under one neighbouring relation. weights: their probabilities.
    Raises:
        Unsupported: as ``repeated``.
    """
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
        ends = [_bracket(curve, eps) for curve in curves]
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
        alike = _lower_epsilon(curve, delta / float(repeats.reach(1.0)))
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
        alike = float(repeats.reach(1.0)) * _bracket(curve, eps)[0] * (1 - 1e-12)
        return Bracket(high, min(max(low, alike), high), high)

    source = f"{curve.source}; {SOURCE}"
    return dataclasses.replace(
        curve, claim="upper-bound", source=source, delta_bracket=delta, epsilon_bracket=epsilon, tol=None, orders=()
    )


def curve_for_attacks(run: OneRun, repeats: Repeats) -> Curve:
    """Upper bounds of delta of the best of K runs at many eps, from one table of the profile of one run.

    They hold for either order of the neighbours; they have no lower ends, since the best run by the score at hand may
    show less than the best run by the worst score.
    """
    selection = run.selection(repeats, run.top(ATTACK_DELTA / max(float(repeats.mean), 1.0)))

    def delta(eps: float) -> Bracket:
        return Bracket.above(selection.upper(eps))

    return dataclasses.replace(repeated(run, repeats), delta_bracket=delta)


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


def _lower_epsilon(curve: Curve, delta: float) -> float:
    """The lower end of the eps of one run; 0 where none is known."""
    try:
        return float(curve.epsilon_bracket(delta).lower or 0.0) if delta < 1 else 0.0
    except Unsupported:
        return 0.0


def profile_tol(process: Process, tol: float) -> float:
    """The relative width of the profile of one run, where ``tol`` was asked."""
    return max(tol, PROFILE_TOL if is_quick(process) else CUT_TOL)


def is_quick(process: Process) -> bool:
    """Return whether delta at one eps is quick to compute: not for shuffled batches, nor with a largest batch."""
    return not any(step.sampling.kind == "shuffle" or step.sampling.max_batch for step in process.steps)


def _bracket(curve: Curve, eps: float) -> tuple[float, float]:
    try:
        bracket = curve.delta_bracket(eps)
    except Unsupported:
        return 0.0, 1.0
    return float(bracket.lower or 0.0), min(1.0, float(bracket.safe))
