"""The verb ``verify_claim``: decide a claim about a process that is given as to ``budget``."""

from __future__ import annotations

from typing import Any

from wpriv.core.attacks.claim import Claim, parse_claim
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process
from wpriv.errors import UsageError
from wpriv.numerics.parse_numbers import shown, whole
from wpriv.run.accounting import build_process
from wpriv.run.claims.decide import decide
from wpriv.run.claims.decision import Decision as Decision
from wpriv.run.claims.decision import Question


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
        claim: ``"eps=3,delta=1e-5"``, ``"eps=1"`` (pure DP), ``"mu=1"``, ``"mu=1,fpr=1e-9"`` or ``"rho=0.5"``.
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
