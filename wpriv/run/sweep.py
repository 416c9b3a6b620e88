"""A grid of trainings: every cell in a folder of its own, resumable by itself; in several processes, or in shards of a batch job."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.core.recipe import Recipe
from wpriv.errors import Interrupted, MissingResource, UsageError
from wpriv.run import expect, folder, progress, together, train, write
from wpriv.run.expect import Verdict
from wpriv.run.plan import Plan
from wpriv.run.progress import Say
from wpriv.train import durable

Row = dict[str, Any]
MAX_CELLS = 10_000


@dataclass(frozen=True)
class Cell:
    """One training of a sweep: its place in the grid and its recipe, which has no sweep."""

    labels: dict[str, Any]
    recipe: Recipe

    @property
    def name(self) -> str:
        """``privacy.eps=2,seed=0``: the name of its folder."""
        return ",".join(f"{key}={value}" for key, value in self.labels.items()).replace("/", "_")


@dataclass(frozen=True)
class Swept:
    """The rows of the finished cells, how many there are in all, and verdicts on published numbers once all are there."""

    recipe: Recipe
    rows: list[Row]
    cells: int
    verdicts: list[Verdict]
    table: Path


def cells(made: Recipe) -> list[Cell]:
    """All cells of a recipe with a sweep, in the order of its axes.

    Raises:
        UsageError: some cell is no sound recipe, or there are more than 10,000.
    """
    assert made.training is not None
    axes = [[(axis.over, *point) for point in axis.points()] for axis in made.training.sweep or []]
    points = list(itertools.islice(itertools.product(*axes), MAX_CELLS + 1))
    if len(points) > MAX_CELLS:
        raise UsageError(f"{made.name} asks for more than {MAX_CELLS:,} trainings; take fewer values")
    bare = replace(made, data={key: value for key, value in made.data.items() if key not in ("sweep", "expect", "figure")})
    found = []
    for point in points:
        changes = {path: value for _, _, keys in point for path, value in keys.items()}
        found.append(Cell({over: label for over, label, _ in point}, train.changed(bare, changes)))
    return found


def shard(text: str, of: list[Cell]) -> list[Cell]:
    """The cells of one shard: of ``3/16`` every sixteenth, from the third.

    Raises:
        UsageError: the text is no such fraction.
    """
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--shard wants its number and how many there are, from 1/16 to 16/16; found {text[:40]!r}")
    return of[int(found[1]) - 1 :: int(found[2])]


def planned(made: Recipe, out: Path, *, part: str = "1/1", root: str | Path | None = None) -> list[tuple[Cell, Plan, bool]]:
    """What the trainings of one shard would do, and whether each of them is done already."""
    found = []
    for cell in shard(part, cells(made)):
        plan, place = train.planned(cell.recipe, out / cell.name, root=root, resume=True)
        found.append((cell, plan, place.done))
    return found


def run(
    made: Recipe,
    out: Path,
    *,
    jobs: int = 1,
    part: str = "1/1",
    backend: str = "loky",
    device: str = "cpu",
    root: str | Path | None = None,
    say: Say | None = None,
) -> Swept:
    """Trains the cells of one shard that are not finished, going on with those that were cut short, and gathers all that are.

    Args:
        jobs: processes at once. backend: of joblib, where jobs > 1 (dask and ray where they are installed and registered).
    Raises:
        Interrupted: a signal came; the same command goes on. MissingResource: joblib or its backend is not there.
    """
    if any((out / name).is_file() for name in (folder.LEDGER, folder.MODEL, folder.CHECKPOINT)):
        raise UsageError(f"{out} holds the results of one training, which a sweep would overwrite. Name another folder with --out")
    every = cells(made)
    own = shard(part, every)
    how: dict[str, Any] = {"device": device, "resume": True, "root": root}
    if jobs == 1:
        with progress.signals() as stop:
            for number, cell in enumerate(own, start=1):
                if stop():
                    raise Interrupted(f"stopped by {stop()} after {number - 1} of {len(own)} trainings; the same command goes on")
                if say is not None:
                    say(f"training {number} of {len(own)}: {cell.name}", True)
                train.run(cell.recipe, out / cell.name, say=say, stop=stop, **how)
    else:
        _parallel(own, out, jobs, backend, how)
    rows = [row for cell in every if (row := _row(cell, out)) is not None]
    table = out / write.TABLE
    # more shards than trainings leave one with nothing to do, maybe before any other has begun
    out.mkdir(parents=True, exist_ok=True)
    durable.replace(table, write.csv_text(rows))
    together.write_all(made, [(cell.labels, out / cell.name) for cell in every if (out / cell.name / folder.STATEMENT).is_file()], out)
    verdicts = expect.verdicts(made, rows) if len(rows) == len(every) else []
    return Swept(made, rows, len(every), verdicts, table)


def _parallel(own: list[Cell], out: Path, jobs: int, backend: str, how: dict[str, Any]) -> None:
    try:
        import joblib
    except ImportError:
        raise MissingResource("--jobs above 1 needs joblib: pip install joblib, or leave --jobs out") from None
    try:
        with joblib.parallel_config(backend=backend, n_jobs=jobs):
            joblib.Parallel()(joblib.delayed(_one)(cell, out, how) for cell in own)
    except ValueError as error:
        raise MissingResource(f"--backend {backend}: joblib knows no such backend here ({str(error)[:120]}); use loky") from None


def _one(cell: Cell, out: Path, how: dict[str, Any]) -> None:
    train.run(cell.recipe, out / cell.name, **how)


def _row(cell: Cell, out: Path) -> Row | None:
    """The last metrics of a finished cell and its first figure of privacy."""
    path = out / cell.name
    if not (path / folder.STATEMENT).is_file():
        return None
    plan, place = train.planned(cell.recipe, path, sizes=_sizes(path))
    done = train.finished(plan, place)
    return {**cell.labels, **done.results()[0]}


def _sizes(path: Path) -> dict[str, int]:
    data = json.loads((path / folder.STATEMENT).read_text(encoding="utf-8"))["data"]
    return {"records": data["records"], **data.get("groups", {})}
