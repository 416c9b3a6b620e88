"""Records that ``wpriv privatize`` privatised, with the distribution of their noise."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import MissingResource
from wpriv.training.data._dataset import FROM_LABELS, Array, Data, RecordNoise, scaled
from wpriv.training.data._files import File, read_bytes, resolve_path
from wpriv.training.data._formats import parse_npz

ABOUT = "your own records with noise on them, as wpriv privatize wrote them"
GET = (
    "Give the path of a file that wpriv privatize wrote: --param file=PATH "
    "(in a recipe, data: {name: privatized, file: PATH})."
)
KEYS = ("x", "mechanism", "p", "radius", "center", "epsilon", "delta", "domain", "statement")
LIMIT = 16_000_000_000


@dataclass(frozen=True)
class Params(Parameters):
    """The file, and a data set for evaluation."""

    file: str = parameter("path of a .npz from wpriv privatize, as it stands or below the data root")
    test: str = parameter(
        "a data set whose test records, without noise, serve for evaluation; outside the guarantee", default=""
    )


@dataclass(frozen=True, eq=False)
class Reports:
    """Privatised records and the distribution of their noise; the fields are the arrays of the file (labels: ``y``)."""

    x: Array
    labels: Array | None
    mechanism: str
    noise: RecordNoise
    radius: float
    center: float
    epsilon: float
    delta: float


def read_reports(path: Path) -> Reports:
    """Read a file that ``wpriv privatize`` wrote.

    Raises:
        MissingResource: it cannot be read, or is another file.
    """
    return _reports(path, read_bytes(path, LIMIT))


def _reports(path: Path, raw: bytes) -> Reports:
    arrays = parse_npz(path, raw, LIMIT)
    missing = [key for key in KEYS if key not in arrays]
    scale_key = next((key for key in ("sigma", "scale") if key in arrays), None)
    if missing or scale_key is None:
        raise MissingResource(
            f"{path}: not a file that wpriv privatize wrote: it lacks {', '.join(missing) or 'sigma or scale'}"
        )
    try:
        numbers = {key: float(arrays[key]) for key in ("radius", "center", "epsilon", "delta")}
        noise = RecordNoise(
            p=int(arrays["p"]),
            scale=float(arrays[scale_key]),
            domain=str(arrays["domain"]),
            statement=json.loads(str(arrays["statement"])),
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise MissingResource(f"{path}: not a file that wpriv privatize wrote ({str(error)[:120]})") from None
    x = arrays["x"]
    if (
        x.dtype not in (np.float32, np.float64)
        or x.ndim < 2
        or noise.p not in (1, 2)
        or not (noise.scale > 0 and math.isfinite(noise.scale))
        or not isinstance(noise.statement, dict)
    ):
        raise MissingResource(
            f"{path}: not a file that wpriv privatize wrote: wanted records of floats, p of 1 or 2, {scale_key} above "
            f"0 and a statement; found {x.dtype} {list(x.shape)}, p = {noise.p}, "
            f"{scale_key} = {noise.scale:g}"
        )
    reports = Reports(x, arrays.get("y"), str(arrays["mechanism"]), noise, **numbers)
    _require_statement(path, reports)
    return reports


def _require_statement(path: Path, reports: Reports) -> None:
    """Refuse reports whose arrays contradict the statement in their file, which trainings repeat."""
    noise, statement = reports.noise, reports.noise.statement
    scale = "sigma" if noise.p == 2 else "scale"
    try:
        clip, row, data = statement["clip"], statement["guarantees"][0], statement["data"]
        pairs = {
            "mechanism": (reports.mechanism, statement["mechanism"]["mech"]),
            scale: (noise.scale, statement["noise"][scale]),
            "norm": (f"l{noise.p}", clip["norm"]),
            "radius": (reports.radius, clip["radius"]),
            "center": (reports.center, clip["center"]),
            "domain": (noise.domain == "dct", clip["domain"] != "as read"),
            "eps": (reports.epsilon, row["epsilon"]),
            "delta": (reports.delta, row["delta"]),
            "shape": (list(reports.x.shape), [data["records"], *data["shape"]]),
        }
    except (KeyError, TypeError, IndexError) as error:
        raise MissingResource(
            f"{path}: not a file that wpriv privatize wrote: its statement lacks entries ({error})"
        ) from None
    for name, (stored, stated) in pairs.items():
        if stored != stated:
            raise MissingResource(
                f"{path}: contradicts its own statement: {name} is {stored} in the file, {stated} in the statement. "
                f"One of them was changed; take the file as wpriv privatize wrote it"
            )


def read(root: Path | None, params: Params) -> Data:
    """Return [N, D] or [N, C, H, W] float32 noisy training records; all labels are 0 if none were published.

    The test records are those of ``test``, without noise and never as cosine coefficients.
    """
    path = resolve_path(params.name, "file", params.file, root)
    raw = read_bytes(path, LIMIT)
    reports = _reports(path, raw)
    x = reports.x[:, None] if reports.x.ndim == 3 else reports.x
    labels = np.zeros(len(x), np.int64) if reports.labels is None else reports.labels
    values, y = np.unique(labels, return_inverse=True)
    classes, clear = tuple(str(value) for value in values), _evaluation_set(params.test, root, x.shape[1:])
    if clear is not None and len(classes) > 1 and clear.classes != classes:
        raise MissingResource(
            f"test: {params.test} has the classes {', '.join(clear.classes)}; "
            f"the privatised records have {', '.join(classes)}"
        )
    published = reports.noise.statement["guarantees"][0].get("claim") == "as-published"
    mechanism = f"{reports.mechanism}, eps = {reports.epsilon:g}{' as published, NO guarantee' if published else ''}"
    return Data(
        name=f"{params.name}:{path.stem}",
        x_train=x.astype(np.float32, copy=False),
        y_train=y.reshape(-1),
        x_test=np.zeros((0, *x.shape[1:]), np.float32) if clear is None else scaled(clear.x_test),
        y_test=np.zeros(0, np.int64) if clear is None else clear.y_test,
        classes=classes if clear is None else clear.classes,
        source=str(path),
        files=(File.unverified(path, raw),),
        notes=(f"every record has noise ({mechanism}): training on the records is post-processing",),
        noise=reports.noise,
        classes_from=FROM_LABELS if clear is None and reports.labels is not None else "",
    )


def _evaluation_set(name: str, root: Path | None, shape: tuple[int, ...]) -> Data | None:
    """Return the data set whose test records serve for evaluation, or None if the name is empty."""
    if not name:
        return None
    from wpriv.training import data

    other = data.read(name, root=root)
    if other.shape != shape:
        raise MissingResource(
            f"test: {name} has records of shape {list(other.shape)}; the privatised records have {list(shape)}"
        )
    return other
