"""The composed loss by its transform: delta as a contour integral of a product of powers, with every error bounded.

With M(s) = E[e^{sY}] for the composed loss Y,  delta(eps) = 1/(2 pi i) * integral over Re s = c > 0 of M(s) e^{-s eps} / (s (s+1)) ds.
M is a product of powers of the transforms of the steps, which for laws of atoms are finite sums, wherever the atoms lie: no lattice is
needed, and a sum of many losses has a transform that dies out within some tens of frequencies.

- The trapezoidal rule with spacing 2 pi / a gives, exactly, the sum of e^{c a k} delta(eps + a k) over all whole k (Poisson's formula); what
  is not wanted in it is bounded by Chernoff's bound at two other tilts.
- The loss is smoothed by a kernel (see ``smoothing``), which cuts the integral off; by how much that raises delta is bounded by the same sums.
- Frequencies at which the product is shown to be next to nothing are left out: |transform of a step|^2 = E[cos(t (L - L'))], L and L' alike,
  and its second derivative is at most 2 Var(L), so that a bound between two samples follows from their values.
- Rounding is bounded term by term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wpriv.core.atoms import UNIT, Atoms, Spectrum
from wpriv.core.pair import Array
from wpriv.core.quiet import Frequencies, loud
from wpriv.core.smoothing import BETA, VARIANCE, Kernel

# products of one frequency and one atom that a law may cost, and up to which no frequency is left out
MAX_WORK, CHEAP = 1_500_000_000, 20_000_000
# differences to the tilt, in units of 1 / spread, at which the wrap-around is bounded
OTHER_TILTS = np.array([0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.5, 8.0, 11.0, 15.0])
# the part of the relative accuracy asked for that each of the errors which more frequencies make smaller may be
SHARE = 1e-3
# the part of the allowed error that smoothing may add, and the widest kernel, in nats and in spreads
SMOOTHING, WIDEST, WIDEST_PART = 0.1, 0.02, 0.3


@dataclass(frozen=True)
class Inverted:
    """A composed law given by weighted values of its transform, ready to be read near ``centre``.

    ``delta`` is e^{log_scale - tilt x} times the sum of Re(value e^{-i t x}), x = eps - centre, ``density`` the same with the values of
    ``dense``; ``slack`` and ``dense_slack`` bound the errors of these sums. ``wraps`` holds tilts and logs that bound the wrap-around.
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
    infinity: float
    cells: int

    def delta(self, eps: float, sign: int) -> float:
        """delta at eps from above (sign +1) or from below (sign -1)."""
        x = eps - self.centre
        scale = math.exp(min(self.log_scale - self.tilt * x, 700.0))
        if scale > 1e300:
            return 1.0 if sign > 0 else self.infinity
        wave = np.exp(-1j * self.t * x)
        value = float((self.value @ wave).real)
        if sign > 0:
            return min(max((value + self.slack) * scale, 5e-324) + self.infinity, 1.0)
        density = max(float((self.dense @ wave).real) + self.dense_slack, 0.0)
        wrapped = float(np.exp(np.minimum(self.wraps[1] - self.wraps[0] * eps, 700.0)).reshape(2, -1).min(axis=1).sum())
        finite = (value - self.slack - self.most_gap * density) * scale - wrapped
        return min(max(finite, 0.0) + self.infinity, 1.0)


