"""Runs that `--fresh` moved aside: their steps are spent, and no figure of a later run in the folder includes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.core import document
from wpriv.core.digits import text
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError, WprivError
from wpriv.run import folder, price
from wpriv.train import ledger

TOL = 1e-3  # relative width of the figure for all runs together, which is printed to the safe side


@dataclass(frozen=True)
class Earlier:
    """A run in ``before-N`` (``name``): its ``steps`` (what it released), and ``problem`` where they are not known."""

    name: str
    steps: tuple[Step, ...] = ()
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        steps = sum(step.n for step in self.steps)
        return {"folder": self.name, "steps": steps, "process": [step.describe() for step in self.steps], "problem": self.problem or None}

    def __str__(self) -> str:
        return f"{self.name}: {self.problem or f'{sum(step.n for step in self.steps)} steps'}"


def earlier(path: Path) -> list[Earlier]:
    """The runs that lie in the folders ``before-1``, ``before-2``, ... of a results folder, and released something of the records.

    A folder without a ledger and with a private recipe is left out: its steps stayed in the ledger of the run that went on from it.
    """
    rows = (_read(aside) for aside in path.glob("before-*"))
    return sorted((row for row in rows if row is not None), key=lambda row: (len(row.name), row.name))


def _read(aside: Path) -> Earlier | None:
    try:
        entries = ledger.entries(aside / folder.LEDGER)
        if entries:
            return Earlier(aside.name, ledger.process(entries, "").steps)
        weights = any((aside / name).is_file() for name in (folder.MODEL, folder.CHECKPOINT))
        if weights and document.read(aside / folder.RECIPE).data.get("privacy", "none") == "none":
            return Earlier(aside.name, problem="trained without privacy")
    except WprivError as error:
        return Earlier(aside.name, problem=f"what it spent is not known ({error})")
    return None


def warning(rows: list[Earlier], process: Process, delta: float) -> str:
    """The sentence of a statement that names earlier runs, with the cost of all together where every one of them is accounted for."""
    names = "; ".join(map(str, rows))
    sentence = f"earlier runs in this folder are not included in these figures ({names}): what anybody saw of them is spent as well"
    if any(row.problem for row in rows):
        return sentence
    steps = tuple(step for row in rows for step in row.steps)
    try:
        curve = price.curve(Process((*steps, *process.steps), process.adjacency), "pld", TOL)
        eps = price.ask(curve, delta=delta).epsilon.safe
    except (Unsupported, UsageError):
        return sentence
    return f"{sentence}. All runs together keep eps = {text(eps, up=True)} at delta = {delta:g}"
