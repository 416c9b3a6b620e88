"""A CSV file of numbers and words with a target column and an optional sensitive column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.core.parameters import Parameters, parameter
from wpriv.training.data import _classes, _table
from wpriv.training.data._dataset import Data
from wpriv.training.data._files import File, read_bytes, resolve_path

ABOUT = "your own CSV file with a target column"
GET = (
    "Give the path of a CSV file whose first line names the columns: --param file=PATH --param target=COLUMN "
    "(in a recipe, data: {name: table, file: PATH, target: COLUMN})."
)


@dataclass(frozen=True)
class Params(Parameters):
    """The file, the roles of its columns, what is publicly known of them, and the test split."""

    file: str = parameter("path of the CSV file, as it stands or below the data root")
    target: str = parameter("the column to predict: numbers or words, each a class")
    sensitive: str = parameter("a column of groups for fairness; it stays a feature unless dropped", default="")
    drop: str = parameter("columns to leave out, separated by commas", default="")
    ranges: Mapping[str, Any] | str = parameter(_classes.RANGES, default="")
    categories: Mapping[str, Any] | str = parameter(_classes.CATEGORIES, default="")
    classes: Sequence[Any] | str = parameter(_classes.CLASSES, default="")
    number: bool = parameter("true: the target is a number to predict (task fit), and no class", default=False)
    test_file: str = parameter("another CSV file for testing; else a share of the rows is held out", default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, D] float32: numbers as in the file or in their range, words as zeros and ones.

    Classes and groups are sorted by value where they are not declared.
    """
    declared = _classes.declared(
        params.name, ranges=params.ranges, categories=params.categories, classes=params.classes
    )
    path = resolve_path(params.name, "file", params.file, root)
    raw = read_bytes(path)
    test = None
    if params.test_file:
        test_path = resolve_path(params.name, "file", params.test_file, root)
        test = _table.Content(test_path, read_bytes(test_path))
    roles = _table.Roles(
        params.target, params.sensitive, params.drop, params.test_share, params.split_seed, params.number
    )
    file = File.unverified(path, raw)
    return _table.read(path, raw, file, f"{params.name}:{path.stem}", roles, str(path), declared=declared, test=test)
