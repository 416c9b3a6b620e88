"""delta of one release in closed form, with python-flint: Gaussian and Laplace noise, and sampling of either."""

from __future__ import annotations

from collections.abc import Callable

from flint import arb

Profile = Callable[[arb], arb]


def gauss(mu: float | arb) -> Profile:
    """Gaussian noise of deviation 1 on two values at distance mu; any real eps."""
    m = arb(mu)

    def tail(x: arb) -> arb:
        return (x / arb(2).sqrt()).erfc() / 2

    return lambda eps: tail(eps / m - m / 2) - eps.exp() * tail(eps / m + m / 2)


def laplace(t: float) -> Profile:
    """Laplace noise of scale 1 on two values at distance t; any real eps."""
    b = arb(t)

    def profile(eps: arb) -> arb:
        if eps >= b:
            return arb(0)
        return 1 - eps.exp() if eps <= -b else -((eps - b) / 2).expm1()

    return profile


def sampled(profile: Profile, rate: float, order: str) -> Profile:
    """A symmetric pair sampled at a rate, for eps >= 0: mixture against base (``remove``), or the reverse (``add``).

    The hinge is a multiple of that of the pair at another eps.
    """
    q = arb(rate)
    if rate == 1:
        return profile
    if order == "remove":
        return lambda eps: q * profile((eps.expm1() / q).log1p())

    def add(eps: arb) -> arb:
        share = q - (1 - q) * eps.expm1()
        return share * profile(eps + (q / share).log()) if share > 0 else arb(0)

    return add
