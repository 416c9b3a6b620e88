"""Data sets by the name users type, one reader a file or a class of a file (``DECLARED``).

A reader has ``ABOUT`` and ``GET`` (what it holds and how to obtain its files, as ``wpriv data`` lists them), ``Params``
(one without a default, such as ``file``, marks a reader of the user's own files), and ``read(root, params)``, which
returns a ``Data``; ``root`` is the folder of data sets, or None for the default places. Optional are ``SHAPE`` and
``CLASSES``, that all records have; ``OWN``: only a Python program has the records; and ``find(root)``, which returns
the paths of its files or raises MissingResource.

Readers return the content of the files or raise MissingResource. They download, normalise and omit nothing, and only
those whose name or description says so generate synthetic records.
"""

from __future__ import annotations

from pathlib import Path

from wpriv.core import registry
from wpriv.training.data import _published, _synthetic, arrays
from wpriv.training.data._classes import by_outputs, declared_words
from wpriv.training.data._dataset import FROM_LABELS, FROM_LARGEST, FROM_OUTPUTS, IGNORED, Data, RecordNoise, scaled
from wpriv.training.data._files import ROOT_HINT, VERDICTS, path_exists, searched_places
from wpriv.training.data._trees import Packed, map_tree, named_leaves_of, of_persons, pack
from wpriv.training.data.arrays import of_arrays, read_own

DECLARED = {reader.name: reader for reader in (*_published.READERS, *_synthetic.READERS, arrays.Features)}

__all__ = [
    "DECLARED",
    "FROM_LABELS",
    "FROM_LARGEST",
    "FROM_OUTPUTS",
    "IGNORED",
    "ROOT_HINT",
    "VERDICTS",
    "Data",
    "Packed",
    "RecordNoise",
    "by_outputs",
    "declared_words",
    "map_tree",
    "named_leaves_of",
    "of_arrays",
    "of_persons",
    "pack",
    "path_exists",
    "read",
    "read_own",
    "scaled",
    "searched_places",
]


def read(name: str, *, root: str | Path | None = None, **parameters: object) -> Data:
    """Read the data set of that name.

    Args:
        name: a reader of ``wpriv/training/data``.
        root: the folder of data sets, or of this one; None searches $WPRIV_DATA and the system's folders.
        parameters: those of its reader.
    Raises:
        UsageError: no such reader or parameter.
        MissingResource: the files are missing, damaged, or not the published ones.
    """
    folder = None if root is None else Path(root)
    data: Data = registry.load("data", name).read(folder, registry.params("data", name, parameters))
    return data
