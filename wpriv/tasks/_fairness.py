"""Two groups of records, measures of how decisions differ between them, and the distribution of scores; torch-free."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError
from wpriv.tasks import _point_csv

MEASURES = ("disparate_impact", "parity_gap", "eo0", "eo1", "odds_gap", "od0", "od1")
BINS = 40
POINTS_SHOWN = 1000
Labels = NDArray[np.int64]


def groups(data: Any, part: str = "train", *, by_label: bool = False) -> dict[str, NDArray[np.int64]]:
    """Return the indices of the records of groups 0 and 1, by the names of the groups.

    Args:
        part: ``train`` or ``test``. by_label: split groups by label, those of label 0 first.
    Raises:
        UsageError: there are no two groups, no two classes, or a group has no record.
    """
    sensitive, labels = (data.sensitive_train, data.y_train) if part == "train" else (data.sensitive_test, data.y_test)
    if sensitive is None:
        raise UsageError(f"{data.name} has no column of groups; name one by its parameter sensitive")
    if len(data.classes) != 2 or not set(np.unique(sensitive)) <= {0, 1}:
        raise UsageError(
            "fairness is measured between two groups and for two classes; found "
            f"{len(data.classes)} classes and {len(np.unique(sensitive))} groups in {data.name}"
        )
    indices = {}
    for label in [0, 1] if by_label else [None]:
        for group in (0, 1):
            members = (sensitive == group) if label is None else (sensitive == group) & (labels == label)
            name = f"{data.sensitive}={group}" + ("" if label is None else f", label {data.classes[label]}")
            indices[name] = np.flatnonzero(members)
    empty = [name for name, members in indices.items() if not len(members)]
    if empty:
        raise UsageError(f"{data.name}, {part} set: group {empty[0]} has no record to compare with")
    return indices


def decision_measures(decisions: NDArray[np.bool_], groups: Labels, labels: Labels) -> dict[str, float]:
    """Measure how decisions 0 or 1 agree with labels 0 or 1, and how they differ between groups 0 and 1.

    Returns:
        ``accuracy``; ``disparate_impact`` P(1 | group 0) / P(1 | group 1) and ``parity_gap``, the absolute difference
        of the two; ``eo0``, ``eo1``: the same ratio among the records of label 0 or 1, and ``odds_gap``: the larger
        absolute difference. Undefined values (0 / 0, or no such record) are left out; a ratio to 0 is infinite.
    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), (17), (19), (20). The gaps are those of Hardt, Price, Srebro (2016).
    """
    measures = {"accuracy": float(np.mean(decisions == (labels == 1)))}
    shares = [_share(decisions, groups == group) for group in (0, 1)]
    measures |= {"disparate_impact": _ratio(*shares), "parity_gap": abs(shares[0] - shares[1])}
    gaps = []
    for label in (0, 1):
        shares = [_share(decisions, (groups == group) & (labels == label)) for group in (0, 1)]
        measures[f"eo{label}"] = _ratio(*shares)
        gaps.append(abs(shares[0] - shares[1]))
    measures["odds_gap"] = max(gaps) if not any(map(math.isnan, gaps)) else math.nan
    return {name: value for name, value in measures.items() if not math.isnan(value)}


def shares_above_antidiagonal(above: NDArray[np.bool_], groups: Labels) -> dict[str, float]:
    """Return ``od0``, ``od1``: the share of each group whose predicted response lies above the antidiagonal.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix B.2.
    """
    shares = {f"od{group}": _share(above, groups == group) for group in (0, 1)}
    return {name: value for name, value in shares.items() if not math.isnan(value)}


def score_rows(scores: NDArray[Any], groups: Labels, labels: Labels | None) -> list[dict[str, Any]]:
    """Return the distribution of the scores [n, d] of each group as rows of a table.

    For d = 1 densities over [0, 1]; for d = 2 the first points of each group.

    Args:
        labels: [n], to separate the labels as well; None for groups alone.
    """
    rows: list[dict[str, Any]] = []
    for label in [None] if labels is None else [0, 1]:
        for group in (0, 1):
            members = scores[(groups == group) if labels is None else (groups == group) & (labels == label)]
            columns = {"group": group, **({} if label is None else {"label": label})}
            if scores.shape[1] > 1:
                rows += [{**columns, **_point_csv.xy(point)} for point in members[:POINTS_SHOWN]]
                continue
            counts, edges = np.histogram(members[:, 0], BINS, (0.0, 1.0))
            density = counts * BINS / max(len(members), 1)
            rows += [{**columns, "x": float(x), "density": float(y)} for x, y in zip(edges[:-1], density, strict=True)]
    return rows


def _share(decisions: NDArray[np.bool_], members: NDArray[np.bool_]) -> float:
    return float(decisions[members].mean()) if members.any() else math.nan


def _ratio(numerator: float, denominator: float) -> float:
    if denominator > 0 or math.isnan(denominator):
        return numerator / denominator
    return math.inf if numerator > 0 else math.nan
