"""A release of which only Renyi divergences at some orders are known, from a table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from wpriv.accounting.mechanisms._validation import CSV_FILE, RenyiBound, RenyiGuarantee, reading
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import KeyedPair
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError
from wpriv.files import csv_tables
from wpriv.files.csv_tables import CsvError, CsvTable
from wpriv.numerics.arrays import Array

COLUMNS = ("order", "epsilon")
MAX_BYTES, LARGEST = 2**24, 1e100


@dataclass(frozen=True)
class RdpCurve(RenyiGuarantee):
    """A release of which only Renyi DP is known: D_alpha(P||Q) <= epsilon at the orders alpha of a table.

    The guarantee must hold for the neighbours of the process, in both directions. Between the orders of the table the
    divergences are bounded by convexity; see ``RdpCurvePair``. Nothing is known beyond the largest order.

    Source:
        Mironov (2017), Definition 4; van Erven, Harremoes (2014) (convexity).
    """

    release: ClassVar[Release] = Release.RENYI
    source: ClassVar[str] = "Mironov 2017, Definition 4; van Erven, Harremoes 2014 (between the orders)"

    file: str = parameter(
        "CSV file with columns order,epsilon: orders above 1, and the Renyi divergence at each, in nats"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.file, str) or not self.file:
            raise UsageError(f"rdp-curve: file must be the path of a CSV file; found {self.file!r}")

    def renyi_bound(self) -> RdpCurvePair:
        """Read the table."""
        return read(self.file)

    def reading(self) -> tuple[str, ...]:
        orders = self.renyi_bound().orders
        return (
            f"the Renyi divergences in {self.file}, of orders {orders[0]:g} to {orders[-1]:g}, are taken as given for "
            f"the neighbours that are named with the answer; between the orders (alpha - 1) D_alpha is convex, so that "
            f"chords are upper bounds",
        )


class RdpCurvePair(RenyiBound, KeyedPair):
    """Upper bounds of D_alpha(P||Q) at every order up to the largest of a table; infinite beyond it.

    They are chords of the cumulant generating function (docs/theory/combinations.md, "Stated guarantees").

    Args:
        orders: [k] orders > 1, in any order; the same order may be given twice.
        epsilon: [k] bounds of the divergences at these orders, >= 0, in nats.
    """

    def __init__(self, orders: Array, epsilon: Array):
        place = np.lexsort((epsilon, orders))
        self.orders = orders[place]
        points = [(1.0, 0.0)]
        for order, value in zip(self.orders, (self.orders - 1) * epsilon[place], strict=True):
            if order == points[-1][0]:
                continue
            while len(points) > 1 and not _turns_up(points[-2], points[-1], (float(order), float(value))):
                points.pop()
            points.append((float(order), float(value)))
        self.hull = np.array(points)
        self.key = tuple(points)

    def renyi(self, orders: Array) -> Array:
        alpha = np.asarray(orders, dtype=float)
        x, y = self.hull.T
        right = np.clip(np.searchsorted(x, alpha), 1, x.size - 1)
        slope = (y[right] - y[right - 1]) / (x[right] - x[right - 1])
        # the chord divided by alpha - 1, so that the first one is its slope without rounding
        rest = y[right - 1] - slope * (x[right - 1] - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = slope + np.where(right == 1, 0.0, rest / (alpha - 1))
        return np.where(alpha > x[-1], np.inf, np.maximum(inside * (1 + 1e-15), 0.0))


def read(path: str) -> RdpCurvePair:
    """Read a table of Renyi divergences; arguments and errors as in ``RdpCurve``."""
    with reading("rdp-curve", path, CSV_FILE, "file must be a path") as identity:
        if identity[-1] > MAX_BYTES:
            raise UsageError(f"{path}: a table of at most 16 MB was wanted; found {identity[-1] >> 20} MB")
        try:
            return _read(path, identity)
        except CsvError as error:
            where = f"{path}:{error.line}" if error.line else path
            raise UsageError(f"{where}: a table of order,epsilon was wanted; {error.reason}") from error


@lru_cache(maxsize=4)
def _read(path: str, identity: tuple[int, ...]) -> RdpCurvePair:
    """Read the file; ``identity`` changes with its content, so that a changed file is read again."""
    table = CsvTable.parse(csv_tables.decode(Path(path).read_bytes()))
    if tuple(name.lower() for name in table.names) != COLUMNS:
        raise CsvError(f"the header must be 'order,epsilon'; found {','.join(table.names)[:80]!r}", 1)
    orders, epsilon = table.columns(numeric=table.names).values()
    bad = np.flatnonzero(~((orders > 1) & (orders <= LARGEST) & (epsilon >= 0) & (epsilon <= LARGEST)))
    if bad.size:
        row = int(bad[0])
        wanted = f"orders lie above 1, divergences at 0 or above, and both at {LARGEST:g} or below"
        raise CsvError(f"{wanted}; found order {orders[row]:g}, epsilon {epsilon[row]:g}", table.line(row))
    if not orders.size:
        raise CsvError("found no rows")
    return RdpCurvePair(orders, epsilon)


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Tell whether the slope from b to c exceeds that from a to b, so that b is a vertex of the lower hull."""
    return (c[1] - b[1]) * (b[0] - a[0]) > (b[1] - a[1]) * (c[0] - b[0])
