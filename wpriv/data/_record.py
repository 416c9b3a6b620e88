"""A data set in memory, checked: what readers return and tasks train on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.data._files import File
from wpriv.errors import MissingResource

Array = NDArray[Any]
ARRAYS = (
    "x_train",
    "y_train",
    "x_test",
    "y_test",
    "sensitive_train",
    "sensitive_test",
    "response_train",
    "response_test",
)


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise that lies on every number of the training records, and what was promised when it was put there.

    Args:
        p: 2 for Gauss noise, 1 for Laplace noise. scale: its sigma, or b. domain: ``as read``, or ``dct`` where the training records
            are orthonormal cosine coefficients. statement: that of ``wpriv privatize``.
    """

    p: int
    scale: float
    domain: str
    statement: dict[str, Any]

    @property
    def lam(self) -> float:
        """lambda = p sigma^p, at which entropic transport to the noisy records is least at the law without noise: 2 sigma^2, or b.

        Source: Reshetova, Chen, Ozgur (2023), Theorem 1 (their Corollary 1 prints 1/b).
        """
        return self.p * self.scale**self.p


@dataclass(frozen=True, eq=False)
class Data:
    """Examples and labels, for training and for testing.

    Args:
        x_train, x_test: [N, C, H, W] images or [N, D] rows. uint8 is raw bytes, 0 to 255; float32 is what the reader documents
            (images: [0, 1]; rows: as in the file). The test set may be empty. Normalising is the model's or the recipe's business.
        y_train, y_test: [N] int64, places in ``classes``.
        source: who made it. files: what was read, with checksums. notes: what a reader took from the data itself, and the like.
        sensitive_train, sensitive_test: [N] int64 groups of a column called ``sensitive``, where one was named.
        response_train, response_test: [N, len(response)] float32 numbers to predict, where a data set has such, and their names.
        columns: the names of the D columns of a table. noise: what lies on x_train, and only there, where it was privatised.
    Raises:
        MissingResource: labels out of range, a number that is not finite, or arrays that do not fit each other.
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
    noise: Noise | None = None
    response: tuple[str, ...] = ()
    response_train: Array | None = None
    response_test: Array | None = None

    def __post_init__(self) -> None:
        # views of a file's bytes cannot be written to, which torch warns of, and turned axes make every batch slow to gather
        for name in ("x_train", "x_test"):
            object.__setattr__(self, name, np.require(getattr(self, name), requirements=["C", "W"]))
        if len(self.x_train) == 0:
            raise MissingResource(f"{self.name}: the training set is empty")
        if self.x_train.dtype != self.x_test.dtype or self.x_train.shape[1:] != self.x_test.shape[1:]:
            shapes = (
                f"{self.x_train.dtype} {list(self.x_train.shape)} and {self.x_test.dtype} {list(self.x_test.shape)}"
            )
            raise MissingResource(
                f"{self.name}: training and test examples must have one type and shape; found {shapes}"
            )
        for part in ("train", "test"):
            x, y, group = (getattr(self, f"{field}_{part}") for field in ("x", "y", "sensitive"))
            self._check(f"{self.name}, {part} set", x, y, group)
            self._check_response(f"{self.name}, {part} set", len(x), getattr(self, f"response_{part}"))

    def _check(self, where: str, x: Array, y: Array, group: Array | None) -> None:
        if x.dtype not in (np.uint8, np.float32) or x.ndim not in (2, 4) or 0 in x.shape[1:]:
            raise MissingResource(
                f"{where}: wanted uint8 or float32 examples, [N, C, H, W] or [N, D]; found {x.dtype} {list(x.shape)}"
            )
        if len(x) != len(y) or (group is not None and len(group) != len(x)):
            raise MissingResource(f"{where}: {len(x)} examples have {len(y)} labels; wanted as many")
        if x.dtype == np.float32 and not np.isfinite(x).all():
            place = np.argwhere(~np.isfinite(x))[0]
            column = f" (column {self.columns[place[1]]!r})" if self.columns else ""
            raise MissingResource(
                f"{where}: every number must be finite; found {x[tuple(place)]} in example {place[0]}{column}"
            )
        if y.dtype.kind not in "iu" or y.ndim != 1:
            raise MissingResource(f"{where}: labels must be whole numbers, [N]; found {y.dtype} {list(y.shape)}")
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < len(self.classes):
            wrong = int(np.argmax((y < 0) | (y >= len(self.classes))))
            raise MissingResource(
                f"{where}: labels must lie from 0 to {len(self.classes) - 1}; found {y[wrong]} at example {wrong}"
            )

    def _check_response(self, where: str, count: int, numbers: Array | None) -> None:
        if numbers is None and not self.response:
            return
        wanted = (count, len(self.response))
        if numbers is None or numbers.dtype != np.float32 or numbers.shape != wanted or not np.isfinite(numbers).all():
            found = "none" if numbers is None else f"{numbers.dtype} {list(numbers.shape)}"
            raise MissingResource(f"{where}: responses must be finite float32 numbers {list(wanted)}; found {found}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (C, H, W) or (D,)."""
        return self.x_train.shape[1:]

    @property
    def records(self) -> int:
        """How many examples there are to train on: the data-set size of the accounting."""
        return len(self.x_train)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of a SHA-256 over everything that was read: the same whatever file format it came in."""
        whole = hashlib.sha256()
        for name in ARRAYS:
            if (part := getattr(self, name)) is not None:
                whole.update(f"{part.dtype.str}{part.shape}".encode())
                whole.update(np.ascontiguousarray(part).data)
        return whole.hexdigest()[:16]

    def limited(self, most: int, *, tests: bool = True) -> Data:
        """The same with at most so many examples to train on and, with ``tests``, so many to test on, the first ones."""
        names = [name for name in ARRAYS if tests or name.endswith("_train")]
        return replace(self, **{name: part[:most] for name in names if (part := getattr(self, name)) is not None})

    def describe(self) -> dict[str, Any]:
        """Plain data for provenance and tables."""
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


def scaled(x: Array) -> NDArray[np.float32]:
    """Examples as float32: bytes divided by 255 to [0, 1], anything else as it is."""
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32, copy=False)


def held_out(count: int, share: float, seed: int) -> tuple[Array, Array]:
    """Places of training and test examples where a data set comes without a split: a random one, the same for the same seed.

    Raises:
        MissingResource: nothing would be left to train on.
    """
    order = np.random.Generator(np.random.PCG64(seed)).permutation(count)
    tests = round(share * count)
    if tests >= count:
        raise MissingResource(
            f"a test share of {share:g} leaves none of {count} examples to train on; choose a smaller one"
        )
    return np.sort(order[tests:]), np.sort(order[:tests])
