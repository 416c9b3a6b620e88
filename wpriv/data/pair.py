"""Two data sets of the same classes: a public one with labels, and a private one to which a classifier is to be adapted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from wpriv import data
from wpriv.core.parameters import Parameters, parameter
from wpriv.data._record import Array, Data, scaled
from wpriv.errors import MissingResource, UsageError

ABOUT = "a labelled public data set (source) and a private one (target), for domain adaptation"
GET = "Name both, data sets of this list or paths of .npz or .mat files of features: --param source=mnist --param target=usps."
FILES = (".npz", ".mat")
# weights of red, green and blue in a grey image (ITU-R BT.601)
GREY = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Params(Parameters):
    """Which two, and the size to which images are brought."""

    source: str = parameter("the public one: a data set by name, or the path of a .npz or .mat file of features")
    target: str = parameter("the private one, likewise; its labels serve to measure, never to train")
    side: int = parameter("height and width to which images are brought", default=28, minimum=1)
    test_share: float = parameter(
        "share of the target held out for testing, where it is a file of features", default=0.2, minimum=0
    )
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for role in ("source", "target"):
            if getattr(self, role) == self.name:
                raise UsageError(f"pair: the {role} must be a data set of its own; found {self.name!r}")


@dataclass(frozen=True, eq=False)
class Pair(Data):
    """The private target, as any data set, and the public source beside it; both have the same classes and shape of an example."""

    public: Data | None = None

    @property
    def source_set(self) -> Data:
        """The public data set."""
        assert self.public is not None
        return self.public

    @cached_property
    def fingerprint(self) -> str:
        """Those of both."""
        return f"{self.source_set.fingerprint}-{super().fingerprint}"

    def limited(self, most: int, **how: bool) -> Data:
        """Both cut to at most so many examples to train on and so many to test on, the first ones."""
        found = super().limited(most, **how)
        assert isinstance(found, Pair)
        return replace(found, public=self.source_set.limited(most, **how))

    def describe(self) -> dict[str, Any]:
        told = super().describe()
        notes = (
            f"source (public): {self.source_set.name}, {self.source_set.records} records; all that is counted here is of the target",
        )
        return {**told, "notes": [*notes, *told["notes"]]}


def read(root: Path | None, params: Params) -> Data:
    """[N, C, side, side] images, of one channel if either set has one, uint8 or float32 in [0, 1]; or [N, D] features.

    Images of another size are interpolated (bilinear, from pixel centre to pixel centre).
    """
    source = _one(root, params.source, params, held_out=0.0)
    target = _one(root, params.target, params, held_out=params.test_share)
    if source.classes != target.classes:
        raise UsageError(
            f"pair: both data sets must have the same classes; {params.source} has {', '.join(source.classes[:12])} and "
            f"{params.target} has {', '.join(target.classes[:12])}"
        )
    grey = len(source.shape) == 3 and 1 in (source.shape[0], target.shape[0])
    source, target = (_fitted(found, params.side, grey) for found in (source, target))
    if source.shape != target.shape:
        raise MissingResource(
            f"pair: examples must have one shape; {params.source} has {source.shape}, {params.target} {target.shape}"
        )
    whole = {name: value for name, value in vars(target).items() if name in Data.__dataclass_fields__}
    whole |= {"name": f"{source.name}-to-{target.name}", "files": source.files + target.files}
    whole |= {"source": f"source: {source.source}; target: {target.source}", "notes": source.notes + target.notes}
    return Pair(**whole, public=source)


def _one(root: Path | None, name: str, params: Params, held_out: float) -> Data:
    """A data set by name, or features from a file, of which a share is held out."""
    if not name.lower().endswith(FILES):
        return data.read(name, root=root)
    return data.read("features", root=root, file=name, test_share=held_out, split_seed=params.split_seed)


def _fitted(found: Data, side: int, grey: bool) -> Data:
    """Its images with one channel (where ``grey``), and of the side asked for."""
    if len(found.shape) != 3:
        return found
    return replace(found, x_train=_images(found.x_train, side, grey), x_test=_images(found.x_test, side, grey))


def _images(x: Array, side: int, grey: bool) -> Array:
    if grey and x.shape[1] == 3:
        x = np.einsum("nchw,c->nhw", scaled(x), np.array(GREY, np.float32))[:, None]
    if x.shape[2:] == (side, side):
        return x
    rows, columns = (_interpolation(old, side) for old in x.shape[2:])
    return np.asarray(
        np.clip(np.einsum("ih,nchw,jw->ncij", rows, scaled(x), columns, optimize=True), 0, 1), dtype=np.float32
    )


def _interpolation(old: int, new: int) -> Array:
    """[new, old] weights with which ``new`` points spread over a line of ``old`` pixels see their two nearest ones."""
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    first = np.minimum(at.astype(int), max(old - 2, 0))
    found = np.zeros((new, old), np.float32)
    found[np.arange(new), first] = 1 - (at - first)
    found[np.arange(new), np.minimum(first + 1, old - 1)] += at - first
    return found
