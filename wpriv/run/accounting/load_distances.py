"""Load observed pair distances from a .npz or .csv file, or generate them (``weibull:shape=0.5,records=50``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.core import registry
from wpriv.core.pair_distances import Observed, of_distances, of_gradients
from wpriv.errors import MissingResource, UsageError
from wpriv.files import array_files, csv_tables
from wpriv.files.csv_tables import CsvError, CsvTable
from wpriv.hints import did_you_mean

MAX_BYTES = 2_000_000_000
MAX_VALUES = 200_000_000
HELP = (
    "a .npz (distances or gradients) or .csv (columns step,distance; or one gradient a row), or "
    "weibull:shape=0.5,records=50,..."
)
_DRAWS: dict[str, Callable[[np.random.Generator, float, tuple[int, int]], Any]] = {
    "weibull": lambda rng, shape, size: rng.weibull(shape, size),
    "normal": lambda rng, shape, size: shape * rng.standard_normal(size),
}
# parameters of a generator; ``generate`` explains them
_DEFAULTS = {"shape": 1.0, "records": 50, "coordinates": 1000, "steps": 1, "quantile": 0.0, "clip": 0, "seed": 0}


def observed(value: Any) -> Observed:
    """Return observations from any form that a step may give: text, an array of distances, or an ``Observed``.

    Raises:
        UsageError, MissingResource: none of these, or faulty.
    """
    if isinstance(value, Observed):
        return value
    if isinstance(value, (str, Path)):
        text = str(value)
        head, colon, _ = text.partition(":")
        if colon and (head in _DRAWS or Path(text).suffix not in (".npz", ".csv")):
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
    law. With ``quantile`` > 0 the unit of a step is that quantile of its gradient norms, and ``clip=1`` clips the
    gradients to it.
    """
    kind, given = registry.split(text)
    if kind not in _DRAWS:
        near = did_you_mean(kind, list(_DRAWS))
        raise UsageError(
            f"no generator of gradients called {kind[:60]!r}{near or '.'} Known: {', '.join(_DRAWS)}; or give {HELP}"
        )
    plan = {**_DEFAULTS, **registry.typed(kind, given, _DEFAULTS)}
    shape, quantile = float(plan["shape"]), float(plan["quantile"])
    records, coordinates, steps, seed = (int(plan[k]) for k in ("records", "coordinates", "steps", "seed"))
    sound = shape > 0 and records >= 2 and coordinates >= 1 and steps >= 1 and 0 <= quantile < 1 and seed >= 0
    if not sound or plan["clip"] not in (0, 1) or (plan["clip"] and not quantile):
        raise UsageError(
            f"{text}: wanted shape > 0, records >= 2, coordinates >= 1, steps >= 1, quantile in [0, 1), seed >= 0, and "
            f"clip 0 or 1 with a "
            f"quantile to clip to"
        )
    if records * max(coordinates, records // 2) * steps > MAX_VALUES:
        raise UsageError(f"{text} draws more than {MAX_VALUES:,} values; take fewer steps, records or coordinates")
    rng = np.random.default_rng(seed)
    rows, units = [], []
    for _ in range(steps):
        gradients = _DRAWS[kind](rng, shape, (records, coordinates))
        units.append(float(np.quantile(np.linalg.norm(gradients, axis=1), quantile)) if quantile else 1.0)
        rows.append(of_gradients(gradients, unit=units[-1], clip=bool(plan["clip"])).distances[0])
    return of_distances(np.array(rows), unit=np.array(units), coordinates=coordinates, origin=text, records=records)


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
    """Read columns ``distance``, or ``step`` and ``distance``; else each row is a gradient of a record (at a ``step``)."""
    try:
        parsed = CsvTable.parse(csv_tables.decode(Path(text).read_bytes()))
        header, table = list(parsed.names), parsed.matrix()
    except (OSError, CsvError) as error:
        raise UsageError(f"not a CSV of numbers with a header ({str(error)[:120]}); wanted {HELP}") from None
    if table.size == 0:
        raise UsageError(f"wanted rows of {len(header)} numbers below the header; found {table.shape[0]} rows")
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
