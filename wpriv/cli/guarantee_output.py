"""Guarantees on the screen: a headline in words, tables, JSON and CSV. Only colour depends on the terminal, never the format."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from wpriv.cli.flags import as_flags
from wpriv.core.guarantee import TINY, Bracket, Guarantee, unit_notes
from wpriv.files import csv_tables
from wpriv.numerics.safe_rounding import echo, text

TABLE_SCHEMA = "wpriv.table/1"
CSV_COLUMNS = (
    "accountant", "notion", "claim", "epsilon", "epsilon_lower", "epsilon_upper", "delta", "delta_lower", "delta_upper", "adjacency",
    "process", "source", "warnings",
)  # fmt: skip
CLAIMS = {
    "exact": "exact, by {by}",
    "certified": "certified by {by}",
    "upper-bound": "an upper bound by {by}, nothing known from below",
    "approximate": "APPROXIMATE by {by}, not a guarantee",
    "as-published": "as published ({by}), not an (eps, delta) guarantee",
}


def headline(row: Guarantee, limit: float | None = None) -> str:
    """One line: the answer, its claim and bracket, the neighbouring relation, the sampling, and how n was read.

    Args:
        limit: what eps is held against (``--max-eps``): it is shown with as many digits as keep it on its side.
    """
    found = unknown(row)[1]
    claim = CLAIMS[row.claim].format(by=row.accountant)
    if row.claim == "upper-bound" and found.lower:
        claim = f"an upper bound by {row.accountant}, and at least {text(found.lower, up=False)}"
    if row.claim == "certified":
        claim += f" to lie in {bracket(found, limit)}"
    notion = "" if row.notion == "approximate-dp" else f" ({row.notion})"
    # what is too small for a double is known as a bound only, whatever the claim
    sign = "<=" if found.safe == TINY else "="
    answer = _question(row).replace(" at ", f" {sign} {text(found.safe, up=True, limit=limit)} at ", 1)
    return f"{_solved(row)}{answer}{notion}, {claim}; {circumstances(row)}"


def _solved(row: Guarantee) -> str:
    """What calibrate found, ahead of the guarantee there: 'sigma = 3.73067 is enough: '."""
    calibrated = row.extra.get("calibrated")
    if not calibrated:
        return ""
    words = "is enough" if "most" not in calibrated else "is the most" if calibrated["most"] else "is allowed"
    return f"{calibrated['parameter']} = {calibrated['value']:.12g} {words}: "


def unknown(row: Guarantee) -> tuple[str, Bracket]:
    """What was asked for: its name and its bracket."""
    return ("delta", row.delta) if row.extra.get("asked") == "delta" else ("eps", row.epsilon)


def _question(row: Guarantee) -> str:
    """'eps at delta = 1e-05' or 'delta at eps = 3'."""
    name, _ = unknown(row)
    return f"delta at eps = {echo(row.epsilon.safe)}" if name == "delta" else f"eps at delta = {echo(row.delta.safe)}"


def circumstances(row: Guarantee) -> str:
    """Neighbours, sampling and number of compositions, in words."""
    steps = row.process.describe()
    kinds = list(dict.fromkeys(_sampling(step) for step in steps))
    sampling = kinds[0] if len(kinds) == 1 else f"{len(kinds)} different samplings"
    total = sum(step["n"] for step in steps)
    parts = "" if len(steps) == 1 else f" in {len(steps)} kinds of step"
    return f"{row.process.adjacency} neighbours, {sampling}, n = {total} composition{'s' if total != 1 else ''}{parts}"


def _sampling(step: Mapping[str, Any]) -> str:
    return "no sampling" if step["sampling"] == "none" else f"{step['sampling']} sampling at rate {step['rate']:.6g}"


def bracket(found: Bracket, limit: float | None = None) -> str:
    """Both ends, rounded outwards."""
    if found.lower is None or found.upper is None:
        return f"about {found.estimate:.6g}"
    return f"[{text(found.lower, up=False)}, {text(found.upper, up=True, limit=limit)}]"


def details(row: Guarantee) -> list[str]:
    """The steps, how flags were read, and what an attacker can do."""
    out = [f"process: {mechanism(step)}, n = {step['n']}, {_sampling(step)}" for step in row.process.describe()[:20]]
    hidden = len(row.process.steps) - len(out)
    out += [f"process: and {hidden} more kinds of step"] if hidden > 0 else []
    out += [f"read as: {note}" for note in row.extra.get("reading", [])]
    out += _how_near(row) + _assumptions(row)
    found = row.extra.get("attack")
    if found:
        shown = f"{text(found['advantage_upper'], up=True)} {_ends(found['advantage_lower'], found['advantage_upper'])}"
        out.append(f"attack: advantage over guessing (true- less false-positive rate) at most {shown}")
        for point in found["tpr_at_fpr"]:
            shown = f"{text(point['tpr_upper'], up=True)} {_ends(point['tpr_lower'], point['tpr_upper'])}"
            out.append(f"attack: true-positive rate at most {shown} at a false-positive rate of {point['fpr']:g}")
    read = row.extra.get("attack_reading")
    if read:
        out.append(
            f"attack: chance of a right guess as the paper reads eps, 1/(1 + e^-eps): {text(read['paper'], up=True)}"
        )
        out.append(f"attack: what {row.notion} bounds: {text(read['bound'], up=True)} ({read['why']})")
    for other in row.extra.get("classical", []):
        noise, least = (row.extra["calibrated"][key] for key in ("parameter", "value"))
        found = other[noise]
        value = "no value" if found is None else f"{noise} = {text(found, up=True)}"
        times = "" if found is None else f"; {found / least:.4g} times the least"
        out.append(
            f"other formula: {value} by {other['formula']}; {'' if other['valid'] else 'NOT VALID HERE: '}{other['note']}{times}"
        )
    return out


def _assumptions(row: Guarantee) -> list[str]:
    """The figures of a history, with what each assumes of its parameters."""
    if "parameters" not in row.extra:
        return []
    from wpriv.run.accounting import adaptive_history

    return adaptive_history.lines(row.extra["parameters"])


def _how_near(row: Guarantee) -> list[str]:
    """How far what calibrate found can be from the best value, where a value is known that misses the target."""
    calibrated = row.extra.get("calibrated")
    if not calibrated or not calibrated["misses"] or not calibrated["within"]:
        return []
    name, best = calibrated["parameter"], "most" if "most" in calibrated else "least"
    misses = f"{name} = {calibrated['misses']:.12g} misses the target by {row.accountant}"
    return [
        f"{best}: {misses}; {calibrated['value']:.12g} is within {text(calibrated['within'], up=True, digits=2)} (relative) of the {best}"
    ]


def _ends(low: float, high: float) -> str:
    return f"[{text(low, up=False)}, {text(high, up=True)}]"


def mechanism(step: Mapping[str, Any]) -> str:
    """'gauss (sigma 4, sensitivity 1)' from a step's description."""
    own = {k: v for k, v in step.items() if k not in ("mech", "n", "sampling", "rate") and v is not None}
    inside = ", ".join(f"{k} {echo(v)}" if isinstance(v, float) else f"{k} {v}" for k, v in own.items())
    return f"{step['mech']} ({inside})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest entry, two spaces apart, no lines drawn."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [header, *rows]
    )


