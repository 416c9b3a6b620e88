"""Decide a claim about a process: proved, refuted with the test that breaks it, or open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from wpriv.core.adjacency import Adjacency
from wpriv.core.attacks.simulate_losses import Simulation, most_trials, simulate, trials_needed
from wpriv.core.attacks.threshold_test import ThresholdTest, threshold_test
from wpriv.core.claim import Claim
from wpriv.core.guarantee import Bracket, Curve
from wpriv.core.process import Process
from wpriv.errors import Unsupported
from wpriv.numerics.safe_rounding import echo
from wpriv.numerics.safe_rounding import text as rounded_text
from wpriv.run.accounting import evaluate

PROVED, REFUTED, OPEN = "proved", "refuted", "open"
# accountants asked in this order where none is named: the first that answers decides
ACCOUNTANTS = ("pld", "rdp", "zcdp")
# relative width at which a claim inside a bracket is asked again, and that of the points beside a threshold
FINER, POINT_TOL = 1e-8, 1e-5
# relative difference that counts as the rounding of a closed form
ROUNDING = 1e-12
# a simulation is made if the claim would be missed by at least so many standard errors; the fewest trials
DEVIATIONS, MIN_TRIALS = 6.0, 10_000


@dataclass(frozen=True)
class Decision:
    """The verdict on one claim.

    Args:
        claim: what was claimed. verdict: proved, refuted or open. reason: why, in a sentence.
        process: what the claim is about. notes: how it was read.
        accountant: the accountant whose bracket decided, and ``source`` its source.
        at_eps: the eps at which ``delta`` was computed; ``allowed`` is the delta that the claim allows there.
        delta: delta at ``at_eps``. epsilon: eps at the claimed delta, where there is one.
        test: the test that breaks a refuted claim. order: the order of the neighbours in which it does.
        simulation: counts of a simulation of the two worlds. not_simulated: why there is none.
        caveats: what must be said beside the verdict.
    """

    claim: Claim
    verdict: str
    reason: str
    process: Process
    notes: tuple[str, ...] = ()
    accountant: str = ""
    source: str = ""
    at_eps: float | None = None
    allowed: float | None = None
    delta: Bracket | None = None
    epsilon: Bracket | None = None
    test: ThresholdTest | None = None
    order: str = ""
    simulation: Simulation | None = None
    not_simulated: str = ""
    caveats: tuple[str, ...] = field(default_factory=tuple)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line (schema ``wpriv.decision/1``), with infinities still floats."""
        ends = {}
        for name, bracket in (("epsilon", self.epsilon), ("delta", self.delta)):
            ends[f"{name}_lower"] = None if bracket is None else bracket.lower
            ends[f"{name}_upper"] = None if bracket is None else bracket.upper
        return {
            "claim": self.claim.as_dict(),
            "verdict": self.verdict,
            "reason": self.reason,
            "adjacency": str(self.process.adjacency),
            "group": self.process.group,
            "process": self.process.describe(),
            "reading": list(self.notes),
            "accountant": self.accountant,
            "source": self.source,
            "at_epsilon": self.at_eps,
            "allowed_delta": self.allowed,
            **ends,
            "test": None if self.test is None else {**asdict(self.test), "order": self.order},
            "simulation": None if self.simulation is None else asdict(self.simulation),
            "not_simulated": self.not_simulated or None,
            "warnings": list(self.caveats),
        }


@dataclass(frozen=True)
class Question:
    """A claim about a process, with what is needed to decide it.

    Args:
        accountant: a name, or "" for the first of ``ACCOUNTANTS`` that answers. tol: relative width of brackets.
        simulated: whether a refuted claim is simulated. seed: of the simulation.
    """

    claim: Claim
    process: Process
    notes: tuple[str, ...] = ()
    accountant: str = ""
    tol: float | None = None
    simulated: bool = True
    seed: int = 0

    def curves(self, tol: float | None = None) -> Iterator[Curve]:
        """The proven curves of the accountants that do not refuse the process.

        Raises:
            Unsupported: every accountant refuses it, or the one that is named proves nothing.
        """
        width = tol or self.tol or evaluate.answer_tol(self.process)
        refusal, count = None, 0
        for name in (self.accountant,) if self.accountant else ACCOUNTANTS:
            try:
                curve = evaluate.curve(self.process, name, width)
            except Unsupported as error:
                refusal = refusal or error
                continue
            if not curve.is_proven:
                raise Unsupported(
                    f"a claim is decided by proven bounds of (eps, delta)-DP; {name} gives {curve.notion} figures of "
                    f"the claim {curve.claim}. Use `accountant='pld'`"
                )
            count += 1
            yield curve
        if not count and refusal is not None:
            raise refusal

    def decision(self, verdict: str, reason: str, **more: Any) -> Decision:
        return Decision(self.claim, verdict, reason, self.process, self.notes, caveats=self.caveats(), **more)

    def caveats(self) -> tuple[str, ...]:
        """The reservations about the process, and about mechanisms of which only a guarantee is known."""
        given = [s.mechanism.name for s in self.process.steps if set(s.mechanism.adjacencies) > {Adjacency.ANY_TWO}]
        lines = [
            f"only a guarantee of {name} is given: a refutation is about the worst release that has it, not about "
            f"each one"
            for name in dict.fromkeys(given)
        ]
        return (*self.process.caveats(), *lines)


