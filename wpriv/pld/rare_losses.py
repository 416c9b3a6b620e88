"""Brackets of delta and eps of steps of which few have a large loss, where such losses decide.

There the saddle point says little: its tilt gives weight to losses far above eps. A sum of the steps' own deltas is
delta to first order, and sets the scale of the question.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from wpriv.errors import Unsupported
from wpriv.pld import constants
from wpriv.pld.lattice.compose_rare_losses import compose_rare_losses
from wpriv.pld.single_losses import rare_cut, single_loss_delta, single_loss_slope
from wpriv.pld.step_groups import Steps
from wpriv.pld.two_sided import TwoSidedComposition

Ends = tuple[float, float]


def rare_losses_delta(steps: Steps, eps: float) -> float | None:
    """The sum of the deltas of all steps at eps, if outcomes without a large loss add nothing to it; else None."""
    if steps.distinct_steps > constants.MAX_RARE_KINDS or not 0 < eps <= constants.MAX_RARE_EPS:
        return None
    alone = single_loss_delta(steps.groups, eps)
    if not constants.MASS_FLOOR < alone < constants.MAX_RARE_DELTA:
        return None
    return None if rare_cut(steps, eps, math.log(alone) + constants.BULK_LOG_MARGIN) is None else alone


def rare_losses_epsilon(steps: Steps, delta: float) -> float | None:
    """The eps at which the sum of the deltas of all steps is ``delta``, about; None as for ``rare_losses_delta``."""
    low, high = 1e-12, max(float(pmf.end) for pmf in steps.pmfs)
    if not low < high < math.inf or not delta < constants.MAX_RARE_DELTA:
        return None
    if steps.distinct_steps > constants.MAX_RARE_KINDS:
        return None
    for _ in range(constants.RARE_EPS_BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if single_loss_delta(steps.groups, middle) > delta else (low, middle)
    return high if rare_losses_delta(steps, high) is not None else None


def bracket_rare_losses(
    steps: Steps,
    eps: float,
    delta: float,
    tol: float,
    answer_is_eps: bool,
    read: Callable[[TwoSidedComposition, float], Ends],
    out_of_work: Callable[[], bool],
) -> tuple[Ends, list[TwoSidedComposition]]:
    """Bracket an answer about eps and delta, refining until it is as narrow as asked.

    Args:
        read: the bracket of the answer from a composition and the slope of -ln delta at eps.
        out_of_work: tells whether the question's work is spent.
    Returns:
        The bracket, (0, inf) where no composition fits; and the last composition, if any.
    """
    slope = single_loss_slope(steps, eps)
    # where eps is the answer, its relative error is the one of delta over slope * eps
    relative = constants.RARE_ACCURACY_SHARE * tol * (slope * eps if answer_is_eps else 1.0)
    best, composed = (0.0, math.inf), list[TwoSidedComposition]()
    for _ in range(constants.MAX_RARE_COMPOSITIONS):
        try:
            composition = compose_rare_losses(steps, slope, eps, relative, delta)
            low, high = read(composition, slope)
        except Unsupported:
            relative *= constants.RARE_COARSENING
            if composed or out_of_work():
                break
            continue
        composed = [composition]
        best = max(best[0], low), min(best[1], high)
        width = (best[1] - best[0]) / best[1] if 0 < best[1] < math.inf else 1.0
        if width <= tol or width > constants.HOPELESS_RARE_WIDTH or out_of_work():
            break
        relative *= max(0.8 * tol / width, 0.01)
    return best, composed
