"""The privacy statement of a training or of local reports: texts that both share, and the Markdown form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wpriv.numerics.safe_rounding import text

SCHEMA = "wpriv.statement/1"
FIXED_SEED = (
    "the seed is fixed and recorded: whoever knows it can draw the same noise and subtract it. "
    "Leave the seed out for a release"
)
CENTRAL = [
    "the curator, who runs the training, is trusted: the curator sees the records, their gradients, the sums before "
    "noise and every random number. The same holds for the machines and for all processes of the training",
    "recipients of the output are not trusted: the guarantees hold against anyone who sees this statement and the "
    "weights after every step (and so the final weights), and who knows all records but one",
    "only the curator may see files that are marked below as not for publication; no guarantee holds against others "
    "who see them",
]
LOCAL = [
    "the process that adds the noise sees the records and is trusted, as an owner who runs it on a single record of "
    "their own would trust it",
    "recipients of the reports are not trusted: the guarantees hold against anyone who sees all reports and knows all "
    "other records",
]
_LISTS = {
    "premises": "Premises of the guarantee, which the training keeps to",
    "covered": "Covered",
    "not_covered": "Not covered",
    "not_assessed": "Not assessed",
    "warnings": "Warnings",
}


def to_markdown(
    statement: dict[str, Any],
    *,
    title: str,
    summary: Iterable[str],
    facts: Iterable[tuple[str, str]],
    comparison: Iterable[str] = (),
    data: str,
) -> str:
    """Render a statement as Markdown.

    Args:
        statement: the content of statement.json. title: what the statement is about.
        summary: paragraphs or bullets above the table. facts: rows of the table, a name and a text; none leave it out.
        comparison: figures that are no guarantee. data: the data set, in the last line.
    """
    table = [f"| {name} | {fact} |" for name, fact in facts]
    figures = list(comparison)
    lines = [f"# Privacy statement: {title}", "", *summary]
    lines += ["| what | |", "|---|---|", *table, ""] if table else []
    lines += ["## For comparison only, no guarantee", "", *figures, ""] if figures else []
    lines += _bullets("Trust model", statement["trust_model"]) if "trust_model" in statement else []
    lines += _files(statement["publish"])
    for key, heading in _LISTS.items():
        lines += _bullets(heading, statement[key]) if key in statement else []
    seed = statement["seed"]
    origin = "from the operating system, not recorded" if seed is None else f"{seed} (fixed)"
    versions = ", ".join(f"{key} {value}" for key, value in statement["versions"].items() if value is not None)
    return "\n".join([*lines, f"Seed: {origin}. Versions: {versions}. Data: {data}.", ""])


def share(delta: float, records: int) -> dict[str, Any]:
    """Compare delta with 1 / records, which it should lie far below.

    Returns:
        ``value``, ``records``, ``times_records`` (delta over 1 / records) and ``meaning`` in words.
    """
    times = delta * records
    if delta == 0:
        meaning = "pure DP: no failure probability"
    elif times >= 1:
        meaning = f"{times:.3g} / records, NOT below 1 / records: a mechanism with this delta may publish whole records"
    else:
        meaning = f"{times:.3g} / records: below 1 / records, at which a mechanism may publish whole records"
    return {"value": delta, "records": records, "times_records": times, "meaning": meaning}


def bracket(row: dict[str, Any]) -> str:
    """Return 'in [34.9, 35]' for a certified guarantee, and nothing for others."""
    if row["claim"] != "certified":
        return ""
    return f"in [{text(row['epsilon_lower'], up=False)}, {text(row['epsilon_upper'], up=True)}]"


def _bullets(heading: str, lines: Iterable[str]) -> list[str]:
    return [f"## {heading}", "", *(f"- {line}" for line in list(lines) or ["none"]), ""]


def _files(entries: list[dict[str, str]]) -> list[str]:
    """The section on the files that may be published."""
    rows = [f"| {entry['file']} | {entry['publish']} | {entry['why']} |" for entry in entries]
    return ["## Files", "", "| file | publish | why |", "|---|---|---|", *rows, ""]
