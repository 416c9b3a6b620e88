"""A cheap first look at loss pairs: where their losses live, their cumulant functions, and which tilt a question asks for.

What is found here only steers the certified computation (tilt, grid, windows); no answer depends on its accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx

from wpriv.core.group import stacked
from wpriv.core.pair import Array, Counts, LossPair
from wpriv.core.scan import Scan, scan

# P-masses down to which tails can be resolved: the deeper, the smaller a delta can be asked about, and the more losses are probed
DEPTHS = (1e-25, 1e-50, 1e-100, 1e-150)


@dataclass(frozen=True)
class Probe:
    """Losses y [m] (increasing) and ln of their P-mass [K, m], a row for each pair of a group; mass at +infinity left out.

    ``loss`` [K, m] is where the mass of each row's cell lies, to second order: ln of its P-mass over its Q-mass. ``shortened`` says that
    losses above the last one were left out, ``end`` that all lie below it but for P-masses that no double can tell from zero.
    """

    y: Array
    log_p: Array
    loss: Array
    end: float
    shortened: bool = False

    @staticmethod
    def of(found: Scan, infinity: float) -> Probe:
        """The cells of a scan, each at a loss; ``infinity`` is the pair's own."""
        y, (mass, other) = found.y, found.masses()
        mass[:, 0] = np.maximum(mass[:, 0], np.minimum(found.tails[1, :, 1], 1.0 - infinity))
        beyond = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
        # the far tail sits at the lower end of a cell that was not refined: its middle would weigh far too much when tilted
        falls = (mass > 0.5 * beyond).any(axis=0) & (y[1:] > 0)
        middle = np.where(falls, y[:-1], (y[1:] + y[:-1]) / 2)
        keep = (mass > 1e-300).any(axis=0)
        if not keep.any():
            nothing = np.zeros((mass.shape[0], 1))
            return Probe(np.zeros(1), nothing - np.inf, nothing, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_p = np.log(mass)
            # where Q has no digits left the middle has to do
            loss = np.where((other > 1e-290) & (mass > 1e-290), np.clip(log_p - np.log(other), y[:-1], y[1:]), middle)
        return Probe(middle[keep], log_p[:, keep], loss[:, keep], float(y[1:][keep][-1]))

    def reaches(self, cut: float) -> bool:
        """Whether there are losses above the cut; or below it, and none above that only their rarity has left out."""
        return float(self.y[-1]) >= cut or (float(self.y[0]) <= -cut and not self.shortened)

    def up_to(self, last: int) -> Probe:
        """The losses up to an index."""
        if last >= self.y.size - 1:
            return self
        return Probe(self.y[: last + 1], self.log_p[:, : last + 1], self.loss[:, : last + 1], float(self.y[last]), True)


def probe(*members: LossPair, depth: float = DEPTHS[-1]) -> Probe:
    """Probes one pair, or several that can be stacked, down to P-masses of ``depth``."""
    return Probe.of(scan(*members, depth=depth), float(stacked(members).infinity))


@dataclass(frozen=True)
class Cumulants:
    """The sum over steps of n K(lambda), n K'(lambda), n K''(lambda), and per group the means and variances of one step of each kind."""

    total: float
    mean: float
    variance: float
    means: list[Array]
    variances: list[Array]


def cumulants(probes: list[Probe], counts: list[Counts], tilt: float) -> Cumulants:
    """Cumulant function of the composed loss at one tilt, from the probes' discrete laws."""
    total = mean = variance = 0.0
    all_means, all_variances = [], []
    for p, n in zip(probes, counts, strict=True):
        exponent = p.log_p + tilt * p.loss
        peak = exponent.max(axis=1)
        w = np.exp(exponent - peak[:, None])
        s = w.sum(axis=1)
        means = (w * p.loss).sum(axis=1) / s
        variances = np.maximum((w * (p.loss - means[:, None]) ** 2).sum(axis=1) / s, 1e-300)
        total += float(n @ (peak + np.log(s)))
        mean += float(n @ means)
        variance += float(n @ variances)
        all_means.append(means)
        all_variances.append(variances)
    return Cumulants(total, mean, variance, all_means, all_variances)


def log_tail_factor(tilt: float, deviation: float) -> float:
    """ln of E[(1 - e^-x)_+ e^{-tilt x}] for x ~ N(0, deviation^2): the saddle-point factor of delta."""
    if deviation <= 0:
        return -math.inf
    r = deviation / math.sqrt(2)
    value = 0.5 * float(erfcx(tilt * r) - erfcx((1 + tilt) * r))
    return math.log(value) if value > 0 else -math.inf


def tilt_for_delta(probes: list[Probe], counts: list[Counts], log_delta: float) -> float:
    """The tilt lambda >= 0 at which the saddle-point approximation of ln delta meets the target (to about 1%)."""

    def miss(tilt: float) -> tuple[float, float]:
        c = cumulants(probes, counts, tilt)
        spread = math.sqrt(c.variance)
        value = c.total - tilt * c.mean + log_tail_factor(tilt, spread) - log_delta
        return value, tilt * c.variance + 1 / (tilt + 1 / spread)

    at_zero, spread = miss(0.0)
    # a normal loss needs at most this tilt
    return _root(miss, at_zero, math.sqrt(2 * at_zero) / spread) if at_zero > 0 else 0.0


def tilt_for_eps(probes: list[Probe], counts: list[Counts], eps: float) -> float:
    """The tilt lambda >= 0 at which the tilted mean of the composed loss is eps (to about 1%)."""

    def miss(tilt: float) -> tuple[float, float]:
        c = cumulants(probes, counts, tilt)
        return eps - c.mean, c.variance

    short, variance = miss(0.0)
    return _root(miss, short, short / variance) if short > 0 else 0.0


def _root(f: Callable[[float], tuple[float, float]], at_zero: float, start: float) -> float:
    """A root of a function that decreases from ``at_zero``, given with how fast it falls: Newton's steps while they converge quickly."""
    low, high, x, last = 0.0, math.inf, start, math.inf
    for _ in range(60):
        value, fall = f(x)
        low, high = (x, high) if value > 0 else (low, x)
        step = x + value / fall
        near = abs(step - x) <= 0.01 * x and abs(value) <= 0.02 * at_zero
        if near or high < 1e-6 * start or high - low <= 0.01 * high:
            return min(max(step, low), high)
        if low < step < min(high, 4 * x) and abs(value) < 0.2 * last:
            x = step
        elif math.isinf(high):
            x *= 4
        else:
            x = math.sqrt(max(low, high / 16) * high)
        last = abs(value)
    return high


def weights(p: Probe, tilt: float) -> Array:
    """[K, m] the tilted probabilities of the probe's losses."""
    exponent = p.log_p + tilt * p.y
    weight = np.exp(exponent - exponent.max(axis=1)[:, None])
    normal: Array = weight / weight.sum(axis=1)[:, None]
    return normal


def top_index(p: Probe, top_mass: float) -> int:
    """Index of the probe's loss beyond which every row's P-mass is below ``top_mass``."""
    plain = np.cumsum(np.exp(p.log_p)[:, ::-1], axis=1).max(axis=0)[::-1]
    return min(int(np.searchsorted(-plain, -top_mass)), p.y.size - 1)
