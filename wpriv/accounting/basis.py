"""What a guarantee rests on (``--explain``): formula, theorem, assumptions, each argument in words, loss class."""

from __future__ import annotations

from typing import Any

from wpriv.accounting.adaptive_history import FILTER, GAUSS, is_unsampled_gaussian, kept
from wpriv.core import registry
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import PASSES, Adjacency
from wpriv.core.loss_moments import loss_class
from wpriv.core.process import Process, Step
from wpriv.numerics.numbers import echo

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
    formula = getattr(module, "EXPLAIN", row.source)
    return {
        "formula": getattr(module, "EXPLAIN_EXACT", formula) if row.claim == "exact" else formula,
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
