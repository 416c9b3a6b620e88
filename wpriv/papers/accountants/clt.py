"""The privacy loss class: the composed loss treated as normal with the sum of the steps' means and variances.

An estimate that may lie below the true value. It must not be confused with ``berry-esseen`` and ``nagaev``, which add
the error to it and are bounds, nor with ``gdp-clt``, the limit of Gaussian differential privacy.
"""

from __future__ import annotations

from wpriv.core.guarantee import Curve, epsilon_at
from wpriv.core.process import Process, refuse_passes
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.papers.accountants._normal_approximation import composed

NOTION = "approximate-dp"
CLAIM = "approximate"
SOURCE = "Sommer, Meiser, Mohammadi 2019, Lemma 12 and Theorem 4"
WARNING = "clt is a limit, not a bound: the true delta and eps may be larger; use pld for a certified bound"
EXPLAIN = """\
delta ~ w + (1-w)/2 [erfc((eps-m)/(sqrt2 s)) - e^(eps-m+s^2/2) erfc((eps-m+s^2)/(sqrt2 s))],
m and s^2 the sums of the steps' means and variances, w = 1 - prod (1-w_i) the mass of distinguishing events;
the larger of the two orders of the neighbours.
A central limit: accurate for many small steps near the bulk, far too low in the tails (small delta); no guarantee."""


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for a process as if its composed loss were normal; ``tol`` is not used."""
    refuse_passes(process, "clt")
    sums = [composed(pairs) for pairs in process.directions()]

    def log_delta(eps: float) -> float:
        return max(s.log_delta(eps) for s in sums)

    def delta(eps: float) -> Bracket:
        return Bracket(safe_exp(log_delta(eps)))

    def epsilon(delta: float) -> Bracket:
        return Bracket(epsilon_at(log_delta, delta, guess=max(1e-12, sums[0].mean)))

    return Curve(process, "clt", NOTION, CLAIM, SOURCE, delta, epsilon, (WARNING,))
