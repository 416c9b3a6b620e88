"""Sigma of Gaussian noise on data in a ball, by formulas in use and by the exact profile, and the eps that each of them really has.

For local differential privacy, where any two inputs are neighbours and the sensitivity is the diameter of the ball.
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
    """The target."""

    target: float = parameter("eps asked for", exclusive_minimum=0)
    delta: float = parameter("delta asked for, below 1/2", exclusive_minimum=0)


def rows(params: Params) -> list[dict[str, Any]]:
    """Per formula sigma at radius 1, its ratio to the exact one, and its true eps at delta; the paper's own eps are ``marked``.

    A formula used outside its proof, or with the radius for the diameter, is no guarantee: claim ``as-published``.
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
    found = []
    for case, sigma, claim in cases:
        numbers = {
            "sigma": sigma * DIAMETER,
            "ratio": sigma / exact,
            "epsilon": gaussian_calibration.epsilon(sigma, delta),
        }
        found.append(
            {"case": case, **numbers, "claim": claim, "marked": int(eps in PAPER and case.startswith("equation"))}
        )
    return found
