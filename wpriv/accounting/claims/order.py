"""Which of two processes is more private: the order of their privacy profiles, decided between bracketed points.

Convexity bounds a profile between points from both sides, so that the order is proven there, and not only at the
points: docs/theory/order-of-curves.md has the proof.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.accounting import evaluate
from wpriv.accounting.build_process import described_process
from wpriv.accounting.claims.decision import delta_ends, known_by_guarantee
from wpriv.accounting.evaluate import is_bound_only
from wpriv.core.guarantee import Curve
from wpriv.core.mechanism import Mechanism
from wpriv.core.membership import exact_mu, order_names
from wpriv.core.process import Process
from wpriv.core.trade_off import DeltaEnds, largest_excess, lines_below, outward
from wpriv.errors import Unsupported, UsageError
from wpriv.files.shown import Shown
from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.numbers import finite_number, short, text

DOMINATES, DOMINATED, EQUAL, CROSSES, UNDECIDED = "dominates", "dominated", "equal", "crosses", "undecided"
WORDS = {
    DOMINATES: "A is more private than B",
    DOMINATED: "B is more private than A",
    EQUAL: "A and B are equally private",
    CROSSES: "the curves of A and B cross",
    UNDECIDED: "the order of A and B is undecided",
}
# cells at the beginning; the most points; the width in eps up to which a crossing is narrowed
FIRST_CELLS, MAX_POINTS, CROSSING_WIDTH = 16, 500, 1e-3
# relative rounding of lines and chords, with a margin
LINE_ROUNDING = 1e-12

# one entry for each cell
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Crossing:
    """An interval of eps in which the two curves change places, with bounds of delta there.

    Args:
        eps_lower, eps_upper: certified at both ends: before, the curve ``first`` is lower, and after it the other.
        delta_lower, delta_upper: both curves at the crossing lie between these.
        first: "A" or "B", the curve that is lower at ``eps_lower``.
    """

    eps_lower: float
    eps_upper: float
    delta_lower: float
    delta_upper: float
    first: str

    def __str__(self) -> str:
        eps = Bracket(self.eps_upper, self.eps_lower, self.eps_upper).text()
        delta = Bracket(self.delta_upper, self.delta_lower, self.delta_upper).text()
        after = "B" if self.first == "A" else "A"
        return f"at an eps in {eps}, delta in {delta}: before it {self.first} has the smaller delta, after it {after}"


@dataclass(frozen=True)
class CurveOrder:
    """The order of two curves on [0, top].

    Args:
        verdict: of A beside B. ``dominates``: delta of A is at most that of B at every eps of the range; ``dominated``:
            the reverse; ``equal``: each is at most (1 + within) times the other; ``crosses``: each is certified to be
            larger somewhere; ``undecided``.
        points: number of eps at which both were bracketed. crossings: at least these.
        open_eps: an interval in which the order is not proven, of an undecided comparison.
    """

    verdict: str
    points: int
    crossings: tuple[Crossing, ...] = ()
    open_eps: tuple[float, float] | None = None


@dataclass(frozen=True)
class _Points:
    """Both curves at increasing eps: [k] each."""

    eps: Array
    a: tuple[Array, Array]
    b: tuple[Array, Array]

    def signs(self) -> Array:
        """-1 where A is certified to be below B, +1 where above, 0 elsewhere."""
        return np.where(self.a[1] < self.b[0], -1, np.where(self.a[0] > self.b[1], 1, 0))


def order_curves(
    a: DeltaEnds, b: DeltaEnds, top: float, within: float, *, kinks: tuple[float, ...] = (), work: float = math.inf
) -> CurveOrder:
    """Decide the order of two curves on 0 <= eps <= top.

    Args:
        a, b: lower and upper end of delta at eps >= 0, of profiles that are convex in e^eps.
        within: the relative difference up to which curves that cannot be ordered are called equal.
        kinks: eps at which a curve may have a kink; they become points.
        work: amount of ``numerics.counted_work`` after which no further point is added.
    """
    is_out_of_work = counted_work.limit(work)
    known: dict[float, tuple[float, float, float, float]] = {}

    def evaluate(values: list[float]) -> None:
        for eps in values:
            if eps not in known and (len(known) < FIRST_CELLS or not is_out_of_work()):
                known[eps] = (*outward(a(eps)), *outward(b(eps)))

    evaluate([top * k / FIRST_CELLS for k in range(FIRST_CELLS + 1)])
    evaluate([eps for eps in kinks if 0 < eps < top])
    while True:
        points = _points(known)
        signs = points.signs()
        if (signs < 0).any() and (signs > 0).any():
            return CurveOrder(CROSSES, len(known), _crossings(points, evaluate, known))
        below, above = lies_below(points.eps, points.a[1], points.b), lies_below(points.eps, points.b[1], points.a)
        if below.all() or above.all():
            one_sided = DOMINATES if below.all() else DOMINATED
            return CurveOrder(EQUAL if below.all() and above.all() else one_sided, len(known))
        equal = _near(points, within)
        proven = below if (signs < 0).any() else above if (signs > 0).any() else equal
        if proven.all():
            return CurveOrder(EQUAL, len(known))
        split = [
            (left + right) / 2 for (left, right), done in zip(pairwise(points.eps), proven, strict=True) if not done
        ]
        count = len(known)
        if len(known) + len(split) <= MAX_POINTS:
            evaluate([float(eps) for eps in split])
        if len(known) == count:
            if equal.all():
                return CurveOrder(EQUAL, count)
            at = int(np.flatnonzero(~proven)[0])
            return CurveOrder(UNDECIDED, count, open_eps=(float(points.eps[at]), float(points.eps[at + 1])))


def lies_below(eps: Array, upper: Array, other: tuple[Array, Array]) -> Mask:
    """Tell for every cell between neighbouring points whether one curve is proven to be below another.

    Args:
        eps: [k] increasing. upper: [k] upper ends of the one curve. other: lower and upper ends of the other, [k] each.
    Returns:
        [k-1] booleans.
    """
    # t in units of its largest value: exponentials of differences, so that nothing overflows
    t = np.exp(eps - eps[-1])
    # the difference of two t that are nearly 1 would keep few digits, or none
    width = -t[1:] * np.expm1(-np.diff(eps))
    with np.errstate(invalid="ignore", divide="ignore"):
        _, lines = lines_below(*other, width)
        excess = largest_excess((upper[:-1], upper[1:]), lines, (1.0, 1.0))
    scale = LINE_ROUNDING * (upper[:-1] + np.abs(other[1][:-1]))
    proven: Mask = (excess <= -scale) | ((upper[:-1] == 0) & (upper[1:] == 0))
    return proven


def _near(points: _Points, within: float) -> Mask:
    """The cells on which each curve is proven to be at most (1 + within) times the other."""
    factor = 1 + within
    first = lies_below(points.eps, points.a[1], (factor * points.b[0], factor * points.b[1]))
    return first & lies_below(points.eps, points.b[1], (factor * points.a[0], factor * points.a[1]))


def _points(known: dict[float, tuple[float, float, float, float]]) -> _Points:
    """The known points by increasing eps, with ends made monotone: both curves decrease."""
    eps = np.array(sorted(known))
    values = np.array([known[float(e)] for e in eps]).T
    lows = [np.maximum.accumulate(row[::-1])[::-1] for row in (values[0], values[2])]
    highs = [np.minimum.accumulate(row) for row in (values[1], values[3])]
    return _Points(eps, (lows[0], highs[0]), (lows[1], highs[1]))


def _crossings(
    points: _Points, evaluate: Callable[[list[float]], None], known: dict[float, tuple[float, float, float, float]]
) -> tuple[Crossing, ...]:
    """The places where neighbouring certified signs differ, narrowed by bisection as far as the brackets allow."""
    signs = points.signs()
    certain = np.flatnonzero(signs)
    crossings = []
    for left, right in pairwise(certain):
        if signs[left] == signs[right]:
            continue
        low, high = float(points.eps[left]), float(points.eps[right])
        while high - low > CROSSING_WIDTH:
            middle = (low + high) / 2
            evaluate([middle])
            ends = known.get(middle, (0.0, 1.0, 0.0, 1.0))
            sign = -1 if ends[1] < ends[2] else 1 if ends[0] > ends[3] else 0
            if sign == 0:
                break
            low, high = (middle, high) if sign == signs[left] else (low, middle)
        delta = max(min(known[high][0], known[high][2]), 0.0), max(known[low][1], known[low][3])
        crossings.append(Crossing(low, high, *delta, "A" if signs[left] < 0 else "B"))
    return tuple(crossings)


# relative width of the brackets, the relative difference of curves that are called equal, the end of the range
ORDER_TOL, WITHIN, SMALLEST_DELTA = 1e-5, 1e-2, 1e-10
# the end of the range where no finite eps holds at that delta; counted work (ns of a usual processor) of one comparison
FARTHEST, MAX_WORK = 10.0, 15e9
# the largest end of a range, for which e^eps is a number
MAX_EPS = 500.0


@dataclass(frozen=True, repr=False)
class PrivacyOrder(Shown):
    """The order of two processes, A beside B.

    Args:
        a, b: the processes.
        top: the largest eps of the range; inf where the order holds at every eps.
        within: the relative difference of curves that are called equal; 0 where they are the same.
        worst: the order of the curves of both orders of the neighbours together, which every guarantee is about.
        orders: the same for each order of the neighbours alone, by name, where both processes have two.
        reason: how the verdict was reached. warnings: what must be said beside it.
    """

    a: Process
    b: Process
    top: float
    within: float
    worst: CurveOrder
    orders: dict[str, CurveOrder]
    reason: str
    warnings: tuple[str, ...] = ()

    def sentence(self) -> str:
        top = text(self.top, up=False)
        if math.isinf(self.top):
            return WORDS[self.verdict] + (" at every eps" if self.verdict != CROSSES else "")
        if self.verdict == EQUAL:
            return f"{WORDS[EQUAL]}, within {short(self.within)} of delta (relative), for every eps from 0 to {top}"
        every = self.verdict in (DOMINATES, DOMINATED)
        return WORDS[self.verdict] + (f" for every eps from 0 to {top}" if every else f" between eps = 0 and {top}")

    def facts(self) -> list[tuple[str, str]]:
        """Both processes, the crossings, the order for each order of the neighbours, and the reason."""
        rows = [("A", str(self.a)), ("B", str(self.b))]
        rows += [("crossing", str(each)) for each in self.worst.crossings]
        for name, one in self.orders.items():
            rows.append((f"order {name}", WORDS[one.verdict]))
            rows += [(f"order {name}", str(each)) for each in one.crossings]
        return [*rows, ("reason", self.reason)]

    @property
    def verdict(self) -> str:
        """dominates (A is more private), dominated, equal, crosses or undecided."""
        return self.worst.verdict

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line (schema ``wpriv.order/1``), with infinities still floats."""
        both = {"a": self.a, "b": self.b}
        return {
            **{"verdict": self.verdict, "eps_lower": 0.0, "eps_upper": self.top, "within": self.within},
            **{key: value for key, value in asdict(self.worst).items() if key != "verdict"},
            "orders": {name: asdict(order) for name, order in self.orders.items()},
            "reason": self.reason,
            **{k: {"adjacency": str(p.adjacency), "group": p.group, "process": p.describe()} for k, p in both.items()},
            "warnings": list(self.warnings),
        }


