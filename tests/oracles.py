"""Independent values to test against; nothing here lays a loss on a grid or knows wpriv.

``contour_delta`` is Laplace inversion along the saddle line: with M(s) = E_P[e^{s L}] of the composed loss, any c > 0,

    delta(eps) = P(L = inf) + (1/pi) int_0^inf Re[ M(c + iu) e^{-(c + iu) eps} / ((c + iu)(1 + c + iu)) ] du

(inversion formula of the privacy profile; Alghamdi et al. 2022). ln M of one step is log1p of an integral without
cancellation, so n ln M keeps its digits at n = 2^40. ``laplace_delta`` is an exact sum, ``atoms_delta`` an enumeration.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath
import numpy as np
from scipy.special import gammaln

LogMoment = Callable[[np.ndarray], np.ndarray]
_X12, _W12 = np.polynomial.legendre.leggauss(12)


def poisson_gauss(q: float, mu: float, order: str) -> LogMoment:
    """ln M of one Poisson-subsampled Gaussian step, mu = sensitivity / sigma.

    ``remove`` is the pair ((1-q) N(0) + q N(mu), N(0)), ``add`` its reverse.

    E_Q[e^{a r}] - 1, r = ln(1 - q + q e^{mu x - mu^2/2}), a = s + 1 or -s; a E_Q[e^r - 1] = 0 is subtracted inside.
    """

    def log_moment(s: np.ndarray) -> np.ndarray:
        power = (s + 1) if order == "remove" else -s
        top = (float(np.max(s.real)) + 1) * mu if order == "remove" else 0.0
        # the ratio bends where q e^{mu x - mu^2/2} = 1 - q, over a width of 1/mu
        bend = (math.log1p(-q) - math.log(q)) / mu + mu / 2
        x, w = _line(-39.0, 39.0 + top, bend, 1 / mu, 0.5)
        shift = mu * x - mu * mu / 2
        # only where the density or the grown density is alive
        alive = -x * x / 2 + np.maximum((top / mu) * _log_ratio(shift, q), 0.0)
        keep = alive > alive.max() - 90
        x, w, shift = x[keep], w[keep], shift[keep]
        return _log1p(_excess(power[:, None], _log_ratio(shift, q), -x * x / 2 - 0.5 * math.log(2 * math.pi)) @ w)

    return log_moment


def fixed_gauss(g: float, mu: float) -> LogMoment:
    """ln M of one Gaussian step on a batch of fixed size, replace-one.

    The loss is +-r at base losses l > 0, r = ln(1 - g + g e^l), else 0. The P-mass is e^r dQ at +r and dQ
    at -r, so that M - 1 = E_Q[(e^{(s+1) r} - 1)(1 - e^{-s r}); l > 0].
    """

    def log_moment(s: np.ndarray) -> np.ndarray:
        top = (float(np.max(s.real)) + 1) * mu
        bend = max((math.log1p(-g) - math.log(g)) / mu + mu / 2, mu / 2)
        x, w = _line(mu / 2, max(mu / 2, top) + 39.0, bend, 1 / mu, 0.5)
        log_density = -x * x / 2 - 0.5 * math.log(2 * math.pi)
        ratio = _log_ratio(mu * x - mu * mu / 2, g)
        a, b = (s[:, None] + 1) * ratio, -s[:, None] * ratio
        with np.errstate(over="ignore", invalid="ignore"):
            near = np.expm1(a) * np.exp(log_density)
        far = np.exp(np.minimum(a.real, 2e4) + log_density + 1j * a.imag) - np.exp(log_density)
        return _log1p((np.where(a.real > 30, far, near) * -np.expm1(b)) @ w)

    return log_moment


def gauss(mu: float) -> LogMoment:
    """ln M of an unsampled Gaussian step."""
    return lambda s: s * (s + 1) * mu * mu / 2


def gauss_delta(eps: float, mu: float) -> float:
    """delta of one Gaussian release of mean mu over sigma, in mpmath (Balle and Wang 2018, Theorem 5)."""
    with mpmath.workdps(50):
        eps, mu = mpmath.mpf(eps), mpmath.mpf(mu)
        upper, lower = mu / 2 - eps / mu, -mu / 2 - eps / mu
        return float(mpmath.ncdf(upper) - mpmath.exp(eps) * mpmath.ncdf(lower))


def laplace(t: float) -> LogMoment:
    """ln M of a Laplace step, t = sensitivity/scale: atoms 1/2 at t, e^{-t}/2 at -t; density e^{(y-t)/2}/4 between."""

    def log_moment(s: np.ndarray) -> np.ndarray:
        if float(np.max(s.real)) * t > 600:
            return np.log((s + 1) / (2 * s + 1)) + s * t
        # E e^{sL} - 1 = [ (s+1)(e^{st} - 1 - st) + s (e^{-(s+1)t} - 1 + (s+1) t) ] / (2s + 1)
        return _log1p(((s + 1) * _expm2(s * t) + s * _expm2(-(s + 1) * t)) / (2 * s + 1))

    log_moment.period = math.pi / t  # type: ignore[attr-defined]
    return log_moment


def contour_delta(steps: list[tuple[LogMoment, int]], eps: float, *, rtol: float = 1e-11, most: int = 1 << 15) -> float:
    """delta(eps) of the finite losses of a composition of (ln M of a step, count) pairs, to about ``rtol`` relative."""
    return math.exp(contour_log_delta(steps, eps, rtol=rtol, most=most))


def contour_log_delta(
    steps: list[tuple[LogMoment, int]], eps: float, *, rtol: float = 1e-11, most: int = 1 << 15
) -> float:
    """ln of ``contour_delta``, for deltas of any size.

    Raises:
        ArithmeticError: the integrand does not decay within ``most`` nodes (atoms and few steps).
    """

    def cumulant(s: np.ndarray) -> np.ndarray:
        return np.sum([n * log_m(s) for log_m, n in steps], axis=0)

    def exponent(s: np.ndarray) -> np.ndarray:
        return cumulant(s) - s * eps - np.log(s) - np.log1p(s)

    c = _saddle(lambda c: exponent(np.array([c + 0j])).real[0])
    peak = float(exponent(np.array([c + 0j])).real[0])
    scale = _half_width(exponent, c, peak)
    periods = [log_m.period for log_m, _ in steps if hasattr(log_m, "period")]
    period = min(periods) if len(periods) == len(steps) == 1 else math.inf
    if math.isfinite(period):
        # the width of the factor of the PLD; the poles of the hinge may be much nearer
        wide = _half_width(cumulant, c, float(cumulant(np.array([c + 0j])).real[0]))
        if 20 * wide < period / 2:
            return peak + math.log(_comb(exponent, c, peak, wide, period) / math.pi)
    previous, step = math.inf, scale / 1.2
    for _ in range(12):
        total = _trapezoid(exponent, c, peak, step, most)
        if abs(total - previous) <= rtol * abs(total):
            return peak + math.log(total / math.pi)
        previous, step = total, step / 2
    raise ArithmeticError(f"contour integral does not settle: {total} after {previous}")


def contour_eps(steps: list[tuple[LogMoment, int]], delta: float, guess: float = 1.0) -> float:
    """eps >= 0 at delta, by a secant search on ln delta."""
    target = math.log(delta)
    if contour_log_delta(steps, 0.0) <= target:
        return 0.0
    x0, f0 = 0.0, contour_log_delta(steps, 0.0) - target
    x1 = guess
    low, high = 0.0, math.inf
    for _ in range(100):
        f1 = contour_log_delta(steps, x1) - target
        low, high = (x1, high) if f1 > 0 else (low, x1)
        if abs(f1) < 1e-10:
            return x1
        new = x1 - f1 * (x1 - x0) / (f1 - f0)
        x0, f0 = x1, f1
        x1 = new if low < new < min(high, 4 * x1) else (low + high) / 2 if high < math.inf else 2 * x1
        if high - low < 1e-12 * high:
            return x1
    raise ArithmeticError("no eps found")


def laplace_delta(t: float, n: int, eps: float) -> float:
    """delta(eps) of n <= 60 Laplace steps, exactly: every product of atoms and flat pieces in closed form.

    The PLD is e^{y/2} (e^{-t/2}/2)^n (z + 1/z + (z - 1/z)/(2 s))^n in Laplace space, z = e^{st}: shifted powers.
    """
    with mpmath.workdps(40 + 2 * n):
        t_, eps_ = mpmath.mpf(t), mpmath.mpf(eps)
        total = mpmath.mpf(0)
        for j in range(n + 1):
            part = mpmath.mpf(0)
            for k, c in enumerate(_signed(n, j)):
                x = (n - 2 * k) * t_ - eps_
                if c and x > 0:
                    part += c * _repeated_sinh(x, j)
            total += part * math.comb(n, j) / 2**j
        return float(total * (mpmath.exp(-t_ / 2) / 2) ** n * mpmath.exp(eps_ / 2))


def atoms_delta(pairs: list[tuple[np.ndarray, np.ndarray, int]], eps: float) -> float:
    """delta(eps) of pairs (losses, P-masses, count) with few atoms, by enumeration; missing mass is at infinity."""
    totals = [(math.fsum(p.tolist()), n) for _, p, n in pairs]
    keep = math.prod(total**n for total, n in totals if abs(total - 1) > 1e-13)
    y, log_p = np.zeros(1), np.zeros(1)
    for losses, p, n in pairs:
        counts = np.array([c for c in itertools.product(range(n + 1), repeat=len(losses) - 1) if sum(c) <= n]).reshape(
            -1, len(losses) - 1
        )
        counts = np.column_stack([counts, n - counts.sum(axis=1)])
        ways = gammaln(n + 1) - gammaln(counts + 1).sum(axis=1) + counts @ np.log(p)
        y, log_p = np.add.outer(y, counts @ losses).ravel(), np.add.outer(log_p, ways).ravel()
    above = y > eps
    return math.fsum((np.exp(log_p[above]) * -np.expm1(eps - y[above])).tolist()) + (1 - keep)


def _signed(n: int, j: int) -> list[int]:
    """Coefficients of (z + 1/z)^(n-j) (z - 1/z)^j at z^(n-2k), k = 0..n."""
    poly = [1]
    for sign in [1] * (n - j) + [-1] * j:
        poly = [a + sign * b for a, b in zip([*poly, 0], [0, *poly], strict=True)]
    return poly


def _repeated_sinh(x: mpmath.mpf, j: int) -> mpmath.mpf:
    """The j-fold integral from 0 of 2 sinh(x/2), a series of positive terms."""
    term = x ** (j + 1) / math.factorial(j + 1)
    total, k = term, j + 1
    while term > total * mpmath.eps:
        term *= x * x / (4 * (k + 1) * (k + 2))
        total, k = total + term, k + 2
    return total


def _line(low: float, high: float, bend: float, width: float, wide: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes on [low, high], in panels of ``wide`` and narrower ones near ``bend``."""
    edges = [np.arange(low, high, 2 * wide), np.array([high])]
    if width < 2 * wide:
        edges.append(np.clip(bend + width * np.linspace(-40, 40, 54), low, high))
    edge = np.unique(np.concatenate(edges))
    edge = edge[np.concatenate([[True], np.diff(edge) > 1e-12])]
    half = np.diff(edge) / 2
    return ((edge[:-1] + half)[:, None] + half[:, None] * _X12).ravel(), (half[:, None] * _W12).ravel()


