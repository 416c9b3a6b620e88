"""A local mechanism as users describe it, and its calibration: the noise for a target, or the cost of a given noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from wpriv.core import parameters, registry
from wpriv.core.guarantee import Guarantee
from wpriv.errors import Unsupported, UsageError
from wpriv.hints import did_you_mean
from wpriv.numerics import gaussian_calibration
from wpriv.numerics.parse_numbers import number, shown, whole
from wpriv.numerics.safe_rounding import rounded
from wpriv.run.accounting.budget import budget
from wpriv.run.accounting.calibrate import calibrate
from wpriv.run.accounting.target import TOL

FORMULAS = ("analytic", "eq4")
EQ4 = "equation (4) of Reshetova, Chen, Ozgur 2023 at the diameter (sufficient, not least)"
ANALYTIC = "the least noise that suffices"
PURE = "diameter / eps, for pure DP"
GIVEN = "noise as given"


@dataclass(frozen=True)
class LocalMechanism:
    """A local mechanism as users describe it; numbers may be text such as ``1e-5`` or ``2^20``.

    Args:
        mech: ``local-gauss`` (l2 ball) or ``local-laplace`` (l1 ball). radius: of the clip ball, in the units of the
            data.
        eps, delta: the target; Laplace noise needs no delta (pure DP). sigma, scale: or the noise itself, with the
            delta at which its eps is evaluated. formula: ``analytic`` (default, the least noise) or ``eq4``.
        center: the center of the ball, the same for every number. nonnegative: negative numbers become 0 first.
        dct: records go through the orthonormal cosine transform first.
        quantile: of magnitudes in public records, to which each number is clamped; or thresholds, an array or file.
        dtype: float32 or float64, of the reports. seed: of the noise; None leaves it to the operating system.
    """

    mech: Any = None
    radius: float | None = None
    eps: float | None = None
    delta: float | None = None
    sigma: float | None = None
    scale: float | None = None
    formula: Any = None
    center: float | None = None
    nonnegative: bool = False
    dct: bool = False
    quantile: float | None = None
    thresholds: Any = None
    dtype: Any = "float32"
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("eps", "delta", "sigma", "scale", "radius", "quantile", "center"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, number(value, f"`{name}`"))
        if self.seed is not None:
            object.__setattr__(self, "seed", whole(self.seed, "`seed`"))

    @property
    def p(self) -> int:
        """The p of the lp ball that records are clipped to.

        Raises:
            UsageError: no such mechanism.
        """
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


@dataclass(frozen=True)
class CalibratedMechanism:
    """A mechanism with its noise, its guarantee, and how the noise was chosen."""

    mechanism: Any
    row: Guarantee
    formula: str

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
        """Tell whether inputs are clipped to the nonnegative part of the ball."""
        return bool(self.mechanism.clip_ball().nonnegative)


def calibrated(options: LocalMechanism, radius: float) -> CalibratedMechanism:
    """Choose the noise for a target, or evaluate a given noise, as ``wpriv calibrate`` and ``wpriv budget`` do.

    Args:
        radius: of the clip ball, which may come from bounds where ``options`` has none.
    Raises:
        UsageError: an option is missing, out of range or does not fit another. Unsupported: the target is out of reach.
    """
    _check_noise_options(options)
    step: dict[str, Any] = {"mech": options.mech, "radius": radius}
    if options.p == 2:
        step["nonnegative"] = int(options.nonnegative)
    noise, formula = getattr(options, options.parameter), GIVEN
    if noise is None:
        noise, formula = _noise(options, step)
    mechanism = _mechanism({**step, options.parameter: noise})
    question: dict[str, Any] = {}
    if options.delta is not None:
        question["delta"] = options.delta
    elif options.eps is not None:
        question["eps"] = options.eps
    else:
        question["eps"] = _quotient(mechanism.sensitivity, mechanism.scale)
    row = budget(**{**step, options.parameter: noise}, **question, tol=TOL)
    return CalibratedMechanism(mechanism, row, formula)


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
                "Gauss noise has no finite eps at delta = 0: give `delta`, well below 1 / records, such as 1e-5"
            )
    elif options.nonnegative:
        raise UsageError(
            "`nonnegative` does not reduce Laplace noise: the l1 diameter of the nonnegative part is 2 radii as well. "
            "Leave it out"
        )
    elif formula == "eq4":
        raise UsageError("`formula` eq4 is for Gauss noise; Laplace noise has an exact formula. Leave it out")


def _noise(options: LocalMechanism, step: dict[str, Any]) -> tuple[float, str]:
    """Return noise that suffices for a target, rounded up, and the formula that gave it."""
    eps, delta = options.eps, options.delta
    assert eps is not None  # either noise or target is given
    if not 0 < eps < math.inf:
        raise UsageError(f"`eps` must be a finite number greater than 0; found {eps}")
    sensitivity = _mechanism({**step, options.parameter: step["radius"]}).sensitivity
    if delta is None:
        return _quotient(sensitivity, eps), PURE
    if options.formula == "eq4":
        return rounded(sensitivity * gaussian_calibration.zhao(eps, delta), up=True), EQ4
    return float(calibrate(**step, eps=eps, delta=delta).value), ANALYTIC


def _quotient(numerator: float, denominator: float) -> float:
    """Return the quotient in 6 digits, rounded up: times the denominator it is at least the numerator, exactly."""
    quotient = numerator / denominator
    if not math.isfinite(quotient):
        raise Unsupported(f"{numerator:g} / {denominator:g} overflows the range of doubles. Relax the target")
    if Fraction(quotient) * Fraction(denominator) < Fraction(numerator):
        quotient = math.nextafter(quotient, math.inf)
    return rounded(quotient, up=True)


def _mechanism(step: dict[str, Any]) -> Any:
    return registry.mechanism(step["mech"])(**{key: value for key, value in step.items() if key != "mech"})
