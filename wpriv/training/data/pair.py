"""Two data sets with the same classes: a labelled public source, and a private target to adapt a classifier to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import MissingResource, UsageError
from wpriv.training import data
from wpriv.training.data._dataset import Array, Data, scaled
from wpriv.training.data.arrays import label_values

ABOUT = "a labelled public data set (source) and a private one (target), for domain adaptation"
GET = (
    "Name both, data sets of this list or paths of .npz or .mat files of features: "
    "--param source=mnist --param target=usps (in a recipe, data: {name: pair, source: mnist, target: usps})."
)
ENDINGS = (".npz", ".mat")
# weights of red, green and blue in a grey image (ITU-R BT.601)
GREY = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Params(Parameters):
    """The two data sets, and the size of the images."""

    source: str = parameter("the public one: a data set by name, or the path of a .npz or .mat file of features")
    target: str = parameter("the private one, likewise; its labels are used for evaluation, never for training")
    side: int = parameter("height and width to which images are resized", default=28, minimum=1)
    test_share: float = parameter(
        "share of the target held out for testing, if it is a file of features", default=0.2, minimum=0
    )
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for role in ("source", "target"):
            if getattr(self, role) == self.name:
                raise UsageError(f"pair: the {role} must be a single data set; found {self.name!r}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Pair(Data):
    """The private target, with the public source beside it; both have the same classes and the same example shape."""

    source_set: Data  # the public one

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprints of both data sets."""
        return f"{self.source_set.fingerprint}-{super().fingerprint}"

    def limited(self, count: int, *, tests: bool = True) -> Data:
        """Return a pair of the first examples of both data sets; see ``Data.limited``."""
        target = super().limited(count, tests=tests)
        assert isinstance(target, Pair)
        return replace(target, source_set=self.source_set.limited(count, tests=tests))

    def describe(self) -> dict[str, Any]:
        """Return plain data about the target, with a note on the source."""
        description, source = super().describe(), self.source_set
        note = f"source (public): {source.name}, {source.records} records; all counts here are of the target"
        return {**description, "notes": [note, *description["notes"]]}


def read(root: Path | None, params: Params) -> Data:
    """Return [N, C, side, side] images, uint8 or float32 in [0, 1], grey if either data set is; or [N, D] features.

    Images of another size are interpolated (bilinear, from pixel centre to pixel centre).
    """
    # the labels of the public source are the classes of both
    classes = label_values(root, params.source) if _is_file(params.source) else ()
    source = _read_one(root, params.source, params, test_share=0.0, classes=classes)
    target = _read_one(root, params.target, params, test_share=params.test_share, classes=classes)
    if source.classes != target.classes:
        raise UsageError(
            f"pair: both data sets must have the same classes; {params.source} has {', '.join(source.classes[:12])} "
            f"and {params.target} has {', '.join(target.classes[:12])}"
        )
    grey = len(source.shape) == 3 and 1 in (source.shape[0], target.shape[0])
    source, target = (_resized(data_set, params.side, grey) for data_set in (source, target))
    if source.shape != target.shape:
        raise MissingResource(
            "pair: examples must have the same shape; "
            f"{params.source} has {source.shape}, {params.target} {target.shape}"
        )
    fields = {name: value for name, value in vars(target).items() if name in Data.__dataclass_fields__}
    fields |= {"name": f"{source.name}-to-{target.name}", "files": source.files + target.files}
    fields |= {"source": f"source: {source.source}; target: {target.source}", "notes": source.notes + target.notes}
    return Pair(**fields, source_set=source)


def _is_file(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


def _read_one(root: Path | None, name: str, params: Params, test_share: float, classes: tuple[str, ...]) -> Data:
    """Read a data set by name, or features from a file, of which ``test_share`` is held out."""
    if not _is_file(name):
        return data.read(name, root=root)
    split = {"test_share": test_share, "split_seed": params.split_seed}
    return data.read("features", root=root, file=name, classes=classes, **split)


def _resized(data_set: Data, side: int, grey: bool) -> Data:
    """Return a data set with its images resized, and in grey if so required; other examples are unchanged."""
    if len(data_set.shape) != 3:
        return data_set
    x_train, x_test = (_resize(x, side, grey) for x in (data_set.x_train, data_set.x_test))
    return replace(data_set, x_train=x_train, x_test=x_test)


def _resize(x: Array, side: int, grey: bool) -> Array:
    """Return images [N, C, side, side]; those that already have the size and colour keep their type."""
    if grey and x.shape[1] == 3:
        x = np.einsum("nchw,c->nhw", scaled(x), np.array(GREY, np.float32))[:, None]
    if x.shape[2:] == (side, side):
        return x
    rows, columns = (_interpolation_weights(old, side) for old in x.shape[2:])
    images = np.einsum("ih,nchw,jw->ncij", rows, scaled(x), columns, optimize=True)
    return np.asarray(np.clip(images, 0, 1), dtype=np.float32)


def _interpolation_weights(old: int, new: int) -> Array:
    """Return the [new, old] weights of linear interpolation between pixel centres."""
    position = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    left = np.minimum(position.astype(int), max(old - 2, 0))
    weights = np.zeros((new, old), np.float32)
    weights[np.arange(new), left] = 1 - (position - left)
    weights[np.arange(new), np.minimum(left + 1, old - 1)] += position - left
    return weights