def _log_ratio(loss: np.ndarray, q: float) -> np.ndarray:
    near = np.log1p(q * np.expm1(np.minimum(loss, 600.0)))
    return np.where(loss > 600, np.logaddexp(math.log1p(-q) if q < 1 else -np.inf, math.log(q) + loss), near)


def _excess(power: np.ndarray, r: np.ndarray, log_density: np.ndarray) -> np.ndarray:
    """(e^{a r} - 1 - a (e^r - 1)) times the density, without cancellation at small r or overflow at large."""
    z = power * r
    with np.errstate(over="ignore", invalid="ignore"):
        near = (_expm2(z) - power * _expm2(r)) * np.exp(log_density)
    line = np.exp(r + log_density) - np.exp(log_density)
    far = np.exp(np.minimum(z.real, 2e4) + log_density + 1j * z.imag) - np.exp(log_density) - power * line
    return np.where((np.abs(z) < 30) & (r < 30), near, far)


def _expm2(z: np.ndarray) -> np.ndarray:
    """e^z - 1 - z for real or complex z."""
    small = np.abs(z) < 0.5
    with np.errstate(over="ignore", invalid="ignore"):
        result = np.exp(z) - 1 - z
    inner = z[small]
    series = np.ones_like(inner)
    for k in range(16, 2, -1):
        series = 1 + inner / k * series
    result[small] = inner * inner / 2 * series
    return result


