"""A CSV file of numbers with a target column and an optional sensitive column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wpriv.core.parameters import Parameters, parameter
from wpriv.data import _table
from wpriv.data._dataset import Data
from wpriv.data._files import File, read_bytes, resolve_path

ABOUT = "your own CSV file with a target column"
GET = "Give the path of a CSV file whose first line names the columns: --param file=PATH --param target=COLUMN."


@dataclass(frozen=True)
class Params(Parameters):
    """The file, the roles of its columns, and the test split."""

    file: str = parameter("path of the CSV file, as it stands or below the data root")
    target: str = parameter("the column to predict: numbers or words, each a class")
    sensitive: str = parameter("a column of groups for fairness; it stays a feature unless dropped", default="")
    drop: str = parameter("columns to leave out, separated by commas", default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, D] float32 as in the file; classes and groups are sorted by value."""
    path = resolve_path(params.name, "file", params.file, root)
    raw = read_bytes(path)
    roles = _table.Roles(params.target, params.sensitive, params.drop, params.test_share, params.split_seed)
    return _table.read(path, raw, File.unverified(path, raw), f"{params.name}:{path.stem}", roles, str(path))
