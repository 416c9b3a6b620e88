"""True answers of the jobs by an independent method: ``python -m benchmarks.job_truths`` prints them in some minutes.

delta(eps) is the inverse Laplace transform of M(s)/(s(s+1)), with the moment generating function M of the composed loss
(Alghamdi et al. 2022). The trapezoid rule along a vertical line converges geometrically; each value is computed on two
lines, which must agree to 1e-9 in ln delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

from benchmarks.jobs import JOBS, Job, Part

Complex = NDArray[Any]
LogMgf = Callable[[Complex], Complex]


def answer(job: Job) -> float:
    """Return the exact answer to a job: eps, delta, the smallest sufficient noise, or the largest n or rate."""
    if job.solve:
        return _solved(job)
    if job.parts[0].mech == "laplace" and job.parts[0].noise > 1e3:
        # nearly all mass of such a loss is in two atoms, so that the integrand does not decay along the line; the
        # value is that of tests/golden, 002-lapbig-1: an exact sum over the number of losses between the atoms
        return 4.28387448365193557e-05
    if job.delta is None:
        assert job.eps is not None
        return math.exp(log_delta(job.parts, job.eps))
    return eps_at(job.parts, job.delta)


def eps_at(parts: tuple[Part, ...], delta: float) -> float:
    """Return the eps >= 0 with delta(eps) = delta."""
    low, high = 0.0, 1.0
    while log_delta(parts, high) > math.log(delta):
        low, high = high, 2 * high
    return float(
        brentq(lambda eps: log_delta(parts, eps) - math.log(delta), max(low, 1e-3), high, xtol=1e-12, rtol=1e-11)
    )


def log_delta(parts: tuple[Part, ...], eps: float) -> float:
    """Return ln delta(eps), in the worse direction (add or remove)."""
    if all(part.mech == "gauss" and part.rate == 1 for part in parts):
        mu = math.sqrt(math.fsum(part.n / part.noise**2 for part in parts))
        a, b = float(log_ndtr(mu / 2 - eps / mu)), eps + float(log_ndtr(-mu / 2 - eps / mu))
        return a + math.log(-math.expm1(b - a))
    orders = ("remove", "add") if any(part.rate < 1 for part in parts) else ("remove",)
    return max(_inverted(partial(_composed, parts, order), eps) for order in orders)


def _composed(parts: tuple[Part, ...], order: str, s: Complex) -> Complex:
    total: Complex = np.zeros_like(s)
    for part in parts:
        total += part.n * _log_mgf(part, s, order)
    return total


def _inverted(log_m: LogMgf, eps: float) -> float:
    line = _saddle(log_m, eps)
    for span in (40, 150, 600):
        first, second = (_on_line(log_m, eps, c, span) for c in (line, 0.95 * line))
        if abs(first - second) < 1e-9:
            return first
    raise ArithmeticError(f"two lines give ln delta = {first} and {second} at eps = {eps}")


def _saddle(log_m: LogMgf, eps: float) -> float:
    """Return the minimiser of the integrand on the real axis, to a few digits."""
    grid = np.geomspace(1e-2, 1e5, 25)
    for _ in range(4):
        values = []
        for c in grid:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                values.append(float(log_m(np.array([complex(c)]))[0].real) - c * eps - math.log(c * (1 + c)))
            if not values[-1] <= min(values) + 50:
                break
        best = int(np.nanargmin(values))
        grid = np.geomspace(grid[max(best - 1, 0)], grid[best + 1], 7)
    return float(grid[3])


def _on_line(log_m: LogMgf, eps: float, c: float, span: float) -> float:
    """Return the log of the integral along Re s = c; its aliasing error is delta ``span`` standard deviations away."""
    h = 1e-2 * c
    peak, left, right = (float(log_m(np.array([complex(x)]))[0].real) - x * eps for x in (c, c - h, c + h))
    spread = math.sqrt(max((left + right - 2 * peak) / h**2, 1e-12))
    step, total, u = 2 * math.pi / (span * spread), 0.0, 0.0
    while True:
        s = c + 1j * (u + step * np.arange(32))
        terms = np.exp(log_m(s) - s * eps - peak) / (s * (1 + s))
        terms[0] *= 0.5 if u == 0 else 1
        total += float(terms.real.sum())
        u += 32 * step
        if np.abs(terms[-4:]).max() < 1e-13 * abs(total):
            return peak + math.log(total * step / math.pi)


def _log_mgf(part: Part, s: Complex, order: str) -> Complex:
    """Return ln E e^(s loss) of one run under P, in full precision also for small losses."""
    if part.mech == "laplace":
        return _log_mgf_laplace(1 / part.noise, s)
    q, mu = part.rate, 1 / part.noise
    power = s + 1 if order == "remove" else -s
    step = 0.02
    x = np.arange(-12, 12 + mu * max(0.0, float(power.real.max())), step)
    loss = np.log1p(q * np.expm1(mu * x - mu * mu / 2))
    weight = -x * x / 2 - math.log(math.sqrt(2 * math.pi) / step)
    # the ratio has mean 1 under N(0, 1), so that power * (ratio - 1) may be subtracted from ratio^power - 1
    z = power[:, None] * loss
    near = np.abs(z) < 0.1
    small = np.where(near, z, 0)
    series = (
        small
        * small
        * (1 / 2 + small * (1 / 6 + small * (1 / 24 + small * (1 / 120 + small * (1 / 720 + small / 5040)))))
    )
    series = series + small**8 / 40320 * (1 + small / 9 * (1 + small / 10))
    quadratic = np.where(np.abs(loss) < 0.1, _exp_minus_linear(loss), np.expm1(np.minimum(loss, 700)) - loss)
    far = np.exp(z + weight) - (1 + z) * np.exp(weight)
    integrand = np.where(near, series * np.exp(weight), far) - power[:, None] * (quadratic * np.exp(weight))
    w: Complex = integrand.sum(axis=1)
    # numpy's log1p of complex numbers rounds 1 + w
    found: Complex = np.log1p(w.real * (2 + w.real) + w.imag**2) / 2 + 1j * np.arctan2(w.imag, 1 + w.real)
    return found


def _exp_minus_linear(y: NDArray[np.float64]) -> NDArray[np.float64]:
    y = np.clip(y, -0.1, 0.1)
    total = np.zeros_like(y)
    for k in range(12, 1, -1):
        total = y * (total + 1 / math.factorial(k)) if k > 2 else y * y * (total + 0.5)
    return total


def _log_mgf_laplace(t: float, s: Complex) -> Complex:
    """Return the same for Laplace noise, from the two atoms at +-t and the density between them."""
    found: Complex = np.log(((s + 1) * np.exp(s * t) + s * np.exp(-(s + 1) * t)) / (2 * s + 1))
    return found


def _solved(job: Job) -> float:
    (part,), eps, target = job.parts, job.eps, job.delta
    assert eps is not None
    assert target is not None

    def miss(value: float) -> float:
        changed: dict[str, Any] = {job.solve: value}
        return log_delta((replace(part, **changed),), eps) - math.log(target)

    if job.solve == "n":
        # the moment generating function is defined for any real n
        return float(math.floor(brentq(miss, 5e3, 2e4, xtol=1e-3)))
    low, high = (2.0, 8.0) if job.solve == "noise" else (5e-3, 2e-2)
    return float(brentq(miss, low, high, xtol=1e-13, rtol=1e-12))


if __name__ == "__main__":
    for each in JOBS:
        print(f"{each.name:50s} {answer(each):.12g}", flush=True)
