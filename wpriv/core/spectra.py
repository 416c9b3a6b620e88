"""Products of many spectra: the discrete Fourier transforms of the laws of a block's steps, raised to their counts.

Of a block of many steps only low frequencies are left: the block's law is far smoother than the lattice that its steps need. A coarse look
at the widest few of the laws finds a frequency beyond which nothing to speak of is left: spectra are sampled there, and Lipschitz between.
Up to it the laws are moved to a far coarser grid, by polynomials that the waves of low frequency cannot be told from, and transformed
there, the widest first: what each leaves shortens the rest. Beyond, the product is taken as zero; both errors are known.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wpriv.core.law import Law
from wpriv.core.pair import Array, Counts

UNIT = 2.0**-53
Spectrum = NDArray[np.complex128]
Values = TypeVar("Values", Spectrum, Array)
# laws below which plain FFTs are as quick
MANY = 12
# complex numbers held at once
ROOM = 1 << 22
# cells of the transform that takes the coarse look, at least
COARSE = 1024
# a wave e^{iwx} is replaced, between grid points g apart, by its polynomial through POINTS of them; that is off by at most
# (wg/2)^POINTS / sqrt(pi POINTS / 2), which is 16 roundings where the shortest wave has PERIOD points; the moduli of the polynomials
# through one of the points and zero at the others add up to less than LEBESGUE
POINTS, PERIOD, LEBESGUE = 20, 16, 2.0


class Spectra:
    """Products of powers of the spectra of many laws.

    ``cut`` is how many frequencies the products have, ``lost`` bounds the sum of |error| over all cells that this costs, and ``rounding``
    the relative error of one spectrum, in units of ``UNIT``.
    """

    def __init__(self, laws: list[Law], size: int, least: list[Counts], weight: list[Array], error: float):
        """``least`` is how often each row is in every product, ``weight`` that times its variance, ``error`` what ``lost`` may be."""
        self.laws, self.size = laws, size
        self.cut, self.lost, self.rounding = size // 2 + 1, 0.0, 2 * math.log2(size)
        self.kept: dict[tuple[int, int], Spectrum] = {}
        self.rows = [(j, k) for j, law in enumerate(laws) for k in range(law.rows.shape[0])]
        if len(self.rows) >= MANY:
            self._shorten(least, weight, error)
        self.keep = len(self.rows) * self.cut <= ROOM

    def product(self, powers: list[Counts]) -> Spectrum | None:
        """The product over laws and rows of the spectrum to its power; laws of one power are multiplied before it is taken."""
        result = None
        for power in sorted({int(n) for p in powers for n in p} - {0}):
            factor = None
            for j, k in self.rows:
                if powers[j][k] == power:
                    one = self._one(j, k)
                    factor = one if factor is None else factor * one
            assert factor is not None
            raised = _power(factor, power)
            result = raised if result is None else result * raised
        return result

    def _one(self, j: int, k: int) -> Spectrum:
        if (j, k) in self.kept:
            return self.kept[j, k][: self.cut]
        found = spectrum(self.laws[j].index, self.laws[j].rows[k], self.size)
        if self.keep:
            self.kept[j, k] = found
        return found

    def _shorten(self, least: list[Counts], weight: list[Array], error: float) -> None:
        """Finds out how many frequencies matter, and the spectra up to there."""
        widest = sorted(self.rows, key=lambda row: weight[row[0]][row[1]], reverse=True)[: len(self.rows) // 4 + 1]
        cut, rest = _coarse_look([(self.laws[j], k, int(least[j][k])) for j, k in widest], self.size, error / 2)
        if cut * PERIOD > self.size // 2 or len(self.rows) * cut > ROOM:
            return
        rounding = LEBESGUE * (2 * POINTS + 2 * math.log2(self.size)) + 16
        envelope = np.ones(cut)
        for j in sorted(range(len(self.laws)), key=lambda j: float(weight[j].max()), reverse=True):
            found = _low(self.laws[j], self.size, cut)
            energy = np.minimum(found.real**2 + found.imag**2 + 3 * rounding * UNIT, 1.0)
            for power in np.unique(least[j][least[j] > 0]):
                envelope *= _power(energy[least[j] == power].prod(axis=0), int(power))
            self.kept.update({(j, k): row for k, row in enumerate(found)})
            beyond = np.sqrt(rest**2 + 2 * np.cumsum(envelope[::-1])[::-1])
            cut = max(min(int(np.searchsorted(-beyond, -error)), cut), 1)
            envelope = envelope[:cut]
        self.cut, self.lost, self.rounding = cut, error, rounding


def _coarse_look(rows: list[tuple[Law, int, int]], size: int, error: float) -> tuple[int, float]:
    """A frequency from which on little is left of a product of powers (law, row, power), and how much: the sum of |error| over the cells.

    Every so many-th coefficient is that of the law folded onto fewer cells. Between two, a modulus changes by no more than the change of
    angle times the mean distance from any one cell.
    """
    fold = 1
    while size % (2 * fold) == 0 and size // (2 * fold) >= COARSE and fold < 32:
        fold *= 2
    envelope = np.ones(size // fold // 2 + 1)
    for law, k, power in rows:
        if power:
            mass = law.rows[k]
            distance = float(mass @ np.abs(law.index - round(float(mass @ law.index))))
            slack = math.pi * fold / size * distance + 1e-13
            modulus: Array = np.minimum(np.abs(spectrum(law.index, mass, size // fold)) + slack, 1.0)
            envelope *= _power(modulus, power) ** 2
    beyond = np.sqrt(2 * fold * np.cumsum(envelope[::-1])[::-1])
    first = int(np.searchsorted(-beyond, -error))
    return (first * fold - fold // 2, float(beyond[first])) if first < beyond.size else (size // 2 + 1, 0.0)


def _low(law: Law, size: int, cut: int) -> Spectrum:
    """[K, cut] the first coefficients of the rows' spectra, by way of a grid that is coarse but for them."""
    grid = fast_length(max(PERIOD * cut, 2 * POINTS))
    whole, part = np.divmod(law.index % size * grid, size)
    # Lagrange's polynomials for the points around each node, as products of the distances before and after
    points = np.arange(POINTS) - (POINTS // 2 - 1)
    away = part[:, None] / size - points
    before, after = np.ones(away.shape), np.ones(away.shape)
    np.cumprod(away[:, :-1], axis=1, out=before[:, 1:])
    np.cumprod(away[:, :0:-1], axis=1, out=after[:, -2::-1])
    scale = np.array([math.factorial(i) * math.factorial(POINTS - 1 - i) * (-1) ** (POINTS - 1 - i) for i in range(POINTS)], dtype=float)
    share = before * after / scale
    place = ((whole[:, None] + points) % grid).ravel()
    made = np.array([np.bincount(place, weights=(share * row[:, None]).ravel(), minlength=grid) for row in law.rows])
    return np.asarray(np.fft.rfft(made, axis=1)[:, :cut])


def spectrum(index: NDArray[np.int64], mass: Array, size: int) -> NDArray[np.complex128]:
    return np.fft.rfft(np.bincount(index % size, weights=mass, minlength=size))


def jump_factor(law: Law, counts: Counts, size: int) -> NDArray[np.complex128]:
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


def _power(spectrum: Values, n: int) -> Values:
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
