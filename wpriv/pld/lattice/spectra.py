"""Products of many spectra: the discrete Fourier transforms of the laws of a block's steps, raised to their counts.

Of a block of many steps only low frequencies are left: the block's law is far smoother than the lattice that its steps need. A coarse look
at the laws finds a frequency beyond which nothing to speak of is left: the energies |spectrum|^2 are sampled there, and between two samples
are little above the larger. Up to it the spectra are summed directly, node by node; beyond, their product is taken as zero. The errors of
both are known.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wpriv.numerics.arrays import Array, Counts
from wpriv.pld.lattice.lattice_pmf import LatticePmf

UNIT = 2.0**-53
Spectrum = NDArray[np.complex128]
Values = TypeVar("Values", Spectrum, Array)
# laws below which plain FFTs are as quick
MANY = 12
# complex numbers held at once
ROOM = 1 << 22
# cells of the transforms that take the coarse look, at least; parts that its samples are then divided into; and what rounding may take from
# an energy seen there
COARSE, FINER, HAIR = 512, 4, 1e-12
# nodes that are summed at once
CHUNK = 256
# roundings of a product of two complex numbers, and of a wave each time that the frequencies are doubled
TIMES, WAVE = 3, 12


class SpectrumProducts:
    """Products of powers of the spectra of many laws.

    ``cut`` is how many frequencies the products have, ``lost`` bounds the sum of |error| over all cells that this costs.
    """

    def __init__(self, laws: list[LatticePmf], size: int, least: list[Counts], variances: list[Array], error: float):
        """``least`` is how often each row is in every product, ``variances`` theirs in cells squared, ``error`` what ``lost`` may be."""
        self.laws, self.size = laws, size
        self.cut, self.lost = size // 2 + 1, 0.0
        self.kept: dict[tuple[int, int], Spectrum] = {}
        self.summed: list[Spectrum] = []
        self.rows = [(j, k) for j, law in enumerate(laws) for k in range(law.rows.shape[0])]
        if len(self.rows) >= MANY:
            self._shorten(least, variances, error)
        self.keep = len(self.rows) * self.cut <= ROOM

    def product(self, powers: list[Counts]) -> Spectrum | None:
        """The product over laws and rows of the spectrum to its power; laws of one power are multiplied before it is taken."""
        alike: dict[int, list[tuple[int, int]]] = {}
        for j, k in self.rows:
            alike.setdefault(int(powers[j][k]), []).append((j, k))
        alike.pop(0, None)
        result = None
        for power, rows in sorted(alike.items()):
            factor = None
            for j, k in rows:
                one = self._one(j, k)
                factor = one if factor is None else factor * one
            assert factor is not None
            raised = _integer_power(factor, power)
            result = raised if result is None else result * raised
        return result

    def rounding(self, product: Spectrum, powers: list[Counts], joined: int) -> float:
        """What rounding may add up to, over the cells of a product with so many more factors, once it is transformed back."""
        steps, plain = sum(int(n.sum()) for n in powers), 2 * math.log2(self.size)
        relative = (TIMES * steps if self.summed else plain * steps) + plain * (joined + 1)
        found = relative * UNIT * math.sqrt(_energy(product))
        if not self.summed:
            return found
        # each spectrum is off by its noise, anywhere: with moduli so much larger, a product is off by at most this part of it
        share, logs = np.zeros(self.cut), np.zeros(self.cut)
        for law, spectra, n in zip(self.laws, self.summed, powers, strict=True):
            noise = _summation_error(law, self.cut)
            most = np.abs(spectra) + noise
            share += n @ (noise / most)
            logs += n @ np.log(most)
        return found + math.sqrt(_energy(np.exp(logs) * np.minimum(share, 1.0)))

    def _one(self, j: int, k: int) -> Spectrum:
        if self.summed:
            low: Spectrum = self.summed[j][k]
            return low
        if (j, k) in self.kept:
            return self.kept[j, k]
        found = spectrum(self.laws[j].index, self.laws[j].rows[k], self.size)
        if self.keep:
            self.kept[j, k] = found
        return found

    def _shorten(self, least: list[Counts], variances: list[Array], error: float) -> None:
        """Finds out how many frequencies matter, and sums the spectra up to there if that is cheaper than to transform them."""
        cut, lost = _find_cutoff(self.laws, self.size, least, variances, error)
        nodes = sum(law.rows.size for law in self.laws) / len(self.rows)
        if nodes * cut > 2 * self.size * math.log2(self.size) or len(self.rows) * cut > ROOM:
            return
        self.cut, self.lost = cut, lost
        self.summed = [_sum_spectra(law, self.size, cut) for law in self.laws]


def _find_cutoff(
    laws: list[LatticePmf], size: int, least: list[Counts], variances: list[Array], error: float
) -> tuple[int, float]:
    """A frequency from which on little is left of a product of powers, and how much: the sum of |error| over the cells.

    Every so many-th coefficient of a spectrum is that of the law folded onto fewer cells. Up to where these show that nothing is left, some
    more between them are summed.
    """
    fold = 1
    while size % (2 * fold) == 0 and size // (2 * fold) >= COARSE:
        fold *= 2
    cells = size // fold
    found = []
    for law in laws:
        rows = law.rows
        place = law.index % cells + cells * np.arange(rows.shape[0])[:, None]
        folded = np.bincount(place.ravel(), weights=rows.ravel(), minlength=rows.shape[0] * cells)
        found.append(np.fft.rfft(folded.reshape(-1, cells), axis=1))
    beyond = np.sqrt(2 * fold * np.cumsum(_envelope(found, least, variances, 2 * math.pi * fold / size)[::-1])[::-1])
    first = int(np.searchsorted(-beyond, -error / 2))
    if first >= beyond.size:
        return size // 2 + 1, 0.0
    cut, lost, finer = max(first, 1) * fold, float(beyond[max(first, 1)]), fold // FINER
    if finer < 1:
        return cut, lost
    samples = [_sum_spectra(law, size, cut // finer + 1, finer) for law in laws]
    envelope = _envelope(samples, least, variances, 2 * math.pi * finer / size)[:-1]
    beyond = np.sqrt(2 * finer * np.cumsum(envelope[::-1])[::-1])
    first = max(int(np.searchsorted(-beyond, -error / 2)), 1)
    return (first * finer, lost + float(beyond[first])) if first < beyond.size else (cut, lost)


def _envelope(spectra: list[Spectrum], least: list[Counts], variances: list[Array], spacing: float) -> Array:
    """Bounds of |product of powers|^2 from each sample to the next, the last one's for what follows, which mirrors it.

    An energy is E[cos(w (X - X'))], X and X' alike, and its second derivative at most 2 Var(X): between samples h apart it exceeds their
    chord by at most Var(X) h^2 / 4.
    """
    envelope = np.ones(spectra[0].shape[1])
    for found, n, variance in zip(spectra, least, variances, strict=True):
        energy = found.real**2 + found.imag**2
        energy[:, :-1] = np.maximum(energy[:, :-1], energy[:, 1:])
        energy = np.minimum(energy + (variance * spacing**2 / 4 + HAIR)[:, None], 1.0)
        for power in set(n.tolist()) - {0}:
            envelope *= _integer_power(energy[n == power].prod(axis=0), power)
    return envelope


def _sum_spectra(law: LatticePmf, size: int, cut: int, stride: int = 1) -> Spectrum:
    """[K, cut] the first coefficients of the rows' spectra, or every ``stride``-th one, summed node by node."""
    found = np.zeros((law.rows.shape[0], cut), dtype=np.complex128)
    for start in range(0, law.index.size, CHUNK):
        some, waves = law.rows[:, start : start + CHUNK], _waves(law.index[start : start + CHUNK] * stride, size, cut)
        found.real += some @ waves.real.copy().T
        found.imag += some @ waves.imag.copy().T
    return found


def _waves(index: NDArray[np.int64], size: int, cut: int) -> Spectrum:
    """[cut, m] the waves e^{-2 pi i f index / size} of the frequencies f < cut: those known, turned by the first that is not."""
    waves = np.empty((cut, index.size), dtype=np.complex128)
    waves[0] = 1.0
    doubles = 1 << np.arange(math.ceil(math.log2(cut)))
    # angles as near to zero as they can be had
    angles = ((doubles[:, None] * (index % size) + size // 2) % size - size // 2) * (-2 * math.pi / size)
    for known, turn in zip(doubles.tolist(), np.cos(angles) + 1j * np.sin(angles), strict=True):
        more = min(known, cut - known)
        np.multiply(waves[:more], turn, out=waves[known : known + more])
    return waves


def _summation_error(law: LatticePmf, cut: int) -> float:
    """By how much rounding may shift a coefficient by ``_summed``, the masses adding up to one."""
    nodes = law.index.size
    return math.sqrt(2) * UNIT * (min(nodes, CHUNK) + nodes / CHUNK + WAVE * math.log2(2 * cut) + 2)


def _energy(values: Values) -> float:
    """The sum of the squared moduli of a real law's transform, given for the frequencies from zero up."""
    return 2 * float(np.vdot(values, values).real)


def spectrum(index: NDArray[np.int64], mass: Array, size: int) -> NDArray[np.complex128]:
    """[size/2 + 1] the discrete Fourier transform of masses [m] on cells ``index`` [m], wrapped around ``size``."""
    return np.fft.rfft(np.bincount(index % size, weights=mass, minlength=size))


def jump_factor(law: LatticePmf, counts: Counts, size: int) -> NDArray[np.complex128]:
    """The n-th powers, multiplied, of the spectra of laws that are nearly all at zero, from what is not.

    No rounding of what is at zero is then raised to the n.
    """
    moving = law.index != 0
    logs = np.zeros(size // 2 + 1, dtype=np.complex128)
    for n, row in zip(counts, law.rows, strict=True):
        mass = row[moving]
        logs += n * np.log1p(spectrum(law.index[moving], mass, size) - mass.sum())
    power: NDArray[np.complex128] = np.exp(logs)
    return power


def _integer_power(spectrum: Values, n: int) -> Values:
    """An integer power by squaring, n > 0: relative error at most n roundings."""
    result = None
    while True:
        if n & 1:
            result = spectrum if result is None else result * spectrum
        n >>= 1
        if not n:
            assert result is not None
            return result
        spectrum = spectrum * spectrum


def fast_length(n: int) -> int:
    """The least 2^a 3^b 5^c >= n with b, c <= 2, a quick length for the FFT."""
    best = 1 << max(n - 1, 1).bit_length()
    for odd in (3, 5, 9, 15, 25, 45, 75, 225):
        length = odd << max(0, -(-n // odd) - 1).bit_length()
        if n <= length < best:
            best = length
    return best
