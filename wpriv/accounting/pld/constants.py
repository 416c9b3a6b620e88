"""Tuned constants of the composition engine, each with its unit and its effect.

The engine evaluates them as ``constants.NAME`` at call time, so that a test can replace one by
``monkeypatch.setattr(constants, "NAME", value)``. "Speed" and "width" name what a change affects: the run time, or the
width of the certified bracket. No constant affects the validity of a bracket except those of the first section.
"""

from __future__ import annotations

import numpy as np

from wpriv.numerics import counted_work

# ---- constants that the validity of a bracket rests on: margins for rounding, properties of the kernel ----
# unit roundoff of double precision
UNIT_ROUNDOFF = 2.0**-53
# accuracy assumed of the tails of a loss pair, in roundings relative to the loss at which they are evaluated
TAIL_ROUNDINGS = 16
# accuracy assumed of ``LossPair.cell_parts``, in roundings relative to the part itself
PART_ROUNDINGS = 64
# standard deviations of a step's loss within which rounding of its tails is accounted for
ROUNDING_DEVIATIONS = 10
# probability, larger than any underflow takes from a tail
UNDERFLOW_MASS = 1e-305
# relative margin by which Chernoff's bound must stay below the target delta
CHERNOFF_RELATIVE_MARGIN = 1e-12
# relative rounding up to which the ends of two brackets of the same answer may cross
BRACKET_CROSSING_TOLERANCE = 1e-8
# largest loss (nats) at which an underflow, times e^loss and 2^40 steps, stays below any delta; above: log space
MAX_PLAIN_TAIL_LOSS = 30.0
# total by which masses may miss one and still be taken to be normalised
NORMALISATION_ROUNDING = 1e-14
# relative correction of a discretisation's masses that is more than rounding
MAX_MASS_CORRECTION = 1e-6
# relative mass that the convex minorant may lose at its highest node to rounding
MINORANT_ROUNDING = 1e-15
# roundings of one complex product
PRODUCT_ROUNDINGS = 3
# roundings of a fast Fourier transform of length 2^a 3^b 5^c, b and c at most 2, per doubling of the length: of one
# value, relative to the sum of moduli of what is transformed; and of all values, as vectors with the Euclidean norm
FFT_VALUE_ROUNDINGS, FFT_VECTOR_ROUNDINGS = 10, 18
# roundings of a composed PMF's weights and of one reading, beside two for each cell
READING_ROUNDINGS = 7000
# relative distance on either side of a node at which tails are compared to find the mass of an atom on it
NODE_HALF_WIDTH = 1e-15
# least squared spacing of nodes, in roundings times the standard deviation of a step's loss: in narrower cells the
# rounding of tails is no small part of the difference of the P- and the Q-mass
SPACING_ROUNDINGS = 1000
# shape of the Kaiser-Bessel kernel: relative transform beyond its edge 2 KERNEL_SHAPE e^-KERNEL_SHAPE; the next three
# belong to it
KERNEL_SHAPE = 18.0
# variance of its density f on [-1, 1], and E[X_+] / f(0), rounded up
KERNEL_VARIANCE, KERNEL_EXCESS = 0.0525, 0.0540
# upper bound of the largest ratio of f to its convolution with itself
KERNEL_COVER = 1.40

# ---- overflow guards: exponents up to which exponentials are evaluated directly; speed only ----
MASS_FLOOR = 1e-300  # smallest mass kept so that its logarithm exists
MAX_EXPONENT_PMF = 600.0  # tilt times the largest loss of an approximate PMF
MAX_EXPONENT_MINORANT = 500.0  # length of one block of nodes of the convex minorant
MAX_EXPONENT_ATOMS = 500.0  # tilt times the largest loss of tilted atoms
MAX_EXPONENT_TAIL_SUMS = 600.0  # (1 + tilt) times the window of a lattice composition with cumulative sums
MAX_EXPONENT_EVALUATION = 690.0  # tilt times the distance of eps below the centre; trivial answer beyond it: width
MAX_EXPONENT_TAIL_PROBABILITY = 600.0  # the same limit where the tail probability is bounded by secants: width

