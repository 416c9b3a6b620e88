"""Which of two processes is more private: the order of their certified privacy curves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from wpriv.core.attacks.curve_order import CROSSES, DOMINATED, DOMINATES, EQUAL, CurveOrder, order_curves
from wpriv.core.attacks.membership import exact_mu
from wpriv.core.guarantee import Curve
from wpriv.core.process import Process
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.parse_numbers import finite_number
from wpriv.run.accounting import evaluate
from wpriv.run.accounting.two_data_sets import is_bound_only
from wpriv.run.claims.decision import delta_ends, known_by_guarantee, order_names

# relative width of the brackets, the relative difference of curves that are called equal, the end of the range
ORDER_TOL, WITHIN, SMALLEST_DELTA = 1e-5, 1e-2, 1e-10
# the end of the range where no finite eps holds at that delta; counted work (ns of a usual processor) of one comparison
FARTHEST, MAX_WORK = 10.0, 15e9
# the largest end of a range, for which e^eps is a number
MAX_EPS = 500.0


@dataclass(frozen=True)
class PrivacyOrder:
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

    @property
    def verdict(self) -> str:
        """dominates (A is more private), dominated, equal, crosses or undecided."""
        return self.worst.verdict

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line (schema ``wpriv.order/1``), with infinities still floats."""
        processes = [
            {"adjacency": str(p.adjacency), "group": p.group, "process": p.describe()} for p in (self.a, self.b)
        ]
        return {
            "verdict": self.verdict,
            "eps_lower": 0.0,
            "eps_upper": self.top,
            "within": self.within,
            **{key: value for key, value in asdict(self.worst).items() if key != "verdict"},
            "orders": {name: asdict(order) for name, order in self.orders.items()},
            "reason": self.reason,
            "a": processes[0],
            "b": processes[1],
            "warnings": list(self.warnings),
        }


def privacy_order(
    a: Process,
    b: Process,
    *,
    eps: float | None = None,
    delta: float | None = None,
    within: float = WITHIN,
    tol: float | None = None,
) -> PrivacyOrder:
    """Decide which of two processes is more private, from certified brackets of both privacy curves.

    Args:
        a, b: the processes.
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
    warnings = _warnings(a, b)
    curves = [_curve(process, tol) for process in (a, b)]
    by_mu = [exact_mu(curve) for curve in curves]
    if by_mu[0] is not None and by_mu[1] is not None:
        worst = _of_mu(by_mu[0], by_mu[1])
        reason = f"both are Gaussian: {by_mu[0]:.6g}-GDP and {by_mu[1]:.6g}-GDP, exact at every eps"
        return PrivacyOrder(a, b, math.inf, 0.0, worst, {}, reason, warnings)
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
    curve = evaluate.curve(
        process, "pld", max(evaluate.answer_tol(process), ORDER_TOL) if tol is None else tol, of_pair=True
    )
    if not curve.orders:
        raise Unsupported(
            "an order of privacy curves needs both ends of delta at every eps, which pld does not give here"
        )
    return curve


def _warnings(a: Process, b: Process) -> tuple[str, ...]:
    lines = [*a.caveats(), *b.caveats()]
    if a.adjacency != b.adjacency:
        lines.append(
            f"A has {a.adjacency} neighbours and B {b.adjacency} ones: their curves are compared, but they protect "
            f"against different changes"
        )
    for name, process in (("A", a), ("B", b)):
        if is_bound_only(process) and sum(step.n for step in process.steps) > 1:
            lines.append(
                f"the curve of {name} is that of the pair that bounds its steps, which no two data sets are known to "
                f"have: {name} may be more private than it"
            )
        for given in known_by_guarantee(process):
            lines.append(
                f"only a guarantee of {given} is given: the curve of {name} is that of the worst release that has it, "
                f"and {name} may be more private than it"
            )
    if a.group != b.group:
        lines.append(f"A protects groups of {a.group} records and B groups of {b.group}")
    return tuple(dict.fromkeys(lines))


def _of_mu(a: float, b: float) -> CurveOrder:
    """The order of two Gaussian curves, which is that of their mu."""
    if math.isclose(a, b, rel_tol=1e-13):
        return CurveOrder(EQUAL, 0)
    return CurveOrder(DOMINATES if a < b else DOMINATED, 0)


def _top(curves: list[Curve], eps: float | None, delta: float | None) -> float:
    """The largest eps of the range."""
    if eps is not None:
        if finite_number(eps, "`eps`") <= 0:
            raise UsageError(f"`eps` is the largest eps of the range, above 0; found {eps:g}")
        return float(eps)
    smallest = SMALLEST_DELTA if delta is None else finite_number(delta, "`delta`")
    if not 0 < smallest < 1:
        raise UsageError(f"`delta` is the smallest delta of the range, above 0 and below 1; found {smallest:g}")
    tops = []
    for curve in curves:
        try:
            tops.append(curve.epsilon_bracket(smallest).safe)
        except Unsupported:
            continue
    finite = [top for top in tops if 0 < top < math.inf]
    return max(finite, default=FARTHEST)


def _worst(orders: list[Callable[[float], tuple[float, float]]]) -> Callable[[float], tuple[float, float]]:
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
