"""Data sets without files, one class each: distributions of known form, drawn with a seed; records of a program."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from wpriv.core.parameters import PluginClass, parameter
from wpriv.errors import UsageError
from wpriv.training.data._dataset import Array, Data

NO_FILES = "It is synthetic; there are no files to get."
NO_PERSONS = "synthetic: no record belongs to a person"


@dataclass(frozen=True)
class Circle(PluginClass):
    """Synthetic points of the plane: normal points, and points of a circle onto which a network is to move them."""

    name = "circle"
    ABOUT = "synthetic, as in wgrad's Appendix C: normal points and points of a circle, two classes"
    GET = NO_FILES
    SOURCE = "synthetic, as in Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix C"
    points: int = parameter("points of each kind to train on", default=100_000, minimum=1)
    tests: int = parameter("points of each kind to test on, drawn independently", default=10_000, minimum=1)
    radius: float = parameter("radius of the circle", default=0.75, exclusive_minimum=0)
    draw_seed: int = parameter("seed of the points (the training's own seed is another)", default=0, minimum=0)

    @staticmethod
    def read(root: Path | None, params: Circle) -> Data:
        """Return [2 points, 2] float32: class ``normal``, N(0, I), then class ``circle``, uniform on a circle around 0.

        ``root`` is not used.

        Source:
            Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix C. The draws are numpy's, not those of the paper.
        """
        x, y = [], []
        for part, count in enumerate((params.points, params.tests)):
            rng = np.random.default_rng([params.draw_seed, part])
            normal, angles = rng.standard_normal((count, 2)), rng.uniform(0, 2 * np.pi, count)
            circle = params.radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            x.append(np.concatenate([normal, circle]).astype(np.float32))
            y.append(np.repeat(np.arange(2), count))
        names, columns = ("normal", "circle"), ("x", "y")
        return Data(params.name, x[0], y[0], x[1], y[1], names, params.SOURCE, notes=(NO_PERSONS,), columns=columns)


@dataclass(frozen=True)
class SyntheticFairness(PluginClass):
    """Synthetic records whose label is correlated with a sensitive attribute, as in wgrad's Appendix B.

    The default parameters are the constants of the paper.
    """

    name = "synthetic-fairness"
    ABOUT = "synthetic, as in wgrad's Appendix B, 16 columns; sensitive: A; response: Y1, Y2"
    GET = NO_FILES
    SOURCE = "synthetic, as in Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix B"
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

    @staticmethod
    def read(root: Path | None, params: SyntheticFairness) -> Data:
        """Return [N, core + spurious] float32, labels Y, groups A, response [N, 2] in [0, 1]; ``root`` is not used.

        The response (Y1, Y2) is uniform on the unit square; Y = 1 above the antidiagonal (Y1 + Y2 > 1); A is Y with
        probability p, else 1 - Y; the core columns are Y1, Y2, Y1, Y2, ... and the spurious ones A, A, ..., each with
        independent normal noise.

        Source:
            Rodriguez-Vitores, Lalanne, Loubes (2025), Appendix B. The draws are numpy's, not those of the paper.
        """
        train, test = (
            _draw_fairness(np.random.default_rng([params.draw_seed, part]), count, params)
            for part, count in enumerate((params.size, params.test_size))
        )
        return Data(
            params.name,
            *train[:2],
            *test[:2],
            classes=("0", "1"),
            source=params.SOURCE,
            notes=(NO_PERSONS,),
            columns=(*(f"core{i}" for i in range(params.core)), *(f"spurious{i}" for i in range(params.spurious))),
            sensitive="A",
            sensitive_train=train[2],
            sensitive_test=test[2],
            response=("Y1", "Y2"),
            response_train=train[3],
            response_test=test[3],
        )


def _draw_fairness(
    rng: np.random.Generator, count: int, params: SyntheticFairness
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


@dataclass(frozen=True)
class Toy(PluginClass):
    """Synthetic low-dimensional distributions of known form, for trying out methods that learn a distribution."""

    name = "toy"
    ABOUT = "synthetic: a Gaussian, a ring of Gaussians, two spirals or two points"
    GET = NO_FILES
    LAWS: ClassVar[tuple[str, ...]] = ("gauss", "ring", "spirals", "ends")
    law: str = parameter(
        "gauss: N(0, spread^2); ring: 8 Gaussians on a circle; spirals; ends: two points", default="gauss", choices=LAWS
    )
    points: int = parameter("training records", default=10_000, minimum=1)
    tests: int = parameter("test records", default=2_000, minimum=1)
    d: int = parameter("numbers of a record; ring and spirals have 2", default=2, minimum=1)
    spread: float = parameter("standard deviation of every Gaussian; 0 gives its centre", default=1.0, minimum=0)
    size: float = parameter("radius of the ring and of the spirals, or of ends", default=1.0, exclusive_minimum=0)
    draw: int = parameter("seed", default=0, minimum=0)

    @staticmethod
    def read(root: Path | None, params: Toy) -> Data:
        """Return [N, d] float32; the label is the Gaussian, arm or end that a record is drawn from."""
        rng = np.random.Generator(np.random.PCG64(params.draw))
        x, y, count = _draw_toy(params, params.points + params.tests, rng)
        source, notes = (
            f"synthetic, drawn with seed {params.draw}",
            (f"synthetic: {params.law}; no record belongs to a person",),
        )
        classes, n = tuple(map(str, range(count))), params.points
        return Data(params.name, x[:n], y[:n], x[n:], y[n:], classes, source, notes=notes)


def _draw_toy(params: Toy, count: int, rng: np.random.Generator) -> tuple[Array, Array, int]:
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


@dataclass(frozen=True)
class Given(PluginClass):
    """The records that were passed to ``wpriv.train`` in Python; a recipe cannot read them.

    What identifies them was computed from them, and belongs into no recipe.
    """

    name = "given"
    ABOUT = "the arrays passed to wpriv.train in Python"
    GET = (
        "Call wpriv.train(model, (x, y), ...) in Python; a recipe names a file, such as {name: arrays, file: mine.npz}."
    )
    OWN = True
    max_per_person: int = parameter("the most records of one person, where a record is a person; else 0", default=0)

    @staticmethod
    def read(root: Path | None, params: Given) -> Data:
        """Refuse: only the Python program that has the arrays can train on them."""
        raise UsageError(
            "this recipe trains on arrays that were passed to wpriv.train in Python, and only that program has them. "
            "Run it again, or save them with numpy.savez and write data: {name: arrays, file: mine.npz}"
        )


READERS = (Circle, SyntheticFairness, Toy, Given)
