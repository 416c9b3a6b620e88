"""The error of the central limit of Gaussian DP: the certified eps at the noise that the limit gives for a target eps.

The limit is that of ``gdp-clt``, by the formula of fixed-size sampling (uniform) and by that of Poisson sampling, the
default of Opacus. The process has fixed-size sampling without replacement in both cases, as in Rodriguez-Vitores,
Lalanne, Loubes (2025), Section 5.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from wpriv.accountants import gdp_clt, pld
from wpriv.core.parameters import Parameters, parameter
from wpriv.core.process import Process, Step
from wpriv.core.sampling.kinds import Sampling
from wpriv.errors import Unsupported
from wpriv.mechanisms.gauss import Gauss
from wpriv.numerics.root_finding import smallest_meeting

LABELS = ("case",)
COLUMNS = ("multiplier", "epsilon_lower", "epsilon_upper", "ratio")
SHOWN = ("case", "multiplier", "epsilon_lower", "epsilon_upper", "ratio", "claim")
TOL = 1e-4


@dataclass(frozen=True)
class Params(Parameters):
    """A process and the eps for which its noise is chosen."""

    target: float = parameter("target eps of the limit", exclusive_minimum=0)
    rate: float = parameter("largest share of a group in a batch", exclusive_minimum=0)
    steps: int = parameter("number of steps T", minimum=1)
    delta: float = parameter("delta of the target and of the certified eps", exclusive_minimum=0)


def rows(params: Params) -> list[dict[str, Any]]:
    """Return, for both formulas, the noise multiplier, its certified bracket of eps, and upper end / target."""

    def process(multiplier: float) -> Process:
        return Process((Step(Gauss(multiplier), params.steps, Sampling("fixed", params.rate)),))

    table = []
    for formula in ("uniform", "poisson"):

        def excess(multiplier: float, formula: str = formula) -> float:
            try:
                limit = gdp_clt.account(process(multiplier), formula=formula)
            except Unsupported:  # mu of the limit overflows: far too little noise
                return math.inf
            return limit.at(delta=params.delta).epsilon.estimate - params.target

        guess = 1 + params.rate * params.steps**0.5 / params.target
        multiplier = smallest_meeting(excess, guess=guess, low=1e-3, rtol=1e-9)
        eps = pld.account(process(multiplier), tol=TOL).at(delta=params.delta).epsilon
        table.append(
            {
                "case": f"noise by the {formula} limit",
                "multiplier": multiplier,
                "claim": "certified",
                "epsilon_lower": eps.lower,
                "epsilon_upper": eps.upper,
                "ratio": eps.safe / params.target,
            }
        )
    return table
