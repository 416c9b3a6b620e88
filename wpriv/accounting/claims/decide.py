"""Decide a claim about a process: proved, refuted with the test that breaks it, or open."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import numpy as np
from scipy.special import log_ndtr, ndtri, ndtri_exp

from wpriv.accounting import evaluate, membership_figures
from wpriv.accounting.accountants.zcdp import total_line
from wpriv.accounting.claims import decision
from wpriv.accounting.claims.decision import OPEN, PROVED, REFUTED, ROUNDING, Decision, Question, refuting_test
from wpriv.core.guarantee import Curve
from wpriv.core.membership import exact_mu, mu_without_sampling
from wpriv.core.process import Process, sandwich
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.bracket import Bracket, safe_exp
from wpriv.numerics.conversions import normal_log_delta, rdp_to_log_delta
from wpriv.numerics.numbers import echo
from wpriv.numerics.numbers import text as rounded_text

# points at which a claimed curve is compared, up to the eps of this delta; their tolerance
SCANNED, SMALLEST_DELTA, SCAN_TOL, FARTHEST = 33, 1e-10, 1e-4, 50.0
# orders of the Renyi divergence; whole numbers, for which sampled steps have closed forms; relative rounding of them
ORDERS, RENYI_ROUNDING = np.arange(2.0, 257.0), 1e-9


def gaussian(question: Question) -> Decision:
    """Decide mu-GDP, for all tests, or for those with both error rates at least ``fpr``."""
    process, mu, fpr = question.process, question.claim.mu, question.claim.fpr
    curve = _pld(question)
    exact = exact_mu(curve)
    by = {"accountant": "pld", "source": curve.source}
    if exact is not None:
        reason = f"the process is {exact:.6g}-GDP and no less, by closed form"
        if exact <= mu * (1 + ROUNDING):
            return question.decision(PROVED, reason, **by)
        return _refuted(question, curve, reason, gaussian_delta(mu))
    if fpr > 0:
        value = membership_figures.membership(process, "pld", question.tol).mu(fpr)
        ends = f"mu is at least {_down(value.lower, mu)} and at most {_up(value.upper, mu)} for these tests"
        if value.upper <= mu:
            return question.decision(PROVED, ends, **by)
        if value.lower > mu:
            refuted = _refuted(question, curve, ends, gaussian_delta(mu))
            rates = refuted.test and (refuted.test.fpr_lower, 1 - refuted.test.tpr_upper)
            if rates and min(rates) < fpr:
                return question.decision(REFUTED, ends, not_simulated="its test has a smaller error rate than fpr")
            return refuted
        return question.decision(OPEN, ends, **by)
    bound, largest = mu_without_sampling(process), evaluate.largest_loss(process)
    pure = mu_of_pure_dp(largest)
    reason = ""
    if bound <= mu * (1 + ROUNDING):
        reason = f"the steps are {bound:.6g}-GDP even if every record takes part in each of them"
    elif pure <= mu * (1 + ROUNDING):
        reason = f"no privacy loss exceeds {rounded_text(largest, up=True)}, so that it is {pure:.6g}-GDP"
    if reason:
        return question.decision(PROVED, reason, **by)
    why_open = (
        f"no delta above that of {echo(mu)}-GDP was found, and no proof for all tests is known; with "
        f"mu={echo(mu)},fpr=1e-9 the claim about tests of these rates is decided"
    )
    scanned = _scan(question, curve, gaussian_delta(mu), why_open)
    return scanned if scanned.verdict == REFUTED else _by_all_tests(question, curve, largest) or scanned


def mu_of_pure_dp(eps: float) -> float:
    """The least mu for which every (eps, 0)-DP release is mu-GDP, rounded up; infinite where eps is.

    The trade-off function of (eps, 0)-DP, the larger of 1 - e^eps a and e^-eps (1 - a), has its kink at a = 1 / (1 +
    e^eps). G_mu is convex and falls from (0, 1) to (1, 0), so that it lies below both lines where it lies below the
    kink: mu = 2 Phi^-1(e^eps / (1 + e^eps)).
    """
    return -2 * float(ndtri_exp(-np.logaddexp(0.0, eps))) * (1 + ROUNDING) if math.isfinite(eps) else math.inf


def _by_all_tests(question: Question, curve: Curve, largest: float) -> Decision | None:
    """Decide mu-GDP by the tests with error rates of at least 1e-9; None where these do not settle it.

    If no loss exceeds eps, the true-positive rate at a rate a is at most e^eps a. Phi(Phi^-1(a) + mu) / a, that of
    mu-GDP as a ratio, falls in a (m = phi / Phi falls): where it is at least e^eps at 1e-9, it is so below.
    """
    try:
        value = membership_figures.membership(question.process, "pld", question.tol).mu()
    except Unsupported:
        return None
    mu, by = question.claim.mu, {"accountant": "pld", "source": curve.source}
    ends = f"mu is at least {_down(value.lower, mu)} and at most {_up(value.upper, mu)} for tests of these rates"
    if value.lower > mu:
        return _refuted(question, curve, f"with error rates of at least {value.fpr:g}, {ends}", gaussian_delta(mu))
    if value.upper <= mu and float(log_ndtr(ndtri(value.fpr) + mu)) - math.log(value.fpr) >= largest * (1 + ROUNDING):
        why = f"with error rates of at least {value.fpr:g}, {ends}; below, the largest privacy loss leaves less"
        return question.decision(PROVED, why, **by)
    return None


def concentrated(question: Question) -> Decision:
    """Decide rho-zCDP and (xi, rho)-zCDP."""
    process, xi, rho = question.process, question.claim.xi, question.claim.rho
    offset, bound = 0.0, mu_without_sampling(process) ** 2 / 2
    with contextlib.suppress(Unsupported):
        offset, bound = min((offset, bound), total_line(process), key=sum)
    proven = f"the rhos of the steps add up to {bound:.6g}" + (f", and their xis to {offset:.6g}" if offset else "")
    largest = evaluate.largest_loss(process)
    if _below_line(offset, bound, largest, (xi, rho)):
        by_loss = offset > xi or bound > rho * (1 + ROUNDING)
        reason = f"{proven}; and no loss exceeds {rounded_text(largest, up=True)}" if by_loss else proven
        return question.decision(PROVED, reason, accountant="zcdp", source="Bun, Steinke 2016")
    known = f"the least rho that is proven is {bound:.6g}" + (f", with xi {offset:.6g}" if offset else "")
    try:
        curve, worst = _pld(question), _largest_ratio(process, xi)
    except Unsupported as error:
        if math.isinf(bound):
            raise
        return question.decision(OPEN, f"{known}; {error}", accountant="zcdp")
    if worst is not None and worst[1] > rho * (1 + RENYI_ROUNDING):
        order, ratio = worst
        above = f"exceeds {echo(xi)} by" if xi else "is"
        reason = f"the Renyi divergence of order {order:g} {above} {rounded_text(ratio, up=False)} times its order"
        return _refuted(question, curve, reason, concentrated_delta(rho, xi))
    why_open = (
        f"no delta above that of {question.claim} was found, nor a Renyi divergence above it at the orders 2 to "
        f"{ORDERS[-1]:g}; {known}"
    )
    return _scan(question, curve, concentrated_delta(rho, xi), why_open)


def _below_line(offset: float, slope: float, largest: float, line: tuple[float, float]) -> bool:
    """Tell whether D_alpha <= min(offset + slope alpha, largest) implies D_alpha <= xi + rho alpha at every alpha > 1.

    The minimum is concave: it is farthest above a line of smaller slope where the two bounds meet, and above one of
    larger slope at the order 1.
    """
    xi, rho = line
    if math.isinf(largest) and slope > rho * (1 + ROUNDING):
        return False
    meet = max((largest - offset) / slope, 1.0) if slope > 0 and math.isfinite(largest) else 1.0
    return all(min(offset + slope * at, largest) <= (xi + rho * at) * (1 + ROUNDING) for at in (1.0, meet))


def gaussian_delta(mu: float) -> Callable[[float], float]:
    """delta(eps) of mu-GDP (Dong, Roth, Su 2019, Corollary 1)."""
    return lambda eps: safe_exp(normal_log_delta(eps, mu * mu / 2, mu * mu))


def concentrated_delta(rho: float, xi: float = 0.0) -> Callable[[float], float]:
    """An upper bound of delta(eps) of every (xi, rho)-zCDP release (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    lam = np.geomspace(1e-3, 1e4, 400)
    moments = lam * (xi + (lam + 1) * rho)
    return lambda eps: safe_exp(min(float(np.min(rdp_to_log_delta(lam, moments, eps))), 0.0))


def _pld(question: Question) -> Curve:
    return evaluate.curve(question.process, "pld", max(question.tol or 0.0, SCAN_TOL), of_pair=True)


def _largest_ratio(process: Process, xi: float) -> tuple[float, float] | None:
    """The order at which (D_alpha - xi) / alpha is largest, and that, of dominated pairs where there is no exact one.

    None where no divergence is known.
    """
    ratios = []
    for each in process.directions():
        pairs, _ = sandwich(each, 1.0) or (each, each)
        divergences = [(pair.renyi(ORDERS), n) for pair, n in pairs]
        if all(divergence is not None for divergence, _ in divergences):
            total = (sum(n * np.asarray(divergence) for divergence, n in divergences) - xi) / ORDERS
            index = int(np.argmax(total))
            ratios.append((float(ORDERS[index]), float(total[index])))
    return max(ratios, key=lambda ratio: ratio[1], default=None)


def _refuted(question: Question, curve: Curve, reason: str, allowed_at: Callable[[float], float]) -> Decision:
    """The refutation, with the (eps, delta) at which it is easiest to see, where one was found."""
    point = _widest(curve, allowed_at)
    why = "at none of the points that were tried is delta above that of the claim"
    shown = {"not_simulated": why} if point is None else _shown(question, *point)
    return question.decision(REFUTED, reason, accountant="pld", source=curve.source, **shown)


def _scan(question: Question, curve: Curve, allowed_at: Callable[[float], float], why_open: str) -> Decision:
    """Refute a claim by one point of the curve, or leave it open."""
    point = _widest(curve, allowed_at)
    if point is None:
        return question.decision(OPEN, why_open, accountant="pld", source=curve.source)
    eps, allowed, delta = point
    reason = (
        f"the claim allows delta({echo(eps)}) = {rounded_text(allowed, up=True)}, which is at least "
        f"{rounded_text(delta.lower or 0.0, up=False)}"
    )
    return question.decision(REFUTED, reason, accountant="pld", source=curve.source, **_shown(question, *point))


def _shown(question: Question, eps: float, allowed: float, delta: Bracket) -> dict[str, object]:
    return {"at_eps": eps, "allowed": allowed, "delta": delta, **refuting_test(question, eps, allowed)}


def _widest(curve: Curve, allowed_at: Callable[[float], float]) -> tuple[float, float, Bracket] | None:
    """The eps at which delta exceeds the claimed curve most, in standard errors of a simulation; None if at none."""
    if curve.claim == "upper-bound":
        return None
    top = FARTHEST
    with contextlib.suppress(Unsupported):
        top = min(curve.epsilon_bracket(SMALLEST_DELTA).safe, FARTHEST)
    points: list[tuple[float, tuple[float, float, Bracket]]] = []
    for k in range(SCANNED):
        eps = round(top * k / (SCANNED - 1), 3)
        try:
            delta = curve.delta_bracket(eps)
        except Unsupported:
            continue
        low, allowed = delta.lower or 0.0, allowed_at(eps)
        if low > allowed * (1 + RENYI_ROUNDING):
            points.append(((low - allowed) / math.sqrt(low * math.exp(eps)), (eps, allowed, delta)))
    return max(points, key=lambda point: point[0])[1] if points else None


def _up(x: float, limit: float) -> str:
    return rounded_text(x, up=True, limit=limit)


def _down(x: float, limit: float) -> str:
    return rounded_text(x, up=False, limit=limit)


# relative width at which a claim inside a bracket is asked again
FINER = 1e-8


def decide(question: Question) -> Decision:
    """Decide a claim: a certified upper end that meets it proves it, a certified lower end above it refutes it.

    Under fixed-size sampling the lower end is that of two data sets, see wpriv/accounting/evaluate.py.

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
    return decision.confirmed(question, _decide(question), _decide, lambda eps: _answer(question, eps, None)[1])


def _decide(question: Question) -> Decision:
    """Decide a claim about the dominating pairs of a process."""
    return {"gdp": gaussian, "zcdp": concentrated}.get(question.claim.notion, approximate)(question)


def approximate(question: Question) -> Decision:
    """Decide a claim of (eps, delta)-DP, or of pure DP."""
    eps, allowed = question.claim.eps, question.claim.delta
    certain = evaluate.infinity_mass(question.process)
    if certain > allowed * (1 + ROUNDING):
        rare = "outcomes that are impossible without the record have"
        reason, why = (
            f"{rare} {evaluate.mass_text(certain)} with it, whatever eps is",
            "a single such outcome is enough",
        )
        return question.decision(REFUTED, reason, at_eps=eps, allowed=allowed, not_simulated=why)
    largest = evaluate.largest_loss(question.process)
    if largest <= eps:
        reason = f"no privacy loss exceeds {rounded_text(largest, up=True)}, the sum of the largest losses of all steps"
        ends = {"delta": Bracket.exact(0.0), "epsilon": Bracket.above(max(largest, 0.0)) if allowed == 0 else None}
        return question.decision(PROVED, reason, at_eps=eps, allowed=allowed, **ends)
    curve, delta = _answer(question, eps, None)
    is_between = not delta.safe <= allowed and not (delta.lower or 0.0) > allowed
    if is_between and curve.claim == "certified" and (question.tol is None or question.tol > FINER):
        finer_curve, finer = _answer(question, eps, FINER)
        if finer_curve.accountant == curve.accountant:
            low, high = max(delta.lower or 0.0, finer.lower or 0.0), min(delta.safe, finer.safe)
            delta = Bracket.between(min(low, high), high, finer.by, finer.refusal)
    by = {"accountant": curve.accountant, "source": curve.source, "epsilon": _epsilon(curve, allowed)}
    known = {**by, "at_eps": eps, "allowed": allowed, "delta": delta}
    # a delta of 0 may have underflowed
    if delta.safe <= allowed and (allowed > 0 or math.isfinite(largest)):
        return question.decision(PROVED, f"delta({echo(eps)}) is at most {_up(delta.safe, allowed)}", **known)
    if curve.claim != "upper-bound" and (delta.lower or 0.0) > allowed * (1 + ROUNDING):
        reason = f"delta({echo(eps)}) is at least {_down(delta.lower or 0.0, allowed)}"
        return question.decision(REFUTED, reason, **known, **refuting_test(question, eps, allowed))
    if allowed == 0 and (reason := decision.exceeding_loss(question.process, eps)):
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
