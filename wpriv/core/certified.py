"""Certified two-sided brackets of delta(eps) and eps(delta) for the composition of any loss pairs.

For one order of the neighbours: probe the pairs, choose the tilt from the question, the lattice from the tilt and the tolerance, dot
every pair from above and from below, compose both, read the answer. Refine until the bracket is as narrow as asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wpriv.core.compose import UNIT, Composed, Law, compose, reach
from wpriv.core.grid import cells, lower_dots, rounded, upper_dots
from wpriv.core.pair import Array, LossPair
from wpriv.core.probe import Cumulants, Probe, cumulants, log_tail_factor, probe, tilt_for_delta, tilt_for_eps
from wpriv.core.process import Run
from wpriv.core.roots import least
from wpriv.errors import Unsupported

ROUNDS = 6
EPS_LIMIT = 1e6
# the tails are taken to be right to this many roundings, relative to the loss they are asked at; a step's loss is shifted by as much
TAIL_ROUNDINGS = 16


@dataclass(frozen=True)
class Both:
    """The composed law from above and from below, the shift of the loss that covers rounding in the tails, and the loss's spread."""

    upper: Composed
    lower: Composed
    drift: float
    spread: float

    def delta(self, eps: float) -> tuple[float, float]:
        """Lower and upper delta at eps."""
        return self.lower.delta(eps + self.drift, -1), self.upper.delta(eps - self.drift, +1)

    def epsilon(self, delta: float, guess: float, spread: float) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta, the upper one meeting it; (0, inf) for ends further off than some spreads from the guess."""
        high = self._solve(lambda eps: self.delta(eps)[1], delta, guess, spread, +1)
        low = self._solve(lambda eps: self.delta(eps)[0], delta, min(guess, high), spread, -1)
        return low, high

    def _solve(self, curve: Callable[[float], float], delta: float, guess: float, spread: float, sign: int) -> float:
        target = math.log(delta)

        def miss(eps: float) -> float:
            value = curve(eps)
            return math.log(value) - target if value > 0 else -700.0

        low = high = guess
        step = spread / 16
        while miss(low) <= 0 and low > 0 and step < 64 * spread:
            low, high, step = max(low - step, 0.0), low, 2 * step
        while miss(high) > 0 and step < 64 * spread:
            low, high, step = high, high + step, 2 * step
        if miss(high) > 0:
            return math.inf if sign > 0 else low
        if miss(low) <= 0:
            return high if low > 0 and sign > 0 else 0.0
        met = least(miss, high, low=low, high=high, rtol=1e-9)
        return met if sign > 0 else met * (1 - 2e-9)


class Composition:
    """One run (one order of the neighbours): loss pairs with their counts, ready to be asked."""

    def __init__(self, run: Run):
        merged: dict[LossPair, int] = {}
        for pair, n in run:
            merged[pair] = merged.get(pair, 0) + n
        self.pairs, self.counts = list(merged), list(merged.values())
        self.total = sum(self.counts)
        self.probes = [probe(pair) for pair in self.pairs]
        masses = [(pair.infinity, n) for pair, n in merged.items() if pair.infinity > 0]
        self.log_finite = -math.inf if any(mass >= 1 for mass, _ in masses) else sum(n * math.log1p(-mass) for mass, n in masses)
        self.infinity = -math.expm1(self.log_finite)
        self.top = sum(n * pair.support[1] for pair, n in merged.items())
        self.seen: list[Both] = []

    def delta(self, eps: float, tol: float) -> tuple[float, float]:
        """Lower and upper delta at eps, relative width at most ``tol`` where that can be had."""
        if eps >= self.top:
            return self.infinity, self.infinity
        for both in self.seen:
            low, high = both.delta(eps)
            if high - low <= tol * high:
                return low, high
        tilt, accuracy = tilt_for_eps(self.probes, self.counts, eps), tol / 2
        best = (0.0, 1.0)
        for _ in range(ROUNDS):
            state = cumulants(self.probes, self.counts, tilt)
            guess = math.exp(min(state.total - tilt * eps + log_tail_factor(tilt, math.sqrt(state.variance)), 0.0))
            both = self._try(state, tilt, eps, accuracy / (tilt + 1 / math.sqrt(state.variance)), max(guess, 1e-290))
            if both is None:
                break
            low, high = both.delta(eps)
            best = (max(best[0], low), min(best[1], high))
            if best[1] - best[0] <= tol * best[1]:
                break
            accuracy *= _tighter((best[1] - best[0]) / best[1], tol)
        return best

    def nearest(self, eps: float) -> Both:
        """The composed laws, among those made so far, whose middle is nearest to eps."""
        return min(self.seen, key=lambda both: abs(both.upper.centre - eps))

    def epsilon(self, delta: float, tol: float) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta, relative width at most ``tol`` where that can be had."""
        if delta <= self.infinity:
            return (self.top, self.top) if delta == self.infinity else (math.inf, math.inf)
        tilt = tilt_for_delta(self.probes, self.counts, math.log(delta - self.infinity))
        best, accuracy = (0.0, math.inf), tol / 2
        for _ in range(ROUNDS):
            state = cumulants(self.probes, self.counts, tilt)
            eps, spread = max(state.mean, 0.0), math.sqrt(state.variance)
            if eps > EPS_LIMIT:
                raise Unsupported(f"eps would be about {eps:.3g}; beyond {EPS_LIMIT:g} there is no privacy left to certify. Add noise")
            both = self._try(state, tilt, eps, accuracy * max(eps, 0.01 * spread), delta)
            if both is None:
                break
            low, high = both.epsilon(delta, max(eps, 1e-3 * spread), spread)
            best = (max(best[0], low), min(best[1], high, max(self.top, 0.0)))
            if best[1] - best[0] <= tol * max(best[1], 0.0):
                break
            far = math.isfinite(high) and abs(high - eps) > 1.5 * spread
            if far:
                tilt = tilt_for_eps(self.probes, self.counts, high)
            else:
                accuracy *= _tighter((best[1] - best[0]) / best[1], tol)
        return best

    def _try(self, state: Cumulants, tilt: float, eps: float, error: float, delta: float) -> Both | None:
        """Composes from both sides, more coarsely where the grid would not fit; None where something coarser is there already."""
        tries = 1 if self.seen else 5
        for coarser in range(tries):
            try:
                both = self._compose(state, tilt, eps, error * 10**coarser, delta)
                break
            except Unsupported:
                if coarser == tries - 1 and not self.seen:
                    raise
        else:
            return None
        self.seen = [*self.seen[-3:], both]
        return both

    def _compose(self, state: Cumulants, tilt: float, eps: float, error: float, delta: float) -> Both:
        """Both composed laws, good near eps, with dotting errors that shift eps by about ``error`` in all."""
        # a lattice of spacing h raises the cumulant function at the saddle by at most (tilt + 1) tilt h^2 / 12 a step; the lower
        # dots cost half as much again
        fine = math.sqrt(8 * error / (self.total * (tilt + 1)))
        relative = min(max(error * (tilt + 1 / math.sqrt(state.variance)), 1e-9), 1e-2)
        tilt, state, share = self._working_tilt(tilt, state, eps, delta, relative)
        tail = 1e-3 * relative * share
        lattice = Lattice.of(self.pairs, self.counts, fine)
        stages, step, period = self._plan(state, tilt, fine, lattice, tail, delta)
        dotted = [self._dots(j, step, tilt, delta, share) for j in range(len(self.pairs))]
        sides = []
        for upper in (True, False):
            laws = [up if upper else low for up, low, _ in dotted]
            log_finite = self.log_finite
            if upper:
                log_finite = sum(n * math.log1p(-extra) for n, (_, _, extra) in zip(self.counts, dotted, strict=True))
            sides.append(
                compose(laws, self.counts, step, tilt, stages, period=period, upper=upper, log_finite=log_finite, tail=tail)
            )
        sizes = [abs(m) + 10 * math.sqrt(v) for m, v in zip(state.means, state.variances, strict=True)]
        drift = TAIL_ROUNDINGS * UNIT * sum(n * size for n, size in zip(self.counts, sizes, strict=True))
        return Both(sides[0], sides[1], drift, math.sqrt(state.variance))

    def _working_tilt(self, tilt: float, state: Cumulants, eps: float, delta: float, relative: float) -> tuple[float, Cumulants, float]:
        """The tilt to compute with, its cumulants, and the share of tilted mass that decides delta there.

        The saddle's own tilt, unless rare large losses make the tilted law so wide that a milder tilt is cheaper.
        """
        best: tuple[float, float, Cumulants, float] | None = None
        plain = math.sqrt(cumulants(self.probes, self.counts, 0.0).variance)
        for milder in (1.0, 0.85, 0.7, 0.5, 0.35):
            t = milder * tilt
            c = state if milder == 1.0 else cumulants(self.probes, self.counts, t)
            share = math.exp(min(math.log(delta) - c.total + t * eps, 0.0))
            if best is not None and share < max(1e-7, 5e-12 * self.total / relative):  # rounding of the FFT would show
                break
            left, right = self._reach(t, c, self.counts, 1e-3 * relative * share, delta)
            top = max(right, eps - c.mean + left)
            if best is None or left + top < 0.8 * best[0]:
                best = (left + top, t, c, share)
            if left + top < 16 * plain:
                break
        assert best is not None
        return best[1], best[2], best[3]

    def _reach(self, tilt: float, state: Cumulants, counts: list[int], tail: float, delta: float) -> tuple[float, float]:
        """How far a sum of ``counts`` tilted losses lies below and above its mean, by the probes (as if normal where they are many)."""
        if len(self.pairs) > 8:
            far = math.sqrt(-2 * math.log(tail) * float(np.dot(counts, state.variances)))
            return far, far
        points = []
        for p, n in zip(self.probes, self.counts, strict=True):
            last = _top(p, self._negligible(delta, n)) + 1
            points.append((p.y[:last], _weights(p, tilt)[:last]))
        moments = list(zip(state.means.tolist(), state.variances.tolist(), strict=True))
        return reach(points, moments, counts, -math.log(tail))

    def _negligible(self, delta: float, n: int) -> float:
        """P-mass of one of n steps that may go to +infinity without being seen in delta."""
        return 1e-5 * delta / (n * len(self.pairs))

    def _plan(
        self, state: Cumulants, tilt: float, fine: float, lattice: Lattice, tail: float, delta: float
    ) -> tuple[list[tuple[int, float]], float, int]:
        """The stages (blocks left, spacing they are re-dotted on), the first spacing, and the period of the atoms' comb on it.

        k stages share the allowance, each block's lattice being as much coarser as its spread is larger.
        """
        best: tuple[float, list[tuple[int, float]], float, int] | None = None
        most = max(self.counts)
        for k in range(1, 6):
            step, period = lattice.fit(math.sqrt(k))
            blocks = [max(1, round(most ** ((k - s) / k))) for s in range(1, k + 1)]
            stages = [(number, fine * math.sqrt(self.total / number / k)) for number in blocks]
            first = [-(-n // blocks[0]) for n in self.counts]
            width = sum(self._reach(tilt, state, first, tail / blocks[0], delta))
            later = sum(14 * math.sqrt(state.variance / a) / spacing for (a, _), (_, spacing) in zip(stages[1:], stages, strict=False))
            cost = 8e3 * k + (width / step + later) * (1 + 0.2 * len(first))
            if best is None or cost < best[0]:
                best = (cost, stages, step, period)
            if most ** (1 / (k + 1)) < 8:
                break
        assert best is not None
        return best[1:]

    def _dots(self, j: int, step: float, tilt: float, delta: float, share: float) -> tuple[Law, Law, float]:
        """Upper and lower tilted law of one step of kind j, and the upper law's mass at +infinity."""
        pair, n = self.pairs[j], self.counts[j]
        index = _nodes(pair, self.probes[j], step, tilt, self._negligible(delta, n), 1e-9 * share / self.total)
        y = index * step
        if step > 1:
            mass, low, infinity = rounded(pair, y)
        else:
            made = cells(pair, y)
            mass, infinity = upper_dots(made, pair.infinity)
            low = lower_dots(made, pair.infinity)
        return _tilted(index, mass, y, tilt), _tilted(index, low, y, tilt), infinity


def _tighter(width: float, tol: float) -> float:
    """The factor by which the next round's allowance shrinks."""
    return min(0.5, max(0.7 * tol / width, 0.01)) if math.isfinite(width) else 0.1


def _tilted(index: NDArray[np.int64], mass: Array, y: Array, tilt: float) -> Law:
    keep = mass > 0
    if not keep.any():
        keep[0], mass[0] = True, 1e-300
    index, mass, y = index[keep], mass[keep], y[keep]
    exponent = tilt * y
    if float(exponent.max()) < 1.0:
        # ln E[e^{tilt Y}] of a small loss is of second order: taken from E[e^{tilt Y} - 1], or n steps would amplify its rounding
        log_norm = math.log1p(float(mass @ np.expm1(exponent)) + _excess(mass))
        weight = mass * np.exp(exponent)
        return Law(index, weight / weight.sum(), log_norm)
    log_mass = np.log(mass) + exponent
    peak = float(log_mass.max())
    return Law(index, np.exp(log_mass - peak), peak).normalised()


def _excess(mass: Array) -> float:
    """The sum of the masses less one, zero where it differs by no more than rounding."""
    excess = math.fsum(mass.tolist()) - 1.0
    return 0.0 if abs(excess) < 1e-14 else excess


def _weights(p: Probe, tilt: float) -> Array:
    exponent = p.log_p + tilt * p.y
    weight = np.exp(exponent - exponent.max())
    normal: Array = weight / weight.sum()
    return normal


def _top(p: Probe, top_mass: float) -> int:
    """Index of the probe's loss beyond which the P-mass is below ``top_mass``."""
    plain = np.cumsum(np.exp(p.log_p)[::-1])[::-1]
    return min(int(np.searchsorted(-plain, -top_mass)), p.y.size - 1)


@dataclass(frozen=True)
class Lattice:
    """Where the first lattice should lie: atoms on nodes cost nothing, so only the rest of the mass asks for a fine spacing."""

    spacing: float
    atoms: Array
    comb: bool

    @staticmethod
    def of(pairs: list[LossPair], counts: list[int], fine: float) -> Lattice:
        """``fine`` is the spacing that mass off the nodes needs; pairs with more than a few atoms count as having none."""
        sets = [np.unique(np.abs(pair.atoms[pair.atoms != 0])) if pair.atoms.size <= 8 else np.empty(0) for pair in pairs]
        atoms = np.unique(np.concatenate(sets))
        if not 0 < atoms.size <= 8:
            return Lattice(fine, np.empty(0), False)
        loose = [_loose(pair) if pair.atoms.size <= 8 else 1.0 for pair in pairs]
        share = sum(n * part for n, part in zip(counts, loose, strict=True)) / sum(counts)
        return Lattice(fine / math.sqrt(max(share, 1e-12)), atoms, min(loose) < 0.5)

    def fit(self, divisor: float) -> tuple[float, int]:
        """A spacing of at most ``spacing / divisor`` that puts the atoms on nodes, or near, and their comb's period in cells."""
        step = self.spacing / divisor
        if not self.atoms.size:
            return step, 1
        unit = float(self.atoms[0])
        least_parts = max(1, math.ceil(unit / step * (1 - 1e-9)))
        parts = np.arange(least_parts, 3 * least_parts + 20)
        places = np.outer(parts, self.atoms / unit)
        off = np.abs(places - np.round(places)).max(axis=1)
        exact = np.flatnonzero(off < 1e-7)
        count = int(parts[exact[0] if exact.size else off.argmin()])
        return unit / count, 2 * count if self.comb and exact.size else 1


def _loose(pair: LossPair) -> float:
    """The share of the P-mass that is not on the pair's atoms."""
    if not pair.atoms.size:
        return 1.0
    hair = 1e-12 * np.maximum(np.abs(pair.atoms), float(np.abs(pair.atoms).max()))
    before, after = pair.tails(pair.atoms - hair), pair.tails(pair.atoms + hair)
    mass = np.maximum(np.exp(before.sf_p) - np.exp(after.sf_p), np.exp(after.cdf_p) - np.exp(before.cdf_p))
    return min(max(1.0 - float(mass.sum()), 0.0), 1.0)


def _nodes(pair: LossPair, p: Probe, step: float, tilt: float, top_mass: float, bottom_mass: float) -> NDArray[np.int64]:
    """Lattice indices to dot a pair on: every one where the tilted law lives, ever sparser where it has little mass.

    The top is where the P-mass beyond falls below ``top_mass``, the bottom where that below would weigh
    less than ``bottom_mass`` when tilted.
    """
    weight = _weights(p, tilt)
    above, below = np.cumsum(weight[::-1])[::-1], np.cumsum(weight)
    last = _top(p, top_mass)
    # whatever lies below the bottom is raised to it, and weighs e^{tilt loss} there
    raised = np.log(np.cumsum(np.exp(p.log_p))) + tilt * p.y - np.logaddexp.reduce(p.log_p + tilt * p.y)
    first = max(int(np.searchsorted(raised, math.log(bottom_mass))) - 1, 0)
    low, high = pair.support
    if first > 0 or not math.isfinite(low):
        low = max(float(p.y[first]) - step, low)
    if last < p.y.size - 1 or not math.isfinite(high):
        high = min(float(p.y[min(last + 1, p.y.size - 1)]) + step, high)
    y = np.concatenate([[low], p.y[(p.y > low) & (p.y < high)], [high]])
    rare = np.interp(y, p.y, np.minimum(above, below))
    spacing = np.clip(np.sqrt(0.02 / np.maximum(rare, 1e-300)), 1.0, max(1.0, 0.3 / ((tilt + 1) * step))) * step
    count = np.concatenate([[0.0], np.cumsum(np.diff(y) / np.minimum(spacing[1:], spacing[:-1]))])
    total = math.ceil(count[-1]) + 1
    if total > 1 << 22:
        raise Unsupported(f"pld needs {total:,} loss values of {pair} at this tolerance; the limit is {1 << 22:,}. Raise --tol, or use rdp")
    index = np.floor(np.interp(np.linspace(0, count[-1], total + 1), count, y) / step).astype(np.int64)
    ends = [math.floor(low / step), math.ceil(high / step)]
    marks: list[int] = []
    if pair.atoms.size <= 64:
        inside = pair.atoms[(pair.atoms >= low) & (pair.atoms <= high)] / step
        near = np.round(inside)
        on = np.abs(inside - near) < 1e-6
        marks = [*np.floor(inside[~on]), *np.ceil(inside[~on]), *near[on], *(near[on] - 1), *(near[on] + 1)]
        marks = [int(m) for m in marks if ends[0] <= m <= ends[1]]
    result: NDArray[np.int64] = np.unique(np.concatenate([index, ends, marks]).astype(np.int64))
    return result
