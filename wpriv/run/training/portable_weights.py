"""model.safetensors, the trained weights with the privacy statement in short: never without a statement beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv.config.technique_schema import Average
from wpriv.errors import Unsupported
from wpriv.files import durable_writes, weight_files
from wpriv.run.results import file_names, model, model_header
from wpriv.run.results.model import Statement


def describe(weights: Mapping[str, Any], file: str = file_names.WEIGHTS) -> dict[str, Any]:
    """Return the entry of a statement on the file of its weights.

    Args:
        weights: the ``state_dict`` of the trained network. file: the name of their file.
    Returns:
        ``file`` and ``weights_sha256`` (``weight_files.digest``); or ``file`` None and ``why`` where the format does
        not hold the weights.
    """
    from wpriv.engine import weight_export

    try:
        content = weight_export.encode(weights)
    except Unsupported as error:
        return {"file": None, "why": str(error)}
    return {"file": file, "weights_sha256": weight_files.digest(content)}


def describe_average(plan: Average, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry ``average`` of a statement, on the averaged weights in the content of a model's file."""
    return {"average": {**plan.model_dump(), **describe(stored["average"], file_names.AVERAGE)}}


def write_all(folder: Path, stored: Mapping[str, Any], statement: dict[str, Any], content: str) -> None:
    """Write the files of the weights and of their average, where there is one.

    Args:
        stored: the content of the model's file. statement, content: as in ``write``.
    Raises:
        MissingResource: a file cannot be written.
    """
    write(folder, stored["weights"], statement, content)
    if "average" in statement:
        write(folder, stored["average"], statement, content, "average")


def write(
    folder: Path, weights: Mapping[str, Any], statement: dict[str, Any], content: str, entry: str = "model"
) -> None:
    """Write a file of weights, after statement.md and before statement.json, which marks a finished run.

    A run that is killed between the two is concluded again, and so the file is written again.

    Args:
        statement: with the entry ``model`` by ``describe``, or ``average``. content: the text of statement.json.
        entry: which of the two the weights are.
    Raises:
        MissingResource: the file cannot be written.
    """
    from wpriv.engine import weight_export

    path = folder / (file_names.WEIGHTS if entry == "model" else file_names.AVERAGE)
    if statement[entry]["file"] is None:
        durable_writes.remove(path)
        return
    stated = model.checked(Statement, statement, folder / file_names.STATEMENT, model.TRAIN_AGAIN)
    described = stated.model if entry == "model" else stated.average
    assert described is not None
    encoded = weight_export.encode(weights, model_header.header(stated, content, described))
    durable_writes.replace(path, encoded, mode=0o600)  # as readable as model.pt
