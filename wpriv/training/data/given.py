"""The records that were passed to ``wpriv.train`` in Python; a recipe cannot read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError
from wpriv.training.data._dataset import Data

ABOUT = "the arrays passed to wpriv.train in Python"
GET = "Call wpriv.train(model, (x, y), ...) in Python; a recipe names a file, such as {name: arrays, file: mine.npz}."
OWN = True


@dataclass(frozen=True)
class Params(Parameters):
    """What is public of the records; what identifies them was computed from them, and belongs into no recipe."""

    max_per_person: int = parameter("the most records of one person, where a record is a person; else 0", default=0)


def read(root: Path | None, params: Params) -> Data:
    """Refuse: only the Python program that has the arrays can train on them.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "this recipe trains on arrays that were passed to wpriv.train in Python, and only that program has them. "
        "Run it again, or save them with numpy.savez and write data: {name: arrays, file: mine.npz}"
    )
