"""Synthetic records whose label is correlated with a sensitive attribute, as in wgrad's Appendix B."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wpriv.core.parameters import Parameters, parameter
from wpriv.data._dataset import Data
from wpriv.errors import UsageError

ABOUT = "synthetic, as in wgrad's Appendix B, 16 columns; sensitive: A; response: Y1, Y2"
SOURCE = "synthetic, as in Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix B"
GET = "It is synthetic; there are no files to get."


@dataclass(frozen=True)
class Params(Parameters):
    """The distribution, by default with the paper's constants, and the numbers of records."""

    size: int = parameter("records to train on", default=30000, minimum=1)
    test_size: int = parameter("records to test on, drawn independently", default=30000, minimum=1)
    agreement: float = parameter("p, the probability that A is Y", default=0.7, minimum=0)
    core: int = parameter("columns that equal the response plus noise; an even number", default=8, minimum=2)
    spurious: int = parameter("columns that equal A plus noise", default=8, minimum=0)
    core_variance: float = parameter("variance of the noise on the core columns", default=0.2, minimum=0)
    spurious_variance: float = parameter("variance of the noise on the spurious columns", default=0.4, minimum=0)
    draw_seed: int = parameter("seed of the records (the training's own seed is another)", default=42, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.agreement > 1 or self.core % 2:
            raise UsageError(
                f"{self.name}: agreement must be a probability and core an even number; "
                f"found agreement {self.agreement:g} and core {self.core}"
            )


def read(root: Path | None, params: Params) -> Data:
    """Return [N, core + spurious] float32, labels Y, groups A, response [N, 2] in [0, 1]; ``root`` is not used.

    The response (Y1, Y2) is uniform on the unit square; Y = 1 above the antidiagonal (Y1 + Y2 > 1); A is Y with
    probability p, else 1 - Y; the core columns are Y1, Y2, Y1, Y2, ... and the spurious ones A, A, ..., each with
    independent normal noise.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix B. The draws are numpy's, not those of the paper.
    """
    counts = (params.size, params.test_size)
    train, test = (
        _sample(np.random.default_rng([params.draw_seed, part]), count, params) for part, count in enumerate(counts)
    )
    return Data(
        name=params.name,
        x_train=train[0],
        y_train=train[1],
        x_test=test[0],
        y_test=test[1],
        classes=("0", "1"),
        source=SOURCE,
        notes=("synthetic: no record belongs to a person",),
        columns=(*(f"core{i}" for i in range(params.core)), *(f"spurious{i}" for i in range(params.spurious))),
        sensitive="A",
        sensitive_train=train[2],
        sensitive_test=test[2],
        response=("Y1", "Y2"),
        response_train=train[3],
        response_test=test[3],
    )


def _sample(
    rng: np.random.Generator, count: int, params: Params
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Draw features, labels, groups and responses of ``count`` records."""
    response = rng.random((count, 2))
    labels = (response.sum(axis=1) > 1).astype(np.int64)
    groups = np.where(rng.random(count) < params.agreement, labels, 1 - labels)
    core, spurious = np.tile(response, params.core // 2), np.repeat(groups[:, None], params.spurious, axis=1)
    means = np.concatenate([core, spurious], axis=1)
    scales = np.sqrt([params.core_variance] * params.core + [params.spurious_variance] * params.spurious)
    features = means + scales * rng.standard_normal(means.shape)
    return features.astype(np.float32), labels, groups, response.astype(np.float32)
