"""A number between two proven ends, and a decreasing function of which such numbers are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from wpriv.numerics import numbers

# smaller positive deltas are rounded up to this: below it doubles lose digits, and then underflow to zero
TINY = 1e-300
LOG_TINY = math.log(TINY)


@dataclass(frozen=True)
class Bracket:
    """A number with a lower and an upper bound; ``float(bracket)`` is the end that may be promised.

    Args:
        estimate: the best estimate, inside the bracket.
        lower: the lower end; 0 where only an upper bound is known, None where nothing is certified.
        upper: the upper end; None where nothing is certified.
        by: names of other bounds that supplied an end.
        refusal: why the accountant itself has no answer, where other bounds supplied both ends.
    """

    estimate: float
    lower: float | None = None
    upper: float | None = None
    by: str = ""
    refusal: str = ""

    @classmethod
    def exact(cls, value: float) -> Bracket:
        return cls(value, value, value)

    @classmethod
    def above(cls, value: float) -> Bracket:
        """An upper bound without a lower one."""
        return cls(value, 0.0, value)

    @classmethod
    def between(cls, lower: float, upper: float, by: str = "", refusal: str = "") -> Bracket:
        """A bracket of two proven ends, with an estimate between them (the safe end where they are far apart)."""
        # on smooth profiles the pessimistic discretisation errs by h^2/12 and the optimistic one by half as much
        lower = lower if lower >= TINY else 0.0
        near = lower < upper <= 2 * lower
        return cls(min((2 * lower + upper) / 3, upper) if near else upper, lower, upper, by, refusal)

    @classmethod
    def exact_exp(cls, log_value: float) -> Bracket:
        """The probability with this natural logarithm; one too small for a double is bounded from both sides."""
        value = safe_exp(log_value)
        return cls.exact(value) if value != TINY else cls.above(value)

    @classmethod
    def of_logs(cls, low: float, high: float) -> Bracket:
        """The bracket of a probability whose natural logarithm has these ends."""
        return cls.exact_exp(high) if low == high else cls.between(math.exp(low), safe_exp(high))

    @property
    def safe(self) -> float:
        """The end that may be promised, which is the upper one, or the estimate where nothing is certified."""
        return self.estimate if self.upper is None else self.upper

    def __float__(self) -> float:
        return self.safe

    def as_dict(self, name: str) -> dict[str, float | None]:
        """The end that may be promised, both ends and the estimate, under keys that begin with a name."""
        ends = {"": self.safe, "_lower": self.lower, "_upper": self.upper, "_estimate": self.estimate}
        return {name + end: value for end, value in ends.items()}

    def text(self, limit: float | None = None) -> str:
        """Both ends, rounded outwards; ``limit`` as for ``numbers.text``."""
        if self.lower is None or self.upper is None:
            return f"about {self.estimate:.6g}"
        return f"[{numbers.text(self.lower, up=False)}, {numbers.text(self.upper, up=True, limit=limit)}]"


LEAST = 5e-324  # the least double above 0


def positive_exp(log_value: float) -> float:
    """e^x for x <= 0 of a probability above 0, which stays so where it is too small for a double, even at x = -inf."""
    return max(math.exp(min(log_value, 0.0)), LEAST)


def share_of(mass: float, share: float) -> float:
    """A share above 0 of a probability: 0 only where that is 0, and not by underflow."""
    return max(share * mass, LEAST) if mass > 0 else 0.0


def safe_exp(log_value: float) -> float:
    """e^x for x <= 0, at least 1e-300 unless x = -inf, where it is 0."""
    if log_value < LOG_TINY:
        return TINY if log_value > -math.inf else 0.0
    return math.exp(min(log_value, 0.0))


def exp_or_inf(x: float) -> float:
    """e^x, or inf where it is beyond floats."""
    return math.exp(x) if x < 709 else math.inf


def monotone(brackets: Sequence[Bracket]) -> list[Bracket]:
    """Tighten brackets of a decreasing function at increasing arguments until their ends decrease as well.

    An upper end holds at every larger argument too and a lower end at every smaller one, so running minima of the
    former and running maxima of the latter are proven. Brackets without ends stay as they are.
    """
    if any(b.lower is None or b.upper is None for b in brackets):
        return list(brackets)
    uppers = list(accumulate((b.safe for b in brackets), min))
    lowers = list(accumulate((b.lower or 0.0 for b in reversed(brackets)), max))[::-1]
    # ends that agree up to rounding may cross by that much
    lowers = [min(low, high) for low, high in zip(lowers, uppers, strict=True)]
    inside = [min(max(b.estimate, low), high) for b, low, high in zip(brackets, lowers, uppers, strict=True)]
    estimates = accumulate(inside, min)
    ends = zip(brackets, estimates, lowers, uppers, strict=True)
    return [replace(b, estimate=estimate, lower=low, upper=high) for b, estimate, low, high in ends]
