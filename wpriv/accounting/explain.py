"""Explain a guarantee: formula, theorem, assumptions, interpretation of each argument, and privacy loss class."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from wpriv.accounting import build_process, evaluate, membership_figures
from wpriv.accounting.adaptive_history import FILTER, GAUSS, is_unsampled_gaussian, kept
from wpriv.accounting.budget import ATTACK_FACTOR
from wpriv.core import registry
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.kinds import PASSES, Adjacency
from wpriv.core.loss_moments import loss_class
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.numbers import echo, text

if TYPE_CHECKING:
    from wpriv.results.model import Figure, Releases, Reports

SAMPLING = {
    "poisson": "every step must draw each record independently with probability `rate`; shuffled or fixed batches are "
    "not covered",
    "fixed": "every step must draw a fresh batch of a fixed number of records (rate x records; with groups, of each "
    "group by itself) without replacement; shuffled epochs are not covered",
    "allocation": "every record must draw, by itself and afresh in each pass of 1 / rate steps, the one step it takes "
    "part in; shuffled batches of equal size are not covered",
    "shuffle": "every record must be in exactly one of the 1 / rate batches of each pass, in an order that does not "
    "depend on what the records hold; upper end: one release without sampling for each pass; lower end: the power of "
    "tests where all other records contribute -1, and the one +1 or nothing (after Chua et al. 2024, arXiv 2403.17673)",
}

FRESH = "every step draws fresh noise"
# Rogers, Roth, Ullman, Vadhan (2016) distinguish the two; Feldman, Zrnic (2021) have a filter for adaptive parameters
ADAPTIVE = (
    "each query may be chosen after seeing earlier outputs, but its noise, sampling rate and sensitivity, and the "
    "number of steps, must be fixed before the first one: a run whose length or noise depends on outputs, such as one "
    "more run after looking at the first, is not covered"
)
FILTERED = (
    "each query, its noise, its sampling rate and the number of steps may be chosen after seeing earlier outputs, by a "
    "rule under which {what} never exceeds its value for these steps, whatever the outputs"
)
BEST = (
    "only the best run is released, by a score that the run itself reveals or that uses no private records; the number "
    "of runs is drawn at random, and nobody learns it, nor the other runs"
)
# stopping as soon as the loss exceeds eps, for example, keeps it there
UNSEEN = (
    "every query, its noise, its sampling rate and the number of steps must be fixed before the first one: where they "
    "are chosen after seeing earlier outputs, the privacy loss can exceed eps more often"
)
FIXED = "every step was fixed in advance: budgets of adaptively chosen steps do not add up"


def explain(row: Guarantee) -> dict[str, object]:
    """Collect what a guarantee rests on, as plain data (``lines`` formats it).

    Returns:
        ``formula`` (of the accountant), ``sources``, ``assumptions``, ``reading`` (each argument in words), and
        ``loss_class``: per step and direction the mean, variance and third absolute central moment (nats and their
        powers) of the finite privacy loss, and its mass at infinity.
    """
    process = row.process
    module = registry.load("accountants", row.accountant)
    sources = [f"{row.accountant}: {row.source}"]
    sources += [
        f"{step.mechanism.name}: {step.mechanism.citation()}" for step in process.steps if step.mechanism.citation()
    ]
    kinds = dict.fromkeys(step.sampling.kind for step in process.steps)
    assumptions = [_neighbours(process), FRESH, _chosen(row)]
    assumptions += [BEST] if "repeats" in row.extra else []
    # what every answer says stands under "reading"
    premises = [premise.sentence for premise in process.premises() if not premise.shown]
    return {
        "formula": getattr(module, "EXPLAIN", row.source),
        "sources": list(dict.fromkeys(sources)),
        "assumptions": [*assumptions, *(SAMPLING[kind] for kind in kinds if kind in SAMPLING), *premises],
        "reading": [
            *row.extra.get("reading", []),
            *dict.fromkeys(line for step in process.steps for line in _reading(step, process.group)),
        ],
        "loss_class": _classes(process),
    }


def _neighbours(process: Process) -> str:
    """The assumption about which data sets are neighbours."""
    meaning = Adjacency(process.adjacency).meaning
    if process.group == 1:
        return meaning
    return f"{meaning}; here they differ so in up to {process.group} records, those of one person"


def _chosen(row: Guarantee) -> str:
    """The assumption about which parameters may depend on earlier outputs."""
    if row.accountant == "wdp":
        return FIXED
    if row.notion == "probabilistic-dp":
        return UNSEEN
    if (row.notion, row.claim) == ("approximate-dp", "exact") and is_unsampled_gaussian(row.process):
        return FILTERED.format(what=kept(GAUSS, row.process))
    return FILTERED.format(what=kept(FILTER, row.process)) if row.accountant == FILTER else ADAPTIVE


def _reading(step: Step, group: int) -> list[str]:
    noise = step.mechanism.additive_noise()
    lines = [f"n = {step.n} is the number of compositions (releases, steps), not of records"]
    if noise is not None and noise.is_textbook("gauss"):
        lines.append(
            f"sigma = {echo(noise.scale)} is the standard deviation of the noise; with sensitivity "
            f"{echo(noise.sensitivity)} the noise multiplier (sigma / sensitivity) is "
            f"{noise.scale / noise.sensitivity:g}"
        )
    elif noise is not None and noise.family == "laplace":
        # in a full batch a record takes the place of another
        moved = noise.sensitivity * group * (2 if step.sampling.max_batch else 1)
        finite = " where it is finite" if noise.truncated else ""
        lines.append(
            f"scale = {echo(noise.scale)} is the Laplace b; with sensitivity {echo(noise.sensitivity)} one release has "
            f"a privacy loss of at most {moved / noise.scale:g}{finite}"
        )
    if step.sampling.kind != "none":
        lines.append(
            f"rate = {step.sampling.rate:.6g} is the probability that a record takes part in a step "
            f"({step.sampling.kind} sampling)"
        )
    return lines


def _classes(process: Process) -> list[dict[str, object]]:
    rows = []
    directions = process.renyi_directions()
    # the loss of a pass is known between two others only
    unknown = [step.mechanism.renyi_bound() is not None or step.sampling.kind in PASSES for step in process.steps]
    names = ["remove", "add"] if process.adjacency == Adjacency.ADD_REMOVE else ["P over Q", "Q over P"]
    orders = ["both"] if len(directions) == 1 else names
    for order, run in zip(orders, directions, strict=True):
        for place, (pair, n) in enumerate(run, start=1):
            if unknown[place - 1]:
                continue
            c = loss_class(pair)
            moments = {"mean": c.mean, "variance": c.variance, "third": c.third, "infinity": c.mass_at_plus_infinity}
            rows.append({"step": place, "order": order, "n": n, **moments})
    return rows


def lines(explanation: dict[str, Any]) -> list[str]:
    """Format an explanation as text, section by section."""
    out = ["formula", *(f"  {line.strip()}" for line in explanation["formula"].splitlines())]
    for name in ("sources", "assumptions", "reading"):
        out += [name, *(f"  {line}" for line in explanation[name])]
    if explanation["loss_class"]:
        moments = "mean, variance, third absolute central moment, mass at infinity"
        out.append(f"privacy loss class of one composition (nats): {moments}")
    for c in explanation["loss_class"]:
        numbers = ", ".join(f"{c[key]:.6g}" for key in ("mean", "variance", "third", "infinity"))
        out.append(f"  step {c['step']} (n = {c['n']}, order {c['order']}): {numbers}")
    return out


# What an (eps, delta) guarantee says of an attacker who tests whether a record was used.

RATES = (*membership_figures.RATES, 0.1)
DIGITS = 4
ROUNDING = 1e-12  # relative errors of the formulas below lie far under it


def most_true_positives(eps: float, delta: float, fpr: float) -> float:
    """Bound the true-positive rate of every test with some false-positive rate, under (eps, delta)-DP.

    Both orders of the neighbours bound it: TPR <= e^eps FPR + delta, and 1 - FPR <= e^eps (1 - TPR) + delta.

    Args:
        eps, delta: of the guarantee, which holds for both orders. fpr: in [0, 1].
    Returns:
        The smaller of both bounds, in [0, 1]; attained by a mechanism with this very guarantee.
    Source:
        Kairouz, Oh, Viswanath (2015), Theorem 2.1 and Section 2.

    >>> most_true_positives(0.0, 0.1, 0.01)
    0.11
    """
    first = math.exp(min(eps, 700.0)) * fpr + delta
    second = 1 - math.exp(-eps) * max(0.0, 1 - fpr - delta)
    return min(1.0, first, second)


def of_statement(source: Releases | Reports, row: Figure) -> list[str]:
    """Return the reading of a guarantee in sentences, numbers rounded up.

    The figures are those of the privacy curve of what ran, as ``wpriv budget`` prints them; those of the pair of eps
    and delta alone where the statement does not describe that process, or pld refuses it.

    Args:
        source: the part of a statement that has the guarantee. row: the guarantee.
    """
    eps, delta = float(row.epsilon), float(row.delta)
    advantage = min(1.0, (math.expm1(min(eps, 700.0)) + 2 * delta) / (math.exp(min(eps, 700.0)) + 1))
    margin = ROUNDING if eps else 0.0
    rates = {rate: most_true_positives(eps, delta, rate) for rate in RATES}
    curve = _curve(source, row)
    if curve is None:
        origin = "These follow from this one pair of eps and delta; the whole privacy curve gives at most as much."
    else:
        bounds = [membership_figures.attack_bounds(curve), membership_figures.attack_bounds(curve, RATES[-1:])]
        points = [point for each in bounds if each for point in each["tpr_at_fpr"]]
        advantage = min([advantage, *(each["advantage_upper"] for each in bounds if each)])
        rates |= {point["fpr"]: min(rates[point["fpr"]], point["tpr_upper"]) for point in points}
        origin = f"These are certified by {curve.accountant} from the whole privacy curve of what ran."
    sentences = [
        f"A test with a false-positive rate of {100 * rate:g}% has a true-positive rate of at most "
        f"{_percent(most, margin)}."
        for rate, most in rates.items()
    ]
    return [
        "Whoever knows two neighbouring data sets, and guesses at even odds which of them was used, is right with a "
        f"probability of at most {_percent((1 + advantage) / 2, margin)}; guessing is right with 50%.",
        *sentences,
        origin,
    ]


def _curve(source: Releases | Reports, row: Figure) -> Curve | None:
    """The privacy curve of the process of a guarantee; None of the best of several runs, and where it is not known."""
    if source.tuning is not None:
        return None
    group = source.group if source.group > 1 else None
    records = source.delta.records if group and source.delta else None
    try:
        process = build_process.process(row.process, source.adjacency, group=group, records=records)
        curve = evaluate.curve(
            process, "pld", min(ATTACK_FACTOR * evaluate.answer_tol(process), membership_figures.WIDEST_TOL)
        )
    except (Unsupported, UsageError):
        return None
    return curve if curve.notion == "approximate-dp" and curve.claim in ("exact", "certified") else None


def _percent(share: float, margin: float) -> str:
    """A share in percent, rounded up and before by a margin for the errors of its computation."""
    return f"{text(min(100.0, 100 * share * (1 + margin)), up=True, digits=DIGITS)}%"
