"""The halves of cells of losses: their P-mass, and how it lies between the ends of the cell."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wpriv.core.loss_pair import LossPair, Tails
from wpriv.numerics.arrays import Array
from wpriv.pld import constants


class Half(NamedTuple):
    """One half of each cell [a, b]: P-mass, P - e^a Q, e^b Q - P, and a bound of the rounding of the last two."""

    p: Array
    above: Array
    below: Array
    error: Array


def half_of_tails(start: Tails, end: Tails, a: Array, width: Array, plain: bool) -> Half:
    """The half of the cells from a, of this width, between ``start`` and ``end``, by differences of tails."""
    p, q = (_masses if plain else _masses_from_logs)(start, end, a)
    with np.errstate(over="ignore", invalid="ignore"):
        below = np.where(q > 0, positive(np.expm1(width) * q - (p - q)), 0.0)
    tails = [np.minimum(t, u) for t, u in ((start.sf_p, end.cdf_p), (start.sf_q, end.cdf_q))]
    with np.errstate(over="ignore"):
        tail_p, tail_q = (tails[0], tails[1] * np.exp(a)) if plain else (np.exp(tails[0]), np.exp(tails[1] + a))
    # where the Q-mass times e^a exceeds the P-mass it is the latter
    rounding = constants.TAIL_ROUNDINGS * constants.UNIT_ROUNDOFF * (tail_p + np.minimum(tail_q, 1.0))
    return Half(p, p - q, below, rounding)


def narrow_halves(pair: LossPair, low: Array, high: Array, middle: Array) -> tuple[Half, Half] | None:
    """Both halves of the cells from the parts that a pair knows to the rounding of its losses; nan where it does not.

    A loss in the middle counts in the first half.
    """
    first = pair.cell_parts(low, np.nextafter(middle, np.inf))
    second = pair.cell_parts(middle, high)
    if first is None or second is None:
        return None
    h1, h2 = middle - low, high - middle
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        p1, p2 = first.mass(h1), second.mass(h2)
        above2 = -np.expm1(-h1) * p2 + np.exp(-h1) * second.above
        below1 = np.expm1(h2) * p1 + np.exp(h2) * first.below
    unit = constants.PART_ROUNDINGS * constants.UNIT_ROUNDOFF
    return (
        Half(p1, first.above, below1, unit * np.minimum(first.above, below1)),
        Half(p2, above2, second.below, unit * np.minimum(above2, second.below)),
    )


def mass_between(sf_a: Array, cdf_a: Array, sf_b: Array, cdf_b: Array) -> Array:
    """Mass between a and b from the tails there, computed from whichever tail is smaller."""
    return positive(np.where(sf_a < cdf_b, sf_a - sf_b, cdf_b - cdf_a))


def _masses(start: Tails, end: Tails, a: Array) -> tuple[Array, Array]:
    """P-mass and e^a times Q-mass of the cells from ``start`` to ``end``, given as probabilities."""
    p = mass_between(start.sf_p, start.cdf_p, end.sf_p, end.cdf_p)
    # e^a Q <= P in exact arithmetic: a loss in the cell exceeds a
    return p, np.minimum(mass_between(start.sf_q, start.cdf_q, end.sf_q, end.cdf_q) * np.exp(a), p)


def _masses_from_logs(start: Tails, end: Tails, a: Array) -> tuple[Array, Array]:
    """As ``_masses``, from the logarithms of the probabilities."""
    p = mass_between(*map(np.exp, (start.sf_p, start.cdf_p, end.sf_p, end.cdf_p)))
    with np.errstate(over="ignore"):
        right = np.exp(start.sf_q + a) - np.exp(end.sf_q + a)
        left = np.exp(end.cdf_q + np.minimum(a, 700.0)) - np.exp(start.cdf_q + np.minimum(a, 700.0))
    return p, np.minimum(positive(np.where(start.sf_q < end.cdf_q, right, left)), p)


def positive(x: Array) -> Array:
    return np.maximum(x, 0.0)
