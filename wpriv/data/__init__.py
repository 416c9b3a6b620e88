"""Data sets, one reader a file, by the name users type: ``ABOUT``, ``GET``, ``Params`` and ``read(root, params)``.

A set whose records all have one shape may declare it, with the names of its classes: ``SHAPE`` and ``CLASSES``.

A reader gives what the files hold, or a clear error: nothing is downloaded, normalised or left out on the way, and nothing is made up but
what a name says is synthetic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wpriv.core import registry
from wpriv.data._files import HOW_TO_NAME, VERDICTS, exists, looked
from wpriv.data._record import Data, Noise, scaled

__all__ = ["HOW_TO_NAME", "VERDICTS", "Data", "Noise", "exists", "looked", "read", "scaled"]


def read(name: str, *, root: str | Path | None = None, **given: Any) -> Data:
    """The data set of that name.

    Args:
        root: the folder that holds the data sets or this one; None looks into $WPRIV_DATA and where systems put them.
        given: the parameters of its reader.
    Raises:
        UsageError: no such reader or parameter. MissingResource: the files are not there, damaged or not what they say.
    """
    found: Data = registry.load("data", name).read(
        None if root is None else Path(root), registry.params("data", name, given)
    )
    return found
