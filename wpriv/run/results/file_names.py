"""Names of the files in a results folder."""

from __future__ import annotations

from pathlib import Path

from wpriv import tasks

CELLS, TABLE, RECIPE, PROVENANCE = "cells.jsonl", "table.csv", "recipe.yaml", "provenance.json"
METRICS, FIGURE, LEDGER = "metrics.csv", "figure.png", "ledger.jsonl"
STATEMENT, STATEMENT_TEXT = "statement.json", "statement.md"
CHECKPOINT, MODEL, DIAGNOSTICS = "checkpoint.pt", "model.pt", "diagnostics.pt"
# what every finished training leaves
TRAINING = (STATEMENT, STATEMENT_TEXT, METRICS, FIGURE, MODEL, DIAGNOSTICS, LEDGER, RECIPE, PROVENANCE)


def of_training(task: str) -> tuple[str, ...]:
    """The files of a finished training: those of every task, its own, and the pictures drawn from them."""
    spec = tasks.load(task)
    drawn = tuple(spec.figures)
    return (*TRAINING, *spec.files, *drawn, *(f"{Path(name).stem}.png" for name in drawn))
