"""Delta of approximate and of probabilistic DP as areas between the two densities of a (truncated) Gauss mechanism."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr

from wpriv.errors import UsageError
from wpriv.figures import _draw
from wpriv.numerics.safe_rounding import text


def draw(rows: list[dict[str, Any]], axes: Any) -> None:
    """Draw the densities of A = noise and B = noise + sensitivity, e^eps A, the ADP area above it and the tail of PDP.

    The rows are those of the accountants pld and pdp at one eps; sigma, sensitivity and bound are read from them.

    Raises:
        UsageError: the rows are not those of a Gauss mechanism with moderate parameters.
    Source:
        Sommer, Meiser, Mohammadi (2019), Figure 4.
    """
    row = rows[0]
    sigma, shift, eps = float(row["sigma"]), float(row["sensitivity"]), float(row["epsilon"])
    bound = float(row.get("bound") or math.inf)
    if not (1e-9 < sigma < 1e9 and 0 < shift < 1e9 and bound > 1e-9 and eps < 100):
        raise UsageError(
            "adp-pdp draws a Gauss mechanism with moderate parameters; "
            f"found sigma {sigma:g}, sensitivity {shift:g}, bound {bound:g}, eps {eps:g}"
        )
    reach = min(bound, 4.5 * sigma)
    x = np.linspace(-reach - 0.5, shift + reach + 0.5, 4001)
    a, b = _density(x, 0.0, sigma, bound), _density(x, shift, sigma, bound)
    scaled = math.exp(eps) * a
    above = b > scaled
    (line_a,) = axes.plot(x, a, color="#0072B2", linewidth=1.6)
    (line_b,) = axes.plot(x, b, color="#D55E00", linewidth=1.6)
    (line_scaled,) = axes.plot(x, scaled, color="#0072B2", linewidth=1.2, linestyle=(0, (1, 1.5)))
    tail = axes.fill_between(x, 0, b, where=above, color="#E69F00", alpha=0.45, linewidth=0)
    hatched = {"facecolor": "none", "edgecolor": "#000000", "hatch": "////"}
    area = axes.fill_between(x, scaled, b, where=above, linewidth=0, **hatched)
    deltas = {r.get("accountant"): r.get("delta") for r in rows}
    labels = [
        "A",
        "B",
        r"$e^{\varepsilon}A$ (no probability distribution)",
        _with_value(r"PDP δ: mass of B where it exceeds $e^{\varepsilon}A$", deltas.get("pdp")),
        _with_value(r"ADP δ: area between B and $e^{\varepsilon}A$", deltas.get("pld")),
    ]
    axes.set_ylim(0, 1.5 * math.exp(eps) * float(a.max()))
    axes.set_xlabel("outcome (units of the sensitivity)" if shift == 1 else "outcome")
    axes.set_ylabel(f"density   (ε = {eps:g})")
    _draw.legend(axes, [line_a, line_b, line_scaled, tail, area], labels)


def _density(x: Any, centre: float, sigma: float, bound: float) -> Any:
    z = (x - centre) / sigma
    mass = 1 - 2 * ndtr(-bound / sigma)
    return np.where(np.abs(x - centre) <= bound, np.exp(-z * z / 2) / (sigma * math.sqrt(2 * math.pi) * mass), 0.0)


def _with_value(label: str, value: Any) -> str:
    return label if value is None else f"{label} = {text(value, up=True, digits=4)}"
