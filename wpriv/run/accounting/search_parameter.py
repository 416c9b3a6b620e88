"""A parameter that is solved for, on the grid of numbers that it may be printed as."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wpriv.numerics.safe_rounding import DIGITS, rounded


@dataclass(frozen=True)
class SearchParameter:
    """A parameter on the grid of numbers it may be printed as: a few significant digits, or whole numbers.

    ``unit``: a whole number is a multiple of it.
    ``privacy_direction`` is +1 where a larger value is more private (noise) and -1 where a smaller one is (n, rate).
    """

    name: str
    privacy_direction: int
    low: float
    high: float
    whole: bool = False
    digits: int = DIGITS
    unit: int = 1

    def snap(self, log_x: float, toward: int) -> float:
        """The grid value at exp(log_x) or next to it, on the more private (toward=+1) or the less private side."""
        x = math.exp(min(max(log_x, math.log(self.low)), math.log(self.high)))
        up = toward * self.privacy_direction > 0
        value = (
            self.unit * (math.ceil(x / self.unit - 1e-9) if up else math.floor(x / self.unit + 1e-9))
            if self.whole
            else rounded(x, up=up, digits=self.digits)
        )
        return float(min(max(value, self.low), self.high))

    def beside(self, x: float, toward: int) -> float:
        """The next grid value after x, which is on the grid itself."""
        step = float(self.unit) if self.whole else 10.0 ** (math.floor(math.log10(x) + 1e-12) + 1 - self.digits)
        moved = x + toward * self.privacy_direction * step
        if not self.whole:
            moved = float(f"{moved:.{self.digits - 1}e}")
        return float(min(max(moved, self.low), self.high))

    def at_end(self, x: float, toward: int) -> bool:
        return x == (self.high if toward * self.privacy_direction > 0 else self.low)
