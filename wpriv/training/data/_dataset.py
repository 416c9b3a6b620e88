"""The data set in memory, validated, which readers return and tasks train on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import FaultyRecords
from wpriv.training.data._files import File
from wpriv.training.data._trees import Packed

Array = NDArray[Any]
Arrays = tuple[Array, Array, Array, Array]  # x_train, y_train, x_test, y_test
ARRAYS = (
    *("x_train", "y_train", "x_test", "y_test"),
    *("sensitive_train", "sensitive_test", "response_train", "response_test"),
)
# where classes were read, where they are not known without the records or declared
FROM_LABELS, FROM_LARGEST, FROM_OUTPUTS = "labels", "largest label", "outputs"
LOST = 1e-4  # share of a column's spread that rounding to float32 may take
IGNORED = -100  # as torch marks records without a class
SHARE = 0.2  # of the records that is held out for testing where nothing else is said


@dataclass(frozen=True, eq=False)
class RecordNoise:
    """Independent noise on every number of the training records, from local privatisation.

    Args:
        p: 2 for Gaussian noise, 1 for Laplace noise. scale: its sigma, or b.
        domain: ``as read``, or ``dct`` if the training records are orthonormal cosine coefficients.
        statement: the privacy statement of ``wpriv privatize``.
    """

    p: int
    scale: float
    domain: str
    statement: dict[str, Any]

    @property
    def lam(self) -> float:
        """p sigma^p (2 sigma^2, or b): the regularisation at which the noiseless distribution minimises transport cost.

        Source: Reshetova, Chen, Ozgur (2023), Theorem 1 (their Corollary 1 prints 1/b).
        """
        return self.p * self.scale**self.p


@dataclass(frozen=True, eq=False)
class Data:
    """Examples and labels, for training and for testing.

    Args:
        name: for tables. classes: names of the labels. source: the authors of the data, or the path of the user's file.
        x_train, x_test: [N, C, H, W] images or [N, D] rows. uint8 holds raw bytes, 0 to 255; float32 is as the reader
            documents (images: [0, 1]; rows: as in the file). The test set may be empty. Nothing is normalised.
            int64 [N, T] holds tokens, where there is a vocabulary. Records of other forms are rows of a structured
            array with a tree of the names of its fields, ``x_form`` (_trees.py); a ``person`` has several rows.
        y_train, y_test: [N] int64, indices into ``classes``, or ``ignored`` for a record without a class.
        wide: x may be float64, since float32 does not resolve the spread of a column (``narrowed``); tasks normalise it
            before they round it.
        classes_from: where the classes were read: ``labels``, ``largest label`` (their number), or ``outputs`` of the
            network; empty where they are known without the records.
        files: the files read, with checksums. notes: remarks such as what the reader inferred from the data.
        columns: names of the D columns of a table.
        sensitive: name of the sensitive column, if any. sensitive_train, sensitive_test: [N] int64, its groups.
        noise: the noise on x_train (x_test has none), if the records were privatised.
        vocabulary: the declared number of tokens, where records are tokens from 0 to vocabulary - 1; else 0.
        response: names of the numbers to predict, if any. response_train, response_test: [N, len(response)] float32;
            int64 where whole numbers were given that cannot be classes. A structured array with ``y_form``
            where targets have another form than a number or a row of numbers for each record.
    Raises:
        FaultyRecords: a label is out of range, a number is not finite, or the arrays do not match.
    """

    name: str
    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    classes: tuple[str, ...]
    source: str
    files: tuple[File, ...] = ()
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    sensitive: str = ""
    sensitive_train: Array | None = None
    sensitive_test: Array | None = None
    noise: RecordNoise | None = None
    response: tuple[str, ...] = ()
    response_train: Array | None = None
    response_test: Array | None = None
    vocabulary: int = 0
    classes_from: str = ""
    ignored: int | None = IGNORED
    wide: bool = False
    x_form: Any = None
    y_form: Any = None

    def __post_init__(self) -> None:
        for name in ("x_train", "x_test"):
            x = getattr(self, name)
            if self.wide and x.dtype == np.float32:
                x = x.astype(np.float64)
            # torch warns of read-only views of a file's bytes, and batches gather slowly from transposed arrays
            object.__setattr__(self, name, np.require(x, requirements=["C", "W"]))
        if len(self.x_train) == 0:
            raise FaultyRecords(f"{self.name}: the training set is empty")
        train, test = self.x_train, self.x_test
        # a person has several rows for training, and each row is tested by itself
        if train.dtype != test.dtype or (train.shape[1:] != test.shape[1:] and self.x_form is None):
            raise FaultyRecords(
                f"{self.name}: training and test examples must have the same type and shape; "
                f"found {train.dtype} {list(train.shape)} and {test.dtype} {list(test.shape)}"
            )
        for part in ("train", "test"):
            x, y, group = (getattr(self, f"{field}_{part}") for field in ("x", "y", "sensitive"))
            self._check(f"{self.name}, {part} set", x, y, group)
            self._check_response(f"{self.name}, {part} set", len(x), getattr(self, f"response_{part}"))

    def _check(self, where: str, x: Array, y: Array, group: Array | None) -> None:
        if self.x_form is None and self.vocabulary:
            self._check_tokens(where, x)
        elif self.x_form is None and (
            x.dtype not in (np.uint8, np.float64 if self.wide else np.float32)
            or x.ndim not in (2, 4)
            or 0 in x.shape[1:]
        ):
            raise FaultyRecords(
                f"{where}: wanted uint8 or float32 examples, [N, C, H, W] or [N, D]; found {x.dtype} {list(x.shape)}"
            )
        for name, column in (("labels", y), ("groups", group)):
            if column is not None and len(column) != len(x):
                raise FaultyRecords(f"{where}: {len(x)} examples have {len(column)} {name}; wanted one for each")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            index = tuple(np.argwhere(~np.isfinite(x))[0])
            column_name = f" (column {self.columns[index[1]]!r})" if self.columns else ""
            raise FaultyRecords(
                f"{where}: every number must be finite; found {x[index]} in example {index[0]}{column_name}"
            )
        if y.dtype.kind not in "iu" or y.ndim != 1:
            raise FaultyRecords(f"{where}: labels must be integers, [N]; found {y.dtype} {list(y.shape)}")
        outside = ((y < 0) | (y >= len(self.classes))) & (y != self.ignored)
        if outside.any():
            wrong = int(np.argmax(outside))
            raise FaultyRecords(
                f"{where}: labels must lie from 0 to {len(self.classes) - 1}; found {y[wrong]} at example {wrong}"
            )

    def _check_tokens(self, where: str, x: Array) -> None:
        if x.dtype != np.int64 or x.ndim != 2 or 0 in x.shape[1:]:
            raise FaultyRecords(f"{where}: tokens must be whole numbers, [N, T]; found {x.dtype} {list(x.shape)}")
        wrong = np.argwhere((x < 0) | (x >= self.vocabulary))
        if len(wrong):
            row, place = wrong[0]
            raise FaultyRecords(
                f"{where}: tokens must lie from 0 to {self.vocabulary - 1}, as declared; found {x[row, place]} in "
                f"example {row} at place {place}"
            )

    def _check_response(self, where: str, count: int, values: Array | None) -> None:
        if (values is None and not self.response) or self.y_form is not None:
            return
        shape = (count, len(self.response))
        if values is None or values.dtype not in (np.float32, np.int64) or values.shape != shape:
            description = "none" if values is None else f"{values.dtype} {list(values.shape)}"
            raise FaultyRecords(f"{where}: responses must be float32 numbers {list(shape)}; found {description}")
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise FaultyRecords(
                f"{where}: every number to predict must be finite; found {values[row, column]} at example {row} "
                f"({self.response[column]})"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (C, H, W) or (D,)."""
        return self.x_train.shape[1:]

    def packed(self, name: str) -> Packed | None:
        """Return the records (``x_train``) or targets (``response_test``) of that name, where they have a form."""
        rows, form = getattr(self, name), self.x_form if name.startswith("x") else self.y_form
        if rows is None or form is None:
            return None
        # targets of persons say in a second part which are padding; records for testing are not of persons
        of_records = name == "response_test" and self.x_train.ndim > self.x_test.ndim
        return Packed(rows, form[0] if of_records else form)

    @property
    def records(self) -> int:
        """The number of training examples: the data-set size of the accounting."""
        return len(self.x_train)

    @cached_property
    def fingerprint(self) -> str:
        """The first 16 hexadecimal digits of a SHA-256 over all arrays, the same for every file format."""
        digest = hashlib.sha256()
        for name in ARRAYS:
            if (array := getattr(self, name)) is not None:
                digest.update(f"{array.dtype.descr if array.dtype.names else array.dtype.str}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()[:16]

    def limited(self, count: int, *, tests: bool = True) -> Data:
        """Return the first ``count`` training examples, with all test examples or (``tests``) as many of them."""
        names = [name for name in ARRAYS if tests or name.endswith("_train")]
        return replace(self, **{name: array[:count] for name in names if (array := getattr(self, name)) is not None})

    def describe(self) -> dict[str, Any]:
        """Return plain data for provenance and tables."""
        return {
            "name": self.name,
            "train": len(self.x_train),
            "test": len(self.x_test),
            "shape": list(self.shape),
            "dtype": str(self.x_train.dtype),
            "classes": list(self.classes),
            "sensitive": self.sensitive or None,
            "source": self.source,
            "fingerprint": self.fingerprint,
            "files": [file.describe() for file in self.files],
            "notes": list(self.notes),
        }


def narrowed(x: Array) -> Array:
    """Return numbers as float32; as float64 where float32 loses more than ``LOST`` of a column's or channel's spread.

    Such columns are large numbers that differ little, such as seconds since 1970, of which little would be left after
    a public constant was subtracted. Numbers that overflow become infinite, which ``Data`` refuses.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        narrow: Array = x.astype(np.float32)
        if x.dtype == np.float32 or not len(x) or not np.isfinite(narrow).all():
            return narrow
        wide = x.astype(np.float64)
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        lost = np.abs(wide - narrow).max(axis=axes) > LOST * np.ptp(wide, axis=axes)
    return wide if lost.any() else narrow


def scaled(x: Array) -> NDArray[np.float32]:
    """Convert examples to float32: bytes are divided by 255 to [0, 1], other types keep their values."""
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32, copy=False)


def random_split(count: int, share: float = SHARE, seed: int = 0) -> tuple[Array, Array]:
    """Return sorted indices of training and of test examples, drawn at random, for a data set without a test set."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(count)
    tests = round(min(share, 1.0) * count)
    if tests >= count:
        raise FaultyRecords(
            f"a test share of {share:g} leaves none of {count} examples to train on; choose a smaller one"
        )
    return np.sort(order[tests:]), np.sort(order[:tests])
