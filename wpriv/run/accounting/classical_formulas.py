"""Older closed forms for the noise of a Gauss or Laplace mechanism, for comparison with the calibrated noise."""

from __future__ import annotations

import math
from typing import Any

from wpriv.core.mechanism import Mechanism
from wpriv.numerics import gaussian_calibration

CLASSICAL = "classical: s sqrt(2 ln(1.25/delta)) / eps"
ZHAO = "Zhao et al.: s (c + sqrt(c^2 + eps)) / (eps sqrt 2), c^2 = ln(2 / (sqrt(16 delta + 1) - 1))"
RADIUS = (
    "{} with the radius of the clip ball for its diameter s, as printed by Reshetova, Chen, Ozgur (2023), Corollary {}"
)
TOO_FEW = "two inputs are up to a diameter apart, so this is less noise than the formula asks for"


def applies(mechanism: Mechanism) -> bool:
    """Tell whether the formulas apply to the noise of a mechanism: continuous, untruncated Gauss or Laplace noise."""
    noise = mechanism.additive_noise()
    return noise is not None and not (noise.discrete or noise.truncated)


def classical(mechanism: Any, eps: float, delta: float, n: int) -> list[dict[str, Any]]:
    """Sigma or scale by the formulas in common use, and whether each is proven at this target.

    n releases of l2 sensitivity s are one of sensitivity s sqrt(n), exactly; n pure eps_1-DP releases are pure n
    eps_1-DP.

    Args:
        mechanism: one to which they apply (``applies``).
    Returns:
        Rows with ``formula``, ``sigma`` or ``scale`` (None where the formula has no value), ``valid`` and ``note``.
    Source:
        Dwork and Roth (2014), Theorem A.1; Zhao et al. (2019), as eq. (4) of Reshetova, Chen, Ozgur (2023).
    """
    ball, noise = mechanism.clip_ball(), mechanism.noise
    if noise == "scale":
        pure = mechanism.sensitivity * n / eps if eps > 0 else None
        rows = [_row(noise, "pure DP: s n / eps", pure, eps > 0, "eps-DP with delta = 0 by basic composition")]
        if ball is not None and eps > 0:
            rows.append(_row(noise, RADIUS.format("pure DP", 1), ball.radius * n / eps, False, TOO_FEW))
        return rows
    whole = mechanism.sensitivity * math.sqrt(n)
    old = whole * gaussian_calibration.classical(eps, delta) if eps > 0 else None
    new = whole * gaussian_calibration.zhao(eps, delta) if eps > 0 and delta < 0.5 else None
    rows = [
        _row(noise, CLASSICAL, old, 0 < eps <= 1, "proven for eps <= 1 only (Dwork and Roth 2014)"),
        _row(noise, ZHAO, new, new is not None, "for every eps > 0 and delta < 1/2"),
    ]
    if ball is not None and new is not None:
        scaled = new * ball.radius / mechanism.sensitivity
        rows.append(_row(noise, RADIUS.format("Zhao et al.", 2), scaled, False, TOO_FEW))
    return rows


def _row(noise: str, formula: str, value: float | None, valid: bool, note: str) -> dict[str, Any]:
    return {"formula": formula, noise: value, "valid": valid, "note": note}
