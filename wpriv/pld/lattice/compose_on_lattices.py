"""Compose the steps on lattices, in stages: the method for few steps, and for PMFs whose transform does not decay."""

from __future__ import annotations

import math
import sys
from functools import partial

import numpy as np

from wpriv.errors import Unsupported
from wpriv.pld import constants
from wpriv.pld.lattice.convolve import LatticeComposition, compose_pmfs
from wpriv.pld.lattice.staging import LatticeFitter, StagePlan, plan_stages
from wpriv.pld.lattice.step_nodes import split_by_node_count
from wpriv.pld.lattice.step_pmfs import DiscretizedStep, discretize_step, discretize_with_jumps
from wpriv.pld.saddle_point import ApproximatePmf, Cumulants
from wpriv.pld.stacking import StepGroup
from wpriv.pld.step_groups import Steps
from wpriv.pld.two_sided import TwoSidedComposition


def compose_on_lattices(
    steps: Steps, state: Cumulants, tilt: float, eps: float, error: float, delta: float
) -> TwoSidedComposition:
    """Compose pessimistically and optimistically, accurate near eps.

    Args:
        state: cumulants at the tilt.
        tilt: the saddle point's.
        error: shift of eps by discretisation that is allowed, about, in nats.
        delta: delta at eps, about.
    Raises:
        Unsupported: a window would not fit.
    """
    # a lattice of spacing h raises the cumulant function at the saddle point by at most (tilt + 1) tilt h^2 / 12 a
    # step; the optimistic discretisation costs half as much again, and sparse nodes the share SPARSE_NODE_ERROR of it
    # all
    fine_spacing = math.sqrt(8 * error / (steps.total * (tilt + 1) * (1 + constants.SPARSE_NODE_ERROR)))
    fine_spacing = max(fine_spacing, steps.least_spacing())
    relative = error * (tilt + 1 / math.sqrt(state.variance))
    relative = min(max(relative, constants.MIN_RELATIVE_ERROR), constants.MAX_RELATIVE_ERROR)
    tilt, state, share = _reduce_tilt(steps, tilt, state, eps, delta, relative)
    tail = max(constants.WRAPAROUND_SHARE * relative * share, 1e-250)
    top_masses = [steps.negligible_mass(delta, n) for n in steps.counts]
    lattice = LatticeFitter.of(steps.groups, fine_spacing)
    plan = plan_stages(steps.pmfs, steps.counts, top_masses, tilt, error, lattice, tail)
    # where delta lies beyond the scanned tail, the tilt grows without limit and the spacing underflows
    if plan.step < sys.float_info.min:
        raise Unsupported("pld finds no lattice for this process at this delta. Use rdp")
    parts = [
        part
        for group, pmf in zip(steps.groups, steps.pmfs, strict=True)
        for part in split_by_node_count(group, pmf, tilt)
    ]
    discretized = [_discretize(steps, group, pmf, plan, tilt, delta, share, tail) for group, pmf in parts]
    counts = [group.counts for group, _ in parts]
    jumps = [(d.jumps, n) for d, n in zip(discretized, counts, strict=True) if d.jumps is not None]
    # the deferred optimistic composition must not refer to ``steps``, or else a reference cycle would keep all arrays
    # alive
    log_finite = steps.log_finite

    def compose(upper: bool) -> LatticeComposition:
        finite = log_finite
        if upper:
            pairs = zip(discretized, counts, strict=True)
            finite = sum(float(n @ np.log1p(-d.mass_at_plus_infinity)) for d, n in pairs)
        pmfs = [d.upper if upper else d.lower() for d in discretized]
        coarse_jumps = [(jump.upper if upper else jump.lower, n) for jump, n in jumps]
        without_jumps = [
            n - d.jumps.max_count if d.jumps and not upper else n for d, n in zip(discretized, counts, strict=True)
        ]
        return compose_pmfs(
            pmfs,
            without_jumps,
            plan.step,
            tilt,
            plan.stages,
            coarse_jumps=coarse_jumps,
            upper=upper,
            log_finite=finite,
            tail=tail,
        )

    slack = steps.rounding_shift(state) + sum(float(jump.max_count @ jump.log_kappa) for jump, _ in jumps)
    lower_slack = slack + sum(jump.eps_slack for jump, _ in jumps)
    return TwoSidedComposition(compose(True), partial(compose, False), slack, lower_slack, math.sqrt(state.variance))


def _reduce_tilt(
    steps: Steps, tilt: float, state: Cumulants, eps: float, delta: float, relative: float
) -> tuple[float, Cumulants, float]:
    """The tilt to compute with, its cumulants, and the share of the tilted mass that decides delta at eps.

    This is the saddle point's own tilt, unless one or many large losses are about equally likely there and the PMF is
    far too wide. A somewhat smaller tilt then has few of them, as long as rounding does not show in the smaller share.
    """
    plain = steps.cumulants(0.0).variance
    best = (tilt, state, math.exp(min(math.log(delta) - state.cgf + tilt * eps, 0.0)))
    for factor in constants.TILT_REDUCTION_FACTORS:
        if best[1].variance <= constants.TILT_REDUCTION_VARIANCE_RATIO * plain:
            break
        c = steps.cumulants(factor * tilt)
        share = math.exp(min(math.log(delta) - c.cgf + factor * tilt * eps, 0.0))
        per_step = constants.MIN_DECISIVE_SHARE_PER_STEP * steps.total / relative
        if share < max(constants.MIN_DECISIVE_SHARE, per_step):
            break
        best = (factor * tilt, c, share)
    return best


def _discretize(
    steps: Steps,
    group: StepGroup,
    pmf: ApproximatePmf,
    plan: StagePlan,
    tilt: float,
    delta: float,
    share: float,
    tail: float,
) -> DiscretizedStep:
    top_mass, bottom_mass = steps.negligible_mass(delta, group.counts), steps.negligible_bottom(share)
    if plan.cut is None or not pmf.reaches(plan.cut * plan.last):
        return discretize_step(group, pmf, plan.step, tilt, top_mass, bottom_mass)
    # too many jumps of any one kind of step are too many: the tail is shared among the kinds
    return discretize_with_jumps(group, pmf, plan, tilt, top_mass, bottom_mass, tail / steps.distinct_steps)
