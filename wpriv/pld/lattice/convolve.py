"""Composition of tilted lattice PMFs on one window of the fast Fourier transform, with every error inside the bracket.

Tilting by e^{lambda loss} (Esscher) moves the part of the PMF that decides delta to the middle of the window, so that a
delta of 1e-100 has the relative accuracy of one of 1e-3. Chernoff tails of the tilted PMF bound what wraps around.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts
from wpriv.pld import constants, work
from wpriv.pld.lattice.lattice_pmf import LatticePmf, reach
from wpriv.pld.two_sided import OneSidedComposition, TwoSidedComposition

Spectrum = NDArray[np.complex128]
# the PMFs of a group, and by how much in eps all of its steps together lie too high
PmfAndShift = tuple[LatticePmf, float]


@dataclass(frozen=True)
class LatticeSides:
    """The PMFs of a group of steps.

    Attributes:
        upper: the pessimistic PMFs.
        beyond: their P-mass at +infinity, of each step or of all.
        lower: makes the optimistic PMFs, once they are needed.
    """

    upper: LatticePmf
    beyond: Array
    lower: Callable[[], PmfAndShift]


@dataclass(frozen=True)
class LatticeComposition:
    """The PMF of the composed loss (tilted, on a lattice), to be evaluated at any eps near its middle.

    Attributes:
        step: spacing of the lattice in nats.
        tilt: tilt of the PMF.
        pmf: the PMF of the finite losses.
        mass_at_plus_infinity: composed P-mass at +infinity.
        slack: bound on the tilted mass that is missing or misplaced.
        above: P-mass from each node up, scaled to the centre; empty where it would overflow.
        hinge: the sum of (1 - e^{node - y}) times the same masses, over losses y from each node up.
        centre: mean of the tilted loss.
        eps_slack: by how much in eps an optimistic PMF lies too high.
    """

    step: float
    tilt: float
    pmf: LatticePmf
    mass_at_plus_infinity: float
    slack: float
    above: Array
    hinge: Array
    centre: float
    eps_slack: float

    @property
    def cells(self) -> int:
        """Number of cells of the last window."""
        return self.pmf.mass.size

    def delta(self, eps: float, sign: int) -> float:
        """delta at eps with the slack added (sign +1) or subtracted (sign -1)."""
        eps += self.eps_slack if sign < 0 else 0.0
        x = eps - self.centre
        # an infinite slack proves nothing, and its product with 0 is nan
        if -self.tilt * x > constants.MAX_EXPONENT_EVALUATION or not math.isfinite(self.slack):
            return 1.0 if sign > 0 else self.mass_at_plus_infinity
        i = int(np.searchsorted(self.pmf.index, math.floor(eps / self.step), side="right"))
        # the sum of (1 - e^{eps-y}) e^{-tilt (y-centre)} mass over losses y above eps, of terms of one sign
        if self.above.size:
            distance = max((float(self.pmf.index[0]) + i) * self.step - eps, 0.0)
            value = -math.expm1(-distance) * float(self.above[i]) + math.exp(-distance) * float(self.hinge[i])
        else:
            y = self.pmf.index[i:] * self.step
            weight = np.exp(np.clip(-self.tilt * (y - self.centre), -700.0, 700.0))
            value = float(self.pmf.mass[i:] @ (-np.expm1(eps - y) * weight))
        rounding = constants.UNIT_ROUNDOFF * (2 * self.pmf.mass.size + constants.READING_ROUNDINGS)
        value = max(value, 0.0) * (1 + sign * rounding)
        peak = math.exp(-self.tilt * math.log1p(1 / self.tilt)) / (1 + self.tilt) if self.tilt > 0 else 1.0
        value += sign * peak * self.slack * math.exp(-self.tilt * x)
        log_scale = float(self.pmf.log_norm) - self.tilt * self.centre
        finite = math.exp(min(log_scale + math.log(value), 700.0)) if value > 0 else 0.0
        # an upper bound above zero may be too small for a double
        return min(max(finite + self.mass_at_plus_infinity, 5e-324 if sign > 0 else 0.0), 1.0)


def compose_sides(
    sides: list[LatticeSides],
    counts: list[Counts],
    log_finite: float,
    compose: Callable[[list[PmfAndShift], float], OneSidedComposition],
    slack: float,
    deviation: float,
) -> TwoSidedComposition:
    """Compose the pessimistic PMFs now and the optimistic ones once they are needed.

    Nothing passed may refer to the steps, or else a reference cycle would keep all arrays alive.

    Args:
        log_finite: ln of the probability that no step has loss +infinity.
        compose: composes PMFs with a given ln of the probability that every loss is finite.
        slack: shift of eps by rounding.
        deviation: standard deviation of the tilted loss.
    """
    pairs = zip(sides, counts, strict=True)
    finite = sum(float(n @ np.log1p(-np.broadcast_to(side.beyond, n.shape))) for side, n in pairs)
    upper = compose([(side.upper, 0.0) for side in sides], finite)
    return TwoSidedComposition(
        upper, lambda: compose([side.lower() for side in sides], log_finite), slack, slack, deviation
    )


def compose_window(
    shifted: list[PmfAndShift],
    counts: list[Counts],
    step: float,
    tilt: float,
    tail: float,
    log_finite: float,
    transform: Callable[[int], tuple[Spectrum, Array]],
) -> LatticeComposition:
    """Compose ``counts[j][k]`` losses of row k of each normalised tilted PMF j on the lattice of spacing ``step``.

    An error e of the transform changes the sum of w times the mass, for weights w that rise once and fall once, up to
    one, by at most max |e| times the mean of |transform of w|, which is below 1 + (2 / pi) (ln size + 1). The sum of
    the moduli of all masses changes by at most the root of the sum of |e|^2.

    Args:
        tail: tilted mass that may wrap around in each direction.
        log_finite: ln of the probability that no step has loss +infinity.
        transform: makes the transform of the sum, or of a part of its outcomes, on a window of so many cells, and a
            bound on the error of each of its values.
    Raises:
        Unsupported: the errors exceed all mass of the part.
    """
    pmfs = [pmf for pmf, _ in shifted]
    moments = [pmf.moments(step) for pmf in pmfs]
    left, right = reach([(pmf.losses(step), pmf.rows) for pmf in pmfs], moments, counts, -math.log(tail))
    size = fast_length(math.ceil((left + right) / step) + 4)
    values, error = transform(size)
    weights = 1 + (2 / math.pi) * (math.log(size) + 1)
    slack = min(float(error.max()) * weights, math.sqrt(energy(error))) + 4 * tail
    slack += constants.FFT_VECTOR_ROUNDINGS * constants.UNIT_ROUNDOFF * math.log2(size) * math.sqrt(energy(values))
    mean = sum(float(n @ m) for n, (m, _) in zip(counts, moments, strict=True))
    low = math.floor((mean - left) / step) - 1
    mass = np.roll(np.fft.irfft(values, size), -(low % size))
    total = float(mass.sum())
    if not slack < total:
        raise Unsupported("pld finds that rounding would decide on this lattice. Raise `tol`, or use rdp")
    norm = sum(float(n @ np.broadcast_to(pmf.log_norm, n.shape)) for n, pmf in zip(counts, pmfs, strict=True))
    pmf = LatticePmf(low + np.arange(size), mass / total, norm + math.log(total))
    shift = sum(shift for _, shift in shifted)
    return with_tail_sums(pmf, step, tilt, -math.expm1(log_finite), slack / total, shift)


def check_cells(cells: float, limit: int) -> None:
    """Refuse a window of more cells than the limit."""
    if cells > limit:
        raise Unsupported(
            f"pld needs {cells:.3g} cells at this tolerance; the limit is {limit:,}. Raise `tol`, or use rdp"
        )


def with_tail_sums(
    pmf: LatticePmf, step: float, tilt: float, infinity: float, slack: float, eps_slack: float
) -> LatticeComposition:
    """Prepare a composed PMF on consecutive nodes for evaluation, by sums that cancel nowhere."""
    first, size = float(pmf.index[0]) * step, pmf.mass.size
    centre = step * float(pmf.mass @ pmf.index) / float(pmf.mass.sum())
    if (1 + tilt) * size * step > constants.MAX_EXPONENT_TAIL_SUMS:
        return LatticeComposition(step, tilt, pmf, infinity, slack, np.empty(0), np.empty(0), centre, eps_slack)
    above, hinge = np.zeros((2, size + 1))
    weight = _geometric(tilt * (centre - first), -tilt * step, size) * pmf.mass
    np.cumsum(weight[::-1], out=above[-2::-1])
    # hinge[i] = e^-step (hinge[i+1] + (e^step - 1) above[i+1])
    fall = _geometric(centre - first, -step, size)
    np.cumsum((fall * above[:-1])[:0:-1], out=hinge[-3::-1])
    hinge[:-1] *= math.expm1(step) / fall
    return LatticeComposition(step, tilt, pmf, infinity, slack, above, hinge, centre, eps_slack)


def _geometric(start: float, slope: float, size: int) -> Array:
    """e^{start + slope i} for i < size, as products of about 2 sqrt(size) exponentials."""
    inner = np.arange(math.isqrt(size) + 1)
    outer = np.exp(start + slope * inner.size * inner)
    return np.outer(outer, np.exp(slope * inner)).ravel()[:size]


def transform_error(pmf: LatticePmf, size: int) -> float:
    """Bound on the rounding error of a coefficient by ``spectrum``, for masses that add up to one.

    A coefficient is the sum of the masses, each multiplied by what the passes of the transform make of one; in a pass
    of radix 2, 3, 4 or 5 a mass meets a bounded number of roundings. Before, as many masses are added up in a cell as
    the PMF is longer than the window.
    """
    overlaps = 1.0 + float(pmf.index[-1] - pmf.index[0]) / size
    return constants.UNIT_ROUNDOFF * (constants.FFT_VALUE_ROUNDINGS * math.log2(size) + overlaps)


def energy(values: Spectrum | Array) -> float:
    """The sum of the squared moduli of the transform of real masses, given for the frequencies from zero up."""
    return 2 * float(np.vdot(values, values).real)


def spectrum(index: NDArray[np.int64], mass: Array, size: int) -> Spectrum:
    """[size/2 + 1] the discrete Fourier transform of masses [m] on cells ``index`` [m], wrapped around ``size``."""
    work.add("cell", size * math.log2(size) + mass.size)
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
