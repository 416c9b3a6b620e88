"""delta of random jobs with 50 digits: sums over fine quadratures, inverted on two vertical lines. No code of wpriv.

A step is a list of losses L with their P-masses w, the nodes of a quadrature of its density. With M(s) = sum of
w e^{sL} and any c > 0, delta(eps) = 1/pi times the integral over u > 0 of Re M(s)^n e^{-s eps} / (s (s + 1)), s = c +
iu, by the trapezoidal rule. The nodes have 192 bits (python-flint), so that neither small losses nor many steps take
digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from flint import acb, arb, ctx

Nodes = list[tuple[arb, arb]]
BITS, MOST_FREQUENCIES, AGREEMENT = 192, 1500, 1e-9
# of the nodes as well as of the sums over them
ctx.prec = BITS


class NoTruthError(ArithmeticError):
    """The transform does not decay, or two lines disagree."""


def reach_of(n: int, value: float) -> float:
    """Deviations beyond which n steps together have less than a 1e-12th of a delta of this size."""
    return math.sqrt(2 * (math.log(n) - math.log(value) + 28))


def poisson_gauss(rate: float, mu: float, order: str, reach: float) -> Nodes:
    """(1-q) N(0, 1) + q N(mu, 1) against N(0, 1) (``remove``), or the reverse (``add``); trapezoidal rule."""
    step = min(0.125, 0.4 / mu)
    q, shift = arb(rate), arb(mu)
    nodes = []
    for k in range(math.floor(-reach / step), math.ceil((reach + mu) / step)):
        x = arb(k) * arb(step)
        density = arb(step) * (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
        excess = q * (shift * x - shift * shift / 2).expm1()
        nodes.append((density * (1 + excess), excess.log1p()) if order == "remove" else (density, -excess.log1p()))
    return nodes


def fixed_gauss(rate: float, mu: float, reach: float) -> Nodes:
    """Fixed-size sampling: mixture losses above 0, their mirror image below, and an atom at 0; Gauss-Legendre."""
    nodes = []
    half = arb(mu) / 2
    for x, weight in _panels(half, half + arb(reach), 0.5):
        density = weight * (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
        excess = arb(rate) * (arb(mu) * (x - half)).expm1()
        nodes += [(density * (1 + excess), excess.log1p()), (density, -excess.log1p())]
    return [*nodes, (1 - sum((w for w, _ in nodes), arb(0)), arb(0))]


def laplace(rate: float, t: float, kind: str) -> Nodes:
    """Laplace noise of scale 1 at distance t: without sampling (rate 1), ``remove``, ``add`` or ``fixed``."""
    b = arb(t)
    base = [(arb(1) / 2, b), ((-b).exp() / 2, -b)]
    for y, weight in [*_panels(-b, arb(0), 0.5), *_panels(arb(0), b, 0.5)]:
        base.append((weight * ((y - b) / 2).exp() / 4, y))
    if rate == 1:
        return base
    return sampled(base, rate, kind)


def responses(eps0: float) -> Nodes:
    """Randomised response."""
    share = 1 / (1 + (-arb(eps0)).exp())
    return [(share, arb(eps0)), (1 - share, -arb(eps0))]


def discrete(mech: str, scale: float) -> Nodes:
    """Discrete Gaussian or Laplace noise on a query of sensitivity 1, out to a mass of e^-800."""
    b = arb(scale)
    gauss = mech == "discrete-gauss"
    reach = math.ceil((40 if gauss else 800) * scale) + 2
    sizes = [-((arb(k) / b) ** 2) / 2 if gauss else -abs(arb(k)) / b for k in range(-reach - 1, reach + 1)]
    total = sum((size.exp() for size in sizes[1:]), arb(0))
    # P is shifted by one
    return [(p.exp() / total, p - q) for q, p in zip(sizes[1:], sizes, strict=False)]


def sampled(base: Nodes, rate: float, kind: str) -> Nodes:
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


def delta(nodes: Nodes, n: int, eps: float, *, exact: bool = False) -> float:
    """delta of n steps at eps, to about 1e-9; ``exact`` says that the nodes are outcomes, and not those of a density.

    Raises:
        NoTruthError: two lines disagree, or too many frequencies would be needed.
    """
    if exact:
        return _few(nodes, n, eps)
    if n == 1:
        raise NoTruthError("a quadrature does not resolve the hinge of a single step")
    line, deviation = _saddle(nodes, n, eps)
    first, second = (_on_line(nodes, n, eps, c, deviation) for c in (line, 0.9 * line))
    if not abs(first - second) <= AGREEMENT * abs(first):
        raise NoTruthError(f"two lines give {first} and {second}")
    return first


def _few(nodes: Nodes, n: int, eps: float) -> float:
    """Sum over the numbers of steps at each of up to three losses, up to 60 deviations from the mean."""
    if n == 1:
        return float(sum((w * (1 - (arb(eps) - y).exp()) for w, y in nodes if y > eps), arb(0)))
    if len(nodes) != 2 or n > 200_000:
        raise NoTruthError("too many outcomes to sum")
    (w1, y1), (w2, y2) = nodes
    total, term = arb(0), w2**n
    for k in range(n + 1):
        loss = k * y1 + (n - k) * y2
        if loss > eps:
            total += term * (1 - (arb(eps) - loss).exp())
        term = term * (n - k) / (k + 1) * w1 / w2
    return float(total)


def _log_moment(nodes: Nodes, n: int, eps: float, s: acb) -> acb:
    total = acb(0)
    for w, y in nodes:
        total += w * (s * y).exp()
    return n * total.log() - s * arb(eps)


def _saddle(nodes: Nodes, n: int, eps: float) -> tuple[float, float]:
    """The minimiser of the integrand on the real axis, to a tenth, and the deviation of the tilted sum there."""
    second = float(sum((w * y * y for w, y in nodes), arb(0)))
    scale = 1 / math.sqrt(n * second)

    def height(c: float) -> float:
        value = float(_log_moment(nodes, n, eps, acb(c)).real)
        return value - math.log(c) - math.log1p(c)

    low, high = 1e-2 * scale, 1e3 * scale
    for _ in range(24):
        a, b = low * (high / low) ** 0.4, low * (high / low) ** 0.6
        low, high = (low, b) if height(a) < height(b) else (a, high)
    c, step = math.sqrt(low * high), 0.05
    logs = [_log_moment(nodes, n, eps, acb(c * (1 + at * step))).real for at in (-1, 0, 1)]
    bend = float(logs[0] - 2 * logs[1] + logs[2])
    deviation = math.sqrt(bend) / (step * c) if bend > 0 else math.nan
    if not deviation > 0:
        raise NoTruthError("no saddle point")
    return c, deviation


def _on_line(nodes: Nodes, n: int, eps: float, c: float, deviation: float) -> float:
    period = 60 * max(deviation, 1 / c)
    step, total, small = 2 * math.pi / period, arb(0), 0
    for k in range(MOST_FREQUENCIES):
        s = acb(c, k * step)
        term = (_log_moment(nodes, n, eps, s).exp() / (s * (s + 1))).real
        total += term / 2 if k == 0 else term
        size = float(abs(term))
        # terms cross zero: the transform has decayed once many of them are small
        small = small + 1 if size < 1e-13 * float(abs(total)) else 0
        if small > 30:
            return float(total * step / arb.pi())
    raise NoTruthError("the transform does not decay")


def _panels(low: arb, high: arb, width: float, points: int = 24) -> list[tuple[arb, arb]]:
    """Gauss-Legendre nodes and weights on panels of about a width."""
    count = max(math.ceil(float(high - low) / width), 1)
    size = (high - low) / count
    unit = [arb.legendre_p_root(points, k, weight=True) for k in range(points)]
    return [(low + size * (j + (x + 1) / 2), size * w / 2) for j in range(count) for x, w in unit]


def eps_brackets(curve: Callable[[float], float], target: float, low: float, high: float) -> str:
    """Why a bracket of eps at a delta is false, or nothing: delta falls through the target between its ends."""
    if high < math.inf and curve(high) > target * (1 + AGREEMENT):
        return f"delta({high!r}) = {curve(high)!r} exceeds {target!r}"
    if low > 0 and curve(low) < target * (1 - AGREEMENT):
        return f"delta({low!r}) = {curve(low)!r} is below {target!r}"
    return ""


def scale_of(nodes: Nodes, n: int) -> float:
    """The standard deviation of the sum of n losses."""
    values = np.array([[float(w), float(y)] for w, y in nodes])
    return math.sqrt(n * float(values[:, 0] @ values[:, 1] ** 2))
