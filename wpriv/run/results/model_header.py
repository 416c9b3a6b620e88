"""The header of model.safetensors: the privacy statement in short, so that it travels with the weights."""

from __future__ import annotations

import hashlib
import json

from wpriv.run.accounting import adaptive_history
from wpriv.run.results import file_names, words
from wpriv.run.results.model import Statement, Weights

SCHEMA = "wpriv.model/1"
# entries that are copied from the statement as they are, by which a changed header is detected
COPIED = (
    *("privacy", "epsilon", "delta", "claim", "accountant", "unit", "group", "adjacency", "sampling", "rate", "steps"),
    *("ledger", "ledger_lines", "classes", "statement_sha256", "weights_sha256"),
)


def header(statement: Statement, content: str, weights: Weights) -> dict[str, str]:
    """Return the header of the weights that a statement is about.

    Args:
        statement: of a training, with the digest of its weights. content: the text of statement.json.
        weights: the entry of the statement on these weights: ``model``, or ``average`` for the average of the weights.
    Returns:
        Text by name: numbers as JSON writes them, lists as JSON.
    """
    entries: dict[str, object] = {
        "format": "pt",
        "schema": SCHEMA,
        "wpriv": statement.versions["wpriv"],
        "recipe": statement.recipe,
        **_promise(statement),
        "publish": next(f"{row.publish}: {row.why}" for row in statement.publish if row.file == weights.file),
        "classes": statement.data.classes,
        "warnings": statement.warnings,
        "statement": file_names.STATEMENT,
        "statement_sha256": hashlib.sha256(content.encode()).hexdigest(),
        "weights_sha256": weights.weights_sha256,
    }
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in entries.items()
        if value not in (None, [])
    }


def _promise(statement: Statement) -> dict[str, object]:
    """The guarantee and what it is about; of a training without privacy, that it has none."""
    source, releases = statement.protection, statement.releases
    entries: dict[str, object] = {"promise": words.promise(statement)}
    if source is None:
        return {"privacy": "none", **entries}
    if (row := source.best) is not None:
        entries |= {"epsilon": row.epsilon, "delta": row.delta, "claim": row.claim, "accountant": row.accountant}
        entries |= {"notion": row.notion, "epsilon_lower": row.epsilon_lower, "epsilon_upper": row.epsilon_upper}
    entries |= {"unit": source.unit, "group": source.group, "adjacency": source.adjacency}
    if releases is None:
        return {"privacy": "reports", **entries}
    entries |= {"sampling": releases.sampling.kind, "rate": releases.sampling.rate, "steps": releases.steps}
    if statement.ledger is not None:
        entries |= {"ledger": statement.ledger.digest, "ledger_lines": statement.ledger.lines}
    return {"privacy": "training", **entries, "parameters": adaptive_history.lines(releases.parameters)}