def invert(parts: Sequence[Atoms], tilt: float, offset: float, delta: float, error: float, relative: float) -> Inverted | None:
    """The composed law of atoms, to be read near its tilted mean plus ``offset``; None where it would take too many frequencies.

    Args:
        tilt: c > 0. delta: about its value at eps. error: by how much in eps smoothing may move the answer, about.
        relative: the relative accuracy of delta that is wanted.
    """
    spread = math.sqrt(sum(float(p.counts @ p.variances) for p in parts))
    if not spread > 0:
        return None
    log_norm = sum(float(p.counts @ p.log_norm) for p in parts)
    centre = sum(float(p.counts.sum()) * p.centre for p in parts)
    eps = centre + sum(float(p.counts @ (p.weight @ p.away)) for p in parts) + offset
    kernel = Kernel(min(math.sqrt(SMOOTHING * error / (1 + tilt) / VARIANCE), WIDEST, WIDEST_PART * spread))
    shift = kernel.shift
    wraps, period = _wraps(parts, tilt, spread, eps - shift, math.log(max(SHARE * relative * delta, 1e-300)), kernel)
    if not math.isfinite(period):
        return None
    spacing = 2 * math.pi / period
    count = math.ceil(kernel.edge / spacing)
    log_scale = log_norm - tilt * centre
    # what all neglected frequencies together may add to the sum, whose size is about this
    size = math.exp(min(math.log(delta) - log_scale + tilt * (eps - shift - centre), 0.0))
    room = SHARE * relative * min(size, 0.1 / ((1 + spread * tilt) * (1 + tilt)))
    atoms = sum(p.weight.size for p in parts)
    if count * atoms <= CHEAP:
        chosen: Frequencies | None = Frequencies([(0, count)])
    else:
        chosen = loud(parts, tilt, spread, spacing, count, kernel, room, MAX_WORK)
    if chosen is None:
        return None
    place = np.concatenate([np.arange(first, last) for first, last in chosen.runs])
    log, phase, noise = np.concatenate([_product(parts, first, last, spacing) for first, last in chosen.runs], axis=1)
    t = place * spacing
    s = tilt + 1j * t
    smooth = kernel.transform(s)
    weight = np.where(place == 0, 0.5, 1.0) * (spacing / math.pi)
    payoff, dense = weight * smooth / (s * (s + 1)), weight * smooth**2
    value = np.exp(log + 1j * phase)
    # (|v| + e)^n - |v|^n, for both sums, and the rounding of the norms and of the sums themselves
    off = np.exp(log) * np.expm1(np.minimum(noise, 700.0))
    norms = math.expm1(min(sum(float(p.counts @ p.noise) for p in parts), 700.0))
    sizes = [float(np.abs(w * value).sum()) for w in (payoff, dense)]
    errors = [float(np.abs(w) @ off) + total * (norms + UNIT * (t.size + 20)) for w, total in zip((payoff, dense), sizes, strict=True)]
    # those that add next to nothing are not summed each time that the law is read
    heights = np.abs(payoff * value)
    order = np.argsort(heights)
    few = np.cumsum(heights[order]) <= room
    kept = np.sort(order[~few])
    errors[0] += float(heights[order[few]].sum())
    errors[1] += float(np.abs(dense * value)[order[few]].sum())
    t, value, payoff, dense = t[kept], value[kept], payoff[kept], dense[kept]
    beyond = _beyond(kernel, tilt, max(count * spacing, 1e-300))
    infinity = -math.expm1(sum(float(p.counts @ np.log1p(-p.infinity)) for p in parts))
    return Inverted(
        tilt, centre + shift, log_scale, t, payoff * value, dense * value, errors[0] + chosen.first + beyond[0],
        errors[1] + chosen.second + beyond[1], kernel.most_gap(), wraps, infinity, sum(p.y.size for p in parts),
    )  # fmt: skip


def _product(parts: Sequence[Atoms], first: int, last: int, spacing: float) -> Array:
    """[3, J] ln |product|, its argument and ln of by what factor rounding may have changed it, from frequency ``first`` up to ``last``."""
    log, phase, noise = np.zeros((3, last - first))
    for p in parts:
        logs, arguments, errors = p.transform(first, last, spacing)
        log += logs @ p.counts
        phase += arguments @ p.counts
        noise += np.log1p(errors * np.exp(-np.maximum(logs, -700.0))) @ p.counts
    return np.array([np.maximum(log, -1e5), phase, noise])


def _wraps(parts: Sequence[Atoms], tilt: float, spread: float, eps: float, log_room: float, kernel: Kernel) -> tuple[Array, float]:
    """What bounds the wrap-around: tilts [2n] and logs [2n], those above the tilt first; and the period that makes it small at eps.

    With M at tilt b, delta at eps + a k is at most M(b) e^{-b (eps + a k)} for b >= 0.
    """
    shifts = OTHER_TILTS / spread
    below = np.minimum(shifts, tilt)
    other = np.concatenate([shifts, -below])
    tilts = tilt + other
    logs = sum((p.cumulants(other) for p in parts), np.zeros(other.size))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = logs + np.log(kernel.transform(tilts + 0j).real) + tilts * kernel.shift + 1e-9
        periods = np.where(np.isfinite(logs), (logs - tilts * eps - log_room) / np.abs(other), np.inf)
    period = max(float(periods[: shifts.size].min()), float(periods[shifts.size :].min()), spread)
    ratio = np.exp(-np.abs(other) * period)
    with np.errstate(divide="ignore"):
        return np.array([tilts, logs + np.log(ratio / np.maximum(1 - ratio, 1e-300))]), period


def _beyond(kernel: Kernel, tilt: float, edge: float) -> tuple[float, float]:
    """Bounds of the two sums over the frequencies from ``edge`` = BETA / width on, the product being at most one in modulus."""
    # |transform| <= 2 BETA cosh(tilt w) e^-BETA / |root|, and |root| is at least w t - BETA: from the largest of |sinh| / |root| on
    most = 2 * BETA * math.exp(-BETA) * math.exp(min(tilt * kernel.width * 2, 700.0))
    return most / (math.pi * edge), most**2 * edge / math.pi
