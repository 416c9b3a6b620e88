"""The n-fold composition of randomized response: a binomial sum in log space, for n up to 2^40."""

from __future__ import annotations

import math

import numpy as np

from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array
from wpriv.numerics.binomial import log_binomial
from wpriv.numerics.log_space import log1mexp

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
    Source:
        Kairouz, Oh, Viswanath (2017), Theorem 3.3; Sommer, Meiser, Mohammadi (2019), Example 1 with the exponent
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
