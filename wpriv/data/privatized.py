"""Records that ``wpriv privatize`` made noisy, with what is known of their noise: what a generator is trained on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.data._files import Place, content, named
from wpriv.data._record import Array, Data, Noise, scaled
from wpriv.data.features import npz
from wpriv.errors import MissingResource

ABOUT = "your own records with noise on them, as wpriv privatize wrote them"
GET = "Give the path of a file that wpriv privatize wrote: --param file=PATH."
KEYS = ("x", "mechanism", "p", "radius", "center", "epsilon", "delta", "domain", "statement")
LIMIT = 16_000_000_000


@dataclass(frozen=True)
class Params(Parameters):
    """Which file, and what to compare with."""

    file: str = parameter("path of a .npz from wpriv privatize, as it stands or below the data root")
    test: str = parameter(
        "a data set whose test records, without noise, results are compared with; outside the guarantee", default=""
    )


@dataclass(frozen=True, eq=False)
class Reports:
    """Noisy records and the law of the noise on each of their numbers.

    ``p`` is 2 for Gauss noise, whose ``noise`` is sigma, and 1 for Laplace noise, whose ``noise`` is the scale b. ``domain`` is
    ``as read``, or ``dct`` where x holds orthonormal cosine coefficients.
    """

    x: Array
    labels: Array | None
    mechanism: str
    p: int
    noise: float
    radius: float
    center: float
    domain: str
    epsilon: float
    delta: float
    statement: dict[str, Any]

    @property
    def law(self) -> Noise:
        """The noise on every number of x."""
        return Noise(self.p, self.noise, self.domain, self.statement)

    @property
    def lam(self) -> float:
        """See ``Noise.lam``."""
        return self.law.lam


def reports(path: Path) -> Reports:
    """What a file of ``wpriv privatize`` holds.

    Raises:
        MissingResource: it cannot be read, or is none.
    """
    arrays = npz(path, content(path, LIMIT), LIMIT)
    lacking = [key for key in KEYS if key not in arrays]
    name = next((key for key in ("sigma", "scale") if key in arrays), None)
    if lacking or name is None:
        raise MissingResource(
            f"{path}: not a file that wpriv privatize wrote: it lacks {', '.join(lacking) or 'sigma or scale'}"
        )
    try:
        known: dict[str, Any] = {key: str(arrays[key]) for key in ("mechanism", "domain")}
        known |= {key: float(arrays[key]) for key in ("radius", "center", "epsilon", "delta")}
        p, noise, statement = int(arrays["p"]), float(arrays[name]), json.loads(str(arrays["statement"]))
    except (ValueError, TypeError, RecursionError) as error:
        raise MissingResource(f"{path}: not a file that wpriv privatize wrote ({str(error)[:120]})") from None
    return Reports(x=arrays["x"], labels=arrays.get("y"), p=p, noise=noise, statement=statement, **known)


def read(root: Path | None, params: Params) -> Data:
    """[N, D] or [N, C, H, W] float32 with the noise on, all to train on; labels are all 0 where none were published.

    The records of ``test`` have no noise, and are as read whatever the domain of the others.
    """
    path = named(params.name, "file", params.file, root)
    found = reports(path)
    x = found.x[:, None] if found.x.ndim == 3 else found.x
    values, y = np.unique(np.zeros(len(x), np.int64) if found.labels is None else found.labels, return_inverse=True)
    classes, clear = tuple(str(value) for value in values), _clear(params.test, root, x.shape[1:])
    if clear is not None and len(classes) > 1 and clear.classes != classes:
        raise MissingResource(
            f"test: {params.test} has the classes {', '.join(clear.classes)}; those with noise {', '.join(classes)}"
        )
    return Data(
        name=f"{params.name}:{path.stem}",
        x_train=x.astype(np.float32, copy=False),
        y_train=y.reshape(-1),
        x_test=np.zeros((0, *x.shape[1:]), np.float32) if clear is None else scaled(clear.x_test),
        y_test=np.zeros(0, np.int64) if clear is None else clear.y_test,
        classes=classes if clear is None else clear.classes,
        source=str(path),
        files=(Place(params.name, GET, ()).verdict(path, content(path, LIMIT), False),),
        notes=(
            f"noise is on every record ({found.mechanism}, eps = {found.epsilon:g}): training on them is post-processing",
        ),
        noise=found.law,
    )


def _clear(name: str, root: Path | None, shape: tuple[int, ...]) -> Data | None:
    """The data set whose test records are compared with; None where no name is given."""
    if not name:
        return None
    from wpriv.data import read as by_name

    other = by_name(name, root=root)
    if other.shape != shape:
        raise MissingResource(
            f"test: {name} has records of shape {list(other.shape)}; those with noise have {list(shape)}"
        )
    return other
