"""Composition of lattice PMFs: tilted, staged FFT convolution with every error inside the bracket.

Tilting by e^{lambda loss} (Esscher) moves the part of the PMF that decides delta to the middle of the window, so that a
delta of 1e-100 has the relative accuracy of one of 1e-3. Staging (Ghazi, Kamath, Kumar, Manurangsi, ICML 2022) composes
blocks on a fine lattice, discretises them again on a coarser one - pessimistically or optimistically - and goes on, so
that 2^40 steps cost a few short FFTs. Chernoff tails of the tilted PMF bound what wraps around.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wpriv.numerics.arrays import Array, Counts
from wpriv.pld import constants
from wpriv.pld.lattice.discretize import coarsen
from wpriv.pld.lattice.lattice_pmf import LatticePmf, indices, reach
from wpriv.pld.lattice.spectra import SpectrumProducts, fast_length, jump_rounding, jump_spectrum
from wpriv.pld.lattice.staging import check_cells


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


def compose_pmfs(
    pmfs: list[LatticePmf],
    counts: Sequence[Counts | int],
    step: float,
    tilt: float,
    stages: list[tuple[int, int]],
    *,
    coarse_jumps: Sequence[tuple[LatticePmf, Counts | int]],
    upper: bool,
    log_finite: float,
    tail: float,
) -> LatticeComposition:
    """Compose ``counts[j]`` losses of each PMF j, or ``counts[j][k]`` of its row k.

    Args:
        pmfs: normalised tilted PMFs on the lattice of spacing ``step``.
        stages: (number of blocks that are left, cells then merged into one), with falling numbers, the last (1, 1).
        coarse_jumps: PMFs on the last lattice, with their counts, that join in the last stage.
        upper: discretise blocks pessimistically, else optimistically.
        tail: tilted mass that may wrap around in each direction, over all blocks of a stage.
        log_finite: ln of the probability that no step has loss +infinity.
    Raises:
        Unsupported: a window would need more than ``constants.MAX_WINDOW_CELLS`` cells.
    """
    # per stage: the mass misplaced over all blocks; and what the later stages take from the moment, as a logarithm
    errors: list[float] = []
    losses: list[float] = []
    eps_slack = 0.0
    for number, factor in stages:
        blocks = _split_into_blocks([np.atleast_1d(np.asarray(c, dtype=np.int64)) for c in counts], number)
        joining = coarse_jumps if number == 1 else []
        pmfs, error, width = _convolve(pmfs, [powers for _, powers in blocks], step, tail / number, joining)
        most = max(range(len(pmfs)), key=lambda i: blocks[i][0])
        share = block_error_share(pmfs[most], blocks[most][0], step, width)
        errors.append(number * error * min(share + number * error, 1.0))
        log_norm, shift_before = _log_norm(pmfs, blocks), eps_slack
        if factor > 1 and upper:
            pmfs = [_coarsen(pmf, step, factor, tilt, upper=True) for pmf in pmfs]
        elif factor > 1:
            ends = max(tail / number, constants.END_ROUNDING_MASS)
            coarse = [_coarsen_optimistic(pmf, step, factor, tilt, ends) for pmf in pmfs]
            pmfs = [pmf for pmf, _ in coarse]
            eps_slack += sum(count * shift for (count, _), (_, shift) in zip(blocks, coarse, strict=True))
        losses.append(max(log_norm - _log_norm(pmfs, blocks), 0.0) + tilt * (eps_slack - shift_before))
        step *= factor
        counts = [count for count, _ in blocks]
    # the slack is relative to the moment at the end, which optimistic stages lower
    lost = np.minimum(np.cumsum(losses[::-1])[::-1], 700.0)
    slack = tail + float(np.exp(lost) @ errors)
    return with_tail_sums(pmfs[0], step, tilt, -math.expm1(log_finite), slack, eps_slack)


def block_error_share(pmf: LatticePmf, count: int, step: float, width: float) -> float:
    """The share of a block's misplaced mass that a composition can show, by how little one block moves the others.

    An error without total mass moves mass by at most ``width`` (nats); of a sum of the other blocks, this changes the
    mass of any interval by no more than the others put into an interval of that width. At least half of the others
    of this kind are all exact or all computed, and theirs is bounded by the Berry-Esseen inequality.

    Args:
        pmf: the most frequent block, one of ``count``.
    """
    others = count // 2
    if not others:
        return 1.0
    mean, variance = (float(v[0]) for v in pmf.moments(step))
    if not variance > 0:
        return 1.0
    third = float(pmf.mass @ np.abs(pmf.losses(step) - mean) ** 3) / variance**1.5
    interval = width / math.sqrt(2 * math.pi * variance)
    return float(min((interval + 2 * constants.BERRY_ESSEEN * third) / math.sqrt(others), 1.0))


def _log_norm(pmfs: list[LatticePmf], blocks: list[tuple[int, list[Counts]]]) -> float:
    return sum(number * float(pmf.log_norm) for pmf, (number, _) in zip(pmfs, blocks, strict=True))


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


def _split_into_blocks(counts: list[Counts], number: int) -> list[tuple[int, list[Counts]]]:
    """Split every count evenly over ``number`` blocks, with few distinct blocks and no empty one.

    Remainders are dealt out in turn, each row's starting where the last one's ended.

    Returns:
        For each distinct block, how many there are and how often each row is in it.
    """
    sizes = np.cumsum([count.size for count in counts])[:-1]
    quotient, remainder = np.divmod(np.concatenate(counts), number)
    end = np.cumsum(remainder) % number
    start = np.append(0, end[:-1])
    edges = sorted({0, number, *end.tolist()})
    blocks: dict[bytes, tuple[int, list[Counts]]] = {}
    for a, b in itertools.pairwise(edges):
        powers = quotient + ((a - start) % number < remainder)
        if powers.any():
            count, _ = blocks.get(powers.tobytes(), (0, []))
            blocks[powers.tobytes()] = (count + b - a, np.split(powers, sizes))
    return list(blocks.values())


def _convolve(
    pmfs: list[LatticePmf],
    blocks: list[list[Counts]],
    step: float,
    tail: float,
    coarse_jumps: Sequence[tuple[LatticePmf, Counts | int]],
) -> tuple[list[LatticePmf], float, float]:
    """Compose every distinct block.

    Returns:
        The PMF of each block; a bound on the mass misplaced in each; and the width in nats over which it can be.
    """
    jump_pmfs = [pmf for pmf, _ in coarse_jumps]
    jump_counts = [np.atleast_1d(np.asarray(n, dtype=np.int64)) for _, n in coarse_jumps]
    all_pmfs = pmfs + jump_pmfs
    max_counts = [np.max(powers, axis=0) for powers in zip(*blocks, strict=True)] + jump_counts
    min_counts = [np.min(powers, axis=0) for powers in zip(*blocks, strict=True)]
    moments = [pmf.moments(step) for pmf in all_pmfs]
    left, right = reach([(pmf.losses(step), pmf.rows) for pmf in all_pmfs], moments, max_counts, -math.log(tail))
    size = fast_length(math.ceil((left + right) / step) + 4)
    check_cells(size)
    variances = [v / step**2 for _, v in moments[: len(pmfs)]]
    products = SpectrumProducts(pmfs, size, min_counts, variances, constants.TRUNCATION_SHARE * tail)
    jump_spectra = [jump_spectrum(pmf, n, size) for pmf, n in zip(jump_pmfs, jump_counts, strict=True)]
    jump_error = sum(jump_rounding(pmf, n, size) for pmf, n in zip(jump_pmfs, jump_counts, strict=True))
    jump_error += constants.PRODUCT_ROUNDINGS * constants.UNIT_ROUNDOFF * len(jump_pmfs)
    jump_mean = sum(float(n @ mean) for n, (mean, _) in zip(jump_counts, moments[len(pmfs) :], strict=True))
    jump_norm = sum(float(np.sum(n * pmf.log_norm)) for pmf, n in zip(jump_pmfs, jump_counts, strict=True))
    composed, worst = [], 0.0
    for powers in blocks:
        product = products.product(powers)
        for spectrum in jump_spectra:
            product = spectrum if product is None else product * spectrum[: products.cut]
        assert product is not None
        worst = max(worst, products.rounding(product, powers, jump_error))
        mean = jump_mean + sum(float(p @ mean) for p, (mean, _) in zip(powers, moments, strict=False))
        low = math.floor((mean - left) / step) - 1
        mass = np.roll(np.fft.irfft(product, size), -(low % size))
        np.maximum(mass, 0.0, out=mass)
        mass /= mass.sum()
        norm = jump_norm + sum(float(np.sum(p * pmf.log_norm)) for p, pmf in zip(powers, pmfs, strict=True))
        composed.append(LatticePmf(indices(low, size), mass, norm))
    return composed, worst + products.truncation_error + 4 * tail, size * step


def _coarsen(pmf: LatticePmf, step: float, factor: int, tilt: float, *, upper: bool) -> LatticePmf:
    start, mass = coarsen(int(pmf.index[0]), pmf.mass, step, factor, tilt, upper=upper)
    kept = np.flatnonzero(mass > 0)
    first, last = int(kept[0]), int(kept[-1]) + 1
    return LatticePmf(start + np.arange(first, last), mass[first:last], pmf.log_norm).normalised()


def _coarsen_optimistic(
    pmf: LatticePmf, step: float, factor: int, tilt: float, ends: float
) -> tuple[LatticePmf, float]:
    """An optimistic PMF on the coarse lattice, and by how much in eps it lies too high.

    Far ends that consist of rounding alone may leave no room for the convex minorant; a PMF without them is optimistic.
    """
    coarse = _coarsen(pmf, step, factor, tilt, upper=False)
    if _mean(pmf, step) - _mean(coarse, step * factor) > constants.MAX_LOST_CELLS * step * factor:
        up_to = np.cumsum(pmf.mass)
        first, last = np.searchsorted(up_to, [ends, float(up_to[-1]) - ends])
        short = LatticePmf(pmf.index[first : last + 1], pmf.mass[first : last + 1], pmf.log_norm)
        coarse_short = _coarsen(short, step, factor, tilt, upper=False)
        coarse = max(coarse, coarse_short, key=lambda candidate: _mean(candidate, step * factor))
    return _or_point_mass(pmf, coarse, step, factor, tilt)


def _mean(pmf: LatticePmf, step: float) -> float:
    return float(pmf.moments(step)[0][0])


def _or_point_mass(
    pmf: LatticePmf, coarse: LatticePmf, step: float, factor: int, tilt: float
) -> tuple[LatticePmf, float]:
    """The coarse optimistic PMF, or a point mass at zero if that loses less; and by how much in eps it lies too high.

    A PLD of P-mass p and Q-mass p kappa dominates its mass put at -ln kappa (Jensen). The point is better where the PMF
    is too narrow for the coarse lattice, where its optimistic PMF lies below that point on average.
    """
    y = pmf.losses(step)
    exponent = (1 + tilt) * max(-float(y[0]), float(y[-1]))
    if not y[0] < 0 < y[-1] or exponent > constants.MAX_EXPONENT_EVALUATION:
        return coarse, 0.0
    plain = pmf.mass * np.exp(-tilt * y)
    mass = float(plain.sum())
    # the Q-mass of a bulk of large losses alone vanishes beside its P-mass, so the argument is bounded away from -1
    log_kappa = max(math.log1p(max(float(plain @ np.expm1(-y)) / mass, -0.5)) + 1e-15, 0.0)
    if _mean(coarse, step * factor) >= -log_kappa:
        return coarse, 0.0
    # no P-mass exceeds one, whatever rounding far below zero makes of it
    log_norm = min(float(pmf.log_norm) + math.log(mass), 0.0)
    return LatticePmf(np.zeros(1, dtype=np.int64), np.ones(1), log_norm), log_kappa
