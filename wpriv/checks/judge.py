"""Decide a claim from its premises: proved, refuted, contradicted, or incomplete with the verdict under each value.

Guarantees are compared, and never fields: where more was accounted for than ran, the claim is proved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from wpriv.accounting import evaluate
from wpriv.accounting.claims.decide import decide
from wpriv.accounting.claims.decision import OPEN, PROVED, REFUTED, Decision, Question
from wpriv.checks import what_ran
from wpriv.checks.premises import COMPUTED, DECLARED, Fact, Found, Premises, Value
from wpriv.checks.run import ADD, ZERO, Difference, Run
from wpriv.config.plain_words import Claim
from wpriv.core.process import Process
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.conversions import delta_of_scales, epsilon_of_scales
from wpriv.numerics.numbers import echo, text

CONTRADICTED, INCOMPLETE = "contradicted", "incomplete"
# values that a missing premise may take, each with the verdict under it; the first is the one most often meant
ASKED: dict[str, tuple[Value, ...]] = {
    "sampling.kind": ("poisson", "shuffle"),
    "records_public": (True, False),
    "max_per_unit": (1, 4),
    "model.parameters": (10, 10_000),
}
# words in the name of an accountant whose figures are estimates
ESTIMATES = ("gdp", "clt", "audit")
# units of which the noise is for all that one person has
WHOLE_UNITS = ("client", "person", "site")
NOT_PROVED = "not proved where the divisor was int(N / batches)"


@dataclass(frozen=True)
class Answer:
    """The answer to a claim under one set of premises.

    Args:
        verdict: proved, refuted or open. run: what ran. reason: the first line after its colon.
        epsilon: both ends of eps at the claimed delta; None where there is none, an infinite end where no finite holds.
        decision: of which the reason is, with its test and its source.
        claim: the claim that was compared, which may be the printed figure plus its rounding. notes: on that.
    """

    verdict: str
    run: Run
    reason: str
    claim: Claim
    epsilon: tuple[float, float] | None = None
    decision: Decision | None = None
    notes: tuple[str, ...] = ()

    def words(self) -> str:
        """The verdict with eps in a few words: ``refuted, eps in [7.12291, 11.4801]``."""
        if self.verdict == OPEN:
            return self.reason if self.epsilon is None else f"not decided, {_eps_words(self.epsilon)}"
        if self.epsilon is None or math.isinf(self.epsilon[0]):
            return f"{self.verdict}{', no finite eps holds' * (self.verdict == REFUTED and self.epsilon is not None)}"
        return f"{self.verdict}, {_eps_words(self.epsilon)}"


def _eps_words(ends: tuple[float, float]) -> str:
    low, high = ends
    if math.isinf(high):
        return f"eps at least {text(low, up=False)}"
    if high - low <= 2e-5 * high:
        return f"eps {text(high, up=True)}"
    return f"eps in [{text(low, up=False)}, {text(high, up=True)}]"


@dataclass(frozen=True)
class Missing:
    """A premise that is missing, with the verdict under each value that it may take."""

    field: str
    under: tuple[tuple[Value, str], ...] = ()


@dataclass(frozen=True)
class Judgement:
    """All that a check finds.

    Args:
        verdict: proved, refuted, contradicted or incomplete. claim: as it was read; None where there is none.
        answer: under the premises that are known, the missing ones at the value most often meant; None without a claim.
        missing: premises that are missing. conflicts: sentences on sources that disagree, each with the verdicts.
    """

    verdict: str
    premises: Premises
    found: Found
    claim: Claim | None
    answer: Answer | None
    missing: tuple[Missing, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()


def judge(premises: Premises, found: Found) -> Judgement:
    """Decide the claim of a run.

    Args:
        premises: what was read and declared. found: what the reader found besides.
    Raises:
        UsageError: a step or a value is faulty.
    """
    if several := [name for name in ("eps", "rho", "mu") if f"claim.{name}" in premises][1:]:
        raise UsageError(f"a claim is of one notion, eps with delta, rho or mu; found {several[0]} beside another")
    premises = with_claim(premises, found)
    claim = claim_of(premises)
    run = what_ran.of(premises, found)
    if claim is None and run.endless:
        any_eps = Claim("approximate-dp", eps=math.inf, delta=premises.number("claim.delta") or 0.0)
        return Judgement(REFUTED, premises, found, None, answered(premises, found, any_eps))
    lacking = tuple(_lacking(premises, found, run))
    if claim is None or (not run.parts and not run.endless):
        missing = tuple(Missing(name) for name in lacking)
        return Judgement(INCOMPLETE, premises, found, claim, None, missing)
    answer = answered(premises, found, claim)
    conflicts = tuple(_conflicts(premises, found, claim))
    if conflicts and not run.endless:
        return Judgement(CONTRADICTED, premises, found, claim, answer, (), conflicts)
    if answer.verdict == REFUTED:
        return Judgement(REFUTED, premises, found, claim, answer)
    missing = tuple(_under_each(name, premises, found, claim, answer) for name in lacking)
    if missing:
        return Judgement(INCOMPLETE, premises, found, claim, answer, missing)
    if answer.verdict == PROVED and not found.left_out:
        return Judgement(PROVED, premises, found, claim, answer)
    worse = tuple((f"{each.words}, {each.accounted}", "") for each in answer.run.differences if each.worse)
    return Judgement(CONTRADICTED if worse else INCOMPLETE, premises, found, claim, answer, (), worse)


def claim_of(premises: Premises) -> Claim | None:
    """The claim as it was read; None where a part of it is missing."""
    eps, delta, mu, rho, xi = (premises.number(f"claim.{name}") for name in ("eps", "delta", "mu", "rho", "xi"))
    if eps is not None:
        return None if delta is None else Claim("approximate-dp", eps=eps, delta=delta)
    if rho is not None:
        return Claim("zcdp", rho=rho, xi=xi or 0.0)
    return None if mu is None else Claim("gdp", mu=mu)


def with_claim(premises: Premises, found: Found) -> Premises:
    """Premises with a delta and an eps that were not read: those that were accounted for, or the central limit's."""
    if "claim.delta" not in premises and (accounted := premises.fact("claim.delta_accounted")) is not None:
        premises = premises.having("claim.delta", accounted.value, COMPUTED)
    delta = premises.number("claim.delta")
    if any(f"claim.{name}" in premises for name in ("eps", "rho", "mu")) or not delta:
        return premises
    parts = what_ran.of_steps(what_ran.accounted_steps(premises, found))
    if not parts:
        if premises.count("steps_accounted") != 0:
            return premises
        fact = Fact("claim.eps", 0.0, COMPUTED, "no figure was read: it is the eps of no steps")
        return dataclasses.replace(premises, facts={**premises.facts, "claim.eps": fact})
    from wpriv.accounting.budget import budget

    try:
        steps = Process(tuple(part.step() for part in parts))
        by = "gdp" if "gdp" in premises.word("claim.by") else "pld"
        eps = budget(steps, delta=delta, accountant=by).epsilon.safe
    except Unsupported:
        return premises
    if not math.isfinite(eps):
        return premises
    where = "no figure was read: it is the eps of the steps that were accounted for"
    fact = Fact("claim.eps", eps, COMPUTED, where)
    return dataclasses.replace(premises, facts={**premises.facts, "claim.eps": fact})


