"""Strategies of correlated noise: their coefficients by name, for a number of steps and of participations.

A strategy is a lower-triangular Toeplitz matrix C with a first column c of length 1. A training releases C x + Z, so
that the noise of its steps is C^-1 Z: step t adds the sum over j of q_j Z_{t-j}, q the coefficients of 1 / c(x) as a
power series. The noise of the sum of the first steps is then B Z with the coefficients b_j = q_0 + ... + q_j.

The *loss* of a strategy is the error of these prefix sums at sensitivity 1: the sensitivity of C times the standard
deviation of the noise, either the largest of all steps (max) or its root mean square (mean). docs/theory/bands.md has
the sensitivity, docs/guides/correlated-noise.md what the losses mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from wpriv.errors import UsageError
from wpriv.hints import did_you_mean
from wpriv.numerics.arrays import Array
from wpriv.numerics.numbers import number, whole
from wpriv.numerics.strategy_sensitivity import strategy_sensitivity

MAX_STEPS = 8192
# most buffers of a BLT: more change the loss by less than its digits
MAX_BUFFERS = 10


class Kind(NamedTuple):
    """A family of strategies: the name of its one parameter, the default, and whether it is optimised for a loss."""

    parameter: str | None = None
    default: float = 0.0
    optimised: bool = False


KINDS = {
    "identity": Kind(),
    "prefix": Kind(),
    "root": Kind("bands", 0),
    "bsr": Kind("bands", 4),
    "banded": Kind("bands", 4, optimised=True),
    "blt": Kind("buffers", 4, optimised=True),
    "bisr": Kind("bands", 4),
    "bandinv": Kind("bands", 4, optimised=True),
    "lambda": Kind("value", 0.9),
}
LOSSES = ("mean", "max")


@dataclass(frozen=True)
class Strategy:
    """A Toeplitz strategy of so many steps.

    Attributes:
        text: its name.
        column: [n] coefficients of C, none negative; of length 1 but for ``prefix`` and ``root``.
        inverse: [n] coefficients of C^-1.
        buffers: of a BLT, pairs of a weight w and a decay d: C^-1 has the coefficients q_0 = 1 / c_0 and, for j > 0,
            -q_0 times the sum of w d^(j - 1).
    """

    text: str
    column: Array
    inverse: Array
    buffers: tuple[tuple[float, float], ...] = ()

    @property
    def bands(self) -> int:
        """Number of coefficients of C up to the last that is not 0."""
        return int(np.flatnonzero(self.column)[-1]) + 1

    @property
    def inverse_bands(self) -> int:
        """Number of coefficients of C^-1 up to the last that is not 0: Z of so many steps make the noise of one."""
        return int(np.flatnonzero(self.inverse)[-1]) + 1

    def matrix(self) -> Array:
        """[n, n] the matrix C."""
        return _lower(self.column)

    def sensitivity(self, separation: int = 1, participations: int = 0) -> float:
        """The largest norm of what a record adds; see ``sensitivity``."""
        return sensitivity(self.column, separation, participations)

    def errors(self) -> Array:
        """[n] the standard deviation of the noise of each prefix sum, for noise Z of standard deviation 1."""
        return np.asarray(np.sqrt(np.cumsum(np.cumsum(self.inverse) ** 2)))

    def loss(self, separation: int = 1, participations: int = 0, kind: str = "mean") -> float:
        """The error of prefix sums at sensitivity 1: the root mean square over the steps, or the largest."""
        errors = self.errors()
        error = float(errors[-1]) if kind == "max" else float(np.sqrt(np.mean(errors**2)))
        return self.sensitivity(separation, participations) * error


def strategy(text: str, steps: int = 0, separation: int = 1, participations: int = 0) -> Strategy:
    """The strategy of a name, such as ``banded:4``, for a number of steps and the participations of a record.

    ``identity``; ``prefix``, all ones; ``root``, the square root of prefix, or its first bands; ``bsr:4``, the same
    bands scaled to length 1; ``banded:4``, the bands with the least loss; ``blt:4``, the best sum of so many decaying
    exponentials; ``bisr:4``, the inverse of so many bands of the inverse root; ``bandinv:4``, that of the best bands;
    ``lambda:0.9``, powers of a number, whose noise subtracts that multiple of the Z before. Options follow, divided by
    commas: ``n=1000`` for the steps, ``loss=max`` for strategies that shall have the least largest error.

    Args:
        text: name and options; more bands than steps are as many as steps.
        steps: number of steps n, at most 8192; 0 where the text has it.
        separation: the smallest distance of two steps in which a record takes part.
        participations: the largest number of such steps; 0 for no limit but the separation.
    Raises:
        UsageError: unknown names or options, values out of range, or two numbers of steps.
    Source:
        Kalinin, Lampert 2024 (bsr); McKenna 2024 (banded); Dvijotham et al. 2024, McMahan, Xu, Zhang 2024 (blt);
        Kalinin, McKenna, Upadhyay, Lampert 2025 (bisr, bandinv).

    >>> lowest = strategy("lambda:0.5", steps=4)
    >>> (lowest.inverse / lowest.inverse[0]).tolist()
    [1.0, -0.5, 0.0, 0.0]
    """
    kind, value, given, loss = _parsed(text)
    if steps and given and steps != given:
        raise UsageError(f"{text}: the strategy has n = {given} steps, and the training {steps}; leave out n={given}")
    size = steps or given
    if not 1 <= size <= MAX_STEPS:
        raise UsageError(f"{text}: wanted n from 1 to {MAX_STEPS}, the number of steps; found {size}")
    if KINDS[kind].parameter in ("bands", "buffers"):
        most = MAX_BUFFERS if kind == "blt" else size if kind == "root" else MAX_STEPS
        if not (value == int(value) and (0 if kind == "root" else 1) <= value <= most):
            raise UsageError(f"{text}: wanted {KINDS[kind].parameter} from 1 to {most}; found {value:g}")
        value = min(value, size)
    elif kind == "lambda" and not 0 <= value < 1:
        raise UsageError(f"{text}: lambda is a number from 0 to below 1; found {value:g}")
    if not KINDS[kind].optimised:
        separation = participations = 1
    most = -(-size // separation)
    return _strategy(text, kind, value, size, separation, min(participations or most, most), loss)


def steps_of(text: str) -> int:
    """The number of steps that a text has; 0 for none."""
    return _parsed(text)[2]


def _parsed(text: str) -> tuple[str, float, int, str]:
    """Name, parameter, steps and loss of a text."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        near = did_you_mean(kind, list(KINDS)) or "."
        raise UsageError(f"no strategy called {kind[:60]!r}{near} Known: {', '.join(KINDS)}; or give a .npy file")
    parameter, value, optimised = KINDS[kind]
    known = ["n", *([parameter] if parameter else []), *(["loss"] if optimised else [])]
    size, loss, seen = 0, LOSSES[0], set()
    for place, part in enumerate(rest.split(",") if rest else []):
        key, equals, written = part.partition("=")
        if not equals and place == 0 and parameter:
            key, written = parameter, part
        elif not equals or key not in known:
            near = did_you_mean(key, known) or "."
            raise UsageError(f"{kind} has no option {key[:60]!r}{near} Its options: {', '.join(known)}")
        if key in seen:
            raise UsageError(f"{text}: {key} is given twice")
        seen.add(key)
        if key == "loss":
            if written not in LOSSES:
                raise UsageError(f"{text}: loss is {' or '.join(LOSSES)}; found {written[:60]!r}")
            loss = written
        elif key == "n":
            size = whole(number(written, f"{kind}: n"), f"{kind}: n")
            if size < 1:
                raise UsageError(f"{text}: wanted n from 1 to {MAX_STEPS}, the number of steps")
        else:
            value = number(written, f"{kind}: {key}")
    return kind, value, size, loss


