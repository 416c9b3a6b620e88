"""The composed loss by its transform: delta as a contour integral of a product of powers, with every error bounded.

With M(s) = E[e^{sY}] for the composed loss Y,  delta(eps) = 1/(2 pi i) * integral over Re s = c > 0 of M(s) e^{-s eps} / (s (s+1)) ds.
M is a product of powers of the transforms of the steps, which for laws of atoms are finite sums, wherever the atoms lie: no lattice is
needed, and a sum of many losses has a transform that dies out within some tens of frequencies.

- The trapezoidal rule with spacing 2 pi / a gives, exactly, the sum of e^{c a k} delta(eps + a k) over all whole k (Poisson's formula);
  what is not wanted in it is bounded by Chernoff's bound at two other tilts.
- The loss is smoothed by a kernel (``smoothing``), which cuts the integral off; by how much that raises delta is bounded by the same sums.
- Frequencies at which the product is next to nothing are left out (``quiet``).
- Runs none of whose losses are large, which cannot come near eps, are taken out of the product, so that they do not drown rare ones.
- Rounding is bounded term by term.

The lower end takes all these errors away from the sum, the upper one adds those that may have made it too small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array, Counts
from wpriv.pld.transform.atomic_transforms import UNIT, Spectrum, TiltedAtoms, log_one_plus
from wpriv.pld.transform.negligible_frequencies import TOO_MANY, SignificantFrequencies, significant_frequencies
from wpriv.pld.transform.smoothing_kernel import BETA, VARIANCE, SmoothingKernel

# products of one frequency and one atom that a law may cost, and up to which no frequency is left out
MAX_WORK, CHEAP = 1_500_000_000, 20_000_000
# frequencies below the edge of the kernel, beyond which it is not even tried to leave some out
MOST_COUNTED = 30_000_000
# differences to the tilt, in units of 1 / spread, at which the wrap-around is bounded
OTHER_TILTS = np.array([0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.5, 8.0, 11.0, 15.0])
# the part of the relative accuracy asked for that each of the errors which more frequencies make smaller may be
SHARE = 1e-3
# a bulk's losses add up to at most the first part of eps, with the kernel to the second; the largest chance of a loss beyond it, and the
# least that a run has none
BELOW, CLEARLY, RARE, OFTEN = 0.6, 0.9, 0.2, 1e-3
# the part of the allowed error that smoothing may add, and the widest kernel, in nats and in spreads
SMOOTHING, WIDEST, WIDEST_PART = 0.1, 0.02, 0.3


@dataclass(frozen=True)
class TransformComposition:
    """A composed law given by weighted values of its transform, ready to be read near ``centre`` and not below ``least``.

    ``delta`` is e^{log_scale - tilt x} times the sum of Re(value e^{-i t x}), x = eps - centre; the same with ``dense`` is the density that
    ``most_gap`` times bounds by how much smoothing raised delta. ``slack`` and ``dense_slack`` bound the errors of these sums, ``wraps``
    holds tilts and logs that bound the wrap-around, ``infinity`` is the P-mass at an infinite loss.
    """

    tilt: float
    centre: float
    log_scale: float
    t: Array
    value: Spectrum
    dense: Spectrum
    slack: float
    dense_slack: float
    most_gap: float
    wraps: Array
    mass_at_plus_infinity: float
    cells: int
    least: float

    def delta(self, eps: float, sign: int) -> float:
        """delta at eps from above (sign +1) or from below (sign -1)."""
        x = eps - self.centre
        scale = math.exp(min(self.log_scale - self.tilt * x, 700.0))
        if scale > 1e300:
            return 1.0 if sign > 0 else self.mass_at_plus_infinity
        if eps < self.least:
            return 1.0 if sign > 0 else self.mass_at_plus_infinity
        wave = np.exp(-1j * self.t * x)
        # the rounding of the waves
        slack = self.slack + UNIT * (4 * abs(x) * self.steep + 40 * self.size)
        # summed in pairs, so that the rounding of the sum stays within that
        value = float((self.value * wave).real.sum())
        if sign > 0:
            return min(max((value + slack) * scale, 5e-324) + self.mass_at_plus_infinity, 1.0)
        crowded = self.dense_slack + UNIT * (4 * abs(x) * float(self.t[-1]) + 40) * self.dense_size
        density = max(float((self.dense * wave).real.sum()) + crowded, 0.0)
        wrapped = float(np.exp(np.minimum(self.wraps[1] - self.wraps[0] * eps, 700.0)).reshape(2, -1).min(axis=1).sum())
        finite = (value - slack - self.most_gap * density) * scale - wrapped
        return min(max(finite, 0.0) + self.mass_at_plus_infinity, 1.0)

    @cached_property
    def size(self) -> float:
        return float(np.abs(self.value).sum())

    @cached_property
    def dense_size(self) -> float:
        return float(np.abs(self.dense).sum())

    @cached_property
    def steep(self) -> float:
        return float(np.abs(self.value) @ self.t)


def invert_transform(
    parts: Sequence[TiltedAtoms], tilt: float, eps: float, mean: float, delta: float, error: float, relative: float
) -> TransformComposition:
    """The composed law of atoms, to be read near eps.

    Args:
        tilt: c > 0. mean: what the tilted mean was taken for when eps was guessed. delta: about its value at eps.
        error: by how much in eps smoothing may move the answer, about.
        relative: the relative accuracy of delta that is wanted.
    Raises:
        Unsupported: too many frequencies would be needed.
    """
    spread = math.sqrt(sum(float(p.counts @ p.variances) for p in parts))
    if not spread > 0:
        raise Unsupported("the composed loss has a single value")
    log_norm = sum(float(p.counts @ p.log_norm) for p in parts)
    centre = sum(float(p.counts.sum()) * p.centre for p in parts)
    moved = centre + sum(float(p.counts @ (p.weight @ p.away)) for p in parts) - mean
    bulk = _Bulk.of(parts, eps)
    scale = spread if bulk is None else max(spread, WIDEST * eps)
    kernel = SmoothingKernel(min(math.sqrt(SMOOTHING * error / (1 + tilt) / VARIANCE), WIDEST, WIDEST_PART * scale))
    shift = kernel.shift
    if bulk is not None and bulk.most * _number(parts) + kernel.width + shift > CLEARLY * eps:
        bulk = None
    near = [eps - shift, eps - shift + moved]
    wraps, period = _wraps(parts, tilt, spread, near, math.log(max(SHARE * relative * delta, 1e-300)), kernel, bulk)
    if not math.isfinite(period):
        raise Unsupported(TOO_MANY)
    spacing = 2 * math.pi / period
    count = math.ceil(kernel.edge / spacing)
    if count > MOST_COUNTED:
        raise Unsupported(TOO_MANY)
    log_scale = log_norm - tilt * centre
    # what all neglected frequencies together may add to the sum, whose size is about this
    size = math.exp(min(math.log(delta) - log_scale + tilt * (min(near) - centre), 0.0))
    room = SHARE * relative * min(size, 0.1 / ((1 + spread * tilt) * (1 + tilt)))
    atoms = sum(p.weight.size for p in parts)
    chosen = (
        SignificantFrequencies([(0, count)])
        if count * atoms <= CHEAP
        else significant_frequencies(parts, tilt, spread, spacing, count, kernel, room, MAX_WORK)
    )
    place = np.concatenate([np.arange(first, last) for first, last in chosen.runs])
    found = [_product(parts, first, last, spacing, bulk) for first, last in chosen.runs]
    value, off = (np.concatenate(each) for each in zip(*found, strict=True))
    t = place * spacing
    s = tilt + 1j * t
    smooth = kernel.transform(s)
    weight = np.where(place == 0, 0.5, 1.0) * (spacing / math.pi)
    payoff, dense = weight * smooth / (s * (s + 1)), weight * smooth**2
    # the rounding of the values, for both sums, of the norms and of the sums themselves
    norms = math.expm1(min(sum(float(p.counts @ p.noise) for p in parts), 700.0))
    sizes = [float(np.abs(w * value).sum()) for w in (payoff, dense)]
    errors = [
        float(np.abs(w) @ off) + total * (norms + UNIT * 40) for w, total in zip((payoff, dense), sizes, strict=True)
    ]
    # those that add next to nothing are not summed each time that the law is read
    heights = np.abs(payoff * value)
    order = np.argsort(heights)
    few = np.cumsum(heights[order]) <= room
    few[-1] = False
    kept = np.sort(order[~few])
    errors[0] += float(heights[order[few]].sum())
    errors[1] += float(np.abs(dense * value)[order[few]].sum())
    t, value, payoff, dense = t[kept], value[kept], payoff[kept], dense[kept]
    beyond = _beyond(kernel, tilt, max(count * spacing, 1e-300))
    infinity = -math.expm1(sum(float(p.counts @ np.log1p(-p.mass_at_plus_infinity)) for p in parts))
    return TransformComposition(
        tilt, centre + shift, log_scale, t, payoff * value, dense * value, errors[0] + chosen.first + beyond[0],
        errors[1] + chosen.second + beyond[1], kernel.most_gap(), wraps, infinity, sum(p.y.size for p in parts),
        -math.inf if bulk is None else bulk.most * _number(parts) + shift + kernel.width + 1e-9,
    )  # fmt: skip


@dataclass(frozen=True)
class _Bulk:
    """The losses up to ``most`` that a run may have at all steps without its sum coming near eps: such runs add nothing to delta."""

    most: float

    @staticmethod
    def of(parts: Sequence[TiltedAtoms], eps: float) -> _Bulk | None:
        """None where leaving them out gains nothing: where at the tilt they are not most of what happens."""
        most = BELOW * eps / _number(parts)
        if not most > 0:
            return None
        jumps = [p.weight[:, p.y > most].sum(axis=1) for p in parts]
        often = sum(float(p.counts @ np.log1p(-np.minimum(some, 0.5))) for p, some in zip(parts, jumps, strict=True))
        rare = all(float(some.max()) < RARE for some in jumps) and often > math.log(OFTEN)
        return _Bulk(most) if rare and any(float(some.max()) > 0 for some in jumps) else None


def _number(parts: Sequence[TiltedAtoms]) -> int:
    """How many steps there are."""
    return sum(int(p.counts.sum()) for p in parts)


def _product(
    parts: Sequence[TiltedAtoms], first: int, last: int, spacing: float, bulk: _Bulk | None
) -> tuple[Spectrum, Array]:
    """The product of powers of the transforms from frequency ``first`` up to ``last``, and a bound of its rounding.

    With a bulk, the product of the powers of its parts b alone is taken away: b^n (e^{n ln(1 + j/b)} - 1), or (b + j)^n - b^n where that is
    known better.
    """
    power, whole = _Power.none(last - first), _Power.none(last - first)
    jumps, apart = np.zeros(last - first, dtype=np.complex128), np.zeros(last - first)
    for p in parts:
        if bulk is None:
            power = power.times(*p.transform(first, last, spacing), p.counts)
            continue
        (moved, errors), (rest, slips) = p.parted(first, last, spacing, bulk.most)
        power, whole = power.times(moved, errors, p.counts), whole.times(moved + rest, errors + slips, p.counts)
        size = np.maximum(np.abs(1 + moved), 1e-300)
        ratio = rest / size * np.exp(-1j * np.angle(1 + moved))
        logs, arguments = log_one_plus(ratio)
        jumps += (np.maximum(logs, -700.0) + 1j * arguments) @ p.counts
        off = (slips + np.abs(ratio) * errors) / np.maximum(size - np.abs(rest), 1e-300) + 8 * UNIT * np.abs(ratio)
        apart += np.minimum(off, 1e300) @ p.counts
    value, off = power.value()
    if bulk is None:
        return value, off
    more = np.expm1(np.minimum(jumps.real, 700.0) + 1j * jumps.imag)
    grown = np.abs(value) * np.exp(np.minimum(power.noise + jumps.real, 700.0)) * np.expm1(np.minimum(apart, 700.0))
    product, error = value * more, np.abs(more) * off + grown + 8 * UNIT * np.abs(value * more)
    both, slip = whole.value()
    direct, least = both - value, slip + off + 2 * UNIT * (np.abs(both) + np.abs(value))
    better = least < error
    return np.where(better, direct, product), np.where(better, least, error)


@dataclass(frozen=True)
class _Power:
    """A product of powers of transforms at [J] frequencies: ln of its modulus, its argument, and ln of the factor rounding may make."""

    log: Array
    phase: Array
    noise: Array

    @staticmethod
    def none(count: int) -> _Power:
        return _Power(*np.zeros((3, count)))

    def times(self, moved: Spectrum, errors: Array, counts: Counts) -> _Power:
        """Times the powers of 1 + ``moved`` [J, K], known up to ``errors``."""
        logs, arguments = log_one_plus(moved)
        with np.errstate(over="ignore"):
            noise = np.log1p(errors * np.exp(-np.maximum(logs, -700.0))) @ counts
        # the rounding of the values, of their logarithms and of what is summed of those
        noise = noise + 4 * UNIT * ((np.abs(np.maximum(logs, -700.0)) + np.abs(arguments)) @ counts)
        return _Power(self.log + logs @ counts, self.phase + arguments @ counts, self.noise + noise)

    def value(self) -> tuple[Spectrum, Array]:
        """The product, and a bound of its error: (|v| + e)^n - |v|^n."""
        power = np.exp(np.maximum(self.log, -1e5) + 1j * self.phase)
        with np.errstate(over="ignore"):
            return power, np.abs(power) * np.expm1(np.minimum(self.noise, 700.0))


def _wraps(
    parts: Sequence[TiltedAtoms],
    tilt: float,
    spread: float,
    near: list[float],
    log_room: float,
    kernel: SmoothingKernel,
    bulk: _Bulk | None,
) -> tuple[Array, float]:
    """What bounds the wrap-around: tilts [2n] and logs [2n], those above the tilt first; and the period that makes it small at some eps.

    With M at tilt b, delta at eps + a k is at most M(b) e^{-b (eps + a k)} for b >= 0.
    """
    shifts = OTHER_TILTS / spread
    below = np.minimum(shifts, tilt)
    other = np.concatenate([shifts, -below])
    tilts = tilt + other
    logs, never = np.zeros((2, other.size))
    for p in parts:
        some, none = p.cumulants(other, math.inf if bulk is None else bulk.most)
        logs, never = logs + some, never + none
    if bulk is not None:
        with np.errstate(divide="ignore"):
            logs = logs + np.log(-np.expm1(never))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = logs + kernel.log_moment(tilts) + tilts * kernel.shift + 1e-9
        logs = np.where(np.isfinite(logs), logs, np.inf)
        periods = np.array(
            [np.where(np.isfinite(logs), (logs - tilts * eps - log_room) / np.abs(other), np.inf) for eps in near]
        )
    period = max(
        float(periods[:, : shifts.size].min(axis=1).max()), float(periods[:, shifts.size :].min(axis=1).max()), spread
    )
    # where no period is finite, nothing is composed
    fall = np.maximum(np.abs(other) * min(period, 1e300), 1e-300)
    return np.array([tilts, logs - fall - np.log(-np.expm1(-fall))]), period


def _beyond(kernel: SmoothingKernel, tilt: float, edge: float) -> tuple[float, float]:
    """Bounds of the two sums over the frequencies from ``edge`` = BETA / width on, the product being at most one in modulus."""
    # |transform| <= 2 BETA e^-BETA |sinh(root) / root|, and that is at most cosh of the root's real part, which is at most
    # sqrt(tilt w BETA) at the edge and tends to tilt w
    lift = tilt * kernel.width
    most = 2.01 * BETA * math.exp(min(math.sqrt(lift * BETA) + lift - BETA, 700.0))
    return 1.1 * most / (math.pi * edge), most**2 * edge / math.pi
