"""The header of model.safetensors, and whether the weights in a folder are those that its statement is about.

The header is the privacy statement in short, so that it travels with the weights.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from wpriv.accounting import adaptive_history
from wpriv.errors import CheckFailed, MissingResource, UsageError
from wpriv.files import array_files
from wpriv.results import model, storage
from wpriv.results.model import Statement, Weights
from wpriv.training.reports import words

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
        "statement": storage.STATEMENT,
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


FITS, MISSING, UNNAMED, DIFFERS = "fits", "missing", "unnamed", "differs"


@dataclass(frozen=True)
class ModelCheck:
    """The outcome of comparing weights with a statement.

    Args:
        verdict: ``fits``; ``differs``; ``missing``: the file is not there; ``unnamed``: the statement names no such
            file, since it is of an earlier version or since the format does not hold these weights.
        words: the outcome as a sentence without a full stop.
    """

    verdict: str
    words: str


def check(folder: Path, *, thorough: bool = False) -> ModelCheck:
    """Compare model.safetensors (``thorough``: and model.pt, with torch) in a folder with statement.json."""
    file, path = folder / storage.STATEMENT, folder / storage.WEIGHTS
    statement, content = read_statement(file)
    stated = None if statement.model is None else statement.model.weights_sha256
    if stated is None:
        why = "it is of an earlier version" if statement.model is None else statement.model.why
        return ModelCheck(UNNAMED, f"{file.name} names no {path.name}: {why}")
    averaged = None if statement.average is None else statement.average.weights_sha256
    for entry, digest in (("weights", stated), ("average", averaged)):
        if thorough and digest and (difference := _other_weights(folder / storage.MODEL, digest, entry)):
            return ModelCheck(DIFFERS, difference)
    beside = folder / storage.AVERAGE
    if averaged and beside.is_file() and (difference := _difference(beside, statement, content, statement.average)):
        return ModelCheck(DIFFERS, difference)
    if not path.is_file():
        return ModelCheck(MISSING, f"{path.name} is not in this folder")
    difference = _difference(path, statement, content, statement.model)
    if difference:
        return ModelCheck(DIFFERS, difference)
    also = f" and {beside.name}" if averaged and beside.is_file() else ""
    verb = "fit" if also else "fits"
    return ModelCheck(FITS, f"{path.name}{also} {verb} {file.name}: weights, numbers and digests agree")


def require(folder: Path, *, thorough: bool = False) -> ModelCheck:
    """Return the outcome of ``check``.

    Raises:
        CheckFailed: the weights are not those of the statement.
    """
    result = check(folder, thorough=thorough)
    if result.verdict == DIFFERS:
        raise CheckFailed(f"{folder}: {result.words}. Do not publish these weights under this statement")
    return result


def read_statement(file: Path) -> tuple[Statement, str]:
    """Return a statement and its text."""
    advice = "Give the folder of a finished training"
    try:
        content = file.read_bytes().decode("utf-8")
        data = json.loads(content)
    except FileNotFoundError:
        raise MissingResource(f"there is no {file}. {advice}") from None
    except (OSError, ValueError, RecursionError):
        raise UsageError(f"{file} cannot be read as a privacy statement. {advice}") from None
    if not isinstance(data, dict) or not {"private", "publish", "versions", "task"} <= data.keys():
        raise UsageError(f"{file} is no privacy statement of wpriv. {advice}")
    return model.checked(Statement, data, file, model.TRAIN_AGAIN), content


def _difference(path: Path, statement: Statement, content: str, stated: Weights | None) -> str:
    """What shows that a file of weights is not that of a statement; empty if nothing does."""
    assert stated is not None
    assert stated.weights_sha256 is not None
    try:
        stored = array_files.read(path)
    except UsageError as error:
        return str(error)
    if stored.digest != stated.weights_sha256:
        digest = f"{stated.weights_sha256[:16]}..."
        return f"the weights in {path.name} are not those of {storage.STATEMENT}, whose digest is {digest}"
    try:
        expected = header(statement, content, stated)
    except (KeyError, StopIteration):
        return f"{storage.STATEMENT} was changed: entries that {path.name} repeats are missing in it"
    wrong = [key for key in COPIED if stored.header.get(key) != expected.get(key)]
    if wrong:
        values = f"{stored.header.get(wrong[0])!r} in the header, {expected.get(wrong[0])!r} by {storage.STATEMENT}"
        return f"the header of {path.name} does not fit {storage.STATEMENT}: {wrong[0]} is {values}"
    return ""


def _other_weights(path: Path, stated: str, entry: str) -> str:
    """What shows that the weights in model.pt are not those of a statement; empty if nothing does, or it is missing."""
    if not path.is_file():
        return ""
    from wpriv.files import checkpoint
    from wpriv.training.engine import saved_weights

    stored = checkpoint.load(path, fields=checkpoint.POSITION | {entry: dict})[entry]
    if array_files.digest(saved_weights.encode(stored)) == stated:
        return ""
    name = "weights" if entry == "weights" else "averaged weights"
    return f"the {name} in {path.name} are not those of {storage.STATEMENT}"
