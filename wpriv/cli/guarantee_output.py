"""Print guarantees: a headline in words, tables, JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wpriv.cli import output
from wpriv.core.guarantee import TINY, Bracket, Guarantee, unit_notes
from wpriv.files import csv_tables
from wpriv.numerics.safe_rounding import echo, text

TABLE_SCHEMA = "wpriv.table/1"
CSV_COLUMNS = (
    *("accountant", "notion", "claim", "epsilon", "epsilon_lower", "epsilon_upper"),
    *("delta", "delta_lower", "delta_upper", "adjacency", "process", "source", "warnings"),
)
CLAIMS = {
    "exact": "exact, by {by}",
    "certified": "certified by {by}",
    "upper-bound": "an upper bound by {by}, nothing known from below",
    "approximate": "APPROXIMATE by {by}, not a guarantee",
    "as-published": "as published ({by}), not an (eps, delta) guarantee",
}
MAX_STEPS = 20  # lines of --explain and text output on the steps of a process


def print_guarantee(row: Guarantee, mode: str, limit: float | None = None) -> None:
    """Print one guarantee; warnings go to standard error.

    Args:
        mode: text, json, csv or quiet. limit: as in ``headline``.
    """
    if mode == "text":
        output.emit_bold(headline(row, limit))
        for line in details(row):
            output.emit(line)
        _print_explanation(row)
    elif mode == "quiet":
        calibrated = row.extra.get("calibrated")
        output.emit(f"{calibrated['value']:.12g}" if calibrated else text(_answer(row)[1].safe, up=True, limit=limit))
    elif mode == "json":
        output.emit_json(row.as_dict())
    else:
        output.emit(_csv([row]))
    _print_warnings([row])


def print_guarantees(
    rows: Sequence[Guarantee], refused: Sequence[Mapping[str, str]], mode: str, limit: float | None = None
) -> None:
    """Print the answers of several accountants to one question.

    Args:
        refused: ``accountant`` and ``reason`` of those without an answer. mode, limit: as in ``print_guarantee``.
    """
    notes = unit_notes(row.notion for row in rows)
    if mode == "text":
        output.emit_bold(f"{_question(rows[0])}; {_circumstances(rows[0])}")
        output.emit(_comparison(rows, limit))
        for row in rows:
            _print_explanation(row)
    elif mode == "json":
        output.emit_rows([row.as_dict() for row in rows], TABLE_SCHEMA, refused=refused, notes=notes)
    else:
        output.emit(_csv(rows))
    for refusal in refused:
        output.say("note", f"{refusal['accountant']} has no answer: {refusal['reason']}")
    for note in notes:
        output.say("note", note)
    _print_warnings(rows)


def print_curve(rows: Sequence[Guarantee], mode: str) -> None:
    """Print a privacy curve, delta as a function of eps.

    Args:
        mode: text, json or csv.
    """
    if mode == "text":
        claim = CLAIMS[rows[0].claim].format(by=rows[0].accountant)
        output.emit_bold(f"delta over eps, {claim}; {_circumstances(rows[0])}")
        body = []
        for row in rows:
            lower = "" if row.delta.lower is None else text(row.delta.lower, up=False)
            body.append([echo(row.epsilon.safe), text(row.delta.safe, up=True), lower])
        output.emit(output.table(["eps", "delta", "delta_lower"], body))
    elif mode == "json":
        output.emit_rows([row.as_dict() for row in rows], TABLE_SCHEMA)
    else:
        output.emit(_csv(rows))
    output.warn(dict.fromkeys(line for row in rows for line in row.warnings))


def headline(row: Guarantee, limit: float | None = None) -> str:
    """Return one line: the answer, its claim and bracket, the adjacency, the sampling and the number of compositions.

    Args:
        limit: the bound on eps of ``--max-eps``; eps gets as many digits as show on which side of it eps lies.
    """
    bracket = _answer(row)[1]
    claim = CLAIMS[row.claim].format(by=row.accountant)
    if row.claim == "upper-bound" and bracket.lower:
        claim = f"an upper bound by {row.accountant}, and at least {text(bracket.lower, up=False)}"
    if row.claim == "certified":
        claim += f" to lie in {_bracket(bracket, limit)}"
    notion = "" if row.notion == "approximate-dp" else f" ({row.notion})"
    # a number too small for a double is known as a bound only, whatever the claim
    sign = "<=" if bracket.safe == TINY else "="
    answer = _question(row).replace(" at ", f" {sign} {text(bracket.safe, up=True, limit=limit)} at ", 1)
    return f"{_calibrated(row)}{answer}{notion}, {claim}; {_circumstances(row)}"


def details(row: Guarantee) -> list[str]:
    """Return lines on the steps, on how flags were read, and on the attacks that the guarantee bounds."""
    lines = [
        f"process: {_mechanism(step)}, n = {step['n']}, {_sampling(step)}"
        for step in row.process.describe()[:MAX_STEPS]
    ]
    hidden = len(row.process.steps) - len(lines)
    lines += [f"process: and {hidden} more kinds of step"] if hidden > 0 else []
    lines += [f"read as: {note}" for note in row.extra.get("reading", [])]
    return [*lines, *_distance_to_best(row), *_adaptivity(row), *_attacks(row), *_classical_formulas(row)]


def _calibrated(row: Guarantee) -> str:
    """'sigma = 3.73067 is enough: ', the result of a calibration, which stands before the guarantee there."""
    calibrated = row.extra.get("calibrated")
    if not calibrated:
        return ""
    words = "is enough" if "most" not in calibrated else "is the most" if calibrated["most"] else "is allowed"
    return f"{calibrated['parameter']} = {calibrated['value']:.12g} {words}: "


def _answer(row: Guarantee) -> tuple[str, Bracket]:
    """The name and the bracket of the quantity that was computed."""
    return ("delta", row.delta) if row.extra.get("asked") == "delta" else ("eps", row.epsilon)


def _question(row: Guarantee) -> str:
    """'eps at delta = 1e-05' or 'delta at eps = 3'."""
    name, _ = _answer(row)
    return f"delta at eps = {echo(row.epsilon.safe)}" if name == "delta" else f"eps at delta = {echo(row.delta.safe)}"


def _circumstances(row: Guarantee) -> str:
    """Adjacency, sampling and number of compositions, in words."""
    steps = row.process.describe()
    kinds = list(dict.fromkeys(_sampling(step) for step in steps))
    sampling = kinds[0] if len(kinds) == 1 else f"{len(kinds)} different samplings"
    total = sum(step["n"] for step in steps)
    group = f" in groups of {row.process.group} records" if row.process.group > 1 else ""
    neighbours = f"{row.process.adjacency} neighbours{group}"
    parts = "" if len(steps) == 1 else f" in {len(steps)} kinds of step"
    return f"{neighbours}, {sampling}, n = {total} composition{'s' if total != 1 else ''}{parts}"


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


def _attacks(row: Guarantee) -> list[str]:
    """Bounds on membership inference, and the published reading of eps where another notion has one."""
    lines = []
    if attack := row.extra.get("attack"):
        advantage = _bounds(attack["advantage_lower"], attack["advantage_upper"])
        lines.append(f"attack: advantage over guessing (true- less false-positive rate) at most {advantage}")
        for point in attack["tpr_at_fpr"]:
            rate = _bounds(point["tpr_lower"], point["tpr_upper"])
            lines.append(f"attack: true-positive rate at most {rate} at a false-positive rate of {point['fpr']:g}")
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


def _distance_to_best(row: Guarantee) -> list[str]:
    """The distance of the calibrated value from the best one, if a value is known that misses the target."""
    calibrated = row.extra.get("calibrated")
    if not calibrated or not calibrated["misses"] or not calibrated["within"]:
        return []
    best = "most" if "most" in calibrated else "least"
    misses = f"{calibrated['parameter']} = {calibrated['misses']:.12g} misses the target by {row.accountant}"
    within = text(calibrated["within"], up=True, digits=2)
    return [f"{best}: {misses}; {calibrated['value']:.12g} is within {within} (relative) of the {best}"]


def _bracket(bracket: Bracket, limit: float | None = None) -> str:
    """Both ends, rounded outwards."""
    if bracket.lower is None or bracket.upper is None:
        return f"about {bracket.estimate:.6g}"
    return f"[{text(bracket.lower, up=False)}, {text(bracket.upper, up=True, limit=limit)}]"


def _bounds(lower: float, upper: float) -> str:
    """The upper end, and both ends rounded outwards."""
    return f"{text(upper, up=True)} [{text(lower, up=False)}, {text(upper, up=True)}]"


def _comparison(rows: Sequence[Guarantee], limit: float | None = None) -> str:
    """Several accountants on one process as a table; notions that share no units get columns of their own."""
    notions = list(dict.fromkeys(row.notion for row in rows))
    name, _ = _answer(rows[0])
    columns = [name if notion == "approximate-dp" else f"{name} [{notion}]" for notion in notions]
    body = []
    for row in rows:
        cells = [_cell(_answer(row)[1], limit) if row.notion == notion else "" for notion in notions]
        body.append([row.accountant, row.claim, *cells, row.source])
    return output.table(["accountant", "claim", *columns, "source"], body)


def _cell(bracket: Bracket, limit: float | None) -> str:
    safe = text(bracket.safe, up=True, limit=limit)
    narrow = bracket.lower is None or bracket.lower in (0.0, bracket.upper)
    return safe if narrow else f"{safe} {_bracket(bracket, limit)}"


def _csv(rows: Sequence[Guarantee]) -> str:
    """A header and one line for each row; the process is JSON in one cell."""
    body = []
    for row in rows:
        data = output.plain(row.as_dict())
        body.append(data | {"process": json.dumps(data["process"]), "warnings": "; ".join(data["warnings"])})
    return csv_tables.to_text(CSV_COLUMNS, body).rstrip("\n")


def _print_explanation(row: Guarantee) -> None:
    if "explain" in row.extra:
        from wpriv.run.accounting.explain import lines

        for line in lines(row.extra["explain"]):
            output.emit(line)


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
