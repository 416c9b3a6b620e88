"""Basic composition: the eps of all releases add up, and so do their deltas.

The simplest theorem and the loosest; ``advanced`` and ``kov`` make better use of the same guarantees of single
releases. delta is divided among the releases that ran, so that their parameters have to be fixed in advance.
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.accounting.accountants._single_release import SingleRelease, single_releases
from wpriv.core.guarantee import Curve
from wpriv.core.process import Process, refuse_passes
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.root_finding import smallest_meeting

NOTION = "approximate-dp"
CLAIM = "upper-bound"
SOURCE = "Dwork, Kenthapadi, McSherry, Mironov, Naor 2006, Theorem 1"
EXPLAIN = """\
eps = sum of eps_i at delta = sum of delta_i; each release is (eps_i, delta_i)-DP by its exact profile.
delta is split over the releases equally or in proportion to eps_i, whichever is better.
A rigorous upper bound for every mechanism, adaptively chosen queries included.
It grows like n where the true eps grows like sqrt(n)."""
_LOWEST = -1e5  # ln of a delta far below the smallest double


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for a process by basic composition of the exact profiles of single releases; ``tol`` is not used."""
    refuse_passes(process, "basic")
    steps = single_releases(process)
    top = math.fsum(step.n * step.top for step in steps)
    floor = math.fsum(step.n * step.mass_at_plus_infinity for step in steps)

    def delta(eps: float) -> Bracket:
        if eps >= top:
            return Bracket.above(min(floor, 1.0))
        if _total(steps, 0.0) > eps:
            return Bracket.above(1.0)
        return Bracket.above(safe_exp(smallest_meeting(lambda x: _total(steps, x) - eps, -10.0, low=_LOWEST, high=0.0)))

    def epsilon(delta: float) -> Bracket:
        return Bracket.above(_total(steps, math.log(delta)))

    return Curve(process, "basic", NOTION, CLAIM, SOURCE, delta, epsilon)


def _total(steps: list[SingleRelease], log_delta: float) -> float:
    """The sum of eps at one delta, split equally or in proportion to the eps of an equal split, if smaller."""
    count = sum(step.n for step in steps)
    equal = np.array([float(step.epsilon(np.array([log_delta - math.log(count)]))[0]) for step in steps])
    counts = np.array([step.n for step in steps], dtype=float)
    total = float(counts @ equal)
    if len(steps) == 1 or not 0 < total < math.inf or equal.min() == 0:
        return total
    shares = log_delta + np.log(equal / total)
    weighted = [float(step.epsilon(np.array([share]))[0]) for step, share in zip(steps, shares, strict=True)]
    return min(total, float(counts @ np.array(weighted)))
