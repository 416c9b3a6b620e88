"""The plan of local reports, made before any record is processed: calibrated mechanism, clip bounds and grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError
from wpriv.numerics import ball_projection
from wpriv.numerics.parse_numbers import shown
from wpriv.numerics.safe_rounding import rounded
from wpriv.run.local.local_mechanism import CalibratedMechanism, LocalMechanism, calibrated
from wpriv.run.local.records import Records, records

Array = NDArray[Any]
MAX_CENTER = 1e9


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that decides how a record becomes a report.

    Args:
        calibrated: the mechanism with its noise. dct: records go through the orthonormal cosine transform first.
        bounds: [*shape] to which each number is clamped before the ball, from public numbers; None for the ball only.
        bounds_from: the origin of the bounds, in words.
        center: the center of the ball and of the bounds, the same for every number; added again after the noise.
        dtype: float32 or float64. seed: of the noise, None leaves it to the operating system. step: spacing of the
            grid.
    """

    calibrated: CalibratedMechanism
    dct: bool
    bounds: Array | None
    bounds_from: str
    center: float
    dtype: str
    seed: int | None
    step: float

    @property
    def radius(self) -> float:
        return float(self.calibrated.mechanism.clip_ball().radius)


def plan(
    options: LocalMechanism,
    shape: tuple[int, ...],
    *,
    dtype: np.dtype[Any],
    public: Records | None = None,
    root: Path | None = None,
) -> Plan:
    """Validate the options of a local mechanism for records of a shape, and calibrate its noise.

    Args:
        dtype: of the records as they were read; bytes, of records and of thresholds, stand for multiples of 1/255.
        public: records that bounds may be computed from. root: folder of data sets and threshold files.
    Raises:
        UsageError: see ``calibrated``; or the bounds would come from the private records.
        Unsupported: the target is out of reach.
    """
    p = options.p  # refuses an unknown mechanism first
    _check(options)
    center = options.center or 0.0
    if abs(center) > MAX_CENTER:
        raise UsageError(f"`center` must lie between -1e9 and 1e9; found {center:g}. Use other units")
    bounds, origin = _bounds(options, shape, dtype, public, root, center)
    radius = options.radius
    if radius is None:
        if bounds is None:
            raise UsageError(
                "give `radius`, the norm that records are clipped to, chosen without looking at these records"
            )
        radius = rounded(float(np.linalg.norm(bounds.ravel(), p)) * (1 + 1e-9), up=True)
    if not radius > 0:
        raise UsageError(f"the radius of the clip ball must be greater than 0; found {radius:g}")
    ball_projection.check(radius, radius)
    mechanism = calibrated(options, radius)
    radius, noise = mechanism.mechanism.radius, mechanism.noise
    ball_projection.check(radius, noise)
    if options.dtype == "float32" and 50 * noise + radius > float(np.finfo(np.float32).max):
        raise UsageError(f"noise of {noise:g} overflows float32; use `dtype` float64")
    step = ball_projection.spacing(radius, noise)
    return Plan(mechanism, options.dct, bounds, origin, center, options.dtype, options.seed, step)


def _check(options: LocalMechanism) -> None:
    """Refuse options of the clipping and of the output that are out of range or do not fit each other."""
    dtype, seed, dct, nonnegative = options.dtype, options.seed, options.dct, options.nonnegative
    if not isinstance(dtype, str) or dtype not in ("float32", "float64"):
        raise UsageError(f"`dtype` must be float32 or float64; found {shown(dtype)}")
    if seed is not None and not 0 <= seed < 2**63:
        raise UsageError(f"`seed` must be a whole number from 0 to 2^63 - 1; found {seed}")
    if dct and nonnegative:
        raise UsageError(
            "`dct` gives coefficients of both signs, also of nonnegative records: leave out `nonnegative` or `dct`"
        )
    if options.center is not None and (dct or nonnegative):
        other = "`dct`" if dct else "`nonnegative`"
        raise UsageError(f"`center` needs records that are clipped as read; leave out `center` or {other}")


def _bounds(
    options: LocalMechanism,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    public: Records | None,
    root: Path | None,
    center: float,
) -> tuple[Array | None, str]:
    """Return the bound of each number and its origin; the protected records have no part in it."""
    quantile, thresholds = options.quantile, options.thresholds
    if thresholds is not None:
        if quantile is not None or public is not None:
            raise UsageError("`thresholds` gives the bounds themselves; leave out `quantile` and `public`")
        source = records(thresholds if isinstance(thresholds, np.ndarray) else str(thresholds), root)
        if source.x.dtype == np.uint8 and dtype != np.uint8:
            raise UsageError(
                f"thresholds of bytes stand for multiples of 1/255, as records of bytes do, and the records are "
                f"{dtype}; save the thresholds as {dtype} in the units of the records"
            )
        bounds, origin = source.rows(0, len(source.x)).reshape(-1), source.name
    elif quantile is not None:
        bounds, origin = _public_quantile(quantile, options.dct, shape, public, center)
    elif public is not None:
        raise UsageError("`public` requires `quantile`, for example `quantile` 0.8")
    else:
        return None, ""
    size = math.prod(shape)
    if bounds.size != size or (bounds < 0).any():
        raise UsageError(
            f"thresholds must be {size} numbers of at least 0, one for each number of a record; "
            f"found {bounds.size} numbers, the smallest {bounds.min(initial=0.0):g}, in {origin}"
        )
    return bounds.reshape(shape), origin


def _public_quantile(
    quantile: float, dct: bool, shape: tuple[int, ...], public: Records | None, center: float
) -> tuple[Array, str]:
    """Return a quantile of the magnitude of each number in public records, and its description."""
    if public is None:
        raise UsageError(
            "`quantile` of the protected records would reveal something about them, and no noise covers it: name "
            "public records of the same shape with `public`, or give bounds fixed in advance with `thresholds`"
        )
    if not 0 < quantile <= 1:
        raise UsageError(f"`quantile` must be greater than 0 and at most 1; found {quantile}")
    if public.shape != shape:
        raise UsageError(
            f"`public` must have records of the shape of the protected ones, {list(shape)}; "
            f"{public.name} has {list(public.shape)}"
        )
    rows = public.rows(0, len(public.x)) - center
    bounds = np.quantile(np.abs(transformed(rows) if dct else rows), quantile, axis=0).reshape(-1)
    return bounds, f"the {quantile:g} quantile of magnitudes in {len(public.x)} records of {public.name}"


def transformed(rows: Array) -> Array:
    """Return the orthonormal cosine transform (DCT-II) of each record.

    It runs over height and width of an image, else over the last axis, and preserves l2 norms; ``scipy.fft.idctn(x,
    axes=(-2, -1), norm="ortho")`` inverts it.
    """
    from scipy.fft import dctn

    coefficients: Array = dctn(rows, type=2, axes=(-2, -1) if rows.ndim > 2 else (-1,), norm="ortho")
    return coefficients
