"""8x8 handwritten digits, installed with the package: for quick runs and tests."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.training.data._dataset import Data, random_split
from wpriv.training.data._files import read_packaged

ABOUT = "small digits of scikit-learn, 1797 of 1x8x8, a fifth of them held out"
SOURCE = "Alpaydin, Kaynak 1998: Optical Recognition of Handwritten Digits (UCI), as in scikit-learn"
SHAPE, CLASSES = (1, 8, 8), tuple("0123456789")
GET = "They are installed with wpriv; install it again if the file is missing."
FILE = Path(__file__).with_name("digits.csv.gz")  # licence and origin: digits.LICENSE.txt
# of the unpacked file, here and in scikit-learn
SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"


@dataclass(frozen=True)
class Params(Parameters):
    """The test split; the data set has no test set."""

    test_share: float = parameter("share of the examples that are held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, 1, 8, 8] float32 images in [0, 1] with labels 0 to 9; ``root`` is not used.

    Raises:
        MissingResource: the file in the package is missing or damaged.
    """
    # each line holds 64 pixels from 0 to 16, then the label
    table = np.loadtxt(io.BytesIO(read_packaged(FILE, SHA256)), np.int64, delimiter=",")
    images, labels = (table[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8), table[:, -1]
    train, test = random_split(len(images), params.test_share, params.split_seed)
    return Data(params.name, images[train], labels[train], images[test], labels[test], CLASSES, SOURCE)
