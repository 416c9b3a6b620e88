"""The gradient of W_p between a sample that is shifted by theta and a fixed one, before and after one record is replaced.

The samples of Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix D: x_i = i/n, with one record replaced (i-1)/n, and z_i = (2i-1)/(2n).
W_p's slope at theta = 0 turns from +1 to -1 at every n, so no noise that falls with n hides a record; that of W_p^p moves by
2p (2n)^(1-p), which falls like 1/n only for p >= 2. Computed from the samples, not from these formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.gradient_sensitivity import wasserstein_gradient

LABELS = ("case",)
COLUMNS = ("value", "value_replaced", "slope", "slope_replaced", "sensitivity")
SHOWN = ("case", *COLUMNS)
MOST = 10**6


@dataclass(frozen=True)
class Params(Parameters):
    """The order of the distance, the size of the samples, and where the gradient is taken."""

    order: float = parameter("p of W_p", minimum=1)
    records: int = parameter("n, of all three samples", minimum=1)
    theta: float = parameter("shift of the sample that trains", default=0.0)


def rows(params: Params) -> list[dict[str, Any]]:
    """W_p and W_p^p: value and slope at theta for both samples, and how far the slope moves (none at a kink); W_2^2 with its bound."""
    p, n = params.order, params.records
    if n > MOST:
        raise UsageError(f"wp-gradient: the samples may hold up to {MOST:,} records; found {n:,}")
    i = np.arange(1.0, n + 1)
    gaps = [
        x + params.theta - (2 * i - 1) / (2 * n) for x in (i / n, (i - 1) / n)
    ]  # both sorted, so records pair up by rank
    found = []
    for case, root in (("W_p", True), ("W_p^p", False)):
        (value, slope), (other, other_slope) = (_loss(gap, p, root=root) for gap in gaps)
        moved = None if slope is None or other_slope is None else abs(slope - other_slope)
        about = {
            "case": case,
            "order": p,
            "value": value,
            "value_replaced": other,
            "slope": slope,
            "slope_replaced": other_slope,
        }
        found.append({**about, "sensitivity": moved, "claim": "exact"})
    if p == 2 and params.theta == 0:  # scores and sample lie in [0, 1], and the score's gradient is 1
        bound = {
            "case": "bound on W_2^2",
            "order": p,
            "sensitivity": wasserstein_gradient(1, 1, 0, n),
            "claim": "upper-bound",
        }
        found.append(dict.fromkeys(COLUMNS) | bound)
    return found


def _loss(gap: Array, p: float, *, root: bool) -> tuple[float, float | None]:
    """W_p^p = mean |gap|^p, or its p-th root, and the slope as every gap grows alike; None where some gap is 0 and p = 1, or all are."""
    size = np.abs(gap)
    kink = size.min() < 1e-12 if p == 1 else root and size.max() < 1e-12
    power = float(np.mean(size**p))
    slope = None if kink else float(p * np.mean(np.sign(gap) * size ** (p - 1)))
    if not root:
        return power, slope
    return power ** (1 / p), None if slope is None else slope * power ** (1 / p - 1) / p
