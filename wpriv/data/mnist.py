"""MNIST: 60000 and 10000 handwritten digits, 28x28."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wpriv.core.parameters import Parameters, parameter
from wpriv.data import _idx
from wpriv.data._dataset import Data
from wpriv.data._files import FileSet

ABOUT = "handwritten digits, 60000 + 10000 of 1x28x28"
SOURCE = "LeCun, Cortes, Burges: the MNIST database"
SHAPE, CLASSES = (1, 28, 28), tuple("0123456789")
GET = (
    "Get its four files from http://yann.lecun.com/exdb/mnist/ or https://ossci-datasets.s3.amazonaws.com/mnist/, "
    "gzipped or not."
)
FILES = FileSet(
    name="mnist",
    get=GET,
    layouts=(_idx.LAYOUT, _idx.DOTTED),
    folders=("mnist", "MNIST/raw"),
    system=("/usr/share/datasets/mnist",),
    published={
        f"{name}{dot}idx{rank}-ubyte": md5
        for name, rank, md5 in (
            ("train-images", 3, "6bbc9ace898e44ae57da46a324031adb"),
            ("train-labels", 1, "a25bea736e30d166cdddb491f175f624"),
            ("t10k-images", 3, "2646ac647ad5339dbf082846283269ea"),
            ("t10k-labels", 1, "27ae3e4e09519cfbb04c329615203637"),
        )
        for dot in "-."
    },
)


@dataclass(frozen=True)
class Params(Parameters):
    """The option to refuse files other than the published ones."""

    verify: bool = parameter("refuse files whose checksum is not the published one", default=True)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, 1, 28, 28] uint8 images, labels 0 to 9."""
    return _idx.read(FILES, params, params.verify, root, CLASSES, SOURCE)
