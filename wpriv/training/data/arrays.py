"""Arrays of records and labels as a data set: from a .npz file, from a reader of the user's, or from Python."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, PluginClass, parameter
from wpriv.errors import FaultyRecords, UsageError
from wpriv.files import python_file
from wpriv.training.data import _classes
from wpriv.training.data._classes import Classes, declared_words
from wpriv.training.data._dataset import IGNORED, SHARE, Array, Data, narrowed, random_split
from wpriv.training.data._files import File, read_bytes, resolve_path
from wpriv.training.data._formats import parse_mat, parse_npz
from wpriv.training.data._trees import Packed

ABOUT = "your own arrays of images or rows, in a .npz file"
GET = (
    "Give the path of a .npz file with x_train, y_train, x_test and y_test, or with x and y: --param file=PATH "
    "(in a recipe, data: {name: arrays, file: PATH}); numpy.savez writes one."
)
PARTS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class Params(Parameters):
    """The file, and the test split where it has none."""

    file: str = parameter("path of the .npz file, as it stands or below the data root")
    tokens: int = parameter(
        "size of the vocabulary, where x holds tokens: whole numbers [N, T] below it, which stay whole; else 0",
        default=0,
        minimum=0,
    )
    classes: Sequence[object] | str = parameter(_classes.LABELS, default="")
    test_share: float = parameter("share held out for testing, where the file has x and y only", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, C, H, W] or [N, D] records, uint8 or float32 as in the file. Whole labels keep their numbers.

    With ``tokens`` records are [N, T] int64.
    """
    path = resolve_path(params.name, "file", params.file, root)
    raw = read_bytes(path)
    arrays = parse_npz(path, raw)
    if all(name in arrays for name in PARTS):
        train, test = (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])
    elif all(name in arrays for name in ("x", "y")):
        train, test = (arrays["x"], arrays["y"]), None
    else:
        shapes = ", ".join(f"{key} {list(array.shape)}" for key, array in arrays.items()) or "none"
        raise FaultyRecords(f"{path}: wanted the arrays {', '.join(PARTS)}, or x and y; found {shapes}")
    return of_arrays(
        f"{params.name}:{path.stem}",
        train,
        test,
        source=str(path),
        share=params.test_share,
        seed=params.split_seed,
        files=(File.unverified(path, raw),),
        declared=_classes.class_names(params.name, params.classes),
        tokens=params.tokens,
    )


Part = tuple[object, object]  # records and labels, each an array or packed
MAX_TOKENS = 2**31 - 1
WANTED = "records must be numbers, [N, D] or [N, C, H, W] (or grey pictures [N, H, W])"


def of_arrays(
    name: str,
    train: Part,
    test: Part | None,
    *,
    source: str,
    share: float = SHARE,
    seed: int = 0,
    files: tuple[File, ...] = (),
    names: Sequence[str] | None = None,
    notes: tuple[str, ...] = (),
    declared: Sequence[str] | None = None,
    ignored: int | None = IGNORED,
    tokens: int = 0,
) -> Data:
    """Return arrays of records and labels as a data set.

    Args:
        name: of the data set, for messages and tables.
        train, test: records and labels; without ``test`` a ``share`` of the training records is held out by ``seed``.
            Records: [N, D], [N, C, H, W], or [N, H, W] grey pictures; uint8, or numbers that become float32.
            Labels: [N] whole numbers, which are the numbers of their classes, or text; or float numbers, [N] or [N, K],
            to predict, which are classes as well where there is one for each record and all are whole.
        source: whose data they are, or where they were read.
        names: of the classes, where they are known of the data set and labels are whole numbers from 0, with ``notes``.
        declared, ignored: see ``_classes.of_whole``; words are looked up among those declared. Classes that
            are read from the labels are noted.
        tokens: the size of the vocabulary where records are tokens, [N, T] whole numbers below it; 0 for other records.
    Raises:
        FaultyRecords: records or labels of another form.
    """
    x, y = _part(name, "training", train, tokens)
    x_form, y_form = (part.form if isinstance(part, Packed) else None for part in train)
    if test is None:
        kept, held_out = random_split(len(x), share, seed)
        x, y, x_test, y_test = x[kept], y[kept], x[held_out], y[held_out]
    else:
        x_test, y_test = _part(name, "test", test, tokens)
    if y_form is not None:
        response: tuple[str, ...] = ("targets",)
        responses: tuple[Array | None, Array | None] = (y, y_test)
        y, y_test = (np.zeros(len(part)) + 0.5 for part in (y, y_test))  # no classes
    else:
        _require_one_kind(name, y, y_test)
        response, responses = _responses(name, y, y_test)
    if names is not None and y.dtype.kind != "U":
        classes: Classes | None = Classes(tuple(names), y, y_test, notes=notes)
    elif y.dtype.kind == "U":
        place = functools.partial(_label_place, name)
        classes = _classes.of_words(name, y, y_test, place, apart=test is not None, declared=declared)
    elif not all(_is_whole(part) for part in (y, y_test)):
        classes = None
    else:
        whole = [part.astype(np.int64) for part in (y, y_test)]
        classes = _classes.of_whole(name, whole[0], whole[1], declared=declared, ignored=ignored)
        if classes is None and not response:
            response, responses = ("response 0",), (whole[0][:, None], whole[1][:, None])
    if classes is None:
        classes = Classes(("a number",), np.zeros(len(x), np.int64), np.zeros(len(x_test), np.int64))
    return Data(
        name=name,
        x_train=x,
        y_train=classes.train,
        x_test=x_test,
        y_test=classes.test,
        classes=classes.names,
        source=source,
        files=files,
        notes=classes.notes,
        response=response,
        response_train=responses[0],
        response_test=responses[1],
        vocabulary=tokens,
        classes_from=classes.origin,
        ignored=ignored,
        wide=any(part.dtype == np.float64 for part in (x, x_test)),
        x_form=x_form,
        y_form=y_form,
    )


