"""Where and how finely to compose for a question: the eps expected at a delta, and the factor of a refinement.

These only steer the certified composition; no figure depends on their accuracy. Its bracket is checked by ``ordered``.
"""

from __future__ import annotations

import math

from wpriv.errors import Unsupported
from wpriv.pld import constants
from wpriv.pld.saddle_point import Cumulants, log_tail_factor
from wpriv.pld.two_sided import TwoSidedComposition


def log_delta_guess(state: Cumulants, tilt: float, eps: float) -> float:
    """ln delta at eps by the saddle-point approximation at the given tilt."""
    return state.cgf - tilt * eps + log_tail_factor(tilt, math.sqrt(state.variance))


def expected_eps(state: Cumulants, tilt: float, log_delta: float, guess: float, best: tuple[float, float]) -> float:
    """The eps about which to compose: by saddle point, Chernoff's bound or guess; or the middle of a narrow bracket.

    Raises:
        Unsupported: eps exceeds what is certified.
    """
    chernoff = (state.cgf - log_delta) / tilt if tilt > 0 else math.inf
    # the tilt is right to a percent only: one step of Newton's method from its mean
    slope = tilt + 1 / math.sqrt(state.variance)
    near = state.mean + (log_delta_guess(state, tilt, state.mean) - log_delta) / slope
    eps = max(min(near, chernoff, guess), 0.0)
    if best[0] >= constants.NARROW_BRACKET_RATIO * best[1]:
        eps = (best[0] + best[1]) / 2
    if eps > constants.MAX_CERTIFIED_EPS:
        raise Unsupported(
            f"pld certifies eps up to {constants.MAX_CERTIFIED_EPS:g}; this process needs about {eps:.3g}. "
            "Increase the noise"
        )
    return eps


def refinement_factor(width: float, before: float, tol: float, composition: TwoSidedComposition) -> float | None:
    """The factor on the allowed error for a refinement; None if it would not fit, or the last one gained little."""
    cells = composition.cells
    least = (cells / constants.MAX_REFINED_CELLS) ** 2
    wanted = constants.BLIND_REFINEMENT_FACTOR
    if math.isfinite(width):
        wanted = max(constants.REFINEMENT_AIM * tol / width, constants.MIN_REFINEMENT_FACTOR)
    unprofitable = cells > constants.CHEAP_REFINEMENT_CELLS and width > constants.UNPROFITABLE_WIDTH_RATIO * before
    if least > constants.HOPELESS_REFINEMENT_FACTOR or unprofitable:
        return None
    return min(constants.MAX_REFINEMENT_FACTOR, max(wanted, least))


def ordered(ends: tuple[float, float]) -> tuple[float, float]:
    """The ends of a bracket, with a crossing by rounding corrected; a larger crossing is a fault of the engine."""
    low, high = ends
    if low > high * (1 + constants.BRACKET_CROSSING_TOLERANCE):
        raise ArithmeticError(f"two certified brackets exclude each other: lower end {low!r}, upper end {high!r}")
    return min(low, high), high
