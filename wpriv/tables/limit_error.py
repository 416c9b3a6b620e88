"""What the central limit of Gaussian DP promises and what holds: noise chosen by the limit for a target eps, priced with certainty.

The limit is that of ``gdp-clt``, by the formula of fixed-size sampling (uniform) and by that of Poisson sampling, which Opacus takes by
default; the run is fixed-size sampling without replacement either way, as in Rodriguez-Vitores, Lalanne, Loubes (2025), Section 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wpriv.accountants import gdp_clt, pld
from wpriv.core.parameters import Parameters, parameter
from wpriv.core.process import Process, Sampling, Step
from wpriv.mechanisms.gauss import Gauss
from wpriv.numerics.root_finding import smallest_meeting

LABELS = ("case",)
COLUMNS = ("multiplier", "epsilon_lower", "epsilon_upper", "ratio")
SHOWN = ("case", "multiplier", "epsilon_lower", "epsilon_upper", "ratio", "claim")
TOL = 1e-4


@dataclass(frozen=True)
class Params(Parameters):
    """A run and the eps that its noise is chosen for."""

    target: float = parameter("eps that the limit is asked for", exclusive_minimum=0)
    rate: float = parameter("largest share of a group that is in a batch", exclusive_minimum=0)
    steps: int = parameter("number of steps T", minimum=1)
    delta: float = parameter("delta of target and answer", exclusive_minimum=0)


def rows(params: Params) -> list[dict[str, Any]]:
    """For both formulas the noise multiplier, the certified bracket of eps at it, and its upper end over the target."""

    def run(multiplier: float) -> Process:
        return Process((Step(Gauss(multiplier), params.steps, Sampling("fixed", params.rate)),))

    found = []
    for formula in ("uniform", "poisson"):

        def miss(multiplier: float, formula: str = formula) -> float:
            limit = gdp_clt.account(run(multiplier), formula=formula)
            return limit.at(delta=params.delta).epsilon.estimate - params.target

        multiplier = smallest_meeting(
            miss, guess=1 + params.rate * params.steps**0.5 / params.target, low=0.3, rtol=1e-9
        )
        eps = pld.account(run(multiplier), tol=TOL).at(delta=params.delta).epsilon
        about = {"case": f"noise by the {formula} limit", "multiplier": multiplier, "claim": "certified"}
        found.append(
            {**about, "epsilon_lower": eps.lower, "epsilon_upper": eps.upper, "ratio": eps.safe / params.target}
        )
    return found
