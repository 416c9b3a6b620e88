"""The header of model.safetensors: the privacy statement in short, so that it travels with the weights."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from wpriv.core.guarantee import RIGOROUS
from wpriv.numerics.safe_rounding import text
from wpriv.run.accounting import adaptive_history
from wpriv.run.results import file_names

SCHEMA = "wpriv.model/1"
NO_GUARANTEE = "no accountant of the recipe gives an (eps, delta) guarantee"
NOT_PRIVATE = "trained without privacy: no guarantee"
# entries that are copied from the statement as they are, by which a changed header is detected
COPIED = (
    *("privacy", "epsilon", "delta", "claim", "accountant", "unit", "group", "adjacency", "sampling", "rate", "steps"),
    *("ledger", "ledger_lines", "classes", "statement_sha256", "weights_sha256"),
)


def header(statement: dict[str, Any], content: str, entry: str = "model") -> dict[str, str]:
    """Return the header of the weights that a statement is about.

    Args:
        statement: of a training, with the digest of its weights. content: the text of statement.json.
        entry: of the statement on these weights: ``model``, or ``average`` for the average of the weights.
    Returns:
        Text by name: numbers as JSON writes them, lists as JSON.
    """
    entries: dict[str, Any] = {
        "format": "pt",
        "schema": SCHEMA,
        "wpriv": statement["versions"]["wpriv"],
        "recipe": statement["recipe"],
        **_promise(statement),
        "publish": next(
            f"{row['publish']}: {row['why']}" for row in statement["publish"] if row["file"] == statement[entry]["file"]
        ),
        "classes": statement.get("data", {}).get("classes", []),
        "warnings": statement.get("warnings", []),
        "statement": file_names.STATEMENT,
        "statement_sha256": hashlib.sha256(content.encode()).hexdigest(),
        "weights_sha256": statement[entry]["weights_sha256"],
    }
    return {key: _text(value) for key, value in entries.items() if value not in (None, [])}


def best(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the proven guarantee of (eps, delta)-DP with the least eps, or None."""
    proven = [row for row in rows if row["notion"] == "approximate-dp" and row["claim"] in RIGOROUS]
    return min(proven, key=lambda row: float(row["epsilon"]), default=None)


def promise(statement: dict[str, Any]) -> str:
    """Return what a statement guarantees, in one sentence without a full stop."""
    if not statement["private"]:
        return str(statement["promise"]) if "reports" in statement else NOT_PRIVATE
    row = best(statement["guarantees"])
    if row is None:
        return NO_GUARANTEE
    figures = f"eps = {text(float(row['epsilon']), up=True)} at delta = {text(float(row['delta']), up=True)}"
    return f"{figures}, {row['claim']} by {row['accountant']}, for {statement['unit']}"


def _promise(statement: dict[str, Any]) -> dict[str, Any]:
    """The guarantee and what it is about; of a training without privacy, that it has none."""
    source = statement.get("reports", statement)
    private = statement["private"]
    kind = "training" if private else "reports" if "reports" in statement else "none"
    entries: dict[str, Any] = {"privacy": kind, "promise": promise(statement)}
    row = None if kind == "none" else best(source["guarantees"])
    if row is not None:
        entries |= {key: row[key] for key in ("epsilon", "delta", "claim", "accountant", "notion")}
        entries |= {key: row[key] for key in ("epsilon_lower", "epsilon_upper")}
    if kind != "none":
        entries |= {"unit": source["unit"], "group": source.get("group", 1), "adjacency": source["adjacency"]}
    if private:
        sampling, ledger = statement["sampling"], statement.get("ledger", {})
        entries |= {"sampling": sampling["kind"], "rate": sampling["rate"], "steps": statement["steps"]}
        entries |= {"ledger": ledger.get("digest"), "ledger_lines": ledger.get("lines")}
        entries |= {"parameters": adaptive_history.lines(statement.get("parameters"))}
    return entries


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
