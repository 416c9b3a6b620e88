"""Sigma of Gaussian noise on data in a ball, by formulas in use and by the exact privacy profile, with its exact eps.

For local differential privacy, in which any two inputs are neighbours and the sensitivity is the diameter of the ball.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wpriv.core.parameters import Parameters, parameter
from wpriv.numerics import gaussian_calibration

LABELS = ("case",)
COLUMNS = ("sigma", "ratio", "epsilon")
SHOWN = ("case", "sigma", "ratio", "epsilon", "claim")
DIAMETER = 2.0
PAPER = (25, 30, 35, 41, 1268)  # the eps of Gaussian noise in Reshetova, Chen, Ozgur (2023)


@dataclass(frozen=True)
class Params(Parameters):
    """The target eps and delta."""

    target: float = parameter("target eps", exclusive_minimum=0)
    delta: float = parameter("target delta, below 1/2", exclusive_minimum=0)


def rows(params: Params) -> list[dict[str, Any]]:
    """Return, for each formula, sigma at radius 1, its ratio to the exact one, and its exact eps at delta.

    A formula used outside its proof, or with the radius instead of the diameter, is no guarantee: claim
    ``as-published``. Rows at the eps of the paper are ``marked``.
    """
    eps, delta = params.target, params.delta
    exact, zhao = gaussian_calibration.exact(eps, delta), gaussian_calibration.zhao(eps, delta)
    classical = "upper-bound" if eps <= 1 else "as-published"
    cases = (
        ("exact", exact, "exact"),
        ("equation (4)", zhao, "upper-bound"),
        ("classical", gaussian_calibration.classical(eps, delta), classical),
        ("equation (4) at the radius, Corollary 2", zhao / 2, "as-published"),
    )
    return [
        {
            "case": case,
            "sigma": sigma * DIAMETER,
            "ratio": sigma / exact,
            "epsilon": gaussian_calibration.epsilon(sigma, delta),
            "claim": claim,
            "marked": int(eps in PAPER and case.startswith("equation")),
        }
        for case, sigma, claim in cases
    ]
