"""Any two distributions, given as a table of outcomes with their probabilities under both neighbours."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np
from scipy.special import ndtr

from wpriv.accounting.mechanisms._validation import CSV_FILE, reading
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.files import csv_tables
from wpriv.files.csv_tables import CsvError
from wpriv.numerics.arrays import Array
from wpriv.numerics.bracket import LEAST

MAX_MEGABYTES = 100
SUM_TOLERANCE = 1e-9
HISTOGRAM, SAMPLES = ["outcome", "p", "q"], ["p", "q"]

Rows = Iterator[tuple[int, list[str]]]


class Table(NamedTuple):
    """Two distributions on [k] outcomes.

    Args:
        p, q: [k] probabilities, each with sum 1.
        labels: the outcomes of a histogram, with their lines; empty for samples.
        centres: [k] bin centres of samples; None for a histogram.
    """

    p: Array
    q: Array
    labels: dict[str, int]
    centres: Array | None = None


def read(path: str, bin_width: float) -> Table:
    """Read two distributions from a CSV file.

    Args:
        path: a file with the header ``outcome,p,q``, or ``p,q`` (columns of samples).
        bin_width: for samples, in their units; 0 for a histogram.
    Raises:
        MissingResource: the file does not exist or cannot be read.
        UsageError: the file is not such a table; the message names the line.
    """
    with reading("histogram", path, CSV_FILE, "file must be a path") as identity:
        if identity[-1] > MAX_MEGABYTES * 2**20:
            raise UsageError(
                f"{path}: a table of at most {MAX_MEGABYTES} MB was wanted; found {identity[-1] >> 20} MB. "
                "Bin the data first"
            )
        return _read(path, bin_width, identity)


@lru_cache(maxsize=4)
def _read(path: str, bin_width: float, identity: tuple[int, ...]) -> Table:
    """Read the file; ``identity`` changes with its content, so that a changed file is read again."""
    rows = _rows(path)
    line, header = next(rows, (1, []))
    header = [name.strip().lower() for name in header]
    if header == SAMPLES:
        return _binned(path, _of_width(path, rows, 2), bin_width)
    if header != HISTOGRAM:
        columns = repr(",".join(header)[:80]) if header else "an empty file"
        wanted = "the header must be 'outcome,p,q' (two histograms) or 'p,q' (two columns of samples)"
        _refuse(path, line, f"{wanted}; found {columns}")
    if bin_width:
        raise UsageError(
            f"{path}: bin_width requires two columns of samples (header 'p,q'); found a histogram (header "
            "'outcome,p,q'). Leave out bin_width"
        )
    return _histogram(path, _of_width(path, rows, 3))


def _rows(path: str) -> Rows:
    """Yield the rows that are not blank, with their lines."""
    try:
        text = csv_tables.decode(Path(path).read_bytes())
    except CsvError as error:
        raise UsageError(f"{path}: a CSV table was wanted; found a binary file") from error
    try:
        yield from csv_tables.rows(text)
    except CsvError as error:
        raise UsageError(f"{path}:{error.line}: {error.reason}") from error


def _of_width(path: str, rows: Rows, width: int) -> Rows:
    """Check the number of columns of every row."""
    for line, row in rows:
        if len(row) != width:
            _refuse(path, line, f"{width} columns were wanted, as in the header; found {len(row)}")
        yield line, row


def _histogram(path: str, rows: Rows) -> Table:
    """Read rows of outcome, p and q."""
    labels: dict[str, int] = {}
    columns = (array("d"), array("d"))
    for line, (name, *masses) in rows:
        label = name.strip()
        if labels.setdefault(label, line) != line:
            _refuse(path, line, f"every outcome must appear once; {label[:40]!r} is also on line {labels[label]}")
        for column, mass in zip(columns, masses, strict=True):
            column.append(_probability(path, line, mass))
    if not labels:
        _refuse(path, 1, "at least one outcome was wanted; found the header only")
    for name, column in zip(SAMPLES, columns, strict=True):
        if not abs(math.fsum(column) - 1) <= SUM_TOLERANCE:
            raise UsageError(
                f"{path}: column {name} must sum to 1 within {SUM_TOLERANCE:g}; found {math.fsum(column)!r}"
            )
    p, q = (np.array(column) / math.fsum(column) for column in columns)
    return Table(p, q, labels)


def _binned(path: str, rows: Rows, bin_width: float) -> Table:
    """Read two columns of samples and bin them."""
    if not bin_width:
        raise UsageError(f"{path}: two columns of samples require bin_width, in the units of the samples; found none")
    columns = (array("d"), array("d"))
    for line, row in rows:
        for column, sample in zip(columns, row, strict=True):
            if sample.strip():  # one column may be shorter than the other
                column.append(_number(path, line, sample))
    for name, column in zip(SAMPLES, columns, strict=True):
        if not column:
            raise UsageError(f"{path}: at least one sample was wanted in column {name}; found none")
    samples = np.concatenate([np.array(column) for column in columns])
    with np.errstate(over="ignore"):
        bins = np.floor(samples / bin_width)
    if not np.all(np.abs(bins) < 2**53):
        raise UsageError(
            f"{path}: bin_width {bin_width:g} is too small for samples of size {np.max(np.abs(samples)):g}"
        )
    occupied, index = np.unique(bins, return_inverse=True)
    p, q = (np.bincount(part, minlength=occupied.size) / part.size for part in np.split(index, [len(columns[0])]))
    return Table(p, q, {}, (occupied + 0.5) * bin_width)


def numbers(path: str, table: Table) -> Array:
    """Return the [k] outcomes of a table as numbers, to which noise can be added."""
    if table.centres is not None:
        return table.centres
    return np.array([_number(path, line, label) for label, line in table.labels.items()])


def _probability(path: str, line: int, text: str) -> float:
    value = _number(path, line, text)
    if not 0 <= value <= 1:
        _refuse(path, line, f"a probability from 0 to 1 was wanted; found {text[:40]}")
    return value


def _number(path: str, line: int, text: str) -> float:
    try:
        value = csv_tables.number(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        _refuse(path, line, f"a finite number was wanted; found {text[:40]!r}")
    return value


def _refuse(path: str, line: int, reason: str) -> NoReturn:
    raise UsageError(f"{path}:{line}: {reason}")


REACH = 37.0  # the probability of noise beyond 37 sigma is below 1e-299
FLOOR = 1e-290  # a cell of lower probability counts as impossible
RARE = (
    1e-200  # with unbounded noise, a cell that is impossible under one distribution is dropped if rarer under the other
)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
MAX_CELLS, MAX_WORK = 2**20, 2 * 10**8


@dataclass(frozen=True)
class Histogram(Mechanism):
    """Release an outcome of one of two given distributions P and Q.

    The file is a CSV table with columns outcome,p,q (probabilities) or p,q (samples). With ``sigma`` the released value
    is (outcome + noise) rounded down to a multiple of ``cell``, counted from the smallest outcome. This rounded value
    is accounted for exactly; cells of sigma/64 hide about 2e-5 of what the unrounded value reveals. The noise is N(0,
    sigma^2), conditioned on [-bound, bound] if a bound is given; choose a cell that divides the bound and the distances
    of the outcomes, since a cell across an end of the noise hides part of it. An outcome, or a cell, that is possible
    under one distribution only distinguishes the two with certainty. Samples are accounted for as their histograms: the
    result does not extend to the distributions they were drawn from, nor to other neighbours, so the pair cannot be
    subsampled.

    Source:
        Sommer, Meiser, Mohammadi (2019), Definitions 1 to 5 and Section 6 (the CoverUp experiment).
    """

    release: ClassVar[Release] = Release.HISTOGRAM
    noise: ClassVar[str | None] = "sigma"
    why_not_sampled: ClassVar[str] = (
        "two given distributions are not a proven dominating pair for all neighbours. Leave out `sampling` and `rate`"
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
            raise UsageError(
                "histogram: bound and cell are parameters of the noise and require a sigma above 0; found sigma 0"
            )

    def pair(self) -> LossPair:
        """Read the file and return the exact pair of the two discrete distributions."""
        table = read(self.file, self.bin_width)
        if not self.sigma:
            return _pair_of(table.p, table.q)
        unbounded = not self.bound or self.bound > REACH * self.sigma
        p, q = self._smoothed(numbers(self.file, table), np.stack([table.p, table.q]))
        return _pair_of(p, q, rare=RARE if unbounded else 0.0)

    def _smoothed(self, outcomes: Array, probabilities: Array) -> Array:
        """Compute [2, cells] probabilities of every cell from the [k] outcomes and their [2, k] probabilities."""
        reach = min(self.bound or math.inf, REACH * self.sigma)
        cell = self.cell or reach / math.ceil(64 * max(1.0, reach / self.sigma))
        with np.errstate(over="ignore"):
            position = (outcomes - outcomes.min()) / cell
        half = math.ceil(min(reach / cell, 1e18)) + 1
        cells = float(position.max()) + 2 * half + 2
        if not cells <= MAX_CELLS or not outcomes.size * half <= MAX_WORK:
            raise UsageError(
                f"{self.file}: smoothing {outcomes.size} outcomes needs {cells:.3g} cells of width {cell:g}, "
                f"{2 * half + 1} around each outcome; the limits are {MAX_CELLS} cells, and {MAX_WORK} around all "
                "outcomes together. Give a larger sigma or `cell=...`, or wider bins"
            )
        nearest = np.rint(position).astype(int)
        offset = np.round(position - nearest, 10)
        result = np.zeros((2, int(cells) + 1))
        shared, kernel = math.nan, np.empty(0)
        # outcomes at the same offset in their cells share a kernel
        for i in np.argsort(offset, kind="stable"):
            if offset[i] != shared:
                shared, kernel = offset[i], self._kernel(half, offset[i], cell)
            result[:, nearest[i] : nearest[i] + 2 * half + 1] += probabilities[:, i, None] * kernel
        return result

    def _kernel(self, half: int, offset: float, cell: float) -> Array:
        """Compute [2 half + 1] probabilities of cells around an edge, for an outcome ``offset`` cells right of it."""
        step = cell / self.sigma
        edges = (np.arange(-half, half + 2) - offset) * step
        if self.bound:
            end = self.bound / self.sigma
            # an edge within rounding of the end of the noise is that end: no tiny part of a cell lies beyond it
            edges = np.where(np.abs(edges) > end - 1e-8 * step, np.copysign(end, edges), edges)
        if step < 1e-3:  # neighbouring tails nearly cancel: integrate the density, nearly constant in a cell
            middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
            mass = width * (np.exp(-((middle[:, None] + width[:, None] * _NODES / 2) ** 2) / 2) @ _WEIGHTS)
        else:
            tail = ndtr(-np.abs(edges))
            left, right = tail[:-1], tail[1:]
            mass = np.where(edges[:-1] >= 0, left - right, np.where(edges[1:] <= 0, right - left, 1 - left - right))
        return np.asarray(mass / mass.sum())


def _pair_of(p: Array, q: Array, rare: float = 0.0) -> AtomicPair:
    """The pair of two PMFs; rare cells of one alone count as the least infinite losses, or as unbounded losses."""
    in_p, in_q = p >= FLOOR, q >= FLOOR
    shared, only_p, only_q = in_p & in_q, in_p & ~in_q & (p >= rare), in_q & ~in_p & (q >= rare)
    log_p, log_q = np.log(p[shared]), np.log(q[shared])
    dropped = ~(shared | only_p | only_q)
    differ = bool(np.any(p[dropped] != q[dropped]))
    least = LEAST if differ and not rare else 0.0
    at_plus, at_minus = max(math.fsum(p[only_p]), least), max(math.fsum(q[only_q]), least)
    pair = AtomicPair(
        log_p - log_q,
        log_p,
        mass_at_plus_infinity=min(at_plus, 1.0),
        mass_at_minus_infinity=min(at_minus, 1.0),
        log_q=log_q,
    )
    pair.largest = math.inf if differ else None
    return pair
