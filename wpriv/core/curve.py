"""What an accountant answers: a curve, and one point of it with its provenance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from wpriv.core.pair import LossPair
from wpriv.core.process import Process, plain
from wpriv.core.roots import least
from wpriv.errors import Unsupported, UsageError

CLAIMS = ("exact", "certified", "upper-bound", "approximate", "as-published")
SCHEMA = "wpriv.guarantee/1"


@dataclass(frozen=True)
class Bracket:
    """A number with both ends. ``lower`` is 0 where only an upper bound is known; both are None where nothing is certified."""

    estimate: float
    lower: float | None = None
    upper: float | None = None

    @classmethod
    def exact(cls, value: float) -> Bracket:
        return cls(value, value, value)

    @classmethod
    def above(cls, value: float) -> Bracket:
        """An upper bound with nothing known from below."""
        return cls(value, 0.0, value)

    @property
    def safe(self) -> float:
        """The end that may be promised: the upper one, or the estimate where nothing is certified."""
        return self.estimate if self.upper is None else self.upper


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
        from wpriv import __version__

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
            eps = plain(eps, "eps")
            if eps < 0:
                raise UsageError(f"eps must be a finite number of at least 0; found {eps}")
            return self._row(Bracket.exact(eps), self.delta(eps))
        delta = plain(delta, "delta")
        if not 0 < delta < 1:
            raise UsageError(f"delta must lie strictly between 0 and 1; found {delta}")
        return self._row(self.epsilon(delta), Bracket.exact(delta))

    def _row(self, epsilon: Bracket, delta: Bracket) -> Guarantee:
        wide = tuple(self._wide(name, b) for name, b in (("eps", epsilon), ("delta", delta)) if self._is_wide(b))
        warnings = self.process.caveats() + self.warnings + wide
        return Guarantee(self.notion, self.claim, self.accountant, epsilon, delta, self.process, self.source, warnings)

    def _is_wide(self, bracket: Bracket) -> bool:
        if self.tol is None or bracket.lower is None or bracket.upper is None or not math.isfinite(bracket.upper):
            return False
        return bracket.upper - bracket.lower > 1.5 * self.tol * bracket.upper

    def _wide(self, name: str, bracket: Bracket) -> str:
        return (
            f"{self.accountant}: the bracket of {name} could not be made as narrow as --tol {self.tol:g} asks; both of its ends hold, "
            f"[{bracket.lower:.6g}, {bracket.upper:.6g}]"
        )


def unit_notes(notions: Iterable[str | None]) -> list[str]:
    """What must stand with every table of several notions, whatever its format: which figures may not be compared."""
    found = list(dict.fromkeys(notion for notion in notions if notion))
    if len(found) < 2:
        return []
    notes = [f"{', '.join(found)} share no units: compare figures of the same notion only"]
    if "wdp" in found:
        notes.append("a wdp eps has the unit of the output and may grow with the noise; that it is the smallest says nothing of privacy")
    return notes


def curve_of_pair(process: Process, pairs: list[LossPair], *, accountant: str, source: str) -> Curve:
    """The exact curve of a process whose composition is known in closed form, in one pair per order of the neighbours."""

    def log_delta(eps: float) -> float:
        return max(float(pair.log_delta(eps)) for pair in pairs)

    def delta(eps: float) -> Bracket:
        return Bracket.exact(math.exp(log_delta(eps)))

    def epsilon(delta: float) -> Bracket:
        return Bracket.exact(epsilon_at(log_delta, delta, high=max(pair.support[1] for pair in pairs)))

    return Curve(process, accountant, "approximate-dp", "exact", source, delta, epsilon)


def epsilon_at(log_delta: Callable[[float], float], delta: float, *, guess: float = 1.0, high: float = math.inf) -> float:
    """The least eps >= 0 with ``log_delta(eps) <= ln delta``, rounded up; inf where no eps meets it.

    Args:
        log_delta: ln of a decreasing profile (or of an upper bound of one) at eps >= 0.
        high: an eps beyond which the profile is constant, where one is known (the largest finite loss).
    """
    target = math.log(delta)
    if math.isfinite(high) and log_delta(max(high, 0.0)) > target:
        return math.inf
    try:
        return least(lambda eps: log_delta(eps) - target, guess, high=max(high, 0.0))
    except Unsupported:
        return math.inf
