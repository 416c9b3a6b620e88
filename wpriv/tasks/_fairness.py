"""Two groups of records, measures of how a model treats them, and where its scores lie: numpy, torch-free."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError
from wpriv.tasks import _point_csv

MEASURES = ("disparate_impact", "parity_gap", "eo0", "eo1", "odds_gap", "od0", "od1")
BINS = 40
POINTS = 1000
Labels = NDArray[np.int64]


def groups(data: Any, part: str = "train", *, by_label: bool = False) -> dict[str, NDArray[np.int64]]:
    """The places of the records of groups 0 and 1 by their names; by label those of label 0 first, then those of label 1.

    Args:
        part: ``train`` or ``test``.
    Raises:
        UsageError: there are no two groups, no two classes, or a group has no record.
    """
    of, labels = getattr(data, f"sensitive_{part}"), getattr(data, f"y_{part}")
    if of is None:
        raise UsageError(f"{data.name} has no column of groups; name one by its parameter sensitive")
    if len(data.classes) != 2 or not set(np.unique(of)) <= {0, 1}:
        told = f"{len(data.classes)} classes and {len(np.unique(of))} groups"
        raise UsageError(f"fairness is measured between two groups and for two classes; found {told} in {data.name}")
    found = {}
    for label in [0, 1] if by_label else [None]:
        for group in (0, 1):
            own = (of == group) if label is None else (of == group) & (labels == label)
            name = f"{data.sensitive}={group}" + ("" if label is None else f", label {data.classes[label]}")
            found[name] = np.flatnonzero(own)
    empty = [name for name, places in found.items() if not len(places)]
    if empty:
        raise UsageError(f"{data.name}, {part} set: no record is of group {empty[0]}; nothing can be compared")
    return found


def decisions(chosen: NDArray[np.bool_], groups: Labels, labels: Labels) -> dict[str, float]:
    """How decisions 0 or 1 agree with labels 0 or 1, and differ between groups 0 and 1.

    Returns:
        ``accuracy``; ``disparate_impact`` P(1 | group 0) / P(1 | group 1) and ``parity_gap``, the absolute difference of both;
        ``eo0``, ``eo1``: the same ratio among the records of label 0 or 1, and ``odds_gap``: the larger absolute difference.
        What is not defined (0 / 0, or no such record) is left out; a ratio to 0 is infinite.
    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), (17), (19), (20). The gaps are those of Hardt, Price, Srebro (2016).
    """
    found = {"accuracy": float(np.mean(chosen == (labels == 1)))}
    shares = [_share(chosen, groups == group) for group in (0, 1)]
    found |= {"disparate_impact": _ratio(*shares), "parity_gap": abs(shares[0] - shares[1])}
    gaps = []
    for label in (0, 1):
        own = [_share(chosen, (groups == group) & (labels == label)) for group in (0, 1)]
        found[f"eo{label}"] = _ratio(*own)
        gaps.append(abs(own[0] - own[1]))
    found["odds_gap"] = max(gaps) if not any(map(math.isnan, gaps)) else math.nan
    return {name: value for name, value in found.items() if not math.isnan(value)}


def halves(chosen: NDArray[np.bool_], groups: Labels) -> dict[str, float]:
    """``od0``, ``od1``: the share of each group whose predicted response lies above the antidiagonal (Appendix B.2 of the paper)."""
    found = {f"od{group}": _share(chosen, groups == group) for group in (0, 1)}
    return {name: value for name, value in found.items() if not math.isnan(value)}


def spread(scores: NDArray[Any], groups: Labels, labels: Labels | None) -> list[dict[str, Any]]:
    """Where the scores [n, d] of each group lie: densities over [0, 1] where d = 1, else the first points of each group, d = 2.

    Args:
        labels: [n], to tell the labels apart as well; None for groups alone.
    """
    rows: list[dict[str, Any]] = []
    for label in [None] if labels is None else [0, 1]:
        for group in (0, 1):
            own = scores[(groups == group) if labels is None else (groups == group) & (labels == label)]
            about = {"group": group, **({} if label is None else {"label": label})}
            if scores.shape[1] > 1:
                rows += [{**about, **_point_csv.xy(point)} for point in own[:POINTS]]
                continue
            counts, edges = np.histogram(own[:, 0], BINS, (0.0, 1.0))
            density = counts * BINS / max(len(own), 1)
            rows += [{**about, "x": float(x), "density": float(y)} for x, y in zip(edges[:-1], density, strict=True)]
    return rows


def _share(chosen: NDArray[np.bool_], of: NDArray[np.bool_]) -> float:
    return float(chosen[of].mean()) if of.any() else math.nan


def _ratio(one: float, other: float) -> float:
    if other > 0 or math.isnan(other):
        return one / other
    return math.inf if one > 0 else math.nan
