"""Fashion-MNIST: 60000 and 10000 pictures of clothing, 28x28."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wpriv.core.parameters import Parameters, parameter
from wpriv.data import _idx
from wpriv.data._dataset import Data
from wpriv.data._files import FileSet

ABOUT = "pictures of clothing, 60000 + 10000 of 1x28x28"
SOURCE = "Xiao, Rasul, Vollgraf 2017: Fashion-MNIST"
SHAPE = (1, 28, 28)
GET = "Get it from https://github.com/zalandoresearch/fashion-mnist, or on Debian by apt install dataset-fashion-mnist."
FILES = FileSet(
    name="fashion-mnist",
    get=GET,
    layouts=(_idx.LAYOUT, _idx.DOTTED),
    folders=("fashion-mnist", "FashionMNIST/raw"),
    system=("/usr/share/datasets/fashion-mnist",),
    # of the unpacked content, which does not depend on the gzip program
    published={
        f"{name}{dot}idx{rank}-ubyte": md5
        for name, rank, md5 in (
            ("train-images", 3, "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
            ("train-labels", 1, "9018921c3c673c538a1fc5bad174d6f9"),
            ("t10k-images", 3, "8181f5470baa50b63fa0f6fddb340f0a"),
            ("t10k-labels", 1, "15d484375f8d13e6eb1aabb0c3f46965"),
        )
        for dot in "-."
    },
)
CLASSES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


@dataclass(frozen=True)
class Params(Parameters):
    """The option to refuse files other than the published ones."""

    verify: bool = parameter("refuse files whose checksum is not the published one", default=True)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, 1, 28, 28] uint8 images, labels 0 to 9."""
    return _idx.read(FILES, params, params.verify, root, CLASSES, SOURCE)
