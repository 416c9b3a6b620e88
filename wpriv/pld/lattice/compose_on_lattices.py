"""Composes the steps of a run on lattices, in stages: the way for few steps, and for laws whose transform does not die out."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from wpriv.pld.lattice.convolve import LatticeComposition, compose_pmfs
from wpriv.pld.lattice.staging import LatticeFitter, StagePlan, plan_stages
from wpriv.pld.lattice.step_pmfs import (
    EXTRA,
    DiscretizedStep,
    discretize_step,
    discretize_with_jumps,
    split_by_node_count,
)
from wpriv.pld.saddle_point import ApproximatePmf, Cumulants
from wpriv.pld.stacking import StepGroup
from wpriv.pld.step_groups import Steps
from wpriv.pld.two_sided import TwoSidedComposition


def compose_on_lattices(
    steps: Steps, state: Cumulants, tilt: float, eps: float, error: float, delta: float
) -> TwoSidedComposition:
    """Both composed laws, good near eps, with dotting errors that shift eps by about ``error`` in all.

    Raises:
        Unsupported: a window would not fit.
    """
    # a lattice of spacing h raises the cumulant function at the saddle by at most (tilt + 1) tilt h^2 / 12 a step; the lower
    # dots cost half as much again, and nodes sparser than the lattice the part EXTRA of it all
    fine = math.sqrt(8 * error / (steps.total * (tilt + 1) * (1 + EXTRA)))
    relative = min(max(error * (tilt + 1 / math.sqrt(state.variance)), 1e-9), 1e-2)
    tilt, state, share = _reduce_tilt(steps, tilt, state, eps, delta, relative)
    tail = max(1e-2 * relative * share, 1e-250)
    tops = [steps.negligible(delta, n) for n in steps.counts]
    chosen = plan_stages(steps.probes, steps.counts, tops, tilt, error, LatticeFitter.of(steps.groups, fine), tail)
    parts = [
        part
        for group, p in zip(steps.groups, steps.probes, strict=True)
        for part in split_by_node_count(group, p, tilt)
    ]
    made = [_discretize(steps, group, p, chosen, tilt, delta, share, tail) for group, p in parts]
    counts = [group.counts for group, _ in parts]
    split = [(d.jumps, n) for d, n in zip(made, counts, strict=True) if d.jumps is not None]
    # what composes the lower law later must not hold on to this composition, or a cycle keeps all arrays alive
    log_finite = steps.log_finite

    def side(upper: bool) -> LatticeComposition:
        finite = (
            sum(float(n @ np.log1p(-d.mass_at_plus_infinity)) for d, n in zip(made, counts, strict=True))
            if upper
            else log_finite
        )
        laws = [d.upper if upper else d.lower() for d in made]
        late = [(jumps.upper if upper else jumps.lower, n) for jumps, n in split]
        fewer = [n - d.jumps.most if d.jumps and not upper else n for d, n in zip(made, counts, strict=True)]
        return compose_pmfs(
            laws, fewer, chosen.step, tilt, chosen.stages, late=late, upper=upper, log_finite=finite, tail=tail
        )

    drift = steps.drift(state) + sum(float(jumps.most @ jumps.log_kappa) for jumps, _ in split)
    fall = drift + sum(jumps.fall for jumps, _ in split)
    return TwoSidedComposition(side(True), partial(side, False), drift, fall, math.sqrt(state.variance))


def _reduce_tilt(
    steps: Steps, tilt: float, state: Cumulants, eps: float, delta: float, relative: float
) -> tuple[float, Cumulants, float]:
    """The tilt to compute with, its cumulants, and the share of the tilted mass that decides delta at eps.

    The saddle's own tilt, unless there one or many large losses are about equally likely and the law is far too wide; a somewhat
    milder tilt then has only the few, as long as rounding does not show in the smaller share.
    """
    plain = steps.cumulants(0.0).variance
    best = (tilt, state, math.exp(min(math.log(delta) - state.total + tilt * eps, 0.0)))
    for factor in (0.97, 0.94, 0.9, 0.85, 0.8, 0.7):
        if best[1].variance <= 50 * plain:
            break
        c = steps.cumulants(factor * tilt)
        share = math.exp(min(math.log(delta) - c.total + factor * tilt * eps, 0.0))
        if share < max(1e-10, 1e-13 * steps.total / relative):
            break
        best = (factor * tilt, c, share)
    return best


def _discretize(
    steps: Steps,
    group: StepGroup,
    p: ApproximatePmf,
    chosen: StagePlan,
    tilt: float,
    delta: float,
    share: float,
    tail: float,
) -> DiscretizedStep:
    masses = steps.negligible(delta, group.counts), max(1e-9 * share / steps.total, 1e-300)
    if chosen.cut is None or not p.reaches(chosen.cut * chosen.last):
        return discretize_step(group, p, chosen.step, tilt, *masses)
    return discretize_with_jumps(group, p, chosen, tilt, *masses, tail)
