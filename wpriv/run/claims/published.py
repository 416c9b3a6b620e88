"""Decide the published claims of a recipe of kind verify, each beside its source and its expected verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.config.schema import Verify
from wpriv.core.attacks.claim import parse_claim
from wpriv.errors import CheckFailed, Unsupported
from wpriv.run.accounting import build_process
from wpriv.run.claims.decide import decide
from wpriv.run.claims.decision import OPEN, Decision, Question


@dataclass(frozen=True)
class PublishedVerdict:
    """The verdict on one published claim.

    Args:
        name: of the claim in the recipe. source: where it was published. expected: the verdict in the recipe, or None.
        decision: None where no accountant with proven bounds has an answer, for the ``reason``.
    """

    name: str
    source: str
    expected: str | None
    claim: str
    decision: Decision | None
    reason: str

    @property
    def verdict(self) -> str:
        return OPEN if self.decision is None else self.decision.verdict

    @property
    def is_expected(self) -> bool:
        """True if the verdict is the expected one, or if the recipe expects none."""
        return self.expected in (None, self.verdict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line."""
        about = {"name": self.name, "source_of_claim": self.source, "expected": self.expected}
        decided = {"verdict": self.verdict, "reason": self.reason}
        return {**about, **({} if self.decision is None else self.decision.as_dict()), **decided}


def decide_published(
    recipe: Recipe, *, simulated: bool = True, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> list[PublishedVerdict]:
    """Decide every claim of a recipe of kind verify, in its order.

    Raises:
        UsageError: a claim or its process is faulty.
    """
    model = Verify.model_validate(recipe.data)
    verdicts = []
    for index, entry in enumerate(model.published):
        claim = parse_claim(entry.claim)
        steps = [step.model_dump(exclude_none=True) for step in entry.process]
        subject = build_process.described_steps(steps, entry.adjacency, entry.group)
        question = Question(claim, subject.process, subject.notes, simulated=simulated, seed=seed)
        decision: Decision | None
        try:
            decision = decide(question)
            reason = decision.reason
        except Unsupported as error:
            decision, reason = None, str(error)
        verdicts.append(PublishedVerdict(entry.name, entry.source, entry.verdict, str(claim), decision, reason))
        if progress is not None:
            progress(index + 1, len(model.published))
    return verdicts


def require_expected(name: str | Path, verdicts: list[PublishedVerdict]) -> None:
    """Raise CheckFailed where a verdict is not the expected one."""
    wrong = [row for row in verdicts if not row.is_expected]
    if wrong:
        raise CheckFailed(
            f"{name}: wanted {wrong[0].name!r} to be {wrong[0].expected}; it is {wrong[0].verdict}: {wrong[0].reason}"
            + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")
        )