def comparison(rows: Sequence[Guarantee], limit: float | None = None) -> str:
    """Several accountants on one process as a table; notions that share no units get columns of their own."""
    notions = list(dict.fromkeys(row.notion for row in rows))
    name, _ = unknown(rows[0])
    header = [
        "accountant",
        "claim",
        *(name if notion == "approximate-dp" else f"{name} [{notion}]" for notion in notions),
        "source",
    ]
    body = []
    for row in rows:
        cells = [_cell(unknown(row)[1], limit) if row.notion == notion else "" for notion in notions]
        body.append([row.accountant, row.claim, *cells, row.source])
    return table(header, body)


def _cell(found: Bracket, limit: float | None) -> str:
    shown = text(found.safe, up=True, limit=limit)
    return shown if found.lower is None or found.lower in (0.0, found.upper) else f"{shown} {bracket(found, limit)}"


def curve(rows: Sequence[Guarantee]) -> str:
    """A curve as a table of eps and delta."""
    body = []
    for row in rows:
        low = "" if row.delta.lower is None else text(row.delta.lower, up=False)
        body.append([echo(row.epsilon.safe), text(row.delta.safe, up=True), low])
    return table(["eps", "delta", "delta_lower"], body)


def as_json(found: Guarantee | Mapping[str, Any]) -> str:
    """One JSON object; infinities are the strings "inf" and "-inf"."""
    data = found.as_dict() if isinstance(found, Guarantee) else found
    return json.dumps(_plain(data), allow_nan=False)


