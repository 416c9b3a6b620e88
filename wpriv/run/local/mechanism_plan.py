"""What a local report is made with, before any record is looked at: mechanism, noise and its price, clip bounds, grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.core import registry
from wpriv.core.guarantee import Guarantee
from wpriv.errors import Unsupported, UsageError
from wpriv.hints import did_you_mean
from wpriv.numerics import ball_projection, gaussian_calibration
from wpriv.numerics.parse_numbers import number, shown
from wpriv.numerics.safe_rounding import rounded
from wpriv.run.accounting import build_process
from wpriv.run.accounting.budget import budget
from wpriv.run.accounting.calibrate import calibrate
from wpriv.run.accounting.solve_parameter import TOL
from wpriv.run.local.records import Records

Array = NDArray[Any]
FORMULAS = ("analytic", "eq4")
EQ4 = "equation (4) of Reshetova, Chen, Ozgur 2023 at the diameter (sufficient, not least)"
ANALYTIC = "the least noise that suffices"
GIVEN = "noise as given"


@dataclass(frozen=True)
class Priced:
    """A mechanism with its noise, what it costs, and how the noise was chosen."""

    mechanism: Any
    row: Guarantee
    formula: str

    @property
    def noise(self) -> float:
        """Sigma or scale."""
        return float(getattr(self.mechanism, self.mechanism.noise))

    @property
    def p(self) -> int:
        """Of the lp norm of the clip ball."""
        return int(self.mechanism.clip_norm)

    @property
    def nonnegative(self) -> bool:
        """Whether inputs are clipped to the nonnegative part of the ball."""
        return bool(self.mechanism.clip_ball().nonnegative)


def priced(
    mech: str | None,
    radius: float,
    *,
    eps: float | None = None,
    delta: float | None = None,
    sigma: float | None = None,
    scale: float | None = None,
    formula: str | None = None,
    nonnegative: bool = False,
) -> Priced:
    """The noise for a target, or the price of a noise, by the same calculator as ``wpriv calibrate`` and ``wpriv budget``.

    Args:
        radius: of the clip ball. eps, delta: the target; Laplace noise needs no delta (pure DP). sigma, scale: or the noise itself,
            with the delta at which eps is told. formula: ``analytic`` (default, the least noise) or ``eq4``.
    Raises:
        UsageError: too much, too little or something out of range is given. Unsupported: the target is out of reach.
    """
    p = _norm(mech)
    own, other = ("sigma", "scale") if p == 2 else ("scale", "sigma")
    noise, wrong = (sigma, scale) if own == "sigma" else (scale, sigma)
    if wrong is not None:
        raise UsageError(f"{mech} has a {own}, not a {other}; give {build_process.flag(own)}, or the other mechanism")
    if (noise is None) == (eps is None):
        found = "neither" if eps is None else "both"
        raise UsageError(f"give a target (--eps) or the noise itself ({build_process.flag(own)}); found {found}")
    if formula is not None and (noise is not None or not isinstance(formula, str) or formula not in FORMULAS):
        also = "" if noise is None else f" and {build_process.flag(own)}"
        raise UsageError(
            f"--formula chooses the noise for a target: {' or '.join(FORMULAS)}; found {shown(formula)}{also}"
        )
    step: dict[str, Any] = {"mech": mech, "radius": radius}
    if p == 2:
        if delta is None:
            raise UsageError(
                "Gauss noise has no finite eps at delta = 0: give --delta, well below 1 / records, such as 1e-5"
            )
        step |= {"nonnegative": int(nonnegative)}
    elif nonnegative:
        raise UsageError(
            "--nonnegative spares Laplace noise nothing: the l1 diameter of the nonnegative part is 2 radii as well. Leave it out"
        )
    elif formula == "eq4":
        raise UsageError("--formula eq4 is about Gauss noise; Laplace noise is exact as it is. Leave it out")
    told = GIVEN
    if noise is None:
        noise, told = _noise(step, own, eps, delta, formula)
    return _price({**step, own: noise}, eps, delta, told)


def _norm(mech: Any) -> int:
    """The p of the lp ball that a local mechanism clips to.

    Raises:
        UsageError: ``mech`` is not the name of a local mechanism.
    """
    known = registry.names("mechanisms")
    norm = registry.mechanism(mech).clip_norm if isinstance(mech, str) and mech in known else None
    if norm is None:
        local = [name for name in known if registry.mechanism(name).clip_norm is not None]
        near = did_you_mean(mech, local) if isinstance(mech, str) else ""
        raise UsageError(f"privatize needs --mech {' or '.join(local)}; found {shown(mech)}{near}")
    return norm


def _noise(
    step: dict[str, Any], own: str, eps: float | None, delta: float | None, formula: str | None
) -> tuple[float, str]:
    """Noise that suffices for a target, rounded up, and how it was found."""
    assert eps is not None  # one of noise and target is there
    if not 0 < eps < math.inf:
        raise UsageError(f"--eps must be a finite number greater than 0; found {eps}")
    sensitivity = _mechanism({**step, own: step["radius"]}).sensitivity
    if delta is None:
        return _quotient(sensitivity, eps), "diameter / eps, for pure DP"
    if formula == "eq4":
        return rounded(sensitivity * gaussian_calibration.zhao(eps, delta), up=True), EQ4
    return float(calibrate(**step, eps=eps, delta=delta).value), ANALYTIC


def _price(step: dict[str, Any], eps: float | None, delta: float | None, told: str) -> Priced:
    mechanism = _mechanism(step)
    if delta is None:
        row = budget(**step, eps=_quotient(mechanism.sensitivity, mechanism.scale) if eps is None else eps, tol=TOL)
    else:
        row = budget(**step, delta=delta, tol=TOL)
    return Priced(mechanism, row, told)


def _quotient(top: float, bottom: float) -> float:
    """top/bottom in 6 digits, never below it: times ``bottom`` it is at least ``top``, in exact arithmetic."""
    found = top / bottom
    if not math.isfinite(found):
        raise Unsupported(f"{top:g} / {bottom:g} is beyond the largest number that a computer holds. Relax the target")
    return rounded(
        found if Fraction(found) * Fraction(bottom) >= Fraction(top) else math.nextafter(found, math.inf), up=True
    )


def _mechanism(step: dict[str, Any]) -> Any:
    return registry.mechanism(step["mech"])(**{key: value for key, value in step.items() if key != "mech"})


@dataclass(frozen=True, eq=False)
class Plan:
    """All that decides what a record becomes.

    Args:
        dct: the record goes through the orthonormal cosine transform first. bounds: [*shape] of what each number is clamped to
            before the ball, from public numbers; None where only the ball clips. bounds_from: where these come from.
        center: the middle of the ball and of the bounds, the same for every number; added again after the noise.
        dtype: float32 or float64. seed: of the noise, None where the operating system chooses. step: spacing of the grid.
    """

    priced: Priced
    dct: bool
    bounds: Array | None
    bounds_from: str
    center: float
    dtype: str
    seed: int | None
    step: float

    @property
    def radius(self) -> float:
        return float(self.priced.mechanism.clip_ball().radius)


def plan(
    shape: tuple[int, ...],
    *,
    mech: str | None = None,
    radius: float | None = None,
    dct: bool = False,
    quantile: float | None = None,
    public: Records | None = None,
    thresholds: Any = None,
    root: Path | None = None,
    center: float | None = None,
    dtype: str = "float32",
    seed: int | None = None,
    nonnegative: bool = False,
    **noise: Any,
) -> Plan:
    """Checks and prices what was asked for records of a shape. Every argument as in ``privatize``.

    Raises:
        UsageError: see ``priced``; or the bounds would come from the private records.
    """
    p = _norm(mech)
    if not isinstance(dtype, str) or dtype not in ("float32", "float64"):
        raise UsageError(f"--dtype is float32 or float64; found {shown(dtype)}")
    if seed is not None and not 0 <= seed < 2**63:
        raise UsageError(f"--seed is a whole number from 0 to 2^63 - 1; found {seed}")
    if dct and nonnegative:
        raise UsageError(
            "cosine coefficients of nonnegative records have both signs: leave out --nonnegative, or --dct"
        )
    if center is not None and (dct or nonnegative):
        raise UsageError(f"--center is for records as they are; leave it out, or --{'dct' if dct else 'nonnegative'}")
    middle = center or 0.0
    if abs(middle) > 1e9:
        raise UsageError(f"--center must lie between -1e9 and 1e9; found {middle:g}. Use other units")
    bounds, source = _bounds(shape, dct, quantile, public, thresholds, root, middle)
    if radius is None:
        if bounds is None:
            raise UsageError(
                "the noise is for records of bounded norm: give --radius, chosen without looking at these records"
            )
        radius = rounded(float(np.linalg.norm(bounds.ravel(), p)) * (1 + 1e-9), up=True)
    if not radius > 0:
        raise UsageError(f"the radius of the clip ball must be greater than 0; found {radius:g}")
    ball_projection.check(radius, radius)
    found = priced(mech, radius, nonnegative=nonnegative, **noise)
    ball_projection.check(found.mechanism.radius, found.noise)
    if dtype == "float32" and 50 * found.noise + found.mechanism.radius > float(np.finfo(np.float32).max):
        raise UsageError(f"noise of {found.noise:g} overflows float32; use --dtype float64")
    return Plan(
        found, dct, bounds, source, middle, dtype, seed, ball_projection.spacing(found.mechanism.radius, found.noise)
    )


def _bounds(
    shape: tuple[int, ...],
    dct: bool,
    quantile: float | None,
    public: Records | None,
    thresholds: Any,
    root: Path | None,
    center: float,
) -> tuple[Array | None, str]:
    """What each number is clamped to, and where that comes from; nothing of it may come from the records that are protected."""
    from wpriv.run.local.records import records

    if thresholds is not None:
        if quantile is not None or public is not None:
            raise UsageError("--thresholds gives the bounds themselves; leave out --quantile and --public")
        given = records(thresholds if isinstance(thresholds, np.ndarray) else str(thresholds), root)
        found, source = given.x.reshape(-1).astype(np.float64), given.name
    elif quantile is not None:
        if public is None:
            raise UsageError(
                "a quantile of the records that are to be protected would itself tell of them, and no noise covers it: name public records "
                "of the same shape by --public, or bounds fixed in advance by --thresholds"
            )
        if not 0 < number(quantile, "--quantile") <= 1:
            raise UsageError(f"--quantile lies above 0 and up to 1; found {quantile}")
        if public.shape != shape:
            raise UsageError(
                f"public records must have the shape of those to protect, {list(shape)}; {public.name} has {list(public.shape)}"
            )
        rows = public.rows(0, len(public.x)) - center
        found = np.quantile(np.abs(transformed(rows) if dct else rows), quantile, axis=0).reshape(-1)
        source = f"the {quantile:g} quantile of magnitudes in {len(public.x)} records of {public.name}"
    elif public is not None:
        raise UsageError("--public is where bounds come from; say which by --quantile, such as 0.8")
    else:
        return None, ""
    if found.size != math.prod(shape) or (found < 0).any():
        raise UsageError(
            f"thresholds are {math.prod(shape)} numbers of at least 0, one for each of a record's; found {found.size} in {source}"
        )
    return found.reshape(shape), source


def transformed(rows: Array) -> Array:
    """The orthonormal cosine transform (DCT-II) of each record: over height and width of an image, else over its last axis.

    It keeps l2 norms, so that its inverse, ``scipy.fft.idctn(x, axes=(-2, -1), norm="ortho")``, loses nothing.
    """
    from scipy.fft import dctn

    found: Array = dctn(rows, type=2, axes=(-2, -1) if rows.ndim > 2 else (-1,), norm="ortho")
    return found
