"""Evaluate one accountant on one process and validate the result.

Where the dominating pair only bounds all neighbours, lower ends are those of two data sets alone.
The dominating pair of fixed-size sampling holds the worst of both orders of the neighbours at once. No two data sets
have that pair, so that its composition may exceed what every two data sets have (docs/theory/refuting-tests.md).
A sensitivity as published, of ``wgrad``, exceeds the least one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from wpriv.core import registry
from wpriv.core.guarantee import RIGOROUS, Curve, Guarantee, OrderDelta
from wpriv.core.kinds import PASSES, Adjacency, Poisson
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process, WeightedPairs, log_finite, sandwich
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.bracket import TINY, Bracket
from wpriv.numerics.numbers import decimal, finite_number, total_up

TWO_DATA_SETS = "lower end by two data sets whose other records are alike"


def is_bound_only(process: Process) -> bool:
    """Tell whether the pair of some step bounds its neighbours without being that of any two of them."""
    return is_drawn(process) or not process.has_attained_mechanisms()


def is_drawn(process: Process) -> bool:
    """Tell whether some step draws a batch of a fixed size."""
    return any(step.sampling.kind == "fixed" and step.sampling.rate < 1 for step in process.steps)


def alike(process: Process) -> Process | None:
    """A process whose pair two data sets have that differ in one record, while all of their others are alike.

    A batch that lacks the record has one distribution, and one that holds it another, as with Poisson sampling under
    add-remove. None where the mechanism or the other sampling of some step has no such pair.
    """
    steps = tuple(replace(step, mechanism=step.mechanism.attained()) for step in process.steps)
    if not is_drawn(process):
        return process.with_steps(steps)
    if any(step.sampling.kind not in ("none", "fixed") for step in steps):
        return None
    steps = tuple(
        replace(step, sampling=Poisson(step.sampling.rate)) if step.sampling.kind == "fixed" else step for step in steps
    )
    try:
        return Process(steps, Adjacency.ADD_REMOVE)
    except Unsupported:
        return None


def curve_with_data_sets(curve: Curve, account: Callable[[Process], Curve]) -> Curve:
    """The curve of a process with batches of a fixed size, its lower ends those of two data sets.

    A single release keeps its delta and eps, which two data sets have at every eps >= 0, though not at all eps at once.
    A divergence is then an upper bound, and so is everything of a mechanism whose pair only bounds those of data sets.
    """
    has_pair = curve.process.has_attained_mechanisms()
    if (has_pair and not is_drawn(curve.process)) or curve.claim not in ("exact", "certified"):
        return curve
    if curve.notion != "approximate-dp" or not has_pair:
        return _from_above(curve)
    lower = _lower(curve.process, account)
    steps = curve.process.steps
    is_one = lower is not None and len(steps) == 1 and steps[0].n == 1
    orders = tuple(_joined(each, curve.orders[0]) for each in (_orders(lower) if curve.orders else ()))
    if is_one:
        return replace(curve, orders=orders)
    none = _nothing if lower is None else lower.delta_bracket
    epsilon = _nothing if lower is None else lower.epsilon_bracket
    return replace(
        curve,
        claim="certified",
        delta_bracket=_joined(none, curve.delta_bracket),
        epsilon_bracket=_joined(epsilon, curve.epsilon_bracket),
        orders=orders,
        tol=None,
    )


def _lower(process: Process, account: Callable[[Process], Curve]) -> Curve | None:
    other = alike(process)
    if other is None:
        return None
    try:
        curve = account(other)
    except Unsupported:
        return None
    return curve if curve.claim in ("exact", "certified") else None


def _orders(lower: Curve | None) -> tuple[OrderDelta, ...]:
    return (_nothing,) if lower is None else lower.orders or (lambda eps, width=0.0: lower.delta_bracket(eps),)


def _nothing(_: float, width: float = 0.0) -> Bracket:
    return Bracket(0.0, 0.0, 0.0)


def _joined(low: Callable[..., Bracket], high: Callable[..., Bracket]) -> Callable[..., Bracket]:
    """The upper end of one bracket with the lower end of another, at a relative width if both take one."""

    def bracket(at: float, *width: float) -> Bracket:
        above = high(at, *width)
        try:
            below = low(at, *width).lower or 0.0
        except Unsupported:
            below = 0.0
        by = "; ".join(word for word in (above.by, TWO_DATA_SETS if below else "") if word)
        return Bracket.between(min(below, above.safe), above.safe, by, above.refusal)

    return bracket


def _from_above(curve: Curve) -> Curve:
    def above(ask: Callable[[float], Bracket]) -> Callable[[float], Bracket]:
        return lambda at: Bracket.above(ask(at).safe)

    return replace(
        curve,
        claim="upper-bound",
        delta_bracket=above(curve.delta_bracket),
        epsilon_bracket=above(curve.epsilon_bracket),
        tol=None,
    )


# every eps > 0 outside is answered from these ends: tilts are up to 1e3/eps, and their squares must be doubles
SMALLEST_EPS, LARGEST_EPS = 1e-100, 1e150
# default relative width of a bracket in a comparison
DEFAULT_TOL = 1e-3
# default relative width for a single answer, so that every printed digit is right; the second for mechanisms whose PLD
# is only known between two others, where a narrower bracket takes ten times as long
ANSWER_TOL, SANDWICHED_ANSWER_TOL = 1e-6, 1e-3
# the same where only passes of random allocation or of shuffled batches are known between two others
ALLOCATED_ANSWER_TOL = 1e-4
# the accountants with proven bounds that are asked in this order where none is named, until one answers
PROVING = ("pld", "rdp", "zcdp")
# the notions whose figures are about observed pairs, and not about the sensitivity
DATA_DEPENDENT = ("wdp", "bdp")
EPS_DELTA = ("approximate-dp", "probabilistic-dp")
# a Renyi divergence is the same at every delta
ANY_DELTA = 0.5


def curve(
    process: Process, accountant: str, tol: float = DEFAULT_TOL, *, of_pair: bool = False, **options: float
) -> Curve:
    """Return the curve of a process by the accountant of a given name.

    Args:
        accountant: a name, with options where it has any (``wdp:order=16``); ``options`` are added to those.
        tol: relative width asked of a certified bracket, in [1e-9, 0.5].
        of_pair: keep lower ends that are those of the dominating pair and perhaps of no two data sets.
    Raises:
        UsageError: no accountant of that name, or ``tol`` out of range.
        Unsupported: the accountant refuses the process, or some step of it hides nothing at all.
    """
    tol = checked_tol(tol)
    module, named_options = registry.accountant(accountant)
    if infinity_mass(process) >= 1:
        raise Unsupported(_why_certain(process))

    def account(process: Process) -> Curve:
        answer: Curve = module.account(process, tol=tol, **named_options, **options)
        others = getattr(module, "OTHER_BOUNDS", ())
        if others and answer.claim == "certified":
            from wpriv.accounting.other_bounds import intersect

            answer = intersect(answer, others)
        return _within_doubles(answer) if answer.is_proven else answer

    answer = account(process)
    if answer.is_proven:
        answer = replace(answer, pure_epsilon=partial(pure_epsilon, process, answer.claim))
    if answer.notion not in DATA_DEPENDENT and (beyond := _beyond_sensitivity(process, answer.accountant)):
        answer = replace(answer, warnings=(*answer.warnings, *beyond))
    return answer if of_pair else curve_with_data_sets(answer, account)


def _within_doubles(curve: Curve) -> Curve:
    """Answer an eps near 0 from delta there, and a huge one from ``LARGEST_EPS``; delta is 0 at the largest loss."""
    largest = functools.cache(lambda: largest_loss(curve.process))

    def delta(eps: float) -> Bracket:
        if 0 < eps < LARGEST_EPS and eps >= largest():
            return Bracket.exact(0.0)
        if SMALLEST_EPS <= eps <= LARGEST_EPS or eps == 0:
            return curve.delta_bracket(eps)
        near = curve.delta_bracket(min(eps, LARGEST_EPS) if eps > 1 else 0.0)
        lower = max((near.lower or 0.0) - 2 * eps, 0.0)
        return replace(near, estimate=max(near.estimate, lower), lower=lower)

    return replace(curve, delta_bracket=delta)


def _beyond_sensitivity(process: Process, accountant: str) -> list[str]:
    """Warn where observed pairs of records are further apart than the sensitivity allows, by which the figure goes.

    A pair of records is as far apart as one is from its replacement, and under other relations at most twice as far as
    one record moves the query.
    """
    warnings = []
    for step in process.steps:
        noise, observed = step.mechanism.additive_noise(), step.observed
        if noise is None or observed is None:
            continue
        allowed = noise.sensitivity * (1 if process.adjacency == Adjacency.REPLACE_ONE else 2)
        largest = float((observed.distances / observed.unit[:, None]).max())
        if largest > allowed * (1 + 1e-9):
            warnings.append(
                f"{accountant} accounts for a sensitivity of {noise.sensitivity:g}, and observed pairs are up to "
                f"{largest:g} apart, in the same unit: its number does NOT hold for them. Clip the gradients, or give "
                f"their largest change as `sensitivity`"
            )
    return list(dict.fromkeys(warnings))


def checked_tol(tol: float) -> float:
    """Return a relative width of a bracket, or raise UsageError if it is out of range."""
    tol = finite_number(tol, "`tol`")
    if not 1e-9 <= tol <= 0.5:
        raise UsageError(f"`tol` is the relative width of the bracket, from 1e-9 to 0.5; found {tol:g}")
    return tol


def answer_tol(process: Process) -> float:
    """The default relative width of the bracket of a single answer."""
    if any(step.sampling.kind in PASSES for step in process.steps):
        return ALLOCATED_ANSWER_TOL
    # the two pairs of a largest batch are as quick to compose as any
    uncut = [not step.sampling.max_batch for step in process.steps]
    runs = [[pair for pair, is_uncut in zip(run, uncut, strict=True) if is_uncut] for run in process.renyi_directions()]
    return (
        SANDWICHED_ANSWER_TOL if any(sandwich(run, SANDWICHED_ANSWER_TOL) is not None for run in runs) else ANSWER_TOL
    )


def with_data_sets(row: Guarantee) -> Guarantee:
    """A guarantee with the lower ends of two data sets; bounds on attacks then have the trivial lower ends."""
    if not is_drawn(row.process) or row.claim not in ("exact", "certified"):
        return row
    again = curve(row.process, row.accountant, answer_tol(row.process))
    extra = dict(row.extra)
    if "mu_lower" in extra:
        extra |= {"mu_lower": 0.0, "mu_orders": [each | {"mu_lower": 0.0} for each in extra["mu_orders"]]}
    if "attack" in extra:
        rates = [each | {"tpr_lower": each["fpr"]} for each in extra["attack"]["tpr_at_fpr"]]
        extra["attack"] = extra["attack"] | {"advantage_lower": 0.0, "tpr_at_fpr": rates}
    low = again.at(eps=row.epsilon.safe) if row.epsilon.lower == row.epsilon.upper else again.at(delta=row.delta.safe)
    ends = [
        Bracket.between(min(below.lower or 0.0, bracket.safe), bracket.safe, below.by, bracket.refusal)
        for below, bracket in ((low.epsilon, row.epsilon), (low.delta, row.delta))
    ]
    return replace(row, claim=low.claim, epsilon=ends[0], delta=ends[1], extra=extra)


def ask(on: Curve, *, eps: float | None = None, delta: float | None = None) -> Guarantee:
    """Return the guarantee at one eps or one delta; ``extra["asked"]`` names the unknown.

    Raises:
        Unsupported: no finite eps holds at this delta (the message says why), or eps is given and the notion has no
            delta. A delta is ignored there.
        UsageError: as ``Curve.at``.
    """
    if on.order is not None:
        if eps is not None:
            raise Unsupported(
                f"{on.accountant} gives a Renyi divergence, which has no delta: leave out `eps`, or use rdp"
            )
        return without_delta(checked(on.at(delta=ANY_DELTA)), on.order)
    return checked(on.at(eps=eps, delta=delta))


def without_delta(row: Guarantee, order: float) -> Guarantee:
    """The guarantee of a Renyi divergence, whose ``as_dict`` has its order and no delta."""
    row = replace(row, delta=Bracket.above(1.0))
    return row.with_extra(order=order, delta=None, delta_lower=None, delta_upper=None, delta_estimate=None)


def is_divergence(accountant: str) -> bool:
    """Tell whether the figures of an accountant are Renyi divergences, which have no delta."""
    return bool(registry.accountant(accountant)[0].NOTION == "rdp")


def checked(row: Guarantee) -> Guarantee:
    """Return the guarantee, or raise as ``ask`` documents."""
    for name, bracket in (("eps", row.epsilon), ("delta", row.delta)):
        ends = [v for v in (bracket.lower, bracket.estimate, bracket.upper) if v is not None]
        if any(math.isnan(v) or v < 0 for v in ends) or ends != sorted(ends):
            answered = f"{row.accountant} answered {name} = {bracket}"
            raise ArithmeticError(f"{answered}, which is not an ordered bracket of numbers of at least 0")
    if math.isinf(row.epsilon.safe):
        raise Unsupported(_why_infinite(row))
    return row


def no_guarantee(row: Guarantee) -> str | None:
    """Explain why a figure is no (eps, delta)-DP guarantee, and which accountants give one; None if it is one."""
    if row.notion == "approximate-dp" and row.claim in RIGOROUS:
        return None
    what = (
        f"a number of the notion {row.notion!r}"
        if row.notion != "approximate-dp"
        else f"an answer of the claim {row.claim!r}"
    )
    return (
        f"{row.accountant} gives {what}, which is no (eps, delta)-DP guarantee; these accountants give one: "
        f"{', '.join(rigorous_accountants())}"
    )


def rigorous_accountants() -> list[str]:
    """The accountants whose answers are rigorous bounds of (eps, delta)-DP."""
    modules = {name: registry.load("accountants", name) for name in registry.names("accountants")}
    return [name for name, module in modules.items() if module.NOTION == "approximate-dp" and module.CLAIM in RIGOROUS]


def with_warnings(row: Guarantee, warnings: list[str]) -> Guarantee:
    """The guarantee with more warnings after its own."""
    return replace(row, warnings=(*row.warnings, *warnings))


def _why_certain(process: Process) -> str:
    if any(math.isinf(log_finite(run)) for run in process.renyi_directions()):
        return (
            "a step has disjoint supports on neighbouring inputs, so that delta = 1 for every eps. Use a mechanism "
            "whose supports overlap"
        )
    log10 = min(log_finite(run) for run in process.renyi_directions()) / math.log(10)
    return (
        f"over all steps, outcomes that are possible on one neighbour only are almost certain: delta is at least "
        f"1 - 10^{log10:.4g} for every eps. Use a mechanism whose supports overlap, or fewer steps"
    )


def _why_infinite(row: Guarantee) -> str:
    revealed, delta = infinity_mass(row.process), row.delta.safe
    if revealed > delta:
        above = " > delta" if delta else ""
        return (
            f"no finite eps holds at delta = {delta:g}: the distinguishing events alone have {mass_text(revealed)}"
            f"{above}. Ask for a larger delta, or use a mechanism whose supports overlap"
        )
    if delta == 0:
        endless = [step.mechanism.name for step in row.process.steps if has_endless_loss(step.mechanism)]
        why = f"the privacy loss of {endless[0]} has no upper bound" if endless else "no largest privacy loss is known"
        return f"no finite eps holds at delta = 0 (pure DP): {why}. Give a `delta` above 0"
    if row.notion not in EPS_DELTA:
        return f"{row.accountant} has no finite {row.notion} eps here, at any delta. Use `accountant='pld'`"
    if row.accountant == "pld":
        return f"no finite eps was found at delta = {delta:g}. Add noise, or run fewer steps"
    return (
        f"no finite eps holds at delta = {delta:g} by {row.accountant}, whose bound never falls that low. "
        f"Raise `delta`, or use `accountant='pld'`"
    )


def has_endless_loss(mechanism: Mechanism) -> bool:
    """Tell whether the privacy loss of a mechanism has no upper bound, nor has that of its mixtures by sampling."""
    noise = mechanism.additive_noise()
    return noise is not None and noise.family == "gauss" and not noise.truncated


def infinity_mass(process: Process) -> float:
    """The probability of a distinguishing event (an infinite privacy loss) in some step, in the worse direction."""
    return max(-math.expm1(log_finite(run)) for run in process.renyi_directions())


def mass_text(mass: float, digits: int = 6) -> str:
    """A probability above 0 as text; of one that may have underflowed only a bound is known."""
    return f"probability {mass:.{digits}g}" if mass >= TINY else f"a probability above 0 (and below {TINY:g})"


def largest_loss(process: Process) -> float:
    """An upper bound of every privacy loss of a process, by addition over its steps.

    Infinite where some loss is infinite or has no bound, or only bounds of Renyi divergences are known. Parameters are
    the decimals that they are written as, and so is the sum: 3/10 is 0.3, and not the next double.
    """
    try:
        directions = process.directions()
    except Unsupported:
        return math.inf
    if any(pair.mass_at_plus_infinity > 0 for run in directions for pair, _ in run):
        return math.inf
    return max(_total([(n, max(_top(pair), 0)) for pair, n in run]) for run in directions)


def _total(terms: list[tuple[int, float | Fraction]]) -> float:
    total = total_up(terms)
    if math.isfinite(total):
        exact = sum(n * Fraction(x) for n, x in terms)
        total = float(exact) if decimal(float(exact)) == exact else total
    return total


def _top(pair: LossPair) -> float | Fraction:
    return pair.support[1] if pair.largest is None else pair.largest


PURE = "the largest privacy losses of all steps add up"
# relative distance from the end of a support within which losses are taken to have a positive probability
NEAR_TOP = 1e-13


def pure_epsilon(process: Process, claim: str) -> Bracket:
    """The bracket of eps at delta = 0: the sum of the largest losses of all steps, which bounds every composition.

    From below by losses of positive probability, each within ``NEAR_TOP`` of the largest one of its step, of the
    dominating pair, or of two data sets where that is a bound; 0 where none are known.

    Args:
        claim: of the curve; an upper bound has no lower end.
    """
    top = largest_loss(process)
    if math.isinf(top):
        return Bracket(math.inf, math.inf, math.inf)
    attained = alike(process) if is_bound_only(process) else process
    if claim == "upper-bound" or attained is None:
        return replace(Bracket.above(top), by=PURE)
    low = max(_attained_loss(run) for run in attained.directions())
    return Bracket(top, min(low, top), top, by=PURE)


def _attained_loss(run: WeightedPairs) -> float:
    """A sum of losses of the steps that each has a positive probability to exceed; 0 where none is known."""
    ends = sandwich(run, 1.0)
    losses = [(n, max(float(_top(pair)), 0.0) * (1 - NEAR_TOP), pair) for pair, n in (run if ends is None else ends[0])]
    if any(loss > 0 and not pair.tails(np.array([loss])).sf_p[0] > -math.inf for _, loss, pair in losses):
        return 0.0
    return math.fsum(n * loss for n, loss, _ in losses)


@dataclass(frozen=True)
class Refusal:
    """Why one accountant has no answer."""

    accountant: str
    reason: str


def answers(accountants: Iterable[str], ask: Callable[[str], Guarantee]) -> tuple[list[Guarantee], list[Refusal]]:
    """The answer to a question by each accountant that has one, and why the others have none."""
    rows, refused = [], []
    for name in accountants:
        try:
            rows.append(ask(name))
        except Unsupported as error:
            refused.append(Refusal(name, str(error)))
    return rows, refused
