"""Correlated noise at equal eps: the error of prefix sums, by strategy and by how batches are drawn.

A training of E epochs of b steps releases C x + Z, Z of standard deviation sigma. The prefix sums of its steps, which
are what moved the weights, have the noise of sigma A C^-1, A all ones below the diagonal. Its standard deviation, in
units of the clipping norm, is the *error*: root mean square over the steps, and the largest; at sensitivity 1 without
sampling it is the *loss*. Sigma is the least for (eps, delta) under each way to draw batches, of 1/b of the records on
average:

- ``none``: in a fixed order, the steps of a record b apart;
- ``poisson``: cyclic Poisson sampling of the parts of a strategy with fewer than b bands, which is plain Poisson
  sampling for ``identity``: DP-SGD;
- ``balls-in-bins``: each record in one of b bins, drawn for the whole training; proven for no negative entries.

Source:
    docs/theory/bands.md, Theorems 1 and 2; docs/theory/balls-in-bins.md; McKenna (2024) for error at equal eps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from wpriv import strategies
from wpriv.accounting import build_process, evaluate
from wpriv.accounting.mechanisms.matrix_gauss import MatrixGauss
from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UnknownName, Unsupported, UsageError
from wpriv.numerics import conversions
from wpriv.numerics.arrays import Array
from wpriv.numerics.numbers import rounded
from wpriv.numerics.root_finding import smallest_meeting

LABELS = ("case",)
SHOWN = ("case", "sigma", "mean_error", "max_error", "to_dp_sgd", "eps_lower", "eps_upper")
COLUMNS = (*SHOWN[1:], "sensitivity", "mean_loss", "max_loss")
WHOLE = True
SAMPLINGS = {"none": "no amplification", "poisson": "cyclic Poisson", "balls-in-bins": "balls in bins"}
BASELINE = ("identity", "poisson")
# relative width of a least sigma, and of the brackets by which it is found
RTOL, TOL = 1e-3, 1e-3


@dataclass(frozen=True)
class Params(Parameters):
    """A training, its strategies, and the guarantee or the noise at which they are compared."""

    strategies: str = parameter(
        "strategies, divided by blanks: names of `wpriv.strategies`, or .npy files",
        default="banded:4 blt:3 bisr:4 lambda:0.9",
    )
    sampling: str = parameter("how batches are drawn, divided by blanks", default=" ".join(SAMPLINGS))
    bins: int = parameter("steps of an epoch, b", default=10, minimum=1)
    epochs: int = parameter("epochs, in each of which a record takes part once", default=10, minimum=1)
    eps: float = parameter("eps that every training has", default=1.0, exclusive_minimum=0)
    delta: float = parameter("delta of the guarantee, below 1", default=1e-5, exclusive_minimum=0)
    sigma: float = parameter("instead of eps, the noise of every training; 0 for that of eps", default=0.0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for word in self.sampling.split():
            if word not in SAMPLINGS:
                raise UnknownName("sampling", word, list(SAMPLINGS), place=self.name)
        if not self.strategies.split() or not self.sampling.split() or self.delta >= 1:
            raise UsageError(f"{self.name}: wanted a strategy, a sampling and a delta below 1")
        for text in self.strategies.split():
            if not text.endswith(".npy"):
                strategies.strategy(text, self.steps, self.bins, self.epochs)

    @property
    def steps(self) -> int:
        return self.bins * self.epochs


@dataclass(frozen=True)
class _Matrix:
    """What a table needs of a strategy: errors at noise 1, sensitivity, the longest column, and the bands."""

    text: str
    errors: Array
    sensitivity: float
    column: float
    bands: int


def rows(params: Params) -> list[dict[str, Any]]:
    """A row for each strategy and each sampling for which there is a proof; DP-SGD is the first."""
    baseline = _row(params, _matrix(params, BASELINE[0]), BASELINE[1], 0.0)
    assert baseline is not None
    unit = baseline["mean_error"]
    pairs = [(text, word) for text in params.strategies.split() for word in params.sampling.split()]
    pairs = [pair for pair in pairs if pair != BASELINE]
    matrices = {text: _matrix(params, text) for text, _ in pairs}
    others = [_row(params, matrices[text], word, unit) for text, word in pairs]
    answered = [row for row in [{**baseline, "to_dp_sgd": 1.0}, *others] if row is not None]
    if pairs and len(answered) == 1:
        raise Unsupported(
            "correlated-noise: none of the strategies has a proof under this sampling: cyclic Poisson sampling needs "
            "fewer bands than an epoch has steps. Use the sampling none or balls-in-bins"
        )
    return answered


def _matrix(params: Params, text: str) -> _Matrix:
    if not text.endswith(".npy"):
        ours = strategies.strategy(text, params.steps, params.bins, params.epochs)
        column = float(np.linalg.norm(ours.column))
        return _Matrix(text, ours.errors(), ours.sensitivity(params.bins, params.epochs), column, ours.bands)
    file = MatrixGauss(1.0, text, params.bins)
    matrix = file.matrix()
    singular = not np.all(np.diagonal(matrix))
    if len(matrix) != params.steps or singular:
        rows = f"{len(matrix)} rows{', and a zero on the diagonal' if singular else ''}"
        raise UsageError(
            f"{text}: an invertible matrix of bins x epochs = {params.steps} rows was wanted; found {rows}"
        )
    inverse = solve_triangular(matrix, np.eye(len(matrix)), lower=True)
    figures = file.computed()
    errors = np.linalg.norm(np.cumsum(inverse, axis=0), axis=1)
    return _Matrix(
        text, errors, figures["strategy_sensitivity_upper"], figures["strategy_column"], figures["strategy_bands"]
    )


def _row(params: Params, matrix: _Matrix, word: str, unit: float) -> dict[str, Any] | None:
    """A row; None where there is no proof."""
    if word == "poisson" and matrix.bands > 1 and matrix.bands >= params.bins:
        return None
    if params.sigma:
        sigma, (lower, upper) = params.sigma, _eps(params, matrix, word, params.sigma)
    else:
        sigma, lower, upper = _least_sigma(params, matrix, word)
    mean, largest = float(np.sqrt(np.mean(matrix.errors**2))) * sigma, float(matrix.errors.max()) * sigma
    return {
        "case": f"{matrix.text}, {SAMPLINGS[word]}",
        "strategy": matrix.text,
        "sampling": word,
        "steps": params.steps,
        "delta": params.delta,
        "sigma": sigma,
        "mean_error": mean,
        "max_error": largest,
        "to_dp_sgd": mean / unit if unit else None,
        # that of a sweep over eps is the one that was asked for
        "epsilon": upper if params.sigma else params.eps,
        "eps_lower": lower,
        "eps_upper": upper,
        "sensitivity": matrix.sensitivity,
        "mean_loss": matrix.sensitivity * mean / sigma,
        "max_loss": matrix.sensitivity * largest / sigma,
    }


def _least_sigma(params: Params, matrix: _Matrix, word: str) -> tuple[float, float, float]:
    """The least noise for eps, of as many digits as are shown, and both ends of eps at it.

    It is at most ``RTOL`` above the least where the bracket is narrow. eps is that of the number that is shown.
    """
    # some rounding of the sensitivity is far below the digits
    plain = matrix.sensitivity * conversions.exact(params.eps, params.delta) * (1 + 1e-9)
    if word == "none":
        sigma = rounded(plain, up=True)
        return sigma, *_eps(params, matrix, word, sigma)
    ends: dict[float, tuple[float, float]] = {}

    def excess(sigma: float) -> float:
        shown = rounded(sigma, up=True)
        if shown not in ends:
            ends[shown] = _eps(params, matrix, word, shown)
        return ends[shown][1] - params.eps

    # without amplification it is enough, up to the tolerance of the search
    sigma = rounded(smallest_meeting(excess, plain / 2, rtol=RTOL), up=True)
    return sigma, *ends[sigma]


def _eps(params: Params, matrix: _Matrix, word: str, sigma: float) -> tuple[float, float]:
    """Both ends of eps."""
    if word == "none":
        exact = conversions.epsilon(sigma / matrix.sensitivity, params.delta)
        return exact, exact
    shape: dict[str, object] = {"sigma": sigma, "n": params.steps}
    if word == "poisson":
        bands = {"bands": matrix.bands, "sensitivity": matrix.column}
        spec = {"mech": "gauss", "sampling": "poisson", "rate": 1 / params.bins, **bands, **shape}
    else:
        spec = {"mech": "matrix-gauss", "strategy": matrix.text, "sampling": word, "bins": params.bins, **shape}
    process = build_process.described_steps([spec]).process
    eps = evaluate.ask(evaluate.curve(process, "pld", TOL), delta=params.delta).epsilon
    return eps.lower or 0.0, eps.safe
