"""Decide a claim about a process: proved, refuted with the test that breaks it, or open."""

from __future__ import annotations

from wpriv.core.guarantee import Curve
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.safe_rounding import echo
from wpriv.numerics.safe_rounding import text as rounded_text
from wpriv.run.accounting import evaluate
from wpriv.run.claims import attained, decide_notions
from wpriv.run.claims.decision import OPEN, PROVED, REFUTED, ROUNDING, Decision, Question, refuting_test

# relative width at which a claim inside a bracket is asked again
FINER = 1e-8


def decide(question: Question) -> Decision:
    """Decide a claim: a certified upper end that meets it proves it, a certified lower end above it refutes it.

    Under fixed-size sampling the lower end is that of two data sets, see wpriv/run/accounting/two_data_sets.py.

    Raises:
        UsageError: an accountant is named that a claim of mu or rho is not decided by.
        Unsupported: no accountant with proven bounds answers for this process.
    """
    notion = question.claim.notion
    if notion != "approximate-dp" and question.accountant not in (("", "pld") if notion == "gdp" else ("",)):
        raise UsageError(
            f"a claim of {'mu' if notion == 'gdp' else 'rho'} has accountants of its own; found "
            f"{question.accountant!r}. Leave out `accountant`"
        )
    return attained.confirmed(question, _decide(question), _decide, lambda eps: _answer(question, eps, None)[1])


def _decide(question: Question) -> Decision:
    """Decide a claim about the dominating pairs of a process."""
    if question.claim.notion == "gdp":
        return decide_notions.gaussian(question)
    return decide_notions.concentrated(question) if question.claim.notion == "zcdp" else approximate(question)


def approximate(question: Question) -> Decision:
    """Decide a claim of (eps, delta)-DP, or of pure DP."""
    eps, allowed = question.claim.eps, question.claim.delta
    certain = evaluate.infinity_mass(question.process)
    if certain > allowed * (1 + ROUNDING):
        return question.decision(
            REFUTED,
            f"outcomes that are impossible without the record have a probability of {certain:.6g} with it, whatever "
            f"eps is",
            at_eps=eps,
            allowed=allowed,
            not_simulated="a single such outcome is enough",
        )
    largest = evaluate.largest_loss(question.process)
    if largest <= eps:
        return question.decision(
            PROVED,
            f"no privacy loss exceeds {rounded_text(largest, up=True)}, the sum of the largest losses of all steps",
            at_eps=eps,
            allowed=allowed,
            delta=Bracket.exact(0.0),
            epsilon=Bracket.above(max(largest, 0.0)) if allowed == 0 else None,
        )
    curve, delta = _answer(question, eps, None)
    is_between = not delta.safe <= allowed and not (delta.lower or 0.0) > allowed
    if is_between and curve.claim == "certified" and (question.tol is None or question.tol > FINER):
        finer_curve, finer = _answer(question, eps, FINER)
        if finer_curve.accountant == curve.accountant:
            low, high = max(delta.lower or 0.0, finer.lower or 0.0), min(delta.safe, finer.safe)
            delta = Bracket.between(min(low, high), high, finer.by, finer.refusal)
    known = {
        "accountant": curve.accountant,
        "source": curve.source,
        "at_eps": eps,
        "allowed": allowed,
        "delta": delta,
        "epsilon": _epsilon(curve, allowed),
    }
    if delta.safe <= allowed:
        return question.decision(PROVED, f"delta({echo(eps)}) is at most {_up(delta.safe, allowed)}", **known)
    if _lower(curve, delta) > allowed * (1 + ROUNDING):
        reason = f"delta({echo(eps)}) is at least {_down(delta.lower or 0.0, allowed)}"
        return question.decision(REFUTED, reason, **known, **refuting_test(question, eps, allowed))
    if allowed == 0 and (reason := attained.exceeding_loss(question.process, eps)):
        why = "such an outcome is too rare to be drawn"
        return question.decision(REFUTED, reason, **known, not_simulated=why)
    return question.decision(OPEN, _why_open(curve, delta, eps, allowed), **known)


def _answer(question: Question, eps: float, tol: float | None) -> tuple[Curve, Bracket]:
    """The first accountant that answers at eps, with its delta."""
    refusal: Unsupported | None = None
    for curve in question.curves(tol):
        try:
            return curve, curve.delta_bracket(eps)
        except Unsupported as error:
            refusal = refusal or error
    if refusal is None:
        raise Unsupported("no accountant with proven bounds of (eps, delta)-DP answers for this process")
    raise refusal


def _lower(curve: Curve, delta: Bracket) -> float:
    return 0.0 if curve.claim == "upper-bound" else delta.lower or 0.0


def _epsilon(curve: Curve, delta: float) -> Bracket | None:
    """eps at the claimed delta, for the reader; none for pure DP, or where the accountant has no answer."""
    if not 0 < delta < 1:
        return None
    try:
        return curve.epsilon_bracket(delta)
    except Unsupported:
        return None


def _why_open(curve: Curve, delta: Bracket, eps: float, allowed: float) -> str:
    upper = f"delta({echo(eps)}) is at most {_up(delta.safe, allowed)}"
    if curve.claim == "upper-bound" or not delta.lower:
        return f"{upper} by {curve.accountant}, and nothing above {echo(allowed)} is proven from below"
    return f"{upper} and at least {_down(delta.lower, allowed)}, which leaves the claim between the two ends"


def _up(x: float, limit: float) -> str:
    return rounded_text(x, up=True, limit=limit)


def _down(x: float, limit: float) -> str:
    return rounded_text(x, up=False, limit=limit)
