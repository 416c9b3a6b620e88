"""The verb ``private_sliced_distance``: a private sliced Wasserstein distance between two samples, in one call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from wpriv import randomness
from wpriv.accounting.budget import budget
from wpriv.accounting.calibrate import calibrate
from wpriv.config.plain_words import in_plain_words
from wpriv.core.guarantee import Guarantee
from wpriv.errors import UsageError
from wpriv.files.shown import Shown
from wpriv.numerics import ball_projection, wasserstein_1d
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import exp_or_inf
from wpriv.numerics.numbers import number, shown, whole

# rows are clipped a little below the radius, so that rounding makes none longer
SLACK = 1 - 2.0**-40
BLOCK = 2**21  # noisy projections that are made at a time
SEEDED = "the seed is fixed: whoever knows it can subtract the noise. Leave the seed out for a release"


@dataclass(frozen=True, repr=False)
class PrivateDistance(Shown):
    """A private sliced distance between two samples, and what it cost; ``float`` is the distance.

    Args:
        distance: sliced W_p of the noisy projections, in the units of the records. It estimates the distance of the
            distributions smoothed by the noise, and is above it where there are few rows.
        power: its p-th power, the mean of W_p^p over directions, which Algorithm 1 returns; 0 or inf beyond floats.
        means: for p = 2 the part of ``power`` that is between the means, without the bias of the noise. Its expectation
            is ``|mean x - mean y|^2 / d``; it may be negative.
        p, sigma, radius, directions: order, noise on each projection, norm to which rows were clipped, number of
            directions. shape: n, m and d, the rows of x and of y and their numbers.
        guarantee: for the replacement of one row of x or of y.
        seed: the fixed seed, or None for randomness of the operating system.
    """

    distance: float
    power: float
    means: float | None
    p: float
    sigma: float
    radius: float
    directions: int
    shape: tuple[int, int, int]
    guarantee: Guarantee
    seed: int | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the guarantee, and one on a fixed seed."""
        return (*self.guarantee.warnings, *([] if self.seed is None else [SEEDED]))

    def __float__(self) -> float:
        return self.distance

    def __str__(self) -> str:
        distance = f"sliced W_{self.p:g} of the noisy samples = {self.distance:.6g}, with noise {self.sigma:.6g}"
        return f"{distance}; {self.guarantee.headline()}"

    def facts(self) -> list[tuple[str, str]]:
        """The release in words, the facts of the guarantee, and the warnings."""
        n, m, d = self.shape
        means = [] if self.means is None else [("means", f"{self.means:.6g} of W_2^2 is between the means")]
        return [
            ("samples", f"{n} and {m} rows of {d} numbers, clipped to the norm {self.radius:g}; one row is replaced"),
            ("distance", "of the noisy projections, an estimate: noise that is not small beside it makes it larger"),
            ("noise", f"{self.sigma:.6g} on each of {self.directions} projections of every row of both samples"),
            *means,
            *self.guarantee.facts(),
            *(("warning", line) for line in self.warnings),
        ]


