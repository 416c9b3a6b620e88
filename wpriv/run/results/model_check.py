"""Whether the weights in a results folder are those that its privacy statement is about."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from wpriv.errors import CheckFailed, UsageError
from wpriv.files import weight_files
from wpriv.run.results import file_names, model, model_header
from wpriv.run.results.model import Statement, Weights

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
    """Compare model.safetensors in a folder with statement.json there.

    Args:
        thorough: compare the weights in model.pt as well, which loads torch.
    Raises:
        UsageError: the statement is malformed. MissingResource: a file cannot be read.
    """
    file, path = folder / file_names.STATEMENT, folder / file_names.WEIGHTS
    statement, content = read_statement(file)
    stated = None if statement.model is None else statement.model.weights_sha256
    if stated is None:
        why = "it is of an earlier version" if statement.model is None else statement.model.why
        return ModelCheck(UNNAMED, f"{file.name} names no {path.name}: {why}")
    averaged = None if statement.average is None else statement.average.weights_sha256
    for entry, digest in (("weights", stated), ("average", averaged)):
        if thorough and digest and (difference := _other_weights(folder / file_names.MODEL, digest, entry)):
            return ModelCheck(DIFFERS, difference)
    beside = folder / file_names.AVERAGE
    if averaged and beside.is_file() and (difference := _difference(beside, statement, content, statement.average)):
        return ModelCheck(DIFFERS, difference)
    if not path.is_file():
        return ModelCheck(MISSING, f"{path.name} is not in this folder")
    difference = _difference(path, statement, content, statement.model)
    if difference:
        return ModelCheck(DIFFERS, difference)
    also = f" and {beside.name}" if averaged and beside.is_file() else ""
    verb = "fit" if also else "fits"
    return ModelCheck(FITS, f"{path.name}{also} {verb} {file.name}: weights, figures and digests agree")


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
    """Return a statement and its text.

    Raises:
        UsageError: it is missing, no statement, or lacks an entry.
    """
    advice = "Give the folder of a finished training"
    try:
        content = file.read_bytes().decode("utf-8")
        data = json.loads(content)
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
        stored = weight_files.read(path)
    except UsageError as error:
        return str(error)
    if stored.digest != stated.weights_sha256:
        digest = f"{stated.weights_sha256[:16]}..."
        return f"the weights in {path.name} are not those of {file_names.STATEMENT}, whose digest is {digest}"
    try:
        expected = model_header.header(statement, content, stated)
    except (KeyError, StopIteration):
        return f"{file_names.STATEMENT} was changed: entries that {path.name} repeats are missing in it"
    wrong = [key for key in model_header.COPIED if stored.header.get(key) != expected.get(key)]
    if wrong:
        values = f"{stored.header.get(wrong[0])!r} in the header, {expected.get(wrong[0])!r} by {file_names.STATEMENT}"
        return f"the header of {path.name} does not fit {file_names.STATEMENT}: {wrong[0]} is {values}"
    return ""


def _other_weights(path: Path, stated: str, entry: str) -> str:
    """What shows that the weights in model.pt are not those of a statement; empty if nothing does, or it is missing.

    Args:
        entry: ``weights``, or ``average`` for their average.
    """
    if not path.is_file():
        return ""
    from wpriv.engine import checkpoint, weight_export

    stored = checkpoint.load(path, fields=checkpoint.POSITION | {entry: dict})[entry]
    if weight_files.digest(weight_export.encode(stored)) == stated:
        return ""
    name = "weights" if entry == "weights" else "averaged weights"
    return f"the {name} in {path.name} are not those of {file_names.STATEMENT}"
