"""The optimal composition of n (eps0, delta0)-DP releases, exactly, at the best point of one release's profile.

Not to be confused with ``pld``, which composes the whole profile of the mechanism; the two agree for randomized
response. Unequal steps are #P-hard (Murtagh and Vadhan 2016) and refused. docs/theory/classical-bounds.md has the
proof.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from wpriv.accounting.accountants.basic import SingleRelease, single_releases
from wpriv.core.guarantee import Curve, epsilon_at
from wpriv.core.process import Process, refuse_passes
from wpriv.errors import Unsupported
from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.log_space import log1mexp, log_binomial
from wpriv.numerics.root_finding import minimize_quasiconvex

_MAX_TERMS = 2**14  # up to this number the terms are summed one by one; more terms are bounded from above in blocks
_BLOCKS = 2**12
# nanoseconds of a usual processor for a sum, and for each of its terms
CALL_WORK, TERM_WORK = 3e5, 150.0


def response_log_delta(n: int, eps0: float, log_delta0: float, eps: float) -> float:
    """ln delta(eps) of n-fold randomized response with parameters (eps0, delta0), the worst (eps0, delta0)-DP case.

    Exact to about 1e-12 in the log up to n about 1.8e6; for larger n an upper bound within 1e-4 relative.

    Args:
        eps0: loss of one release in nats, >= 0. log_delta0: ln of the probability that it reveals its input; -inf for
            0.
    Source: Kairouz, Oh, Viswanath (2017), Theorem 3.3; Sommer, Meiser, Mohammadi (2019), Example 1 with the exponent
        corrected.
    """
    if log_delta0 > -1e-15:
        return 0.0
    log_kept = n * math.log1p(-math.exp(log_delta0)) if log_delta0 > -36 else -n * math.exp(log_delta0)
    # where it is small, the probability that some release reveals its input is n delta0 to rounding, which does not
    # underflow
    log_any = math.log(n) + log_delta0
    events = log_any if log_any < -36 else float(log1mexp(min(log_kept, 0.0)))
    inner = _log_sum(n, eps0, eps)
    return float(np.logaddexp(events, log_kept + inner))


def _log_sum(n: int, eps0: float, eps: float) -> float:
    """ln of the sum over k of Binomial(k; n, p) (1 - e^(eps - eps0 (2k-n)))_+, p = 1/(1+e^-eps0)."""
    if eps0 == 0 or eps >= n * eps0:
        return -math.inf
    p, q = 1 / (1 + math.exp(-eps0)), 1 / (1 + math.exp(min(eps0, 700.0)))
    # terms farther below the mean, or farther above both it and the first term, add up to less than e^-70 of the sum
    reach = 12 * math.sqrt(n * p * q) + 60
    first = math.floor((eps / eps0 + n) / 2) + 1
    start = max(first, math.floor(n * p - reach), 0)
    stop = min(n, math.ceil(max(first, n * p) + reach))
    if stop < start:
        return -math.inf

    def term(k: Array) -> Array:
        counted_work.add(CALL_WORK + TERM_WORK * k.size)
        return log_binomial(k, n, eps0) + log1mexp(np.minimum(eps - eps0 * (2 * k - n), 0.0))

    if stop - start < _MAX_TERMS:
        return _log_total(term(np.arange(start, stop + 1, dtype=float)))
    # ln of the terms is concave in k, so that a block lies below the geometric series of its first two terms; the
    # blocks are short where the hinge function is curved, then a small part of the standard deviation
    span = stop - start + 1
    growing = np.floor(128 * (1 + 1 / 64) ** np.arange(64 * math.log(span)))
    growing = growing[np.diff(growing, append=np.inf) < span / _BLOCKS]
    edges = np.concatenate([np.arange(128), growing, np.arange(growing[-1], span, span / _BLOCKS).round(), [span]])
    at = np.unique(np.minimum(edges, span))
    length, at = np.diff(at), start + at[:-1]
    head = term(at)
    slope = np.where(at < n, term(np.minimum(at + 1, n)) - head, -1.0)
    slope = np.where(np.abs(slope) < 1e-12, 1e-12, slope)
    return _log_total(head + np.log(np.expm1(length * slope) / np.expm1(slope)))


def _log_total(logs: Array) -> float:
    peak = float(logs.max())
    return peak + math.log(float(np.exp(logs - peak).sum())) if math.isfinite(peak) else -math.inf


NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Kairouz, Oh, Viswanath 2017, Theorem 3.3; Sommer, Meiser, Mohammadi 2019, Example 1 (corrected)"
EXPLAIN = """\
delta <= min over eps0 of 1 - (1-d0)^n + (1-d0)^n E (1 - e^(eps - eps0 (2k-n)))_+, k binomial(n, 1/(1+e^-eps0)),
d0 the exact delta of one release at eps0.
A rigorous upper bound for every mechanism, adaptively chosen queries included; exact for randomized response.
Equal steps only: for unequal ones the optimum is #P-hard."""


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for equal steps by optimal composition over the exact profile of one release; ``tol`` is not used.

    Raises:
        Unsupported: the steps are not all equal.
    """
    refuse_passes(process, "kov")
    steps = single_releases(process)
    if len(steps) > 1:
        raise Unsupported(
            f"kov composes equal steps only: the optimal composition of unequal ones is #P-hard (Murtagh, Vadhan "
            f"2016); found {len(steps)} kinds of steps. Use pld, advanced or basic"
        )
    step = steps[0]

    def delta(eps: float) -> Bracket:
        return Bracket.above(safe_exp(_log_delta(step, eps)))

    def epsilon(delta: float) -> Bracket:
        def at(share: Array) -> Array:
            return _solve(step, step.epsilon(np.log(share) + math.log(delta) - math.log(step.n)), delta)

        return Bracket.above(
            float(min([minimize_quasiconvex(at, 1e-12, 1.0, rounds=4)[1], *_solve(step, _jumps(step), delta)]))
        )

    return Curve(process, "kov", NOTION, CLAIM, SOURCE, delta, epsilon)


def _solve(step: SingleRelease, eps0: Array, delta: float) -> Array:
    """[k] eps at delta of n releases, all at the same point eps0 [k] of the profile."""
    eps = np.full(eps0.shape, np.inf)
    for at in np.flatnonzero(np.isfinite(eps0)):
        x, guess = float(eps0[at]), eps[at - 1] if at and math.isfinite(eps[at - 1]) else float(eps0[at])
        log_delta0 = float(step.log_delta(eps0[at : at + 1])[0])
        profile = partial(response_log_delta, step.n, x, log_delta0)
        eps[at] = epsilon_at(profile, delta, guess=guess, high=step.n * x)
    return eps


def _jumps(step: SingleRelease) -> Array:
    """Points of the profile at which the bound may be exact: its atoms and its largest loss."""
    atoms = np.concatenate([pair.atoms for pair in step.pairs])
    return np.unique([*np.unique(atoms[atoms > 0])[-64:], min(step.top, _far(step))])


def _log_delta(step: SingleRelease, eps: float) -> float:
    """ln delta at the best eps0, by a refined grid and at the jumps of the profile, where the bound may be exact."""

    def at(eps0: Array) -> Array:
        return np.array(
            [response_log_delta(step.n, x, float(d), eps) for x, d in zip(eps0, step.log_delta(eps0), strict=True)]
        )

    # eps0 <= eps/n is basic composition; above the largest loss, or where delta0 underflows, there is nothing to gain
    low, high = min(eps / step.n, step.top), min(step.top, max(_far(step), eps))
    special = np.array([*_jumps(step), low, high])
    best = float(at(special).min())
    if high - low <= 1e-9 * high:
        return best
    return min(best, minimize_quasiconvex(lambda x: at(low + x), 1e-9 * high, high - low)[1])


def _far(step: SingleRelease) -> float:
    """An eps0 at which delta of one release is below 1e-320 / n."""
    return float(step.epsilon(np.array([-740.0 - math.log(step.n)]))[0])