@lru_cache(maxsize=64)
def _strategy(
    text: str, kind: str, value: float, size: int, separation: int, participations: int, loss: str
) -> Strategy:
    """A strategy whose arguments are valid."""
    width, places = int(value), np.arange(size)
    root = np.cumprod(np.append(1.0, 1 - 0.5 / places[1:]))
    problem = Problem(size, separation, participations, loss)
    if kind in ("identity", "prefix"):
        return _of_column(text, (places == 0).astype(float) if kind == "identity" else np.ones(size))
    if kind == "root":
        return _of_column(text, np.where(places < (width or size), root, 0.0))
    if kind == "bsr":
        return _of_column(text, _unit(np.where(places < width, root, 0.0)))
    if kind == "banded":
        return _of_column(text, _unit(optimal_bands(problem, width)))
    if kind == "blt":
        gaps = optimal_gaps(problem, width)
        weights, inverse_weights = _weights(gaps)
        column = _geometric(weights, gaps[::2], size)
        scale = float(np.linalg.norm(column))
        inverse = _geometric(-inverse_weights, gaps[1::2], size) * scale
        buffers = tuple(zip(inverse_weights.tolist(), (1 - gaps[1::2]).tolist(), strict=True))
        return Strategy(text, column / scale, inverse, buffers)
    if kind == "lambda":
        inverse = np.append(np.array([1.0, -value])[:size], np.zeros(max(size - 2, 0)))
        return _of_inverse(text, inverse)
    if kind == "bisr":
        start = np.cumprod(np.append(1.0, 1 - 1.5 / places[1:]))
        return _of_inverse(text, np.where(places < width, start, 0.0))
    return _of_inverse(text, optimal_inverse(problem, width))


