"""Markov-ADP: delta from the best exponential bound of each tail of the loss (the privacy loss classes paper, Theorem 3).

delta(eps) = integral over y > eps of e^(eps-y) P(L > y) dy, with P(L > y) replaced by min(1, min over l of e^(K(l) - l y)). It
must not be confused with ``markov_sum``, the literal sum on a user's grid, of which this is the limit of fine grids; ``rdp``
uses one order for all y and is nevertheless sharper in every case tried, since it bounds the whole integrand at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from wpriv.accountants._moment_bounds import LAMBDAS, LogMoments
from wpriv.core.guarantee import Bracket, Curve, epsilon_at, safe_exp
from wpriv.core.process import Process
from wpriv.numerics.arrays import Array
from wpriv.numerics.root_finding import minimize_quasiconvex

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Sommer, Meiser, Mohammadi 2019, Theorem 3 (sign corrected, limit of fine grids)"
EXPLAIN = """\
delta <= w + integral over y > eps of e^(eps-y) T(y) dy, T(y) = min over l >= 0 of exp(K(l) - l y), K(l) the sum of ln E e^(l loss).
A rigorous upper bound for every mechanism, distinguishing events included (w = 1 - prod (1-w_i)); both orders of the neighbours.
Markov's inequality point by point: looser than rdp and pld."""
_COARSE = np.concatenate([[0.0], np.geomspace(*LAMBDAS, 145)])


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """The Markov-ADP accountant, for every process; ``tol`` is not used."""
    runs = [LogMoments(run) for run in process.directions()]
    if any(math.isinf(run.log_finite) for run in runs):  # no loss is finite in one order: delta is 1 at every eps
        return Curve(
            process, "markov", NOTION, CLAIM, SOURCE, lambda _: Bracket.above(1.0), lambda _: Bracket.above(math.inf)
        )
    coarse = [_lines(run, _COARSE) for run in runs]
    top = max(run.top for run in runs)

    def log_delta(eps: float, lines: list[Lines]) -> float:
        logs = [
            -math.inf if eps >= run.top else _log_integral(*line, eps) for run, line in zip(runs, lines, strict=True)
        ]
        events = [math.log(run.mass_at_plus_infinity) if run.mass_at_plus_infinity > 0 else -math.inf for run in runs]
        return min(0.0, float(max(np.logaddexp(logs, events))))

    def around(eps: float) -> list[Lines]:
        return [_lines(run, _orders_at(*line, eps)) for run, line in zip(runs, coarse, strict=True)]

    def delta(eps: float) -> Bracket:
        return Bracket.above(safe_exp(log_delta(eps, around(eps))))

    def epsilon(delta: float) -> Bracket:
        lines, eps = coarse, math.inf
        for _ in range(
            3
        ):  # every set of lines gives an upper bound; the coarse ones only say where to lay the fine ones
            eps = min(eps, epsilon_at(lambda x, lines=lines: log_delta(x, lines), delta, high=top))  # type: ignore[misc]
            if math.isinf(eps):
                break
            lines = around(eps)
        return Bracket.above(eps)

    return Curve(process, "markov", NOTION, CLAIM, SOURCE, delta, epsilon)


Lines = tuple[Array, Array]


def _lines(run: LogMoments, lam: Array) -> Lines:
    """The orders and K at them, where finite. The first order is 0: there the bound is the probability that the loss is finite."""
    line = np.concatenate([[run.log_finite], run(lam[1:])])
    return lam[np.isfinite(line)], line[np.isfinite(line)]


def _orders_at(lam: Array, line: Array, eps: float) -> Array:
    """Some 400 orders around those that matter at eps: whose stretch of the envelope holds more than e^-45 of the integrand's peak."""
    start = np.maximum(_crossings(lam, line), eps)
    height = line - lam * start + eps - start
    first = int(np.searchsorted(start, eps, side="right")) - 1
    last = int(np.flatnonzero(height > height[first] - 45)[-1])
    low, high = lam[max(first - 1, 0)], lam[min(last + 1, lam.size - 1)]
    near = lam[max(first - 1, 0) : last + 2]
    orders = np.unique(
        np.concatenate([[0.0], near, np.linspace(low, high, 300), np.geomspace(max(low, high / 1e3), high, 100)])
    )
    # between two that are nearly the same, rounding decides where their lines cross
    return orders[np.diff(orders, prepend=-1.0) > 1e-6 * orders]


def _log_integral(lam: Array, line: Array, eps: float) -> float:
    """ln of the integral of e^(eps-y) T(y) over y > eps, from above: T is replaced by the lower envelope of finitely many lines.

    ln T(y) is concave and each K(l) - l y touches it, so that 400 of them around the orders that matter exceed T by about 1e-4
    relative; the integral of the envelope has a closed form.
    """
    start = np.maximum(_crossings(lam, line), eps)
    stop = np.append(start[1:], math.inf)
    # the integral of e^(eps - y + K - lam y) over [start, stop]
    with np.errstate(divide="ignore"):
        share = np.log(-np.expm1(-(1 + lam) * (stop - start)))
    return float(np.logaddexp.reduce(eps - start + line - lam * start - np.log1p(lam) + share))


def _crossings(lam: Array, line: Array) -> Array:
    """Where line i takes over from line i-1 as the lowest; -inf for the first. K is convex, so these increase."""
    return np.maximum.accumulate(np.concatenate([[-math.inf], np.diff(line) / np.diff(lam)]))


def markov_tail(log_moments: Callable[[Array], Array], y: float) -> float:
    """T(y) = min(1, min over l > 0 of e^(K(l) - l y)), the bound of P(L > y) that Theorem 3 sums."""
    return math.exp(min(0.0, minimize_quasiconvex(lambda lam: log_moments(lam) - lam * y, *LAMBDAS)[1]))


def markov_sum(tail: Callable[[float], float], eps: float, step: float, cells: int) -> float:
    """Theorem 3 word for word (sign corrected), on the grid eps, eps + step, ..., eps + cells step: an upper bound on any grid.

    Args:
        tail: T(y), such as ``markov_tail`` of a run.
        step, cells: width and number of cells; the bound falls towards that of ``account`` as step -> 0, cells -> inf.
    Source:
        Sommer, Meiser, Mohammadi (2019), Theorem 3, with [T(y_(j-1)) - T(y_j)] as in its proof.
    """
    bound = [tail(eps + step * j) for j in range(cells + 1)]
    return bound[-1] + math.fsum(-math.expm1(-step * j) * (bound[j - 1] - bound[j]) for j in range(1, cells + 1))
