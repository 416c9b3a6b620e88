"""The verb ``privatize``: clip every record and put noise on it, once, before anything else sees it."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError
from wpriv.files.durable_writes import PART, reported
from wpriv.files.file_lock import LOCK, locked
from wpriv.numerics import ball_projection
from wpriv.numerics.parse_numbers import number, shown, whole
from wpriv.randomness import quantile_noise
from wpriv.randomness.seeds import report_key
from wpriv.run.local import local_statement, mechanism_plan
from wpriv.run.local.mechanism_plan import Plan
from wpriv.run.local.records import Records, records

Array = NDArray[Any]
# numbers that are worked on together; also the blocks of the noise stream, so that a seed gives the same file whatever the memory
BLOCK = 2**20
SECONDS = 5.0  # between two lines of progress
_ZIPPED_AT = (1980, 1, 1, 0, 0, 0)  # the same for every file, so that the same seed gives the same bytes


@dataclass(frozen=True, eq=False)
class Privatized:
    """Records with noise, as they may be published, and what is promised of them.

    ``x`` is None where they went to a file. ``statement`` is plain data; ``files`` are those written, the records first.
    """

    x: Array | None
    labels: Array | None
    statement: dict[str, Any]
    files: tuple[Path, ...] = ()


def privatize(
    data: Any,
    mech: str | None = None,
    *,
    eps: float | None = None,
    delta: float | None = None,
    sigma: float | None = None,
    scale: float | None = None,
    radius: float | None = None,
    formula: str | None = None,
    center: float | None = None,
    nonnegative: bool = False,
    dct: bool = False,
    quantile: float | None = None,
    public: Any = None,
    thresholds: Any = None,
    seed: int | None = None,
    dtype: str = "float32",
    limit: int | None = None,
    array: str = "",
    public_labels: bool = False,
    root: str | Path | None = None,
    out: str | Path | None = None,
    dry_run: bool = False,
    say: Callable[[str], None] = lambda line: None,
    **given: Any,
) -> Privatized:
    """Local differential privacy for every record of a data set: each is clipped to a ball, and Gauss or Laplace noise is added.

    Any two records are neighbours. All that is made of the result afterwards is post-processing and costs nothing; a second result
    from the same records is paid for again.

    Args:
        data: an array [N, ...], a .npz, .npy or .csv file, or a data set (``mnist``, ``mnist:test``) with its parameters in ``given``.
        mech: ``local-gauss`` (l2 ball, needs delta) or ``local-laplace`` (l1 ball).
        eps, delta: the target; or sigma or scale, the noise itself. formula: see ``wpriv.run.local.mechanism_plan.priced``.
        radius: of the ball, in the units of the data (bytes are divided by 255); with bounds it defaults to their norm.
        center: of the ball, for every number; known to all, such as 0.5 for pixels (default 0).
        nonnegative: clamp at 0 from below first, which spares Gauss noise a factor of sqrt 2.
        dct: clip and publish the orthonormal cosine transform of each record.
        quantile, public: clamp each number to this quantile of its magnitude in public records (given like ``data``); or
            thresholds, an array or file of the bounds.
        seed: None draws the noise from the operating system, as a release needs. dtype: of the result.
        public_labels: publish the labels as they are. out: a .npz to write; None returns the records instead.
        dry_run: check, price and return the statement only.
    Raises:
        UsageError, Unsupported, MissingResource: see ``wpriv.errors``; also where ``out`` is there already.

    >>> import numpy as np
    >>> done = privatize(np.array([[3.0, 4.0], [0.1, 0.0]]), "local-gauss", radius=1, eps=2, delta=1e-5)
    >>> done.x.shape, done.statement["guarantees"][0]["epsilon"] <= 2
    ((2, 2), True)
    """
    numbers = {
        "eps": eps,
        "delta": delta,
        "sigma": sigma,
        "scale": scale,
        "radius": radius,
        "quantile": quantile,
        "center": center,
    }
    typed = {key: None if value is None else number(value, f"--{key}") for key, value in numbers.items()}
    limit, seed = (None if v is None else whole(v, f"--{name}") for v, name in ((limit, "limit"), (seed, "seed")))
    home, file = _path(root, "--data-root"), _path(out, "--out")
    target = None if file is None else _target(file)
    read = records(data, home, array=array, limit=limit, given=given)
    labels = _labels(read) if public_labels else None
    known = None if public is None else _known(records(public, home), read)
    plan = mechanism_plan.plan(
        read.shape, mech=mech, formula=formula, nonnegative=nonnegative, dct=dct, public=known, thresholds=thresholds, root=home,
        dtype=dtype, seed=seed, **typed,
    )  # fmt: skip
    said = local_statement.statement(plan, read, labels is not None)
    if dry_run:
        return Privatized(None, labels, said)
    if target is not None:
        busy = f"another process is writing {target[0]}. Wait until it ends, or name another file by --out"
        with locked(target[0].with_name(target[0].name + LOCK), busy):
            _refuse_existing(target)  # again, now that no other process can write them
            return Privatized(None, labels, said, _write(target, plan, read, labels, said, say))
    return Privatized(np.concatenate(list(blocks(plan, read, say))), labels, said)


def _labels(read: Records) -> Array:
    """The labels of the records, which are to be published with them."""
    if read.labels is None or len(read.labels) != len(read.x):
        raise UsageError(
            f"{read.name} has no labels to publish (an array y of {len(read.x)} entries); leave out --public-labels"
        )
    return read.labels


def _known(public: Records, read: Records) -> Records:
    """Records that were named as public, which must not be those to protect."""
    if public.name == read.name and np.array_equal(public.x[: len(read.x)], read.x[: len(public.x)]):
        raise UsageError(f"--public {public.name}: these are the records to protect; name others that are public")
    return public


def blocks(plan: Plan, read: Records, say: Callable[[str], None] = lambda line: None) -> Iterator[Array]:
    """The noisy records, some at a time, in ``plan.dtype``.

    Record and noise are both rounded to one grid and added there without rounding, so that the digits of a sum tell nothing more
    of the record than the sum itself (Mironov 2012). Rounding noise on the grid, and the sum to float32, is post-processing.
    """
    key, size = report_key(plan.seed), math.prod(read.shape)
    count, cells = max(1, BLOCK // size), plan.priced.noise / plan.step
    drawn = quantile_noise.normal if plan.priced.p == 2 else quantile_noise.laplace
    told = time.monotonic()
    for block, start in enumerate(range(0, len(read.x), count)):
        kept = clipped(plan, read.rows(start, start + count))
        noisy = kept + np.rint(drawn(quantile_noise.words(key, block, kept.size)) * cells).reshape(kept.shape)
        yield (noisy * plan.step + plan.center).astype(plan.dtype)
        if time.monotonic() - told > SECONDS:
            told = time.monotonic()
            say(f"{start + len(kept)} of {len(read.x)} records")


def clipped(plan: Plan, rows: Array) -> Array:
    """All that is done to records before the noise: centered, transformed, clamped, brought into the ball, in whole cells of the grid."""
    rows = rows - plan.center
    if plan.dct:
        rows = mechanism_plan.transformed(rows)
    if plan.bounds is not None:
        rows = np.clip(rows, -plan.bounds, plan.bounds)
    if plan.priced.nonnegative:
        rows = np.maximum(rows, 0.0)
    flat = rows.reshape(len(rows), -1)
    kept = ball_projection.on_grid(
        ball_projection.nearest(flat, plan.radius, plan.priced.p), plan.radius, plan.priced.p, plan.step
    )
    return kept.reshape(rows.shape)


def _path(value: Any, name: str) -> Path | None:
    if value is not None and not isinstance(value, (str, Path)):
        raise UsageError(f"{name} must be a path; found {shown(value)}")
    return None if value is None else Path(value)


def _target(out: Path) -> tuple[Path, Path, Path]:
    """The file of the records and both files of the statement, none of which is there yet."""
    if out.suffix != ".npz" or "\0" in str(out):
        raise UsageError(f"--out is a file ending in .npz; found {shown(str(out))}")
    files = (out, out.with_suffix(".statement.json"), out.with_suffix(".statement.md"))
    _refuse_existing(files)
    return files


def _refuse_existing(files: tuple[Path, ...]) -> None:
    for file in files:
        if os.path.lexists(file):
            raise UsageError(
                f"{file} is there already and is not overwritten: the privacy spent on it is spent. Name another file by --out"
            )


def _write(
    files: tuple[Path, Path, Path],
    plan: Plan,
    read: Records,
    labels: Array | None,
    said: dict[str, Any],
    say: Callable[[str], None],
) -> tuple[Path, ...]:
    """Writes the records and the statement; where that fails or is interrupted nothing is left behind."""
    parts = [file.with_name(file.name + PART) for file in files]
    small = {**_facts(plan, said), **({} if labels is None else {"y": labels})}
    try:
        with reported(files[0]):
            with zipfile.ZipFile(parts[0], "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
                with archive.open(zipfile.ZipInfo("x.npy", _ZIPPED_AT), "w", force_zip64=True) as member:
                    _array(member, (len(read.x), *read.shape), np.dtype(plan.dtype), blocks(plan, read, say))
                for name, value in small.items():
                    held = io.BytesIO()
                    np.save(held, value, allow_pickle=False)
                    archive.writestr(zipfile.ZipInfo(f"{name}.npy", _ZIPPED_AT), held.getvalue())
            parts[1].write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
            parts[2].write_text(local_statement.to_markdown(said), encoding="utf-8")
            for part, file in zip(reversed(parts), reversed(files), strict=True):
                os.replace(part, file)
    finally:
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink()
    return files


def _array(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], parts: Iterator[Array]) -> None:
    """A .npy of a known shape, written part by part, so that it never lies in memory as a whole."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
    for part in parts:
        file.write(np.ascontiguousarray(part).data)


def _facts(plan: Plan, said: dict[str, Any]) -> dict[str, Array]:
    """What a user of the records needs to know of them, as small arrays beside x."""
    mechanism, row = plan.priced.mechanism, plan.priced.row
    known: dict[str, Any] = {
        "mechanism": mechanism.name,
        mechanism.noise: plan.priced.noise,
        "p": plan.priced.p,
        "radius": plan.radius,
        "center": plan.center,
        "epsilon": row.epsilon.safe,
        "delta": row.delta.safe,
        "grid": plan.step,
        "domain": "dct" if plan.dct else "as read",
        "statement": json.dumps(said),
    }
    return {name: np.array(value) for name, value in known.items()} | (
        {} if plan.bounds is None else {"bounds": plan.bounds}
    )