def _log1p(z: np.ndarray) -> np.ndarray:
    """ln(1 + z) at complex z, accurate where z is small (numpy's is not)."""
    a, b = z.real, z.imag
    return 0.5 * np.log1p(2 * a + a * a + b * b) + 1j * np.arctan2(b, 1 + a)


def _saddle(height: Callable[[float], float]) -> float:
    """The c > 0 that minimises ``height`` (convex in c), to a few percent; searched upwards, since small c is cheap."""
    walk, best = -12.0, height(math.exp(-12.0))
    while (new := height(math.exp(walk + 1))) < best and walk < 40:
        walk, best = walk + 1, new
    low, high, ratio = walk - 1, walk + 1, (math.sqrt(5) - 1) / 2
    while high - low > 0.05:
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, b) if height(math.exp(a)) < height(math.exp(b)) else (a, high)
    return math.exp((low + high) / 2)


def _half_width(exponent: LogMoment, c: float, peak: float) -> float:
    """The u at which the integrand has fallen to about e^{-1/2}: one standard deviation of a Gaussian one."""

    def fall(u: float) -> float:
        return peak - float(exponent(np.array([c + 1j * u])).real[0])

    u = c
    while fall(u) > 0.5:
        u /= 2
    while fall(u) < 0.45 and u < 1e30:
        u *= 1.1
    return u


