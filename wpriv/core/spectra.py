"""Products of many spectra: the discrete Fourier transforms of the laws of a block's steps, raised to their counts.

Of a block of many steps only low frequencies are left: the block's law is far smoother than the lattice that its steps need. A coarse look
at the laws finds a frequency beyond which nothing to speak of is left: the energies |spectrum|^2 are sampled there, and between two samples
are little above the larger. Up to it the laws are moved to a far coarser grid, by polynomials that no wave of low frequency can be told
from, and transformed there. Beyond, the product is taken as zero; both errors are known.
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
# cells of the transforms that take the coarse look, at least, and what rounding may take from an energy seen there
COARSE, HAIR = 512, 1e-13
# a wave e^{iwx} is replaced, between grid points g apart, by its polynomial through POINTS of them; that is off by at most
# (wg/2)^POINTS / sqrt(pi POINTS / 2), which is 16 roundings where the shortest wave has PERIOD points; the moduli of the polynomials
# through one of the points and zero at the others add up to less than LEBESGUE
POINTS, PERIOD, LEBESGUE = 20, 16, 2.0
# nodes that are moved at once
CHUNK = 64
# the products of the distances between each point and all others
_NODES = np.array([math.factorial(i) * math.factorial(POINTS - 1 - i) * (-1) ** (POINTS - 1 - i) for i in range(POINTS)], dtype=float)


class Spectra:
    """Products of powers of the spectra of many laws.

    ``cut`` is how many frequencies the products have, ``lost`` bounds the sum of |error| over all cells that this costs, and ``rounding``
    the relative error of one spectrum, in units of ``UNIT``.
    """

    def __init__(self, laws: list[Law], size: int, least: list[Counts], variances: list[Array], error: float):
        """``least`` is how often each row is in every product, ``variances`` theirs in cells squared, ``error`` what ``lost`` may be."""
        self.laws, self.size = laws, size
        self.cut, self.lost, self.rounding = size // 2 + 1, 0.0, 2 * math.log2(size)
        self.kept: dict[tuple[int, int], Spectrum] = {}
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
            raised = _power(factor, power)
            result = raised if result is None else result * raised
        return result

    def _one(self, j: int, k: int) -> Spectrum:
        if (j, k) in self.kept:
            return self.kept[j, k]
        found = spectrum(self.laws[j].index, self.laws[j].rows[k], self.size)
        if self.keep:
            self.kept[j, k] = found
        return found

    def _shorten(self, least: list[Counts], variances: list[Array], error: float) -> None:
        """Finds out how many frequencies matter, and the spectra up to there."""
        cut, lost = _coarse_look(self.laws, self.size, least, variances, error)
        if cut * PERIOD > self.size // 2 or len(self.rows) * cut > ROOM:
            return
        self.cut, self.lost = cut, lost
        self.rounding = max(_low_rounding(law, self.size, cut) for law in self.laws)
        for j, law in enumerate(self.laws):
            self.kept.update({(j, k): row for k, row in enumerate(_low(law, self.size, cut))})


def _coarse_look(laws: list[Law], size: int, least: list[Counts], variances: list[Array], error: float) -> tuple[int, float]:
    """A frequency from which on little is left of a product of powers, and how much: the sum of |error| over the cells.

    Every so many-th coefficient of a spectrum is that of the law folded onto fewer cells. An energy is E[cos(w (X - X'))], X and X' alike,
    and its second derivative at most 2 Var(X): between samples h apart it exceeds their chord by at most Var(X) h^2 / 4.
    """
    fold = 1
    while size % (2 * fold) == 0 and size // (2 * fold) >= COARSE:
        fold *= 2
    cells, spacing = size // fold, 2 * math.pi * fold / size
    envelope = np.ones(cells // 2 + 1)
    for law, n, variance in zip(laws, least, variances, strict=True):
        rows = law.rows
        place = law.index % cells + cells * np.arange(rows.shape[0])[:, None]
        folded = np.bincount(place.ravel(), weights=rows.ravel(), minlength=rows.shape[0] * cells)
        found = np.fft.rfft(folded.reshape(-1, cells), axis=1)
        energy = found.real**2 + found.imag**2
        # to the right of the last sample lies its mirror image
        energy[:, :-1] = np.maximum(energy[:, :-1], energy[:, 1:])
        energy = np.minimum(energy + (variance * spacing**2 / 4 + HAIR)[:, None], 1.0)
        for power in set(n.tolist()) - {0}:
            envelope *= _power(energy[n == power].prod(axis=0), power)
    beyond = np.sqrt(2 * fold * np.cumsum(envelope[::-1])[::-1])
    first = int(np.searchsorted(-beyond, -error))
    return (max(first, 1) * fold, float(beyond[first])) if first < beyond.size else (size // 2 + 1, 0.0)


def _low_rounding(law: Law, size: int, cut: int) -> float:
    """The relative error of the spectra by ``_low``, in units of ``UNIT``: of the polynomials, of the sums and of the transform.

    A point of the grid gathers mass from so many nodes at most, a chunk at a time.
    """
    grid, laps = _grid(cut), (int(law.index[-1]) - int(law.index[0])) // size + 1
    gathered = min(law.index.size, laps * POINTS * (size // grid + 1))
    return LEBESGUE * (2 * POINTS + min(gathered, CHUNK) + gathered / CHUNK + 2 + 2 * math.log2(grid)) + 16


def _grid(cut: int) -> int:
    """The cells of a grid that is fine enough for so many frequencies."""
    return fast_length(max(PERIOD * cut, 2 * POINTS))


def _low(law: Law, size: int, cut: int) -> Spectrum:
    """[K, cut] the first coefficients of the rows' spectra, by way of a grid that is coarse but for them."""
    index, rows, grid = law.index, law.rows, _grid(cut)
    if index[-1] - index[0] >= size:
        order = np.argsort(index % size, kind="stable")
        index, rows = (index % size)[order], rows[:, order]
    whole, part = np.divmod(index * grid, size)
    # Lagrange's polynomials for the points around each node, as products of the distances before and after
    away = part[:, None] / size - (np.arange(POINTS) - (POINTS // 2 - 1))
    before, after = np.ones(away.shape), np.ones(away.shape)
    np.cumprod(away[:, :-1], axis=1, out=before[:, 1:])
    np.cumprod(away[:, :0:-1], axis=1, out=after[:, -2::-1])
    share = before * after / _NODES
    # the grid laid out flat, from the first point that a node shares its mass with
    lead = (int(whole[0]) - (POINTS // 2 - 1)) % grid
    place = whole - whole[0] + lead
    made = np.zeros((rows.shape[0], max(int(place[-1]) + POINTS, grid)))
    for start in range(0, index.size, CHUNK):
        at = place[start : start + CHUNK]
        band = np.zeros((at.size, int(at[-1] - at[0]) + POINTS))
        band[np.arange(at.size)[:, None], (at - at[0])[:, None] + np.arange(POINTS)] = share[start : start + CHUNK]
        made[:, at[0] : at[0] + band.shape[1]] += rows[:, start : start + CHUNK] @ band
    for start in range(grid, made.shape[1], grid):
        wrapped = made[:, start : start + grid]
        made[:, : wrapped.shape[1]] += wrapped
    return np.asarray(np.fft.rfft(made[:, :grid], axis=1)[:, :cut])


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
