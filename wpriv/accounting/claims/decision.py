"""What a decision on a claim is made of: the question, the verdict, and refutations by two data sets."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from wpriv.accounting import evaluate
from wpriv.accounting.claims.loss_threshold import (
    Simulation,
    ThresholdTest,
    most_trials,
    simulate,
    threshold_test,
    trials_needed,
)
from wpriv.accounting.evaluate import alike, has_endless_loss, is_bound_only, is_drawn
from wpriv.config.plain_words import Claim
from wpriv.core.guarantee import Curve, OrderDelta
from wpriv.core.membership import order_names
from wpriv.core.process import Process, WeightedPairs, sandwich
from wpriv.core.theorems import STATED
from wpriv.core.trade_off import DeltaEnds
from wpriv.errors import Unsupported
from wpriv.files.shown import Shown
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.numbers import echo, short, text

PROVED, REFUTED, OPEN = "proved", "refuted", "open"
# relative width of the points beside a threshold
POINT_TOL = 1e-5
# relative difference that counts as the rounding of a closed form
ROUNDING = 1e-12
# a simulation is made if the claim would be missed by at least so many standard errors; the fewest trials
DEVIATIONS, MIN_TRIALS = 6.0, 10_000


@dataclass(frozen=True, repr=False)
class Decision(Shown):
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
    caveats: tuple[str, ...] = ()

    def sentence(self) -> str:
        return f"{self.verdict}: {self.claim}, since {self.reason}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """The caveats, under the name that all results have for them."""
        return self.caveats

    def facts(self) -> list[tuple[str, str]]:
        """Return the process, the bounds, and the test that refutes the claim, each with its label."""
        rows = [*self.process.facts(), *(("read as", note) for note in self.notes)]
        if self.epsilon is not None and self.claim.notion == "approximate-dp" and self.claim.delta > 0:
            rows.append(("eps", f"{self.epsilon.text()} at delta {short(self.claim.delta)}"))
        if self.delta is not None and self.at_eps is not None:
            rows.append(("delta", f"{self.delta.text()} at eps {short(self.at_eps)}"))
        if self.accountant:
            rows += [("accountant", self.accountant), ("source", self.source)]
        return rows + self._refutation() if self.verdict == REFUTED else rows

    def _refutation(self) -> list[tuple[str, str]]:
        rows, test, seen = [], self.test, self.simulation
        if test is not None:
            ends = ((test.fpr_lower, test.fpr_upper), (test.tpr_lower, test.tpr_upper))
            rates = [f"[{text(low, up=False, digits=4)}, {text(high, up=True, digits=4)}]" for low, high in ends]
            words = (
                f'say "in" where the privacy loss exceeds {short(test.threshold)} (order of the neighbours: '
                f"{self.order}): FPR in {rates[0]}, TPR in {rates[1]}, TPR - e^eps FPR at least "
                f"{text(test.delta_lower, up=False)}"
            )
            rows.append(("test", words))
        if seen is not None and self.allowed is not None:
            deviations = (seen.advantage - self.allowed) / seen.standard_error if seen.standard_error else 0.0
            words = (
                f"{seen.trials} runs in each world (seed {seen.seed}): TPR {seen.tpr:.6g}, FPR {seen.fpr:.6g}, "
                f"TPR - e^eps FPR = {seen.advantage:.4g} with a standard error of {seen.standard_error:.2g}, "
                f"{deviations:.1f} standard errors above the claimed {self.allowed:.6g}"
            )
            rows.append(("simulation", words))
        elif self.not_simulated:
            rows.append(("simulation", f"none: {self.not_simulated}"))
        return rows

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line (schema ``wpriv.decision/1``), with infinities still floats."""
        brackets = {"epsilon": self.epsilon, "delta": self.delta}
        sides = ("lower", "upper")
        ends = {f"{name}_{side}": getattr(each, side, None) for name, each in brackets.items() for side in sides}
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
        accountant: a name, or "" for the first of ``evaluate.PROVING`` that answers. tol: relative width of brackets.
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
        """The proven curves of the accountants that do not refuse the process."""
        width = tol or self.tol or evaluate.answer_tol(self.process)
        refusal, count = None, 0
        for name in (self.accountant,) if self.accountant else evaluate.PROVING:
            try:
                curve = evaluate.curve(self.process, name, width, of_pair=True)
            except Unsupported as error:
                refusal = refusal or error
                continue
            if not curve.is_proven:
                raise Unsupported(
                    f"a claim is decided by proven bounds of (eps, delta)-DP; {name} gives {curve.notion} numbers of "
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
        worst = "is given: a refutation is about the worst release that has it, not about each one"
        lines = [f"only a guarantee of {name} {worst}" for name in known_by_guarantee(self.process)]
        return (*self.process.caveats(), *lines)


def known_by_guarantee(process: Process) -> tuple[str, ...]:
    """Names of the mechanisms of which only a guarantee is given."""
    given = [step.mechanism.name for step in process.steps if step.mechanism.release in STATED]
    return tuple(dict.fromkeys(given))


def refuting_test(question: Question, eps: float, allowed: float) -> dict[str, Any]:
    """The test "loss > eps" in the order of the neighbours in which it breaks the claim, and its simulation."""
    try:
        curve = evaluate.curve(question.process, "pld", max(question.tol or 0.0, POINT_TOL), of_pair=True)
        directions = question.process.directions()
    except Unsupported as error:
        return {"not_simulated": str(error)}
    ends = [delta_ends(order) for order in curve.orders]
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
        why = f"about {needed:.1e} trials in each world would show it, and at most {most:,} are drawn"
        why = why if most else "the exact privacy loss distribution of some step is not known"
        return {**shown, "not_simulated": why}
    trials = min(most, max(MIN_TRIALS, math.ceil(needed)))
    return {**shown, "simulation": simulate(directions[index], eps, trials, question.seed)}


def delta_ends(order: OrderDelta) -> DeltaEnds:
    """Both ends of delta at an eps, each computed once, for one order of the neighbours."""

    @functools.cache
    def ends(eps: float) -> tuple[float, float]:
        bracket = order(eps)
        return bracket.lower or 0.0, bracket.safe

    return ends


# Refutations where the dominating pair only bounds all neighbours: a claim is refuted by two data sets alone.

# names of the orders of the neighbours: one record differs from all others in the first world, or in the second one
ORDERS = {"remove": "P over Q", "add": "Q over P", "both": "both"}
# relative amount by which the sum of shares of eps exceeds it
SHARE_ROUNDING = 1e-9
BOUND_ONLY = "the pair that bounds this process exceeds the claim, but no two data sets are known that have this pair"


def exceeding_loss(process: Process, eps: float) -> str:
    """Say why some outcome, however rare, has a privacy loss above ``eps``; "" where none is known."""
    try:
        rare = max(_log_mass_above(pairs, eps) for pairs in process.directions())
    except Unsupported:
        rare = -math.inf
    if math.isfinite(rare):
        power = math.floor(rare / math.log(10))
        return f"outcomes whose privacy loss exceeds {echo(eps)} have a probability of at least 10^{power}"
    # of samplings, in the order in which the record takes part in the first world
    endless = [step.mechanism.name for step in process.steps if has_endless_loss(step.mechanism)]
    return f"the privacy loss of {endless[0]} has no upper bound" if endless else ""


def _log_mass_above(pairs: WeightedPairs, eps: float) -> float:
    """ln of a probability that the loss exceeds ``eps``, each step a share of it; -inf where none is known."""
    ends = sandwich(pairs, 1.0)
    pairs = pairs if ends is None else ends[0]
    tops = [(pair.support[1], n) for pair, n in pairs]
    total = math.fsum(top * n for top, n in tops)
    if not total > eps * (1 + SHARE_ROUNDING):
        return -math.inf
    unbounded = sum(n for top, n in tops if math.isinf(top))
    shares = [
        (eps / unbounded if math.isinf(top) else 0.0) if unbounded else max(top, 0.0) * (eps / total) for top, _ in tops
    ]
    losses = [np.array([share * (1 + SHARE_ROUNDING)]) for share in shares]
    return math.fsum(n * float(pair.tails(loss).sf_p[0]) for loss, (pair, n) in zip(losses, pairs, strict=True))


def confirmed(
    question: Question, decision: Decision, decide: Callable[[Question], Decision], upper: Callable[[float], Bracket]
) -> Decision:
    """Confirm a refutation by the data sets of ``alike``, or leave the claim open."""
    if decision.verdict != REFUTED or not is_bound_only(question.process):
        return decision
    process = alike(question.process)
    if process is None:
        return question.decision(OPEN, BOUND_ONLY, at_eps=decision.at_eps, allowed=decision.allowed)
    other = decide(replace(question, process=process))
    drawn = is_drawn(question.process)
    reason = f"{'where all other records are alike' if drawn else 'with the sensitivity tight'}, {other.reason}"
    verdict = REFUTED if other.verdict == REFUTED else OPEN
    if verdict == OPEN:
        reason = f"{BOUND_ONLY}; {reason}"
    about: dict[str, Any] = {"process": question.process, "caveats": question.caveats()}
    if other.delta is not None:
        about["delta"] = None if other.at_eps is None else _between(other.delta, upper(other.at_eps))
    about["epsilon"] = _between(other.epsilon, decision.epsilon)
    order = ORDERS.get(other.order, "") if drawn else other.order
    return replace(other, verdict=verdict, reason=reason, order=order, **about)


def _between(low: Bracket | None, high: Bracket | None) -> Bracket | None:
    if low is None or high is None:
        return None
    return Bracket.between(min(low.lower or 0.0, high.safe), high.safe, high.by, high.refusal)
