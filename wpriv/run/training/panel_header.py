"""The measures of a training that stand above its panel of a sweep: noise, loss, the terms of the loss, test measures.

They are those that Rodriguez-Vitores, Lalanne and Loubes (2025) print above the histograms of Figures 1 to 12. There
the loss and its terms are of training records; here all measures are of test records, whose values need not be kept
secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv.run.results import file_names, read

COLUMN = "header"
# columns of metrics.csv by the names of the paper; of several fairness measures the first that fits is shown
FIRST_TERMS = {"risk": "L", "reconstruction": "RL"}
LAST = {"core": "RLc", "accuracy": "ACC"}
ALPHA = "options.alpha"


def text(labels: Mapping[str, Any], folder: Path, options: Mapping[str, Any]) -> str:
    """Return the header of a finished training in two parts; empty where its metrics have no distance of two groups.

    Args:
        labels: the values of the sweep. folder: of the training. options: those of the recipe before the sweep.
    """
    metrics = read.table(folder / file_names.METRICS)[-1]
    first = next((name for name in FIRST_TERMS if metrics.get(name) is not None), None)
    alpha = labels.get(ALPHA, options.get("alpha"))
    if first is None or metrics.get("distance") is None or alpha is None:
        return ""
    term, distance = float(metrics[first]), float(metrics["distance"])
    loss = (1 - float(alpha)) * term + float(alpha) * distance
    upper = [("noise", _noise(folder)), ("loss", loss), (FIRST_TERMS[first], term), ("W", distance)]
    fairness = _fairness_names(metrics, labels.get("options.notion", options.get("notion")))
    lower = [
        (name, metrics[column]) for column, name in {**LAST, **fairness}.items() if metrics.get(column) is not None
    ]
    return "; ".join(", ".join(f"{name} {float(value):.3g}" for name, value in line) for line in (upper, lower))


def _noise(folder: Path) -> float:
    """Standard deviation of the noise on each coordinate of a step; 0 without privacy."""
    statement = json.loads((folder / file_names.STATEMENT).read_text(encoding="utf-8"))
    return float((statement.get("noise") or {}).get("standard_deviation", 0.0))


def _fairness_names(metrics: Mapping[str, Any], notion: Any) -> dict[str, str]:
    if metrics.get("od0") is not None:
        return {"od0": "OD0", "od1": "OD1"}
    return {"eo0": "EO0", "eo1": "EO1"} if notion == "odds" else {"disparate_impact": "DI"}