def privacy_order(
    a: Process | Mechanism | str,
    b: Process | Mechanism | str,
    *,
    eps: float | None = None,
    delta: float | None = None,
    within: float = WITHIN,
    tol: float | None = None,
) -> PrivacyOrder:
    """Decide which of two processes is more private, from certified brackets of both privacy curves.

    Args:
        a, b: the processes, also as mechanisms or in words (``"gauss sigma=4 n=10"``).
        eps: the largest eps of the range from 0.
        delta: instead of eps, the range ends where both deltas have fallen to this (default 1e-10).
        within: relative difference of delta up to which curves that cannot be ordered are called equal.
        tol: relative width of the brackets (default 1e-5).
    Raises:
        UsageError: both eps and delta are given, or a number is out of range.
        Unsupported: a process has no curve that is known from both sides.
    """
    if eps is not None and delta is not None:
        raise UsageError("the range ends at `eps` or where both curves reach `delta`; give one of them")
    if not 0 < finite_number(within, "`within`") < 1:
        raise UsageError(f"`within` is a relative difference above 0 and below 1; found {within:g}")
    a, b = (described_process(process).process for process in (a, b))
    warnings = _warnings(a, b)
    curves = [_curve(process, tol) for process in (a, b)]
    mu, nu = map(exact_mu, curves)
    if mu is not None and nu is not None:
        verdict = EQUAL if math.isclose(mu, nu, rel_tol=1e-13) else DOMINATES if mu < nu else DOMINATED
        reason = f"both are Gaussian: {mu:.6g}-GDP and {nu:.6g}-GDP, exact at every eps"
        return PrivacyOrder(a, b, math.inf, 0.0, CurveOrder(verdict, 0), {}, reason, warnings)
    if a.directions() == b.directions():
        reason = "both have the same privacy loss distributions"
        return PrivacyOrder(a, b, math.inf, 0.0, CurveOrder(EQUAL, 0), {}, reason, warnings)
    top = _top(curves, eps, delta)
    if top > MAX_EPS:
        raise Unsupported(f"the range of an order ends at an eps of at most {MAX_EPS:g}; found {top:.6g}. Give `eps`")
    ends = [[delta_ends(order) for order in curve.orders] for curve in curves]
    kinks = tuple(sorted({kink for process in (a, b) for kink in _kinks(process)}))
    worst = order_curves(_worst(ends[0]), _worst(ends[1]), top, within, kinks=kinks, work=MAX_WORK)
    orders = {}
    count = max(map(len, ends))
    if count > 1 and a.adjacency == b.adjacency:
        for index, name in enumerate(order_names(a, count)):
            one, other = (each[min(index, len(each) - 1)] for each in ends)
            orders[name] = order_curves(one, other, top, within, kinks=kinks, work=MAX_WORK)
    reason = f"decided from certified brackets at {worst.points} values of eps, and between them by convexity"
    if worst.verdict == CROSSES:
        reason = f"each curve is certified to be the smaller one at some of {worst.points} values of eps"
    return PrivacyOrder(a, b, top, within, worst, orders, reason, warnings)