def _lacking(premises: Premises, found: Found, run: Run) -> Iterator[str]:
    """Names of the premises without which the claim is not decided."""
    if claim_of(premises) is None:
        yield "claim.eps" if "claim.eps" not in premises else "claim.delta"
        if "claim.eps" not in premises and "claim.delta" not in premises:
            yield "claim.delta"
    if run.endless:
        return
    if not run.parts:
        known = {
            "noise.multiplier": "noise.std",
            "steps": "steps_accounted",
            "sampling.rate": "sampling.rate_accounted",
        }
        yield from (name for name, other in known.items() if name not in premises and other not in premises)
    shown = bool(premises.steps("process") or found.ran)
    if "sampling.kind" not in premises and not shown and any(part.kind != "none" for part in run.parts):
        yield "sampling.kind"
    for name, is_needed in _details(premises):
        if is_needed and name not in premises:
            yield name
    adjacency, from_size = premises.word("adjacency"), premises.word("divisor") in ("expected", "batch")
    if "records_public" not in premises and (not adjacency or (adjacency == ADD and from_size)):
        yield "records_public"
    whole = premises.word("unit") in WHOLE_UNITS and premises.word("clip.per") in ("", "client")
    if "max_per_unit" not in premises and not whole:
        yield "max_per_unit"


