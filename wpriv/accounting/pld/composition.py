"""Certified two-sided brackets of delta(eps) and eps(delta) for the composition of any loss pairs in one direction.

The engine approximates the PMFs of the steps, chooses the tilt for the question, and composes a pessimistic and an
optimistic discretisation of every step: few atoms themselves, others by the transform of the sum, or on one lattice
where that would take longer. It refines the discretisation until the bracket is narrow enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from wpriv.accounting.pld import constants
from wpriv.accounting.pld.few_atoms import compose_few_atoms
from wpriv.accounting.pld.inversion import compose_by_transform
from wpriv.accounting.pld.lattice import compose_on_lattice
from wpriv.accounting.pld.rare_losses import bracket_rare_losses, rare_losses_delta, rare_losses_epsilon
from wpriv.accounting.pld.saddle_point import (
    ApproximatePmf,
    Cumulants,
    TailScan,
    group_pairs,
    merged_counts,
    scan_tails,
    tilt_for_delta,
    tilt_for_eps,
    top_index,
)
from wpriv.accounting.pld.step_groups import (
    Steps,
    TwoSidedComposition,
    approximate_single_loss_delta,
    chernoff_suffices,
    delta_far_below,
    expected_eps,
    log_delta_guess,
    ordered,
    refinement_factor,
    single_loss_delta,
)
from wpriv.core.process import WeightedPairs, log_finite
from wpriv.errors import Unsupported
from wpriv.numerics import counted_work
from wpriv.numerics.bracket import TINY
from wpriv.numerics.numbers import total_up

# the ways to compose, the faster first
METHODS = (compose_by_transform, compose_on_lattice)


class Composition:
    """The composition of loss pairs in one direction, evaluated at any eps or delta.

    Attributes:
        mass_at_plus_infinity: composed P-mass at +infinity.
        max_loss: largest finite composed loss in nats.
        recent: the last two-sided compositions, kept for further questions.
    """

    def __init__(self, run: WeightedPairs, work_share: float = 1.0):
        """``run`` lists the loss pairs with the number of compositions of each.

        Args:
            work_share: share of the work of a question, and of all, where several compositions give one answer.
        """
        self._work_share = work_share
        merged = merged_counts(run)
        self.groups = group_pairs(merged)
        self.counts = [group.counts for group in self.groups]
        self.log_finite = log_finite(list(merged.items()))
        self.mass_at_plus_infinity = -math.expm1(self.log_finite)
        self.max_loss = total_up((n, pair.support[1]) for pair, n in merged.items())
        self.recent: list[TwoSidedComposition] = []
        self.work_left = work_share * constants.COMPOSITION_WORK
        self._total, self._distinct_steps = sum(merged.values()), len(merged)
        self._deepest_log_delta = self._work_limit = self._work_end = self._accepted_error = math.inf
        self._answered = self._many_atoms = False

    def delta(self, eps: float, tol: float, sufficient_upper: float = -1.0) -> tuple[float, float]:
        """Lower and upper delta at eps.

        Args:
            tol: relative width asked of the bracket; a wider one is returned where it would take too much work.
            sufficient_upper: an upper end of at most this need not be refined.
        Raises:
            Unsupported: no composition fits in memory.
        """
        return self._limited(self._bracket_delta, eps, tol, sufficient_upper)

    def epsilon(self, delta: float, tol: float, sufficient_upper: float = -1.0) -> tuple[float, float]:
        """Lower and upper eps >= 0 at delta, as for ``delta``; Unsupported also beyond ``MAX_CERTIFIED_EPS``."""
        return self._limited(self._bracket_epsilon, delta, tol, sufficient_upper)

    def _limited(self, evaluate: Callable[..., tuple[float, float]], *question: float) -> tuple[float, float]:
        """Evaluate a question within its work, which shrinks once earlier questions have used up the total."""
        start = counted_work.total()
        share = max(min(self._work_share * constants.QUESTION_WORK, self.work_left), constants.MIN_QUESTION_WORK)
        self._work_limit, self._work_end = start + share, start + constants.MAX_WORK_RATIO * share
        try:
            return evaluate(*question)
        finally:
            self.work_left -= counted_work.total() - start

    def _bracket_delta(self, eps: float, tol: float, sufficient_upper: float) -> tuple[float, float]:
        if eps >= self.max_loss or math.isinf(self.log_finite):
            return self.mass_at_plus_infinity, self.mass_at_plus_infinity
        for known in self.recent:
            low, high = known.delta(eps)
            if high > 0 and high - low <= tol * high:
                return low, high
        if self._chernoff_suffices(eps, sufficient_upper):
            return 0.0, sufficient_upper
        tilt, accuracy = self._start_delta(eps, tol, sufficient_upper)
        nearly_one = delta_far_below(self.steps, self._scans(self._deepest_log_delta), eps)
        if nearly_one >= 1 - tol:
            return nearly_one, 1.0
        best, narrow = self._by_rare_losses(eps, None, tol)
        best, width, self._accepted_error = (best[0], min(best[1], 1.0)), math.inf, math.inf
        if narrow:
            return ordered(best)
        plain_variance = self.steps.cumulants(0.0).variance
        for _ in range(constants.MAX_REFINEMENTS):
            state = self.steps.cumulants(tilt)
            guess = math.exp(min(log_delta_guess(state, tilt, eps), 0.0))
            if state.variance > constants.RARE_LOSS_VARIANCE_RATIO * plain_variance:
                # the saddle point says nothing of an eps between a bulk and far larger rare losses; single losses near
                # eps do
                guess = min(guess, constants.RARE_LOSS_DELTA_FACTOR * approximate_single_loss_delta(self.steps, eps))
            error, guess = accuracy / (tilt + 1 / math.sqrt(state.variance)), max(guess, constants.MIN_DELTA_GUESS)
            composition = self._compose_within_limits(state, tilt, eps, error, guess, (eps, sufficient_upper))
            if composition is None:
                break
            if composition.meets_target(eps, sufficient_upper):
                return best[0], sufficient_upper
            low, high = composition.delta(eps)
            best = (max(best[0], low), min(best[1], high))
            if best[1] - best[0] <= tol * best[1] or best[1] <= max(sufficient_upper, constants.NEGLIGIBLE_DELTA):
                break
            factor = refinement_factor((high - low) / high, width, tol, composition)
            if factor is None or self._out_of_work():
                break
            accuracy = min(accuracy * factor, constants.DISCRETIZATION_SHARE * tol)
            width = (high - low) / high
        return ordered((best[0], max(best[1], TINY)))

    def _start_delta(self, eps: float, tol: float, sufficient_upper: float) -> tuple[float, float]:
        """Scan the tails for a question at eps; the tilt to begin with, and the relative error of delta allowed."""
        least_log, accuracy = constants.MIN_LOG_DELTA, constants.DISCRETIZATION_SHARE * tol
        if sufficient_upper > 0:
            least_log = max(least_log, math.log(sufficient_upper) - constants.SUFFICIENT_LOG_MARGIN)
        log_guess = constants.FIRST_LOG_DELTA
        for _ in range(constants.MAX_SCANS):
            self._scan_tails(max(log_guess, least_log), tol)
            tilt = tilt_for_eps(self.steps.pmfs, self.counts, eps)
            log_guess = log_delta_guess(self.steps.cumulants(tilt), tilt, eps)
            if max(log_guess, least_log) > self._deepest_log_delta - constants.RESCAN_LOG_MARGIN:
                break
        # a delta too small for a double, or far below the sufficient one, is bounded from the tilt of a larger delta
        if log_guess < least_log:
            tilt = tilt_for_delta(self.steps.pmfs, self.counts, least_log)
        elif sufficient_upper > 0:
            # a coarse discretisation is enough at first if only an upper end is needed and there is slack below it
            accuracy = max(accuracy, constants.SUFFICIENT_SLACK_SHARE * (math.log(sufficient_upper) - log_guess))
        return tilt, accuracy

    def _bracket_epsilon(self, delta: float, tol: float, sufficient_upper: float) -> tuple[float, float]:
        if delta <= self.mass_at_plus_infinity:
            return (self.max_loss,) * 2 if delta == self.mass_at_plus_infinity else (math.inf, math.inf)
        # the total variation distance of a composition is at most the sum of those of its steps
        few, share = self._distinct_steps <= constants.MAX_DISTANCE_KINDS, delta / (1 + constants.DISTANCE_ROUNDING)
        if few and share >= single_loss_delta(self.groups, 0.0):
            return 0.0, 0.0
        if self.max_loss <= sufficient_upper:
            return 0.0, max(self.max_loss, 0.0)
        if self._chernoff_suffices(sufficient_upper, delta):
            return 0.0, sufficient_upper
        log_delta = math.log(delta - self.mass_at_plus_infinity)
        self._scan_tails(log_delta, tol)
        tilt = tilt_for_delta(self.steps.pmfs, self.counts, log_delta)
        best, narrow = self._by_rare_losses(None, delta, tol)
        if narrow:
            return ordered(best)
        accuracy = constants.DISCRETIZATION_SHARE * tol
        # where rare large losses decide, ln delta falls less steeply than the tilt says, and errors of delta cost more
        # eps
        plain_variance = self.steps.cumulants(0.0).variance
        if self.steps.cumulants(tilt).variance > constants.RARE_LOSS_VARIANCE_RATIO * plain_variance:
            accuracy /= constants.RARE_LOSS_ERROR_DIVISOR
        width = self._accepted_error = math.inf
        guess = best[1]
        for _ in range(constants.MAX_REFINEMENTS):
            state = self.steps.cumulants(tilt)
            deviation = math.sqrt(state.variance)
            least_eps = constants.MIN_EPS_DEVIATIONS * deviation
            eps = expected_eps(state, tilt, log_delta, guess, best)
            # where only an upper end is needed there may be slack below the sufficient one
            estimate = eps if math.isinf(best[1]) else (2 * best[0] + best[1]) / 3
            lenient = min(constants.SUFFICIENT_SLACK_SHARE * (sufficient_upper - estimate), self._accepted_error / 2)
            error = max(accuracy * max(eps, least_eps), lenient)
            composition = self._compose_within_limits(state, tilt, eps, error, delta, (sufficient_upper, delta))
            if composition is None:
                break
            if composition.meets_target(sufficient_upper, delta):
                return best[0], sufficient_upper
            scale, start = max(deviation, composition.deviation), constants.MIN_GUESS_DEVIATIONS * deviation
            low, high = composition.epsilon(delta, max(eps, start), scale)
            best = (max(best[0], low), min(best[1], high, max(self.max_loss, 0.0)))
            if best[1] - best[0] <= tol * max(best[1], least_eps) or best[1] <= sufficient_upper:
                break
            if math.isinf(high):
                tilt *= constants.TILT_BACKOFF
                continue
            guess = best[1]
            if abs(high - eps) > constants.MAX_GUESS_MISS_DEVIATIONS * deviation:
                tilt = tilt_for_eps(self.steps.pmfs, self.counts, high)
                continue
            factor = refinement_factor((high - low) / high, width, tol, composition)
            if factor is None or self._out_of_work():
                break
            accuracy, width = accuracy * factor, (high - low) / high
        return ordered(best)

    def _by_rare_losses(self, eps: float | None, delta: float | None, tol: float) -> tuple[tuple[float, float], bool]:
        """The bracket where few large losses decide, and whether it is narrow enough; (0, inf) where they do not."""
        self._answered = False
        at = rare_losses_epsilon(self.steps, delta) if eps is None and delta is not None else eps
        alone = None if at is None else rare_losses_delta(self.steps, at)
        if at is None or alone is None:
            return (0.0, math.inf), False
        if math.log(alone) < self._deepest_log_delta:
            self._scan_tails(math.log(alone), tol)

        def read(composition: TwoSidedComposition, slope: float) -> tuple[float, float]:
            return composition.delta(at) if delta is None else composition.epsilon(delta, at, 1 / slope)

        target, is_eps = delta or alone, delta is not None
        best, composed = bracket_rare_losses(self.steps, at, target, tol, is_eps, read, self._out_of_work)
        self.recent = [*self.recent[1 - constants.RETAINED_COMPOSITIONS :], *composed]
        self._answered = bool(composed) and best[1] < math.inf
        return best, best[1] - best[0] <= max(tol, constants.RARE_WIDTH) * best[1] < math.inf

    def _scan_tails(self, log_delta: float, tol: float) -> None:
        """Scan the tails down to the mass relevant at this delta; drop negligible losses."""
        # so small a share of delta moves eps by far less than the tolerance
        share = constants.NEGLIGIBLE_DELTA_SHARE * tol
        steps = Steps(self.groups, [], share, self.log_finite)
        pmfs = []
        for scan, group in zip(self._scans(log_delta), self.groups, strict=True):
            pmf = ApproximatePmf.of(scan, float(group.pair.mass_at_plus_infinity))
            negligible = steps.negligible_mass(math.exp(log_delta), group.counts)
            pmfs.append(pmf.up_to(top_index(pmf, negligible)))
        self._deepest_log_delta, self.steps = log_delta, Steps(self.groups, pmfs, share, self.log_finite)

    def _scans(self, log_delta: float) -> list[TailScan]:
        log_mass = log_delta - math.log(constants.SCAN_DEPTH_FACTOR * self._total * self._distinct_steps)
        depth = next((d for d in constants.SCAN_DEPTHS if math.log(d) <= log_mass), constants.SCAN_DEPTHS[-1])
        return [scan_tails(*group.members, depth=depth) for group in self.groups]

    def _chernoff_suffices(self, eps: float, delta: float) -> bool:
        """Tell whether Chernoff's bound proves (eps, delta), for both above zero."""
        if eps <= 0 or delta <= 0:
            return False
        return chernoff_suffices(self._scans(math.log(delta)), self.counts, eps, delta)

    def _compose_within_limits(
        self, state: Cumulants, tilt: float, eps: float, error: float, delta: float, target: tuple[float, float]
    ) -> TwoSidedComposition | None:
        """Compose from both sides, more coarsely where that does not fit; None if nothing finer than before does.

        The optimistic composition is not made where the pessimistic one proves the target (eps, delta).
        """
        candidates = [error * constants.COARSENING_FACTOR**attempt for attempt in range(constants.COARSENING_ATTEMPTS)]
        errors = [candidate for candidate in candidates if candidate < self._accepted_error]
        if not self._many_atoms and errors[:1] == [error]:
            if few_atoms := compose_few_atoms(self.steps, state, tilt, eps, error, delta):
                return self._accepted(few_atoms, error)
            self._many_atoms = True
        if math.sqrt(self.steps.cumulants(0.0).variance) < constants.MIN_COMPOSED_DEVIATION:
            if self._answered:
                return None
            raise Unsupported("pld finds losses so small that the rounding of probabilities would decide. Use rdp")
        refusal: Unsupported | None = None
        for compose in METHODS:
            for candidate in errors:
                # without any answer yet, the fastest attempts are made even out of work, each with work of its own
                fast = math.isinf(self._accepted_error) and candidate in errors[-constants.ATTEMPTS_OUT_OF_WORK :]
                if self._out_of_work() and not fast:
                    continue
                end = max(self._work_end, counted_work.total() + constants.FAST_ATTEMPT_WORK * fast)
                try:
                    # ``lower`` is composed here, where a refusal is caught
                    with counted_work.stop_at(end):
                        composition = compose(self.steps, state, tilt, eps, candidate, delta)
                        if composition.meets_target(*target) or composition.lower:
                            return self._accepted(composition, candidate)
                except Unsupported as reason:
                    refusal = reason
        if refusal is not None and math.isinf(self._accepted_error) and not self._answered:
            raise refusal
        return None

    def _accepted(self, composition: TwoSidedComposition, error: float) -> TwoSidedComposition:
        self._accepted_error = error
        self.recent = [*self.recent[1 - constants.RETAINED_COMPOSITIONS :], composition]
        return composition

    def _out_of_work(self) -> bool:
        """Tell whether the question's work is spent, so that the best answer so far is returned."""
        return counted_work.total() > self._work_limit
