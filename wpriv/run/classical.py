"""Older closed forms for the sigma of a Gauss mechanism, to be compared with the calibrated one."""

from __future__ import annotations

import math
from typing import Any


def classical(eps: float, delta: float, sensitivity: float, n: int) -> list[dict[str, Any]]:
    """Sigma by the formulas in common use, and whether each is proven at this target.

    n releases of l2 sensitivity s are one of sensitivity s sqrt(n), exactly, which is how n enters.

    Returns:
        Rows with ``formula``, ``sigma`` (None where the formula has no value), ``valid`` and ``note``.
    Source:
        Dwork and Roth (2014), Theorem A.1; Zhao et al. (2019), as eq. (4) of Reshetova, Chen, Ozgur (2023).
    """
    whole = sensitivity * math.sqrt(n)
    sigma = whole * math.sqrt(2 * math.log(1.25 / delta)) / eps if eps > 0 else None
    rows = [_row("classical: s sqrt(2 ln(1.25/delta)) / eps", sigma, 0 < eps <= 1, "proven for eps <= 1 only (Dwork and Roth 2014)")]
    # sqrt(16 delta + 1) - 1, without cancellation
    root = 16 * delta / (math.sqrt(16 * delta + 1) + 1)
    square = math.log(2 / root)
    sound = eps > 0 and square > 0
    zhao = whole * (math.sqrt(square) + math.sqrt(square + eps)) / (eps * math.sqrt(2)) if sound else None
    formula = "Zhao et al.: s (c + sqrt(c^2 + eps)) / (eps sqrt 2), c^2 = ln(2 / (sqrt(16 delta + 1) - 1))"
    return [*rows, _row(formula, zhao, sound, "for every eps > 0 and delta < 1/2")]


def _row(formula: str, sigma: float | None, valid: bool, note: str) -> dict[str, Any]:
    return {"formula": formula, "sigma": sigma, "valid": valid, "note": note}