def _details(premises: Premises) -> Iterator[tuple[str, bool]]:
    """Premises that others make necessary."""
    relative, std = premises.word("noise.relative_to"), "noise.std" in premises
    weighted = premises.word("divisor") == "weights"
    drawn = premises.word("sampling.kind") == "weighted"
    yield "sampling.max_weight", drawn or weighted or relative in ("mean", "weight")
    yield "noise.relative_to", weighted and "process" not in premises
    yield "sampling.batch", relative == "mean" and not std and what_ran.batch_of(premises) is None
    norms = premises.numbers("clip.norm")
    yield "clip.tensors", premises.word("clip.scope") == "per tensor" and len(norms) < 2
    counted = premises.word("clip.adaptive") == "noisy" and "accounted" not in premises
    yield "clip.count_std", counted
    yield "clip.norm", std
    secret = what_ran.shows_size(premises)
    yield "records", secret
    yield "model.parameters", secret
    yield "composition.other", premises.word("released") == "metrics"


def _under_each(name: str, premises: Premises, found: Found, claim: Claim, base: Answer) -> Missing:
    """The verdict under each value that a missing premise may take."""
    rows: list[tuple[Value, str]] = []
    for value in ASKED.get(name, ()):
        if name == "records_public" and value is False and "divisor" not in premises:
            rows.append((value, NOT_PROVED))
            continue
        answer = answered(premises.having(name, value), found, claim)
        same = name != "sampling.kind" and (answer.verdict, answer.epsilon) == (base.verdict, base.epsilon)
        rows.append((value, "no change" if same else answer.words()))
    return Missing(name, tuple(rows))


def _conflicts(premises: Premises, found: Found, claim: Claim) -> Iterator[tuple[str, str]]:
    """Sources of one premise that disagree, each with the verdicts under both."""
    for line in found.contradictions:
        yield line, ""
    for first, second in premises.contradictions:
        if first.field == "claim.eps" and premises.yes("claim.printed") and is_rounded(first.value, second.value):
            continue
        words = [
            f"{shown(fact.value)} is {fact.source} ({fact.where or 'no place is known'})" for fact in (first, second)
        ]
        verdicts = []
        for fact in (first, second):
            answer = answered(premises.having(fact.field, fact.value, fact.source), found, claim)
            verdicts.append(f"{shown(fact.value)}: {answer.words()}")
        yield f"{first.field}: {words[0]}, {words[1]}", "; ".join(verdicts)
    yield from _declared_against_read(premises, found, claim)
    if layers := premises.texts("model.mixes_records"):
        names = ", ".join(layers[:5])
        yield f"gradients are clipped for each record, and {names} mix records: what one adds is not bounded so", ""


def _declared_against_read(premises: Premises, found: Found, claim: Claim) -> Iterator[tuple[str, str]]:
    """Declarations without which the steps that were counted while they ran would not prove the claim."""
    if premises.word("steps_source") != "history" or not found.accounted:
        return
    for name in ("process", "accounted", "steps", "noise.std"):
        fact = premises.fact(name)
        if fact is None or fact.source != DECLARED or answered(premises, found, claim).verdict != PROVED:
            continue
        read = answered(premises.without(name), found, claim)
        if read.verdict != PROVED:
            yield f"{name} is declared to be less than the history that was read holds", f"as read: {read.words()}"


