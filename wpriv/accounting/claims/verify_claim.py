"""The verb ``verify_claim``; claims under every interpretation of the flags, and published claims of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from wpriv.accounting import build_process, interpretations
from wpriv.accounting.claims.decide import decide
from wpriv.accounting.claims.decision import OPEN, Decision, Question
from wpriv.accounting.interpretations import Interpretation
from wpriv.config.plain_words import Claim, in_plain_words, parse_claim
from wpriv.config.recipe import Recipe
from wpriv.config.schema import Verify
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.numerics.numbers import shown, whole


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

    Raises:
        UsageError: the step is faulty. Unsupported: the mechanism has one relation of neighbours only.
    """

    def asked(each: Interpretation) -> Question:
        return Question(claim, each.process(), tol=tol, simulated=False)

    # the other accountants bound the same curve
    every = interpretations.interpretations_of(spec)
    every = [each for each in every if each.accountant == "pld" and each.divisors is None]
    return [Reading(each, *_decided(partial(asked, each))) for each in every]


def _decided(asked: Callable[[], Question]) -> tuple[Decision | None, str]:
    """The decision, if an accountant with proven bounds has an answer, and the reason."""
    try:
        decision = decide(asked())
    except Unsupported as error:
        return None, str(error)
    return decision, decision.reason


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
        decided = {} if self.decision is None else self.decision.as_dict()
        return {**about, **decided, "verdict": self.verdict, "reason": self.reason}


def decide_published(
    recipe: Recipe, *, simulated: bool = True, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> list[PublishedVerdict]:
    """Decide every claim of a recipe of kind verify, in its order."""
    model = Verify.model_validate(recipe.data)
    verdicts = []
    for index, entry in enumerate(model.published):
        claim = parse_claim(entry.claim)
        steps = [step.model_dump(exclude_none=True) for step in entry.process]
        subject = build_process.described_steps(steps, entry.adjacency, entry.group)
        decided = _decided(partial(Question, claim, subject.process, subject.notes, simulated=simulated, seed=seed))
        verdicts.append(PublishedVerdict(entry.name, entry.source, entry.verdict, str(claim), *decided))
        if progress is not None:
            progress(index + 1, len(model.published))
    return verdicts


def require_expected(name: str | Path, verdicts: list[PublishedVerdict]) -> None:
    """Raise CheckFailed where a verdict is not the expected one."""
    wrong = [row for row in verdicts if not row.is_expected]
    if wrong:
        first, more = wrong[0], f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        found = f"it is {first.verdict}: {first.reason}{more}"
        raise CheckFailed(f"{name}: wanted {first.name!r} to be {first.expected}; {found}")


@in_plain_words
def verify_claim(
    claim: str | Claim,
    mech: str | Mechanism | Process | None = None,
    *,
    accountant: str | None = None,
    tol: float | None = None,
    simulate: bool = True,
    seed: int = 0,
    **described: Any,
) -> Decision:
    """Decide a claim about a process: proved, refuted with the test that breaks it, or open.

    Args:
        claim: ``"eps=3,delta=1e-5"``, ``"eps=1"`` (pure DP), ``"mu=1"``, ``"mu=1,fpr=1e-9"``, ``"rho=0.5"`` or
            ``"xi=0.1,rho=0.5"``.
        mech: a mechanism, a ``Process`` or the name of a mechanism, with the keywords of ``budget`` for the rest.
        accountant: the accountant that decides (default: pld, or rdp and zcdp where pld has no answer).
        tol: relative width asked of a certified bracket.
        simulate: whether the test of a refuted claim is simulated, where the simulation is large enough to show it.
        seed: of the simulation.
    Raises:
        UsageError: an argument is wrong. Unsupported: no accountant with proven bounds answers for this process.

    >>> verify_claim("eps=0.9,delta=1e-5", "gauss", sigma=4).verdict
    'refuted'
    >>> verify_claim("eps=1,delta=1e-5", "gauss", sigma=4).verdict
    'proved'
    """
    if not isinstance(claim, (str, Claim)):
        raise UsageError(f"`claim` is a text such as 'eps=3,delta=1e-5'; found {shown(claim)}")
    wanted = parse_claim(claim) if isinstance(claim, str) else claim
    subject = build_process.described_process(mech, **described)
    width = build_process.question(tol=tol).get("tol")
    number = whole(seed, "`seed`")
    if number < 0:
        raise UsageError(f"`seed` is a whole number of at least 0; found {number}")
    return decide(
        Question(wanted, subject.process, subject.notes, accountant or "", width, simulated=bool(simulate), seed=number)
    )
