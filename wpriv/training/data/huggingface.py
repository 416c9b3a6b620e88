"""A data set of the library ``datasets`` that ``save_to_disk`` has written: numbers, pictures, or token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import FaultyRecords, UsageError, require
from wpriv.hints import did_you_mean
from wpriv.training.data import _classes
from wpriv.training.data._classes import Declared
from wpriv.training.data._dataset import Array, Data
from wpriv.training.data._files import File, resolve_path
from wpriv.training.data._formats import square
from wpriv.training.data.arrays import of_arrays

ABOUT = "your own data set of Hugging Face datasets, saved on disk"
GET = (
    "Write one by dataset.save_to_disk(PATH), and give the path and the columns: --param folder=PATH --param x=image "
    "(in a recipe, data: {name: huggingface, folder: PATH, x: image})."
)


@dataclass(frozen=True)
class Params(Parameters):
    """The folder, the columns, what is publicly known of them, and the splits."""

    folder: str = parameter("path of the folder that save_to_disk wrote, as it stands or below the data root")
    x: Sequence[str] | str = parameter(
        "the columns of a record, separated by commas: numeric ones, one of pictures, or one of lists of equal length"
    )
    y: str = parameter("the column to predict: classes, or floats to predict (task fit)", default="label")
    size: int = parameter("width and height of every picture once read", default=64, minimum=1)
    grey: bool = parameter("true: pictures have one channel of grey in the place of three of colour", default=False)
    tokens: int = parameter(
        "size of the vocabulary, where the lists of x are token ids below it; else 0", default=0, minimum=0
    )
    ranges: Mapping[str, object] | str = parameter(_classes.RANGES, default="")
    categories: Mapping[str, object] | str = parameter(_classes.CATEGORIES, default="")
    classes: Sequence[object] | str = parameter(_classes.CLASSES, default="")
    train: str = parameter("name of the split to train on", default="train")
    test: str = parameter("name of the split to test on; a share is held out where there is none", default="test")
    test_share: float = parameter("share held out for testing, without a test split", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, D] float32, [N, C, size, size] uint8, or [N, T] int64 tokens, as the columns are.

    Classes are those declared, else the names of a ClassLabel, else the sorted labels.
    """
    declared = _classes.declared(
        params.name, ranges=params.ranges, categories=params.categories, classes=params.classes
    )
    columns = [name.strip() for name in (params.x.split(",") if isinstance(params.x, str) else params.x)]
    folder = resolve_path(params.name, "folder", params.folder, root)
    splits = _splits(folder, params)
    for split in splits:
        for name in [*columns, params.y]:
            if name not in split.column_names:
                suggestion = did_you_mean(name, split.column_names) or "."
                raise UsageError(
                    f"{folder}: no column called {name[:60]!r}{suggestion} Its columns: {', '.join(split.column_names)}"
                )
    declared.require_columns(str(folder), columns)
    parts = []
    for word, split in zip((params.train, params.test), splits, strict=False):
        where = f"{folder}, {word}"
        try:
            parts.append((_records(where, split, columns, params, declared), _labels(where, split, params)))
        except ValueError as error:  # pyarrow, on a damaged file
            raise FaultyRecords(f"{where}: cannot be read ({str(error).partition(chr(10))[0][:200]})") from None
    names = getattr(splits[0].features[params.y], "names", None)
    classes = declared.classes or names
    if declared.classes is not None:
        parts = [(x, _numbers(f"{folder}, {params.y}", y, declared.classes, names)) for x, y in parts]
    return of_arrays(
        f"{params.name}:{folder.name}",
        parts[0],
        parts[1] if len(parts) > 1 else None,
        source=str(folder),
        share=params.test_share,
        seed=params.split_seed,
        files=tuple(File.unverified(path, path.read_bytes()) for path in sorted(folder.rglob("*.arrow"))),
        names=classes,
        tokens=params.tokens,
    )


