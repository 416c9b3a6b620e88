"""One statement of a paper compared with exact values: it holds, or it fails at the smallest counterexample found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wpriv.numerics.arrays import Array

Case = tuple[str, float, float]  # the inputs in words, the published figure, the exact one
CaseOf = Callable[..., "Case | Iterable[Case]"]
ROUNDING = 1e-9  # relative differences up to this are rounding errors


@dataclass(frozen=True)
class Statement:
    """One claim: an upper bound unless ``equal`` or ``lower`` is set.

    Args:
        proposition: its name in the paper. statement: what it claims.
        cases: yields inputs, the simplest first, with the published and the exact figure.
        equal: whether it claims an equality.
        lower: whether it claims a lower bound, or that one figure is at most another.
        error: the number of the entry on the paper's page in docs/papers, where there is one.
    """

    proposition: str
    statement: str
    cases: Callable[[], Iterator[Case]]
    equal: bool = False
    lower: bool = False
    error: int | None = None

    def row(self) -> dict[str, Any]:
        """Return the row of the first case at which the claim fails, else of the case at which it is tightest."""
        tightest: tuple[float, Case] | None = None
        for at, published, exact in self.cases():
            case = (at, float(published), float(exact))
            if self._fails(published, exact):
                return self._row(case, "fails")
            ratio = published / exact if exact else math.inf
            slack = -ratio if self.lower else ratio
            # of cases that differ by rounding errors alone the first one is shown, on every machine
            if tightest is None or (slack < tightest[0] and not math.isclose(slack, tightest[0], rel_tol=ROUNDING)):
                tightest = (slack, case)
        assert tightest is not None
        return self._row(tightest[1], "holds")

    def _fails(self, published: float, exact: float) -> bool:
        if math.isnan(published) or math.isnan(exact):
            raise ArithmeticError(f"{self.proposition}: a figure is not a number")
        allowed = ROUNDING * abs(exact)
        if self.equal:
            return abs(published - exact) > allowed
        return published > exact + allowed if self.lower else published < exact - allowed

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


def panels(edges: Array, nodes: int = 20) -> tuple[Array, Array]:
    """Return nodes and weights of Gauss-Legendre quadrature between edges, independent of any formula of a paper."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()


class Claims(list[Statement]):
    """The statements of a paper, in its order."""

    def claim(
        self, proposition: str, statement: str, over: Iterable[Any] = ((),), **kind: Any
    ) -> Callable[[CaseOf], CaseOf]:
        """Add a statement, whose cases a function computes: a decorator."""

        inputs = tuple(over)

        def add(case: CaseOf) -> CaseOf:
            def cases() -> Iterator[Case]:
                for given in inputs:
                    result = case(*given) if isinstance(given, tuple) else case(given)
                    yield from [result] if isinstance(result, tuple) else result

            self.append(Statement(proposition, statement, cases, **kind))
            return case

        return add
