"""The 8x8 digits that come with scikit-learn: for quick runs and tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.process import Parameters, parameter
from wpriv.data._record import Data, held_out
from wpriv.errors import MissingResource

ABOUT = "small digits of scikit-learn, 1797 of 1x8x8, a fifth of them held out"
SOURCE = "Alpaydin, Kaynak 1998: Optical Recognition of Handwritten Digits (UCI), as in scikit-learn"
GET = "They come with scikit-learn: pip install scikit-learn (or wpriv[test])."


@dataclass(frozen=True)
class Params(Parameters):
    """How the test set is drawn, since there is none of its own."""

    test_share: float = parameter("share of the examples that are held out for testing", default=0.2, least=0)
    split_seed: int = parameter("seed of that choice", default=0, least=0)


def read(root: Path | None, params: Params) -> Data:
    """[N, 1, 8, 8] float32 in [0, 1], labels 0 to 9. The root is not looked at.

    Raises:
        MissingResource: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingResource(f"digits: scikit-learn cannot be loaded ({error}). {GET}") from None
    x, y = load_digits(return_X_y=True)
    images, labels = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8), y.astype(np.int64)
    train, test = held_out(len(images), params.test_share, params.split_seed)
    return Data(params.name, images[train], labels[train], images[test], labels[test], tuple("0123456789"), SOURCE)