def _lower(column: Array) -> Array:
    """[n, n] the lower-triangular Toeplitz matrix of a first column."""
    places = np.subtract.outer(np.arange(column.size), np.arange(column.size))
    return np.asarray(np.where(places >= 0, column[np.maximum(places, 0)], 0.0))


def _unit(column: Array) -> Array:
    return np.asarray(column / np.linalg.norm(column))


def _of_column(text: str, column: Array) -> Strategy:
    return Strategy(text, column, reciprocal(column))


def _of_inverse(text: str, inverse: Array) -> Strategy:
    column = reciprocal(inverse)
    scale = float(np.linalg.norm(column))
    return Strategy(text, column / scale, inverse * scale)


def reciprocal(series: Array) -> Array:
    """[n] the coefficients of 1 / series(x), by the recurrence, for a series that does not begin with 0."""
    size = series.size
    terms = -series[1 : int(np.flatnonzero(series)[-1]) + 1] / series[0]
    width = terms.size
    result = np.zeros(size + width)
    result[width] = 1 / series[0]
    backwards = terms[::-1]
    for place in range(width + 1, width + size):
        result[place] = backwards @ result[place - width : place]
    return result[width:]


def sensitivity(column: Array, separation: int = 1, participations: int = 0) -> float:
    """The largest |C x| over the contributions x of one record, of norm 1 each.

    The worst pattern is 0, b, 2 b, ... where no coefficient is negative and those from c_b on fall, for then the
    product of two columns falls with their distance, from b on, and with the later column; and where there are at most
    b bands. Else it is an upper end by a dynamic programme.

    Source:
        Kalinin, Lampert 2024, Theorem 2; docs/theory/bands.md, Theorems 3 and 4.
    """
    late = column[separation:]
    if late.any() and (column.min() < 0 or np.any(np.diff(late) > 0)):
        return strategy_sensitivity(_lower(column), separation, participations).upper
    return float(np.linalg.norm(_of_pattern(column, separation, participations)))