@in_plain_words
def private_sliced_distance(
    x: ArrayLike,
    y: ArrayLike,
    *,
    directions: int,
    delta: float,
    sigma: float | None = None,
    eps: float | None = None,
    p: float = 2.0,
    radius: float = 1.0,
    accountant: str = "pld",
    seed: int | None = None,
) -> PrivateDistance:
    """Estimate the sliced Wasserstein distance of two samples from noisy projections of their rows.

    Every row is clipped to a norm, both samples are projected on the same uniform random directions, and Gaussian noise
    is added to every projection. Neighbours differ in one row of x or of y, which is replaced: both samples are
    protected. How many rows were clipped depends on the records and is not returned. Rounding errors of projections,
    which are released on a grid, are not covered by the guarantee.

    Args:
        x: [n, d] finite records, one a row; d >= 2.
        y: [m, d] finite records.
        directions: number of random directions, drawn afresh.
        delta: of the guarantee.
        sigma: standard deviation of the noise on a projection, in the units of the records.
        eps: instead of sigma, the eps for which the least noise is found.
        p: order of the distance, 1 to 1000.
        radius: norm to which each row is clipped, in the units of the records; two rows are up to twice as far apart.
        accountant: ``pld`` (certified), or ``paper``, the published bound (``swd-tail``, Proposition 2).
        seed: None draws directions and noise from the operating system, as a release needs.
    Raises:
        UsageError: an argument is wrong. Unsupported: the target is out of reach, or the accountant has no answer.
    Source:
        Rakotomamonjy and Ralaivola (2021), Algorithm 1; exact accounting by default.

    >>> rows = np.random.default_rng(0).normal(size=(2, 500, 3)) / 10
    >>> answer = private_sliced_distance(rows[0], rows[1] + 0.5, directions=20, eps=1, delta=1e-5)
    >>> answer.guarantee.claim, float(answer.guarantee) <= 1, answer.shape
    ('certified', True, (500, 500, 3))
    """
    samples = [_records(sample, name) for sample, name in ((x, "`x`"), (y, "`y`"))]
    shape = (len(samples[0]), len(samples[1]), samples[0].shape[1])
    if samples[1].shape[1] != shape[2]:
        raise UsageError(f"`x` and `y` must have equally many columns; found {shape[2]} and {samples[1].shape[1]}")
    count, order = whole(directions, "`directions`"), wasserstein_1d.check_order(number(p, "`p`"))
    norm, fixed = number(radius, "`radius`"), None if seed is None else whole(seed, "`seed`")
    for name, value, given in (("`directions`", count, directions), ("`radius`", norm, radius)):
        if not value > 0:
            raise UsageError(f"{name} must be greater than 0; found {shown(given)}")
    if (sigma is None) == (eps is None):
        which = "neither" if sigma is None else "both"
        raise UsageError(f"give `sigma`, the noise, or `eps`, from which it is computed; found {which}")
    release = {"delta": delta, "accountant": "swd-tail" if accountant == "paper" else accountant, "n": 1}
    release |= {"d": shape[2], "k": count, "sensitivity": 2 * norm}
    if sigma is None:
        guarantee = calibrate("projection", eps=eps, **release).guarantee  # type: ignore[arg-type]
    else:
        guarantee = budget("projection", sigma=sigma, **release)  # type: ignore[arg-type]
    noise = float(vars(guarantee.process.steps[0].mechanism)["sigma"])
    ball_projection.check(norm, noise)
    clipped = [ball_projection.nearest(sample, norm * SLACK, 2) for sample in samples]
    costs, gaps = [], []
    key, step = randomness.key("private_sliced_distance", fixed), ball_projection.spacing(norm, noise)
    for one, two in _projected(clipped, count, noise, step, key):
        gaps += list(one.mean(axis=0) - two.mean(axis=0))
        costs += [wasserstein_1d.samples(a, b, order) for a, b in zip(one.T, two.T, strict=True)]
    # relative to the largest, since a high power of all leaves the range of floats
    top, bias = max(costs), noise**2 * (1 / shape[0] + 1 / shape[1])
    distance = top * (math.fsum((cost / top) ** order for cost in costs) / count) ** (1 / order) if top else 0.0
    power = exp_or_inf(order * math.log(distance)) if distance else 0.0
    means = float(np.square(gaps).mean() - bias) if order == 2 else None
    return PrivateDistance(distance, power, means, order, noise, norm, count, shape, guarantee, fixed)


def _records(sample: ArrayLike, name: str) -> Array:
    """A sample as finite numbers [n, d] with d >= 2."""
    if np.iscomplexobj(sample) or isinstance(sample, np.ma.MaskedArray):
        raise UsageError(f"{name} holds complex or masked numbers; give real ones, all of which count")
    try:
        records = np.asarray(sample, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{name} must be an array of numbers [n, d], one record a row: {error}") from None
    if records.ndim != 2 or not len(records) or records.shape[1] < 2:
        fault = f"{name} must be an array [n, d] with d of at least 2, one record a row"
        raise UsageError(f"{fault}; found {list(records.shape)}. Flatten images with reshape(len(x), -1)")
    if not np.isfinite(records).all():
        raise UsageError(f"{name} holds numbers that are not finite. Replace or remove them")
    return records


def _projected(
    samples: list[Array], count: int, sigma: float, step: float, key: bytes
) -> Iterator[tuple[Array, Array]]:
    """Yield noisy projections [n, j] and [m, j] on a grid of spacing ``step``, a block of j directions at a time.

    Part 0 of the stream of the key gives the directions, which are public, and the others the noise: no part reveals
    anything about another one.
    """
    d = samples[0].shape[1]
    normal = randomness.normal(randomness.words(key, 0, d * count)).reshape(d, count)
    directions = normal / np.linalg.norm(normal, axis=0)
    size = max(1, BLOCK // (len(samples[0]) + len(samples[1])))
    for start in range(0, count, size):
        u = directions[:, start : start + size]
        one, two = (
            np.rint(sample @ u / step) + np.rint(noise.reshape(len(sample), -1) * (sigma / step))
            for side, sample in enumerate(samples)
            for noise in [randomness.normal(randomness.words(key, 1 + 2 * start + side, len(sample) * u.shape[1]))]
        )
        yield one * step, two * step
