"""Composition of lattice laws: tilted, staged FFT convolution with every error inside the bracket.

Tilting by e^{lambda loss} (Esscher) brings the part of the law that decides delta to the middle of the window, so that a delta of
1e-100 has the relative accuracy of one of 1e-3. Staging (Ghazi, Kamath, Kumar, Manurangsi, "Faster Privacy Accounting via Evolving
Discretization", ICML 2022) composes blocks on a fine lattice, re-dots them on a coarser one - up for the upper law, down for the
lower - and goes on, so that 2^40 steps cost a few short FFTs. Wrap-around is bounded by Chernoff tails of the tilted law, rounding by
the usual bound of the FFT; both widen the bracket.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wpriv.core.grid import coarsen
from wpriv.core.pair import Array
from wpriv.errors import Unsupported

MAX_CELLS = 1 << 22
UNIT = 2.0**-53


@dataclass(frozen=True)
class Law:
    """A tilted law on a lattice: node ``index[i]`` has loss index[i] * step and P-mass mass[i] e^{log_norm - tilt * loss}."""

    index: NDArray[np.int64]
    mass: Array
    log_norm: float

    def losses(self, step: float) -> Array:
        """The loss of each node, in nats."""
        return np.asarray(self.index * step, dtype=np.float64)

    def normalised(self) -> Law:
        total = float(self.mass.sum())
        return replace(self, mass=self.mass / total, log_norm=self.log_norm + math.log(total))

    def moments(self, step: float) -> tuple[float, float]:
        """Mean and variance of the tilted loss; the masses must sum to one."""
        y = self.losses(step)
        mean = float(self.mass @ y)
        return mean, float(self.mass @ (y - mean) ** 2)


@dataclass(frozen=True)
class Composed:
    """The law of the composed loss (tilted, on a lattice), ready to be read at any eps near its middle.

    ``slack`` bounds the tilted mass that is missing or misplaced; ``infinity`` is the composed P-mass at +infinity. ``above`` and
    ``above_q`` are the sums of P- and Q-mass from each node up, scaled to the centre; empty where they would overflow.
    """

    step: float
    tilt: float
    law: Law
    infinity: float
    slack: float
    above: Array
    above_q: Array
    centre: float

    def delta(self, eps: float, sign: int) -> float:
        """delta at eps with the slack added (sign +1) or taken away (sign -1)."""
        i = int(np.searchsorted(self.law.index, math.floor(eps / self.step), side="right"))
        x = eps - self.centre
        # the sum of (1 - e^{eps-y}) e^{-tilt (y-centre)} mass over losses y above eps
        if self.above.size:
            value = max(float(self.above[i]) - math.exp(min(x, 700.0)) * float(self.above_q[i]), 0.0)
        else:
            y = self.law.index[i:] * self.step
            value = float(self.law.mass[i:] @ (-np.expm1(eps - y) * np.exp(np.clip(-self.tilt * (y - self.centre), -700.0, 700.0))))
        peak = math.exp(-self.tilt * math.log1p(1 / self.tilt)) / (1 + self.tilt) if self.tilt > 0 else 1.0
        slack = sign * peak * self.slack * math.exp(min(-self.tilt * x, 700.0))
        finite = math.exp(min(self.law.log_norm - self.tilt * self.centre, 700.0)) * max(value + slack, 0.0)
        # a bound above zero may be too small for a double
        return min(max(finite + self.infinity, 5e-324 if sign > 0 else 0.0), 1.0)


def compose(
    laws: list[Law],
    counts: list[int],
    step: float,
    tilt: float,
    stages: list[tuple[int, int]],
    *,
    late: list[tuple[Law, int]],
    upper: bool,
    log_finite: float,
    tail: float,
) -> Composed:
    """The law of the sum of ``counts[j]`` losses of each law j.

    Args:
        laws: normalised tilted laws on the lattice of spacing ``step``.
        stages: (number of blocks the stage leaves, cells then merged into one), the last being (1, 1); numbers decrease.
        late: laws on the last lattice, with their counts, that join in the last stage.
        upper: re-dot from above or from below.
        tail: tilted mass that may wrap around in each direction, over all blocks of a stage.
        log_finite: ln of the probability that no step has loss +infinity.
    Raises:
        Unsupported: a window would need more than ``MAX_CELLS`` cells.
    """
    errors: list[tuple[int, float, float]] = []
    for number, factor in stages:
        kinds = _kinds(counts, number)
        laws, error, reach = _convolve(laws, kinds, step, tail / number, late if number == 1 else [])
        errors.append((number, error, reach))
        if factor > 1:
            laws = [_coarse(law, step, factor, tilt, upper) for law in laws]
            step *= factor
        counts = [kind[0] for kind in kinds]
    law = laws[0]
    density = float(law.mass.max()) / step
    # a zero-sum error of size e within one block's window moves the rest of the law by at most its reach
    slack = tail + sum(number * e * min(1.0, 2 * reach * density) for number, e, reach in errors)
    return _ready(law, step, tilt, -math.expm1(log_finite), slack)


def _ready(law: Law, step: float, tilt: float, infinity: float, slack: float) -> Composed:
    y = law.losses(step)
    centre = float(law.mass @ y) / float(law.mass.sum())
    if (1 + tilt) * (float(y[-1]) - float(y[0])) > 600:
        return Composed(step, tilt, law, infinity, slack, np.empty(0), np.empty(0), centre)
    weight = law.mass * np.exp(-tilt * (y - centre))
    other = weight * np.exp(centre - y)
    above = np.concatenate([np.cumsum(weight[::-1])[::-1], [0.0]])
    above_q = np.concatenate([np.cumsum(other[::-1])[::-1], [0.0]])
    return Composed(step, tilt, law, infinity, slack, above, above_q, centre)


def _kinds(counts: list[int], number: int) -> list[tuple[int, list[int]]]:
    """Splits every count evenly over ``number`` blocks: (how many blocks, how often each law is in one), few kinds, no empty block.

    What does not divide is handed out in turn, each law's remainder starting where the last one's ended.
    """
    shares = [divmod(count, number) for count in counts]
    starts = [start % number for start in itertools.accumulate((rest for _, rest in shares), initial=0)]
    edges = sorted({0, number, *starts})
    kinds: dict[tuple[int, ...], int] = {}
    for a, b in itertools.pairwise(edges):
        powers = tuple(whole + ((a - start) % number < rest) for (whole, rest), start in zip(shares, starts, strict=False))
        if any(powers):
            kinds[powers] = kinds.get(powers, 0) + b - a
    return [(blocks, list(powers)) for powers, blocks in kinds.items()]


def _convolve(
    laws: list[Law], kinds: list[tuple[int, list[int]]], step: float, tail: float, late: list[tuple[Law, int]]
) -> tuple[list[Law], float, float]:
    """The law of every kind of block; a bound on the mass misplaced in each, and the width over which it can be."""
    most = [max(kind[1][j] for kind in kinds) for j in range(len(laws))]
    every, counts = laws + [law for law, _ in late], most + [n for _, n in late]
    moments = [law.moments(step) for law in every]
    left, right = reach([(law.losses(step), law.mass) for law in every], moments, counts, -math.log(tail))
    size = fast_length(math.ceil((left + right) / step) + 4)
    if size > MAX_CELLS:
        raise Unsupported(f"pld needs {size:.3g} cells at this tolerance; the limit is {MAX_CELLS:,}. Raise --tol, or use rdp")
    centres = [round(mean / step) for mean, _ in moments[: len(laws)]]
    spectra = [_spectrum(law.index - centre, law.mass, size) for law, centre in zip(laws, centres, strict=True)]
    joined = [_jump_factor(law, n, size) for law, n in late]
    late_mean = sum(n * mean for (_, n), (mean, _) in zip(late, moments[len(laws) :], strict=True))
    late_norm = sum(n * law.log_norm for law, n in late)
    built, worst = [], 0.0
    for _, powers in kinds:
        product = math.prod([_power(spectrum, power) for spectrum, power in zip(spectra, powers, strict=True) if power] + joined)
        energy = 2 * float(np.sum(product.real**2 + product.imag**2))
        worst = max(worst, (sum(powers) + len(joined)) * 2 * UNIT * math.log2(size) * math.sqrt(energy))
        # every law was placed with its centre, a whole number of cells, at the origin; jumps with a loss of zero there
        origin = sum(p * c for p, c in zip(powers, centres, strict=True))
        mean = late_mean + sum(p * mean for p, (mean, _) in zip(powers, moments, strict=False))
        low = math.floor((mean - left) / step) - 1 - origin
        mass = np.maximum(np.roll(np.fft.irfft(product, size), -low), 0.0)
        norm = late_norm + sum(p * law.log_norm for p, law in zip(powers, laws, strict=True))
        built.append(Law(origin + low + np.arange(size), mass / mass.sum(), norm))
    return built, worst + 4 * tail, left + right


def _spectrum(index: NDArray[np.int64], mass: Array, size: int) -> NDArray[np.complex128]:
    return np.fft.rfft(np.bincount(index % size, weights=mass, minlength=size))


def _jump_factor(law: Law, n: int, size: int) -> NDArray[np.complex128]:
    """The n-th power of the spectrum of a law that is nearly all at zero, from what is not: no rounding of the rest is raised to n."""
    moving = law.index != 0
    mass = law.mass[moving]
    power: NDArray[np.complex128] = np.exp(n * np.log1p(_spectrum(law.index[moving], mass, size) - mass.sum()))
    return power


def _power(spectrum: NDArray[np.complex128], n: int) -> NDArray[np.complex128]:
    """An integer power by squaring: relative error at most n roundings."""
    result = None
    while True:
        if n & 1:
            result = spectrum if result is None else result * spectrum
        n >>= 1
        if not n:
            assert result is not None
            return result
        spectrum = spectrum * spectrum


def _coarse(law: Law, step: float, factor: int, tilt: float, upper: bool) -> Law:
    start, mass = coarsen(int(law.index[0]), law.mass, step, factor, tilt, upper=upper)
    kept = np.flatnonzero(mass > 0)
    first, last = int(kept[0]), int(kept[-1]) + 1
    return Law(start + np.arange(first, last), mass[first:last], law.log_norm).normalised()


def reach(points: list[tuple[Array, Array]], moments: list[tuple[float, float]], counts: list[int], depth: float) -> tuple[float, float]:
    """How far below and above its mean the sum of losses can lie, outside probability e^-depth on each side (Chernoff).

    Args:
        points: per law the losses and their probabilities (summing to one).
        moments: per law mean and variance. counts: how many losses of each law are summed.
    """
    variance = sum(n * v for n, (_, v) in zip(counts, moments, strict=True))
    if variance <= 0:
        return 0.0, 0.0
    # the best theta is near ``normal`` for a Gaussian-like law, and near 1 / (largest loss) where rare large losses rule
    normal = math.sqrt(2 * depth / variance)
    largest = max(max(abs(float(y[0])), abs(float(y[-1]))) for (y, _), n in zip(points, counts, strict=True) if n)
    theta = np.geomspace(min(0.04 * normal, 2 / largest), 1.4 * normal, 9)
    cumulant = np.zeros((2, theta.size))
    below = above = 0.0
    for (y, mass), (mean, _), n in zip(points, moments, counts, strict=True):
        if n:
            alive = mass > 0
            x = y[alive] - mean
            with np.errstate(over="ignore", divide="ignore"):
                grown = np.exp(np.outer(theta, x))
                cumulant += n * np.log(np.stack([(1 / grown) @ mass[alive], grown @ mass[alive]]))
            below, above = below - n * float(x[0]), above + n * float(x[-1])
    left, right = ((cumulant + depth) / theta).min(axis=1)
    return min(float(left), below), min(float(right), above)


def fast_length(n: int) -> int:
    """The least 2^a 3^b 5^c >= n with b, c <= 2, a quick length for the FFT."""
    best = 1 << max(n - 1, 1).bit_length()
    for odd in (3, 5, 9, 15, 25, 45, 75, 225):
        length = odd << max(0, -(-n // odd) - 1).bit_length()
        if n <= length < best:
            best = length
    return best
