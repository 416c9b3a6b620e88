"""Synthetic points of the plane: normal points, and points of a circle onto which a network is to move them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wpriv.core.parameters import Parameters, parameter
from wpriv.data._dataset import Data

ABOUT = "synthetic, as in wgrad's Appendix C: normal points and points of a circle, two classes"
SOURCE = "synthetic, as in Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix C"
GET = "It is synthetic; there are no files to get."


@dataclass(frozen=True)
class Params(Parameters):
    """Numbers of points, and the circle."""

    points: int = parameter("points of each kind to train on", default=100_000, minimum=1)
    tests: int = parameter("points of each kind to test on, drawn independently", default=10_000, minimum=1)
    radius: float = parameter("radius of the circle", default=0.75, exclusive_minimum=0)
    draw_seed: int = parameter("seed of the points (the training's own seed is another)", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [2 points, 2] float32: class ``normal``, N(0, I), then class ``circle``, uniform on a circle around 0.

    ``root`` is not used.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix C. The draws are numpy's, not those of the paper.
    """
    counts = (params.points, params.tests)
    x_train, x_test = (
        _sample(np.random.default_rng([params.draw_seed, part]), count, params.radius)
        for part, count in enumerate(counts)
    )
    y_train, y_test = (np.repeat(np.arange(2), count) for count in counts)
    notes = ("synthetic: no record belongs to a person",)
    return Data(
        params.name, x_train, y_train, x_test, y_test, ("normal", "circle"), SOURCE, notes=notes, columns=("x", "y")
    )


def _sample(rng: np.random.Generator, count: int, radius: float) -> NDArray[np.float32]:
    """Draw ``count`` normal points, then as many points of the circle."""
    normal, angles = rng.standard_normal((count, 2)), rng.uniform(0, 2 * np.pi, count)
    return np.concatenate([normal, radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)]).astype(np.float32)
