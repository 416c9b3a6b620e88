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
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wpriv.core.pair import Array, Counts
from wpriv.core.smoothing import VARIANCE, Kernel

Spectrum = NDArray[np.complex128]
UNIT = 2.0**-53
# products of one frequency and one atom that one law may cost
MAX_WORK = 150_000_000
# products held at once
CHUNK = 1 << 18
# differences to the tilt, in units of 1 / spread, at which the wrap-around is bounded
OTHER_TILTS = np.array([0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.5, 8.0, 11.0, 15.0])
# parts of the relative accuracy asked for that each of the errors which more work makes smaller may be
SHARE = 1e-3
# rows of a run whose transforms show which frequencies do not matter; how fast the sampled frequencies grow, and how far apart they may be,
# in units of 1 / spread of one step
LEADERS, GROWTH = 3, 1.2
APART = ((2000, 1.2), (300, 0.6), (0, 0.35))
# frequencies up to which sines are taken one by one
FEW = 256


@dataclass(frozen=True)
class Atoms:
    """The tilted laws of K kinds of steps on losses ``y`` [m]: probabilities ``weight`` [K, m] and ``log_norm`` [K] = ln E[e^{tilt L}].

    ``noise`` [K] bounds the rounding in ``log_norm``, ``counts`` [K] says how often each step is run, ``infinity`` [K] is its P-mass at an
    infinite loss.
    """

    y: Array
    weight: Array
    log_norm: Array
    noise: Array
    counts: Counts
    infinity: Array

    @staticmethod
    def of(y: Array, mass: Array, tilt: float, counts: Counts, infinity: Array) -> Atoms:
        """From P-masses [K, m] at finite losses [m]."""
        mass = np.atleast_2d(mass)
        keep = (mass > 0).any(axis=0)
        y, mass = y[keep], mass[:, keep]
        exponent = tilt * y
        top = float(exponent.max(initial=0.0))
        relative = UNIT * (y.size + 8)
        # ln E[e^{tilt L}] of a small loss is of second order: from E[e^{tilt L} - 1], or many steps would amplify its rounding
        if top < 500.0:
            grown = np.expm1(exponent)
            moved, size = mass @ grown, mass @ np.abs(grown)
            if float(size.max()) < 0.5:
                excess = np.array([_excess(row) for row in mass])
                weight = mass * (1.0 + grown)
                total = weight.sum(axis=1)
                return Atoms(y, weight / total[:, None], np.log1p(moved + excess), 4 * relative * size + 4 * UNIT, counts, infinity)
        with np.errstate(divide="ignore"):
            log_mass = np.log(mass) + exponent
        peak = log_mass.max(axis=1)
        weight = np.exp(log_mass - peak[:, None])
        total = weight.sum(axis=1)
        noise = relative + 4 * UNIT * (1 + np.abs(peak) + abs(top))
        return Atoms(y, weight / total[:, None], peak + np.log(total), noise, counts, infinity)

    @cached_property
    def centre(self) -> float:
        return float((self.weight @ self.y).mean())

    @cached_property
    def away(self) -> Array:
        return self.y - self.centre

    @cached_property
    def size(self) -> Array:
        """[K] the mean distance from the centre."""
        return np.asarray(self.weight @ np.abs(self.away))

    @cached_property
    def means(self) -> Array:
        """[K] the mean tilted loss, less the centre."""
        return np.asarray(self.weight @ self.away)

    @cached_property
    def variances(self) -> Array:
        return np.asarray(np.maximum(self.weight @ self.away**2 - self.means**2, 0.0))

    def cumulants(self, shifts: Array) -> Array:
        """[len(shifts)] the sum over all steps of ln E[e^{(tilt + shift) L}]."""
        with np.errstate(over="ignore", divide="ignore"):
            grown = np.log(np.exp(shifts[:, None] * self.away) @ self.weight.T)
            found = (self.log_norm + shifts[:, None] * self.centre + grown) @ self.counts
        return np.asarray(np.where(np.isnan(found), np.inf, found))

    def logs(self, t: Array, rows: NDArray[np.int64] | None = None) -> tuple[Array, Array, Array]:
        """[J, K] ln |E[e^{it (L - centre)}]|, its argument, and how much rounding the value may hold, one sine after another."""
        weight, size = (self.weight, self.size) if rows is None else (self.weight[rows], self.size[rows])
        parts = []
        for some in np.array_split(t, max(1, -(-t.size * self.y.size // CHUNK))):
            angle = some[:, None] * self.away
            half = np.sin(angle / 2)
            parts.append((-2 * half**2 @ weight.T, np.sin(angle) @ weight.T))
        real, imaginary = (np.concatenate(part) for part in zip(*parts, strict=True))
        with np.errstate(divide="ignore"):
            log = 0.5 * np.log1p(np.maximum(2 * real + real**2 + imaginary**2, -1.0))
        noise = UNIT * (self.y.size + 8) * np.minimum(t[:, None] * size, 2.0)
        return log, np.arctan2(imaginary, 1 + real), noise

    def evenly(self, start: float, spacing: float, count: int, rows: NDArray[np.int64] | None = None) -> tuple[Array, Array, Array]:
        """As ``logs``, at ``count`` frequencies ``spacing`` apart: each wave is a product of two of some 2 sqrt(count)."""
        weight, size = (self.weight, self.size) if rows is None else (self.weight[rows], self.size[rows])
        inner = math.isqrt(count - 1) + 1
        outer = -(-count // inner)
        fine = np.exp(1j * spacing * np.arange(inner)[:, None] * self.away).T.copy()
        coarse = np.exp(1j * (start + spacing * inner * np.arange(outer))[:, None] * self.away)
        value = np.stack([((coarse * row) @ fine).ravel()[:count] for row in weight], axis=1)
        t = start + spacing * np.arange(count)
        with np.errstate(divide="ignore"):
            log = np.log(np.abs(value))
        return log, np.angle(value), UNIT * (2 * (self.y.size + 8) + 4 * t[:, None] * size)


def _excess(mass: Array) -> float:
    """The sum of the masses less one, zero where it differs by no more than rounding."""
    excess = math.fsum(mass.tolist()) - 1.0
    return 0.0 if abs(excess) < 1e-14 else excess


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


def invert(parts: Sequence[Atoms], tilt: float, eps: float, delta: float, error: float, relative: float) -> Inverted | None:
    """The composed law of atoms, to be read near eps; None where it would take too many frequencies.

    Args:
        tilt: c > 0. delta: about its value at eps. error: by how much in eps smoothing may move the answer, about.
        relative: the relative accuracy of delta that is wanted.
    """
    spread = math.sqrt(sum(float(p.counts @ p.variances) for p in parts))
    if not spread > 0:
        return None
    log_norm = sum(float(p.counts @ p.log_norm) for p in parts)
    centre = sum(float(p.counts.sum()) * p.centre for p in parts)
    kernel = Kernel(min(math.sqrt(0.1 * error / (1 + tilt) / VARIANCE), 0.02, 0.3 * spread))
    shift = kernel.shift
    wraps, period = _wraps(parts, tilt, spread, eps - shift, math.log(max(SHARE * relative * delta, 1e-300)), kernel)
    if not math.isfinite(period):
        return None
    spacing = 2 * math.pi / period
    count = math.ceil(kernel.edge / spacing)
    log_scale = log_norm - tilt * centre
    # what all neglected frequencies together may add to the sum
    room = SHARE * relative * math.exp(min(math.log(delta) - log_scale + tilt * (eps - shift - centre), 0.0))
    chosen = _loud(parts, tilt, spread, spacing, count, kernel, room)
    if chosen is None:
        return None
    runs, neglected = chosen
    logs, phases, noises, places = [], [], [], []
    for first, last in runs:
        log, phase, noise = _product(parts, first, last, spacing)
        logs.append(log)
        phases.append(phase)
        noises.append(noise)
        places.append(np.arange(first, last))
    log, phase, noise = (np.concatenate(each) for each in (logs, phases, noises))
    place = np.concatenate(places)
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
    beyond = _beyond(kernel, tilt, max(count * spacing, 1e-300))
    infinity = -math.expm1(sum(float(p.counts @ np.log1p(-p.infinity)) for p in parts))
    return Inverted(
        tilt, centre + shift, log_scale, t, payoff * value, dense * value, errors[0] + neglected[0] + beyond[0],
        errors[1] + neglected[1] + beyond[1], kernel.most_gap(), wraps, infinity, sum(p.y.size for p in parts),
    )  # fmt: skip


def _product(parts: Sequence[Atoms], first: int, last: int, spacing: float) -> tuple[Array, Array, Array]:
    """ln |product|, its argument and ln of by what factor rounding may have changed it, at frequencies from ``first`` up to ``last``."""
    log, phase, noise = np.zeros((3, last - first))
    t = np.arange(first, last) * spacing
    for p in parts:
        each = p.logs(t) if last - first <= FEW else p.evenly(first * spacing, spacing, last - first)
        log += each[0] @ p.counts
        phase += each[1] @ p.counts
        with np.errstate(over="ignore", divide="ignore"):
            noise += np.log1p(each[2] * np.exp(-np.maximum(each[0], -700.0))) @ p.counts
    return np.maximum(log, -1e5), phase, noise


def _wraps(
    parts: Sequence[Atoms], tilt: float, spread: float, eps: float, log_room: float, kernel: Kernel
) -> tuple[Array, float]:
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
    from wpriv.core.smoothing import BETA

    most = 2 * BETA * math.exp(-BETA) * math.exp(min(tilt * kernel.width * 2, 700.0))
    return most / (math.pi * edge), most**2 * edge / math.pi


def _loud(
    parts: Sequence[Atoms], tilt: float, spread: float, spacing: float, count: int, kernel: Kernel, room: float
) -> tuple[list[tuple[int, int]], tuple[float, float]] | None:
    """The runs of frequencies that must be known, and bounds of the two sums over the others; None where there are too many.

    ``room`` is what the others may add to the first sum.
    """
    atoms = sum(p.weight.size for p in parts)
    if count * atoms <= MAX_WORK / 20:
        return [(0, count)], (0.0, 0.0)
    rows = sorted(((float(p.counts[k] * p.variances[k]), i, k) for i, p in enumerate(parts) for k in range(p.counts.size)), reverse=True)
    leaders = rows[:LEADERS]
    apart = next(apart for least, apart in APART if min(int(parts[i].counts[k]) for _, i, k in leaders) >= least)
    step = apart / math.sqrt(max(parts[i].variances[k] for _, i, k in leaders))
    edge = count * spacing
    slow = [min(4 / spread, edge)]
    while slow[-1] < edge and slow[-1] * (GROWTH - 1) < step:
        slow.append(min(slow[-1] * GROWTH, edge))
    even = math.ceil((edge - slow[-1]) / step)
    if even * len(leaders) * max(parts[i].y.size for _, i, _ in leaders) > MAX_WORK / 4:
        return None
    t = np.concatenate([slow, slow[-1] + (edge - slow[-1]) * np.arange(1, even + 1) / max(even, 1)])
    bound = np.zeros(t.size - 1)
    for _, i, k in leaders:
        p, row = parts[i], np.array([k])
        some = p.logs(np.array(slow), row)
        log, noise = some[0][:, 0], some[2][:, 0]
        if even:
            wide = (edge - slow[-1]) / even
            more = p.evenly(slow[-1] + wide, wide, even, row)
            log, noise = np.concatenate([log, more[0][:, 0]]), np.concatenate([noise, more[2][:, 0]])
        energy = (np.exp(log) + noise) ** 2
        between = np.maximum(energy[:-1], energy[1:]) + float(p.variances[k]) * np.diff(t) ** 2 / 4
        bound += 0.5 * int(p.counts[k]) * np.log(np.minimum(between, 1.0))
    s = tilt + 1j * t[:-1]
    # the transform of a kernel on [-w, w] changes by a factor of at most e^{...} within an interval: its modulus is bounded by that at zero
    smooth = np.minimum(np.abs(kernel.transform(s)) * 1.0, 1.0)
    numbers = np.diff(t) / spacing + 1
    most = float(kernel.transform(np.array([tilt + 0j]))[0].real)
    first = numbers * (spacing / math.pi) * most * np.exp(bound) / np.abs(s * (s + 1))
    second = numbers * (spacing / math.pi) * most**2 * np.exp(bound)
    order = np.argsort(first)
    quiet = np.zeros(first.size, dtype=bool)
    quiet[order[np.cumsum(first[order]) <= room]] = True
    runs = [(0, math.ceil(t[0] / spacing))]
    for i in np.flatnonzero(~quiet):
        low, high = math.floor(t[i] / spacing), math.ceil(t[i + 1] / spacing)
        if low <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(high, runs[-1][1]))
        else:
            runs.append((low, high))
    if sum(last - first for first, last in runs) * atoms > MAX_WORK:
        return None
    return runs, (float(first[quiet].sum()), float(second[quiet].sum()))
