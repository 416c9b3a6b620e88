"""Renyi differential privacy: real orders, optimised continuously, with the tightest known conversion to (eps, delta).

Every step's divergence is computed at real orders from its loss pair (closed form where there is one, quadrature
elsewhere), so that subsampling costs nothing in tightness. It must not be confused with ``rdp-mironov``, the conversion
in use before 2020, nor with ``moments``, the same bound at integer orders.
"""

from __future__ import annotations

from wpriv.accounting.accountants._moment_bounds import moment_curve
from wpriv.core.guarantee import Curve
from wpriv.core.process import Process

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Mironov 2017 (composition); Canonne, Kamath, Steinke 2020, Proposition 12 (conversion)"
EXPLAIN = """\
delta <= min over a > 1 of exp((a-1)(D_a - eps)) (1/a) (1-1/a)^(a-1), D_a the Renyi divergence of order a of all steps.
A rigorous upper bound in both orders of the neighbours, typically 5-15% above the certified eps; no lower bound.
Not for mechanisms with distinguishing events (D_a is infinite)."""


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for a process by the best Renyi divergence; ``tol`` is not used.

    Raises:
        Unsupported: some step has distinguishing events, so that every divergence is infinite.
    """
    return moment_curve(process, accountant="rdp", source=SOURCE, conversion="rdp")