def shown(value: Value) -> str:
    """A value as users write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else f"{value:.6g}"


# One claim under one set of premises.


def answered(premises: Premises, found: Found, claim: Claim) -> Answer:
    """Decide a claim under premises, those that are missing at the value most often meant."""
    run = what_ran.of(premises, found)
    shown_claim = claim if claim.notion != "approximate-dp" else dataclasses.replace(claim, eps=figure(claim.eps))
    if run.endless:
        reason = f"no finite eps holds, since {run.endless}" if not run.endless.startswith("no ") else run.endless
        return Answer(REFUTED, run, reason, shown_claim, (math.inf, math.inf))
    if not run.parts:
        return Answer(OPEN, run, "the noise, the rate or the number of steps is not known", shown_claim)
    if (sizes := what_ran.secret_divisors(premises)) is not None:
        return _secret_size(run, claim, sizes)
    if what_ran.shows_size(premises):
        return Answer(OPEN, run, NOT_PROVED, shown_claim)
    typed = premises.fact("claim.eps")
    is_printed = typed is not None and typed.source == DECLARED and premises.yes("claim.printed") is not False
    half = half_digit(claim.eps) if is_printed and claim.notion == "approximate-dp" else 0.0
    answer = _compared(run, shown_claim)
    if answer.verdict == PROVED:
        exact = claim if claim.eps < shown_claim.eps else None
        return _compared(run, exact) if exact and _compared(run, exact).verdict != PROVED else answer
    if not half:
        return answer
    most = dataclasses.replace(claim, eps=float(Decimal(repr(claim.eps)) + Decimal(repr(half))))
    words = f"compared at {echo(most.eps)}, the printed figure plus half of its last digit"
    delta = answer.decision.delta if answer.decision is not None and not run.zero_out else None
    # delta(eps + h) >= delta(eps) - (e^h - 1), since e^eps FPR is at most 1 for the best test
    if answer.verdict == REFUTED and delta and (delta.lower or 0.0) - math.expm1(2 * half) > claim.delta:
        return dataclasses.replace(answer, notes=(words,))
    rounded = _compared(run, most)
    if rounded.verdict == answer.verdict:
        return dataclasses.replace(answer, notes=(words,))
    return dataclasses.replace(rounded, notes=(words,))


def figure(eps: float) -> float:
    """A claimed eps as it is shown: six digits, rounded up."""
    return float(text(eps, up=True)) if math.isfinite(eps) else eps


def is_rounded(printed: Value, eps: Value) -> bool:
    """Tell whether a printed figure is another one, rounded in its last digit."""
    if not isinstance(printed, (int, float)) or not isinstance(eps, (int, float)):
        return False
    return abs(printed - eps) <= half_digit(float(printed)) * (1 + 1e-9)


def half_digit(eps: float) -> float:
    """Half of the last digit of a printed figure; 0 of a whole number, which is a target."""
    exponent = Decimal(repr(eps)).normalize().as_tuple().exponent
    return float(Decimal(5).scaleb(exponent - 1)) if isinstance(exponent, int) and exponent < 0 else 0.0


def _compared(run: Run, claim: Claim) -> Answer:
    """The verdict on a claim of exactly this size: by an upper end, or else by a lower one."""
    low, high = 0.0, math.inf
    decisions: list[Decision] = []
    refusal = run.refusal
    for process in run.uppers:
        try:
            decision = decided(process, claim)
        except Unsupported as error:
            refusal = refusal or str(error)
            continue
        ends = _ends(decision)
        high = min(high, ends[1] if ends else math.inf)
        low = max(low, ends[0] if ends and process in run.lowers and run.kept == 1 else 0.0)
        decisions.append(decision)
    if proved := next((each for each in decisions if each.verdict == PROVED), None):
        for process in (each for each in run.lowers if each not in run.uppers):
            with contextlib.suppress(Unsupported):
                low = max(low, (_ends(decided(process, claim)) or (0.0, 0.0))[0])
        return Answer(PROVED, run, proved.reason, claim, _both(low, high), proved)
    refuted: Decision | None = None
    for process in run.lowers:
        implied = implied_claim(claim) if process.adjacency == ZERO and run.adjacency == ADD else claim
        implied = implied and where_kept(implied, run.kept)
        if implied is None:
            continue
        known = next((each for each in decisions if each.process is process and each.claim == implied), None)
        decision = known or decided(process, implied)
        ends = _ends(decision)
        low = max(low, ends[0] - math.log(1 / run.kept) if ends and not run.zero_out else 0.0)
        refuted = decision if decision.verdict == REFUTED and refuted is None else refuted
    if refuted is not None:
        return Answer(REFUTED, run, _reason(refuted, claim, run), claim, _both(low, high), refuted)
    reason = decisions[0].reason if decisions else refusal or "no bound from above is known"
    return Answer(
        OPEN, run, reason, claim, _both(low, high) if decisions else None, decisions[0] if decisions else None
    )


def decided(process: Process, claim: Claim) -> Decision:
    """Decide a claim of a process; numbers beyond the range of doubles leave it open."""
    try:
        return decide(Question(claim, process, simulated=False))
    except OverflowError:
        raise Unsupported(f"the numbers of {claim} are beyond the range of doubles here") from None


def implied_claim(claim: Claim) -> Claim | None:
    """What a claim for add-remove neighbours implies for zero-out ones, which are two steps apart; None if nothing."""
    if claim.notion != "approximate-dp" or claim.eps > 300:
        return None
    delta = (1 + math.exp(claim.eps)) * claim.delta
    return Claim("approximate-dp", eps=2 * claim.eps, delta=delta) if delta < 1 else None


def _reason(decision: Decision, claim: Claim, run: Run) -> str:
    """Why a claim is refuted, where that was decided of what it implies."""
    if decision.claim == claim or decision.delta is None:
        return decision.reason
    low = decision.delta.lower or 0.0
    if not run.zero_out:
        return f"delta({echo(claim.eps)}) is at least {text(low * run.kept, up=False)}"
    implied = f"delta({text(decision.claim.eps, up=True)}) at most {text(decision.claim.delta, up=True)}"
    return f"it would give {implied} for zero-out neighbours; found at least {text(low, up=False)}"


def where_kept(claim: Claim, kept: float) -> Claim | None:
    """What a claim implies for a record that is in all passes, which it is with probability ``kept``.

    P >= kept P', so that P(A) - e^eps Q(A) >= kept (P'(A) - e^(eps - ln kept) Q(A)).
    """
    if kept == 1:
        return claim
    if claim.notion != "approximate-dp" or not claim.delta < kept:
        return None
    return Claim("approximate-dp", eps=claim.eps - math.log(kept), delta=claim.delta / kept)


def _ends(decision: Decision) -> tuple[float, float] | None:
    """Both ends of eps at the claimed delta; of another notion, or of pure DP, there are none."""
    claim = decision.claim
    if claim.notion != "approximate-dp":
        return None
    if evaluate.infinity_mass(decision.process) > claim.delta:
        return math.inf, math.inf
    bracket = decision.epsilon
    if bracket is None and claim.delta > 0:
        with contextlib.suppress(Unsupported):
            bracket = next(iter(Question(claim, decision.process).curves())).epsilon_bracket(claim.delta)
    return None if bracket is None else (bracket.lower or 0.0, bracket.safe)


def _both(low: float, high: float) -> tuple[float, float] | None:
    return None if low == 0 and math.isinf(high) else (low, high)


# The divisor follows the secret number of records: the size of the noise on the mean shows it.


def _secret_size(run: Run, claim: Claim, sizes: tuple[int, int, int]) -> Answer:
    """Refute by data sets of which no record contributes: noise of two sizes, a chi-square test."""
    larger, smaller, coordinates = sizes
    claim = dataclasses.replace(claim, eps=figure(claim.eps))
    if claim.notion != "approximate-dp" or larger == smaller:
        return Answer(OPEN, run, NOT_PROVED, claim)
    delta = delta_of_scales(claim.eps, larger, smaller, coordinates)
    about = f"noise divided by {larger} or by {smaller}, with one record less, over {coordinates} coordinates"
    if delta <= claim.delta:
        return Answer(OPEN, run, NOT_PROVED, claim)
    low = epsilon_of_scales(claim.delta, larger, smaller, coordinates)
    words = "the divisor depends on the number of records, which is secret"
    worse = Difference("divisor", words, f"{about} shows it")
    run = dataclasses.replace(run, differences=(*run.differences, worse))
    return Answer(REFUTED, run, f"delta({echo(claim.eps)}) is at least {text(delta, up=False)}", claim, (low, math.inf))