def decide(question: Question) -> Decision:
    """Decide a claim: a certified upper end that meets it proves it, a certified lower end above it refutes it.

    Raises:
        Unsupported: no accountant with proven bounds answers for this process.
    """
    from wpriv.run.claims import decide_notions

    notion = question.claim.notion
    if notion == "gdp":
        return decide_notions.gaussian(question)
    return decide_notions.concentrated(question) if notion == "zcdp" else approximate(question)


def approximate(question: Question) -> Decision:
    """Decide a claim of (eps, delta)-DP, or of pure DP."""
    eps, allowed = question.claim.eps, question.claim.delta
    certain = evaluate.infinity_mass(question.process)
    if certain > allowed + ROUNDING:
        return question.decision(
            REFUTED,
            f"outcomes that are impossible without the record have a probability of {certain:.6g} with it, whatever "
            f"eps is",
            at_eps=eps,
            allowed=allowed,
            not_simulated="a single such outcome is enough",
        )
    largest = largest_loss(question.process)
    if largest <= eps * (1 + ROUNDING):
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
    found = f"delta({echo(eps)}) is at most {_up(delta.safe, allowed)}"
    if curve.claim == "upper-bound" or not delta.lower:
        return f"{found} by {curve.accountant}, and nothing above {echo(allowed)} is proven from below"
    return f"{found} and at least {_down(delta.lower, allowed)}, which leaves the claim between the two ends"


def refuting_test(question: Question, eps: float, allowed: float) -> dict[str, Any]:
    """The test "loss > eps" in the order of the neighbours in which it breaks the claim, and its simulation."""
    try:
        curve = evaluate.curve(question.process, "pld", max(question.tol or 0.0, POINT_TOL))
        directions = question.process.directions()
    except Unsupported as error:
        return {"not_simulated": str(error)}
    ends = [_ends(order) for order in curve.orders]
    lowers = [order(eps)[0] for order in ends]
    index = lowers.index(max(lowers)) if lowers else 0
    if not lowers or lowers[index] <= allowed:
        return {"not_simulated": "the lower bound is not that of one order of the neighbours, and so of no single test"}
    test = threshold_test(directions[index], ends[index], eps, index)
    names = order_names(question.process, len(lowers))
    shown: dict[str, Any] = {"test": test, "order": names[index]}
    if not question.simulated:
        return {**shown, "not_simulated": "a simulation was not asked for"}
    most = most_trials(directions[index])
    needed = trials_needed(test.tpr_upper, test.fpr_upper, eps, test.delta_lower - allowed, DEVIATIONS)
    if most < MIN_TRIALS or needed > most:
        why = (
            "the exact privacy loss distribution of some step is not known"
            if most == 0
            else f"about {needed:.1e} trials in each world would show it, and at most {most:,} are drawn"
        )
        return {**shown, "not_simulated": why}
    trials = min(most, max(MIN_TRIALS, math.ceil(needed)))
    return {**shown, "simulation": simulate(directions[index], eps, trials, question.seed)}


def _ends(order: Callable[[float], Bracket]) -> Callable[[float], tuple[float, float]]:
    known: dict[float, tuple[float, float]] = {}

    def ends(eps: float) -> tuple[float, float]:
        if eps not in known:
            bracket = order(eps)
            known[eps] = bracket.lower or 0.0, bracket.safe
        return known[eps]

    return ends


def order_names(process: Process, count: int) -> tuple[str, ...]:
    """Names of the orders of the neighbours: which world the claim calls P."""
    if count == 1:
        return ("both",)
    return ("remove", "add") if process.adjacency == Adjacency.ADD_REMOVE else ("P over Q", "Q over P")


def largest_loss(process: Process) -> float:
    """An upper bound of every privacy loss of the whole process; inf where there is none."""
    if evaluate.infinity_mass(process) > 0:
        return math.inf
    try:
        directions = process.directions()
    except Unsupported:
        return math.inf
    return max(math.fsum(n * pair.support[1] for pair, n in pairs) for pairs in directions)


def _up(x: float, limit: float) -> str:
    return rounded_text(x, up=True, limit=limit)


def _down(x: float, limit: float) -> str:
    return rounded_text(x, up=False, limit=limit)
