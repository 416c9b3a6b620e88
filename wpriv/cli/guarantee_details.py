"""The lines below an answer: process, distance to the best, attacks, mu, and how the question was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.safe_rounding import echo, text
from wpriv.run.accounting import membership_figures

ORDERS = {
    "remove": 'attacks whose false positives are records called "in the data" that are not (order remove)',
    "add": 'attacks whose false positives are records called "not in the data" that are (order add)',
}
MAX_STEPS = 20  # lines of --explain and text output on the steps of a process


def details(row: Guarantee) -> list[str]:
    """Return lines on the steps, on how flags were read, and on the attacks that the guarantee bounds."""
    lines = steps_of(row.process)
    lines += [f"read as: {note}" for note in row.extra.get("reading", [])]
    return [
        *lines,
        *_distance_to_best(row),
        *_repeats(row),
        *_room(row),
        *_adaptivity(row),
        *_mu(row),
        *_attacks(row),
        *_classical_formulas(row),
    ]


def steps_of(process: Process) -> list[str]:
    """One line for each kind of step, up to ``MAX_STEPS``."""
    steps = process.describe()
    lines = [f"process: {_mechanism(step)}, n = {step['n']}, {_sampling(step)}" for step in steps[:MAX_STEPS]]
    hidden = len(steps) - len(lines)
    return [*lines, *([f"process: and {hidden} more kinds of step"] if hidden > 0 else [])]


def circumstances(process: Process) -> str:
    """Adjacency, sampling and number of compositions, in words."""
    steps = process.describe()
    kinds = list(dict.fromkeys(_sampling(step) for step in steps))
    sampling = kinds[0] if len(kinds) == 1 else f"{len(kinds)} different samplings"
    total = sum(step["n"] for step in steps)
    group = f" in groups of {process.group} records" if process.group > 1 else ""
    neighbours = f"{process.adjacency} neighbours{group}"
    parts = "" if len(steps) == 1 else f" in {len(steps)} kinds of step"
    size = f"n = {total} composition{'s' if total != 1 else ''}{parts}"
    return f"{neighbours}, {sampling}, {size}"


def _sampling(step: Mapping[str, Any]) -> str:
    if step["sampling"] == "none":
        return "no sampling"
    cut = f" in batches of at most {step['max_batch']}" if "max_batch" in step else ""
    return f"{step['sampling']} sampling at rate {step['rate']:.6g}{cut}"


def _mechanism(step: Mapping[str, Any]) -> str:
    """'gauss (sigma 4, sensitivity 1)' from the description of a step."""
    values = {
        k: v for k, v in step.items() if k not in ("mech", "n", "sampling", "rate", "max_batch") and v is not None
    }
    words = ", ".join(f"{k} {echo(v)}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
    return f"{step['mech']} ({words})"


def _mu(row: Guarantee) -> list[str]:
    """mu of Gaussian DP, where it is not the headline, and that of each order of the neighbours."""
    if "mu" not in row.extra:
        return []
    lines = []
    if row.extra["asked"] != "mu":
        lines.append(f"mu: {bounds_text(row.extra['mu_lower'], row.extra['mu_upper'])} at {range_words(row)}")
    orders = row.extra["mu_orders"]
    for order in orders if len(orders) > 1 else []:
        ends = bounds_text(order["mu_lower"], order["mu_upper"])
        lines.append(f"mu: {ends} for {ORDERS.get(order['order'], order['order'])}")
    return lines


def _attacks(row: Guarantee) -> list[str]:
    """Bounds on membership inference, and the published reading of eps where another notion has one."""
    lines = []
    if attack := row.extra.get("attack"):
        # of the best of K runs only upper bounds are known for a given score
        show = (lambda _, high: text(high, up=True)) if "repeats" in row.extra else bounds_text
        advantage = show(attack["advantage_lower"], attack["advantage_upper"])
        lines.append(f"attack: advantage over guessing (true- less false-positive rate) at most {advantage}")
        for point in attack["tpr_at_fpr"]:
            rate = show(point["tpr_lower"], point["tpr_upper"])
            lines.append(f"attack: true-positive rate at most {rate} at a false-positive rate of {echo(point['fpr'])}")
    if reading := row.extra.get("attack_reading"):
        paper, bound = text(reading["paper"], up=True), text(reading["bound"], up=True)
        lines.append(f"attack: chance of a right guess as the paper reads eps, 1/(1 + e^-eps): {paper}")
        lines.append(f"attack: what {row.notion} bounds: {bound} ({reading['why']})")
    return lines


def _classical_formulas(row: Guarantee) -> list[str]:
    """The noise that older formulas ask for, beside the calibrated one."""
    lines = []
    for other in row.extra.get("classical", []):
        parameter, smallest = (row.extra["calibrated"][key] for key in ("parameter", "value"))
        noise = other[parameter]
        value = "no value" if noise is None else f"{parameter} = {text(noise, up=True)}"
        validity = "" if other["valid"] else "NOT VALID HERE: "
        ratio = "" if noise is None else f"; {noise / smallest:.4g} times the least"
        lines.append(f"other formula: {value} by {other['formula']}; {validity}{other['note']}{ratio}")
    return lines


def _adaptivity(row: Guarantee) -> list[str]:
    """The figures of a history, with what each assumes of its parameters."""
    if "parameters" not in row.extra:
        return []
    from wpriv.run.accounting import adaptive_history

    return adaptive_history.lines(row.extra["parameters"])


def _repeats(row: Guarantee) -> list[str]:
    """What one run, and the release of all runs, would cost beside the best of K runs."""
    if "one_run" not in row.extra.get("repeats", {}):
        return []
    from wpriv.run.accounting import repeated_selection

    return repeated_selection.lines(row.extra["repeats"], answered(row)[0])


def _room(row: Guarantee) -> list[str]:
    """What a history has spent, and what fits behind it."""
    if "room" not in row.extra:
        return []
    from wpriv.run.accounting import spent_history

    return spent_history.lines(row.extra["room"])


def _distance_to_best(row: Guarantee) -> list[str]:
    """The distance of the calibrated value from the best one, if a value is known that misses the target."""
    calibrated = row.extra.get("calibrated")
    if (
        not calibrated
        or not calibrated["misses"]
        or not calibrated["within"]
        or row.extra.get("room", {}).get("accountant")
    ):
        return []
    best = "most" if "most" in calibrated else "least"
    misses = f"{calibrated['parameter']} = {calibrated['misses']:.13g} misses the target by {row.accountant}"
    within = text(calibrated["within"], up=True, digits=2)
    return [f"{best}: {misses}; {calibrated['value']:.13g} is within {within} (relative) of the {best}"]


def bracket_text(bracket: Bracket, limit: float | None = None) -> str:
    """Both ends, rounded outwards."""
    if bracket.lower is None or bracket.upper is None:
        return f"about {bracket.estimate:.6g}"
    return f"[{text(bracket.lower, up=False)}, {text(bracket.upper, up=True, limit=limit)}]"


def bounds_text(lower: float, upper: float) -> str:
    """The upper end, and both ends rounded outwards."""
    return f"{text(upper, up=True)} [{text(lower, up=False)}, {text(upper, up=True)}]"


def answered(row: Guarantee) -> tuple[str, Bracket]:
    """The name and the bracket of the quantity that was computed."""
    if row.extra.get("asked") == "mu":
        return "mu", membership_figures.mu_bracket(row)
    if row.extra.get("asked") == "tpr":
        return "TPR", membership_figures.true_positive_rate(row)
    return ("delta", row.delta) if row.extra.get("asked") == "delta" else ("eps", row.epsilon)


def range_words(row: Guarantee) -> str:
    """The tests for which mu holds."""
    fpr = row.extra["mu_fpr"]
    return f"every FPR >= {echo(fpr)} with FNR >= {echo(fpr)}" if fpr else "every FPR"