def _part(name: str, part: str, given: Part, tokens: int) -> tuple[Array, Array]:
    """The records and the labels of one part, as many of these as of those."""
    x = given[0].rows if isinstance(given[0], Packed) else _records(name, part, given[0], tokens)
    y = given[1].rows if isinstance(given[1], Packed) else _labels(name, part, given[1], len(x))
    if len(x) != len(y):
        raise FaultyRecords(f"{name}: {len(x)} {part} records have {len(y)} labels; wanted one for each")
    return x, y


def _records(name: str, part: str, given: object, tokens: int) -> Array:
    """The records of one part, as bytes or as floats, with one channel for grey pictures; tokens as int64."""
    try:
        x = np.asarray(given)
    except (TypeError, ValueError) as error:
        reason = f"({error})"
        if "inhomogeneous" in reason:
            reason = "but records of several lengths. Pad each to one public length"
        raise FaultyRecords(f"{name}, {part} records: {WANTED}; found no such array {reason}") from None
    if tokens:
        if x.dtype.kind not in "ui" or x.ndim != 2 or (x.dtype == np.uint64 and x.size and x.max() > MAX_TOKENS):
            raise FaultyRecords(
                f"{name}, {part} records: tokens must be whole numbers, [N, T]; found {x.dtype} {list(x.shape)}"
            )
        return x.astype(np.int64)
    if x.dtype.kind not in "uifb" or x.ndim not in (2, 3, 4):
        raise FaultyRecords(f"{name}, {part} records: {WANTED}; found {x.dtype} {list(x.shape)}")
    x = x[:, None] if x.ndim == 3 else x
    if x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 2, 3, 4):
        raise FaultyRecords(
            f"{name}, {part} records: pictures are [N, C, H, W], channels first; found {list(x.shape)}. "
            f"Transpose them: x.transpose(0, 3, 1, 2)"
        )
    if x.dtype == np.uint8:
        return x
    return narrowed(x)


