"""Independent values to test against: numerical Laplace inversion of the composed loss along a saddle line, without any loss grid.

delta(eps) = (1/pi) int_0^inf Re[ M(c+iu)^n e^{-(c+iu) eps} / ((c+iu)(1+c+iu)) ] du, c > 0, with M the moment generating function of one
step's loss (inversion formula of the privacy profile; Alghamdi et al. 2022). M - 1 is integrated without cancellation.
"""

from __future__ import annotations

import numpy as np


def log_mgf_poisson_gauss(s, q: float, mu: float, order: str):
    """ln E_P[e^{s L}] of the Poisson-subsampled Gaussian at complex s, L of ((1-q)N(0)+qN(mu) vs N(0)) or the reverse."""
    x = np.linspace(-40, 40 + 3 * mu * (1 + abs(np.max(np.real(s)))), 24001)
    # the integrand's mass sits where the density times ratio^(s+1) peaks
    log_density = -x * x / 2 - 0.5 * np.log(2 * np.pi)
    ratio = np.log1p(q * np.expm1(mu * x - mu * mu / 2))
    power = (s + 1) if order == "remove" else -s
    power = np.asarray(power)[..., None]
    # E_Q[ratio - 1] = 0, so the linear term may be taken away
    z = power * ratio
    small = np.abs(z) < 1e-2
    excess = np.where(small, z + z * z / 2 + z**3 / 6 + z**4 / 24 + z**5 / 120 + z**6 / 720, np.exp(z + log_density) * np.exp(-log_density) - 1)
    linear = power * np.expm1(ratio)
    integrand = np.where(np.abs(ratio) < 700, np.exp(log_density) * (excess - linear), 0)
    big = np.exp(z + log_density) - np.exp(log_density) * (1 + linear)
    integrand = np.where(small, integrand, big)
    step = x[1] - x[0]
    return np.log1p(integrand.sum(axis=-1) * step)


def delta_contour(log_mgf, n: int, eps: float, *, points: int = 4000) -> float:
    """delta(eps) of the n-fold composition from ln of the moment generating function of one step."""
    grid = np.geomspace(1e-3, 1e9, 400)
    values = np.array([np.real(n * log_mgf(np.array([c + 0j]))[0]) - c * eps - np.log(c * (1 + c)) for c in grid[:1]])
    low, high = -3.0, 9.0
    for _ in range(60):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        fa, fb = (_exponent(log_mgf, n, eps, 10**v) for v in (a, b))
        if fa < fb or np.isnan(fb):
            high = b
        else:
            low = a
    del grid, values
    c = 10 ** ((low + high) / 2)
    peak = _exponent(log_mgf, n, eps, c)
    d = 1e-3 * c
    curve = (_exponent(log_mgf, n, eps, c + d) - 2 * peak + _exponent(log_mgf, n, eps, c - d)) / d**2
    width = 1 / np.sqrt(max(curve, 1e-30))
    u = np.linspace(0, 14 * width, points)
    s = c + 1j * u
    values = np.concatenate([n * log_mgf(part) for part in np.array_split(s, max(1, points // 100))])
    integrand = np.real(np.exp(values - s * eps - np.log(s) - np.log1p(s) - peak))
    weights = np.full(points, u[1] - u[0])
    weights[0] /= 2
    return float(np.exp(peak) * (integrand @ weights) / np.pi)


def _exponent(log_mgf, n, eps, c):
    return float(np.real(n * log_mgf(np.array([c + 0j]))[0])) - c * eps - np.log(c) - np.log1p(c)
