"""The target of a calibration: eps at a delta, or a bound on membership attacks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from wpriv.core.attacks.certified_mu import DEFAULT_FPR
from wpriv.errors import UsageError
from wpriv.numerics.parse_numbers import number
from wpriv.numerics.safe_rounding import echo

# default relative width for a true-positive rate, which takes tens of points of the curve
RATE_TOL = 1e-5
# the same for mu, whose bracket is no narrower; the largest mu, beyond which error rates are not resolved
MU_TOL, MAX_MU = 3e-4, 20.0


@dataclass(frozen=True)
class Target:
    """The target of a calibration.

    Args:
        eps, delta: eps at delta; delta at eps = 0, which is the advantage; or the true-positive rate or mu, as
            ``delta``.
        fpr: the false-positive rate at which the true-positive rate is at most ``delta``, or the least one for mu.
        names: the arguments that were given. notes: how they were read. least_tol: the smallest default width.
    """

    eps: float
    delta: float
    fpr: float | None = None
    names: tuple[str, ...] = ("eps", "delta")
    notes: tuple[str, ...] = ()
    least_tol: float = 0.0

    @property
    def asked(self) -> str:
        """The quantity that the target bounds, as in ``Guarantee.extra``."""
        if "max_mu" in self.names:
            return "mu"
        return "tpr" if self.fpr is not None else "eps" if self.eps > 0 else "delta"


def target(**arguments: Any) -> Target:
    """Read eps and delta, advantage, tpr and fpr, or max_mu and perhaps fpr.

    Raises:
        UsageError: none or several of these are given, or a number is out of range.
    """
    given = {name: number(value, f"`{name}`") for name, value in arguments.items() if value is not None}
    names = tuple(given)
    if names == ("advantage",):
        return _advantage(given["advantage"])
    if names == ("tpr", "fpr"):
        return _true_positive_rate(given["tpr"], given["fpr"])
    if names in (("max_mu",), ("fpr", "max_mu")):
        return _mu(given["max_mu"], given.get("fpr", DEFAULT_FPR))
    if names == ("eps", "delta"):
        eps, delta = given["eps"], given["delta"]
        if not 0 <= eps < math.inf:
            raise UsageError(f"`eps` must be a finite number of at least 0; found {eps}")
        if not 0 < delta < 1:
            raise UsageError(f"`delta` must lie strictly between 0 and 1; found {delta}")
        return Target(eps, delta)
    if set(names) <= {"eps", "delta"}:
        raise UsageError("calibrate needs a target: give both `eps` and `delta`")
    words = " and ".join(f"`{name}`" for name in names)
    raise UsageError(
        f"calibrate needs one target: `eps` with `delta`, `advantage` alone, `max_mu` (perhaps "
        f"with `fpr`), or `tpr` with `fpr`; found {words}"
    )


def _advantage(advantage: float) -> Target:
    if not 0 < advantage < 1:
        raise UsageError(
            f"`advantage`, the largest true- less false-positive rate, must lie strictly between 0 and 1; "
            f"found {advantage}"
        )
    note = f"advantage = {echo(advantage)} is delta at eps = 0, the total variation distance of neighbours"
    return Target(0.0, advantage, None, ("advantage",), (note,))


def _mu(mu: float, fpr: float) -> Target:
    if not 0 < mu <= MAX_MU:
        raise UsageError(
            f"`max_mu`, the largest mu of Gaussian DP, must lie above 0 and be at most {MAX_MU:g}; found {mu}"
        )
    if not 0 < fpr <= 0.5:
        raise UsageError(f"`fpr`, the smallest rate for which mu holds, must lie in (0, 1/2]; found {fpr}")
    note = (
        f"mu = {echo(mu)} of Gaussian DP bounds every membership attack with both error rates at least {echo(fpr)}, "
        f"in both orders of the neighbours"
    )
    return Target(0.0, mu, fpr, ("max_mu",), (note,), MU_TOL)


def _true_positive_rate(tpr: float, fpr: float) -> Target:
    for name, value in (("tpr", tpr), ("fpr", fpr)):
        if not 0 < value < 1:
            raise UsageError(f"`{name}` is a rate of a membership attack, strictly between 0 and 1; found {value}")
    if tpr <= fpr:
        raise UsageError(
            f'`tpr` must be above `fpr`, since calling records "in the data" at random has equal rates; found '
            f"{echo(tpr)} at {echo(fpr)}"
        )
    note = f"tpr = {echo(tpr)} at fpr = {echo(fpr)} bounds every membership attack, in both orders of the neighbours"
    return Target(0.0, tpr, fpr, ("tpr", "fpr"), (note,), RATE_TOL)
