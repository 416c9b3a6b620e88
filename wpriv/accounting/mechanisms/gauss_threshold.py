"""Gaussian noise on the counts of unknown keys, of which those above a threshold are released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from wpriv.accounting.mechanisms._threshold_pair import GROUPED, Part, ThresholdPair, part
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter

# the largest number of parts: with more keys, neighbouring numbers of unknown keys share one that dominates them
MAX_PARTS = 48


@dataclass(frozen=True)
class GaussThreshold(Mechanism):
    """Add N(0, sigma^2) to the count of every key that occurs, and release the keys whose noisy count is above a limit.

    A person (the record) adds at most ``sensitivity`` to each of at most ``keys`` counts. Keys that nobody else holds
    show that the person is there if they are released; the others are Gaussian releases. The noise is continuous: with
    discrete noise delta is larger (docs/theory/thresholds.md has a pair for it).

    Source:
        Korolova, Kenthapadi, Mishra, Ntoulas (2009); Wilson et al. (2020); docs/theory/thresholds.md.
    """

    release: ClassVar[Release] = Release.KEYS
    noise: ClassVar[str | None] = "threshold"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "sigma"),)
    why_not_grouped: ClassVar[str] = GROUPED
    source: ClassVar[str] = "Korolova et al. 2009; Wilson et al. 2020 (thresholds for unknown keys)"
    example: ClassVar[dict[str, object]] = {"sigma": 2.0, "threshold": 9.0}

    sigma: float = parameter("standard deviation of the noise on each count, which is continuous", exclusive_minimum=0)
    threshold: float = parameter("noisy counts above it are released, in the units of a count", exclusive_minimum=0)
    keys: int = parameter("largest number of keys to which one person contributes", default=1, minimum=1)
    sensitivity: float = parameter(
        "largest contribution of one person to the count of one key", default=1.0, exclusive_minimum=0
    )

    def pair(self) -> LossPair:
        log_release = float(log_ndtr((self.sensitivity - self.threshold) / self.sigma))
        mu, spaced = self.sensitivity / self.sigma, np.linspace(0, self.keys, min(self.keys + 1, MAX_PARTS))
        firsts = sorted({0, 1, *np.rint(spaced).astype(int).tolist()})
        lasts = [*(first - 1 for first in firsts[1:]), self.keys]

        def block(first: int, last: int) -> Part:
            known = self.keys - first
            return part(GaussPair(mu * math.sqrt(known)) if known else None, last, log_release)

        parts = [block(first, last) for first, last in zip(firsts, lasts, strict=True)]
        attained = parts if firsts == lasts else [block(first, first) for first in firsts]
        return ThresholdPair((GaussThreshold, mu, log_release, self.keys), parts, attained)
