"""Compose the steps by the transform of the composed loss: the choice of the nodes, the contour and the kernel."""

from __future__ import annotations

import math

from wpriv.pld import constants
from wpriv.pld.lattice.step_nodes import split_by_node_count
from wpriv.pld.saddle_point import Cumulants, tilt_for_contour
from wpriv.pld.single_losses import approximate_single_loss_delta
from wpriv.pld.step_groups import Steps
from wpriv.pld.transform import transform_constants
from wpriv.pld.transform.atomic_transforms import TiltedAtoms
from wpriv.pld.transform.inversion import TransformComposition, invert_transform
from wpriv.pld.transform.scattered_atoms import scatter_atoms
from wpriv.pld.two_sided import TwoSidedComposition


def compose_by_transform(
    steps: Steps, state: Cumulants, tilt: float, eps: float, error: float, delta: float
) -> TwoSidedComposition:
    """Compose pessimistically and optimistically, accurate near eps.

    Args:
        state: cumulants at the tilt.
        tilt: the saddle point's.
        error: shift of eps by discretisation that is allowed, about, in nats.
        delta: delta at eps, about.
    Raises:
        Unsupported: too many nodes or frequencies would be needed.
    """
    deviation = math.sqrt(state.variance)
    relative = error * (tilt + 1 / deviation)
    relative = min(max(relative, constants.MIN_RELATIVE_ERROR), constants.MAX_RELATIVE_ERROR)
    node_tilt = _node_tilt(steps, state, tilt)
    plain = steps.cumulants(0.0).variance
    focus = None
    # where rare large losses decide, it may be a single one, whose weight at the saddle point's tilt vanishes beside
    # larger ones
    rare = state.variance > constants.RARE_LOSS_VARIANCE_RATIO * plain
    if rare and approximate_single_loss_delta(steps, eps) > transform_constants.MIN_SINGLE_LOSS_SHARE * delta:
        focus = (eps / constants.FOCUS_RATIO, eps * constants.FOCUS_RATIO)
    log_range = math.log(max(relative / (transform_constants.TRANSFORM_ROUNDING * math.sqrt(steps.total)), 1.0))
    log_allowance = math.log(delta) + math.log(relative) - transform_constants.WRAPAROUND_LOG_MARGIN
    tilt = tilt_for_contour(steps.pmfs, steps.counts, node_tilt, eps, math.log(delta), log_allowance, log_range)
    share = math.exp(min(math.log(delta) - steps.cumulants(node_tilt).cgf + node_tilt * eps, 0.0))
    state = steps.cumulants(tilt)
    # chords of this width raise ln E[e^{node_tilt L}] over the tilt by the allowed error, over all steps
    distance = max(math.sqrt(8 * error / steps.total / (node_tilt + 1)), steps.least_spacing())
    sides = []
    for group, pmf in zip(steps.groups, steps.pmfs, strict=True):
        for part, part_pmf in split_by_node_count(group, pmf, node_tilt):
            masses = steps.negligible_mass(delta, part.counts), steps.negligible_bottom(share)
            sides.append(scatter_atoms(part, part_pmf, distance, (node_tilt, tilt), masses, focus))

    def compose(atoms: list[TiltedAtoms]) -> TransformComposition:
        return invert_transform(atoms, tilt, eps, state.mean, delta, error, relative)

    upper = compose([upper for upper, _ in sides])
    slack = steps.rounding_shift(state)
    return TwoSidedComposition(upper, lambda: compose([lower() for _, lower in sides]), slack, slack, deviation)


def _node_tilt(steps: Steps, state: Cumulants, tilt: float) -> float:
    """The tilt by which nodes are chosen: the saddle point's, or where that is small one that still weighs its losses.

    Rare losses that are far larger than all others may take all the weight at a tilt of one over the deviation.
    """
    node_tilt = transform_constants.MIN_NODE_TILT / math.sqrt(state.variance)
    while node_tilt > tilt:
        growth = steps.cumulants(node_tilt).cgf - state.cgf - (node_tilt - tilt) * state.mean
        if growth <= transform_constants.MAX_NODE_LOG_GROWTH:
            return node_tilt
        node_tilt /= 2
    return tilt
