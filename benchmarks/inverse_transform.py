"""delta of many steps by inverse Laplace transforms. No code of wpriv.

With M(s) = E e^{sL} of the loss L of a step under P, delta of n steps at eps is 1/(2 pi i) times the integral of
M(s)^n e^{-s eps} / (s (s + 1)) along a path from below to above that passes to the right of 0. The path starts at the
saddle point and bends to the side on which the integrand decays; it is a hyperbola, taken by the trapezoidal rule in
the parameter t of cosh and sinh. E e^{sL} is a quadrature whose nodes are shifted into the complex plane, so that
e^{sL} does not oscillate. Nodes, weights and the mean loss have 192 bits (python-flint); beyond the mean, double
precision mostly suffices for M(s) - 1 - s E L; where it does not, the path is taken with 256 bits. Each value is
computed twice, with other nodes, shifts and paths, and both must agree to 1e-9.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from flint import acb, arb, ctx
from numpy.typing import NDArray

Nodes = Sequence[tuple[arb | acb, arb | acb]]
Array = NDArray[np.complex128]
BITS, AGREEMENT, CHUNK, MOST_POINTS = 192, 1e-9, 10, 3000
# of the nodes as well as of the sums over them
ctx.prec = BITS


class NoTruthError(ArithmeticError):
    """The transform does not decay, or two paths disagree."""


@dataclass(frozen=True)
class Path:
    """Choices that change no exact integral.

    ``line`` multiplies the saddle point, ``bend`` is the angle in radians by which the hyperbola leaves the vertical,
    ``step`` that of the trapezoidal rule, ``turn`` the angle by which the nodes are shifted and ``fine`` their spacing.
    """

    line: float
    bend: float
    step: float
    turn: float
    fine: float


REAL = Path(1.0, 0.0, 0.0, 0.0, 1.0)
# far bends suit few steps with heavy tails, slight ones what is nearly Gaussian
PAIRS = [(Path(1.0, bend, 0.04, 1.5, 1.0), Path(0.9, 0.85 * bend, 0.03, 1.2, 0.8)) for bend in (0.35, 0.12, 0.0)]
FINE = (Path(1.0, 0.45, 0.03, 1.5, 0.5), Path(1.0, 0.5, 0.025, 1.3, 0.45))
# the order is that of the terms left out of M(s)^n
ATTEMPTS = {
    1: [(PAIRS[0], 0), (PAIRS[0], 2), (PAIRS[1], 0), (PAIRS[2], 0), (PAIRS[0], 1)],
    0: [(PAIRS[2], 0)],
    -1: [(PAIRS[0], 0), (PAIRS[1], 0), (PAIRS[2], 0), (PAIRS[0], 1)],
}


@dataclass(frozen=True)
class Step:
    """The loss of one step.

    ``nodes`` are those of a quadrature of its density, turned to a path; ``side`` is 1 where the path bends to the
    right, -1 to the left, 0 for a vertical line; ``single`` is delta of this step alone; ``spread`` the probability
    that the loss is none of its atoms; ``largest`` bounds the loss.
    """

    nodes: Callable[[Path], Nodes]
    side: int
    single: Callable[[arb], arb]
    spread: float = math.inf
    largest: float = math.inf

    def delta(self, n: int, eps: float) -> float:
        """Delta of n steps at eps.

        Raises:
            NoTruthError: two paths do not agree, or too many points would be needed.
        """
        if n == 1:
            return float(self.single(arb(eps)))
        if eps >= n * self.largest:
            return 0.0
        if n * self.spread < 240:
            raise NoTruthError("nearly all sums lie on a lattice, where the transform rises again")
        for pair, order in ATTEMPTS[self.side]:
            with contextlib.suppress(NoTruthError):
                return _agreed(_along, self, n, eps, pair, order)
        return _agreed(_along_exactly, self, n, eps, FINE, 1 + (self.side > 0))

    def bound(self, n: int, eps: float) -> float:
        """Chernoff's bound of delta."""
        c = np.geomspace(1e-2, 1e14, 600)
        with np.errstate(all="ignore"):
            values = n * _log1p(_transform(self, REAL)(c.astype(complex))).real - c * eps
        return math.exp(min(float(np.min(values[np.isfinite(values)])), 0.0))

    def mean_and_deviation(self) -> tuple[float, float]:
        """Of the loss."""
        return moments(self.nodes(REAL))


def moments(nodes: Nodes) -> tuple[float, float]:
    """Mean and deviation of a loss."""
    mean = sum((acb(w) * y for w, y in nodes), acb(0)).real
    second = sum((acb(w) * y * y for w, y in nodes), acb(0)).real
    return float(mean), math.sqrt(abs(float(second - mean * mean)))


class _Transform:
    """M(s) - 1 for arrays of s."""

    def __init__(self, nodes: Nodes) -> None:
        self.mean, self.deviation = moments(nodes)
        self.weights = np.array([complex(acb(w)) for w, _ in nodes])
        self.losses = np.array([complex(acb(y)) for _, y in nodes])
        self.size = float(np.abs(self.weights) @ np.abs(self.losses))
        with np.errstate(divide="ignore"):
            self.logs = np.log(self.weights)

    def __call__(self, s: Array) -> Array:
        z = s[:, None] * self.losses
        near = np.abs(z) < 0.5
        small, series = np.where(near, z, 0), np.zeros_like(z)
        for k in range(18, 1, -1):
            series = series * small + 1 / math.factorial(k)
        series *= small * small * self.weights
        direct = np.exp(z + self.logs)
        # M(s) - 1 - s E L has terms of one size where s L is small
        rest = np.where(near, series, direct - (1 + z) * self.weights).sum(axis=1)
        w: Array = np.where(np.abs(s) * self.size > 1, direct.sum(axis=1) - 1, s * self.mean + rest)
        return w


