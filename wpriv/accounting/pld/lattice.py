"""Composition of losses on a lattice by the fast Fourier transform."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.discretize import Sides, choose_nodes, discretize, split_by_node_count
from wpriv.accounting.pld.saddle_point import ApproximatePmf, Cumulants, StepGroup, tilted_weights
from wpriv.accounting.pld.step_groups import Steps, TwoSidedComposition, compose_sides
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts


@dataclass(frozen=True)
class LatticePmf:
    """Tilted PMFs of K distinct steps on common nodes; the P-mass of node i is mass[k, i] e^{log_norm[k] - tilt loss}.

    Attributes:
        index: [m] increasing lattice indices.
        mass: [K, m] tilted masses, of which each row sums to one.
        log_norm: [K] ln E[e^{tilt loss}].
        counts: [K] number of compositions of each step.
        infinity: [K] P-mass at +infinity of each step.
        eps_slack: by how much in eps all the steps together lie too high.
    """

    index: NDArray[np.int64]
    mass: Array
    log_norm: Array
    counts: Counts
    infinity: Array
    eps_slack: float = 0.0

    def losses(self, step: float) -> Array:
        """[m] the loss of each node in nats."""
        return np.asarray(self.index * step, dtype=np.float64)

    def moments(self, step: float) -> tuple[Array, Array]:
        """Means and variances [K] of the tilted losses."""
        y = self.losses(step)
        mean = self.mass @ y
        return mean, (self.mass * (y - mean[:, None]) ** 2).sum(axis=1)


def tilt_pmf(
    index: NDArray[np.int64],
    mass: Array,
    y: Array,
    tilt: float,
    counts: Counts,
    infinity: Array | float,
    eps_slack: float = 0.0,
) -> LatticePmf:
    """Tilt P-masses [K, m] on losses y [m], which lack ``infinity`` ([K] or one); nodes without mass are dropped."""
    mass, infinity = np.atleast_2d(mass), np.broadcast_to(infinity, counts.shape)
    # a row without any mass keeps a trace of it, so that its logarithm exists
    mass[~(mass > 0).any(axis=1), 0] = constants.MASS_FLOOR
    keep = (mass > 0).any(axis=0)
    mass, exponent = mass[:, keep], tilt * y[keep]
    top = float(exponent.max())
    growth = np.expm1(exponent) if top < constants.MAX_EXPONENT_ATOMS else np.empty(0)
    if growth.size and (top < 1.0 or float((mass @ np.abs(growth)).max()) < 0.5):
        # ln E[e^{tilt Y}] of a small or rare loss is from E[e^{tilt Y} - 1], or n steps would amplify its rounding
        log_norm = np.log1p(mass @ growth + total_excess(mass, infinity))
        weight = mass * np.exp(exponent)
        total = weight.sum(axis=1)
    else:
        weight, peak = mass * np.exp(exponent - top), np.full(mass.shape[0], top)
        # what underflows here is negligible beside a total as large as this
        if not float(weight.sum(axis=1).min()) > 1e-150:
            with np.errstate(divide="ignore"):
                log_mass = np.log(mass) + exponent
            peak = log_mass.max(axis=1)
            weight = np.exp(log_mass - peak[:, None])
        total = weight.sum(axis=1)
        log_norm = peak + np.log(total)
    return LatticePmf(index[keep], weight / total[:, None], log_norm, counts, infinity, eps_slack)


def total_excess(mass: Array, infinity: Array) -> Array:
    """[K] sums of masses [K, m] less one: -infinity of each row, but where the sum differs by more than rounding."""
    rows = zip(mass.tolist(), infinity.tolist(), strict=True)
    excess = np.array([math.fsum([*row, part, -1.0]) for row, part in rows])
    return np.asarray(np.where(np.abs(excess) < constants.NORMALISATION_ROUNDING, 0.0, excess) - infinity)


def reach(
    points: list[tuple[Array, Array]], moments: list[tuple[Array, Array]], counts: list[Counts], depth: float
) -> tuple[float, float]:
    """Distances below and above the mean within which a sum of losses lies up to probability e^-depth on each side.

    They are Chernoff's, for the best of a few parameters: near that of a normal distribution for a Gaussian-like sum,
    and near 1 / (largest loss) where rare large losses dominate.

    Args:
        points: per PMF the losses [m] and their probabilities [K, m], each row summing to one.
        moments: per PMF the means and variances [K]. counts: per PMF how many losses [K] of each row are summed.
    """
    variance = sum(float(n @ v) for n, (_, v) in zip(counts, moments, strict=True))
    largest = max(max(abs(float(y[0])), abs(float(y[-1]))) for y, _ in points)
    if variance <= 0 or largest <= 0:
        return 0.0, 0.0
    normal, number = math.sqrt(2 * depth / variance), constants.WINDOW_CHERNOFF_POINTS
    least = min(0.04 * normal, 2 / largest)
    theta = least * (1.4 * normal / least) ** (np.arange(number) / (number - 1))
    # centred cumulants of the sum at -theta and at theta, and the distances to its least and to its largest value
    cumulant, ends = np.zeros((2, number)), np.zeros(2)
    for (y, mass), (means, _), n in zip(points, moments, counts, strict=True):
        positive = (mass > 0).any(axis=0)
        x, rows, centre = y[positive], mass[:, positive], float(means.mean())
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            growth = np.exp(theta[:, None] * (x - centre))
            log = np.log(np.array([(1 / growth) @ rows.T, growth @ rows.T]))
        log[np.isnan(log)] = np.inf
        shift = theta[:, None] * (means - centre)
        cumulant += (log + np.array([shift, -shift])) @ n
        ends += np.array([means - x[0], x[-1] - means]) @ n
    distances = np.minimum(((cumulant + depth) / theta).min(axis=1), ends)
    return float(distances[0]), float(distances[1])


# Composition of tilted lattice PMFs on one window of the fast Fourier transform, with every error inside the bracket.
#
# Tilting by e^{lambda loss} (Esscher) moves the part of the PMF that decides delta to the middle of the window, so that
# a delta of 1e-100 has the relative accuracy of one of 1e-3. Chernoff tails of the tilted PMF bound what wraps around.

Spectrum = NDArray[np.complex128]


@dataclass(frozen=True)
class LatticeComposition:
    """The PMF of the composed loss (tilted, on a lattice), to be evaluated at any eps near its middle.

    Attributes:
        step: spacing of the lattice in nats. tilt: of the masses. centre: mean of the tilted loss.
        index, mass: [m] the nodes, in a row, and the tilted masses of the finite losses there.
        log_norm: ln E[e^{tilt loss}].
        mass_at_plus_infinity: composed P-mass at +infinity. slack: bound on the tilted mass missing or misplaced.
        above: P-mass from each node up, scaled to the centre; empty where it would overflow.
        hinge: the sum of (1 - e^{node - y}) times the same masses, over losses y from each node up.
        eps_slack: by how much in eps an optimistic PMF lies too high.
        bulk: tilts, and ln of the moments there, of outcomes that were left out; Chernoff's bound of their delta.
    """

    step: float
    tilt: float
    index: NDArray[np.int64]
    mass: Array
    log_norm: float
    mass_at_plus_infinity: float
    slack: float
    above: Array
    hinge: Array
    centre: float
    eps_slack: float
    bulk: tuple[Array, Array] | None = None

    @property
    def cells(self) -> int:
        """Number of cells of the last window."""
        return self.mass.size

    def delta(self, eps: float, sign: int) -> float:
        """delta at eps with the slack added (sign +1) or subtracted (sign -1)."""
        eps += self.eps_slack if sign < 0 else 0.0
        x = eps - self.centre
        # an infinite slack proves nothing, and its product with 0 is nan
        if -self.tilt * x > constants.MAX_EXPONENT_EVALUATION or not math.isfinite(self.slack):
            return 1.0 if sign > 0 else self.mass_at_plus_infinity
        i = int(np.searchsorted(self.index, math.floor(eps / self.step), side="right"))
        # the sum of (1 - e^{eps-y}) e^{-tilt (y-centre)} mass over losses y above eps, of terms of one sign
        if self.above.size:
            distance = max((float(self.index[0]) + i) * self.step - eps, 0.0)
            value = -math.expm1(-distance) * float(self.above[i]) + math.exp(-distance) * float(self.hinge[i])
        else:
            y = self.index[i:] * self.step
            weight = np.exp(np.clip(-self.tilt * (y - self.centre), -700.0, 700.0))
            value = float(self.mass[i:] @ (-np.expm1(eps - y) * weight))
        rounding = constants.UNIT_ROUNDOFF * (2 * self.mass.size + constants.READING_ROUNDINGS)
        value = max(value, 0.0) * (1 + sign * rounding)
        peak = math.exp(-self.tilt * math.log1p(1 / self.tilt)) / (1 + self.tilt) if self.tilt > 0 else 1.0
        value += sign * peak * self.slack * math.exp(-self.tilt * x)
        log_scale = self.log_norm - self.tilt * self.centre
        finite = math.exp(min(log_scale + math.log(value), 700.0)) if value > 0 else 0.0
        # an upper bound above zero may be too small for a double
        value = min(max(finite + self.mass_at_plus_infinity, 5e-324 if sign > 0 else 0.0), 1.0)
        if self.bulk is None or sign < 0:
            return value
        left_out = math.exp(min(float((self.bulk[1] - self.bulk[0] * eps).min()), 0.0))
        return min(value + left_out * (1 + 1e-12), 1.0)


def compose_window(
    pmfs: Sequence[LatticePmf],
    step: float,
    tilt: float,
    tail: float,
    transform: Callable[[Sequence[LatticePmf], int], tuple[Spectrum, Array]],
) -> LatticeComposition:
    """Compose tilted PMFs on the lattice of spacing ``step``.

    docs/theory/certified-pld.md, "Rare large losses", bounds what an error of the transform changes.

    Args:
        tail: tilted mass that may wrap around in each direction.
        transform: makes the transform of the sum, or of a part of its outcomes, on a window of so many cells, and a
            bound on the error of each of its values.
    """
    counts, moments = [pmf.counts for pmf in pmfs], [pmf.moments(step) for pmf in pmfs]
    left, right = reach([(pmf.losses(step), pmf.mass) for pmf in pmfs], moments, counts, -math.log(tail))
    size = fast_length(math.ceil((left + right) / step) + 4)
    values, error = transform(pmfs, size)
    weights = 1 + (2 / math.pi) * (math.log(size) + 1)
    slack = min(float(error.max()) * weights, math.sqrt(energy(error))) + 4 * tail
    slack += constants.FFT_VECTOR_ROUNDINGS * constants.UNIT_ROUNDOFF * math.log2(size) * math.sqrt(energy(values))
    mean = sum(float(n @ m) for n, (m, _) in zip(counts, moments, strict=True))
    low = math.floor((mean - left) / step) - 1
    if abs(low) + size > 2**62:
        raise Unsupported("pld finds losses too large to be put on a lattice. Increase the noise, or use rdp")
    mass = np.roll(np.fft.irfft(values, size), -(low % size))
    total = float(mass.sum())
    if not slack < total:
        raise Unsupported("pld finds that rounding would decide on this lattice. Raise `tol`, or use rdp")
    log_norm = sum(float(pmf.counts @ pmf.log_norm) for pmf in pmfs) + math.log(total)
    infinity = -math.expm1(sum(float(pmf.counts @ np.log1p(-pmf.infinity)) for pmf in pmfs))
    shift = sum(pmf.eps_slack for pmf in pmfs)
    return with_tail_sums(step, tilt, low + np.arange(size), mass / total, log_norm, infinity, slack / total, shift)


def check_cells(cells: float, limit: int) -> None:
    """Refuse a window of more cells than the limit."""
    if cells > limit:
        needed = f"pld needs {cells:.3g} cells at this tolerance"
        raise Unsupported(f"{needed}; the limit is {limit:,}. Raise `tol`, or use rdp")


def with_tail_sums(
    step: float,
    tilt: float,
    index: NDArray[np.int64],
    mass: Array,
    log_norm: float,
    infinity: float,
    slack: float,
    eps_slack: float = 0.0,
) -> LatticeComposition:
    """Prepare a composed PMF on consecutive nodes for evaluation, by sums that cancel nowhere."""
    first, size = float(index[0]) * step, mass.size
    centre = step * float(mass @ index) / float(mass.sum())
    above, hinge = np.zeros((2, size + 1))
    if (1 + tilt) * size * step > constants.MAX_EXPONENT_TAIL_SUMS:
        above = hinge = np.empty(0)
    else:
        weight = _geometric(tilt * (centre - first), -tilt * step, size) * mass
        np.cumsum(weight[::-1], out=above[-2::-1])
        # hinge[i] = e^-step (hinge[i+1] + (e^step - 1) above[i+1])
        fall = _geometric(centre - first, -step, size)
        np.cumsum((fall * above[:-1])[:0:-1], out=hinge[-3::-1])
        hinge[:-1] *= math.expm1(step) / fall
    return LatticeComposition(step, tilt, index, mass, log_norm, infinity, slack, above, hinge, centre, eps_slack)


def _geometric(start: float, slope: float, size: int) -> Array:
    """e^{start + slope i} for i < size, as products of about 2 sqrt(size) exponentials."""
    inner = np.arange(math.isqrt(size) + 1)
    outer = np.exp(start + slope * inner.size * inner)
    return np.outer(outer, np.exp(slope * inner)).ravel()[:size]


def transform_error(index: NDArray[np.int64], size: int) -> float:
    """Bound on the rounding error of a coefficient by ``spectrum``, for masses that add up to one.

    A coefficient is the sum of the masses, each multiplied by what the passes of the transform make of one; in a pass
    of radix 2, 3, 4 or 5 a mass meets a bounded number of roundings. Before, as many masses are added up in a cell as
    the PMF is longer than the window.
    """
    overlaps = 1.0 + float(index[-1] - index[0]) / size
    return constants.UNIT_ROUNDOFF * (constants.FFT_VALUE_ROUNDINGS * math.log2(size) + overlaps)


def energy(values: Spectrum | Array) -> float:
    """The sum of the squared moduli of the transform of real masses, given for the frequencies from zero up."""
    return 2 * float(np.vdot(values, values).real)


def spectrum(index: NDArray[np.int64], mass: Array, size: int) -> Spectrum:
    """[size/2 + 1] the discrete Fourier transform of masses [m] on cells ``index`` [m], wrapped around ``size``."""
    constants.add("cell", size * math.log2(size) + mass.size)
    return np.fft.rfft(np.bincount(index % size, weights=mass, minlength=size))


def integer_power(values: Spectrum, n: int) -> Spectrum:
    """An integer power n > 0 by squaring, with a relative error of at most n roundings."""
    power = None
    while True:
        if n & 1:
            power = values if power is None else power * values
        n >>= 1
        if not n:
            assert power is not None
            return power
        values = values * values


def fast_length(n: int) -> int:
    """The least 2^a 3^b 5^c >= n with b, c <= 2, a fast length for the FFT."""
    best = 1 << max(n - 1, 1).bit_length()
    for odd in (3, 5, 9, 15, 25, 45, 75, 225):
        length = odd << max(0, -(-n // odd) - 1).bit_length()
        if n <= length < best:
            best = length
    return best


# Compose the steps on one lattice by the fast Fourier transform: the method for few steps at a fine tolerance.
#
# The inversion of the transform needs a kernel whose width shrinks with the root of the tolerance, and the transform of
# few steps has not decayed at the frequencies that such a kernel lets pass. Of 920 random questions (16 mechanisms;
# Poisson, fixed-size, allocation and no sampling; 1 to 2^40 steps; tolerances of 1e-9 to 1e-2), 889 ended without a
# lattice. Of the other 31, ten got a narrower bracket from one: they had 9 to 32 steps and tolerances below 1.5e-7. For
# 13 steps at 5.5e-9 the transform ends at a relative width of 9e-8, and the lattice at 2.4e-9.


def compose_on_lattice(
    steps: Steps, state: Cumulants, tilt: float, eps: float, error: float, delta: float
) -> TwoSidedComposition:
    """Compose pessimistically and optimistically, accurate near eps; arguments as for ``compose_by_transform``."""
    # a lattice of spacing h raises the cumulant function at the saddle point by at most (tilt + 1) tilt h^2 / 12 a
    # step; the optimistic discretisation costs half as much again, and sparse nodes the share SPARSE_NODE_ERROR of it
    # all
    step = math.sqrt(8 * error / (steps.total * (tilt + 1) * (1 + constants.SPARSE_NODE_ERROR)))
    step = _with_atoms_on_nodes(steps.groups, min(max(step, steps.least_spacing()), constants.MAX_CHORD_SPACING))
    relative = error * (tilt + 1 / math.sqrt(state.variance))
    relative = min(max(relative, constants.MIN_RELATIVE_ERROR), constants.MAX_RELATIVE_ERROR)
    share = math.exp(min(math.log(delta) - state.cgf + tilt * eps, 0.0))
    tail = max(constants.WRAPAROUND_SHARE * relative * share, 1e-250)
    points = [(pmf.y, tilted_weights(pmf, tilt)) for pmf in steps.pmfs]
    moments = list(zip(state.means, state.variances, strict=True))
    check_cells(sum(reach(points, moments, steps.counts, -math.log(tail))) / step, constants.MAX_WINDOW_CELLS)
    sides = []
    for group, pmf in zip(steps.groups, steps.pmfs, strict=True):
        for part, part_pmf in split_by_node_count(group, pmf, tilt):
            masses = steps.negligible_mass(delta, part.counts), steps.negligible_bottom(share)
            sides.append(_discretize(part, part_pmf, step, tilt, masses))

    def compose(pmfs: Sequence[LatticePmf]) -> LatticeComposition:
        side = compose_window(pmfs, step, tilt, tail, _product)
        # so coarse a discretisation has its tilted mass where nothing is read off at eps
        if tilt * (side.centre - eps) > constants.MAX_EXPONENT_EVALUATION:
            raise Unsupported("pld finds no lattice for this process at this delta. Raise `tol`, or use rdp")
        return side

    return compose_sides(sides, compose, steps.rounding_shift(state), math.sqrt(state.variance))


def _with_atoms_on_nodes(groups: list[StepGroup], step: float) -> float:
    """A spacing of at most ``step`` that puts few atoms on or near nodes, where they cost no accuracy."""
    sets = [np.abs(g.pair.atoms) for g in groups if g.pair.atoms.size <= constants.MAX_LATTICE_ATOMS]
    atoms = np.unique(np.concatenate([*sets, np.zeros(1)]))[1:]
    if not 0 < atoms.size <= constants.MAX_LATTICE_ATOMS or atoms[0] > constants.MAX_CELLS_TO_ATOM * step:
        return step
    least = math.ceil(float(atoms[0]) / step * (1 - 1e-9))
    parts = np.arange(least, 3 * least + 20)
    places = np.outer(parts, atoms / atoms[0])
    off = np.abs(places - np.round(places)).max(axis=1)
    exact = np.flatnonzero(off < constants.LATTICE_ATOM_TOLERANCE)
    return float(atoms[0]) / int(parts[exact[0] if exact.size else off.argmin()])


def _discretize(
    group: StepGroup, pmf: ApproximatePmf, step: float, tilt: float, masses: tuple[float, float]
) -> Sides[LatticePmf]:
    """Discretise a group's pairs; ``masses`` are the P-mass above and the tilted mass below the nodes."""
    index = choose_nodes(group, pmf, step, tilt, *masses)
    y = np.asarray(index * step, dtype=np.float64)
    return discretize(group.pair, y, lambda mass, beyond: tilt_pmf(index, mass, y, tilt, group.counts, beyond))


def _product(pmfs: Sequence[LatticePmf], size: int) -> tuple[Spectrum, Array]:
    """The product of powers of the transforms, and a bound on the error of each of its values.

    Each transform is off by its noise, anywhere: with moduli so much larger, a product is off by at most its share of
    it, or by twice itself.
    """
    check_cells(size, constants.MAX_WINDOW_CELLS)
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    share, logs, number = np.zeros(product.size), np.zeros(product.size), sum(float(pmf.counts.sum()) for pmf in pmfs)
    for pmf in pmfs:
        noise = transform_error(pmf.index, size)
        constants.add("coefficient", 2 * product.size * pmf.counts.size)
        for n, row in zip(pmf.counts.tolist(), pmf.mass, strict=True):
            values = spectrum(pmf.index, row, size)
            largest = np.abs(values) + noise
            product = product * integer_power(values, n)
            share += n * noise / largest
            logs += n * np.log(largest)
    relative = constants.PRODUCT_ROUNDINGS * constants.UNIT_ROUNDOFF * number
    return product, np.exp(logs) * np.minimum(share, 2.0) + relative * np.abs(product)
