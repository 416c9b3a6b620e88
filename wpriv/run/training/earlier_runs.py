"""Runs that `--fresh` moved aside: their steps are spent, and no figure of a later run in the folder includes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.core.process import Process, Step
from wpriv.engine import ledger
from wpriv.errors import Unsupported, UsageError, WprivError
from wpriv.numerics.safe_rounding import text
from wpriv.run.accounting import evaluate
from wpriv.run.results import file_names

TOL = 1e-3  # relative width of the figure for all runs together, which is printed to the safe side
CLEAR = "trained without privacy"


@dataclass(frozen=True)
class Earlier:
    """A run in ``before-N`` (``name``).

    Args:
        steps: what its ledger says that it released, under ``adjacency``. problem: why that is not all, or not known.
        streams: the noise that they were drawn from, see ``ledger.Entry``.
    """

    name: str
    steps: tuple[Step, ...] = ()
    adjacency: str = ""
    streams: frozenset[str] = field(default=frozenset())
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        steps = sum(step.n for step in self.steps)
        return {
            "folder": self.name,
            "steps": steps,
            "process": [step.describe() for step in self.steps],
            "problem": self.problem or None,
        }

    def __str__(self) -> str:
        steps = f"{sum(step.n for step in self.steps)} steps" if self.steps else ""
        return f"{self.name}: {', '.join(part for part in (steps, self.problem) if part)}"


def earlier(path: Path) -> list[Earlier]:
    """The runs that lie in the folders ``before-1``, ``before-2``, ... of a results folder, and released something of the records.

    What a model, a checkpoint or a statement in them was made behind must stand in a ledger of one of these folders, or in the one of
    the run that went on from it. A folder that holds nothing else than what a fork left behind is left out.
    """
    folders = sorted(
        (aside for aside in path.glob("before-*") if aside.is_dir()), key=lambda aside: (len(aside.name), aside.name)
    )
    ledgers = [_entries(place / file_names.LEDGER)[0] for place in (path, *folders)]
    rows = (_read(aside, ledgers) for aside in folders)
    return [row for row in rows if row is not None]


def _read(aside: Path, ledgers: list[list[ledger.Entry]]) -> Earlier | None:
    entries, problem = _entries(aside / file_names.LEDGER)
    process = None
    try:
        process = ledger.process(entries) if entries else None
        # of a run without privacy nothing but its recipe may be left
        recipe = yaml_document.read(aside / file_names.RECIPE).data if (aside / file_names.RECIPE).is_file() else {}
        if recipe.get("privacy") == "none":
            problem = problem or CLEAR
        for name, at, clear in _positions(aside):
            if clear:
                problem = problem or CLEAR
            if not any(_holds(rows, at) for rows in ledgers):
                problem = (
                    problem
                    or f"its ledger is gone or was changed, behind whose first {at.lines} entries its {name} was made"
                )
    except WprivError as error:
        problem = f"what it spent is not known ({error})"
    if process is None:
        return Earlier(aside.name, problem=problem) if problem else None
    return Earlier(aside.name, process.steps, process.adjacency, frozenset(entry.stream for entry in entries), problem)


def _entries(path: Path) -> tuple[list[ledger.Entry], str]:
    """The entries of a ledger, and why they are not known."""
    try:
        return ledger.entries(path), ""
    except WprivError as error:
        return [], f"what it spent is not known ({error})"


def _positions(aside: Path) -> Iterable[tuple[str, ledger.Position, bool]]:
    """What each file of a run says that it was made behind, and whether it was trained without privacy.

    Raises:
        UsageError: such a file cannot be read.
    """
    from wpriv.engine import checkpoint

    for name in (file_names.MODEL, file_names.CHECKPOINT):
        if (aside / name).is_file():
            stored = checkpoint.load(aside / name)
            yield name, ledger.Position(**stored["ledger"]), stored["clear"]
    if (aside / file_names.STATEMENT).is_file():
        try:
            at = json.loads((aside / file_names.STATEMENT).read_text(encoding="utf-8")).get("ledger")
            if at is not None:
                yield file_names.STATEMENT, ledger.Position(int(at["lines"]), str(at["digest"])), False
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UsageError(f"{aside / file_names.STATEMENT} cannot be read") from None


def _holds(rows: list[ledger.Entry], at: ledger.Position) -> bool:
    return len(rows) >= at.lines and ledger.position(rows[: at.lines]).digest == at.digest


def warning(rows: list[Earlier], process: Process, delta: float, streams: set[str]) -> str:
    """The sentence of a statement that names earlier runs, with the cost of all together where every one of them is accounted for.

    Args:
        streams: the noise of ``process``; runs with the same noise have no cost together, since it falls out of their difference.
    """
    names = "; ".join(map(str, rows))
    sentence = f"earlier runs in this folder are not included in these figures ({names}): what anybody saw of them is spent as well"
    drawn = [streams, *(row.streams for row in rows)]
    if sum(map(len, drawn)) != len(frozenset().union(*drawn)):
        return f"{sentence}. Some of them drew the same noise from one fixed seed, so that there is no figure for all of them together"
    if any(row.problem or row.adjacency != process.adjacency for row in rows):
        return sentence
    steps = tuple(step for row in rows for step in row.steps)
    try:
        curve = evaluate.curve(Process((*steps, *process.steps), process.adjacency), "pld", TOL)
        eps = evaluate.ask(curve, delta=delta).epsilon.safe
    except (Unsupported, UsageError):
        return sentence
    return (
        f"{sentence}. All runs together keep eps = {text(eps, up=True)} at delta = {delta:g}, if their noise, rates and lengths did not "
        f"depend on what earlier ones showed"
    )
