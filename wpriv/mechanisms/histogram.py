"""Two given histograms, as measured or tabulated; optionally smoothed by noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from wpriv.core.adjacency import Adjacency
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.mechanisms import _histogram_csv
from wpriv.numerics.arrays import Array

REACH = 37.0  # noise beyond 37 sigma has a chance below 1e-299
FLOOR = 1e-290  # a cell less likely than this counts as impossible ...
RARE = 1e-200  # ... and as never seen where noise without a bound makes it no likelier than this under the other law
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
MAX_CELLS, MAX_WORK = 2**20, 2 * 10**8


@dataclass(frozen=True)
class Histogram(Mechanism):
    """Releases an outcome drawn from one of two given laws P and Q (CSV columns outcome,p,q; or two columns of samples p,q).

    With ``sigma`` the released value is (outcome + noise) rounded down to a multiple of ``cell``, counted from the least
    outcome: this rounded value is what is priced, exactly. Cells of sigma/64 hide about 2e-5 of what the unrounded one tells.
    The noise is N(0, sigma^2), conditioned on [-bound, bound] where a bound is given; choose a cell that divides the bound
    and the distances of the outcomes, or a cell across an end of the noise hides part of it. An outcome, or a cell, that
    has a chance under one law only tells the two apart for certain. Samples are priced as the histograms they make: nothing is
    said of the laws they were drawn from, nor of any other pair of neighbours, so the pair cannot be subsampled.

    Source:
        Sommer, Meiser, Mohammadi (2019), Definitions 1 to 5 and Section 6 (the CoverUp experiment).
    """

    noise: ClassVar[str | None] = "sigma"
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.GIVEN_PAIR,)
    dominating: ClassVar[bool] = False
    why_not_sampled: ClassVar[str] = (
        "two given laws say nothing of other neighbours, so they are no proven dominating pair"
    )
    source: ClassVar[str] = "Sommer, Meiser, Mohammadi 2019, Definitions 1 to 5"

    file: str = parameter("CSV file with columns outcome,p,q (probabilities) or p,q (samples)")
    bin_width: float = parameter(
        "width of the bins for columns of samples, in their units; 0 for a histogram", default=0.0, minimum=0
    )
    sigma: float = parameter(
        "standard deviation of the noise added to the outcome, in its units; 0 for none", default=0.0, minimum=0
    )
    bound: float = parameter(
        "largest size of that noise, in the same units; 0 for no truncation", default=0.0, minimum=0
    )
    cell: float = parameter(
        "width of the cells that the noisy outcome is rounded to; 0 for a 64th of sigma, or of bound",
        default=0.0,
        minimum=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.file, str) or not self.file:
            raise UsageError(f"histogram: file must be the path of a CSV file; found {self.file!r}")
        if self.sigma > 1e300:
            raise UsageError(f"histogram: sigma must be at most 1e300; found {self.sigma:g}")
        if not self.sigma and (self.bound or self.cell):
            raise UsageError("histogram: bound and cell shape the noise, so they need a sigma above 0; found sigma 0")

    def pair(self) -> LossPair:
        """The exact pair of the two discrete laws; reads the file.

        Raises:
            MissingResource: the file cannot be read.
            UsageError: it is not a valid table, or smoothing it needs too many cells.
        """
        table = _histogram_csv.read(self.file, self.bin_width)
        if not self.sigma:
            return _pair_of(table.p, table.q)
        endless = not self.bound or self.bound > REACH * self.sigma
        p, q = self._smoothed(_histogram_csv.numbers(self.file, table), np.stack([table.p, table.q]))
        return _pair_of(p, q, rare=RARE if endless else 0.0)

    def _smoothed(self, outcomes: Array, laws: Array) -> Array:
        """[2, cells] probabilities of every cell, from the [k] outcomes and their [2, k] probabilities."""
        reach = min(self.bound or math.inf, REACH * self.sigma)
        cell = self.cell or reach / math.ceil(64 * max(1.0, reach / self.sigma))
        with np.errstate(over="ignore"):
            position = (outcomes - outcomes.min()) / cell
        half = math.ceil(min(reach / cell, 1e18)) + 1
        cells = float(position.max()) + 2 * half + 2
        if not cells <= MAX_CELLS or not outcomes.size * half <= MAX_WORK:
            raise UsageError(
                f"{self.file}: smoothing {outcomes.size} outcomes needs {cells:.3g} cells of width {cell:g}, {2 * half + 1} around each; "
                f"the limits are {MAX_CELLS} and {MAX_WORK} in all. Give a larger sigma or --param cell=..., or wider bins"
            )
        nearest = np.rint(position).astype(int)
        offset = np.round(position - nearest, 10)
        result = np.zeros((2, int(cells) + 1))
        shared, kernel = math.nan, np.empty(0)
        for i in np.argsort(
            offset, kind="stable"
        ):  # outcomes at the same place in their cells share the chances around them
            if offset[i] != shared:
                shared, kernel = offset[i], self._kernel(half, offset[i], cell)
            result[:, nearest[i] : nearest[i] + 2 * half + 1] += laws[:, i, None] * kernel
        return result

    def _kernel(self, half: int, offset: float, cell: float) -> Array:
        """[2 half + 1] chances that noise on an outcome ``offset`` cells right of an edge ends in each cell around that edge."""
        step = cell / self.sigma
        edges = (np.arange(-half, half + 2) - offset) * step
        if self.bound:
            end = self.bound / self.sigma
            # an edge a rounding away from the end of the noise is that end: no sliver of a cell beyond it
            edges = np.where(np.abs(edges) > end - 1e-8 * step, np.copysign(end, edges), edges)
        if step < 1e-3:  # neighbouring tails nearly agree: integrate the density, which is flat in a cell
            middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
            mass = width * (np.exp(-((middle[:, None] + width[:, None] * _NODES / 2) ** 2) / 2) @ _WEIGHTS)
        else:
            tail = ndtr(-np.abs(edges))
            left, right = tail[:-1], tail[1:]
            mass = np.where(edges[:-1] >= 0, left - right, np.where(edges[1:] <= 0, right - left, 1 - left - right))
        return np.asarray(mass / mass.sum())


def _pair_of(p: Array, q: Array, rare: float = 0.0) -> AtomicPair:
    in_p, in_q = p >= FLOOR, q >= FLOOR
    both, only_p, only_q = in_p & in_q, in_p & ~in_q & (p >= rare), in_q & ~in_p & (q >= rare)
    log_p, log_q = np.log(p[both]), np.log(q[both])
    infinity, lost = math.fsum(p[only_p]), math.fsum(q[only_q])
    return AtomicPair(
        log_p - log_q,
        log_p,
        mass_at_plus_infinity=min(infinity, 1.0),
        mass_at_minus_infinity=min(lost, 1.0),
        log_q=log_q,
    )
