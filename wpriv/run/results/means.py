"""Means over repeated trainings, with the standard deviations of what was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from wpriv.config.schema import BOUND_COLUMNS

Row = dict[str, Any]
# the column that tells the runs of one setting apart, numbered from 1
RUN = "run"
# columns of a table of means: the number of runs, and the end of the names of standard deviations
SEEDS, DEVIATION = "seeds", "_sd"
# not measured: the same for all runs of a setting, or, of eps by observed distances, as large as that of the worst run
_PLANNED = (*BOUND_COLUMNS, "epoch", "step", "sigma", "noise", "n")
# the columns by which rows of metrics of several trainings are of the same moment of the same setting
MOMENT = ("panel", "case", "epoch", "step")


def means(rows: Iterable[Row], labels: Sequence[str]) -> list[Row]:
    """Return one row for each group of rows that agree in some columns: means of what was measured, with deviations.

    A column ``accuracy`` gets a column ``accuracy_sd`` beside it, the standard deviation of a single run estimated
    from the n runs of the group (the root of the sum of squared deviations over n - 1; none for n = 1). ``seeds`` is n.
    A quantity that some run lacks, or that is not finite, has no mean. Bounds on eps and delta are the largest, and
    their lower ends the least, of the runs.

    Args:
        labels: the columns that tell the groups apart, which are kept.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in labels), []).append(row)
    return [_mean(group, labels) for group in groups.values()]


def _mean(rows: list[Row], labels: Sequence[str]) -> Row:
    mean: Row = {name: rows[0][name] for name in labels if name in rows[0]}
    mean[SEEDS] = len(rows)
    for name in dict.fromkeys(name for row in rows for name in row if name not in (*labels, RUN)):
        values = [row.get(name) for row in rows]
        if name in _PLANNED:
            mean[name] = _worst(name, values)
        elif all(isinstance(value, (int, float)) and math.isfinite(value) for value in values):
            mean[name] = statistics.fmean(values)  # type: ignore[arg-type]
            if len(rows) > 1 and name != "seconds":
                mean[name + DEVIATION] = statistics.stdev(values)  # type: ignore[type-var]
        else:
            mean[name] = values[0] if all(isinstance(value, str) and value == values[0] for value in values) else None
    return mean


def _worst(name: str, values: list[Any]) -> Any:
    """The value that holds for every run; None where one has none."""
    if any(not isinstance(value, (int, float)) for value in values):
        return None
    return (min if name.endswith("_lower") else max)(values)