def _trapezoid(exponent: LogMoment, c: float, peak: float, step: float, most: int) -> float:
    """The integral from 0 on."""
    total, used, block = 0.0, 0, 64
    while used < most:
        u = step * np.arange(used, used + block)
        value = np.exp(exponent(c + 1j * u) - peak)
        total += step * float(value.real.sum() - (value.real[0] / 2 if used == 0 else 0))
        used += block
        if np.abs(value).max() * used * step < 1e-14 * abs(total):
            return total
    raise ArithmeticError(f"the integrand has not decayed at {used} nodes")


def _comb(exponent: LogMoment, c: float, peak: float, scale: float, period: float) -> float:
    """The integral of a nearly periodic integrand: Gaussian-like peaks at multiples of ``period``, falling as 1/u^2."""
    step = min(scale, c) / 6
    u = step * np.arange(math.ceil(9 * scale / step))
    value = np.exp(exponent(c + 1j * u) - peak).real
    total = step * float(value.sum() - value[0] / 2)
    step = scale / 1.5
    for first in range(1, 4096, 512):
        u = np.arange(first, first + 512)[:, None] * period + step * np.arange(-13, 14)
        value = np.exp(exponent(c + 1j * u.ravel()) - peak)
        total += step * float(value.real.sum())
        if np.abs(value[-27:]).max() * scale < 1e-15 * abs(total):
            break
    return total