def _log1p(w: Array) -> Array:
    # numpy's log1p of complex numbers rounds 1 + w
    logs: Array = np.log1p(w.real * (2 + w.real) + w.imag**2) / 2 + 1j * np.arctan2(w.imag, 1 + w.real)
    return logs


def _power(w: Array, n: int, order: int) -> Array:
    """(1 + w)^n without its first terms, those of powers of w below ``order`` (1 or 2)."""
    series, term = np.zeros_like(w), np.ones_like(w)
    for k in range(1, 16):
        term = term * (w * (n - k + 1) / k)
        series += term if k >= order else 0
    direct = np.expm1(n * _log1p(w)) - (n * w if order == 2 else 0)
    log_sum: Array = np.where(np.abs(n * w) < 0.05, series, direct)
    return log_sum


@functools.lru_cache(maxsize=8)
def _transform(step: Step, path: Path) -> _Transform:
    return _Transform(step.nodes(path))


def _saddle(step: Step, n: int, eps: float, order: int) -> tuple[float, float]:
    """The minimiser of the integrand on the real axis, to a few digits, and the width of the saddle there."""
    if order == 2 or (order and step.side < 0):
        # no pole is left, or none that matters: the integrand has no such point
        return 1.0, 1.0
    transform = _transform(step, REAL)

    def height(c: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            w = transform(c.astype(complex))
            logs = np.log(_power(w, n, order).real) if order else n * _log1p(w).real
            values = logs - c * eps - np.log(c) - np.log1p(c)
        return np.where(np.isfinite(values), values, 1e300)

    scale = 1 / (math.sqrt(n) * transform.deviation)
    grid = np.geomspace(min(1e-4 * scale, 1e-2), 1e8 * scale, 160)
    for _ in range(4):
        best = int(np.argmin(height(grid)))
        grid = np.geomspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], 9)
    c, near = float(grid[4]), 0.05
    low, middle, high = height(c * np.array([1 - near, 1.0, 1 + near]))
    if not low - 2 * middle + high > 0:
        raise NoTruthError("no saddle point")
    return c, near * c / math.sqrt(low - 2 * middle + high)


def _agreed(along: Callable[..., float], step: Step, n: int, eps: float, pair: tuple[Path, Path], order: int) -> float:
    """Along both paths from the saddle point.

    For tiny losses and one large one, M(s)^n is nearly 1 + n (M(s) - 1). With order 1 and 2, the first or both terms
    are left out: their integrals are 0 and n times delta of one step.
    """
    line, width = _saddle(step, n, eps, order)
    first, second = (along(step, n, eps, path, line * path.line, width, order) for path in pair)
    if not abs(first - second) <= AGREEMENT * abs(first):
        raise NoTruthError(f"two paths give {first} and {second}")
    return first


def _along(step: Step, n: int, eps: float, path: Path, line: float, width: float, order: int) -> float:
    transform = _transform(step, path)
    bend = path.bend if step.side else 0.0
    right, up = width * step.side * math.sin(bend), width * math.cos(bend)
    total, few = 0.0, 0
    for start in range(0, MOST_POINTS, CHUNK):
        t = path.step * np.arange(start, start + CHUNK)
        s = line + right * (np.cosh(t) - 1) + 1j * up * np.sinh(t)
        slope = right * np.sinh(t) + 1j * up * np.cosh(t)
        with np.errstate(all="ignore"):
            w = transform(s)
            if order and step.side > 0:
                powers = _power(w, n, order) * np.exp(-s * eps)
            else:
                logs = n * _log1p(w) - s * eps
                logs = np.where(logs.real < -700, -700, logs)
                # on a path to the left, e^{-s eps} alone would grow
                powers = np.expm1(logs) if order else np.exp(logs)
            terms = powers / s / (s + 1) * slope
        if not np.all(np.isfinite(terms)):
            break
        total += math.fsum(terms.imag) - (float(terms.imag[0]) / 2 if start == 0 else 0.0)
        few = few + 1 if float(np.max(np.abs(terms))) < 1e-14 * abs(total) else 0
        if few == 3:
            single = n * float(step.single(arb(eps))) if order == 2 else 0.0
            return single + total * path.step / math.pi
    raise NoTruthError("the transform does not decay")


def _along_exactly(step: Step, n: int, eps: float, path: Path, line: float, width: float, order: int) -> float:
    """The same with all numbers of 256 bits, where much more than the digits of doubles cancels."""
    right, up = width * step.side * math.sin(path.bend), width * math.cos(path.bend)
    total, few, rest = arb(0), 0, arb(eps)
    before, ctx.prec = ctx.prec, 256
    try:
        nodes = [(acb(w), acb(y)) for w, y in step.nodes(path)]
        for k in range(MOST_POINTS):
            t = k * arb(path.step)
            s, slope = acb(line + right * (t.cosh() - 1), up * t.sinh()), acb(right * t.sinh(), up * t.cosh())
            w = sum((p * (s * y).expm1() for p, y in nodes), acb(0))
            if step.side > 0:
                power = ((1 + w) ** n - 1 - (n * w if order == 2 else 0)) * (-s * rest).exp()
            else:
                power = (1 + w) ** n * (-s * rest).exp() - 1
            term = (power / s / (s + 1) * slope).imag
            total += term / 2 if k == 0 else term
            if not term.is_finite():
                break
            few = few + 1 if float(abs(term)) < 1e-14 * float(abs(total)) else 0
            if few == 30:
                single = n * step.single(rest) if order == 2 else arb(0)
                return float(single + total * arb(path.step) / arb.pi())
    finally:
        ctx.prec = before
    raise NoTruthError("the transform does not decay")
