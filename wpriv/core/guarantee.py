"""What an accountant answers: a curve, and one point of it with its provenance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from wpriv.core.loss_pair import LossPair
from wpriv.core.process import Process
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.parse_numbers import finite_number
from wpriv.numerics.root_finding import smallest_meeting

CLAIMS = ("exact", "certified", "upper-bound", "approximate", "as-published")
# the claims that a promise of (eps, delta)-DP may rest on
RIGOROUS = ("exact", "certified", "upper-bound")
SCHEMA = "wpriv.guarantee/1"
# a positive delta below this is stated as this: further down doubles lose their digits, and then become zero
TINY = 1e-300
LOG_TINY = math.log(TINY)


@dataclass(frozen=True)
class Bracket:
    """A number with both ends. ``lower`` is 0 where only an upper bound is known; both are None where nothing is certified.

    ``by`` names the bounds that gave an end which is not the accountant's own; ``refusal`` is why the accountant itself has no answer,
    where the ends are those of other bounds alone.
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
        """An upper bound with nothing known from below."""
        return cls(value, 0.0, value)

    @classmethod
    def between(cls, lower: float, upper: float, by: str = "", refusal: str = "") -> Bracket:
        """A bracket of two proven ends; the estimate lies between them, and is the safe end where they are far apart."""
        # smooth profiles: the upper discretisation errs by h^2/12 and the lower one by half as much, which the estimate evens out
        lower = lower if lower >= TINY else 0.0
        near = lower < upper <= 2 * lower
        return cls(min((2 * lower + upper) / 3, upper) if near else upper, lower, upper, by, refusal)

    @classmethod
    def exact_exp(cls, log_value: float) -> Bracket:
        """The probability with this natural logarithm; where it is too small for a double it is bounded from both sides."""
        value = safe_exp(log_value)
        return cls.exact(value) if value != TINY else cls.above(value)

    @property
    def safe(self) -> float:
        """The end that may be promised: the upper one, or the estimate where nothing is certified."""
        return self.estimate if self.upper is None else self.upper


def safe_exp(log_value: float) -> float:
    """e^x for x <= 0, rounded up where it is too small for a double: it is 0 at x = -inf alone, else at least 1e-300."""
    if log_value < LOG_TINY:
        return TINY if log_value > -math.inf else 0.0
    return math.exp(min(log_value, 0.0))


def monotone(brackets: Sequence[Bracket]) -> list[Bracket]:
    """The brackets of a decreasing function at increasing arguments, with ends that decrease as well.

    An upper end holds at every larger argument too, and a lower end at every smaller one: the least of the former and the largest of
    the latter are proven. Brackets without ends stay as they are.
    """
    if any(b.lower is None or b.upper is None for b in brackets):
        return list(brackets)
    uppers = list(accumulate((b.safe for b in brackets), min))
    lowers = list(accumulate((b.lower or 0.0 for b in reversed(brackets)), max))[::-1]
    # ends that agree but for rounding may cross by it
    lowers = [min(low, high) for low, high in zip(lowers, uppers, strict=True)]
    inside = [min(max(b.estimate, low), high) for b, low, high in zip(brackets, lowers, uppers, strict=True)]
    estimates = accumulate(inside, min)
    ends = zip(brackets, estimates, lowers, uppers, strict=True)
    return [replace(b, estimate=estimate, lower=low, upper=high) for b, estimate, low, high in ends]


