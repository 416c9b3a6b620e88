"""Markov-ADP: delta from the best exponential bound of each tail of the loss (Sommer et al. 2019, Theorem 3).

delta(eps) = integral over y > eps of e^(eps-y) P(L > y) dy, with P(L > y) replaced by min(1, min over l of e^(K(l) - l
y)). It must not be confused with ``markov_sum``, the literal sum on a given grid, whose limit for fine grids this is.
``rdp`` uses one order for all y and is nevertheless tighter in every case tried, since it bounds the whole integrand at
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.accounting.accountants._moment_bounds import LAMBDAS, LogMoments
from wpriv.core.guarantee import Curve, epsilon_at
from wpriv.core.process import Process, refuse_passes
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.root_finding import minimize_quasiconvex

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Sommer, Meiser, Mohammadi 2019, Theorem 3 (sign corrected, limit of fine grids)"
EXPLAIN = """\
delta <= w + integral over y > eps of e^(eps-y) T(y) dy, T(y) = min over l >= 0 of exp(K(l) - l y),
K(l) the sum of ln E e^(l loss).
A rigorous upper bound for every mechanism, distinguishing events included (w = 1 - prod (1-w_i)); both orders of the
neighbours. Markov's inequality point by point: looser than rdp and pld."""
_COARSE = np.concatenate([[0.0], np.geomspace(*LAMBDAS, 145)])


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for any process by Markov's inequality at every tail; ``tol`` is not used."""
    refuse_passes(process, "markov")
    directions = [LogMoments(pairs) for pairs in process.directions()]
    if any(math.isinf(at.log_finite) for at in directions):  # no loss is finite in one order: delta is 1 at every eps
        return Curve(
            process, "markov", NOTION, CLAIM, SOURCE, lambda _: Bracket.above(1.0), lambda _: Bracket.above(math.inf)
        )
    coarse = [_lines(at, _COARSE) for at in directions]
    top = max(at.top for at in directions)

    def log_delta(eps: float, lines: list[Lines]) -> float:
        logs = [
            -math.inf if eps >= at.top else _log_integral(*line, eps)
            for at, line in zip(directions, lines, strict=True)
        ]
        infinities = [at.mass_at_plus_infinity for at in directions]
        events = [math.log(infinity) if infinity > 0 else -math.inf for infinity in infinities]
        return min(0.0, float(max(np.logaddexp(logs, events))))

    def around(eps: float) -> list[Lines]:
        return [_lines(at, _orders_at(*line, eps)) for at, line in zip(directions, coarse, strict=True)]

    def delta(eps: float) -> Bracket:
        return Bracket.above(safe_exp(log_delta(eps, around(eps))))

    def epsilon(delta: float) -> Bracket:
        lines, eps = coarse, math.inf
        # every set of lines gives an upper bound; the coarse ones only determine where the fine ones are needed
        for _ in range(3):
            eps = min(eps, epsilon_at(lambda x, lines=lines: log_delta(x, lines), delta, high=top))  # type: ignore[misc]
            if math.isinf(eps):
                break
            lines = around(eps)
        return Bracket.above(eps)

    return Curve(process, "markov", NOTION, CLAIM, SOURCE, delta, epsilon)


Lines = tuple[Array, Array]


def _lines(moments: LogMoments, lam: Array) -> Lines:
    """The orders and K at them, where finite; the first order is 0, where K is ln P(the loss is finite)."""
    line = np.concatenate([[moments.log_finite], moments(lam[1:])])
    return lam[np.isfinite(line)], line[np.isfinite(line)]


def _orders_at(lam: Array, line: Array, eps: float) -> Array:
    """About 400 orders around those that matter at eps.

    An order matters where its part of the envelope reaches e^-45 of the peak of the integrand.
    """
    start = np.maximum(_crossings(lam, line), eps)
    height = line - lam * start + eps - start
    first = int(np.searchsorted(start, eps, side="right")) - 1
    last = int(np.flatnonzero(height > height[first] - 45)[-1])
    low, high = lam[max(first - 1, 0)], lam[min(last + 1, lam.size - 1)]
    near = lam[max(first - 1, 0) : last + 2]
    orders = np.unique(
        np.concatenate([[0.0], near, np.linspace(low, high, 300), np.geomspace(max(low, high / 1e3), high, 100)])
    )
    # rounding decides where the lines of nearly equal orders cross
    return orders[np.diff(orders, prepend=-1.0) > 1e-6 * orders]


def _log_integral(lam: Array, line: Array, eps: float) -> float:
    """ln of an upper bound of the integral of e^(eps-y) T(y) over y > eps: T is replaced by an envelope of lines.

    ln T(y) is concave and each K(l) - l y is tangent to it, so that the lower envelope of 400 lines around the orders
    that matter exceeds T by about 1e-4 relative; the integral of the envelope has a closed form.
    """
    start = np.maximum(_crossings(lam, line), eps)
    stop = np.append(start[1:], math.inf)
    # the integral of e^(eps - y + K - lam y) over [start, stop]
    with np.errstate(divide="ignore"):
        share = np.log(-np.expm1(-(1 + lam) * (stop - start)))
    return float(np.logaddexp.reduce(eps - start + line - lam * start - np.log1p(lam) + share))


def _crossings(lam: Array, line: Array) -> Array:
    """The y at which line i becomes lower than line i-1, -inf for the first; they increase, as K is convex."""
    return np.maximum.accumulate(np.concatenate([[-math.inf], np.diff(line) / np.diff(lam)]))


def markov_tail(log_moments: Callable[[Array], Array], y: float) -> float:
    """T(y) = min(1, min over l > 0 of e^(K(l) - l y)), the bound of P(L > y) that Theorem 3 sums."""
    return math.exp(min(0.0, minimize_quasiconvex(lambda lam: log_moments(lam) - lam * y, *LAMBDAS)[1]))


def markov_sum(tail: Callable[[float], float], eps: float, step: float, cells: int) -> float:
    """Theorem 3 as printed (sign corrected), an upper bound on any grid eps, eps + step, ..., eps + cells step.

    Args:
        tail: T(y), such as ``markov_tail`` of a run.
        step, cells: width and number of cells; the bound falls towards that of ``account`` as step -> 0, cells -> inf.
    Source:
        Sommer, Meiser, Mohammadi (2019), Theorem 3, with [T(y_(j-1)) - T(y_j)] as in its proof.
    """
    bound = [tail(eps + step * j) for j in range(cells + 1)]
    return bound[-1] + math.fsum(-math.expm1(-step * j) * (bound[j - 1] - bound[j]) for j in range(1, cells + 1))
