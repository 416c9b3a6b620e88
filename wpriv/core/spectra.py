"""Products of many spectra: the discrete Fourier transforms of the laws of a block's steps, raised to their counts.

Of a block of many steps only low frequencies are left: the block's law is far smoother than the lattice that its steps need. Where a few
of the laws alone show that nothing to speak of is left beyond some frequency, the other laws' spectra are summed directly up to there,
on the few nodes that they have, and the rest of the product is taken as zero, at an error that is known.
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
# nodes summed at once
BLOCK = 256


class Spectra:
    """Products of powers of the spectra of many laws, each placed with its centre, a whole number of cells, at the origin.

    ``cut`` is how many frequencies the products have, ``lost`` bounds the sum of |error| over all cells that this costs, and ``rounding``
    the relative error of one spectrum, in units of ``UNIT``.
    """

    def __init__(self, laws: list[Law], centres: list[Counts], size: int, least: list[Counts], weight: list[Array], error: float):
        """``least`` is how often each row is in every product, ``weight`` that times its variance, ``error`` what ``lost`` may be."""
        self.laws, self.centres, self.size = laws, centres, size
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
            return self.kept[j, k]
        found = spectrum(self.laws[j].index - self.centres[j][k], self.laws[j].rows[k], self.size)[: self.cut]
        if self.keep:
            self.kept[j, k] = found
        return found

    def _shorten(self, least: list[Counts], weight: list[Array], error: float) -> None:
        """Finds out how many frequencies matter, and sums the spectra up to there directly where that is quicker."""
        most = min(len(self.rows) // 8 + 1, max(ROOM // self.size, 2))
        widest = sorted(self.rows, key=lambda row: weight[row[0]][row[1]], reverse=True)[:most]
        envelope = np.ones(self.cut)
        first = {}
        for j, k in widest:
            first[j, k] = spectrum(self.laws[j].index - self.centres[j][k], self.laws[j].rows[k], self.size)
            if least[j][k]:
                modulus: Array = np.minimum(np.abs(first[j, k]) + self.rounding * UNIT, 1.0)
                envelope *= _power(modulus, int(least[j][k]))
        beyond = np.sqrt(2 * np.cumsum(envelope[::-1] ** 2)[::-1])
        cut = int(np.searchsorted(-beyond, -error))
        if cut >= self.cut or len(self.rows) * cut > ROOM:
            return
        self.cut, self.lost = cut, error
        self.kept = {row: found[:cut] for row, found in first.items()}
        for j, law in enumerate(self.laws):
            others = [k for k in range(law.rows.shape[0]) if (j, k) not in first]
            if law.index.size * cut * (4 + 0.5 * len(others)) < len(others) * self.size * (3 + 0.5 * math.log2(self.size)):
                self.rounding = max(self.rounding, BLOCK + law.index.size / BLOCK + 16)
                found = _low(law, others, self.centres[j], self.size, cut)
                self.kept.update({(j, k): row for k, row in zip(others, found, strict=True)})


def _low(law: Law, which: list[int], centres: NDArray[np.int64], size: int, cut: int) -> Spectrum:
    """[len(which), cut] the first coefficients of the rows' spectra, summed over the nodes; angles are whole parts of a turn."""
    inner = math.isqrt(cut - 1) + 1
    outer = -(-cut // inner)
    found = np.zeros((len(which), 2 * inner * outer))
    block = max(1, min(BLOCK, ROOM // cut))
    for start in range(0, law.index.size, block):
        index = law.index[start : start + block, None]
        near, far = _turns(index * np.arange(inner), size), _turns(index * (inner * np.arange(outer)), size)
        waves = (far[:, :, None] * near[:, None, :]).reshape(index.size, -1)
        found += law.rows[which, start : start + block] @ waves.view(np.float64)
    shift = _turns(-centres[which, None] * np.arange(cut), size)
    return found.view(np.complex128)[:, :cut] * shift


def _turns(number: NDArray[np.int64], size: int) -> Spectrum:
    """e^(-2 pi i number / size)."""
    return np.asarray(np.exp(-2j * math.pi / size * (number % size)))


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
