"""A reader of the user's own: a function in a Python file that returns records and labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv.data._arrays import of_arrays
from wpriv.data._classes import declared_words
from wpriv.data._dataset import Data
from wpriv.data._files import File
from wpriv.errors import UsageError
from wpriv.files import python_file

PARTS = ("x_train", "y_train", "x_test", "y_test")
WANTED = (
    "must return (x, y), ((x, y), (x_test, y_test)), (x_train, y_train, x_test, y_test), or a mapping with these names"
)


def read(path: str, name: str, parameters: Mapping[str, Any]) -> Data:
    """Run a Python file, call its reader, and return what it returned as a data set.

    Raises:
        UsageError: the file or the reader fails, or returns something else than arrays of records and labels.
        MissingResource: the file cannot be read, or the arrays are not those of a data set.
    """
    train, test, tokens, declared = parts_of(python_file.call(path, name, parameters, {}), f"{path}: {name}")
    file = File.unverified(Path(path), python_file.source(path).encode())
    return of_arrays(
        f"{name}:{Path(path).stem}",
        train,
        test,
        source=f"{path}, {name}",
        files=(file,),
        declared=declared,
        tokens=tokens,
    )


def parts_of(returned: Any, what: str) -> tuple[tuple[Any, Any], tuple[Any, Any] | None, int, tuple[str, ...] | None]:
    """Return training and test records with their labels, from one of the forms in which they may be given.

    A mapping may name the size of the vocabulary by ``tokens``, else 0, and the label of each class by ``classes``.

    Raises:
        UsageError: it is none of these forms.
    """
    if isinstance(returned, Mapping):
        given = dict(returned)
        tokens, declared = given.pop("tokens", 0), declared_words(given.pop("classes", None), what)
        if type(tokens) is not int or tokens < 0:
            raise UsageError(f"{what}: tokens must be the size of the vocabulary, a whole number; found {tokens!r:.60}")
        if set(given) == set(PARTS):
            return (given["x_train"], given["y_train"]), (given["x_test"], given["y_test"]), tokens, declared
        if set(given) == {"x", "y"}:
            return (given["x"], given["y"]), None, tokens, declared
        raise UsageError(f"{what} {WANTED}; found a mapping with {', '.join(map(str, given)) or 'nothing'}")
    if isinstance(returned, (tuple, list)) and len(returned) == 4:
        return (returned[0], returned[1]), (returned[2], returned[3]), 0, None
    if isinstance(returned, (tuple, list)) and len(returned) == 2:
        first, second = returned
        if all(isinstance(part, (tuple, list)) and len(part) == 2 for part in (first, second)):
            return (first[0], first[1]), (second[0], second[1]), 0, None
        return (first, second), None, 0, None
    raise UsageError(f"{what} {WANTED}; found {type(returned).__name__}")
