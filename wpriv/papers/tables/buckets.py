"""Delta of n Gaussian releases by buckets of the privacy loss on a fixed budget of memory, beside the exact delta.

The losses of one release are rounded to the multiples of a cell, up for an upper bound and down for a lower one, and
the distribution is convolved with itself until n = 2^m releases are reached. The number of cells is fixed: when the
distribution outgrows them, pairs of cells are merged, once more to the safe side. Every rounding moves the composed
distribution, so that both bounds drift away from the exact delta as n grows. The accountant pld has no such limit.

The numbers are those of floating-point convolutions: below about 1e-14 they are rounding errors. This is a
reconstruction of the method from its description, without the error terms that the authors' program keeps for each
cell, which slow the drift.

Source:
    Sommer, Meiser, Mohammadi (2019), Figure 5 and Section 7; Meiser, Mohammadi (2018), "Tight on Budget?".
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import ndtr

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.conversions import normal_log_delta

LABELS = ("case",)
COLUMNS = ("delta",)
SHOWN = ("case", "epsilon", "delta", "claim")
REACH = 10.0  # standard deviations of the loss that the cells of one release cover, on each side
CASES = (
    ("exact", None, "exact"),
    ("buckets, from above", True, "approximate"),
    ("buckets, from below", False, "approximate"),
)


@dataclass(frozen=True)
class Params(Parameters):
    """The noise, the number of releases, the eps, and the number of buckets."""

    sigma: float = parameter("standard deviation of the noise at sensitivity 1", default=1.0, exclusive_minimum=0)
    n: int = parameter("number of compositions, a power of two", default=1, minimum=1)
    epsilon: float = parameter("the eps at which delta is computed", default=0.0, minimum=0)
    cells: int = parameter("number of buckets of the privacy loss, an even number", default=100_000, minimum=100)


def rows(params: Params) -> list[dict[str, Any]]:
    """Return three rows: the exact delta, and those of the buckets from above and from below.

    Raises:
        UsageError: n is no power of two, or the number of cells is odd.
    """
    if params.n & (params.n - 1) or params.cells % 2:
        raise UsageError(f"buckets: n must be a power of two and cells even; found n {params.n}, cells {params.cells}")
    mean = params.n / (2 * params.sigma**2)
    exact = math.exp(normal_log_delta(params.epsilon, mean, 2 * mean))
    results = [{"case": name, "epsilon": params.epsilon, "claim": claim} for name, _, claim in CASES]
    for row, (_, upward, _) in zip(results, CASES, strict=True):
        row["delta"] = exact if upward is None else _delta(params, upward=upward)
    return results


def _delta(params: Params, *, upward: bool) -> float:
    width, masses, infinity = _composed(params.sigma, params.n, params.cells, upward)
    losses = (np.arange(masses.size) - params.cells // 2) * width
    return float(np.sum(masses * -np.expm1(np.minimum(params.epsilon - losses, 0.0)))) + infinity


@functools.lru_cache(maxsize=64)
def _composed(sigma: float, n: int, cells: int, upward: bool) -> tuple[float, Array, float]:
    """Width of a cell, masses of the cells of loss (i - cells / 2) width, and the mass of infinite loss."""
    if n > 1:
        return _doubled(*_composed(sigma, n // 2, cells, upward), upward)
    mean, deviation = 1 / (2 * sigma**2), 1 / sigma
    half = cells // 2
    width = (mean + REACH * deviation) / half
    edges = (np.arange(-half, half + 1) * width - mean) / deviation
    # a loss between two edges belongs to the upper one, or for a lower bound to the lower one
    inner = np.diff(ndtr(edges))
    masses = np.concatenate([[0.0], inner] if upward else [inner, [0.0]])
    masses[0] += ndtr(edges[0]) if upward else 0.0
    return width, masses, float(ndtr(-edges[-1])) if upward else 0.0


def _doubled(width: float, masses: Array, infinity: float, upward: bool) -> tuple[float, Array, float]:
    """The distribution of the sum of two losses, in as many cells, which are twice as wide where it has outgrown them.

    Cells are merged when more than a share of 1e-15 would fall outside; what falls outside then counts as infinite, or
    for a lower bound as nothing.
    """
    half = masses.size // 2
    sums = np.maximum(fftconvolve(masses, masses), 0.0)  # index 2 half is loss 0
    infinity = 1 - (1 - infinity) ** 2
    if sums[3 * half + 1 :].sum() + sums[:half].sum() > 1e-15:
        sums, width = _merged(sums, upward), 2 * width
        return width, sums, infinity
    top, bottom = float(sums[3 * half + 1 :].sum()), float(sums[:half].sum())
    kept = sums[half : 3 * half + 1].copy()
    if upward:
        kept[0] += bottom
        infinity += top
    return width, kept, infinity


def _merged(sums: Array, upward: bool) -> Array:
    """Masses in cells of twice the width: those between two multiples of it move up, or for a lower bound down."""
    merged = sums[::2].copy()
    between = sums[1::2]
    if upward:
        merged[1:] += between
    else:
        merged[:-1] += between
    return merged
