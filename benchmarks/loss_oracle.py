"""The losses of random jobs, and their delta by closed forms, sums over outcomes and inverse Laplace transforms.

No code of wpriv.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from flint import acb, arb

from benchmarks import single_release
from benchmarks.inverse_transform import AGREEMENT, Nodes, NoTruthError, Path, Step, moments

Reals, Shifted = list[tuple[arb, arb]], list[tuple[acb, acb]]


@dataclass(frozen=True)
class Normal:
    """The loss of Gaussian noise without sampling, whose steps are one of mu sqrt(n)."""

    mu: float

    def delta(self, n: int, eps: float) -> float:
        """Delta of n steps at eps."""
        return float(single_release.gauss(arb(self.mu) * arb(n).sqrt())(arb(eps)))

    def mean_and_deviation(self) -> tuple[float, float]:
        """Of the loss."""
        return self.mu**2 / 2, self.mu


@dataclass(frozen=True)
class Outcomes:
    """A loss of finitely many values."""

    nodes: Reals

    def delta(self, n: int, eps: float) -> float:
        """Delta by a sum over outcomes: over their counts where there are two of them."""
        if n == 1:
            return float(sum((w * (1 - (arb(eps) - y).exp()) for w, y in self.nodes if y > eps), arb(0)))
        if len(self.nodes) != 2 or n > 200_000:
            raise NoTruthError("too many outcomes to sum")
        (w1, y1), (w2, y2) = self.nodes
        total, term = arb(0), w2**n
        for k in range(n + 1):
            loss = k * y1 + (n - k) * y2
            if loss > eps:
                total += term * (1 - (arb(eps) - loss).exp())
            term = term * (n - k) / (k + 1) * w1 / w2
        return float(total)

    def mean_and_deviation(self) -> tuple[float, float]:
        """Of the loss."""
        return moments(self.nodes)


Release = Step | Normal | Outcomes


def reach_of(n: int, value: float) -> float:
    """Deviations far beyond those where n steps together have less than a 1e-12th of a delta of this size.

    Nearer ends of the nodes would differ between paths where e^{sL} grows faster than the density falls.
    """
    return 2 * math.sqrt(2 * (math.log(n) - math.log(value) + 28))


def poisson_gauss(rate: float, mu: float, order: str, reach: float) -> Step:
    """(1-q) N(0, 1) + q N(mu, 1) against N(0, 1) (``remove``), or the reverse (``add``); trapezoidal rule."""
    side = 1 if order == "remove" else -1

    def nodes(path: Path) -> Nodes:
        step = path.fine * min(0.125, 0.2 / mu)
        first, last = math.floor(-reach / step), math.ceil((reach + mu) / step)
        quadrature = []
        # to the left, s is real at first, where a turn by a right angle would not decay
        path = path if side == 1 else replace(path, turn=0.65 * path.turn)
        for x, weight in _shifted(rate, mu, path, [(k * arb(step), arb(step)) for k in range(first, last)], cut=False):
            density, (excess, loss) = weight * _normal(x), _mixture(rate, mu, x)
            if side == 1:
                quadrature.append((density * (1 + excess), loss))
            else:
                quadrature.append((density.conjugate(), -loss.conjugate()))
        return quadrature

    largest = math.inf if order == "remove" else -math.log1p(-rate)
    return Step(nodes, side, single_release.sampled(single_release.gauss(mu), rate, order), largest=largest)


def fixed_gauss(rate: float, mu: float, reach: float) -> Step:
    """Fixed-size sampling: mixture losses above 0, their mirror image below, and an atom at 0; Gauss-Legendre."""
    half = mu / 2

    def nodes(path: Path) -> Nodes:
        # panels double from 0, where the density of the loss is cut
        width = path.fine * min(0.25, 0.6 / mu)
        edges = [arb(0), *(arb(width) * arb(2) ** k for k in range(-22, 1))]
        panels = [pair for low, high in itertools.pairwise(edges) for pair in _panels(low, high, 1.0, 16)]
        panels += _panels(edges[-1], arb(reach), width, 16)
        quadrature = []
        for x, weight in _shifted(rate, mu, path, [(half + r, w) for r, w in panels], cut=True):
            density, (excess, loss) = weight * _normal(x), _mixture(rate, mu, x)
            quadrature.append((density * (1 + excess), loss))
            quadrature.append((density.conjugate(), -loss.conjugate()))
        return [*quadrature, (1 - sum((w for w, _ in quadrature), acb(0)), acb(0))]

    return Step(nodes, 1, single_release.sampled(single_release.gauss(mu), rate, "remove"))


def laplace(rate: float, t: float, kind: str) -> Step:
    """Laplace noise of scale 1 at distance t: without sampling (rate 1), ``remove``, ``add`` or ``fixed``."""
    b = arb(t)

    def nodes(path: Path) -> Nodes:
        base = [(arb(1) / 2, b), ((-b).exp() / 2, -b)]
        width = 0.5 * path.fine
        for y, weight in [*_panels(-b, arb(0), width), *_panels(arb(0), b, width)]:
            base.append((weight * ((y - b) / 2).exp() / 4, y))
        return base if rate == 1 else sampled(base, rate, kind)

    profile = single_release.sampled(single_release.laplace(t), rate, "add" if kind == "add" else "remove")
    return Step(nodes, 0, profile, spread=-math.expm1(-t))


def responses(eps0: float) -> Reals:
    """Randomised response."""
    share = 1 / (1 + (-arb(eps0)).exp())
    return [(share, arb(eps0)), (1 - share, -arb(eps0))]


def discrete(mech: str, scale: float) -> Reals:
    """Discrete Gaussian or Laplace noise on a query of sensitivity 1, out to a mass of e^-800."""
    b = arb(scale)
    gauss = mech == "discrete-gauss"
    reach = math.ceil((40 if gauss else 800) * scale) + 2
    sizes = [-((arb(k) / b) ** 2) / 2 if gauss else -abs(arb(k)) / b for k in range(-reach - 1, reach + 1)]
    total = sum((size.exp() for size in sizes[1:]), arb(0))
    # P is shifted by one
    return [(p.exp() / total, p - q) for q, p in zip(sizes[1:], sizes, strict=False)]


def sampled(base: Reals, rate: float, kind: str) -> Reals:
    """Sampling of a pair of discrete distributions, symmetric for ``fixed``."""
    nodes, rest = [], arb(1)
    for p, loss in base:
        q_mass, excess = p * (-loss).exp(), arb(rate) * loss.expm1()
        if kind == "remove":
            nodes.append((q_mass * (1 + excess), excess.log1p()))
        elif kind == "add":
            nodes.append((q_mass, -excess.log1p()))
        elif loss > 0:
            nodes += [(q_mass * (1 + excess), excess.log1p()), (q_mass, -excess.log1p())]
            rest -= q_mass * (2 + excess)
    return nodes if kind != "fixed" else [*nodes, (rest, arb(0))]


def _mixture(rate: float, mu: float, x: acb) -> tuple[acb, acb]:
    """The likelihood ratio less 1 at x, and its logarithm without jumps along a path."""
    q, shift = arb(rate), arb(mu)
    excess = q * (shift * x - shift * shift / 2).expm1()
    log_share = q.log() + shift * x - shift * shift / 2
    if log_share.real < 0:
        return excess, excess.log1p()
    return excess, log_share + ((1 - q) * (-log_share).exp()).log1p()


def _shifted(rate: float, mu: float, path: Path, panels: list[tuple[arb, arb]], *, cut: bool) -> Shifted:
    """Nodes x + iy of a path: y is constant, grows where the likelihood ratio is large, and starts at 0 on a cut."""
    # at most 2 deviations: further ones cost digits
    offset = path.turn * min(1 / mu, 1.25)
    large, slope = arb(mu) / 2 - arb(rate).log() / mu, arb(math.tan(1.2 * path.bend))
    sharp, shifted = max(mu, 1.0), []
    for x, weight in panels:
        growth = (sharp * (x - large)).exp()
        y, derivative = offset + slope * growth.log1p() / sharp, slope * growth / (1 + growth)
        if cut:
            r = sharp * (x - mu / 2)
            derivative = derivative * r.tanh() + y * sharp / r.cosh() ** 2
            y = y * r.tanh()
        shifted.append((acb(x, y), weight * acb(1, derivative)))
    return shifted


def _normal(x: acb) -> acb:
    return (-x * x / 2).exp() / (2 * arb.pi()).sqrt()


def _panels(low: arb, high: arb, width: float, points: int = 24) -> list[tuple[arb, arb]]:
    """Gauss-Legendre nodes and weights on panels of about a width."""
    count = max(math.ceil(float(high - low) / width), 1)
    size = (high - low) / count
    return [(low + size * (j + (x + 1) / 2), size * w / 2) for j in range(count) for x, w in _legendre(points)]


@functools.cache
def _legendre(points: int) -> list[tuple[arb, arb]]:
    return [arb.legendre_p_root(points, k, weight=True) for k in range(points)]


def largest(steps: Sequence[Release], n: int, eps: float) -> float:
    """The largest delta of several; one that the transform does not give must be negligible by a bound."""
    values, open_steps = [0.0], []
    for step in steps:
        try:
            values.append(step.delta(n, eps))
        except NoTruthError as error:
            open_steps.append((step, error))
    for step, fault in open_steps:
        if not isinstance(step, Step) or step.bound(n, eps) > 0.1 * AGREEMENT * max(values):
            raise fault
    return max(values)


def at_least(steps: Sequence[Release], n: int, eps: float) -> float:
    """A lower bound of delta, by Cantelli's inequality 20 deviations below the mean."""
    bounds = []
    for step in steps:
        mean, deviation = step.mean_and_deviation()
        bounds.append(-math.expm1(min(eps - n * mean + 20 * math.sqrt(n) * deviation, 0.0)) * 400 / 401)
    return max(bounds)


def eps_brackets(curve: Callable[[float], float], target: float, low: float, high: float) -> str:
    """Why a bracket of eps at a delta is false, or nothing: delta falls through the target between its ends."""
    if high < math.inf and curve(high) > target * (1 + AGREEMENT):
        return f"delta({high!r}) = {curve(high)!r} exceeds {target!r}"
    if low > 0 and curve(low) < target * (1 - AGREEMENT):
        return f"delta({low!r}) = {curve(low)!r} is below {target!r}"
    return ""
