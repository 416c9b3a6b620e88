"""Where single large losses decide: the sum of the deltas of the steps, the cut below them, and the tilt.

All of these only steer the certified composition; no answer depends on their accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wpriv.pld import constants
from wpriv.pld.saddle_point import tilted_weights
from wpriv.pld.stacking import StepGroup
from wpriv.pld.step_groups import Steps


def rare_cut(steps: Steps, eps: float, log_allowance: float) -> float | None:
    """The largest cut tried under which sums without a large loss add at most e^log_allowance to delta, about.

    None if there is none, or if large losses are not rare.
    """
    for share in constants.RARE_CUTS:
        cut = share * eps
        tilts = np.geomspace(*constants.BULK_TILTS, constants.BULK_TILT_COUNT) / cut
        jumps = sum(
            float(n @ pmf.mass[:, pmf.y > cut].sum(axis=1)) for pmf, n in zip(steps.pmfs, steps.counts, strict=True)
        )
        if jumps > constants.MAX_RARE_JUMPS:
            return None
        logs = -tilts * eps
        for pmf, n in zip(steps.pmfs, steps.counts, strict=True):
            bulk = pmf.y <= cut
            growth = np.expm1(tilts[:, None] * np.maximum(pmf.y[bulk], -cut))
            logs = logs + np.log1p(growth @ pmf.mass[:, bulk].T) @ n
        if float(logs.min()) <= log_allowance:
            return cut
    return None


def single_loss_delta(groups: Sequence[StepGroup], eps: float) -> float:
    """The sum of the deltas of all steps at eps; at eps = 0, of their total variation distances."""
    return sum(
        float(n) * math.exp(float(pair.log_delta(eps)))
        for group in groups
        for pair, n in zip(group.members, group.counts.tolist(), strict=True)
    )


def approximate_single_loss_delta(steps: Steps, eps: float) -> float:
    """As ``single_loss_delta``, from the approximate PMFs: less accurate, and faster for many kinds of steps."""
    return sum(
        float(n @ pmf.mass @ -np.expm1(np.minimum(eps - pmf.y, 0.0)))
        for n, pmf in zip(steps.counts, steps.pmfs, strict=True)
    )


def single_loss_slope(steps: Steps, eps: float) -> float:
    """The slope of -ln delta at eps (per nat), where single losses decide; at least 1 / eps."""
    further = eps * 1.01
    logs = [math.log(max(single_loss_delta(steps.groups, e), constants.MASS_FLOOR)) for e in (eps, further)]
    return max((logs[0] - logs[1]) / (further - eps), 1.0 / eps)


def small_tilt(steps: Steps, tilt: float, eps: float, delta: float, cut: float, relative: float) -> float:
    """The smallest tilt tried at which delta has a large enough share in the outcomes with a large loss."""
    shares = []
    tilts = [share * tilt for share in constants.RARE_TILTS]
    for candidate in tilts:
        moments = [pmf.tilted_moments(candidate)[0] for pmf in steps.pmfs]
        jump = sum(
            float(n @ tilted_weights(pmf, candidate)[:, pmf.y > cut].sum(axis=1))
            for n, pmf in zip(steps.counts, steps.pmfs, strict=True)
        )
        cgf = sum(float(n @ m) for n, m in zip(steps.counts, moments, strict=True))
        shares.append(math.log(delta) + candidate * eps - cgf - math.log(max(jump, constants.MASS_FLOOR)))
    wanted = min(max(shares), math.log(min(constants.RARE_SHARE_ROUNDING * steps.total / relative, 0.1)))
    return next(candidate for candidate, share in zip(tilts, shares, strict=True) if share >= wanted)