def _of_pattern(column: Array, separation: int, participations: int) -> Array:
    """[n] the sum of the columns 0, b, 2 b, ... of C, at most so many."""
    most = -(-column.size // separation)
    total = np.zeros(column.size)
    for start in range(0, separation * min(participations or most, most), separation):
        total[start:] += column[: column.size - start]
    return total


# Optimal strategies. The logarithm of the squared loss is a function of c up to its scale, and all families have the
# same gradient with respect to c(x) (1 + e x^m): twice the difference of two autocorrelations at distance m.


class Problem(NamedTuple):
    """What a strategy is optimised for: steps, separation and participations of a record, and the loss."""

    size: int
    separation: int
    participations: int
    loss: str

    def value(self, column: Array, inverse: Array) -> tuple[float, Array]:
        """The logarithm of the squared loss, and [n] its derivatives by e in c(x) (1 + e x^m), m = 0 .. n - 1."""
        moved = _of_pattern(column, self.separation, self.participations)
        errors = np.cumsum(inverse)
        weighted = errors * (np.arange(self.size, 0, -1) / self.size if self.loss == "mean" else 1.0)
        own, other = _products(moved, moved), _products(weighted, errors)
        value = math.log(own[0]) + math.log(other[0])
        return value, 2 * (own / own[0] - other / other[0])


def _products(a: Array, b: Array) -> Array:
    """[n] the sums of a_{j + m} b_j over j, for m = 0 .. n - 1."""
    length = 1 << (2 * a.size - 1).bit_length()
    return np.asarray(np.fft.irfft(np.fft.rfft(a, length) * np.conj(np.fft.rfft(b, length)), length)[: a.size])


def _reciprocal(series: Array) -> Array:
    """[n] the coefficients of 1 / series(x), by Newton's iteration and fast transforms."""
    result, size = np.array([1 / series[0]]), 1
    while size < series.size:
        size = min(2 * size, series.size)
        length = 1 << (3 * size - 1).bit_length()
        known = np.fft.rfft(result, length)
        result = np.fft.irfft(known * (2 - np.fft.rfft(series[:size], length) * known), length)[:size]
    return np.asarray(result)


def _minimised(
    function: Callable[[Array], tuple[float, Array]], start: Array, bounds: Sequence[tuple[float, float | None]]
) -> Array:
    """The point that a quasi-Newton search reaches."""
    from scipy.optimize import minimize  # slow to load, and few strategies are optimised

    options = {"maxiter": 1000, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-9}
    return np.asarray(minimize(function, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)


def optimal_bands(problem: Problem, bands: int) -> Array:
    """[n] falling coefficients, none negative, of so many bands with the least loss.

    The unknowns are the differences of neighbouring coefficients, so that the sensitivity is that of the one pattern.
    """
    root = np.cumprod(np.append(1.0, 1 - 0.5 / np.arange(1, bands)))

    def column_of(steps: Array) -> Array:
        return np.append(np.cumsum(steps[::-1])[::-1], np.zeros(problem.size - bands))

    def loss(steps: Array) -> tuple[float, Array]:
        column = column_of(steps)
        inverse = _reciprocal(column)
        value, relative = problem.value(column, inverse)
        # a change of c_i is one of c(x) by the factor 1 + e x^i / c(x)
        return value, np.cumsum(_products(relative, inverse)[:bands])

    return column_of(_minimised(loss, -np.diff(np.append(root, 0.0)), [(0.0, None)] * (bands - 1) + [(1e-9, None)]))


def optimal_inverse(problem: Problem, bands: int) -> Array:
    """[n] coefficients of C^-1, the first 1 and no other positive, of so many bands with the least loss.

    The unknowns are the logarithms of the ratios of neighbouring sums of coefficients, which are errors and fall.
    """

    def inverse_of(logs: Array) -> tuple[Array, Array]:
        sums = np.exp(np.cumsum(logs))
        inverse = np.zeros(problem.size)
        inverse[0], inverse[1:bands] = 1.0, np.diff(np.append(1.0, sums))
        return inverse, sums

    def loss(logs: Array) -> tuple[float, Array]:
        inverse, sums = inverse_of(logs)
        column = _reciprocal(inverse)
        value, relative = problem.value(column, inverse)
        by_coefficient = -_products(relative, column)[1:bands]
        by_sum = by_coefficient - np.append(by_coefficient[1:], 0.0)
        return value, np.cumsum((sums * by_sum)[::-1])[::-1]

    # the sums of the inverse root are the root
    logs = np.log1p(-0.5 / np.arange(1, bands))
    return inverse_of(_minimised(loss, logs, [(-20.0, 0.0)] * (bands - 1)) if bands > 1 else logs)[0]


def optimal_gaps(problem: Problem, buffers: int) -> Array:
    """[2 d] the gaps 1 - decay of C and of C^-1, in turn from the smallest, of a BLT with the least loss.

    c(x) is the product of (1 - d'_i x) / (1 - d_i x) with 1 > d_1 > d'_1 > d_2 > ... > 0, so that all weights are
    positive and c falls. The unknowns are the logarithms of the ratios of neighbouring gaps.
    """
    places, signs = np.arange(problem.size - 1), np.tile([1.0, -1.0], buffers)

    def gaps_of(logs: Array) -> Array:
        return np.asarray(np.exp(np.cumsum(logs[::-1])[::-1]))

    def loss(logs: Array) -> tuple[float, Array]:
        gaps = gaps_of(logs)
        weights, inverse_weights = _weights(gaps)
        column = _geometric(weights, gaps[::2], problem.size)
        value, relative = problem.value(column, _geometric(-inverse_weights, gaps[1::2], problem.size))
        by_decay = signs[: gaps.size] * (np.exp(np.outer(np.log1p(-gaps), places)) @ relative[1:])
        return value, np.cumsum(-gaps * by_decay)

    # gaps from that of the longest memory to one step, evenly in their logarithms
    best = np.geomspace(1 / max(problem.size / problem.participations, 2.0), 0.9, 2)
    for count in range(1, buffers + 1):
        wide = np.geomspace(1 / problem.size, 0.9, 2 * count)
        starts = [wide, best] if count == 1 else [wide, _with_pair(best)]
        reached = []
        for start in starts:
            logs = _minimised(loss, np.log(start / np.append(start[1:], 1.0)), [(-12.0, -1e-6)] * (2 * count))
            reached.append((loss(logs)[0], logs))
        best = gaps_of(min(reached, key=lambda pair: pair[0])[1])
    return best


def _with_pair(gaps: Array) -> Array:
    """Gaps with one more buffer, whose pair of gaps divides the widest interval."""
    place = int(np.argmax(np.diff(np.log(gaps)))) + 1
    return np.insert(gaps, place, np.geomspace(gaps[place - 1], gaps[place], 4)[1:3])


def _weights(gaps: Array) -> tuple[Array, Array]:
    """The weights w of c_j = sum of w d^(j - 1), and those of -q_j, from partial fractions."""
    own, other = gaps[::2], gaps[1::2]
    across = other[None, :] - own[:, None]
    among = own[None, :] - own[:, None] + np.eye(own.size)
    among_others = other[None, :] - other[:, None] + np.eye(own.size)
    return np.prod(across / among, axis=1), -np.prod(-across.T / among_others, axis=1)


def _geometric(weights: Array, gaps: Array, size: int) -> Array:
    """[n] 1, and sums of weights times powers of the decays from the power 0 on."""
    return np.append(1.0, weights @ np.exp(np.outer(np.log1p(-gaps), np.arange(size - 1))))
