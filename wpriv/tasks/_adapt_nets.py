"""Networks and records of domain adaptation, and the gradients that its methods share."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from wpriv.core import registry
from wpriv.data.pair import Pair
from wpriv.engine.clipping.common import clip_factors
from wpriv.errors import UsageError
from wpriv.tasks._adapt_options import RADIUS, TENSORS, Options
from wpriv.tasks._normalisation import normalise, normalised, to_floats

CHUNK = 1000
"""Records that are evaluated at once."""
MAX_SOURCE_EVALUATED = 2000
"""Source records that accuracy is measured on, at most: the first ones."""
DISCRIMINATOR_WIDTH = 100
"""Units of the discriminator's hidden layer; the number of features if that is smaller."""
NORM_NOT_KNOWN = 1e9
"""Stands for the median norm of the source's Jacobians until it is known; it clips nothing."""


class Networks(nn.Module):
    """All that is trained and saved: features, classifier, and the parts that some methods add.

    ``discriminator`` exists for dann and dp-dann, ``fixed`` (the features that the target passes through) for the route
    projections. ``warm`` counts the finished steps on the source alone, ``norm`` is the median norm of the source's
    Jacobians, and ``centre`` and ``scale`` map features to the ball in which they are projected.
    """

    features: nn.Module
    classifier: nn.Module
    discriminator: nn.Module | None
    fixed: nn.Module | None
    warm: Tensor
    norm: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(self, model: nn.Module, like: Tensor, options: Options):
        super().__init__()
        parts = dict(model.named_children())
        if not {"features", "classifier"} <= parts.keys():
            suitable = ", ".join(name for name in registry.names("models") if name.startswith("adapt-"))
            raise UsageError(f"adaptation compares features: take a model with features and a classifier ({suitable})")
        self.features, self.classifier = parts["features"], parts["classifier"]
        with torch.no_grad():
            self.width = int(self.features(like).shape[1])
        hidden = min(DISCRIMINATOR_WIDTH, self.width)
        discriminator = nn.Sequential(nn.Linear(self.width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.discriminator = discriminator if options.method.endswith("dann") else None
        # a separate copy, so that the target passes through nothing that its records have moved
        fixed = options.method == "dp-swd" and options.variant == "sound" and options.route == "projections"
        self.fixed = _frozen_copy(self.features) if fixed else None
        self.register_buffer("warm", torch.zeros((), dtype=torch.int64))
        self.register_buffer("norm", torch.tensor(NORM_NOT_KNOWN))
        self.register_buffer("centre", torch.zeros(self.width))
        self.register_buffer("scale", torch.ones(()))

    def target_logits(self, inputs: Tensor) -> Tensor:
        """Logits of target records."""
        logits: Tensor = self.classifier((self.features if self.fixed is None else self.fixed)(inputs))
        return logits

    def source_logits(self, inputs: Tensor) -> Tensor:
        """Logits of source records."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits

    def into_ball(self, features: Tensor) -> Tensor:
        """Centre features at the source's mean, scale them by a public number and clip them to the radius."""
        scaled = (features - self.centre) * self.scale
        squares = scaled.detach().square().sum(dim=1)
        # features that are not finite, or too long for their square, are those of the middle of the ball
        ball = scaled * clip_factors({"features": squares}, RADIUS).unsqueeze(1)
        return ball.masked_fill(~squares.isfinite().unsqueeze(1), 0.0)


@dataclass
class Adaptation:
    """A training in progress: networks, options, records of both sides as networks take them, and the optimizer.

    Args:
        batch: records of a step on either side. adjacency: of the accounting, "" without privacy.
        clip: norm to which gradients of records are clipped. method: how. exact: sum them without rounding.
        divisor: of sums over the records of a step, where their expected number is not ``batch``.
    """

    nets: Networks
    options: Options
    source: tuple[Tensor, Tensor]
    target: tuple[Tensor, Tensor]
    optimizer: torch.optim.Optimizer
    batch: int
    adjacency: str
    clip: float
    method: str
    exact: bool = False
    divisor: float = 0.0

    @functools.cached_property
    def adversary(self) -> nn.Module:
        """Features and discriminator as one network, the same object at every step."""
        assert self.nets.discriminator is not None
        return nn.Sequential(self.nets.features, self.nets.discriminator)

    def source_batch(self) -> tuple[Tensor, Tensor]:
        """Draw a random batch of the public side: inputs and labels."""
        indices = torch.randint(len(self.source[0]), (self.batch,)).to(self.source[0].device)
        return to_fast_layout(self.source[0][indices]), self.source[1][indices]

    def update(self, gradients: dict[nn.Parameter, Tensor]) -> None:
        """Take one step of the optimizer; weights without a gradient stay."""
        for group in self.optimizer.param_groups:
            for weight in group["params"]:
                weight.grad = gradients.get(weight)
        self.optimizer.step()

    def source_features_and_loss(self) -> tuple[Tensor, Tensor]:
        """Draw a batch of the source; return its features and the classification loss on them."""
        inputs, labels = self.source_batch()
        features = self.nets.features(inputs)
        return features, cross_entropy(self.nets.classifier(features), labels)

    def random_directions(self, like: Tensor) -> Tensor:
        """Draw unit directions [d, k] for features ``like`` [n, d], from torch's global generator, which is saved."""
        normal = torch.randn(like.shape[1], self.options.directions, dtype=torch.float64)
        directions: Tensor = (normal / normal.norm(dim=0)).to(like)
        return directions


def prepare_records(data: Pair, options: Options, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Return inputs and labels of four sets of records.

    Returns:
        The source; the target; the target's test records; the source records on which accuracy is measured, which are
        training records where the source has no test records: they are public.
    """
    public = data.source_set
    evaluated = (public.x_test, public.y_test) if len(public.x_test) else (public.x_train, public.y_train)
    evaluated = (evaluated[0][:MAX_SOURCE_EVALUATED], evaluated[1][:MAX_SOURCE_EVALUATED])
    arrays = [(public.x_train, public.y_train), (data.x_train, data.y_train), (data.x_test, data.y_test), evaluated]
    sets = [(_to_inputs(x, options, device), torch.tensor(y, device=device).long()) for x, y in arrays]
    if not options.standardise:
        return sets
    mean, deviation = sets[0][0].mean(dim=0), sets[0][0].std(dim=0)
    return [((x - mean) / deviation.clamp(min=1e-6), y) for x, y in sets]


def _to_inputs(x: Any, options: Options, device: torch.device) -> Tensor:
    """Records as networks take them, each one transformed independently: divided by its sum, or by public constants."""
    if not options.shares:
        return normalised(x, options.normalise, device)
    inputs = to_floats(x, device)
    inputs = inputs / inputs.flatten(1).sum(dim=1).clamp(min=1e-12).view(-1, *[1] * (inputs.dim() - 1))
    return normalise(inputs, options.normalise)


def validate_networks(nets: Networks, options: Options) -> None:
    """Check that the networks have the dimension, the layers and the tensors that the accounting assumes.

    Raises:
        UsageError: they do not.
    """
    if nets.fixed is not None and nets.width != options.dimension:
        raise UsageError(
            f"options.dimension must be the number of features, {nets.width}, on which the noise depends; "
            f"found {options.dimension}"
        )
    layers = [name for name, _ in nets.features.named_children()]
    unknown = [name for name in options.moves if name not in layers]
    if unknown:
        raise UsageError(
            f"options.moves must name layers of the features ({', '.join(layers)}); found {', '.join(unknown)}"
        )
    if options.moves and not updated_weights(nets, options):
        raise UsageError(f"options.moves names layers without weights: {', '.join(options.moves)}")
    if options.method == "dp-dann" and options.variant == "paper" and nets.discriminator is not None:
        tensors = len([*nets.features.parameters(), *nets.discriminator.parameters()])
        if tensors != TENSORS:
            raise UsageError(
                f"dp-dann as published is accounted for {TENSORS} tensors; this model has {tensors}. "
                "Take one of the models adapt-*"
            )


def updated_weights(nets: Networks, options: Options) -> list[nn.Parameter]:
    """Return the weights of the features that private gradients update: those of ``options.moves``, or all."""
    layers = [layer for name, layer in nets.features.named_children() if not options.moves or name in options.moves]
    return [weight for layer in layers for weight in layer.parameters()]


def loss_gradients(run: Adaptation, loss: Tensor, adversary_loss: Tensor | None = None) -> dict[nn.Parameter, Tensor]:
    """Return the gradients of the classification loss, and of the discriminator's loss where it is given.

    The discriminator descends on its loss, and the features ascend on it, weighted.
    """
    nets = run.nets
    features, classifier = list(nets.features.parameters()), list(nets.classifier.parameters())
    parts = torch.autograd.grad(loss, features + classifier, retain_graph=adversary_loss is not None)
    gradients = dict(zip(features + classifier, parts, strict=True))
    if adversary_loss is None or nets.discriminator is None:
        return gradients
    discriminator = list(nets.discriminator.parameters())
    adversarial = torch.autograd.grad(adversary_loss, features + discriminator)
    for weight, part in zip(features, adversarial, strict=False):
        gradients[weight] = gradients[weight] - run.options.weight * part
    return gradients | dict(zip(discriminator, adversarial[len(features) :], strict=True))


def discriminator_loss(run: Adaptation, features: Tensor, side: float) -> Tensor:
    """Losses [n] of the discriminator on features of the source (side 1) or of the target (side 0)."""
    assert run.nets.discriminator is not None
    logits = run.nets.discriminator(features)[:, 0]
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, side), reduction="none")


def accuracy(logits: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> float:
    """Return the share of records that are classified correctly."""
    with torch.no_grad():
        chunks = zip(torch.split(inputs, CHUNK), torch.split(labels, CHUNK), strict=True)
        return float(sum((logits(to_fast_layout(x)).argmax(dim=1) == y).sum() for x, y in chunks)) / len(labels)


def to_fast_layout(inputs: Tensor) -> Tensor:
    """Store images channels last, in which convolutions are fastest; return rows unchanged."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _frozen_copy(module: nn.Module) -> nn.Module:
    """A copy that is never trained and stays in evaluation mode, without dropout."""
    frozen = copy.deepcopy(module).requires_grad_(False)
    frozen.train = functools.partial(_ignore_mode, frozen)  # type: ignore[method-assign]
    return frozen.eval()


def _ignore_mode(module: nn.Module, mode: bool = True) -> nn.Module:
    return module
