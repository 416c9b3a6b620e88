"""A local mechanism as users describe it, its calibration, and the plan of reports, made before any is written.

Calibration finds the noise for a target, or the cost of a given noise. The plan adds clip bounds and grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.accounting.budget import budget
from wpriv.accounting.calibrate import calibrate
from wpriv.accounting.target import TOL
from wpriv.core import parameters, registry
from wpriv.core.guarantee import Guarantee
from wpriv.errors import Unsupported, UsageError
from wpriv.hints import did_you_mean
from wpriv.numerics import ball_projection, conversions
from wpriv.numerics.numbers import number, quotient_up, rounded, shown, whole
from wpriv.results.model import Json
from wpriv.training.local.records import Records, records

FORMULAS = ("analytic", "eq4")
QUANTILES_FROM = ("public", "private")
EQ4 = "equation (4) of Reshetova, Chen, Ozgur 2023 at the diameter (sufficient, not least)"
ANALYTIC = "the least noise that suffices"
PURE = "diameter / eps, for pure DP"
GIVEN = "noise as given"
LEAK = (
    "NO guarantee: the bounds are quantiles of the protected records themselves, which no noise covers. The eps is "
    "that of the noise for bounds that are public, as Reshetova, Chen, Ozgur (2023) state it"
)


@dataclass(frozen=True)
class LocalMechanism:
    """The arguments of ``privatize`` that say what becomes of a record; numbers may be text such as ``2^20``."""

    mech: object = None
    radius: float | None = None
    eps: float | None = None
    delta: float | None = None
    sigma: float | None = None
    scale: float | None = None
    formula: object = None
    center: float | None = None
    nonnegative: bool = False
    dct: bool = False
    quantile: float | None = None
    quantile_from: object = None
    thresholds: object = None
    dtype: Any = "float32"
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("eps", "delta", "sigma", "scale", "radius", "quantile", "center"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, number(value, f"`{name}`"))
        if self.seed is not None:
            object.__setattr__(self, "seed", whole(self.seed, "`seed`"))

    @property
    def leaks(self) -> bool:
        """True if the clipping bounds are quantiles of the private records themselves."""
        return isinstance(self.quantile_from, str) and self.quantile_from == "private"

    @property
    def p(self) -> int:
        """The p of the lp ball that records are clipped to."""
        known = registry.names("mechanisms")
        norm = registry.mechanism(self.mech).clip_norm if isinstance(self.mech, str) and self.mech in known else None
        if norm is None:
            local = [name for name in known if registry.mechanism(name).clip_norm is not None]
            hint = did_you_mean(self.mech, local) if isinstance(self.mech, str) else ""
            raise UsageError(f"privatize needs `mech` {' or '.join(local)}; found {shown(self.mech)}{hint}")
        return norm

    @property
    def parameter(self) -> str:
        """The name of the noise parameter: sigma or scale."""
        return "sigma" if self.p == 2 else "scale"


def calibrated(options: LocalMechanism, radius: float) -> tuple[Any, Guarantee, str]:
    """Choose the noise for a target, or evaluate a given noise, as ``wpriv calibrate`` and ``wpriv budget`` do.

    Returns:
        The mechanism with its noise, its guarantee, and how the noise was chosen.
    Raises:
        UsageError: an option is missing, out of range or does not fit another. Unsupported: the target is out of reach.
    """
    _check_noise_options(options)
    step: Json = {"mech": options.mech, "radius": radius}
    if options.p == 2:
        step["nonnegative"] = int(options.nonnegative)
    noise, formula = getattr(options, options.parameter), GIVEN
    if noise is None:
        noise, formula = _noise(options, step)
    mechanism = _mechanism({**step, options.parameter: noise})
    question: Json = {}
    if options.delta is not None:
        question["delta"] = options.delta
    elif options.eps is not None:
        question["eps"] = options.eps
    else:
        question["eps"] = _quotient(mechanism.sensitivity, mechanism.scale)
    row = budget(**{**step, options.parameter: noise}, **question, tol=TOL)
    return mechanism, row, formula


def _check_noise_options(options: LocalMechanism) -> None:
    """Refuse options of the noise that contradict each other or do not fit the mechanism."""
    parameter, other = options.parameter, "scale" if options.p == 2 else "sigma"
    flag, formula = parameters.flag(parameter), options.formula
    given = getattr(options, parameter) is not None
    if getattr(options, other) is not None:
        raise UsageError(f"{options.mech} has a {parameter}, not a {other}; give {flag}, or the other mechanism")
    if given == (options.eps is not None):
        raise UsageError(f"give a target (`eps`) or the noise itself ({flag}); found {'both' if given else 'neither'}")
    if formula is not None and (given or not isinstance(formula, str) or formula not in FORMULAS):
        also = f" and {flag}" if given else ""
        raise UsageError(
            f"`formula` chooses the noise for a target: {' or '.join(FORMULAS)}; found {shown(formula)}{also}"
        )
    if options.p == 2:
        if options.delta is None:
            raise UsageError(
                "Gaussian noise has no finite eps at delta = 0: give `delta`, well below 1 / records, such as 1e-5"
            )
    elif options.nonnegative:
        raise UsageError(
            "`nonnegative` does not reduce Laplace noise: the l1 diameter of the nonnegative part is 2 radii as well. "
            "Leave it out"
        )
    elif formula == "eq4":
        raise UsageError("`formula` eq4 is for Gaussian noise; Laplace noise has an exact formula. Leave it out")


def _noise(options: LocalMechanism, step: Json) -> tuple[float, str]:
    """Return noise that suffices for a target, rounded up, and the formula that gave it."""
    eps, delta = options.eps, options.delta
    assert eps is not None  # either noise or target is given
    if not 0 < eps < math.inf:
        raise UsageError(f"`eps` must be a finite number greater than 0; found {eps}")
    sensitivity = _mechanism({**step, options.parameter: step["radius"]}).sensitivity
    if delta is None:
        return _quotient(sensitivity, eps), PURE
    if options.formula == "eq4":
        return rounded(sensitivity * conversions.zhao(eps, delta), up=True), EQ4
    return float(calibrate(**step, eps=eps, delta=delta).value), ANALYTIC


def _quotient(numerator: float, denominator: float) -> float:
    """Return the quotient in 6 digits, rounded up: times the denominator it is at least the numerator, exactly."""
    if not math.isfinite(numerator / denominator):
        raise Unsupported(f"{numerator:g} / {denominator:g} overflows the range of doubles. Relax the target")
    return rounded(quotient_up(numerator, denominator), up=True)


def _mechanism(step: Json) -> Any:
    return registry.mechanism(step["mech"])(**{key: value for key, value in step.items() if key != "mech"})


Array = NDArray[Any]
MAX_CENTER = 1e9


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that decides how a record becomes a report.

    Args:
        mechanism: with its noise; row: its guarantee; formula: how the noise was chosen.
        dct: records go through the orthonormal cosine transform first.
        bounds: [*shape] to which each number is clamped before the ball, from public numbers; None for the ball only.
        bounds_from: the origin of the bounds, in words.
        center: the center of the ball and of the bounds, the same for every number; added again after the noise.
        dtype: float32 or float64. seed: of the noise, None leaves it to the operating system. step: spacing of the
            grid.
    """

    mechanism: Any
    row: Guarantee
    formula: str
    dct: bool
    bounds: Array | None
    bounds_from: str
    center: float
    dtype: str
    seed: int | None
    step: float

    @property
    def radius(self) -> float:
        return float(self.mechanism.clip_ball().radius)

    @property
    def noise(self) -> float:
        """Sigma or scale."""
        return float(getattr(self.mechanism, self.mechanism.noise))

    @property
    def p(self) -> int:
        """The p of the lp norm of the clip ball."""
        return int(self.mechanism.clip_norm)

    @property
    def nonnegative(self) -> bool:
        """Whether inputs are clipped to the nonnegative part of the ball."""
        return bool(self.mechanism.clip_ball().nonnegative)


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
        public: records that bounds may be computed from; the protected ones where ``options`` say so.
        root: folder of data sets and threshold files.
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
    mechanism, row, formula = calibrated(options, radius)
    if options.leaks:
        row = replace(row, claim="as-published", warnings=(LEAK, *row.warnings))
    radius, noise = mechanism.radius, float(getattr(mechanism, mechanism.noise))
    ball_projection.check(radius, noise)
    if options.dtype == "float32" and 50 * noise + radius > float(np.finfo(np.float32).max):
        raise UsageError(f"noise of {noise:g} overflows float32; use `dtype` float64")
    step = ball_projection.spacing(radius, noise)
    return Plan(mechanism, row, formula, options.dct, bounds, origin, center, options.dtype, options.seed, step)


