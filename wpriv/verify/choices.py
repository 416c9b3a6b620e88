"""Tilts, steps and grids of a proof, chosen in floats: none of them can make a proof wrong, only wide or slow."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

POINTS = 160


class Line(NamedTuple):
    """The line Re s = c of an inversion with its period, a second tilt, and logarithms of sizes."""

    c: float
    other: float
    period: float
    log_delta: float
    log_scale: float


def sketch(kind: Any, c: float) -> tuple[float, float, float]:
    """ln M(c) of one step, with mean and variance of its loss tilted by c."""
    mu, q = float(kind.base.mu), float(kind.q)
    if kind.plain_gauss:
        return mu * mu * c * (c + 1) / 2, mu * mu * (c + 0.5), mu * mu
    rows = [(float(loss), math.log(max(float(mass), 1e-300))) for loss, mass in kind.atoms]
    for sign in kind.continuous_signs:
        slope, shift = (float(value) for value in kind.base.line)
        gauss = kind.base.name == "gauss"
        low, high = (-9.0, 10.0 + (c + 1) * mu) if gauss else (0.0, 1.0)
        low = low if kind.start is None else -shift / slope
        cell = math.log((high - low) / POINTS)
        for i in range(POINTS):
            x = low + (i + 0.5) * (high - low) / POINTS
            u = slope * x + shift
            log = u + math.log(q) if u > 600 else math.log1p(q * math.expm1(u)) if q < 1 else u
            mass = -x * x / 2 - math.log(2 * math.pi) / 2 if gauss else math.log(mu / 2) - mu * x
            rows.append((sign * log, mass + cell + (log if sign > 0 else 0)))
    peak = max(c * loss + mass for loss, mass in rows)
    weights = [math.exp(c * loss + mass - peak) for loss, mass in rows]
    total = math.fsum(weights)
    mean = math.fsum(w * loss for w, (loss, _) in zip(weights, rows, strict=True)) / total
    square = math.fsum(w * (loss - mean) ** 2 for w, (loss, _) in zip(weights, rows, strict=True)) / total
    return math.log(total) + peak, mean, square


def exponent(kinds: tuple[Any, ...], x: float, c: float) -> tuple[float, float, float]:
    """ln E e^(c (L - x)) of a composition, the slope of ln of the integrand at c, and the variance."""
    values = [[kind.n * value for value in sketch(kind, c)] for kind in kinds]
    log, mean, square = (math.fsum(column) for column in zip(*values, strict=True))
    return log - c * x, mean - x - 1 / c - 1 / (c + 1), square


def line(kinds: tuple[Any, ...], x: float) -> Line:
    """A line near the saddle point, with the least period at which the aliases are small."""
    low, high = 1e-4, 1e-3
    while exponent(kinds, x, high)[1] < 0 and high < 1e8:
        low, high = high, 2 * high
    for _ in range(16):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if exponent(kinds, x, middle)[1] < 0 else (low, middle)
    log, _, square = exponent(kinds, x, high)
    delta = min(log - math.log(high * (high + 1)) - math.log(2 * math.pi * square + 1e-300) / 2, 0.0)
    logs = {f: exponent(kinds, x, f * high)[0] for f in (0.5, 0.7, 0.85, 1.0, 1.03, 1.1, 1.2, 1.4, 1.8, 2.5, 4.0)}
    lines = []
    for f in (0.5, 0.7, 0.85, 1.0):
        for g in (g for g in logs if g > max(f, 0.99)):
            period = max((25 - delta) / (f * high), (logs[g] - delta + 25) / ((g - f) * high))
            lines.append(Line(f * high, g * high, period, delta, logs[f]))
    return min(lines, key=lambda choice: choice.period * (1 + 0.3 * (1 - choice.c / high)))


def interval(kind: Any, room: float) -> tuple[float, float]:
    """An interval of the losses of one step outside of which is a mass of about e^-room."""
    losses = [float(loss) for loss, mass in kind.atoms if not float(mass) < math.exp(-room)]
    for sign in kind.continuous_signs:
        slope, shift = (float(value) for value in kind.base.line)
        ends = (-math.sqrt(2 * room), math.sqrt(2 * room) + slope) if kind.base.name == "gauss" else (0.0, 1.0)
        ends = ends if kind.start is None else (-shift / slope, ends[1])
        losses += [sign * math.log1p(float(kind.q) * math.expm1(slope * x + shift)) for x in ends]
    return min(losses), max(losses)


def best_offset(rows: list[tuple[float, float]], step: float) -> int:
    """Of losses with masses, that at which a lattice of this step may start so that rounding down to it costs least."""
    heavy = sorted(range(len(rows)), key=lambda i: -rows[i][1])[:40]

    def cost(start: float) -> float:
        return math.fsum(mass * (((loss - start) / step + 1e-9) % 1.0) for loss, mass in rows)

    return min(heavy, key=lambda i: cost(rows[i][0]))


def spacing(kinds: tuple[Any, ...], ends: list[tuple[float, float]], cells: int) -> float:
    """A spacing with a tenth of the cells for one step, or all of them for the composition, whichever is coarser."""
    one = max(high - low for low, high in ends)
    width = math.fsum(kind.n * (high - low) for kind, (low, high) in zip(kinds, ends, strict=True))
    deviation = math.sqrt(math.fsum(kind.n * sketch(kind, 0.0)[2] for kind in kinds))
    return max(10 * one, min(width, 20 * deviation + one)) / cells
