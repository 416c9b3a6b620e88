"""Certified two-sided brackets of delta(eps) and eps(delta) for the composition of any loss pairs.

For one order of the neighbours: probe the pairs in groups of like ones, choose the tilt from the question, compose laws of atoms that
lie above and below every pair by the transform of their sum (``contour``), or on lattices where that would take longer (``staged``), and
read the answer. Refine until the bracket is as narrow as asked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from wpriv.core.guarantee import TINY
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import WeightedPairs
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array
from wpriv.pld.adaptive_nodes import TailScan, scan_tails
from wpriv.pld.lattice.compose_on_lattices import compose_on_lattices
from wpriv.pld.lattice.spectra import UNIT
from wpriv.pld.saddle_point import (
    DEPTHS,
    ApproximatePmf,
    Cumulants,
    log_tail_factor,
    tilt_for_delta,
    tilt_for_eps,
    top_index,
)
from wpriv.pld.stacking import group_pairs
from wpriv.pld.step_groups import TAIL_ROUNDINGS, Steps
from wpriv.pld.transform.compose_by_transform import RARE, compose_by_transform, single_loss_delta
from wpriv.pld.two_sided import TwoSidedComposition

# how a run may be composed, the quickest way first
WAYS = (compose_by_transform, compose_on_lattices)
ROUNDS = 6
# how many lattices are tried where one does not fit, and by how much each allows more error than the one before
ATTEMPTS, COARSER = 10, 3
# and how many of the last ones are tried after a question has taken too long
LAST = 5
# CPU seconds after which nothing finer is tried for a question about one order of the neighbours, for all of them together, and for one
# that comes after that
SECONDS, TOTAL, LEAST_SECONDS = 0.8, 3.0, 0.05
EPS_LIMIT, LOG_TINY = 1e6, -640.0
LOG_FIRST = -30.0  # ln of the delta that is assumed at first, where eps is given
# at most how many times what single losses add to delta all others are taken to add, where rare losses decide
OTHERS = 10
# the part of the upper end from which on a lower end tells enough of where the answer is
KNOWN = 0.5
# the share of the tolerance that is given to the dots
SHARE = 0.55
# the share of the room below an upper end that suffices which may be lost to the grid
ROOM = 0.3
# cells that a further round may take, and up to which one is tried whether or not the last one paid
MOST_CELLS, SMALL_CELLS = 1 << 20, 1 << 15


class Composition:
    """One run (one order of the neighbours): loss pairs with their counts, ready to be asked."""

    def __init__(self, run: WeightedPairs):
        merged: dict[LossPair, int] = {}
        for pair, n in run:
            merged[pair] = merged.get(pair, 0) + n
        self.groups = group_pairs(merged)
        self.counts = [group.counts for group in self.groups]
        self.total, self.kinds = sum(merged.values()), len(merged)
        self.looked = math.inf
        masses = [(pair.mass_at_plus_infinity, n) for pair, n in merged.items() if pair.mass_at_plus_infinity > 0]
        self.log_finite = (
            -math.inf if any(mass >= 1 for mass, _ in masses) else sum(n * math.log1p(-mass) for mass, n in masses)
        )
        self.mass_at_plus_infinity = -math.expm1(self.log_finite)
        self.top = sum(n * pair.support[1] for pair, n in merged.items())
        self.seen: list[TwoSidedComposition] = []
        self.asked, self.allowed, self.left = 0.0, SECONDS, TOTAL
        self.last_error = math.inf

    def delta(self, eps: float, tol: float, enough: float = -1.0) -> tuple[float, float]:
        """Lower and upper delta at eps: relative width at most ``tol`` where that can be had, or an upper end of at most ``enough``."""
        return self._timed(self._delta, eps, tol, enough)

    def epsilon(self, delta: float, tol: float, enough: float = -1.0) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta: relative width at most ``tol`` where it can be had, or an upper end of at most ``enough``."""
        return self._timed(self._epsilon, delta, tol, enough)

    def _timed(self, ask: Callable[..., tuple[float, float]], *question: float) -> tuple[float, float]:
        """Answers a question within its time, which is less once those before it have taken long."""
        self.asked, self.allowed = time.process_time(), max(min(SECONDS, self.left), LEAST_SECONDS)
        try:
            return ask(*question)
        finally:
            self.left -= time.process_time() - self.asked

    def _delta(self, eps: float, tol: float, enough: float) -> tuple[float, float]:
        if eps >= self.top:
            return self.mass_at_plus_infinity, self.mass_at_plus_infinity
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
            tilt = tilt_for_eps(self.steps.probes, self.counts, eps)
            log_guess = _log_guess(self.steps.cumulants(tilt), tilt, eps)
            if max(log_guess, least_log) > self.looked - 1:
                break
        # what is too small for a double, or far below what is asked, is bounded from a tilt whose own delta is not
        if log_guess < least_log:
            tilt = tilt_for_delta(self.steps.probes, self.counts, least_log)
        elif enough > 0:
            # where an upper end is all that is asked, and has room, a coarse grid will do at first
            accuracy = max(accuracy, ROOM * (math.log(enough) - log_guess))
        best, width, self.last_error = (0.0, 1.0), math.inf, math.inf
        plain = self.steps.cumulants(0.0).variance
        for _ in range(ROUNDS):
            state = self.steps.cumulants(tilt)
            guess = math.exp(min(_log_guess(state, tilt, eps), 0.0))
            if state.variance > RARE * plain:
                # between a bulk and rare losses that are far larger the approximation says nothing; single losses near eps do
                guess = min(guess, OTHERS * single_loss_delta(self.steps, eps))
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
            if finer is None or self._spent():
                break
            accuracy, width = min(accuracy * finer, SHARE * tol), (high - low) / high
        return _ordered((best[0], max(best[1], TINY)))

    def nearest(self, eps: float) -> TwoSidedComposition:
        """The composed laws, among those made so far, whose middle is nearest to eps."""
        return min(self.seen, key=lambda both: abs(both.upper.centre - eps))

    def _epsilon(self, delta: float, tol: float, enough: float) -> tuple[float, float]:
        if delta <= self.mass_at_plus_infinity:
            return (self.top, self.top) if delta == self.mass_at_plus_infinity else (math.inf, math.inf)
        if self.top <= enough:
            return 0.0, max(self.top, 0.0)
        if self._bounded(enough, delta):
            return 0.0, enough
        log_delta = math.log(delta - self.mass_at_plus_infinity)
        self._look(log_delta, tol)
        tilt = tilt_for_delta(self.steps.probes, self.counts, log_delta)
        best, accuracy, guess = (0.0, math.inf), SHARE * tol, math.inf
        # where rare large losses decide, ln delta falls less steeply than the tilt says, and errors of delta cost more eps
        if self.steps.cumulants(tilt).variance > RARE * self.steps.cumulants(0.0).variance:
            accuracy /= 1.6
        width = self.last_error = math.inf
        for _ in range(ROUNDS):
            state = self.steps.cumulants(tilt)
            chernoff = (state.total - log_delta) / tilt if tilt > 0 else math.inf
            spread = math.sqrt(state.variance)
            # the tilt is right to a percent only: one step of Newton's from its mean
            near = state.mean + (_log_guess(state, tilt, state.mean) - log_delta) / (tilt + 1 / spread)
            eps = max(min(near, chernoff, guess), 0.0)
            # once the answer is known to a part, no approximation is nearer
            eps = eps if best[0] < KNOWN * best[1] else (best[0] + best[1]) / 2
            if eps > EPS_LIMIT:
                raise Unsupported(
                    f"eps would be about {eps:.3g}; beyond {EPS_LIMIT:g} there is no privacy left to certify. Add noise"
                )
            # where an upper end is all that is asked, and has room, a coarse grid will do
            lenient = min(
                ROOM * (enough - (eps if math.isinf(best[1]) else (2 * best[0] + best[1]) / 3)), self.last_error / 2
            )
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
                tilt = tilt_for_eps(self.steps.probes, self.counts, high)
            else:
                finer = _tighter((high - low) / high, width, tol, both)
                if finer is None or self._spent():
                    break
                accuracy, width = accuracy * finer, (high - low) / high
        return _ordered(best)

    def _look(self, log_delta: float, tol: float) -> None:
        """Probes the pairs as deeply as a delta of this size needs, without the losses so rare that they cannot matter to it."""
        # so small a part of delta moves eps by far less than the tolerance
        steps = Steps(self.groups, [], 0.02 * tol, self.log_finite)
        found = [
            ApproximatePmf.of(seen, float(group.pair.mass_at_plus_infinity))
            for seen, group in zip(self._scans(log_delta), self.groups, strict=True)
        ]
        tops = [steps.negligible(math.exp(log_delta), group.counts) for group in self.groups]
        probes = [p.up_to(top_index(p, top)) for p, top in zip(found, tops, strict=True)]
        self.looked, self.steps = log_delta, Steps(self.groups, probes, 0.02 * tol, self.log_finite)

    def _scans(self, log_delta: float) -> list[TailScan]:
        wanted = log_delta - math.log(1e6 * self.total * self.kinds)
        depth = next((d for d in DEPTHS if math.log(d) <= wanted), DEPTHS[-1])
        return [scan_tails(*group.members, depth=depth) for group in self.groups]

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
            slope, bend = (
                mean - eps - math.log1p(1 / tilt),
                square - self._sum([part.mean**2 for part in found]) + 1 / (tilt + tilt**2),
            )
            if log_bound - slope**2 / (2 * bend) > math.log(delta) + 0.3:
                break
            tilt = min(max(tilt - slope / bend, tilt / 4), 4 * tilt)
        return False

    def _sum(self, values: list[Array]) -> float:
        """The sum over all steps of what each group gives for one step of each of its kinds."""
        return sum(float(n @ each) for n, each in zip(self.counts, values, strict=True))

    def _try(
        self, state: Cumulants, tilt: float, eps: float, error: float, delta: float, target: tuple[float, float]
    ) -> TwoSidedComposition | None:
        """Composes from both sides, more coarsely where the grid would not fit; None where something coarser is there already.

        The law from below is left out where the one from above suffices for ``target``, an eps and the delta that it has to meet.
        """
        allowed = [
            error * COARSER**attempt for attempt in range(ATTEMPTS) if error * COARSER**attempt < self.last_error
        ]
        refusal: Unsupported | None = None
        for way in WAYS:
            for each in allowed:
                # while this question has no answer yet, what is quick is still tried
                if self._spent() and (math.isfinite(self.last_error) or each not in allowed[-LAST:]):
                    continue
                try:
                    both = way(self.steps, state, tilt, eps, each, delta)
                    # composed here, where what does not fit is caught
                    if both.suffices(*target) or both.lower:
                        return self._known(both, each)
                except Unsupported as reason:
                    refusal = reason
        if refusal is not None and math.isinf(self.last_error):
            raise refusal
        return None

    def _known(self, both: TwoSidedComposition, error: float) -> TwoSidedComposition:
        self.last_error = error
        self.seen = [*self.seen[-3:], both]
        return both

    def _spent(self) -> bool:
        """Whether a question has taken as long as it may, so that the best answer so far has to do."""
        return time.process_time() - self.asked > self.allowed


def _ordered(ends: tuple[float, float]) -> tuple[float, float]:
    """The ends of a bracket, a crossing by rounding mended; brackets that exclude each other can only come from a fault in here."""
    low, high = ends
    if low > high * (1 + 1e-8):
        raise ArithmeticError(f"two certified brackets exclude each other: {low!r} from below, {high!r} from above")
    return min(low, high), high


def _log_guess(state: Cumulants, tilt: float, eps: float) -> float:
    """ln delta at eps by the saddle-point approximation at the given tilt."""
    return state.total - tilt * eps + log_tail_factor(tilt, math.sqrt(state.variance))


def _tighter(width: float, before: float, tol: float, both: TwoSidedComposition) -> float | None:
    """The factor by which the next round's allowance shrinks; None where its grid would be too large, or the last one did not pay."""
    least = (both.cells / MOST_CELLS) ** 2
    wanted = max(0.9 * tol / width, 0.05) if math.isfinite(width) else 0.1
    hopeless = least > 0.5 or (both.cells > SMALL_CELLS and width > 0.97 * before)
    return None if hopeless else min(0.8, max(wanted, least))
