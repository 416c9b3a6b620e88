"""Names of the files in a results folder."""

from __future__ import annotations

from pathlib import Path

from wpriv import tasks

CELLS, TABLE, RECIPE, PROVENANCE = "cells.jsonl", "table.csv", "recipe.yaml", "provenance.json"
# each run of repeated trainings, whose means are in the table
RUNS = "runs.csv"
EXPECT = "expect.json"  # where the recipe has expected numbers
METRICS, FIGURE, LEDGER = "metrics.csv", "figure.png", "ledger.jsonl"
STATEMENT, STATEMENT_TEXT = "statement.json", "statement.md"
CHECKPOINT, MODEL, DIAGNOSTICS = "checkpoint.pt", "model.pt", "diagnostics.pt"
WEIGHTS = "model.safetensors"
AVERAGE = "model-average.safetensors"  # where the recipe averages the weights
# of a training with shard_weights, beside its checkpoint
CHECKPOINT_PARTS = "checkpoint-*-of-*.pt"
# the recipe of the run that a tuned training has kept
CANDIDATE = "candidate.yaml"
# the files of every finished training
TRAINING = (STATEMENT, STATEMENT_TEXT, METRICS, FIGURE, MODEL, WEIGHTS, DIAGNOSTICS, LEDGER, RECIPE, PROVENANCE)


def of_training(task: str, *, averaged: bool = False) -> tuple[str, ...]:
    """Return the files of a finished training: those of every task, those of this task, and their figures.

    Args:
        averaged: the recipe averages the weights.
    """
    spec = tasks.load(task)
    tables = tuple(spec.figures)
    average = (AVERAGE,) if averaged else ()
    return (*TRAINING, *average, *spec.files, *tables, *(f"{Path(name).stem}.png" for name in tables))