def rows_json(rows: Sequence[Guarantee], **more: Any) -> str:
    """Several guarantees as one JSON object."""
    from wpriv._version import __version__

    return as_json({"schema": TABLE_SCHEMA, "rows": [row.as_dict() for row in rows], **more, "version": __version__})


def rows_of(rows: Sequence[Mapping[str, Any]], schema: str) -> str:
    """Rows that are no guarantees as one JSON object."""
    from wpriv._version import __version__

    return as_json({"schema": schema, "rows": list(rows), "version": __version__})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return ("inf" if value > 0 else "-inf") if math.isinf(value) else float(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def as_csv(rows: Sequence[Guarantee]) -> str:
    """A header and one line a row; the process is JSON in one cell."""
    body = []
    for row in rows:
        data = _plain(row.as_dict())
        body.append(data | {"process": json.dumps(data["process"]), "warnings": "; ".join(data["warnings"])})
    return csv_tables.to_text(CSV_COLUMNS, body).rstrip("\n")


def one(row: Guarantee, mode: str, limit: float | None = None) -> None:
    """Prints one guarantee: text, json, csv or quiet; warnings go to standard error. ``limit`` is as in ``headline``."""
    if mode == "text":
        emit(bold(headline(row, limit)))
        for line in details(row):
            emit(line)
        _explanation(row)
    elif mode == "quiet":
        calibrated = row.extra.get("calibrated")
        emit(f"{calibrated['value']:.12g}" if calibrated else text(unknown(row)[1].safe, up=True, limit=limit))
    else:
        emit(as_json(row) if mode == "json" else as_csv([row]))
    _warnings([row])


def several(
    rows: Sequence[Guarantee], refused: Sequence[Mapping[str, str]], mode: str, limit: float | None = None
) -> None:
    """Prints the answers of several accountants to one question; ``limit`` is as in ``headline``."""
    notes = unit_notes(row.notion for row in rows)
    if mode == "text":
        emit(bold(f"{_question(rows[0])}; {circumstances(rows[0])}"))
        emit(comparison(rows, limit))
        for row in rows:
            _explanation(row)
    else:
        emit(rows_json(rows, refused=refused, notes=notes) if mode == "json" else as_csv(rows))
    for refusal in refused:
        say("note", f"{refusal['accountant']} has no answer: {refusal['reason']}")
    for note in notes:
        say("note", note)
    _warnings(rows)


def points(rows: Sequence[Guarantee], mode: str) -> None:
    """Prints a curve."""
    if mode == "text":
        emit(bold(f"delta over eps, {CLAIMS[rows[0].claim].format(by=rows[0].accountant)}; {circumstances(rows[0])}"))
        emit(curve(rows))
    else:
        emit(rows_json(rows) if mode == "json" else as_csv(rows))
    for line in dict.fromkeys(line for row in rows for line in row.warnings):
        say("warning", line)


def _explanation(row: Guarantee) -> None:
    if "explain" in row.extra:
        from wpriv.run.accounting.explain import lines

        for line in lines(row.extra["explain"]):
            emit(line)


def _warnings(rows: Sequence[Guarantee]) -> None:
    shared = [
        line for line in dict.fromkeys(rows[0].warnings) if len(rows) > 1 and all(line in row.warnings for row in rows)
    ]
    for line in shared:
        say("warning", line)
    for row in rows:
        for line in row.warnings:
            if line not in shared:
                own = len(rows) == 1 or line.startswith(row.accountant)
                say("warning", line if own else f"{row.accountant}: {line}")


def emit(line: str) -> None:
    """A result, to standard output."""
    print(line)


def say(kind: str, line: str) -> None:
    """Print a note or a warning to standard error, with arguments in backticks as flags; file names stay as they are."""
    print(f"wpriv: {kind}: {line if kind == 'wrote' else as_flags(line)}", file=sys.stderr)


def bold(line: str) -> str:
    """The line in bold where standard output is a terminal that may have colour, else the line itself."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return line if plain else f"\x1b[1m{line}\x1b[0m"