def _splits(folder: Path, params: Params) -> list[Any]:
    """Return the training split, and the test split where there is one."""
    require("datasets", "a data set of Hugging Face")
    import datasets

    try:
        loaded = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:  # pyarrow's errors are ValueError or OSError
        message = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise FaultyRecords(f"{folder}: no data set that save_to_disk wrote ({message})") from None
    if not isinstance(loaded, datasets.DatasetDict):
        return [loaded]
    if params.train not in loaded:
        raise UsageError(f"{folder}: no split called {params.train!r}; its splits: {', '.join(loaded)}")
    if params.test != "test" and params.test not in loaded:
        raise UsageError(f"{folder}: no split called {params.test!r}; its splits: {', '.join(loaded)}")
    return [loaded[params.train], *([loaded[params.test]] if params.test in loaded else [])]


def _records(where: str, split: Any, columns: Sequence[str], params: Params, declared: Declared) -> Array:
    kinds = [type(split.features[name]).__name__ for name in columns]
    if "Image" in kinds:
        if len(columns) > 1 or params.tokens:
            raise UsageError(f"{where}: a record is one picture, or numbers, and not both; found {', '.join(columns)}")
        return _pictures(f"{where}, {columns[0]}", split, columns[0], params)
    blocks = [_block(f"{where}, {name}", split[name], declared, name) for name in columns]
    if params.tokens:
        if any(block.dtype.kind not in "iu" for block in blocks):
            raise FaultyRecords(f"{where}: tokens must be whole numbers in {', '.join(columns)}; found others")
        return np.concatenate(blocks, axis=1)
    return np.concatenate([block.astype(np.float64) for block in blocks], axis=1)


def _block(where: str, values: Iterable[object], declared: Declared, name: str) -> Array:
    """One column as [N, k] numbers: a number or a word for each record, or a list of numbers of equal length."""
    cells = list(values)
    if name in declared.categories:
        words = declared.categories[name]
        places = _classes.indices(
            [str(cell) for cell in cells], words, "categories", lambda row: f"{where}, record {row}: has"
        )
        return np.eye(len(words))[places]
    length = len(cells[0]) if cells and isinstance(cells[0], (list, np.ndarray)) else None
    for row, cell in enumerate(cells):
        size = len(cell) if isinstance(cell, (list, np.ndarray)) else None
        if size != length:
            raise FaultyRecords(
                f"{where}, record {row}: wanted {_length(length)} as in record 0; found {_length(size)}. Pad or cut "
                f"lists to one length before saving"
            )
        flat = np.asarray(cell if length is not None else [cell])
        if flat.dtype.kind not in "uifb" or flat.ndim != 1 or not np.isfinite(flat).all():
            raise FaultyRecords(f"{where}, record {row}: wanted finite numbers; found {str(cell)[:60]!r}")
    block = np.asarray(cells).reshape(len(cells), -1)
    return _classes.in_range(block, declared.ranges[name]) if name in declared.ranges else block


def _length(length: int | None) -> str:
    return "a number" if length is None else f"a list of length {length}"


def _pictures(where: str, split: Any, name: str, params: Params) -> Array:
    """The pictures of one column as [N, C, size, size] uint8: the largest square in the middle of each, resized."""
    from PIL import Image, UnidentifiedImageError

    pictures = []
    for row in range(len(split)):
        try:
            image = split[row][name]
            if image is None:
                raise FaultyRecords(f"{where}, record {row}: wanted a picture; found none")
            pictures.append(square(image, f"{where}, record {row}", size=params.size, grey=params.grey))
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            message = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise FaultyRecords(f"{where}, record {row}: not a complete picture ({message})") from None
    return np.stack(pictures) if pictures else np.zeros((0, 1, 1, 1), np.uint8)


def _labels(where: str, split: Any, params: Params) -> Array:
    """The labels of one split: whole numbers, words, or floats to predict."""
    cells = list(split[params.y])
    missing = [row for row, cell in enumerate(cells) if cell is None or cell == ""]
    if missing:
        raise FaultyRecords(f"{where}, {params.y}, record {missing[0]}: wanted a label; found none")
    return np.asarray(cells)


def _numbers(where: str, y: Array, classes: tuple[str, ...], names: Sequence[str] | None) -> Array:
    """The numbers of labels among the declared classes; ``names`` are those of a ClassLabel."""
    if names is not None:
        y = np.array([names[label] if 0 <= label < len(names) else "no label" for label in y.tolist()])
    return _classes.indices(
        [str(cell) for cell in y], classes, "classes", lambda row: f"{where}, record {row}: the label is"
    )
