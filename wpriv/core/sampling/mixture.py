"""What both kinds of subsampling share: mixtures of masses, the map of losses, and sampled atomic pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Literal

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import inverse_log_mixture, log_mixture
from wpriv.numerics.safe_rounding import raised


def mix(log_q: Array, log_p: Array, rate: float) -> Array:
    """ln((1-q) Q + q P) of two log probabilities."""
    return np.asarray(np.minimum(np.logaddexp(np.log1p(-rate) + log_q, np.log(rate) + log_p), 0.0))


def blend(q_mass: Array, p_mass: Array, rate: float) -> Array:
    """(1-q) Q + q P of two probabilities."""
    return (1 - rate) * q_mass + rate * p_mass


class LossMap:
    """The map from mixed to base losses, on the right side of every atom whatever the rounding of the map."""

    def __init__(self, atoms: Array, mixed: Array, rate: float):
        self.atoms, self.mixed, self.rate = atoms, mixed, rate

    def base(self, eps: Array, side: Literal["left", "right"] = "right") -> Array:
        """Return the base loss whose tails are those just above eps (``right``), or just below it (``left``)."""
        if not self.mixed.size:
            return inverse_log_mixture(eps, self.rate)
        at = np.searchsorted(self.mixed, eps, side=side)
        low, high = np.append(-np.inf, self.atoms), np.append(np.nextafter(self.atoms, -np.inf), np.inf)
        return np.clip(inverse_log_mixture(eps, self.rate), low[at], high[at])


def sampled_batch_key(kind: str, base: LossPair, rate: float) -> tuple[Hashable, tuple[float, ...]] | None:
    """The batch key of a sampled pair (see ``LossPair.batch_key``), or None where the base pair has none."""
    batch_key = base.batch_key()
    return None if batch_key is None else ((kind, batch_key[0]), (rate, *batch_key[1]))


class SampledAtoms(AtomicPair):
    """A pair sampled from an atomic pair that may omit losses; moments use a base with as many losses as they need."""

    base: AtomicPair
    rate: float
    sample: Callable[[AtomicPair, float], AtomicPair]

    def extended_to(self, lam: float) -> AtomicPair | None:
        if lam <= self.max_lam:
            return self
        extended = self.base.extended_to(lam)
        return None if extended is None else self.sample(extended, self.rate)

    def sampled_from(
        self, base: AtomicPair, rate: float, sample: Callable[[AtomicPair, float], AtomicPair]
    ) -> AtomicPair:
        """Record the base pair, whose losses limit the moments, and return this pair."""
        self.base, self.rate, self.sample = base, rate, sample
        self.max_lam, self.log_beyond = base.max_lam, base.log_beyond
        sampled = base.losses > 0 if self.symmetric else np.isfinite(base.losses)
        # the error of a base loss, times the derivative of the mixed loss by it
        slope = base.losses[sampled] + math.log(rate) - log_mixture(base.losses[sampled], rate)
        error = base.errors[sampled] * np.exp(np.minimum(slope, 0.0))
        mirrored = error[::-1] if self.symmetric else error[:0]
        # between or below them a loss of which no base loss decides
        rest = np.zeros(self.losses.size - error.size - mirrored.size)
        self.errors = self.errors + np.concatenate([mirrored, rest, error])
        high = raised(self.support[1])
        self.support = (-high if self.symmetric else self.support[0], high)
        if math.isinf(base.support[1]):
            self.support = (-math.inf if self.symmetric else self.support[0], math.inf)
        return self
