"""Renyi differential privacy with Mironov's conversion, eps = D_a + ln(1/delta)/(a-1), at real orders.

The bound of most programs before 2020, kept so that their figures can be reproduced; ``rdp`` is never worse.
"""

from __future__ import annotations

from wpriv.accounting.accountants._moment_bounds import moment_curve
from wpriv.core.guarantee import Curve
from wpriv.core.process import Process

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Mironov 2017, Propositions 1 and 3"
EXPLAIN = """\
delta <= min over a > 1 of exp((a-1)(D_a - eps)), D_a the Renyi divergence of order a summed over all steps.
A rigorous upper bound, Chernoff's bound of P(loss > eps); rdp is never worse and pld is tight.
Not for mechanisms with distinguishing events (D_a is infinite)."""


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for a process by the best Renyi divergence and Mironov's conversion; ``tol`` is not used.

    Raises:
        Unsupported: some step has distinguishing events, so that every divergence is infinite.
    """
    return moment_curve(process, accountant="rdp-mironov", source=SOURCE, conversion="tail")
