"""A cheap first look at a loss pair: where its loss lives, its cumulant function, and which tilt a question asks for.

The nodes are geometric in |loss| and refined where mass gathers, so that no scale has to be known beforehand. What is found here
only steers the certified computation (tilt, grid, windows); no answer depends on its accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import erfcx

from wpriv.core.pair import Array, LossPair

_LADDER = np.geomspace(1e-15, 1e9, 120)


@dataclass(frozen=True)
class Probe:
    """Losses y (increasing) with ln of their P-mass; mass at +infinity left out."""

    y: Array
    log_p: Array


@lru_cache(maxsize=512)
def probe(pair: LossPair) -> Probe:
    """Probes one pair; the result is cached by the pair's identity or value."""
    low, high = pair.support
    ladder = np.concatenate([-_LADDER[::-1], [0.0], _LADDER])
    y = ladder[(ladder > low) & (ladder < high)]
    ends = [v for v in (low, high) if math.isfinite(v)]
    if len(ends) == 2 and high > low:
        # a bounded loss has its law's detail near the ends
        inwards = (high - low) * np.geomspace(1e-7, 0.5, 30)
        y = np.concatenate([y, low + inwards, high - inwards])
    few_atoms = pair.atoms if pair.atoms.size <= 64 else np.empty(0)
    y = np.unique(np.concatenate([y, ends, few_atoms]))
    if y.size < 2:
        y = np.array([y[0] - 1e-9, y[0]]) if y.size else np.array([-1e-9, 0.0])
    sf, cdf = _tails(pair, y)
    while True:
        mass = np.maximum(np.where(sf[:-1] < cdf[1:], sf[:-1] - sf[1:], cdf[1:] - cdf[:-1]), 0.0)
        mass[0] = max(mass[0], min(cdf[1], 1.0 - pair.infinity))
        beyond = np.cumsum(mass[::-1])[::-1]
        steep = (mass > 0.7 * beyond) & (mass > 1e-150) | (mass > 0.3 * beyond) & (mass > 1e-15)
        steep[-1] = False
        # no finer than the ladder: an atom at zero would be halved for ever
        finest = np.maximum(np.where(mass > 0.03, 1e-9, 1e-3) * np.abs(y[1:]), 1e-15)
        wide = ((mass > 0.03) | steep) & (np.diff(y) > finest)
        if not wide.any():
            break
        new = (y[:-1][wide, None] + np.diff(y)[wide, None] * np.arange(1, 6) / 6).ravel()
        more = _tails(pair, new)
        y = np.concatenate([y, new])
        order = np.argsort(y, kind="stable")
        y, sf, cdf = y[order], np.concatenate([sf, more[0]])[order], np.concatenate([cdf, more[1]])[order]
    # the far tail sits at the lower end of a cell that was not refined: its middle would weigh far too much when tilted
    middle = np.where((mass > 0.5 * beyond) & (y[1:] > 0), y[:-1], (y[1:] + y[:-1]) / 2)
    keep = mass > 1e-300
    if not keep.any():
        return Probe(np.zeros(1), np.full(1, -np.inf))
    middle, mass = middle[keep], mass[keep]
    # E_P[e^-L] = 1 - lost fixes the mean, which for small losses is of second order and lost in the cells' width
    with np.errstate(over="ignore"):
        excess = float(mass @ np.expm1(-middle)) + float(mass.sum()) - (1 - pair.lost)
    shift = math.log1p(excess / (1 - pair.lost)) if math.isfinite(excess) and abs(excess) < 0.1 else 0.0
    return Probe(middle + shift, np.log(mass))


def _tails(pair: LossPair, y: Array) -> tuple[Array, Array]:
    tails = pair.tails(y)
    return np.exp(tails.sf_p), np.exp(tails.cdf_p)


@dataclass(frozen=True)
class Cumulants:
    """The sum over steps of n K(lambda), n K'(lambda), n K''(lambda), and the means and variances of one step of each kind."""

    total: float
    mean: float
    variance: float
    means: Array
    variances: Array


def cumulants(probes: list[Probe], counts: list[int], tilt: float) -> Cumulants:
    """Cumulant function of the composed loss at one tilt, from the probes' discrete laws."""
    values = []
    for p in probes:
        exponent = p.log_p + tilt * p.y
        peak = float(exponent.max())
        w = np.exp(exponent - peak)
        s = float(w.sum())
        mean = float(w @ p.y) / s
        values.append((peak + math.log(s), mean, max(float(w @ (p.y - mean) ** 2) / s, 1e-300)))
    k, means, variances = np.array(values).T
    n = np.array(counts, dtype=float)
    return Cumulants(float(n @ k), float(n @ means), float(n @ variances), means, variances)


def log_tail_factor(tilt: float, deviation: float) -> float:
    """ln of E[(1 - e^-x)_+ e^{-tilt x}] for x ~ N(0, deviation^2): the saddle-point factor of delta."""
    if deviation <= 0:
        return -math.inf
    r = deviation / math.sqrt(2)
    value = 0.5 * float(erfcx(tilt * r) - erfcx((1 + tilt) * r))
    return math.log(value) if value > 0 else -math.inf


def tilt_for_delta(probes: list[Probe], counts: list[int], log_delta: float) -> float:
    """The tilt lambda >= 0 at which the saddle-point approximation of ln delta meets the target (to about 1%)."""

    def miss(tilt: float) -> float:
        c = cumulants(probes, counts, tilt)
        return c.total - tilt * c.mean + log_tail_factor(tilt, math.sqrt(max(c.variance, 0.0))) - log_delta

    return _decreasing_root(miss, _scale(probes, counts))


def tilt_for_eps(probes: list[Probe], counts: list[int], eps: float) -> float:
    """The tilt lambda >= 0 at which the tilted mean of the composed loss is eps."""
    return _decreasing_root(lambda tilt: eps - cumulants(probes, counts, tilt).mean, _scale(probes, counts))


def _scale(probes: list[Probe], counts: list[int]) -> float:
    variance = cumulants(probes, counts, 0.0).variance
    return 1 / math.sqrt(variance) if variance > 0 else 1.0


def _decreasing_root(f, scale: float) -> float:  # type: ignore[no-untyped-def]
    """A root of a decreasing function on [0, inf), to one percent; 0 where it starts below zero."""
    if f(0.0) <= 0:
        return 0.0
    low, high, f_low, f_high = 0.0, scale, math.inf, f(scale)
    while f_high > 0 and high < 1e12 * scale:
        low, f_low, high = high, f_high, high * 3
        f_high = f(high)
    for _ in range(40):
        if high - low <= 0.01 * high or high < 1e-6 * scale:
            break
        share = f_low / (f_low - f_high) if math.isfinite(f_low) and math.isfinite(f_high) and f_low > f_high else 0.5
        middle = low + (high - low) * min(max(share, 0.1), 0.9)
        value = f(middle)
        if value > 0:
            low, f_low = middle, value
        else:
            high, f_high = middle, value
    return high
