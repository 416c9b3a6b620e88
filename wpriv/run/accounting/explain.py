"""How an answer came about: formula, theorem, assumptions, how each argument was read, and the privacy loss class."""

from __future__ import annotations

from typing import Any

from wpriv.core import registry
from wpriv.core.adjacency import Adjacency
from wpriv.core.guarantee import Guarantee
from wpriv.core.loss_moments import loss_class
from wpriv.core.process import Process, Step
from wpriv.numerics.safe_rounding import echo
from wpriv.run.accounting.adaptive_history import is_unsampled_gaussian

SAMPLING = {
    "poisson": "every step must draw each record by itself with probability `rate`; shuffled or fixed batches are not covered",
    "fixed": "every step must draw a batch of exactly rate x records afresh, without replacement; shuffled epochs are not covered",
}

FRESH = "every step draws fresh noise"
# Rogers, Roth, Ullman, Vadhan (2016) distinguish the two; Feldman, Zrnic (2021) have a filter for parameters that are chosen as one goes
ADAPTIVE = (
    "each query may be chosen after seeing earlier outputs, but its noise, sampling rate and sensitivity, and the number of steps, must be "
    "fixed before the first one: a run whose length or noise was chosen by what came out, such as one more run after a look at the first, "
    "is not covered"
)
FILTERED = (
    "each query, its noise, its sampling rate and the number of steps may be chosen after seeing earlier outputs, by a rule under "
    "which {what} never exceeds what it is for these steps, whatever the outputs"
)
FIXED = "every step was fixed in advance: budgets of steps chosen by earlier outputs do not add up"


def explain(row: Guarantee) -> dict[str, Any]:
    """Everything behind one answer, as plain data (``lines`` makes text of it).

    Returns:
        ``formula`` (of the accountant), ``sources``, ``assumptions``, ``reading`` (each argument in words), and ``loss_class``:
        per step and per order of the neighbours mean, variance, third absolute central moment (nats and their powers) of the
        finite privacy loss and its mass at infinity.
    """
    process = row.process
    module = registry.load("accountants", row.accountant)
    sources = [f"{row.accountant}: {row.source}"]
    sources += [
        f"{step.mechanism.name}: {step.mechanism.citation()}" for step in process.steps if step.mechanism.citation()
    ]
    kinds = dict.fromkeys(step.sampling.kind for step in process.steps)
    assumptions = [Adjacency(process.adjacency).meaning, FRESH, _chosen(row)]
    return {
        "formula": getattr(module, "EXPLAIN", row.source),
        "sources": list(dict.fromkeys(sources)),
        "assumptions": assumptions + [SAMPLING[kind] for kind in kinds if kind in SAMPLING],
        "reading": [
            *row.extra.get("reading", []),
            *dict.fromkeys(line for step in process.steps for line in _reading(step)),
        ],
        "loss_class": _classes(process),
    }


def _chosen(row: Guarantee) -> str:
    """What may depend on earlier outputs."""
    if row.notion == "wdp":
        return FIXED
    sums = {"rdp-filter": "this figure", "basic": "the sum of eps, or of delta, of the single steps"}
    if row.accountant in ("pld", "gdp") and is_unsampled_gaussian(row.process):
        return FILTERED.format(what="the sum of (sensitivity / sigma)^2")
    return FILTERED.format(what=sums[row.accountant]) if row.accountant in sums else ADAPTIVE


def _reading(step: Step) -> list[str]:
    noise = step.mechanism.additive_noise()
    lines = [f"n = {step.n} is the number of compositions (releases, steps), not of records"]
    if noise is not None and noise.is_textbook("gauss"):
        lines.append(
            f"sigma = {echo(noise.scale)} is the standard deviation of the noise; with sensitivity {echo(noise.sensitivity)} "
            f"the noise multiplier (sigma / sensitivity) is {noise.scale / noise.sensitivity:g}"
        )
    elif noise is not None and noise.family == "laplace":
        lines.append(
            f"scale = {echo(noise.scale)} is the Laplace b; with sensitivity {echo(noise.sensitivity)} one release has a loss of at "
            f"most {noise.sensitivity / noise.scale:g}"
        )
    if step.sampling.kind != "none":
        lines.append(
            f"rate = {step.sampling.rate:.6g} is the chance that a record takes part in a step ({step.sampling.kind} sampling)"
        )
    return lines


def _classes(process: Process) -> list[dict[str, Any]]:
    rows = []
    runs = process.directions()
    names = ["remove", "add"] if process.adjacency == Adjacency.ADD_REMOVE else ["P over Q", "Q over P"]
    orders = ["both"] if len(runs) == 1 else names
    for order, run in zip(orders, runs, strict=True):
        for place, (pair, n) in enumerate(run, start=1):
            c = loss_class(pair)
            rows.append(
                {
                    "step": place,
                    "order": order,
                    "n": n,
                    "mean": c.mean,
                    "variance": c.variance,
                    "third": c.third,
                    "infinity": c.mass_at_plus_infinity,
                }
            )
    return rows


def lines(found: dict[str, Any]) -> list[str]:
    """The explanation as text, section by section."""
    out = ["formula", *(f"  {line.strip()}" for line in found["formula"].splitlines())]
    for name in ("sources", "assumptions", "reading"):
        out += [name, *(f"  {line}" for line in found[name])]
    out.append(
        "privacy loss class of one composition (nats): mean, variance, third absolute central moment, mass at infinity"
    )
    for c in found["loss_class"]:
        numbers = ", ".join(f"{c[key]:.6g}" for key in ("mean", "variance", "third", "infinity"))
        out.append(f"  step {c['step']} (n = {c['n']}, order {c['order']}): {numbers}")
    return out
