"""model.safetensors, the trained weights with the privacy statement in short: never without a statement beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv.config.train_schema import Average
from wpriv.errors import Unsupported
from wpriv.files import array_files, durable_writes
from wpriv.results import model, storage
from wpriv.results.model import Statement
from wpriv.training.reports import model_check


def describe(weights: Mapping[str, Any], file: str = storage.WEIGHTS) -> dict[str, Any]:
    """Return the entry of a statement on the file of its weights.

    Args:
        weights: the ``state_dict`` of the trained network. file: the name of their file.
    Returns:
        ``file`` and ``weights_sha256`` (``weight_files.digest``); or ``file`` None and ``why`` where the format does
        not hold the weights.
    """
    from wpriv.training.engine import saved_weights

    try:
        content = saved_weights.encode(weights)
    except Unsupported as error:
        return {"file": None, "why": str(error)}
    return {"file": file, "weights_sha256": array_files.digest(content)}


def describe_average(plan: Average, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry ``average`` of a statement, on the averaged weights in the content of a model's file."""
    return {"average": {**plan.model_dump(), **describe(stored["average"], storage.AVERAGE)}}


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
    from wpriv.training.engine import saved_weights

    path = folder / (storage.WEIGHTS if entry == "model" else storage.AVERAGE)
    if statement[entry]["file"] is None:
        durable_writes.remove(path)
        return
    stated = model.checked(Statement, statement, folder / storage.STATEMENT, model.TRAIN_AGAIN)
    described = stated.model if entry == "model" else stated.average
    assert described is not None
    encoded = saved_weights.encode(weights, model_check.header(stated, content, described))
    durable_writes.replace(path, encoded, mode=0o600)  # as readable as model.pt
