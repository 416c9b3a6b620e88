"""Array types of the numerical code, and the parts of the mass of a cell."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


def mass_between(above: Array, below: Array, next_above: Array, next_below: Array) -> Array:
    """Mass of every cell from the tails at its two ends, computed from whichever tail is smaller."""
    return np.maximum(np.where(above < next_below, above - next_above, next_below - below), 0.0)


# How the mass of a cell of losses lies between its ends, to the rounding of the losses.
#
# The difference of a P- and a Q-probability has the rounding of the probabilities, about 1e-16. Beside a loss of 1e-13,
# that a billion steps add up, this is a thousandth. A pair that can sum the difference from positive terms gives it as
# ``CellParts``, which have the relative accuracy of these terms.


class CellParts(NamedTuple):
    """Of the losses y in (a, b): ``above`` = P - e^a Q and ``below`` = e^b Q - P, nan where not known."""

    above: Array
    below: Array

    def mass(self, width: Array) -> Array:
        """The P-mass of the cells, of this width (nats)."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self.above + np.exp(-width) * self.below) / -np.expm1(-width))

    def mirrored(self, low: Array, high: Array) -> CellParts:
        """The parts of the reverse pair, whose loss is -L, between -high and -low."""
        with np.errstate(over="ignore", invalid="ignore"):
            return CellParts(np.exp(-high) * self.below, np.exp(-low) * self.above)

    def times(self, factor: Array | float) -> CellParts:
        """The parts of a share of the outcomes, of losses that are the same."""
        return CellParts(factor * self.above, factor * self.below)

    def plus(self, other: CellParts) -> CellParts:
        """The parts of two sets of outcomes together, in the same cells."""
        return CellParts(self.above + other.above, self.below + other.below)

    def within(self, mass: Array, inner: tuple[Array, Array], outer: tuple[Array, Array]) -> CellParts:
        """The same losses, of P-mass ``mass``, in cells whose ends ``outer`` lie at or beyond the ``inner`` ones."""
        (a, b), (low, high) = inner, outer
        with np.errstate(over="ignore", invalid="ignore"):
            return CellParts(
                -np.expm1(low - a) * mass + np.exp(low - a) * self.above,
                np.expm1(high - b) * mass + np.exp(high - b) * self.below,
            )


def atom_parts(loss: float, mass: Array | float, low: Array, high: Array) -> CellParts:
    """The parts of a single loss of P-mass ``mass`` in the cells that it lies inside of, else 0."""
    inside = (low < loss) & (loss < high)
    a, b = np.where(inside, low, loss), np.where(inside, high, loss)
    with np.errstate(over="ignore", invalid="ignore"):
        return CellParts(-np.expm1(a - loss) * mass, np.expm1(b - loss) * mass)


def clipped_parts(low: Array, high: Array, first: float, last: float, parts: CellParts, mass: Array) -> CellParts:
    """The parts in cells of losses that all lie between two ends."""
    inner = np.clip(low, first, last), np.clip(high, first, last)
    empty = inner[0] >= inner[1]
    whole = parts.within(mass, inner, (low, high))
    return CellParts(*(np.where(empty, 0.0, part) for part in whole))
