"""The values of a parameter that a search has evaluated, and what is known of each."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from wpriv.errors import Unsupported
from wpriv.run.accounting.search_parameter import SearchParameter

MAX_EVALUATIONS = 120


class Outcome(enum.Enum):
    """The outcome of evaluating one value of the parameter against the target."""

    MEETS = "meets"
    MISSES = "misses"
    OPEN = "open"
    REFUSED = "refused"


@dataclass(frozen=True)
class Evaluation:
    """One evaluation.

    Args:
        excess: ln(upper end / target); at most 0 where the target is met; +-inf allowed.
        floor: ln(lower end / target); positive where the target is certainly missed.
        refusal: why there is no narrow answer; empty where there is one. It is ignored where the target is met.
    """

    excess: float
    floor: float = -math.inf
    refusal: str = ""

    @property
    def outcome(self) -> Outcome:
        if self.excess <= 0:
            return Outcome.MEETS
        if self.floor > 0:
            return Outcome.MISSES
        return Outcome.REFUSED if self.refusal else Outcome.OPEN


@dataclass(frozen=True)
class Solution:
    """The least private value found that meets the target.

    Args:
        missed: the nearest less private value that certainly misses the target; None where none was evaluated.
        beside: the nearest less private value that was evaluated, if any. slope: d excess / d u there.
        refusal: why values between ``missed`` and ``value`` have no answer; empty if all of those evaluated have one.
    """

    value: float
    missed: float | None
    beside: float | None
    slope: float
    refusal: str = ""


class Unreachable(Exception):
    """No value that was tried meets the target.

    Args:
        best: the value that comes nearest to it. miss: its ``Evaluation.excess``.
        refusal: why more private values than ``best`` have no answer; empty if all of those evaluated have one.
    """

    def __init__(self, best: float, miss: float, refusal: str = ""):
        super().__init__(f"best value {best:g}, {miss:g} short of the target")
        self.best, self.miss, self.refusal = best, miss, refusal


@dataclass
class Search:
    """The values evaluated so far; u = privacy_direction * ln x grows with privacy."""

    knob: SearchParameter
    ask: Callable[[float], Evaluation]
    seen: dict[float, Evaluation] = field(default_factory=dict)
    is_out_of_work: Callable[[], bool] = lambda: False

    def at(self, x: float) -> Evaluation:
        """The evaluation at x, computed once for each x."""
        if x not in self.seen:
            if len(self.seen) >= MAX_EVALUATIONS:
                raise Unsupported(f"no {self.knob.name} found within {MAX_EVALUATIONS} evaluations of the accountant")
            self.seen[x] = self.ask(x)
        return self.seen[x]

    def excess(self, x: float) -> float:
        return self.at(x).excess

    def unreachable(self) -> Unreachable:
        best = min(self.seen, key=lambda x: self.seen[x].excess)
        silent = [x for x in self.seen if self.seen[x].outcome is Outcome.REFUSED and self.u(x) >= self.u(best)]
        return Unreachable(best, self.seen[best].excess, self.seen[min(silent, key=self.u)].refusal if silent else "")

    def u(self, x: float) -> float:
        return self.knob.privacy_direction * math.log(x)

    def x(self, u: float, toward: int = +1) -> float:
        return self.knob.snap(self.knob.privacy_direction * u, toward)

    def below(self, value: float, *outcomes: Outcome) -> float | None:
        """The nearest less private value evaluated with one of these outcomes (any, if none is given)."""
        tried = [
            x
            for x, reply in self.seen.items()
            if self.u(x) < self.u(value) and (not outcomes or reply.outcome in outcomes)
        ]
        return max(tried, key=self.u, default=None)


def log_ratio(value: float, target: float) -> float:
    """ln(value / target); -inf at 0."""
    return math.log(value / target) if value > 0 else -math.inf
