"""The chance of a successful attack that a published eps stands for, beside the chance that is printed with it.

Every printed chance is held against 1 / (1 + e^-eps), from which the paper says that it is computed. The formula is the
chance to guess between two equally likely neighbours under pure eps-DP; for an eps of Wasserstein DP it means nothing.

Source:
    Yang, Qi, Zhou (2024), Table 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from wpriv.core.parameters import Parameters
from wpriv.tables._claims_wdp import TABLE_2

LABELS = ("data", "framework")
COLUMNS = ("eps_printed", "printed", "computed", "difference")
SHOWN = ("data", "framework", "eps_printed", "printed", "computed", "difference")
WHOLE = True


@dataclass(frozen=True)
class Params(Parameters):
    """No parameters: the figures are those of the paper."""


def rows(params: Params) -> list[dict[str, Any]]:
    """Return one row for each of the twelve printed chances: eps and chance as printed, and the chance computed."""
    results = []
    for place, (eps, printed) in TABLE_2.items():
        data, framework = place.split(", ")
        computed = 1 / (1 + math.exp(-eps))
        results.append(
            {
                "data": data,
                "framework": framework,
                "eps_printed": eps,
                "printed": printed,
                "computed": computed,
                "difference": printed - computed,
            }
        )
    return results
