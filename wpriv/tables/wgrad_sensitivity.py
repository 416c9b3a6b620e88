"""The sensitivity of a Wasserstein gradient, alone or as the penalty of a loss: as published and corrected.

Rodriguez-Vitores, Lalanne, Loubes (2025), Theorems 4.1 and 6.1; for the formulas and their assumptions see
``numerics/gradient_sensitivity.py``.
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
    """The clipping bounds and batch sizes of one experiment; both samples are private."""

    bound: float = parameter("M, the bound of clipped scores", exclusive_minimum=0)
    lipschitz_x: float = parameter("L1, the bound of clipped gradients of X's scores", minimum=0)
    lipschitz_z: float = parameter("L2, the same for Z's scores; 0 if they are not trained", minimum=0)
    size_x: int = parameter("records of X in the batch (of its smallest group, if there are labels)", minimum=1)
    size_z: int = parameter("records of Z in the batch (likewise)", minimum=1)
    alpha: float = parameter("weight of the Wasserstein term, 0 to 1", default=1.0, minimum=0)
    clip: float = parameter("C, the bound of clipped gradients of the loss", default=0.0, minimum=0)
    labels: int = parameter("number of labels, each with its own Wasserstein term", default=1, minimum=1)
    size: int = parameter("records in the batch; 0 means those of X and Z", default=0, minimum=0)


def rows(params: Params) -> list[dict[str, Any]]:
    """Return both sensitivities, upper bounds in the units of the gradient."""
    table = []
    for case, formula in CASES.items():
        sizes = (params.size_x, params.size_z)
        penalty = wasserstein_gradient(params.bound, params.lipschitz_x, params.lipschitz_z, *sizes, formula=formula)
        total = penalised_gradient(params.alpha, params.clip, params.size or sum(sizes), penalty, params.labels)
        table.append({"case": case, "sensitivity": total, "claim": "upper-bound"})
    return table