# ---- work and rounds of one question (composition.py): width and speed ----
# nanoseconds of a usual processor that an operation takes, with what is done beside it: an atom that is tilted; an
# exponential; a wave e^it at an atom; a frequency of a transform, and its product with an atom; a cell of a Fourier
# transform, per doubling of the length; a coefficient of a spectrum; a node removed from a convex minorant; a node of a
# discretisation; a loss of a scan; a composition read at an eps; a sum of two atoms' losses; a sample of a transform
WORK = {
    "atom": 300.0, "exponential": 10.0, "wave": 25.0, "frequency": 500.0, "product": 0.3, "cell": 3.0,
    "coefficient": 20.0, "removal": 2500.0, "node": 600.0, "loss": 3000.0, "reading": 150_000.0, "sum": 150.0,
    "sample": 200.0,
}  # fmt: skip
# work after which one question about one direction is not refined further
QUESTION_WORK = 1.2e9
# multiple of it at which a composition is given up
MAX_WORK_RATIO = 2
# work for all questions to one composition, and the least of a later question
COMPOSITION_WORK, MIN_QUESTION_WORK = 4.5e9, 0.075e9
# refinements of a bracket, and scans of the tails at ever smaller delta where eps is given
MAX_REFINEMENTS, MAX_SCANS = 6, 6
# discretisation errors tried where a composition does not fit: how many, and the factor from one to the next
COARSENING_ATTEMPTS, COARSENING_FACTOR = 10, 3
# how many of these, the coarsest, are still tried once the work of a question without an answer is spent, and what each
# may take then
ATTEMPTS_OUT_OF_WORK, FAST_ATTEMPT_WORK = 5, 0.3e9
# two-sided compositions that are kept for later questions
RETAINED_COMPOSITIONS = 4

