"""What fair tasks measure, without torch: points and densities, what codes reveal, and how groups differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError
from wpriv.files import csv_tables


def xy(point: Sequence[float]) -> dict[str, float]:
    """Return the first two coordinates of a point as columns; y is 0 if there is only one."""
    x, y = (*point, 0.0)[:2]
    return {"x": round(float(x), 5), "y": round(float(y), 5)}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write at least one row; all rows have the columns of the first."""
    path.write_text(csv_tables.to_text(list(rows[0]), rows), encoding="utf-8", newline="")


# Logistic regression on codes, in numpy: it measures what a code reveals of its record.

FITTED_SHARE = 0.6
RIDGE = 1.0
# the intercept is hardly penalised, so that the Hessian stays positive definite
INTERCEPT_RIDGE = 1e-6
MAX_STEPS, MAX_HALVINGS = 50, 30
Floats = NDArray[np.float64]


def split(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices to fit on (60 %) and those to predict for; the same at every call."""
    order = np.random.default_rng(0).permutation(count)
    cut = round(FITTED_SHARE * count)
    return order[:cut], order[cut:]


def predict(codes: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Predict whether the label is 1 for the second part of ``split``, by logistic regression on the first part."""
    fitted, predicted = split(len(codes))
    features = codes.astype(np.float64)
    mean, scale = features[fitted].mean(axis=0), features[fitted].std(axis=0)
    features = np.column_stack([(features - mean) / np.where(scale > 0, scale, 1), np.ones(len(features))])
    return np.asarray(features[predicted] @ fit_logistic(features[fitted], labels[fitted]) > 0)


def fit_logistic(x: Floats, y: NDArray[np.int64]) -> Floats:
    """Minimise sum log(1 + exp(-(2y - 1) x w)) + |w|^2 / 2 over w [d] by Newton's method with step halving.

    The last column of ``x`` is constant; its weight, the intercept, is hardly penalised.
    """
    sign = 2.0 * y - 1
    ridge = np.full(x.shape[1], RIDGE)
    ridge[-1] = INTERCEPT_RIDGE

    def cost(w: Floats) -> float:
        return float(np.logaddexp(0, -sign * (x @ w)).sum() + (ridge * w**2).sum() / 2)

    w = np.zeros(x.shape[1])
    current = cost(w)
    for _ in range(MAX_STEPS):
        share = 1 / (1 + np.exp(sign * np.clip(x @ w, -500, 500)))
        slope = ridge * w - x.T @ (sign * share)
        step = np.linalg.solve((x.T * (share * (1 - share))) @ x + np.diag(ridge), slope)
        for _ in range(MAX_HALVINGS):
            if cost(w - step) <= current:
                break
            step = step / 2
        new = cost(w - step)
        w = w - step
        if current - new <= 1e-9 * current:
            break
        current = new
    return w


MEASURES = ("disparate_impact", "parity_gap", "eo0", "eo1", "odds_gap", "od0", "od1")
BINS = 40
POINTS_SHOWN = 1000
Labels = NDArray[np.int64]


def groups(data: Any, part: str = "train", *, by_label: bool = False) -> dict[str, NDArray[np.int64]]:
    """Indices of the records of groups 0 and 1 by name, in ``train`` or ``test``, also split by label (0 first)."""
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
    """``od0``, ``od1``: shares above the antidiagonal by group (Rodriguez-Vitores et al. 2025, Appendix B.2)."""
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
                rows += [{**columns, **xy(point)} for point in members[:POINTS_SHOWN]]
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
