"""The moments accountant of DP-SGD: ln moments of the loss at the integers 1 to 256, added up, and the tail bound.

It must not be confused with ``rdp``, which uses every real order and a better conversion; where the best order exceeds
256 (small eps, little noise per step) or lies below 1, the bound of the integers alone is much looser.
"""

from __future__ import annotations

import numpy as np

from wpriv.accounting.accountants._moment_bounds import check_order, moment_curve
from wpriv.core.guarantee import Curve
from wpriv.core.process import Process
from wpriv.errors import UsageError

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Abadi et al. 2016, Theorem 2"
ORDERS = np.arange(1.0, 257.0)
EXPLAIN = """\
delta <= min over l = 1, ..., 256 of exp(sum_i K_i(l) - l eps), K_i(l) = ln E e^(l loss) of step i,
in the worse order of the neighbours.
A rigorous upper bound (Chernoff); the moments are exact, by quadrature, not by Abadi et al.'s asymptotic formula.
Not for mechanisms with distinguishing events (all moments are infinite)."""


def account(process: Process, *, tol: float = 1e-3, order: float = 0.0) -> Curve:
    """Account for a process by the best integer moment; ``tol`` is not used.

    Args:
        order: a single l, a whole number of at least 1; 0 takes the best of 1 to 256.
    Raises:
        Unsupported: some step has distinguishing events, so that every moment is infinite.
        UsageError: an order that is no whole number from 1 to 1e12.
    """
    if order != int(order) or order < 0:
        raise UsageError(
            f"moments: the order must be a whole number of at least 1 (or 0 for the best); found {order:g}"
        )
    check_order("moments", order)
    lam = np.array([order]) if order else ORDERS
    source = f"{SOURCE}; order {order:g}" if order else SOURCE
    return moment_curve(process, accountant="moments", source=source, conversion="tail", lam=lam)