def _curve(process: Process, tol: float | None) -> Curve:
    width = max(evaluate.answer_tol(process), ORDER_TOL) if tol is None else tol
    curve = evaluate.curve(process, "pld", width, of_pair=True)
    if not curve.orders:
        raise Unsupported(
            "an order of privacy curves needs both ends of delta at every eps, which pld does not give here"
        )
    return curve


def _warnings(a: Process, b: Process) -> tuple[str, ...]:
    lines = [*a.caveats(), *b.caveats()]
    if a.adjacency != b.adjacency:
        both = f"A has {a.adjacency} neighbours and B {b.adjacency} ones"
        lines.append(f"{both}: their curves are compared, but they protect against different changes")
    for name, process in (("A", a), ("B", b)):
        if is_bound_only(process) and sum(step.n for step in process.steps) > 1:
            curve = f"the curve of {name} is that of the pair that bounds its steps"
            lines.append(f"{curve}, which no two data sets are known to have: {name} may be more private than it")
        for given in known_by_guarantee(process):
            curve = f"the curve of {name} is that of the worst release that has it"
            lines.append(f"only a guarantee of {given} is given: {curve}, and {name} may be more private than it")
    if a.group != b.group:
        lines.append(f"A protects groups of {a.group} records and B groups of {b.group}")
    return tuple(dict.fromkeys(lines))


