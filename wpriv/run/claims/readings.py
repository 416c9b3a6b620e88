"""Decide one claim under every interpretation of the flags: sampling, neighbours, and what sigma is relative to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wpriv.core.attacks.claim import Claim
from wpriv.errors import Unsupported
from wpriv.run.accounting import build_process, interpretations
from wpriv.run.accounting.interpretations import Interpretation
from wpriv.run.claims.decide import decide
from wpriv.run.claims.decision import OPEN, Decision, Question


@dataclass(frozen=True)
class Reading:
    """The verdict under one interpretation.

    Args:
        interpretation: the step, its adjacency, and the assumption in words.
        decision: None where no accountant with proven bounds has an answer, for the ``reason`` that is then given.
    """

    interpretation: Interpretation
    decision: Decision | None
    reason: str

    @property
    def verdict(self) -> str:
        """proved, refuted or open; a claim without any proven bound is open."""
        return OPEN if self.decision is None else self.decision.verdict

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line."""
        spec = self.interpretation.spec
        about = {
            "assumption": self.interpretation.assumption,
            "sampling": spec.get("sampling", "none"),
            "n": spec["n"],
            "rate": spec.get("rate"),
            "adjacency": self.interpretation.adjacency,
            "verdict": self.verdict,
            "reason": self.reason,
        }
        return about if self.decision is None else {**self.decision.as_dict(), **about}


def decide_readings(spec: Mapping[str, Any], claim: Claim, *, tol: float | None = None) -> list[Reading]:
    """Decide a claim about one step specification under every interpretation of it, without simulations.

    Args:
        spec: as for ``compare_interpretations``.
    Raises:
        UsageError: the step is faulty. Unsupported: the mechanism has one relation of neighbours only.
    """
    readings = []
    for interpretation in interpretations.interpretations_of(spec):
        if interpretation.accountant != "pld":
            continue  # the other accountants bound the same curve
        readings.append(_reading(interpretation, claim, tol))
    return readings


def _reading(interpretation: Interpretation, claim: Claim, tol: float | None) -> Reading:
    try:
        process = build_process.process(
            [interpretation.spec],
            interpretation.adjacency,
            group=interpretation.group,
            records=interpretation.records,
        )
        decision = decide(Question(claim, process, tol=tol, simulated=False))
    except Unsupported as error:
        return Reading(interpretation, None, str(error))
    return Reading(interpretation, decision, decision.reason)
