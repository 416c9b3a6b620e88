"""Composes the steps of a run by the transform of the composed loss: where nodes, the contour and the kernel are chosen."""

from __future__ import annotations

import math

import numpy as np

from wpriv.pld.lattice.step_pmfs import split_by_node_count
from wpriv.pld.saddle_point import Cumulants, tilt_for_contour
from wpriv.pld.step_groups import Steps
from wpriv.pld.transform.atomic_transforms import TiltedAtoms
from wpriv.pld.transform.inversion import TransformComposition, invert_transform
from wpriv.pld.transform.scattered_atoms import scatter_atoms
from wpriv.pld.two_sided import TwoSidedComposition

# by what factor the tilted variance exceeds the plain one where rare large losses decide, how far from eps these may be, and
# how much of delta single ones must make up to be looked at by themselves
RARE, FOCUS, SINGLE = 20, 1.5, 0.5
# the least tilt that decides where nodes are needed, in units of 1 / spread
LEAST_TILT = 1.0
# by how much, in logs, the wrap-around of an inverted transform stays below the error of delta that is allowed
CLEAR = 7.0
# about the rounding in the transform of many steps, over the root of their number, times what it may take of the error allowed
ROUNDED = 3e-10


def compose_by_transform(
    steps: Steps, state: Cumulants, tilt: float, eps: float, error: float, delta: float
) -> TwoSidedComposition:
    """Both composed laws, good near eps, with dotting errors that shift eps by about ``error`` in all.

    Raises:
        Unsupported: that would take too many nodes or frequencies.
    """
    spread = math.sqrt(state.variance)
    relative = min(max(error * (tilt + 1 / spread), 1e-9), 1e-2)
    dotted = max(tilt, LEAST_TILT / spread)
    plain = steps.cumulants(0.0).variance
    # where rare large losses decide, it may be a single one, whose weight at the saddle's tilt is nothing beside larger ones
    focus = (
        (eps / FOCUS, eps * FOCUS)
        if state.variance > RARE * plain and single_loss_delta(steps, eps) > SINGLE * delta
        else None
    )
    lost = math.log(max(relative / (ROUNDED * math.sqrt(steps.total)), 1.0))
    tilt = tilt_for_contour(
        steps.probes, steps.counts, dotted, eps, math.log(delta), math.log(delta * relative) - CLEAR, lost
    )
    share = math.exp(min(math.log(delta) - steps.cumulants(dotted).total + dotted * eps, 0.0))
    state = steps.cumulants(tilt)
    parts = [
        part
        for group, p in zip(steps.groups, steps.probes, strict=True)
        for part in split_by_node_count(group, p, dotted)
    ]
    laws = []
    for group, p in parts:
        masses = steps.negligible(delta, group.counts), max(1e-9 * share / steps.total, 1e-300)
        laws.append(scatter_atoms(group, p, error / steps.total, (dotted, tilt), masses, focus))

    def side(some: list[TiltedAtoms]) -> TransformComposition:
        return invert_transform(some, tilt, eps, state.mean, delta, error, relative)

    upper = side([upper for upper, _ in laws])
    drift = steps.drift(state)
    return TwoSidedComposition(upper, lambda: side([lower() for _, lower in laws]), drift, drift, spread)


def single_loss_delta(steps: Steps, eps: float) -> float:
    """About what runs with a single loss above eps, the others being zero, add to delta at eps."""
    return sum(
        float(n @ p.mass @ -np.expm1(np.minimum(eps - p.y, 0.0)))
        for n, p in zip(steps.counts, steps.probes, strict=True)
    )
