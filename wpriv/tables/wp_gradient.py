"""The gradient of W_p between a sample shifted by theta and a fixed sample, before and after one record is replaced.

The samples are those of Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix D: x_i = i/n, with one record replaced
(i-1)/n, and z_i = (2i-1)/(2n). The slope of W_p at theta = 0 changes from +1 to -1 at every n, so that noise which
decreases with n cannot hide a record; the slope of W_p^p changes by 2p (2n)^(1-p), which decreases like 1/n only for
p >= 2. The table is computed from the samples, not from these formulas.
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
MAX_RECORDS = 10**6


@dataclass(frozen=True)
class Params(Parameters):
    """The order of the distance, the size of the samples, and the shift."""

    order: float = parameter("p of W_p", minimum=1)
    records: int = parameter("n, the size of all three samples", minimum=1)
    theta: float = parameter("shift of the trained sample", default=0.0)


def rows(params: Params) -> list[dict[str, Any]]:
    """Return value and slope of W_p and W_p^p at theta for both samples, the change of slope, and a bound for W_2^2.

    There is no slope at a kink.
    """
    p, n = params.order, params.records
    if n > MAX_RECORDS:
        raise UsageError(f"wp-gradient: records may be at most {MAX_RECORDS:,}; found {n:,}")
    i = np.arange(1.0, n + 1)
    # the samples are sorted, so that records are matched by rank
    gaps = [x + params.theta - (2 * i - 1) / (2 * n) for x in (i / n, (i - 1) / n)]
    table = []
    for case, root in (("W_p", True), ("W_p^p", False)):
        (value, slope), (other, other_slope) = (_loss(gap, p, root=root) for gap in gaps)
        row = {
            "case": case,
            "order": p,
            "value": value,
            "value_replaced": other,
            "slope": slope,
            "slope_replaced": other_slope,
            "sensitivity": None if slope is None or other_slope is None else abs(slope - other_slope),
            "claim": "exact",
        }
        table.append(row)
    if p == 2 and params.theta == 0:  # scores and sample lie in [0, 1], and the gradient of the score is 1
        bound = {
            "case": "bound on W_2^2",
            "order": p,
            "sensitivity": wasserstein_gradient(1, 1, 0, n),
            "claim": "upper-bound",
        }
        table.append(dict.fromkeys(COLUMNS) | bound)
    return table


def _loss(gap: Array, p: float, *, root: bool) -> tuple[float, float | None]:
    """Return W_p^p = mean |gap|^p, or its p-th root, and its slope under a common shift of all gaps.

    The slope is None at a kink: if p = 1 and some gap is 0, or for the root if all gaps are 0.
    """
    size = np.abs(gap)
    largest = float(size.max())
    kink = size.min() < 1e-12 if p == 1 else root and largest < 1e-12
    if root and not kink and largest > 0:
        # in units of the largest gap, so that high powers of small gaps do not vanish
        share = size / largest
        mean = float(np.mean(share**p))
        return largest * mean ** (1 / p), float(np.mean(np.sign(gap) * share ** (p - 1))) * mean ** (1 / p - 1)
    power = float(np.mean(size**p))
    slope = None if kink else float(p * np.mean(np.sign(gap) * size ** (p - 1)))
    return (power ** (1 / p) if root else power), slope
