"""Products of many spectra: the discrete Fourier transforms of the PMFs of a block's steps, raised to their counts.

Of a block of many steps only low frequencies remain, since its PMF is far smoother than the lattice that its steps
need. The energies |spectrum|^2 are sampled to find a frequency beyond which almost nothing remains; between two samples
an energy is little above the larger one. Up to that frequency the spectra are summed directly, node by node; beyond it
their product is taken as zero. The errors of both are bounded.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wpriv.numerics.arrays import Array, Counts
from wpriv.numerics.log_space import log_one_plus
from wpriv.pld import constants, work
from wpriv.pld.lattice.lattice_pmf import LatticePmf

Spectrum = NDArray[np.complex128]
Values = TypeVar("Values", Spectrum, Array)


class SpectrumProducts:
    """Products of powers of the spectra of many PMFs.

    Attributes:
        cut: number of frequencies of the products.
        truncation_error: bound on the sum of |error| over all cells from the frequencies left out.
    """

    def __init__(
        self, pmfs: list[LatticePmf], size: int, min_counts: list[Counts], variances: list[Array], max_error: float
    ):
        """Prepare the spectra.

        Args:
            pmfs: tilted PMFs on one lattice.
            size: number of cells of the window.
            min_counts: least power of each row over all products.
            variances: of each row, in cells squared.
            max_error: limit of ``truncation_error``.
        """
        self.pmfs, self.size = pmfs, size
        self.cut, self.truncation_error = size // 2 + 1, 0.0
        self._full: dict[tuple[int, int], Spectrum] = {}
        self.truncated: list[Spectrum] = []
        self._rows = [(j, k) for j, pmf in enumerate(pmfs) for k in range(pmf.rows.shape[0])]
        if len(self._rows) >= constants.MIN_TRUNCATED_PMFS:
            self._truncate(min_counts, variances, max_error)
        self._keep_full = len(self._rows) * self.cut <= constants.MAX_STORED_COEFFICIENTS

    def product(self, powers: list[Counts]) -> Spectrum | None:
        """The product over PMFs and rows of the spectrum to its power; rows of equal power are multiplied first."""
        work.add("coefficient", self.cut * len(self._rows))
        by_power: dict[int, list[tuple[int, int]]] = {}
        for j, k in self._rows:
            by_power.setdefault(int(powers[j][k]), []).append((j, k))
        by_power.pop(0, None)
        product = None
        for power, rows in sorted(by_power.items()):
            factor = None
            for j, k in rows:
                row = self._spectrum(j, k)
                factor = row if factor is None else factor * row
            assert factor is not None
            raised = _integer_power(factor, power)
            product = raised if product is None else product * raised
        return product

    def rounding(self, product: Spectrum, powers: list[Counts], further: float) -> float:
        """Bound on the sum of |rounding error| over the cells of a product with more factors, transformed back.

        Args:
            further: relative rounding of the other factors, whose moduli are at most one, at every frequency.
        """
        work.add("coefficient", self.cut * len(self._rows))
        unit, steps = constants.UNIT_ROUNDOFF, sum(int(n.sum()) for n in powers)
        relative = constants.PRODUCT_ROUNDINGS * unit * steps + further
        relative += constants.FFT_VECTOR_ROUNDINGS * unit * math.log2(self.size)
        error = relative * math.sqrt(energy(product))
        # each spectrum is off by its noise, anywhere: with moduli so much larger, a product is off by at most this part
        # of it, or by twice itself
        share, logs = np.zeros(self.cut), np.zeros(self.cut)
        for j, k in self._rows:
            n = int(powers[j][k])
            if not n:
                continue
            pmf = self.pmfs[j]
            noise = _summation_error(pmf, self.cut) if self.truncated else transform_error(pmf, self.size)
            row = self._spectrum(j, k)
            largest = np.sqrt(row.real**2 + row.imag**2)
            largest += noise
            share += n * noise / largest
            logs += n * np.log(largest)
        return error + math.sqrt(energy(np.exp(logs) * np.minimum(share, 2.0)))

    def _spectrum(self, j: int, k: int) -> Spectrum:
        if self.truncated:
            row: Spectrum = self.truncated[j][k]
            return row
        if (j, k) in self._full:
            return self._full[j, k]
        full = spectrum(self.pmfs[j].index, self.pmfs[j].rows[k], self.size)
        if self._keep_full:
            self._full[j, k] = full
        return full

    def _truncate(self, min_counts: list[Counts], variances: list[Array], max_error: float) -> None:
        """Find how many frequencies matter; sum the spectra up to there if that is cheaper than to transform."""
        cut, error = _find_cutoff(self.pmfs, self.size, min_counts, variances, max_error)
        nodes = sum(pmf.rows.size for pmf in self.pmfs) / len(self._rows)
        too_many = len(self._rows) * cut > constants.MAX_STORED_COEFFICIENTS
        if nodes * cut > 2 * self.size * math.log2(self.size) or too_many:
            return
        self.cut, self.truncation_error = cut, error
        self.truncated = [_sum_spectra(pmf, self.size, cut) for pmf in self.pmfs]


def _find_cutoff(
    pmfs: list[LatticePmf], size: int, min_counts: list[Counts], variances: list[Array], max_error: float
) -> tuple[int, float]:
    """The frequency from which on a product of powers is negligible, and a bound on the sum of |error| over the cells.

    Every ``fold``-th coefficient of a spectrum is that of the PMF folded onto fewer cells. Up to where these
    coefficients show that nothing remains, further ones between them are summed.
    """
    fold = 1
    while size % (2 * fold) == 0 and size // (2 * fold) >= constants.MIN_COARSE_CELLS:
        fold *= 2
    cells = size // fold
    samples = []
    for pmf in pmfs:
        rows = pmf.rows
        place = pmf.index % cells + cells * np.arange(rows.shape[0])[:, None]
        folded = np.bincount(place.ravel(), weights=rows.ravel(), minlength=rows.shape[0] * cells)
        samples.append(np.fft.rfft(folded.reshape(-1, cells), axis=1))
    envelope = _envelope(samples, min_counts, variances, 2 * math.pi * fold / size)
    beyond = np.sqrt(2 * fold * np.cumsum(envelope[::-1])[::-1])
    first = int(np.searchsorted(-beyond, -max_error / 2))
    if first >= beyond.size:
        return size // 2 + 1, 0.0
    cut, error, finer = max(first, 1) * fold, float(beyond[max(first, 1)]), fold // constants.CUTOFF_REFINEMENT
    if finer < 1:
        return cut, error
    samples = [_sum_spectra(pmf, size, cut // finer + 1, finer) for pmf in pmfs]
    envelope = _envelope(samples, min_counts, variances, 2 * math.pi * finer / size)[:-1]
    beyond = np.sqrt(2 * finer * np.cumsum(envelope[::-1])[::-1])
    first = max(int(np.searchsorted(-beyond, -max_error / 2)), 1)
    return (first * finer, error + float(beyond[first])) if first < beyond.size else (cut, error)


def _envelope(spectra: list[Spectrum], min_counts: list[Counts], variances: list[Array], spacing: float) -> Array:
    """Bounds of |product of powers|^2 from each sample to the next, the last one's for what follows, which mirrors it.

    An energy is E[cos(w (X - X'))], X and X' independent and alike, and its second derivative at most 2 Var(X): between
    samples h apart it exceeds their chord by at most Var(X) h^2 / 4.
    """
    envelope = np.ones(spectra[0].shape[1])
    for samples, n, variance in zip(spectra, min_counts, variances, strict=True):
        energy = samples.real**2 + samples.imag**2
        energy[:, :-1] = np.maximum(energy[:, :-1], energy[:, 1:])
        energy = np.minimum(energy + (variance * spacing**2 / 4 + constants.ENERGY_ROUNDING)[:, None], 1.0)
        for power in set(n.tolist()) - {0}:
            envelope *= _integer_power(energy[n == power].prod(axis=0), power)
    return envelope


def _sum_spectra(pmf: LatticePmf, size: int, cut: int, stride: int = 1) -> Spectrum:
    """[K, cut] the first coefficients of the rows' spectra, or every ``stride``-th one, summed node by node."""
    spectra = np.zeros((pmf.rows.shape[0], cut), dtype=np.complex128)
    for start in range(0, pmf.index.size, constants.NODES_PER_SUM):
        chunk = slice(start, start + constants.NODES_PER_SUM)
        rows, waves = pmf.rows[:, chunk], _waves(pmf.index[chunk] * stride, size, cut)
        spectra.real += rows @ waves.real.copy().T
        spectra.imag += rows @ waves.imag.copy().T
    return spectra


def _waves(index: NDArray[np.int64], size: int, cut: int) -> Spectrum:
    """[cut, m] the waves e^{-2 pi i f index / size} of the frequencies f < cut, by doubling the known frequencies."""
    waves = np.empty((cut, index.size), dtype=np.complex128)
    waves[0] = 1.0
    doubles = 1 << np.arange(math.ceil(math.log2(cut)))
    # angles reduced to the interval around zero
    angles = ((doubles[:, None] * (index % size) + size // 2) % size - size // 2) * (-2 * math.pi / size)
    for known, turn in zip(doubles.tolist(), np.cos(angles) + 1j * np.sin(angles), strict=True):
        more = min(known, cut - known)
        np.multiply(waves[:more], turn, out=waves[known : known + more])
    return waves


def _summation_error(pmf: LatticePmf, cut: int) -> float:
    """Bound on the rounding error of a coefficient by ``_sum_spectra``, for masses that add up to one."""
    nodes, chunk = pmf.index.size, constants.NODES_PER_SUM
    roundings = min(nodes, chunk) + nodes / chunk + constants.WAVE_ROUNDINGS * math.log2(2 * cut) + 2
    return math.sqrt(2) * constants.UNIT_ROUNDOFF * roundings


def transform_error(pmf: LatticePmf, size: int) -> float:
    """Bound on the rounding error of a coefficient by ``spectrum``, for masses that add up to one.

    A coefficient is the sum of the masses, each multiplied by what the passes of the transform make of one; in a pass
    of radix 2, 3, 4 or 5 a mass meets a bounded number of roundings. Before, as many masses are added up in a cell as
    the PMF is longer than the window.
    """
    overlaps = 1.0 + float(pmf.index[-1] - pmf.index[0]) / size
    return constants.UNIT_ROUNDOFF * (constants.FFT_VALUE_ROUNDINGS * math.log2(size) + overlaps)


def energy(values: Values) -> float:
    """The sum of the squared moduli of the transform of real masses, given for the frequencies from zero up."""
    return 2 * float(np.vdot(values, values).real)


def spectrum(index: NDArray[np.int64], mass: Array, size: int) -> Spectrum:
    """[size/2 + 1] the discrete Fourier transform of masses [m] on cells ``index`` [m], wrapped around ``size``."""
    work.add("cell", size * math.log2(size) + mass.size)
    return np.fft.rfft(np.bincount(index % size, weights=mass, minlength=size))


def jump_spectrum(pmf: LatticePmf, counts: Counts, size: int) -> Spectrum:
    """The product of powers of the spectra of PMFs with nearly all mass at zero, computed from the rest.

    This way no rounding of the mass at zero is raised to the count.
    """
    moving = pmf.index != 0
    logs = np.zeros(size // 2 + 1, dtype=np.complex128)
    for n, row in zip(counts, pmf.rows, strict=True):
        mass = row[moving]
        log, argument = log_one_plus(spectrum(pmf.index[moving], mass, size) - mass.sum())
        logs += n * (log + 1j * argument)
    product: Spectrum = np.exp(logs)
    return product


def jump_rounding(pmf: LatticePmf, counts: Counts, size: int) -> float:
    """Bound on the relative rounding error of ``jump_spectrum`` at every frequency."""
    mass = pmf.rows[:, pmf.index != 0].sum(axis=1)
    if bool((mass > 0.4).any()):
        return math.inf
    # of the transform, of the sum of the masses, and of the logarithm and its exponential; 1 + z has a modulus of at
    # least 1 - 2 mass
    each = transform_error(pmf, size) + constants.UNIT_ROUNDOFF * (math.log2(pmf.index.size + 2) + 40)
    return math.expm1(min(float(counts @ (mass / (1 - 2 * mass))) * each, 700.0))


def _integer_power(values: Values, n: int) -> Values:
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
