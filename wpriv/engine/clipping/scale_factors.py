"""How a gradient is scaled before it is summed: clipped to a norm, or divided by its norm (automatic clipping)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from wpriv.config.technique_schema import STABILITY
from wpriv.errors import UsageError


@dataclass(frozen=True)
class Automatic:
    """Automatic clipping: a gradient g becomes g / (|g| + stability), which is shorter than 1 whatever g is.

    Source:
        Bu, Wang, Zha, Karypis (2023), "Automatic Clipping: Differentially Private Deep Learning Made Easier and
        Stronger", AUTO-S; docs/theory/clipping.md has the proof of the sensitivity.
    """

    stability: float = STABILITY

    def __post_init__(self) -> None:
        if not 0 < self.stability < math.inf:
            raise UsageError(f"the stability of automatic clipping must be finite and above 0; found {self.stability}")


Scaling = float | Automatic
"""A clipping norm C > 0, or automatic clipping."""


def bound(scaling: Scaling) -> float:
    """Return the norm that no scaled gradient exceeds: C, or 1.

    Raises:
        UsageError: the clipping norm is not a finite number above 0.
    """
    if isinstance(scaling, Automatic):
        return 1.0
    if not 0 < scaling < math.inf:
        raise UsageError(f"the clipping norm must be finite and above 0; found {scaling}")
    return scaling


def factors(lengths: Tensor, scaling: Scaling) -> Tensor:
    """Return min(1, C / length), or 1 / (length + stability), for lengths [B] that are rounded upwards."""
    if isinstance(scaling, Automatic):
        return 1.0 / (lengths + scaling.stability)
    return (scaling / lengths).clamp(max=1.0)