# ---- choice of the question's scale (composition.py): width and speed ----
# least standard deviation (nats) of a composed loss that is certified, but for rare large losses: below it the rounding
# of probabilities near 1/2 exceeds what is allowed for
MIN_COMPOSED_DEVIATION = 1e-24
# kinds of steps up to which the sum of their total variation distances is asked first, and its relative rounding
MAX_DISTANCE_KINDS, DISTANCE_ROUNDING = 8, 1e-9
# largest eps (nats) that is certified
MAX_CERTIFIED_EPS = 1e6
# ln of the smallest delta that a tilt is chosen for, and of the delta first assumed where eps is given
MIN_LOG_DELTA, FIRST_LOG_DELTA = -640.0, -30.0
# smallest delta passed to a composition
MIN_DELTA_GUESS = 1e-280
# nats of ln delta below a sufficient upper bound that are resolved, and by which a new scan must go deeper
SUFFICIENT_LOG_MARGIN, RESCAN_LOG_MARGIN = 12.0, 1.0
# upper bound of delta below which it is not refined
NEGLIGIBLE_DELTA = 1e-300
# deviations below the mean loss from which delta is bounded as nearly 1; exponents tried, in units of a normal loss's
FAR_BELOW_DEVIATIONS, FAR_BELOW_FACTORS = 4.0, (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
# share of the tolerance that is given to discretisation
DISCRETIZATION_SHARE = 0.55
# fraction of the slack below a sufficient upper bound that discretisation may consume
SUFFICIENT_SLACK_SHARE = 0.3
# ratio of the lower to the upper end of a bracket of eps from which on its middle is the best guess
NARROW_BRACKET_RATIO = 0.5
# in deviations of the tilted loss: width in eps below which no relative accuracy is asked, and least first guess
MIN_EPS_DEVIATIONS, MIN_GUESS_DEVIATIONS = 0.01, 1e-3
# deviations by which an upper eps may miss its guess before a new tilt; factor on the tilt where none was found
MAX_GUESS_MISS_DEVIATIONS, TILT_BACKOFF = 1.5, 0.9
# ratio of the tilted to the plain variance beyond which rare large losses decide the answer
RARE_LOSS_VARIANCE_RATIO = 20
# there: divisor of the allowed error of eps (ln delta falls less steeply than the tilt says), and bound of delta in
# units of what single large losses contribute
RARE_LOSS_ERROR_DIVISOR, RARE_LOSS_DELTA_FACTOR = 1.6, 10
# range of losses around eps (ratio) that single losses are resolved in; share of eps that a bulk's losses add up to at
# most
FOCUS_RATIO, BULK_EPS_SHARE = 1.5, 0.6
# share of the tolerance by which delta may change when the rarest losses are neglected
NEGLIGIBLE_DELTA_SHARE = 0.02
# factor by which scanned masses go below delta / (steps * distinct steps)
SCAN_DEPTH_FACTOR = 1e6
# Chernoff's bound: Newton steps, share of delta for losses left out, and nats by which the best reachable bound may
# miss the target
CHERNOFF_STEPS, CHERNOFF_RARE_SHARE, CHERNOFF_HOPELESS_MISS = 3, 1e-3, 0.3

# ---- refinement of a bracket (composition.py): width and speed ----
# lattice cells that a refinement may take, and up to which one is tried even if the last one gained little
MAX_REFINED_CELLS, CHEAP_REFINEMENT_CELLS = 1 << 20, 1 << 15
# share of the wanted width that is aimed at; least and largest factor on the allowed error; that factor where no
# width is known
REFINEMENT_AIM, MIN_REFINEMENT_FACTOR, MAX_REFINEMENT_FACTOR, BLIND_REFINEMENT_FACTOR = 0.9, 0.05, 0.8, 0.1
# factor that the cell limit would force above which a refinement is given up, and width ratio above which the last
# one gained little
HOPELESS_REFINEMENT_FACTOR, UNPROFITABLE_WIDTH_RATIO = 0.5, 0.97

# ---- reading a composition (step_groups.py, sandwich.py): width and speed ----
# relative accuracy of eps on a composed curve; first search step and farthest search, in standard deviations
EPS_SEARCH_RTOL, EPS_SEARCH_STEP, EPS_SEARCH_RANGE = 1e-9, 1 / 16, 64
# relative accuracy of an eps of the tail probability, and compositions tried for one
TAIL_SEARCH_RTOL, MAX_TAIL_COMPOSITIONS = 3e-4, 4
# deviation-scaled move of eps below which a composition made for the old eps serves the new one
TAIL_EPS_MOVE = 0.2
# spans of the secants, in units of eps or of the standard deviation, whichever is larger
SECANT_SPANS = np.geomspace(1e-7, 1.0, 29)

# ---- compositions known only between two others (sandwich.py): width ----
# share of the tolerance for the two compositions themselves
SANDWICH_COMPOSITION_SHARE = 0.5
# bracket width, in tolerances, beyond which the sandwich is not tightened, and the share of the needed tightness that
# is aimed at
SANDWICH_MAX_WIDTH, SANDWICH_AIM = 20.0, 0.6
# work for one sandwich, the factor from one tolerance to the next where it is not enough, and the widest that is tried
SANDWICH_WORK, SANDWICH_COARSENING, WIDEST_SANDWICH = 0.7e9, 4.0, 0.1
# how often pairs are made to resolve smaller deltas where delta is smaller than what they resolve, and the power of its
# upper bound that they then resolve
SANDWICH_DEPTHS, SANDWICH_DEPTH_POWER = 8, 1.5
# work after which no smaller delta is resolved
SANDWICH_DEPTH_WORK = 1.5e9
# work after which the pairs are not made closer
SANDWICH_TIGHTENING_WORK = 3e9

# ---- batches of like pairs (saddle_point.py): speed ----
# ratio of parameters within one batch, and pairs in it
BATCH_PARAMETER_RATIO, MAX_BATCH_SIZE = 4.0, 128

# ---- scans of the tails (saddle_point.py): speed and width ----
# absolute losses (nats) of the first nodes
FIRST_LOSSES = np.sort(10.0 ** (9 - 24 / 59 * np.arange(112)))
# distances of further first nodes from the ends of a bounded support, in units of its length
FIRST_END_DISTANCES = np.geomspace(1e-7, 0.5, 30)
# a cell is divided if it holds more than the first share of all mass, or more than the second (third) share of the
# tail from it on
# while that is more than the depth (more than DEEPEST_MASS); the rougher shares serve many pairs that share their nodes
FINE_CELL_SHARES, ROUGH_CELL_SHARES = (0.02, 0.7, 0.3), (0.1, 0.9, 0.7)
DEEPEST_MASS = 1e-15
# parts that a cell is divided into; least width of a cell: relative for heavy and for other cells, and absolute (nats)
CELL_DIVISIONS, MIN_HEAVY_CELL, MIN_LIGHT_CELL, MIN_CELL_WIDTH = 4, 1e-9, 0.01, 1e-36
# pairs of a batch, per parameter, that find the nodes for the whole batch
REPRESENTATIVES = 4
# number of atoms up to which each becomes a node
MAX_NODE_ATOMS = 64
# P-masses to which tails are scanned; the deepest limits the smallest delta
SCAN_DEPTHS = (1e-25, 1e-50, 1e-100, 1e-150)
# share of the remaining tail and P-mass for which an undivided cell counts as the start of the far tail
FAR_TAIL_SHARE, FAR_TAIL_MASS = 0.5, 1e-12
# search for a tilt: steps, and the relative step and residual at which it ends
TILT_SEARCH_STEPS, TILT_RELATIVE_STEP, TILT_RELATIVE_RESIDUAL = 60, 0.01, 0.02
# tilts tried for the inversion of a transform, in units of the saddle point's
CONTOUR_TILT_RATIOS = np.concatenate(
    [np.geomspace(0.02, 0.5, 8)[:-1], np.linspace(0.5, 1.2, 15), np.linspace(1.3, 3, 8)]
)
# nats by which Chernoff's bound exceeds delta, in any case, and by which it may exceed its minimum
CONTOUR_LOG_SLACK, CONTOUR_MIN_LOG_SLACK = 3.0, 0.1

# ---- errors allowed to both ways of composing: width ----
# range of the relative error of delta that is passed on
MIN_RELATIVE_ERROR, MAX_RELATIVE_ERROR = 1e-9, 1e-2
# share of the decisive tilted mass that may lie below the lowest node, over all steps
NEGLIGIBLE_BOTTOM_SHARE = 1e-9
# spacing (nats) above which chords of the profile gain nothing over rounding losses to nodes
MAX_CHORD_SPACING = 1.0

# ---- few atoms (few_atoms.py): speed and width ----
# atoms that are few, and sums of one composition; shares of the error for omitted sums and for merged ones
MAX_FEW_ATOMS, MAX_ATOM_SUMS = 24, 1 << 20
OMITTED_SHARE, MERGED_SHARE = 1e-3, 0.1

# ---- nodes of a step (discretize.py): speed and width ----
MAX_STEP_NODES = 1 << 22
# share of the lattice's own discretisation error that sparser nodes may add
SPARSE_NODE_ERROR = 0.5
# ratio of the numbers of nodes needed within one batch
MAX_NODE_COUNT_RATIO = 2.5
# widest spacing of nodes times (1 + tilt), and fall of the log tails within a cell, both in nats
MAX_TILTED_SPACING, MAX_LOG_FALL = 0.3, 0.5
# share of the mass off the atoms that node spacing is charged for at least
MIN_OFF_LATTICE_MASS = 1e-9
# distance from a node, in cells, within which an atom counts as on it, for nodes and for the choice of the lattice
NODE_ATOM_TOLERANCE, LATTICE_ATOM_TOLERANCE = 1e-6, 1e-7
# relative distance on either side of an atom at which tails are compared to find the mass on it
ATOM_HALF_WIDTH = 1e-12

# ---- convex minorant (discretize.py): speed and width ----
# nodes in a row that must be feasible for an end of the PMF to be settled, and nodes evaluated together
FEASIBLE_RUN_LENGTH, MINORANT_BLOCK = 32, 40

# ---- one lattice (lattice.py): speed and width ----
# cells of a window: memory; and of the lattice from zero to the first atom, up to which atoms are put on nodes
MAX_WINDOW_CELLS, MAX_CELLS_TO_ATOM = 1 << 22, 1 << 20
# number of atoms up to which the lattice is laid through them
MAX_LATTICE_ATOMS = 8
# number of Chernoff parameters by which a window is chosen
WINDOW_CHERNOFF_POINTS = 9
# share of the error that wrap-around may take
WRAPAROUND_SHARE = 1e-2

# ---- rare large losses alone (rare_losses.py): speed and width ----
# kinds of steps and eps (nats) up to which it is tried, delta from which on single losses are not taken to decide, and
# nats by which outcomes without a large loss stay below
MAX_RARE_KINDS, MAX_RARE_EPS, MAX_RARE_DELTA, BULK_LOG_MARGIN = 8, 100.0, 0.1, -7.0
# expected number of large losses from which on they are not rare
MAX_RARE_JUMPS = 0.5
# cuts tried, in units of eps; range and number of the tilts of Chernoff's bound, in units of 1 / cut
RARE_CUTS, BULK_TILTS, BULK_TILT_COUNT = (0.9, 0.7, 0.5, 0.35, 0.2, 0.1, 0.05, 0.02), (0.5, 400.0), 24
# tilts tried, in units of the slope at eps; the share of delta in the outcomes with a large loss that is enough, in
# units of the number of steps over the relative error allowed
RARE_TILTS, RARE_SHARE_ROUNDING = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), 2e-11
# cells of the window times distinct steps, halvings of the range of eps that is searched, compositions tried, factor on
# the error where one does not fit, and the width that is narrow enough not to try other ways
MAX_RARE_CELLS, RARE_EPS_BISECTIONS, MAX_RARE_COMPOSITIONS, RARE_COARSENING, RARE_WIDTH = 1 << 20, 16, 12, 2.0, 1e-5
# width of the first bracket from which on none finer is tried, and share of the tolerance aimed at
HOPELESS_RARE_WIDTH = 0.05
RARE_ACCURACY_SHARE = 0.4


def add(kind: str, number: float) -> None:
    """Count a number of equal operations; their kind is a key of ``constants.WORK``."""
    counted_work.add(WORK[kind] * number)


# ---- composition by transform (inversion.py, transforms.py): speed and width ----
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

# ---- inversion of the transform (inversion.py, transforms.py): speed and width ----
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

# ---- omitted frequencies (inversion.py): speed ----
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
