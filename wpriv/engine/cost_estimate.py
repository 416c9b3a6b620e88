"""What a training will take, guessed without torch: weights, operations and memory of each model, counted from its layers.

Time is a rough guess: one core of 2020 does about so many operations, and as many passes over what is kept. Where the layers of a model are
not told in ``MODELS``, there is no guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Shape = Sequence[int]
OPERATIONS = 70e9  # a second, in products of matrices
NUMBERS = 80e6  # a second, kept and seen again by all that is not a product
WEIGHTS = 70e6  # a second, for their noise and their step
ALONE, CUT = 6e-4, 100e6  # exact sums: seconds of a record that passes by itself, and numbers of its gradient a second
# of what is kept for the backward pass: gradients, and what clipping keeps and builds
OVERHEAD = 3.0
ITSELF = 300e6  # bytes of the program and torch
START, STEP = 5.0, 3e-3  # seconds: until all is loaded and read, and what a step takes beside its numbers


@dataclass(frozen=True)
class Cost:
    """Of a model: its trainable weights; for one record, multiply-adds forward, and numbers of 4 bytes kept for the backward pass."""

    weights: int
    products: int
    kept: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.weights + other.weights, self.products + other.products, self.kept + other.kept)


@dataclass(frozen=True)
class Guess:
    """Of a whole training: seconds of one core, bytes of memory, and how many records go through the model at once."""

    cost: Cost
    seconds: float
    memory: float
    physical: int


def guess(
    cost: Cost,
    *,
    steps: int,
    batch: int,
    private: bool,
    physical: int | None,
    budget: int,
    data: float,
    exact: bool = False,
) -> Guess:
    """What so many steps take, within a factor of about two.

    Args:
        physical: records at once, where they are told. budget: megabytes for a physical batch. data: bytes of the records in memory.
        exact: records pass one by one, and their sum is exact (wpriv/engine/exact_sums.py).
    """
    most = physical or at_once(4.0 * cost.kept, cost.weights, budget)
    # forward, gradients of activations, of weights; book-keeping takes the products of weights twice, norms and sum
    record = (8 if private else 6) * cost.products / OPERATIONS + cost.kept / NUMBERS
    if exact:
        record += ALONE + cost.weights / CUT
    seconds = START + steps * (STEP + batch * record + cost.weights / WEIGHTS)
    held = min(batch, most) * OVERHEAD * 4 * cost.kept + 5 * 4 * cost.weights
    return Guess(cost, seconds, ITSELF + data + held, min(batch, most))


def at_once(kept: float, weights: int, budget: int) -> int:
    """The largest batch that is expected to stay within a budget of megabytes; at least 1.

    Args:
        kept: bytes of one record that are kept for the backward pass. weights: trainable ones, whose gradients a record may get by itself.
    """
    return max(1, int(budget * 1e6 / (OVERHEAD * kept + 4.0 * weights)))


def of(model: str, given: Mapping[str, Any], shape: Shape, classes: int) -> Cost | None:
    """The cost of a model with its parameters on records of a shape; None where its layers are not told here."""
    return MODELS[model](given, shape, classes) + Cost(0, 0, math.prod(shape)) if model in MODELS else None


def _conv(channels: int, width: int, kernel: int, side: int, bias: bool = True) -> Cost:
    """A convolution to [width, side, side]; its output is kept, by itself or as that of the activation after it."""
    products = channels * kernel**2 * width
    return Cost(products + width * bias, products * side**2, width * side**2)


def _pool(width: int, side: int) -> Cost:
    """A max pooling to [width, side, side]: its output, and places of 8 bytes."""
    return Cost(0, 0, 3 * width * side**2)


def _norm(width: int, side: int) -> Cost:
    """A normalisation and the activation beside it keep one more copy of what they see."""
    return Cost(2 * width, 0, width * side**2)


def _linear(inputs: int, outputs: int) -> Cost:
    return Cost((inputs + 1) * outputs, inputs * outputs, outputs)


def _perceptron(*sizes: int) -> Cost:
    return sum((_linear(a, b) for a, b in pairwise(sizes)), Cost(0, 0, 0))


def _mlp(given: Mapping[str, Any], shape: Shape, classes: int) -> Cost:
    return _perceptron(math.prod(shape), *[int(given.get("width", 256))] * int(given.get("depth", 2)), classes)


def _tanh_cnn_28(given: Mapping[str, Any], shape: Shape, classes: int) -> Cost:
    return (
        _conv(shape[0], 16, 8, 14) + _pool(16, 13) + _conv(16, 32, 4, 5) + _pool(32, 4) + _perceptron(512, 32, classes)
    )


def _tanh_cnn_32(given: Mapping[str, Any], shape: Shape, classes: int) -> Cost:
    found, channels = _perceptron(2048, 128, classes), shape[0]
    for width, side in ((32, 32), (64, 16), (128, 8)):
        found += _conv(channels, width, 3, side) + _conv(width, width, 3, side) + _pool(width, side // 2)
        channels = width
    return found


def _yang(shape: Shape, first: int, hidden: tuple[int, int], classes: int) -> Cost:
    """A network of Yang, Qi and Zhou, whose first 5x5 convolution is to images of side ``first``."""
    half, last = first // 2, (first // 2 - 4) // 2
    one = _conv(shape[0], 64, 5, first) + _pool(64, half) + _norm(64, half)
    two = _conv(64, 64, 5, half - 4) + _norm(64, half - 4) + _pool(64, last)
    return one + two + _perceptron(64 * last**2, *hidden, classes)


def _wrn_16_4(given: Mapping[str, Any], shape: Shape, classes: int) -> Cost:
    side, size = shape[1], 16
    found = _conv(shape[0], 16, 3, side, bias=False)
    for stage, width in enumerate((64, 128, 256)):
        for block in range(2):
            before, side = side, side // 2 if stage and not block else side
            found += _norm(size, before) + _conv(size, width, 3, side, bias=False)
            found += _norm(width, side) + _conv(width, width, 3, side, bias=False)
            if size != width:
                found += _conv(size, width, 1, side, bias=False)
            size = width
    return found + _norm(size, side) + _linear(size, classes)


MODELS: dict[str, Callable[[Mapping[str, Any], Shape, int], Cost]] = {
    "logistic": lambda given, shape, classes: _linear(math.prod(shape), classes),
    "mlp": _mlp,
    "tanh-cnn-28": _tanh_cnn_28,
    "tanh-cnn-32": _tanh_cnn_32,
    "grey-cnn": lambda given, shape, classes: _yang(shape, 24, (384, 192), classes),
    "colour-cnn": lambda given, shape, classes: _yang(shape, 28, (384, 384), classes),
    "wrn-16-4": _wrn_16_4,
}
