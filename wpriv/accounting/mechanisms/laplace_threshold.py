"""Laplace noise on the counts of unknown keys, of which those above a threshold are released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from wpriv.accounting.mechanisms._threshold_pair import GROUPED, ThresholdPair, part
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter


@dataclass(frozen=True)
class LaplaceThreshold(Mechanism):
    """Add Laplace noise to the count of every key that occurs, and release the keys whose noisy count is above a limit.

    A person (the record) adds at most ``sensitivity`` to each of at most ``keys`` counts. With one key the pair is
    exact; with more, the upper end is that of all known keys and all unknown keys together. The noise is continuous:
    with discrete noise delta is larger (docs/theory/thresholds.md has a pair for it).

    Source:
        Korolova, Kenthapadi, Mishra, Ntoulas (2009); Wilson et al. (2020); docs/theory/thresholds.md.
    """

    release: ClassVar[Release] = Release.KEYS
    noise: ClassVar[str | None] = "threshold"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "scale"),)
    why_not_grouped: ClassVar[str] = GROUPED
    source: ClassVar[str] = "Korolova et al. 2009; Wilson et al. 2020 (thresholds for unknown keys)"
    example: ClassVar[dict[str, object]] = {"threshold": 12.0}

    scale: float = parameter("scale b of the noise on each count, which is continuous", exclusive_minimum=0)
    threshold: float = parameter("noisy counts above it are released, in the units of a count", exclusive_minimum=0)
    keys: int = parameter("largest number of keys to which one person contributes", default=1, minimum=1)
    sensitivity: float = parameter(
        "largest contribution of one person to the count of one key", default=1.0, exclusive_minimum=0
    )

    def pair(self) -> LossPair:
        t, excess = self.sensitivity / self.scale, (self.threshold - self.sensitivity) / self.scale
        log_release = -math.log(2) - excess if excess >= 0 else math.log1p(-math.exp(excess) / 2)
        unknown = part(None, self.keys, log_release)
        key = (LaplaceThreshold, t, log_release, self.keys)
        if self.keys == 1:
            parts = [part(LaplacePair(t), 0, log_release), unknown]
            return ThresholdPair(key, parts, parts)
        together = [part(LaplacePair(self.keys * t), self.keys, log_release)]
        one_known = part(LaplacePair(t), self.keys - 1, log_release)
        return ThresholdPair(key, together, [one_known, unknown])
