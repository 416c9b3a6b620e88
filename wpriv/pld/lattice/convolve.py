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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wpriv.numerics.arrays import Array, Counts
from wpriv.pld.lattice.discretize import coarsen
from wpriv.pld.lattice.lattice_pmf import LatticePmf, reach
from wpriv.pld.lattice.spectra import SpectrumProducts, fast_length, jump_factor
from wpriv.pld.lattice.staging import check_cells

# an eps so far below the middle of a tilted law, in units of 1/tilt, cannot be read off it in double precision
FAR = 690.0
# what rounding may leave of tilted mass at the ends of a window, and the part of a cell that no lower law should lose on average
NOISE, LOST = 1e-14, 0.05


@dataclass(frozen=True)
class LatticeComposition:
    """The law of the composed loss (tilted, on a lattice), ready to be read at any eps near its middle.

    ``slack`` bounds the tilted mass that is missing or misplaced; ``infinity`` is the composed P-mass at +infinity. ``above`` and
    ``above_q`` are the sums of P- and Q-mass from each node up, scaled to the centre; empty where they would overflow.
    ``fall`` is by how much in eps a lower law lies too high.
    """

    step: float
    tilt: float
    law: LatticePmf
    mass_at_plus_infinity: float
    slack: float
    above: Array
    above_q: Array
    centre: float
    fall: float

    @property
    def cells(self) -> int:
        """The size of the last window."""
        return self.law.mass.size

    def delta(self, eps: float, sign: int) -> float:
        """delta at eps with the slack added (sign +1) or taken away (sign -1)."""
        eps += self.fall if sign < 0 else 0.0
        x = eps - self.centre
        if -self.tilt * x > FAR:
            return 1.0 if sign > 0 else self.mass_at_plus_infinity
        i = int(np.searchsorted(self.law.index, math.floor(eps / self.step), side="right"))
        # the sum of (1 - e^{eps-y}) e^{-tilt (y-centre)} mass over losses y above eps
        if self.above.size:
            value = max(float(self.above[i]) - math.exp(min(x, 700.0)) * float(self.above_q[i]), 0.0)
        else:
            y = self.law.index[i:] * self.step
            value = float(
                self.law.mass[i:]
                @ (-np.expm1(eps - y) * np.exp(np.clip(-self.tilt * (y - self.centre), -700.0, 700.0)))
            )
        peak = math.exp(-self.tilt * math.log1p(1 / self.tilt)) / (1 + self.tilt) if self.tilt > 0 else 1.0
        value += sign * peak * self.slack * math.exp(-self.tilt * x)
        log_scale = float(self.law.log_norm) - self.tilt * self.centre
        finite = math.exp(min(log_scale + math.log(value), 700.0)) if value > 0 else 0.0
        # a bound above zero may be too small for a double
        return min(max(finite + self.mass_at_plus_infinity, 5e-324 if sign > 0 else 0.0), 1.0)


