"""Synthetic low-dimensional distributions of known form, for trying out methods that learn a distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.data._dataset import Array, Data

ABOUT = "synthetic: a Gaussian, a ring of Gaussians, two spirals or two points"
GET = "It is synthetic; there are no files to get."
LAWS = ("gauss", "ring", "spirals", "ends")


@dataclass(frozen=True)
class Params(Parameters):
    """The distribution, and the numbers of records."""

    law: str = parameter(
        "gauss: N(0, spread^2); ring: 8 Gaussians on a circle; spirals; ends: two points", default="gauss", choices=LAWS
    )
    points: int = parameter("training records", default=10_000, minimum=1)
    tests: int = parameter("test records", default=2_000, minimum=1)
    d: int = parameter("numbers of a record; ring and spirals have 2", default=2, minimum=1)
    spread: float = parameter("standard deviation of every Gaussian; 0 gives its centre", default=1.0, minimum=0)
    size: float = parameter("radius of the ring and of the spirals, or of ends", default=1.0, exclusive_minimum=0)
    draw: int = parameter("seed", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, d] float32; the label is the Gaussian, arm or end that a record is drawn from."""
    rng = np.random.Generator(np.random.PCG64(params.draw))
    x, y, classes = _sample(params, params.points + params.tests, rng)
    return Data(
        name=params.name,
        x_train=x[: params.points],
        y_train=y[: params.points],
        x_test=x[params.points :],
        y_test=y[params.points :],
        classes=tuple(str(k) for k in range(classes)),
        source=f"synthetic, drawn with seed {params.draw}",
        notes=(f"synthetic: {params.law}; no record belongs to a person",),
    )


def _sample(params: Params, count: int, rng: np.random.Generator) -> tuple[Array, Array, int]:
    """Draw records and labels; also returns the number of classes."""
    d = 2 if params.law in ("ring", "spirals") else params.d
    classes = {"gauss": 1, "ring": 8, "spirals": 2, "ends": 2}[params.law]
    y = rng.integers(0, classes, count)
    centre = np.zeros((count, d))
    if params.law == "ring":
        angle = 2 * math.pi * y / classes
        centre = params.size * np.stack([np.cos(angle), np.sin(angle)], 1)
    elif params.law == "spirals":
        turn = 3 * math.pi * np.sqrt(rng.random(count))
        centre = (params.size * turn / (3 * math.pi))[:, None] * np.stack(
            [np.cos(turn + math.pi * y), np.sin(turn + math.pi * y)], 1
        )
    elif params.law == "ends":
        centre[:, 0] = params.size * (2 * y - 1)
    return (centre + params.spread * rng.normal(size=(count, d))).astype(np.float32), y.astype(np.int64), classes