def _labels(name: str, part: str, given: object, count: int) -> Array:
    """The labels of ``count`` records: whole numbers or text, [N], or numbers to predict, [N] or [N, K]."""
    try:
        y = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise FaultyRecords(f"{name}, {part} labels: wanted one for each record; found no array ({error})") from None
    if y.ndim == 2 and (y.shape[1] == 1 or (y.shape[0] == 1 and count != 1)):
        y = y.reshape(-1)
    if y.dtype == object and y.size and all(isinstance(label, str) for label in y.flat):
        y = y.astype(str)  # a column of pandas
    if not (y.dtype.kind in "uibU" and y.ndim == 1) and not (y.dtype.kind == "f" and y.ndim in (1, 2)):
        raise FaultyRecords(
            f"{name}, {part} labels: wanted a whole number or word for each record, [N], or float numbers to predict, "
            f"[N] or [N, K]; found {y.dtype} {list(y.shape)}"
        )
    if y.dtype == np.uint64 and y.size and y.max() > np.iinfo(np.int64).max:
        raise FaultyRecords(f"{name}, {part} labels: whole numbers must be below 2^63; found {y.max()}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        row = int(np.argmax(~np.isfinite(y).reshape(len(y), -1).all(axis=1)))
        raise FaultyRecords(f"{name}, {part} labels: wanted finite numbers; found {y[row]} at record {row}")
    return y.astype(np.int64) if y.dtype.kind in "uib" else y


def _require_one_kind(name: str, y: Array, y_test: Array) -> None:
    """Refuse labels of which one part are numbers to predict or words, and the other classes."""
    if (y.dtype.kind == "U") != (y_test.dtype.kind == "U"):
        raise FaultyRecords(f"{name}: the labels of training and test records must be of one type")
    floats = [part for part in (y, y_test) if part.dtype.kind == "f"]
    if len(floats) == 1 and (floats[0].ndim == 2 or not np.all(floats[0] == np.floor(floats[0]))):
        kinds = " and ".join(f"{part.dtype} {list(part.shape)}" for part in (y, y_test))
        raise FaultyRecords(
            f"{name}: the labels of training and test records must both be classes, [N], or both numbers to predict; "
            f"found {kinds}"
        )


def _responses(name: str, y: Array, y_test: Array) -> tuple[tuple[str, ...], tuple[Array | None, Array | None]]:
    """The names of the numbers to predict and their values in both parts; none where the labels are no floats."""
    if y.dtype.kind != "f" or y_test.dtype.kind != "f":
        return (), (None, None)
    with np.errstate(over="ignore"):  # numbers that overflow become infinite, which Data refuses
        values = tuple(part.reshape(len(part), -1).astype(np.float32) for part in (y, y_test))
    if values[0].shape[1] != values[1].shape[1]:
        widths = " and ".join(str(part.shape[1]) for part in values)
        raise FaultyRecords(f"{name}: training and test records must have equally many targets; found {widths}")
    return tuple(f"response {k}" for k in range(values[0].shape[1])), (values[0], values[1])


def _is_whole(y: Array) -> bool:
    """Tell whether labels are one whole number for each record."""
    return y.ndim == 1 and bool(np.all(np.abs(y) < 2.0**53)) and bool(np.all(y == np.floor(y)))


def _label_place(name: str, part: int, row: int) -> str:
    return f"{name}, {'test' if part else 'training'} labels, record {row}: found"


# --- a reader of the user's own: a function in a Python file that returns records and labels ---

RETURNED = (
    "must return (x, y), ((x, y), (x_test, y_test)), (x_train, y_train, x_test, y_test), or a mapping with these names"
)


def read_own(path: str, name: str, parameters: Mapping[str, object]) -> Data:
    """Run a Python file, call its reader, and return what it returned as a data set.

    Raises:
        UsageError: the file or the reader fails, or returns something else than arrays of records and labels.
        MissingResource: the file cannot be read, or the arrays are not those of a data set.
    """
    train, test, tokens, declared = parts_of(python_file.call(path, name, parameters, {}), f"{path}: {name}")
    return of_arrays(
        f"{name}:{Path(path).stem}",
        train,
        test,
        source=f"{path}, {name}",
        files=(File.unverified(Path(path), python_file.source(path).encode()),),
        declared=declared,
        tokens=tokens,
    )


def parts_of(returned: object, what: str) -> tuple[Part, Part | None, int, tuple[str, ...] | None]:
    """Return training and test records with their labels, from one of the forms in which they may be given.

    A mapping may name the size of the vocabulary by ``tokens``, else 0, and the label of each class by ``classes``.
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
        raise UsageError(f"{what} {RETURNED}; found a mapping with {', '.join(map(str, given)) or 'nothing'}")
    if isinstance(returned, (tuple, list)) and len(returned) == 4:
        return (returned[0], returned[1]), (returned[2], returned[3]), 0, None
    if isinstance(returned, (tuple, list)) and len(returned) == 2:
        first, second = returned
        if all(isinstance(part, (tuple, list)) and len(part) == 2 for part in (first, second)):
            return (first[0], first[1]), (second[0], second[1]), 0, None
        return (first, second), None, 0, None
    raise UsageError(f"{what} {RETURNED}; found {type(returned).__name__}")


# --- rows of numbers with labels, as networks for other tasks extract them ---


@dataclass(frozen=True)
class Features(PluginClass):
    """Extracted features: rows of numbers with labels, from a .npz or a .mat file."""

    name = "features"
    ABOUT = "rows of numbers with labels, from your own .npz or .mat"
    GET = (
        "Give the path of a file with an array of rows and one of labels: --param file=PATH "
        "(in a recipe, data: {name: features, file: PATH})."
    )
    file: str = parameter("path of a .npz or .mat file, as it stands or below the data root")
    test_file: str = parameter("another one for testing; else a share of the rows is held out", default="")
    features: str = parameter("name of the array of rows, [N, D]; found by its shape where not given", default="")
    labels: str = parameter("name of the array of labels, [N]; found by its shape where not given", default="")
    classes: Sequence[object] | str = parameter(_classes.LABELS, default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)

    @staticmethod
    def read(root: Path | None, params: Features) -> Data:
        """Return [N, D] float32 as in the file. Labels keep their numbers, unless others are declared."""
        names = (params.file, *([params.test_file] if params.test_file else []))
        parts = [_rows_of(resolve_path(params.name, "file", name, root), params) for name in names]
        first = parts[0][2]
        data = of_arrays(
            f"{params.name}:{first.path.stem}",
            parts[0][:2],
            parts[1][:2] if params.test_file else None,
            source=str(first.path),
            share=params.test_share,
            seed=params.split_seed,
            files=tuple(file for *_, file in parts),
            declared=_classes.class_names(params.name, params.classes),
        )
        if data.response:
            y = data.response_train
            assert y is not None
            raise FaultyRecords(
                f"{data.name}: whole labels are the numbers of their classes, from 0 to {_classes.MAX_CLASSES - 1}; "
                f"found {y.min()} to {y.max()}. Declare the label of each class by classes, such as classes: [-1, 1]"
            )
        return data


def label_values(root: Path | None, file: str) -> tuple[str, ...]:
    """Return the sorted labels of a file of features, each once, as classes to declare where the file is public."""
    y = _rows_of(resolve_path("features", "file", file, root), Features(file=file))[1]
    return tuple(str(value) for value in np.unique(y))


def _rows_of(path: Path, params: Features) -> tuple[Array, Array, File]:
    """Return the rows and the integer labels in a file."""
    raw = read_bytes(path)
    arrays = parse_mat(path, raw) if path.suffix.lower() == ".mat" else parse_npz(path, raw)
    x = _select(arrays, params.features, "features", path, lambda a: a.ndim == 2 and min(a.shape) > 1)
    count = len(x) if x.ndim else 0
    y = _select(arrays, params.labels, "labels", path, lambda a: a.ndim > 0 and a.size == max(a.shape) == count)
    exact = y.dtype.kind in "iuf" and np.isfinite(y).all() and (np.abs(y) < 2**53).all()
    labels = y.reshape(-1).astype(np.int64) if exact else None
    if x.ndim != 2 or x.dtype.kind not in "iuf" or labels is None or not np.array_equal(labels, y.reshape(-1)):
        raise FaultyRecords(
            f"{path}: wanted rows of numbers, [N, D], and integer labels; "
            f"found {x.dtype} {list(x.shape)}, {y.dtype} {list(y.shape)}"
        )
    return narrowed(x), labels, File.unverified(path, raw)


def _select(arrays: dict[str, Array], name: str, role: str, path: Path, fits: Callable[[Array], bool]) -> Array:
    """Return the array of that name, or the only one that fits."""
    shapes = ", ".join(f"{key} {list(array.shape)}" for key, array in arrays.items()) or "none"
    if name:
        if name not in arrays:
            raise UsageError(f"{path}: has no array called {name!r} for the {role}; found {shapes}")
        return arrays[name]
    candidates = [array for array in arrays.values() if fits(array)]
    if len(candidates) != 1:
        raise UsageError(
            f"{path}: {len(candidates)} arrays could be the {role}; name one with the parameter {role}. Found {shapes}"
        )
    return candidates[0]
