"""A grid of trainings: every cell in a folder of its own, resumable by itself; in several processes, or in shards of a batch job."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.errors import Interrupted, MissingResource, UsageError
from wpriv.files import durable_writes
from wpriv.hints import did_you_mean
from wpriv.run.results import expectations, file_names, write
from wpriv.run.results.expectations import Verdict
from wpriv.run.training import merge_sweep, progress, train
from wpriv.run.training.plan import Plan
from wpriv.run.training.progress import Say

Row = dict[str, Any]
MAX_CELLS = 10_000
BACKENDS = (
    "loky",
    "multiprocessing",
    "threading",
    "sequential",
    "dask",
    "ray",
)  # the last two where they are installed and registered


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
    bare = replace(
        made,
        claims=(),
        time=None,
        data={
            key: value for key, value in made.data.items() if key not in ("sweep", "expect", "figure", "claims", "time")
        },
    )
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


def check_backend(name: str) -> None:
    """Refuse a name that no backend of joblib has.

    Raises:
        UsageError: the name is not known; the message lists those that are.
    """
    if name not in BACKENDS:
        near = did_you_mean(name, list(BACKENDS))
        raise UsageError(f"--backend: no backend called {name[:60]!r}{near or '.'} Known: {', '.join(BACKENDS)}")


def planned(
    made: Recipe, out: Path, *, part: str = "1/1", root: str | Path | None = None
) -> list[tuple[Cell, Plan, bool]]:
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
        Interrupted: a signal came; the same command goes on. UsageError: no backend has that name. MissingResource: it is not there.
    """
    check_backend(backend)
    if any((out / name).is_file() for name in (file_names.LEDGER, file_names.MODEL, file_names.CHECKPOINT)):
        raise UsageError(
            f"{out} holds the results of one training, which a sweep would overwrite. Name another folder with --out"
        )
    every = cells(made)
    own = shard(part, every)
    how: dict[str, Any] = {"device": device, "resume": True, "root": root}
    if jobs == 1:
        with progress.signals() as stop:
            for number, cell in enumerate(own, start=1):
                if stop():
                    raise Interrupted(
                        f"stopped by {stop()} after {number - 1} of {len(own)} trainings; the same command goes on"
                    )
                if isinstance(say, progress.Meter):
                    say.cells(number - 1, len(own))
                if say is not None:
                    say(f"training {number} of {len(own)}: {cell.name}", True)
                train.run(cell.recipe, out / cell.name, say=say, stop=stop, **how)
            if isinstance(say, progress.Meter):
                say.cells(len(own), len(own))
    else:
        _parallel(own, out, jobs, backend, how, say if isinstance(say, progress.Meter) else None)
    rows = [row for cell in every if (row := _row(cell, out)) is not None]
    table = out / file_names.TABLE
    # more shards than trainings leave one with nothing to do, maybe before any other has begun
    durable_writes.make_folder(out)
    durable_writes.replace(table, write.csv_text(rows))
    merge_sweep.write_all(
        made,
        [(cell.labels, out / cell.name) for cell in every if (out / cell.name / file_names.STATEMENT).is_file()],
        out,
    )
    about = {
        "recipe": made.name,
        "source": made.source,
        "quick": made.quick,
        "trainings": len(every),
        "finished": len(rows),
    }
    about |= {"claims": [claim.model_dump() for claim in made.claims]}
    durable_writes.replace(
        out / file_names.PROVENANCE, json.dumps({**write.provenance(), **about, "device": device}, indent=2) + "\n"
    )
    verdicts = expectations.verdicts(made, rows) if len(rows) == len(every) else []
    return Swept(made, rows, len(every), verdicts, table)


def _parallel(
    own: list[Cell], out: Path, jobs: int, backend: str, how: dict[str, Any], meter: progress.Meter | None
) -> None:
    import joblib

    try:
        config = joblib.parallel_config(backend=backend, n_jobs=jobs)
    except (ValueError, ImportError) as error:
        raise MissingResource(
            f"--backend {backend}: joblib cannot load it here ({str(error)[:120]}); install it, or use loky"
        ) from None
    with config:
        # as they finish, where the backend can say so
        order = "generator_unordered" if meter is not None and backend == "loky" else "list"
        for done, _ in enumerate(
            joblib.Parallel(return_as=order)(joblib.delayed(_one)(cell, out, how) for cell in own), start=1
        ):
            if meter is not None:
                meter.cells(done, len(own))


def _one(cell: Cell, out: Path, how: dict[str, Any]) -> None:
    train.run(cell.recipe, out / cell.name, **how)


def _row(cell: Cell, out: Path) -> Row | None:
    """The last metrics of a finished cell and its first figure of privacy."""
    path = out / cell.name
    if not (path / file_names.STATEMENT).is_file():
        return None
    plan, place = train.planned(cell.recipe, path, sizes=_sizes(path))
    done = train.finished(plan, place)
    return {**cell.labels, **done.results()[0]}


def _sizes(path: Path) -> dict[str, int]:
    """The sizes of the data set that a finished cell was trained on, from its statement.

    Raises:
        UsageError: the statement cannot be read.
    """
    file = path / file_names.STATEMENT
    try:
        data = json.loads(file.read_text(encoding="utf-8"))["data"]
        sizes = {"records": data["records"], **data.get("groups", {})}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sizes = {"": None}
    if not all(type(size) is int and size > 0 for size in sizes.values()):
        raise UsageError(
            f"{file} cannot be read. Delete it and give the same command again: it is written anew from the model and the ledger"
        )
    return sizes
