"""Certified two-sided brackets of delta(eps) and eps(delta) for the composition of any loss pairs.

For one order of the neighbours: probe the pairs in groups of like ones, choose the tilt from the question, the lattice from the tilt and
the tolerance, dot every pair from above and from below, those together that need about as many nodes, compose both, read the answer.
Refine until the bracket is as narrow as asked.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from wpriv.core.atoms import Atoms
from wpriv.core.compose import Composed, compose
from wpriv.core.curve import TINY
from wpriv.core.group import Group, groups
from wpriv.core.inversion import Inverted, invert
from wpriv.core.lattice import EXTRA, Dotted, dot, dot_split, parted
from wpriv.core.pair import Array, Counts, LossPair
from wpriv.core.plan import Lattice, Plan, plan
from wpriv.core.probe import (
    DEPTHS,
    Cumulants,
    Probe,
    cumulants,
    log_tail_factor,
    tilt_for_contour,
    tilt_for_delta,
    tilt_for_eps,
    top_index,
)
from wpriv.core.process import Run
from wpriv.core.scan import Scan, scan
from wpriv.core.scattered import scattered
from wpriv.core.spectra import UNIT
from wpriv.core.twosided import Both
from wpriv.errors import Unsupported

ROUNDS = 6
# how many lattices are tried where one does not fit, and by how much each allows more error than the one before
ATTEMPTS, COARSER = 10, 3
EPS_LIMIT, LOG_TINY = 1e6, -640.0
LOG_FIRST = -30.0  # ln of the delta that is assumed at first, where eps is given
# the least tilt that a transform is inverted at, in units of 1 / spread
LEAST_TILT = 1.0
# by how much, in logs, the wrap-around of an inverted transform stays below the error of delta that is allowed
CLEAR = 7.0
# about the rounding in the transform of many steps, over the root of their number, times what it may take of the error allowed
ROUNDED = 3e-10
# by what factor the tilted variance exceeds the plain one where rare large losses decide, and how far from eps these may be
RARE, FOCUS = 20, 1.5
# the share of the tolerance that is given to the dots
SHARE = 0.7
# the share of the room below an upper end that suffices which may be lost to the grid
ROOM = 0.3
# cells that a further round may take, and up to which one is tried whether or not the last one paid
MOST_CELLS, SMALL_CELLS = 1 << 20, 1 << 15
# the tails are taken to be right to this many roundings, relative to the loss they are asked at; a step's loss is shifted by as much
TAIL_ROUNDINGS = 16


class Composition:
    """One run (one order of the neighbours): loss pairs with their counts, ready to be asked."""

    def __init__(self, run: Run):
        merged: dict[LossPair, int] = {}
        for pair, n in run:
            merged[pair] = merged.get(pair, 0) + n
        self.groups = groups(merged)
        self.counts = [group.counts for group in self.groups]
        self.total, self.kinds = sum(merged.values()), len(merged)
        self.looked, self.neglected, self.probes = math.inf, 0.0, list[Probe]()
        masses = [(pair.infinity, n) for pair, n in merged.items() if pair.infinity > 0]
        self.log_finite = -math.inf if any(mass >= 1 for mass, _ in masses) else sum(n * math.log1p(-mass) for mass, n in masses)
        self.infinity = -math.expm1(self.log_finite)
        self.top = sum(n * pair.support[1] for pair, n in merged.items())
        self.seen: list[Both] = []
        self.inverts = True
        self.last_error = math.inf

    def delta(self, eps: float, tol: float, enough: float = -1.0) -> tuple[float, float]:
        """Lower and upper delta at eps: relative width at most ``tol`` where that can be had, or an upper end of at most ``enough``."""
        if eps >= self.top:
            return self.infinity, self.infinity
        for known in self.seen:
            low, high = known.delta(eps)
            if high > 0 and high - low <= tol * high:
                return low, high
        if self._bounded(eps, enough):
            return 0.0, enough
        accuracy, least_log = SHARE * tol, LOG_TINY if enough <= 0 else max(LOG_TINY, math.log(enough) - 12)
        log_guess = LOG_FIRST
        for _ in range(ROUNDS):
            self._look(max(log_guess, least_log), tol)
            tilt = tilt_for_eps(self.probes, self.counts, eps)
            log_guess = _log_guess(cumulants(self.probes, self.counts, tilt), tilt, eps)
            if max(log_guess, least_log) > self.looked - 1:
                break
        # what is too small for a double, or far below what is asked, is bounded from a tilt whose own delta is not
        if log_guess < least_log:
            tilt = tilt_for_delta(self.probes, self.counts, least_log)
        elif enough > 0:
            # where an upper end is all that is asked, and has room, a coarse grid will do at first
            accuracy = max(accuracy, ROOM * (math.log(enough) - log_guess))
        best, width, self.last_error = (0.0, 1.0), math.inf, math.inf
        for _ in range(ROUNDS):
            state = cumulants(self.probes, self.counts, tilt)
            guess = math.exp(min(_log_guess(state, tilt, eps), 0.0))
            error = accuracy / (tilt + 1 / math.sqrt(state.variance))
            both = self._try(state, tilt, eps, error, max(guess, 1e-280), (eps, enough))
            if both is None:
                break
            if both.suffices(eps, enough):
                return best[0], enough
            low, high = both.delta(eps)
            best = (max(best[0], low), min(best[1], high))
            if best[1] - best[0] <= tol * best[1] or best[1] <= max(enough, 1e-300):
                break
            finer = _tighter((high - low) / high, width, tol, both)
            if finer is None:
                break
            accuracy, width = min(accuracy * finer, SHARE * tol), (high - low) / high
        return _ordered((best[0], max(best[1], TINY)))

    def nearest(self, eps: float) -> Both:
        """The composed laws, among those made so far, whose middle is nearest to eps."""
        return min(self.seen, key=lambda both: abs(both.upper.centre - eps))

    def epsilon(self, delta: float, tol: float, enough: float = -1.0) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta: relative width at most ``tol`` where it can be had, or an upper end of at most ``enough``."""
        if delta <= self.infinity:
            return (self.top, self.top) if delta == self.infinity else (math.inf, math.inf)
        if self.top <= enough:
            return 0.0, max(self.top, 0.0)
        if self._bounded(enough, delta):
            return 0.0, enough
        log_delta = math.log(delta - self.infinity)
        self._look(log_delta, tol)
        tilt = tilt_for_delta(self.probes, self.counts, log_delta)
        best, accuracy, guess = (0.0, math.inf), SHARE * tol, math.inf
        # where rare large losses decide, ln delta falls less steeply than the tilt says, and errors of delta cost more eps
        if cumulants(self.probes, self.counts, tilt).variance > RARE * cumulants(self.probes, self.counts, 0.0).variance:
            accuracy /= 1.6
        width = self.last_error = math.inf
        for _ in range(ROUNDS):
            state = cumulants(self.probes, self.counts, tilt)
            chernoff = (state.total - log_delta) / tilt if tilt > 0 else math.inf
            spread = math.sqrt(state.variance)
            # the tilt is right to a percent only: one step of Newton's from its mean
            near = state.mean + (_log_guess(state, tilt, state.mean) - log_delta) / (tilt + 1 / spread)
            eps = max(min(near, chernoff, guess), 0.0)
            if eps > EPS_LIMIT:
                raise Unsupported(f"eps would be about {eps:.3g}; beyond {EPS_LIMIT:g} there is no privacy left to certify. Add noise")
            # where an upper end is all that is asked, and has room, a coarse grid will do
            lenient = min(ROOM * (enough - (eps if math.isinf(best[1]) else (2 * best[0] + best[1]) / 3)), self.last_error / 2)
            both = self._try(state, tilt, eps, max(accuracy * max(eps, 0.01 * spread), lenient), delta, (enough, delta))
            if both is None:
                break
            if both.suffices(enough, delta):
                return best[0], enough
            low, high = both.epsilon(delta, max(eps, 1e-3 * spread), spread)
            best = (max(best[0], low), min(best[1], high, max(self.top, 0.0)))
            if best[1] - best[0] <= tol * max(best[1], 0.01 * spread) or best[1] <= enough:
                break
            if math.isinf(high):
                tilt *= 0.9
                continue
            far, guess = math.isfinite(high) and abs(high - eps) > 1.5 * spread, best[1]
            if far:
                tilt = tilt_for_eps(self.probes, self.counts, high)
            else:
                finer = _tighter((high - low) / high, width, tol, both)
                if finer is None:
                    break
                accuracy, width = accuracy * finer, (high - low) / high
        return _ordered(best)

    def _look(self, log_delta: float, tol: float) -> None:
        """Probes the pairs as deeply as a delta of this size needs, without the losses so rare that they cannot matter to it."""
        # so small a part of delta moves eps by far less than the tolerance
        self.neglected = 0.02 * tol
        found = [Probe.of(seen, float(group.pair.infinity)) for seen, group in zip(self._scans(log_delta), self.groups, strict=True)]
        tops = [self._negligible(math.exp(log_delta), group.counts) for group in self.groups]
        self.looked, self.probes = log_delta, [p.up_to(top_index(p, top)) for p, top in zip(found, tops, strict=True)]

    def _scans(self, log_delta: float) -> list[Scan]:
        wanted = log_delta - math.log(1e6 * self.total * self.kinds)
        depth = next((d for d in DEPTHS if math.log(d) <= wanted), DEPTHS[-1])
        return [scan(*group.members, depth=depth) for group in self.groups]

    def _bounded(self, eps: float, delta: float) -> bool:
        """Whether Chernoff's bound shows that delta at eps is no larger, for both above zero: at the normal law's tilt, then Newton's."""
        if eps <= 0 or delta <= 0:
            return False
        scans, tilt = self._scans(math.log(delta)), max(-2 * math.log(delta), 1.0) / eps
        rare = 1e-3 * delta / self.total
        for _ in range(3):
            found = [seen.chernoff(tilt, rare) for seen in scans]
            log_moment, mean, square = (self._sum([part[i] for part in found]) for i in range(3))
            size = self._sum([np.sqrt(part.square) for part in found])
            beyond = -math.expm1(self._sum([np.log1p(-part.above) for part in found]))
            # the largest (1 - e^-x) e^{-tilt x} over x > 0
            log_peak = -tilt * math.log1p(1 / tilt) - math.log1p(tilt)
            log_bound = log_moment - tilt * (eps - 11 * TAIL_ROUNDINGS * UNIT * size) + log_peak
            if beyond + math.exp(min(log_bound, 0.0)) <= delta * (1 - 1e-12):
                return True
            slope, bend = mean - eps - math.log1p(1 / tilt), square - self._sum([part.mean**2 for part in found]) + 1 / (tilt + tilt**2)
            if log_bound - slope**2 / (2 * bend) > math.log(delta) + 0.3:
                break
            tilt = min(max(tilt - slope / bend, tilt / 4), 4 * tilt)
        return False

    def _sum(self, values: list[Array]) -> float:
        """The sum over all steps of what each group gives for one step of each of its kinds."""
        return sum(float(n @ each) for n, each in zip(self.counts, values, strict=True))

    def _try(self, state: Cumulants, tilt: float, eps: float, error: float, delta: float, target: tuple[float, float]) -> Both | None:
        """Composes from both sides, more coarsely where the grid would not fit; None where something coarser is there already.

        The law from below is left out where the one from above suffices for ``target``, an eps and the delta that it has to meet.
        """
        for attempt in range(ATTEMPTS):
            allowed = error * COARSER**attempt
            if allowed >= self.last_error:
                return None
            try:
                both = self._inverted(state, tilt, eps, allowed, delta) if self.inverts else None
                if both is not None and (both.suffices(*target) or both.lower):
                    break
                self.inverts = False
                both = self._compose(state, tilt, eps, allowed, delta)
                # composed here, where a window that does not fit is caught
                if both.suffices(*target) or both.lower:
                    break
            except Unsupported:
                if attempt == ATTEMPTS - 1 and math.isinf(self.last_error):
                    raise
        else:
            return None
        self.last_error = allowed
        self.seen = [*self.seen[-3:], both]
        return both

    def _inverted(self, state: Cumulants, tilt: float, eps: float, error: float, delta: float) -> Both | None:
        """As ``_compose``, by the transform of the composed loss; None where that would take too long."""
        spread = math.sqrt(state.variance)
        relative = min(max(error * (tilt + 1 / spread), 1e-9), 1e-2)
        dotted = tilt
        plain = cumulants(self.probes, self.counts, 0.0).variance
        # where rare large losses decide, it may be a single one, whose weight at the saddle's tilt is nothing beside larger ones
        focus = (eps / FOCUS, eps * FOCUS) if state.variance > RARE * plain else None
        tilt = max(tilt, LEAST_TILT / spread)
        lost = math.log(max(relative / (ROUNDED * math.sqrt(self.total)), 1.0))
        tilt = tilt_for_contour(self.probes, self.counts, tilt, eps, math.log(delta), math.log(delta * relative) - CLEAR, lost)
        state = cumulants(self.probes, self.counts, tilt)
        share = math.exp(min(math.log(delta) - state.total + tilt * eps, 0.0))
        offset = eps - state.mean
        parts = [part for group, p in zip(self.groups, self.probes, strict=True) for part in parted(group, p, dotted)]
        laws = []
        for group, p in parts:
            masses = self._negligible(delta, group.counts), max(1e-9 * share / self.total, 1e-300)
            law = scattered(group, p, error / self.total, (dotted, tilt), masses, focus)
            if law is None:
                return None
            laws.append(law)

        def side(some: list[Atoms]) -> Inverted | None:
            return invert(some, tilt, offset, delta, error, relative)

        upper = side([upper for upper, _ in laws])
        if upper is None:
            return None
        drift = self._drift(state)
        return Both(upper, lambda: side([lower() for _, lower in laws]), drift, drift, spread)

    def _compose(self, state: Cumulants, tilt: float, eps: float, error: float, delta: float) -> Both:
        """Both composed laws, good near eps, with dotting errors that shift eps by about ``error`` in all."""
        # a lattice of spacing h raises the cumulant function at the saddle by at most (tilt + 1) tilt h^2 / 12 a step; the lower
        # dots cost half as much again, and nodes sparser than the lattice the part EXTRA of it all
        fine = math.sqrt(8 * error / (self.total * (tilt + 1) * (1 + EXTRA)))
        relative = min(max(error * (tilt + 1 / math.sqrt(state.variance)), 1e-9), 1e-2)
        tilt, state, share = self._milder(tilt, state, eps, delta, relative)
        tail = max(1e-2 * relative * share, 1e-250)
        tops = [self._negligible(delta, n) for n in self.counts]
        chosen = plan(self.probes, self.counts, tops, tilt, error, Lattice.of(self.groups, fine), tail)
        parts = [part for group, p in zip(self.groups, self.probes, strict=True) for part in parted(group, p, tilt)]
        made = [self._dot(group, p, chosen, tilt, delta, share, tail) for group, p in parts]
        counts = [group.counts for group, _ in parts]
        split = [(d.jumps, n) for d, n in zip(made, counts, strict=True) if d.jumps is not None]
        # what composes the lower law later must not hold on to this composition, or a cycle keeps all arrays alive
        log_finite = self.log_finite

        def side(upper: bool) -> Composed:
            finite = sum(float(n @ np.log1p(-d.infinity)) for d, n in zip(made, counts, strict=True)) if upper else log_finite
            laws = [d.upper if upper else d.lower() for d in made]
            late = [(jumps.upper if upper else jumps.lower, n) for jumps, n in split]
            fewer = [n - d.jumps.most if d.jumps and not upper else n for d, n in zip(made, counts, strict=True)]
            return compose(laws, fewer, chosen.step, tilt, chosen.stages, late=late, upper=upper, log_finite=finite, tail=tail)

        drift = self._drift(state) + sum(float(jumps.most @ jumps.log_kappa) for jumps, _ in split)
        fall = drift + sum(jumps.fall for jumps, _ in split)
        return Both(side(True), partial(side, False), drift, fall, math.sqrt(state.variance))

    def _drift(self, state: Cumulants) -> float:
        """By how much in eps rounding in the tails may shift the composed loss."""
        sizes = [np.abs(m) + 10 * np.sqrt(v) for m, v in zip(state.means, state.variances, strict=True)]
        return TAIL_ROUNDINGS * UNIT * sum(float(n @ size) for n, size in zip(self.counts, sizes, strict=True))

    def _milder(self, tilt: float, state: Cumulants, eps: float, delta: float, relative: float) -> tuple[float, Cumulants, float]:
        """The tilt to compute with, its cumulants, and the share of the tilted mass that decides delta at eps.

        The saddle's own tilt, unless there one or many large losses are about equally likely and the law is far too wide; a somewhat
        milder tilt then has only the few, as long as rounding does not show in the smaller share.
        """
        plain = cumulants(self.probes, self.counts, 0.0).variance
        best = (tilt, state, math.exp(min(math.log(delta) - state.total + tilt * eps, 0.0)))
        for factor in (0.97, 0.94, 0.9, 0.85, 0.8, 0.7):
            if best[1].variance <= 50 * plain:
                break
            c = cumulants(self.probes, self.counts, factor * tilt)
            share = math.exp(min(math.log(delta) - c.total + factor * tilt * eps, 0.0))
            if share < max(1e-10, 1e-13 * self.total / relative):
                break
            best = (factor * tilt, c, share)
        return best

    def _negligible(self, delta: float, counts: Counts) -> float:
        """P-mass of one of a group's steps that may go to +infinity without being seen in delta."""
        return max(self.neglected * delta / (int(counts.max()) * self.kinds), 1e-300)

    def _dot(self, group: Group, p: Probe, chosen: Plan, tilt: float, delta: float, share: float, tail: float) -> Dotted:
        masses = self._negligible(delta, group.counts), max(1e-9 * share / self.total, 1e-300)
        if chosen.cut is None or not p.reaches(chosen.cut * chosen.last):
            return dot(group, p, chosen.step, tilt, *masses)
        return dot_split(group, p, chosen, tilt, *masses, tail)


def _ordered(ends: tuple[float, float]) -> tuple[float, float]:
    """The ends of a bracket, a crossing by rounding mended; brackets that exclude each other can only come from a fault in here."""
    low, high = ends
    if low > high * (1 + 1e-8):
        raise ArithmeticError(f"two certified brackets exclude each other: {low!r} from below, {high!r} from above")
    return min(low, high), high


def _log_guess(state: Cumulants, tilt: float, eps: float) -> float:
    """ln delta at eps by the saddle-point approximation at the given tilt."""
    return state.total - tilt * eps + log_tail_factor(tilt, math.sqrt(state.variance))


def _tighter(width: float, before: float, tol: float, both: Both) -> float | None:
    """The factor by which the next round's allowance shrinks; None where its grid would be too large, or the last one did not pay."""
    least = (both.cells / MOST_CELLS) ** 2
    wanted = max(0.9 * tol / width, 0.05) if math.isfinite(width) else 0.1
    hopeless = least > 0.5 or (both.cells > SMALL_CELLS and width > 0.97 * before)
    return None if hopeless else min(0.8, max(wanted, least))