def compose_pmfs(
    laws: list[LatticePmf],
    counts: Sequence[Counts | int],
    step: float,
    tilt: float,
    stages: list[tuple[int, int]],
    *,
    late: Sequence[tuple[LatticePmf, Counts | int]],
    upper: bool,
    log_finite: float,
    tail: float,
) -> LatticeComposition:
    """The law of the sum of ``counts[j]`` losses of each law j, or ``counts[j][k]`` of its row k.

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
    fall = 0.0
    for number, factor in stages:
        kinds = _split_into_blocks([np.atleast_1d(np.asarray(c, dtype=np.int64)) for c in counts], number)
        laws, error, reach = _convolve(
            laws, [powers for _, powers in kinds], step, tail / number, late if number == 1 else []
        )
        errors.append((number, error, reach))
        if factor > 1:
            if upper:
                laws = [_coarsen(law, step, factor, tilt, upper=True) for law in laws]
            else:
                lower = [_coarsen_optimistic(law, step, factor, tilt, max(tail / number, NOISE)) for law in laws]
                laws = [law for law, _ in lower]
                fall += sum(blocks * off for (blocks, _), (_, off) in zip(kinds, lower, strict=True))
            step *= factor
        counts = [blocks for blocks, _ in kinds]
    law = laws[0]
    density = float(law.mass.max()) / step
    # a zero-sum error of size e within one block's window moves the rest of the law by at most its reach
    slack = tail + sum(number * e * min(1.0, 2 * reach * density) for number, e, reach in errors)
    return _with_tail_sums(law, step, tilt, -math.expm1(log_finite), slack, fall)


def _with_tail_sums(
    law: LatticePmf, step: float, tilt: float, infinity: float, slack: float, fall: float
) -> LatticeComposition:
    first, size = float(law.index[0]) * step, law.mass.size
    centre = step * float(law.mass @ law.index) / float(law.mass.sum())
    if (1 + tilt) * size * step > 600:
        return LatticeComposition(step, tilt, law, infinity, slack, np.empty(0), np.empty(0), centre, fall)
    above, above_q = np.zeros((2, size + 1))
    weight = _geometric(tilt * (centre - first), -tilt * step, size)
    weight *= law.mass
    np.cumsum(weight[::-1], out=above[-2::-1])
    weight *= _geometric(centre - first, -step, size)
    np.cumsum(weight[::-1], out=above_q[-2::-1])
    return LatticeComposition(step, tilt, law, infinity, slack, above, above_q, centre, fall)


def _geometric(start: float, slope: float, size: int) -> Array:
    """e^{start + slope i} for i < size, from some two square roots of it as many exponentials."""
    inner = np.arange(math.isqrt(size) + 1)
    outer = np.exp(start + slope * inner.size * inner)
    return np.outer(outer, np.exp(slope * inner)).ravel()[:size]


def _split_into_blocks(counts: list[Counts], number: int) -> list[tuple[int, list[Counts]]]:
    """Splits every count evenly over ``number`` blocks: (how many blocks, how often each row is in one), few kinds, no empty block.

    What does not divide is handed out in turn, each row's remainder starting where the last one's ended.
    """
    sizes = np.cumsum([count.size for count in counts])[:-1]
    whole, rest = np.divmod(np.concatenate(counts), number)
    end = np.cumsum(rest) % number
    start = np.append(0, end[:-1])
    edges = sorted({0, number, *end.tolist()})
    kinds: dict[bytes, tuple[int, list[Counts]]] = {}
    for a, b in itertools.pairwise(edges):
        powers = whole + ((a - start) % number < rest)
        if powers.any():
            blocks, _ = kinds.get(powers.tobytes(), (0, []))
            kinds[powers.tobytes()] = (blocks + b - a, np.split(powers, sizes))
    return list(kinds.values())


def _convolve(
    laws: list[LatticePmf],
    kinds: list[list[Counts]],
    step: float,
    tail: float,
    late: Sequence[tuple[LatticePmf, Counts | int]],
) -> tuple[list[LatticePmf], float, float]:
    """The law of every kind of block; a bound on the mass misplaced in each, and the width over which it can be."""
    most = [np.max(powers, axis=0) for powers in zip(*kinds, strict=True)]
    every, counts = (
        laws + [law for law, _ in late],
        most + [np.atleast_1d(np.asarray(n, dtype=np.int64)) for _, n in late],
    )
    moments = [law.moments(step) for law in every]
    left, right = reach([(law.losses(step), law.rows) for law in every], moments, counts, -math.log(tail))
    size = fast_length(math.ceil((left + right) / step) + 4)
    check_cells(size)
    least = [np.min(powers, axis=0) for powers in zip(*kinds, strict=True)]
    variances = [v / step**2 for _, v in moments[: len(laws)]]
    ready = SpectrumProducts(laws, size, least, variances, 0.1 * tail)
    joined = [jump_factor(law, n, size) for (law, _), n in zip(late, counts[len(laws) :], strict=True)]
    late_mean = sum(float(n @ mean) for n, (mean, _) in zip(counts[len(laws) :], moments[len(laws) :], strict=True))
    late_norm = sum(float(np.sum(n * law.log_norm)) for (law, _), n in zip(late, counts[len(laws) :], strict=True))
    built, worst = [], 0.0
    for powers in kinds:
        product = ready.product(powers)
        for factor in joined:
            product = factor if product is None else product * factor[: ready.cut]
        assert product is not None
        worst = max(worst, ready.rounding(product, powers, len(joined)))
        mean = late_mean + sum(float(p @ mean) for p, (mean, _) in zip(powers, moments, strict=False))
        low = math.floor((mean - left) / step) - 1
        mass = np.roll(np.fft.irfft(product, size), -(low % size))
        np.maximum(mass, 0.0, out=mass)
        mass /= mass.sum()
        norm = late_norm + sum(float(np.sum(p * law.log_norm)) for p, law in zip(powers, laws, strict=True))
        built.append(LatticePmf(low + np.arange(size), mass, norm))
    return built, worst + ready.lost + 4 * tail, left + right


def _coarsen(law: LatticePmf, step: float, factor: int, tilt: float, *, upper: bool) -> LatticePmf:
    start, mass = coarsen(int(law.index[0]), law.mass, step, factor, tilt, upper=upper)
    kept = np.flatnonzero(mass > 0)
    first, last = int(kept[0]), int(kept[-1]) + 1
    return LatticePmf(start + np.arange(first, last), mass[first:last], law.log_norm).normalised()


def _coarsen_optimistic(
    law: LatticePmf, step: float, factor: int, tilt: float, ends: float
) -> tuple[LatticePmf, float]:
    """A law's lower law on the coarse lattice, and by how much in eps it lies too high.

    Far ends that are mere rounding may leave the lower dots no room. A law that has lost so much as ``ends`` of its tilted mass at either
    of them is a lower one still.
    """
    made = _coarsen(law, step, factor, tilt, upper=False)
    if _mean(law, step) - _mean(made, step * factor) > LOST * step * factor:
        up_to = np.cumsum(law.mass)
        first, last = np.searchsorted(up_to, [ends, float(up_to[-1]) - ends])
        short = LatticePmf(law.index[first : last + 1], law.mass[first : last + 1], law.log_norm)
        made = max(
            made, _coarsen(short, step, factor, tilt, upper=False), key=lambda found: _mean(found, step * factor)
        )
    return _or_point_mass(law, made, step, factor, tilt)


def _mean(law: LatticePmf, step: float) -> float:
    return float(law.moments(step)[0][0])


def _or_point_mass(
    law: LatticePmf, coarse: LatticePmf, step: float, factor: int, tilt: float
) -> tuple[LatticePmf, float]:
    """A law's lower law on the coarse lattice, or a point at zero where that loses less, and by how much in eps it lies too high.

    A law of P-mass p and Q-mass p kappa dominates its mass put at -ln kappa (Jensen). That is worth having where the law is so narrow that
    the coarse lattice does not resolve it, and its lower law there lies below that point on average.
    """
    y = law.losses(step)
    if not y[0] < 0 < y[-1] or (1 + tilt) * max(-float(y[0]), float(y[-1])) > FAR:
        return coarse, 0.0
    plain = law.mass * np.exp(-tilt * y)
    mass = float(plain.sum())
    # a bulk of large losses alone has no Q-mass that would show beside its P-mass
    off = max(math.log1p(max(float(plain @ np.expm1(-y)) / mass, -0.5)) + 1e-15, 0.0)
    if _mean(coarse, step * factor) >= -off:
        return coarse, 0.0
    # no law has a P-mass above one, whatever rounding far below zero makes of it
    return LatticePmf(np.zeros(1, dtype=np.int64), np.ones(1), min(float(law.log_norm) + math.log(mass), 0.0)), off
