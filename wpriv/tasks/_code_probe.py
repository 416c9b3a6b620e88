"""How much of a record its code still tells: logistic regression on codes, in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FITTED = 0.6
RIDGE = 1.0
STEPS, HALVINGS = 50, 30
Floats = NDArray[np.float64]


def split(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places to fit on (60%) and to judge on, always the same."""
    order = np.random.default_rng(0).permutation(count)
    cut = round(FITTED * count)
    return order[:cut], order[cut:]


def chosen(codes: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which codes of the second part of ``split`` are taken for label 1 by a logistic regression fitted to the first part."""
    fit, judge = split(len(codes))
    own = codes.astype(np.float64)
    mean, scale = own[fit].mean(axis=0), own[fit].std(axis=0)
    own = np.column_stack([(own - mean) / np.where(scale > 0, scale, 1), np.ones(len(own))])
    return np.asarray(own[judge] @ logistic(own[fit], labels[fit]) > 0)


def logistic(x: Floats, y: NDArray[np.int64]) -> Floats:
    """The weights [d] that minimise sum log(1 + exp(-(2y - 1) x w)) + |w|^2 / 2, by Newton; the last, the intercept, is not shrunk."""
    sign = 2.0 * y - 1
    shrunk = np.full(x.shape[1], RIDGE)
    shrunk[-1] = 1e-6

    def cost(w: Floats) -> float:
        return float(np.logaddexp(0, -sign * (x @ w)).sum() + (shrunk * w**2).sum() / 2)

    w = np.zeros(x.shape[1])
    at = cost(w)
    for _ in range(STEPS):
        share = 1 / (1 + np.exp(sign * np.clip(x @ w, -500, 500)))
        slope = shrunk * w - x.T @ (sign * share)
        step = np.linalg.solve((x.T * (share * (1 - share))) @ x + np.diag(shrunk), slope)
        for _ in range(HALVINGS):
            if cost(w - step) <= at:
                break
            step = step / 2
        new = cost(w - step)
        w = w - step
        if at - new <= 1e-9 * at:
            break
        at = new
    return w
