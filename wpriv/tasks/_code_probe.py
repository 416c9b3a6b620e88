"""Logistic regression on codes, in numpy: it measures what a code reveals of its record."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
