"""One statement of a paper compared with exact values: it holds, or it fails at the smallest counterexample found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Case = tuple[str, float, float]  # the inputs in words, the published figure, the exact one
ROUNDING = 1e-9  # relative differences up to this are rounding errors


@dataclass(frozen=True)
class Statement:
    """One claim.

    Args:
        proposition: its name in the paper. statement: what it claims.
        cases: yields inputs, the simplest first, with the published and the exact figure.
        equal: whether it claims an equality, not an upper bound.
        error: the number of the error in docs/papers, for a statement that fails.
    """

    proposition: str
    statement: str
    cases: Callable[[], Iterator[Case]]
    equal: bool = False
    error: int | None = None

    def row(self) -> dict[str, Any]:
        """Return the row of the first case at which the claim fails, else of the case at which it is tightest."""
        tightest: tuple[float, Case] | None = None
        for at, published, exact in self.cases():
            ratio = published / exact if exact else math.inf
            fails = abs(ratio - 1) > ROUNDING if self.equal else ratio < 1 - ROUNDING
            case = (at, float(published), float(exact))
            if fails:
                return self._row(case, "fails")
            if tightest is None or ratio < tightest[0]:
                tightest = (ratio, case)
        assert tightest is not None
        return self._row(tightest[1], "holds")

    def _row(self, case: Case, verdict: str) -> dict[str, Any]:
        at, published, exact = case
        return {
            "proposition": self.proposition,
            "verdict": verdict,
            "published": published,
            "exact": exact,
            "ratio": published / exact if exact else None,
            "at": at,
            "error": self.error,
            "statement": self.statement,
            "reason": None,
        }
