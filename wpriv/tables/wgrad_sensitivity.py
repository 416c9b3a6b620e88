"""How far one record moves a Wasserstein gradient, alone or as the penalty of a loss: as published and by the corrected constant.

Rodriguez-Vitores, Lalanne, Loubes (2025), Theorems 4.1 and 6.1; the formulas and what they assume stand in ``core/sensitivity.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wpriv.core.parameters import Parameters, parameter
from wpriv.numerics.gradient_sensitivity import penalised_gradient, wasserstein_gradient

LABELS = ("case",)
COLUMNS = ("sensitivity",)
SHOWN = ("case", "sensitivity", "claim")
CASES = {"as published": "paper", "corrected": "tight"}


@dataclass(frozen=True)
class Params(Parameters):
    """One experiment: the clips and the sizes of its batches; both samples are private."""

    bound: float = parameter("M, to which scores are clipped", exclusive_minimum=0)
    lipschitz_x: float = parameter("L1, to which gradients of X's scores are clipped", minimum=0)
    lipschitz_z: float = parameter("L2, the same of Z's scores; 0 where they do not train", minimum=0)
    size_x: int = parameter("records of X in the batch (of the smallest groups, where there are labels)", minimum=1)
    size_z: int = parameter("records of Z in the batch (likewise)", minimum=1)
    alpha: float = parameter("weight of the Wasserstein term, 0 to 1", default=1.0, minimum=0)
    clip: float = parameter("C, to which gradients of the loss are clipped", default=0.0, minimum=0)
    labels: int = parameter("number of labels with a Wasserstein term of their own", default=1, minimum=1)
    size: int = parameter("records in the whole batch; 0 stands for X and Z", default=0, minimum=0)


def rows(params: Params) -> list[dict[str, Any]]:
    """Both sensitivities, upper bounds in the units of the gradient."""
    found = []
    for case, formula in CASES.items():
        sizes = (params.size_x, params.size_z)
        penalty = wasserstein_gradient(params.bound, params.lipschitz_x, params.lipschitz_z, *sizes, formula=formula)
        whole = penalised_gradient(params.alpha, params.clip, params.size or sum(sizes), penalty, params.labels)
        found.append({"case": case, "sensitivity": whole, "claim": "upper-bound"})
    return found