def _top(curves: list[Curve], eps: float | None, delta: float | None) -> float:
    if eps is not None:
        if finite_number(eps, "`eps`") <= 0:
            raise UsageError(f"`eps` is the largest eps of the range, above 0; found {eps:g}")
        return float(eps)
    smallest = SMALLEST_DELTA if delta is None else finite_number(delta, "`delta`")
    if not 0 < smallest < 1:
        raise UsageError(f"`delta` is the smallest delta of the range, above 0 and below 1; found {smallest:g}")
    tops = []
    for curve in curves:
        with contextlib.suppress(Unsupported):
            tops.append(curve.epsilon_bracket(smallest).safe)
    return max((top for top in tops if 0 < top < math.inf), default=FARTHEST)


def _worst(orders: list[DeltaEnds]) -> DeltaEnds:
    """Both ends of the larger delta of the two orders; the maximum of convex functions is convex."""

    def ends(eps: float) -> tuple[float, float]:
        pairs = [order(eps) for order in orders]
        return max(low for low, _ in pairs), max(high for _, high in pairs)

    return ends


def _kinks(process: Process) -> list[float]:
    """The eps at which a profile may have a kink: the largest loss of each order, and the losses of a small pair."""
    eps = []
    for pairs in process.directions():
        eps.append(math.fsum(n * pair.support[1] for pair, n in pairs))
        if len(pairs) == 1 and pairs[0][1] == 1 and pairs[0][0].atoms.size <= 16:
            eps += [float(atom) for atom in pairs[0][0].atoms]
    return [value for value in eps if 0 < value < math.inf]
