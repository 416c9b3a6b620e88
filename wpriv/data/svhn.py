"""SVHN, cropped: 73257 and 26032 house-number digits from street views, 32x32 in colour."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.data import _mat
from wpriv.data._dataset import Array, Data
from wpriv.data._files import FileSet, display_name, read_bytes
from wpriv.errors import MissingResource

ABOUT = "house-number digits, 73257 + 26032 of 3x32x32"
SOURCE = "Netzer, Wang, Coates, Bissacco, Wu, Ng 2011: Street View House Numbers, cropped digits"
SHAPE, CLASSES = (3, 32, 32), tuple("0123456789")
GET = "Get train_32x32.mat and test_32x32.mat from http://ufldl.stanford.edu/housenumbers/."
FILES = FileSet(
    name="svhn",
    get=GET,
    layouts=(("train_32x32.mat", "test_32x32.mat"),),
    folders=("svhn", "SVHN"),
    system=("/usr/share/datasets/svhn",),
    published={
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
)


@dataclass(frozen=True)
class Params(Parameters):
    """The option to refuse files other than the published ones."""

    verify: bool = parameter("refuse files whose checksum is not the published one", default=True)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, 3, 32, 32] uint8 images, labels 0 to 9 (the files write 10 for the digit 0)."""
    arrays, files = [], []
    for path in FILES.find(root):
        raw = read_bytes(path)
        files.append(FILES.check(path, raw, params.verify))
        arrays.append(_images(_mat.parse(path, raw, ("X", "y")), path))
    (x_train, y_train), (x_test, y_test) = arrays
    return Data(display_name(params, files), x_train, y_train, x_test, y_test, CLASSES, SOURCE, tuple(files))


def _images(arrays: dict[str, Array], path: Path) -> tuple[Array, Array]:
    """Return images and labels of the arrays in a file."""
    x, y = arrays["X"], arrays["y"].reshape(-1)
    if x.dtype != np.uint8 or x.ndim not in (3, 4) or x.shape[:3] != (32, 32, 3) or y.dtype.kind not in "iuf":
        raise MissingResource(
            f"{path}: wanted X of [32, 32, 3, N] bytes and y of numbers; found {x.dtype} {list(x.shape)} and {y.dtype}"
        )
    x = x.reshape(32, 32, 3, -1)  # MATLAB drops a last axis of length 1
    if not np.all((y >= 1) & (y <= 10) & (y == np.floor(y))):
        raise MissingResource(f"{path}: labels must be integers from 1 to 10; found {y.min():g} to {y.max():g}")
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), y.astype(np.int64) % 10
