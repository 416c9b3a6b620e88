"""Gaussian differential privacy: exact where the whole process is Gaussian.

It must not be confused with ``gdp-clt``, the central limit that approximates subsampled steps by a Gaussian one.
"""

from __future__ import annotations

from wpriv.core.guarantee import Curve, curve_of_pair
from wpriv.core.loss_pair import gaussian_mu
from wpriv.core.process import Process, closed_form
from wpriv.errors import Unsupported

NOTION = "approximate-dp"
CLAIM = "exact"
SOURCE = "Dong, Roth, Su 2019, Corollary 1 (mu-GDP); Sommer, Meiser, Mohammadi 2019, Theorem 5"
EXPLAIN = """\
delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), mu^2 = sum of n sensitivity^2 / sigma^2 over the steps.
Exact for compositions of Gaussian mechanisms of any noise; also where noise and number are chosen from earlier outputs
and the sum never exceeds mu^2 (Smith, Thakurta 2022; Koskela, Tobaben, Honkela 2023).
Not for subsampled or other steps."""


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for unsampled Gaussian mechanisms, of equal or different sigma: mu^2 adds up; ``tol`` is not used.

    Raises:
        Unsupported: some step is not an unsampled Gaussian mechanism.
    """
    pairs = process.directions()[0]
    pair = closed_form(pairs) if all(gaussian_mu(pair) is not None for pair, _ in pairs) else None
    if pair is None:
        raise Unsupported(
            "gdp is exact for unsampled Gaussian mechanisms only; use gdp-clt (approximate) or pld (certified)"
        )
    return curve_of_pair(process, [pair], accountant="gdp", source=SOURCE)
