"""Tuned constants of the composition by transform, each with its unit and its effect, as in ``wpriv.pld.constants``.

None affects the validity of a bracket.
"""

from __future__ import annotations

import numpy as np

# ---- composition by transform (compose_by_transform.py, scattered_atoms.py): speed and width ----
# share of delta that single losses must contribute for losses around eps to be resolved
MIN_SINGLE_LOSS_SHARE = 0.5
# least tilt for the choice of nodes, in units of 1 / standard deviation
MIN_NODE_TILT = 1.0
# ln by which the moment at that tilt may exceed its value to first order; 1/2 for a normal distribution
MAX_NODE_LOG_GROWTH = 2.0
# nats by which wrap-around stays below the allowed error of delta
WRAPAROUND_LOG_MARGIN = 7.0
# about the rounding of a transform of n steps over sqrt(n), and the share of the allowed error it may take
TRANSFORM_ROUNDING = 3e-10
# atoms up to which a discrete pair is used exactly
MAX_EXACT_ATOMS = 6000
# scattered nodes of a step, for which few frequencies could be afforded
MAX_SCATTERED_NODES = 1 << 18
# finest spacing of scattered nodes in units of their mean spacing, and distance in it within which a node yields to
# an atom; the same distance in widths of a node
FINEST_NODE_SPACING, ATOM_NODE_DISTANCE, ATOM_NODE_WIDTHS = 1e-6, 0.25, 16

# ---- inversion of the transform (inversion.py, atomic_transforms.py): speed and width ----
# products of a frequency and an atom that one composition may cost, and up to which no frequency is omitted
MAX_TRANSFORM_WORK, CHEAP_TRANSFORM_WORK = 1_200_000_000, 20_000_000
# frequencies that take as long as the waves of an interval, times the square root of its length; longest gap filled
INTERVAL_WORK, MAX_FILLED_GAP = 40, 150
# frequencies below the edge of the kernel beyond which a composition is refused
MAX_KERNEL_FREQUENCIES = 30_000_000
# tilts at which wrap-around is bounded, relative to the contour's, in units of 1 / standard deviation
WRAP_TILTS = np.array([0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.5, 8.0, 11.0, 15.0])
# share of the allowed relative error for each error that more frequencies would reduce
FREQUENCY_ERROR_SHARE = 1e-3
# share of eps that a bulk's losses add up to at most with the kernel
BULK_KERNEL_EPS_SHARE = 0.9
# largest tilted probability of a loss beyond the bulk, and least probability that there is none
MAX_JUMP_PROBABILITY, MIN_NO_JUMP_PROBABILITY = 0.2, 1e-3
# share of the allowed error for smoothing; widest kernel in nats (in units of eps with a bulk), and in standard
# deviations
SMOOTHING_SHARE, MAX_KERNEL_WIDTH, MAX_KERNEL_DEVIATIONS = 0.1, 0.02, 0.3
# frequencies up to which a transform is summed directly, and atoms summed at once
MAX_DIRECT_FREQUENCIES, ATOMS_PER_SUM = 12, 256

# ---- omitted frequencies (negligible_frequencies.py): speed ----
# rows of a group by which a product is bounded
MAX_LEADING_ROWS = 16
# tilted mass left out of a bulk
BULK_TRIM = 0.03
# first sample spacing, in units of 1 / standard deviation of a step's bulk, for steps with at least so many
# compositions
SAMPLE_SPACINGS = ((2000, 1.2), (300, 0.6), (0, 0.35))
# first sample, in units of 1 / standard deviation, and the factor between the first samples
FIRST_SAMPLE, SAMPLE_GROWTH = 4, 1.3
# parts that an interval between samples is divided into, how often, and ln of the product below which it is not
SAMPLE_DIVISIONS, SAMPLE_ROUNDS, NEGLIGIBLE_LOG_PRODUCT = 4, 4, -40.0
# products of a frequency and an atom that samples may cost, and the cost of an isolated sample relative to one on an
# even grid
MAX_SAMPLE_WORK, ISOLATED_SAMPLE_COST = 250_000_000, 20
# products that all isolated samples of a composition may cost
MAX_DIVISION_WORK = 12_000_000
# nanoseconds for samples beyond which none is taken, so that all frequencies have to be computed
MAX_SAMPLING = 1.0e9
# frequencies of one composition
MAX_FREQUENCIES = 2_000_000
