"""The records of a training: whether results in a folder, or earlier trainings of this process, were of the same ones.

A network of the calling program may hold what an earlier training left in it, in a form that no comparison of weights
shows. So the statement of a training names the earlier ones on any of its records, with the cost of all together.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.config.recipe import Recipe
from wpriv.errors import UsageError, WprivError
from wpriv.run.results import file_names, model

CHUNK = 4096


@dataclass(frozen=True)
class Past:
    """A training: its folder, and the numbers of its records, sorted."""

    folder: Path
    records: NDArray[np.uint64]


_past: list[Past] = []


def numbers_of(x: Any) -> NDArray[np.uint64]:
    """Return a number for each record [N, ...], sorted: the same for equal records, and by chance alone for others."""
    rows = np.ascontiguousarray(x).reshape(len(x), -1)
    width = rows.itemsize * rows.shape[1]
    multipliers = np.random.default_rng(0).integers(0, 2**64, -(-width // 8), dtype=np.uint64) | np.uint64(1)
    numbers = np.zeros(len(rows), dtype=np.uint64)
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK].view(np.uint8).reshape(-1, width)
        words = np.pad(part, ((0, 0), (0, -width % 8))).view(np.uint64)
        words ^= words >> np.uint64(29)
        numbers[start : start + CHUNK] = (words * multipliers).sum(axis=1, dtype=np.uint64)
    return np.sort(numbers ^ (numbers >> np.uint64(32)))


def name_of(records: NDArray[np.uint64]) -> str:
    """Return a name of a set of records: the same in every order, whatever their targets and the test records."""
    return f"{len(records)} records {int(records.sum(dtype=np.uint64)):x}"


def note(folder: Path, records: NDArray[np.uint64]) -> None:
    """Remember that a private training on some records began in a folder."""
    where = folder.resolve()
    if all(past.folder != where or not np.array_equal(past.records, records) for past in _past):
        _past.append(Past(where, records))


def sharing(folder: Path, records: NDArray[np.uint64]) -> list[Path]:
    """Return the folders of earlier private trainings of this process, but one, that had one of the records."""
    shared = [past.folder for past in _past if len(np.intersect1d(past.records, records))]
    return [path for path in dict.fromkeys(shared) if path != folder.resolve()]


def require_records(path: Path, data: Any) -> None:
    """Refuse a folder of results of a training on other records, as far as its provenance names them.

    Raises:
        UsageError: the folder holds such results.
    """
    fingerprint = fingerprint_in(path)
    if fingerprint not in (None, data.fingerprint):
        raise UsageError(
            f"{path} holds a finished training on other records. Name another folder with `out`, or give those records"
        )


def require_other_weights(recipe: Recipe, data: Any) -> None:
    """Refuse first weights from a folder of results on the same records, unless these are declared public.

    Raises:
        UsageError: ``init`` names such a file.
    """
    training = recipe.train
    if training is None or training.init is None or training.privacy is None or training.init.records == "public":
        return
    from wpriv.engine import fine_tuning

    path = Path(training.init.file).parent
    # weights that were trained without privacy are refused when they are loaded
    private = not fine_tuning.read(Path(training.init.file), training.init.sha256).without_privacy
    if private and fingerprint_in(path) == data.fingerprint:
        raise UsageError(
            f"init: the weights in {training.init.file} were trained on the records of this training. Continue from "
            f"them with `fork=True` in the folder {path}, which accounts for both"
        )


def fingerprint_in(path: Path) -> str | None:
    """Return the fingerprint of the records of the training whose results a folder holds; None where it has none."""
    try:
        return model.json_object(path / file_names.PROVENANCE).get("data_fingerprint")
    except WprivError:
        return None
