"""Print guarantees: a headline in words, tables, JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wpriv.cli import output
from wpriv.cli.guarantee_details import answered, bracket_text, circumstances, details, range_words
from wpriv.core.guarantee import Guarantee, unit_notes
from wpriv.files import csv_tables
from wpriv.files.json_values import plain
from wpriv.numerics.bracket import TINY
from wpriv.numerics.safe_rounding import echo, text
from wpriv.run.accounting.build_process import DescribedProcess
from wpriv.run.accounting.plausibility import runs_in_advance

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
        output.emit(f"{calibrated['value']:.13g}" if calibrated else text(answered(row)[1].safe, up=True, limit=limit))
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
        first = next((row for row in rows if "order" not in row.extra), rows[0])
        output.emit_bold(f"{_question(first)}; {_circumstances(first)}")
        _emit_notes(list(dict.fromkeys(note for row in rows for note in row.extra.get("reading", []))))
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
        if rows[0].claim == "upper-bound" and any(row.delta.lower for row in rows):
            claim = f"an upper bound by {rows[0].accountant}, and a lower one"
        output.emit_bold(f"delta over eps, {claim}; {_circumstances(rows[0])}")
        _emit_notes(rows[0].extra["reading"])
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


def print_trade_off(rows: Sequence[Mapping[str, Any]], described: DescribedProcess, accountant: str, mode: str) -> None:
    """Print points of a trade-off curve: the least false-negative rate of any attack at each false-positive rate.

    Args:
        rows: as of ``trade_off_rows``. mode: text, json or csv.
    """
    columns, process = list(rows[0]), described.process
    if mode == "text":
        mu = f"mu-GDP at mu = {text(rows[0]['mu_upper'], up=True)}" if rows[0]["gauss"] is not None else "no finite mu"
        output.emit_bold(
            f"false-negative rate of the best attack over its false-positive rate, bounded by {accountant}; "
            f"gauss is {mu}; {circumstances(process)}"
        )
        _emit_notes(described.notes)
        shown = [name for name in columns if not name.startswith("mu_")]
        body = [[_rate(name, row[name]) for name in shown] for row in rows]
        output.emit(output.table(shown, body))
    elif mode == "json":
        relation = {"adjacency": process.adjacency, "group": process.group}
        about = {"accountant": accountant, **relation, "process": process.describe()}
        output.emit_rows([{**about, **row} for row in rows], TABLE_SCHEMA)
    else:
        output.emit(csv_tables.to_text(columns, [plain(row) for row in rows]).rstrip("\n"))
    output.warn([*process.caveats(), *runs_in_advance(described, accountant)])


def _emit_notes(notes: Sequence[str]) -> None:
    """Print how flags were read, one line each."""
    for note in notes:
        output.emit(f"read as: {note}")


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
