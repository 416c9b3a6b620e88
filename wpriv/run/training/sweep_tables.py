"""The tables of several trainings: one row for each setting, and with repeated runs one for each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.run.results.means import means
from wpriv.run.training import repeated_runs
from wpriv.run.training.sweep_statement import Finished

Row = dict[str, Any]
# the eps of all runs of a setting together, beside the eps of one run
ALL_RUNS = "epsilon_all_runs"


def is_repeated_only(recipe: Recipe) -> bool:
    """Tell whether a recipe is one setting that is trained several times."""
    assert recipe.training is not None
    return recipe.training.sweep is None


def tables(recipe: Recipe, finished: Sequence[Finished], statement: dict[str, Any]) -> tuple[list[Row], list[Row]]:
    """Return the rows of table.csv and those of runs.csv, which has none unless runs are repeated.

    A row has the labels, the last metrics and the first guarantee. One setting alone has a row for each accountant.

    Args:
        statement: of all trainings.
    """
    assert recipe.training is not None
    alone = is_repeated_only(recipe)
    rows = [
        {**run.labels, **row}
        for run in finished
        for row in (run.trained.results() if alone else run.trained.results()[:1])
    ]
    if repeated_runs.count(recipe) == 1:
        return rows, []
    labels = ["accountant"] if alone else [axis.over for axis in recipe.training.sweep or []]
    costs = {tuple(setting["labels"].items()): setting["epsilon"] for setting in statement["settings"]}
    table = means(rows, labels)
    for row in table:
        cost = costs.get(() if alone else tuple((name, row[name]) for name in labels))
        if cost is not None:
            row[ALL_RUNS] = cost
    return table, rows