@dataclass(frozen=True)
class Guarantee:
    """One point of a curve: a flat row that says what the number is, under which relation, and where it comes from."""

    notion: str
    claim: str
    accountant: str
    epsilon: Bracket
    delta: Bracket
    process: Process
    source: str
    warnings: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line (schema ``wpriv.guarantee/1``), with infinities still floats."""
        from wpriv._version import __version__

        return {
            "schema": SCHEMA,
            "notion": self.notion,
            "claim": self.claim,
            "accountant": self.accountant,
            "epsilon": self.epsilon.safe,
            "epsilon_lower": self.epsilon.lower,
            "epsilon_upper": self.epsilon.upper,
            "epsilon_estimate": self.epsilon.estimate,
            "delta": self.delta.safe,
            "delta_lower": self.delta.lower,
            "delta_upper": self.delta.upper,
            "delta_estimate": self.delta.estimate,
            "adjacency": self.process.adjacency,
            "process": self.process.describe(),
            "source": self.source,
            "warnings": list(self.warnings),
            "version": __version__,
            **self.extra,
        }

    def with_extra(self, **extra: Any) -> Guarantee:
        return replace(self, extra={**self.extra, **extra})


@dataclass(frozen=True)
class Curve:
    """What holds of a process at every eps or delta, according to one accountant.

    ``delta`` maps eps >= 0 to a Bracket of delta; ``epsilon`` maps delta in (0, 1) to a Bracket of eps >= 0.
    ``notion`` is approximate-dp, probabilistic-dp, rdp, gdp, wdp or bdp; ``claim`` one of ``CLAIMS``. Where ``tol`` is given, a bracket
    that is relatively wider gets a warning.
    """

    process: Process
    accountant: str
    notion: str
    claim: str
    source: str
    delta: Callable[[float], Bracket]
    epsilon: Callable[[float], Bracket]
    warnings: tuple[str, ...] = ()
    tol: float | None = None

    def at(self, *, eps: float | None = None, delta: float | None = None) -> Guarantee:
        """The guarantee at one eps or at one delta; exactly one must be given.

        Raises:
            UsageError: both or neither are given, eps is negative or not finite, or delta is outside (0, 1).
        """
        if (eps is None) == (delta is None):
            raise UsageError("give either eps or delta, not both: one of them is the question, the other the answer")
        if eps is not None:
            eps = finite_number(eps, "eps")
            if eps < 0:
                raise UsageError(f"eps must be a finite number of at least 0; found {eps}")
            return self._row(Bracket.exact(eps), self.delta(eps))
        delta = finite_number(delta, "delta")
        if not 0 < delta < 1:
            raise UsageError(f"delta must lie strictly between 0 and 1; found {delta}")
        return self._row(self.epsilon(delta), Bracket.exact(delta))

    def _row(self, epsilon: Bracket, delta: Bracket) -> Guarantee:
        named = (("eps", epsilon), ("delta", delta))
        wide = tuple(
            self._wide(name) for name, b in named if self.is_wide(b) and math.isfinite(b.safe) and not b.refusal
        )
        refused = tuple(
            f"{self.accountant} itself has no answer here, other bounds have: {b.refusal}"
            for _, b in named
            if b.refusal
        )
        warnings = self.process.caveats() + self.warnings + wide + refused
        # a number that is known to lie in an interval only is not exact, whatever it was computed from
        claim = "upper-bound" if self.claim == "exact" and any(b.lower != b.upper for _, b in named) else self.claim
        source = "; ".join([self.source, *(b.by for _, b in named if b.by)])
        return Guarantee(self.notion, claim, self.accountant, epsilon, delta, self.process, source, warnings)

    def is_wide(self, bracket: Bracket) -> bool:
        """Tell whether a bracket is wider than ``tol``."""
        if self.tol is None or bracket.lower is None or bracket.upper is None or bracket.upper <= TINY:
            return False
        return math.isinf(bracket.upper) or bracket.upper - bracket.lower > 1.5 * self.tol * bracket.upper

    def _wide(self, name: str) -> str:
        return f"{self.accountant}: the bracket of {name} could not be made as narrow as --tol {self.tol:g} asks; both of its ends hold"


def unit_notes(notions: Iterable[str | None]) -> list[str]:
    """What must stand with every table of several notions, whatever its format: which figures may not be compared."""
    found = list(dict.fromkeys(notion for notion in notions if notion))
    if len(found) < 2:
        return []
    notes = [f"{', '.join(found)} share no units: compare figures of the same notion only"]
    if "wdp" in found:
        notes.append(
            "a wdp eps has the unit of the output and may grow with the noise; that it is the smallest says nothing of privacy"
        )
    return notes


def curve_of_pair(process: Process, pairs: list[LossPair], *, accountant: str, source: str) -> Curve:
    """The exact curve of a process whose composition is known in closed form, in one pair per order of the neighbours."""

    def log_delta(eps: float) -> float:
        return max(float(pair.log_delta(eps)) for pair in pairs)

    def delta(eps: float) -> Bracket:
        return Bracket.exact_exp(log_delta(eps))

    def epsilon(delta: float) -> Bracket:
        return Bracket.exact(epsilon_at(log_delta, delta, high=max(pair.support[1] for pair in pairs)))

    return Curve(process, accountant, "approximate-dp", "exact", source, delta, epsilon)


def epsilon_at(
    log_delta: Callable[[float], float], delta: float, *, guess: float = 1.0, high: float = math.inf
) -> float:
    """The least eps >= 0 with ``log_delta(eps) <= ln delta``, rounded up; inf where no eps meets it.

    Args:
        log_delta: ln of a decreasing profile (or of an upper bound of one) at eps >= 0.
        high: an eps beyond which the profile is constant, where one is known (the largest finite loss).
    """
    target = math.log(delta)
    if math.isfinite(high) and log_delta(max(high, 0.0)) > target:
        return math.inf
    try:
        return smallest_meeting(lambda eps: log_delta(eps) - target, guess, high=max(high, 0.0))
    except Unsupported:
        return math.inf
