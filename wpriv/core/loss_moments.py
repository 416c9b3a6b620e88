"""Moments of the privacy loss, ln E_P[e^(lambda L)] at real lambda, and the privacy loss class, for any loss pair.

Both are integrals of the excess of the likelihood ratio T = dP/dQ over a threshold, E_Q (T - t)_+ above a centre and
E_Q (t - T)_+ below it. These excesses are privacy profiles (of the pair and of its reverse), so every term of the
integral is positive and a moment of 1 + 1e-12 keeps its digits. Gauss-Legendre panels extend from the centre outwards
and are halved until the integrand is resolved under every exponential weight; one set of nodes then serves every
lambda.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from wpriv.core.atomic_pair import AtomicPair, atomic_log_moment
from wpriv.core.loss_pair import LossPair
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log1mexp, safe_log

_X, _W = np.polynomial.legendre.leggauss(16)
# the last three Legendre coefficients of a function on a panel show whether 16 nodes resolve it
_TOP = ((2 * np.arange(13, 16) + 1) / 2)[:, None] * np.polynomial.legendre.legvander(_X, 15).T[13:] * _W
_FLOOR = -4000.0  # excesses below e^_FLOOR do not matter to any delta
RESOLVED = 1e-11  # largest rounding of a mean loss, in deviations, with which moments hold
LARGEST_MEAN = 1e10  # beyond which quadrature no longer finds the loss
_DEEP = -90000.0  # excesses below e^_DEEP are not resolved, even if a moment of a high order is the result itself
_DROP = 80.0  # below the centre the integrand decreases: it is cut off this far (in ln) under its value at the centre
_SETTLED = 30.0  # an integral has converged if its integrand ends this far (in ln) below its peak


@dataclass(frozen=True)
class LossClass:
    """Mean, variance and E|L - mean|^3 of the loss given that it is finite, in powers of nats, and the mass at +inf.

    Source: Sommer, Meiser, Mohammadi (2019), Definition 10, with the centred third moment that its Theorem 6 needs.
    """

    mean: float
    variance: float
    third: float
    mass_at_plus_infinity: float


@dataclass(frozen=True)
class _Nodes:
    """Quadrature of a positive function, and bounds on the part above the last node.

    Args:
        y, log_mass: the nodes, and ln of weight times value.
        end, log_end: where the panels end, and ln of (a bound on) the function there.
        top: where the function becomes 0; may be infinite. width: distance from the centre to the end of the panels.
    """

    y: Array
    log_mass: Array
    end: float
    log_end: float
    top: float
    width: float


def log_moment(pair: LossPair, lam: Array, *, finite: bool = False, deep: bool = False) -> Array:
    """Compute ln E_P[e^(lam L)] = lam D_(lam+1)(P||Q) at real lam > 0, to about 1e-11 relative even near 0.

    Args:
        lam: [k] positive reals (the Renyi order less one).
        finite: omit the mass at +inf instead of returning +inf: ln E_P[e^(lam L); L < inf].
        deep: also resolve moments of orders too high to matter to any delta; slower.
    Returns:
        [k] values in nats; +inf where the moment diverges or cannot be resolved from above.
    Source: Mironov (2017) for the divergence; E f(T) = f(c) + f'(c) E(T - c) + integral of f'' times the excess, for
        convex f.
    """
    lam = np.atleast_1d(np.asarray(lam, dtype=float))
    if pair.mass_at_plus_infinity > 0 and not finite:
        return np.full(lam.shape, np.inf)
    if pair.mass_at_plus_infinity >= 1:  # no loss is finite
        return np.full(lam.shape, -np.inf)
    if isinstance(pair, AtomicPair):
        return atomic_log_moment(pair, lam)
    closed = pair.renyi(lam + 1)
    if closed is not None and pair.mass_at_plus_infinity == 0:
        return lam * closed
    log_p = math.log1p(-pair.mass_at_plus_infinity)
    integral = _log_integral(_excess_nodes(pair), lam)
    if deep and np.isposinf(integral).any():
        integral = _log_integral(_excess_nodes(pair, _DEEP), lam)
    bend = np.log(lam) + np.log1p(lam) + integral
    return np.logaddexp((lam + 1) * log_p, bend)


def _log_integral(nodes: _Nodes, lam: Array) -> Array:
    """ln of the integral of e^(lam y) over the nodes; +inf where the part above the last node is not negligible."""
    exponent = lam[:, None] * nodes.y + nodes.log_mass
    end = lam * nodes.end + nodes.log_end
    if math.isfinite(nodes.top):
        # the function decreases: the rest is at most its last value times the remaining length
        rest = nodes.log_end + lam * nodes.top + safe_log(nodes.top - nodes.end)
        exponent = np.concatenate([exponent, rest[:, None]], axis=1)
        unresolved = lam * nodes.width > 1e9
    else:
        peak_value = exponent.max(axis=1) - math.log(nodes.width)
        unresolved = end > peak_value - _SETTLED
    peak = exponent.max(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        total = peak + np.log(np.exp(exponent - peak[:, None]).sum(axis=1))
    infinite = np.where(np.isneginf(peak) & ~unresolved, -np.inf, np.inf)
    return np.where(unresolved | ~np.isfinite(peak), infinite, total)


@lru_cache(maxsize=512)
def _excess_nodes(pair: LossPair, floor: float = _FLOOR) -> _Nodes:
    """Nodes for the excess of T over e^y above the centre ln P(L < inf) and of e^y over T below it, down to e^floor."""
    reverse, centre = pair.reverse(), math.log1p(-pair.mass_at_plus_infinity)
    log_infinity = safe_log(pair.mass_at_plus_infinity)

    def above(y: Array) -> Array:
        return _finite_part(pair.log_delta(y), log_infinity)

    def below(y: Array) -> Array:
        return y + reverse.log_delta(-y)

    # above a mass at infinity the excess is a difference, accurate to 1e-13 of that mass
    above_floor = max(floor, log_infinity - 30.0)
    below_floor = float(below(np.array([centre]))[0]) - _DROP
    low = pair.support[0] if pair.mass_at_minus_infinity == 0 else -math.inf
    left = _side(below, centre, max(low, centre - 200.0), pair.atoms, below_floor)
    return _concatenated(left, _side(above, centre, pair.support[1], pair.atoms, above_floor))


def _finite_part(full: Array, log_infinity: float) -> Array:
    """ln of the sums with the logarithms ``full`` without the part of the mass at an infinite loss."""
    return full if math.isinf(log_infinity) else full + log1mexp(np.minimum(log_infinity - full, 0.0))


def _concatenated(left: _Nodes | None, right: _Nodes | None) -> _Nodes:
    parts = [part for part in (left, right) if part is not None]
    if not parts:
        return _Nodes(np.zeros(1), np.full(1, -np.inf), 0.0, -math.inf, 0.0, 1.0)
    last = parts[-1]
    y, mass = np.concatenate([p.y for p in parts]), np.concatenate([p.log_mass for p in parts])
    end, log_end, top = (last.end, last.log_end, last.top) if last is right else (0.0, -math.inf, 0.0)
    return _Nodes(y, mass, end, log_end, top, max(p.width for p in parts))


def _side(log_f: Callable[[Array], Array], centre: float, limit: float, atoms: Array, floor: float) -> _Nodes | None:
    """Nodes for a positive function that decreases from the centre towards ``limit``, as far as it exceeds e^floor."""
    sign = 1.0 if limit > centre else -1.0
    reach = _reach(log_f, centre, sign, abs(limit - centre), floor) if limit != centre else 0.0
    if reach == 0:
        return None
    end = limit if reach >= abs(limit - centre) else centre + sign * reach
    inside = (atoms > min(centre, end)) & (atoms < max(centre, end))
    breaks = np.unique(np.concatenate([[centre, end], atoms[inside]]))
    edges = [breaks]
    if breaks.size <= 8:  # a peak may be at a jump, at the centre or at an end: panels shrink towards each of them
        shrink = 0.5 * 6.0 ** -np.arange(14)
        for a, b in pairwise(breaks):
            edges += [a + (b - a) * shrink, b - (b - a) * shrink]
    y, weight, value = _panels(log_f, np.unique(np.concatenate(edges)))
    with np.errstate(divide="ignore"):
        mass = value + np.log(weight)
    last = float(log_f(np.array([end]))[0])
    return _Nodes(y, mass, end, last if end == limit else max(last, floor), limit if sign > 0 else centre, reach)


def _reach(log_f: Callable[[Array], Array], centre: float, sign: float, limit: float, floor: float) -> float:
    """Distance from the centre up to which a decreasing function exceeds e^floor, from 0 to ``limit``."""
    scale = np.exp2(np.arange(-110.0, 64.0))
    if math.isfinite(limit):
        scale = np.append(scale[scale < limit], limit)
    for _ in range(4):
        high = np.flatnonzero(log_f(centre + sign * scale) > floor)
        if high.size == 0:
            return 0.0
        at = int(high[-1])
        if at == scale.size - 1:
            break
        scale = np.linspace(scale[at], scale[at + 1], 17)
    return float(scale[-1])


def _panels(log_f: Callable[[Array], Array], edges: Array) -> tuple[Array, Array, Array]:
    """Gauss-Legendre nodes, weights and ln values on panels halved until each is resolved, and graded in width."""
    left, right, refined = edges[:-1], edges[1:], [edges]
    for depth in range(26):
        half = (right - left) / 2
        value = _values(log_f, left, half)[1]
        # where the rounding of y alone changes the value by 1e-7, halving would resolve rounding errors
        steep = np.abs(value[:, -1] - value[:, 0]) * np.abs(right) > 3e8 * (right - left)
        rough = _rough(value) & ~steep
        if not rough.any() or (depth > 6 and rough.sum() > 256):  # many atoms
            break
        middle = (left + half)[rough]
        refined.append(middle)
        left, right = np.concatenate([left[rough], middle]), np.concatenate([middle, right[rough]])
    edges = _graded(np.unique(np.concatenate(refined)))
    half = np.diff(edges) / 2
    y, value = _values(log_f, edges[:-1], half)
    return y.ravel(), (half[:, None] * _W).ravel(), np.where(value <= -1e5, -np.inf, value).ravel()


def _values(log_f: Callable[[Array], Array], left: Array, half: Array) -> tuple[Array, Array]:
    """Nodes and ln values, bounded from below, on panels with these left ends and half-widths."""
    y = (left + half)[:, None] + half[:, None] * _X
    return y, np.maximum(log_f(y), -1e5)


def _graded(edges: Array) -> Array:
    """Halve panels until none is over six times as wide as a neighbour: flanks of narrow peaks are then resolved."""
    while True:
        width = np.diff(edges)
        near = np.minimum(np.append(width[1:], np.inf), np.append(np.inf, width[:-1]))
        wide = np.flatnonzero((width > 6.01 * near) & (width > 1e-13 * np.abs(edges[1:])))
        if wide.size == 0:
            return edges
        edges = np.insert(edges, wide + 1, (edges[wide] + edges[wide + 1]) / 2)


def _rough(value: Array) -> NDArray[np.bool_]:
    """Mask of panels that 16 nodes do not resolve under some exponential weight that flattens the function there."""
    secant = (value[:, -1] - value[:, 0]) / (_X[-1] - _X[0])
    first = (value[:, 1] - value[:, 0]) / (_X[1] - _X[0])
    last = (value[:, -1] - value[:, -2]) / (_X[-1] - _X[-2])
    rough = np.zeros(len(value), dtype=bool)
    for slope in (secant, secant + np.clip(first - secant, -6, 6), secant + np.clip(last - secant, -6, 6)):
        flat = value - slope[:, None] * _X
        flat = np.exp(flat - flat.max(axis=1, keepdims=True))
        rough |= np.abs(flat @ _TOP.T).max(axis=1) > 1e-6
    return rough


def loss_class(pair: LossPair) -> LossClass:
    """Compute mean, variance and third absolute central moment of the finite loss, and the mass at +inf.

    All are right to about 1e-9 relative. The mean of a small loss is of second order, so it is computed from the
    excesses, where nothing cancels; variance and third moment are integrals of one tail each, split at the mean. If no
    loss is finite, the three are 0.

    Source: Sommer, Meiser, Mohammadi (2019), Definition 10 and Theorem 6 (third moment centred).
    """
    if pair.mass_at_plus_infinity >= 1:
        return LossClass(0.0, 0.0, 0.0, 1.0)
    if isinstance(pair, AtomicPair):
        return _atomic_class(pair)
    finite, log_p = 1 - pair.mass_at_plus_infinity, math.log1p(-pair.mass_at_plus_infinity)
    nodes = _excess_nodes(pair)
    mean = log_p + float(np.exp(nodes.log_mass).sum()) / finite
    sides = _deviations(pair, mean)
    variance, third = (sum(k * float(y ** (k - 1) @ mass) for y, mass in sides) / finite for k in (2, 3))
    return LossClass(mean, variance, third, pair.mass_at_plus_infinity)


def resolved_class(pair: LossPair) -> LossClass:
    """Compute the same, and refuse a loss so large beside its deviation that its rounding reaches the moments.

    Raises:
        Unsupported: the rounding of the mean is not far below the deviation, as with tiny noise.
    """
    moments = loss_class(pair)
    rounding, deviation = 2.0**-52 * abs(moments.mean), math.sqrt(moments.variance)
    is_known = isinstance(pair, AtomicPair) or rounding <= RESOLVED * deviation
    if not (is_known and abs(moments.mean) <= LARGEST_MEAN):
        raise Unsupported(
            f"a loss about {moments.mean:.3g} with a deviation of {deviation:.3g} is beyond what double precision "
            f"resolves, so that its moments are not known. Use pld"
        )
    return moments


def raw_third_moment(pair: LossPair) -> float:
    """E|L|^3 of the finite loss, not centred, as printed in Theorem 6 of Sommer, Meiser, Mohammadi (2019)."""
    if isinstance(pair, AtomicPair):
        total = float(np.exp(pair.log_p) @ np.abs(pair.losses) ** 3)
    else:
        total = sum(3 * float(y**2 @ mass) for y, mass in _deviations(pair, 0.0))
    return total / (1 - pair.mass_at_plus_infinity) if total else 0.0


def _deviations(pair: LossPair, centre: float) -> list[tuple[Array, Array]]:
    """Distances from the centre with their weights: the mass of the tail beyond each, on either side."""
    log_infinity = safe_log(pair.mass_at_plus_infinity)

    def above(y: Array) -> Array:
        return _finite_part(pair.tails(y).sf_p, log_infinity)

    def below(y: Array) -> Array:
        return pair.tails(y).cdf_p

    floor, (low, high) = max(-150.0, log_infinity - 30.0), pair.support
    sides = [_side(below, centre, low, pair.atoms, -150.0)] if low < centre else []
    sides += [_side(above, centre, high, pair.atoms, floor)] if high > centre else []
    return [(np.abs(side.y - centre), np.exp(side.log_mass)) for side in sides if side is not None]


def _atomic_class(pair: AtomicPair) -> LossClass:
    finite, y = 1 - pair.mass_at_plus_infinity, pair.losses
    p, q = np.exp(pair.log_p), np.exp(pair.log_q)
    with np.errstate(over="ignore", invalid="ignore"):
        # T ln T - T + 1 at T = e^y, by its series where it cancels; summed under P where e^y is large
        series = y * y / 2 * (1 + 2 * y / 3 + y * y / 4 + y**3 / 15)
        near = np.where(np.abs(y) < 1e-3, series, y * np.exp(y) - np.expm1(y))
        terms = np.where(y > 1, p * (y + np.expm1(-y)), q * near)
    mean = (float(terms.sum()) + pair.mass_at_minus_infinity - pair.mass_at_plus_infinity) / finite
    distance = np.abs(y - mean)
    return LossClass(mean, float(p @ distance**2) / finite, float(p @ distance**3) / finite, pair.mass_at_plus_infinity)
