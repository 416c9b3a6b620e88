"""Print guarantees: a headline in words with details below it, tables, JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wpriv.accounting import membership_figures
from wpriv.accounting.build_process import DescribedProcess
from wpriv.accounting.plausibility import runs_in_advance
from wpriv.cli import output
from wpriv.core.guarantee import Guarantee, unit_notes
from wpriv.core.process import Process
from wpriv.files import csv_tables
from wpriv.files.durable_writes import plain
from wpriv.numerics.bracket import TINY, Bracket
from wpriv.numerics.numbers import echo, text

TABLE_SCHEMA = "wpriv.table/1"
CSV_COLUMNS = (
    *("accountant", "notion", "claim", "epsilon", "epsilon_lower", "epsilon_upper"),
    *("delta", "delta_lower", "delta_upper", "adjacency", "process", "source", "warnings"),
)
MU_COLUMNS = ("mu", "mu_lower", "mu_upper", "mu_fpr")
CLAIMS = {
    "exact": "exact, by {by}",
    "certified": "certified by {by}",
    "upper-bound": "an upper bound by {by}, nothing known from below",
    "approximate": "APPROXIMATE by {by}, not a guarantee",
    "as-published": "as published ({by}), not an (eps, delta) guarantee",
}
ORDERS = {
    "remove": 'attacks whose false positives are records called "in the data" that are not (order remove)',
    "add": 'attacks whose false positives are records called "not in the data" that are (order add)',
}
MAX_STEPS = 20  # lines of --explain and text output on the steps of a process


def print_guarantee(row: Guarantee, mode: str, limit: float | None = None) -> None:
    """Print one guarantee; warnings go to standard error.

    Args:
        mode: text, json, csv or quiet. limit: as in ``headline``.
    """
    if mode == "quiet":
        calibrated = row.extra.get("calibrated")
        output.emit(f"{calibrated['value']:.13g}" if calibrated else text(answered(row)[1].safe, up=True, limit=limit))
    elif mode == "json":
        output.emit_json(row.as_dict())
    else:
        _print([row], [headline(row, limit), *details(row), *_explanation(row)], mode)
    _print_warnings([row])


def print_guarantees(
    rows: Sequence[Guarantee], refused: Sequence[Mapping[str, str]], mode: str, limit: float | None = None
) -> None:
    """Print the answers of several accountants to one question.

    Args:
        refused: ``accountant`` and ``reason`` of those without an answer. mode, limit: as in ``print_guarantee``.
    """
    notes = unit_notes(row.notion for row in rows)
    first = next((row for row in rows if "order" not in row.extra), rows[0])
    readings = _read_as(dict.fromkeys(note for row in rows for note in row.extra.get("reading", [])))
    explained = [line for row in rows for line in _explanation(row)]
    lines = [f"{_question(first)}; {_circumstances(first)}", *readings, _comparison(rows, limit), *explained]
    _print(rows, lines, mode, refused=refused, notes=notes)
    output.say("note", *(f"{each['accountant']} has no answer: {each['reason']}" for each in refused), *notes)
    _print_warnings(rows)


def print_curve(rows: Sequence[Guarantee], mode: str) -> None:
    """Print a privacy curve, delta as a function of eps.

    Args:
        mode: text, json or csv.
    """
    first = rows[0]
    claim = CLAIMS[first.claim].format(by=first.accountant)
    if first.claim == "upper-bound" and any(row.delta.lower for row in rows):
        claim = f"an upper bound by {first.accountant}, and a lower one"
    body = []
    for row in rows:
        lower = "" if row.delta.lower is None else text(row.delta.lower, up=False)
        body.append([echo(row.epsilon.safe), text(row.delta.safe, up=True), lower])
    readings, curve = _read_as(first.extra["reading"]), output.table(["eps", "delta", "delta_lower"], body)
    _print(rows, [f"delta over eps, {claim}; {_circumstances(first)}", *readings, curve], mode)
    output.warn(dict.fromkeys(line for row in rows for line in row.warnings))


def print_trade_off(rows: Sequence[Mapping[str, Any]], described: DescribedProcess, accountant: str, mode: str) -> None:
    """Print points of a trade-off curve: the least false-negative rate of any attack at each false-positive rate.

    Args:
        rows: as of ``trade_off_rows``. mode: text, json or csv.
    """
    columns, process = list(rows[0]), described.process
    if mode == "text":
        mu = f"mu-GDP at mu = {text(rows[0]['mu_upper'], up=True)}" if rows[0]["gauss"] is not None else "no finite mu"
        curve = f"false-negative rate of the best attack over its false-positive rate, bounded by {accountant}"
        shown = [name for name in columns if not name.startswith("mu_")]
        body = [[_rate(name, row[name]) for name in shown] for row in rows]
        title = f"{curve}; gauss is {mu}; {circumstances(process)}"
        output.emit_bold(title, *_read_as(described.notes), output.table(shown, body))
    elif mode == "json":
        relation = {"adjacency": process.adjacency, "group": process.group}
        about = {"accountant": accountant, **relation, "process": process.describe()}
        output.emit_rows([{**about, **row} for row in rows], TABLE_SCHEMA)
    else:
        output.emit(csv_tables.to_text(columns, [plain(row) for row in rows]).rstrip("\n"))
    output.warn([*process.caveats(), *runs_in_advance(described, accountant)])


def _print(rows: Sequence[Guarantee], lines: Sequence[str], mode: str, **more: object) -> None:
    """Print lines as text, or rows as JSON, with ``more`` beside them, or as CSV."""
    if mode == "text":
        output.emit_bold(*lines)
    elif mode == "json":
        output.emit_rows([row.as_dict() for row in rows], TABLE_SCHEMA, **more)
    else:
        output.emit(_csv(rows))


def _read_as(notes: Iterable[str]) -> list[str]:
    """How flags were read, one line each."""
    return [f"read as: {note}" for note in notes]


def _rate(name: str, value: float | None) -> str:
    return "" if value is None else text(value, up=name.endswith("_upper") or name == "fpr")


def headline(row: Guarantee, limit: float | None = None) -> str:
    """Return one line: the answer, its claim and bracket, the adjacency, the sampling and the number of compositions.

    Args:
        limit: the bound on eps of ``--max-eps``; eps gets as many digits as show on which side of it eps lies.
    """
    bracket = answered(row)[1]
    claim = CLAIMS[row.claim].format(by=row.accountant)
    if row.claim == "upper-bound" and bracket.lower:
        claim = f"an upper bound by {row.accountant}, and at least {text(bracket.lower, up=False)}"
    if row.claim == "certified":
        claim += f" to lie in {bracket_text(bracket, limit)}"
    notion = "" if row.notion == "approximate-dp" or "order" in row.extra else f" ({row.notion})"
    # a number too small for a double is known as a bound only, whatever the claim
    sign = "<=" if bracket.safe == TINY else "="
    name, *at = _question(row).partition(" at ")
    answer = f"{name} {sign} {text(bracket.safe, up=True, limit=limit)}{''.join(at)}"
    return f"{_calibrated(row)}{answer}{notion}, {claim}; {_circumstances(row)}"


def _calibrated(row: Guarantee) -> str:
    """'sigma = 3.73067 is enough: ', the result of a calibration, which stands before the guarantee there."""
    calibrated = row.extra.get("calibrated")
    if not calibrated:
        return ""
    words = "is enough" if "most" not in calibrated else "is the most" if calibrated["most"] else "is allowed"
    return f"{calibrated['parameter']} = {calibrated['value']:.13g} {words}: "


def _question(row: Guarantee) -> str:
    """'eps at delta = 1e-05', 'delta at eps = 3', 'mu at every FPR >= 1e-09 ...', 'TPR at FPR = 0.01' or
    'Renyi divergence of order 8'."""
    if "order" in row.extra:
        return f"Renyi divergence of order {echo(row.extra['order'])}"
    name, _ = answered(row)
    if name == "mu":
        return f"mu at {range_words(row)}"
    if name == "TPR":
        return f"TPR at FPR = {echo(row.extra['attack']['tpr_at_fpr'][0]['fpr'])}"
    return f"delta at eps = {echo(row.epsilon.safe)}" if name == "delta" else f"eps at delta = {echo(row.delta.safe)}"


def _circumstances(row: Guarantee) -> str:
    chosen = row.extra.get("repeats")
    runs = f", the best of K runs ({chosen['kind']}, mean {chosen['mean']:g})" if chosen else ""
    return circumstances(row.process) + runs


def _comparison(rows: Sequence[Guarantee], limit: float | None = None) -> str:
    """Several accountants on one process as a table; notions that share no units get columns of their own."""
    notions = list(dict.fromkeys(row.notion for row in rows))
    name, _ = answered(rows[0])
    columns = [name if notion == "approximate-dp" else f"{name} [{notion}]" for notion in notions]
    body = []
    for row in rows:
        cells = [_cell(row, limit) if row.notion == notion else "" for notion in notions]
        body.append([row.accountant, row.claim, *cells, row.source])
    return output.table(["accountant", "claim", *columns, "source"], body)


def _cell(row: Guarantee, limit: float | None) -> str:
    """The safe end, and the bracket unless it is as wide as roundings or has no lower end."""
    bracket = answered(row)[1]
    safe = text(bracket.safe, up=True, limit=limit)
    is_alone = row.claim == "exact" or bracket.lower in (None, 0.0, bracket.upper)
    return safe if is_alone else f"{safe} {bracket_text(bracket, limit)}"


def _csv(rows: Sequence[Guarantee]) -> str:
    """A header and one line for each row; the process is JSON in one cell."""
    columns = CSV_COLUMNS + (("group",) if any(row.process.group > 1 for row in rows) else ())
    columns += MU_COLUMNS if any("mu" in row.extra for row in rows) else ()
    body = []
    for row in rows:
        data = plain(row.as_dict())
        body.append(data | {"process": json.dumps(data["process"]), "warnings": "; ".join(data["warnings"])})
    return csv_tables.to_text(columns, body).rstrip("\n")


def _explanation(row: Guarantee) -> list[str]:
    if "explain" not in row.extra:
        return []
    from wpriv.accounting import basis

    return basis.lines(row.extra["explain"])


def _print_warnings(rows: Sequence[Guarantee]) -> None:
    """Print warnings that all rows share once, and the others with the name of their accountant."""
    first = dict.fromkeys(rows[0].warnings)
    shared = [line for line in first if len(rows) > 1 and all(line in row.warnings for row in rows)]
    output.warn(shared)
    for row in rows:
        for line in row.warnings:
            if line not in shared:
                named = len(rows) == 1 or line.startswith(row.accountant)
                output.say("warning", line if named else f"{row.accountant}: {line}")


def details(row: Guarantee) -> list[str]:
    """Return lines on the steps, on how flags were read, and on the attacks that the guarantee bounds."""
    extra = row.extra
    lines = [*steps_of(row.process), *_read_as(extra.get("reading", [])), *_distance_to_best(row)]
    # the modules of rare answers load where there is one
    if "one_run" in extra.get("repeats", {}):
        from wpriv.accounting import repeated_selection

        lines += repeated_selection.lines(extra["repeats"], answered(row)[0])
    if "room" in extra:
        from wpriv.accounting import spent_history

        lines += spent_history.lines(extra["room"])
    if "parameters" in extra:
        from wpriv.accounting import adaptive_history

        lines += adaptive_history.lines(extra["parameters"])
    return [*lines, *_mu(row), *_attacks(row), *_classical_formulas(row)]


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


def _sampling(step: Mapping[str, object]) -> str:
    if step["sampling"] == "none":
        return "no sampling"
    cut = f" in batches of at most {step['max_batch']}" if "max_batch" in step else ""
    return f"{step['sampling']} sampling at rate {step['rate']:.6g}{cut}"


def _mechanism(step: Mapping[str, object]) -> str:
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


def _distance_to_best(row: Guarantee) -> list[str]:
    """The distance of the calibrated value from the best one, if a value is known that misses the target."""
    calibrated = row.extra.get("calibrated") or {"misses": None}
    if not (calibrated["misses"] and calibrated["within"]) or row.extra.get("room", {}).get("accountant"):
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