def _check(options: LocalMechanism) -> None:
    """Refuse options of the clipping and of the output that are out of range or do not fit each other."""
    if (origin := options.quantile_from) is not None:
        if not isinstance(origin, str) or origin not in QUANTILES_FROM:
            raise UsageError(f"`quantile_from` must be {' or '.join(QUANTILES_FROM)}; found {shown(origin)}")
        if options.quantile is None:
            raise UsageError("`quantile_from` says whose quantile is taken: give `quantile`, for example 0.8")
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
    """Return the bound of each number and its origin."""
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
        bounds, origin = _quantile(quantile, options, shape, public, center)
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


def _quantile(
    quantile: float, options: LocalMechanism, shape: tuple[int, ...], public: Records | None, center: float
) -> tuple[Array, str]:
    """Return a quantile of the magnitude of each number in some records, and its description."""
    if public is None:
        raise UsageError(
            "`quantile` of the protected records would reveal something about them, and no noise covers it: name "
            "public records of the same shape with `public`, give bounds fixed in advance with `thresholds`, or repeat "
            "what was published, which has no guarantee, with `quantile_from` private"
        )
    if not 0 < quantile <= 1:
        raise UsageError(f"`quantile` must be greater than 0 and at most 1; found {quantile}")
    if public.shape != shape:
        raise UsageError(
            f"`public` must have records of the shape of the protected ones, {list(shape)}; "
            f"{public.name} has {list(public.shape)}"
        )
    rows = public.rows(0, len(public.x)) - center
    bounds = np.quantile(np.abs(transformed(rows) if options.dct else rows), quantile, axis=0).reshape(-1)
    whose = "the protected records themselves" if options.leaks else f"{len(public.x)} records of {public.name}"
    return bounds, f"the {quantile:g} quantile of magnitudes in {whose}"


def transformed(rows: Array) -> Array:
    """Return the orthonormal cosine transform (DCT-II) of each record.

    It runs over height and width of an image, else over the last axis, and preserves l2 norms; ``scipy.fft.idctn(x,
    axes=(-2, -1), norm="ortho")`` inverts it.
    """
    from scipy.fft import dctn

    coefficients: Array = dctn(rows, type=2, axes=(-2, -1) if rows.ndim > 2 else (-1,), norm="ortho")
    return coefficients
