"""Load observed pair distances from a .npz or .csv file, or generate them (``weibull:shape=0.5,records=50``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.config import observation_generator
from wpriv.config.observation_generator import HELP
from wpriv.core.pair_distances import Observed, of_distances, of_gradients
from wpriv.errors import MissingResource, UsageError
from wpriv.files import array_files, csv_tables
from wpriv.files.csv_tables import CsvError, CsvTable

MAX_BYTES = 2_000_000_000
_DRAWS: dict[str, Callable[[np.random.Generator, float, tuple[int, int]], Any]] = {
    "weibull": lambda rng, shape, size: rng.weibull(shape, size),
    "normal": lambda rng, shape, size: shape * rng.standard_normal(size),
}


def observed(value: Any) -> Observed:
    """Return observations from any form that a step may give: text, an array of distances, or an ``Observed``.

    Raises:
        UsageError, MissingResource: none of these, or faulty.
    """
    if isinstance(value, Observed):
        return value
    if isinstance(value, (str, Path)):
        text = str(value)
        if observation_generator.is_generator(text):
            return generate(text)
        path = Path(text)
        try:
            about = path.stat()
        except (OSError, ValueError) as error:
            raise MissingResource(
                f"`observed` {text}: cannot be read ({getattr(error, 'strerror', error)}); wanted {HELP}"
            ) from None
        if about.st_size > MAX_BYTES:
            raise UsageError(f"`observed` {text}: a file may have up to {MAX_BYTES:,} bytes; found {about.st_size:,}")
        return _read(text, about.st_mtime_ns, about.st_size)
    if isinstance(value, (list, tuple, np.ndarray)):
        return of_distances(value)
    raise UsageError(f"observed must be {HELP}, or an array of distances; found {type(value).__name__}")


@functools.lru_cache(maxsize=8)
def generate(text: str) -> Observed:
    """Gradients drawn at random: ``weibull:`` or ``normal:`` with shape, records, coordinates, steps, quantile, clip,
    seed.

    Every step draws a fresh set of records. ``shape`` is the Weibull shape, or the standard deviation of the normal
    distribution. With ``quantile`` > 0 the unit of a step is that quantile of its gradient norms, and ``clip=1`` clips
    the gradients to it.
    """
    plan = observation_generator.parse(text)
    rng = np.random.default_rng(plan.seed)
    rows, units = [], []
    for _ in range(plan.steps):
        gradients = _DRAWS[plan.kind](rng, plan.shape, (plan.records, plan.coordinates))
        units.append(float(np.quantile(np.linalg.norm(gradients, axis=1), plan.quantile)) if plan.quantile else 1.0)
        rows.append(of_gradients(gradients, unit=units[-1], clip=bool(plan.clip)).distances[0])
    return of_distances(
        np.array(rows), unit=np.array(units), coordinates=plan.coordinates, origin=text, records=plan.records
    )


@functools.lru_cache(maxsize=8)
def _read(text: str, modified: int, size: int) -> Observed:
    try:
        return _npz(text) if text.endswith(".npz") else _csv(text)
    except UsageError as error:
        raise UsageError(f"`observed` {text}: {error}") from None


def _npz(text: str) -> Observed:
    try:
        arrays = array_files.npz(text, MAX_BYTES)
    except array_files.DAMAGED as error:
        raise UsageError(f"not an .npz file of plain arrays ({str(error)[:120]})") from None
    if ("distances" in arrays) == ("gradients" in arrays):
        raise UsageError(f"wanted an array 'distances' or an array 'gradients'; found {', '.join(arrays) or 'nothing'}")
    try:
        unit = np.asarray(arrays.get("unit", 1.0), dtype=float)
        if "gradients" in arrays:
            return of_gradients(arrays["gradients"], unit=unit, origin=text)
        return of_distances(arrays["distances"], unit=unit, coordinates=int(arrays.get("coordinates", 0)), origin=text)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"its arrays must hold numbers ({str(error)[:120]})") from None


def _csv(text: str) -> Observed:
    """Read columns ``distance``, or ``step`` and ``distance``; else a row is a gradient of a record (at a ``step``)."""
    try:
        parsed = CsvTable.parse(csv_tables.decode(Path(text).read_bytes()))
        header, table = list(parsed.names), parsed.matrix()
    except (OSError, CsvError) as error:
        raise UsageError(f"not a CSV of numbers with a header ({str(error)[:120]}); wanted {HELP}") from None
    if table.size == 0:
        raise UsageError(f"wanted rows of {len(header)} numbers below the header; found {table.shape[0]} rows")
    if "distance" in header and set(header) - {"distance", "step"}:
        raise UsageError(f"wanted a column distance, and perhaps a column step, alone; found {', '.join(header)[:120]}")
    step = table[:, header.index("step")] if "step" in header else np.zeros(len(table))
    rest = table[:, [i for i, name in enumerate(header) if name != "step"]]
    parts = [rest[step == value] for value in np.unique(step)]
    if len({len(part) for part in parts}) > 1:
        raise UsageError(
            f"every step needs the same number of rows; found from {min(map(len, parts))} to {max(map(len, parts))}"
        )
    stacked = np.array(parts)
    if "distance" in header:
        return of_distances(stacked[:, :, 0], origin=text)
    return of_gradients(stacked, origin=text)
