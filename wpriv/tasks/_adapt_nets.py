"""What domain adaptation trains and on what: networks, records of both sides, and the gradients that all methods share."""

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
from wpriv.tasks._normalisation import floats, normalised

AT_ONCE = 1000
OF_SOURCE = 2000
"""Source records that are measured on, at most: the first ones."""
HIDDEN = 100
"""Units of the discriminator's hidden layer, or as many as there are features where these are fewer."""
FIRST = 1e9
"""A norm that clips nothing, until the source's are known."""


class Networks(nn.Module):
    """What is trained and saved: features, classifier, a discriminator where there is one, the target's own features where they are fixed.

    ``warm`` counts the steps on the source that are over; ``norm`` is the median norm of the source's Jacobians; ``centre`` and ``scale``
    bring features to the ball in which they are projected.
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
        if not isinstance(getattr(model, "features", None), nn.Module) or not isinstance(
            getattr(model, "classifier", None), nn.Module
        ):
            told = ", ".join(name for name in registry.names("models") if name.startswith("adapt-"))
            raise UsageError(
                f"adaptation compares features: take a model with features and a classifier of them ({told})"
            )
        self.features, self.classifier = model.features, model.classifier  # type: ignore[assignment]
        with torch.no_grad():
            self.width = int(self.features(like).shape[1])
        hidden = min(HIDDEN, self.width)
        adversary = nn.Sequential(nn.Linear(self.width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.discriminator = adversary if options.method.endswith("dann") else None
        # a copy of its own, so that the target passes through nothing that its records have moved
        fixed = options.method == "dp-swd" and options.variant == "sound" and options.route == "projections"
        self.fixed = _copy(self.features) if fixed else None
        self.register_buffer("warm", torch.zeros((), dtype=torch.int64))
        self.register_buffer("norm", torch.tensor(FIRST))
        self.register_buffer("centre", torch.zeros(self.width))
        self.register_buffer("scale", torch.ones(()))

    def of_target(self, inputs: Tensor) -> Tensor:
        """Logits of target records."""
        found: Tensor = self.classifier((self.features if self.fixed is None else self.fixed)(inputs))
        return found

    def of_source(self, inputs: Tensor) -> Tensor:
        """Logits of source records."""
        found: Tensor = self.classifier(self.features(inputs))
        return found

    def in_ball(self, features: Tensor) -> Tensor:
        """Features about the source's centre, scaled by a public number and clipped to the radius."""
        found = (features - self.centre) * self.scale
        return found * clip_factors({"features": found.detach().square().sum(dim=1)}, RADIUS).unsqueeze(1)


@dataclass
class Work:
    """Networks, options, records of both sides ready for the networks, and the optimizer of all weights."""

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

    @functools.cached_property
    def adversary(self) -> nn.Module:
        """Features and discriminator as one network, the same object at every step."""
        assert self.nets.discriminator is not None
        return nn.Sequential(self.nets.features, self.nets.discriminator)

    def of_source(self) -> tuple[Tensor, Tensor]:
        """A random batch of the public side."""
        drawn = torch.randint(len(self.source[0]), (self.batch,)).to(self.source[0].device)
        return images(self.source[0][drawn]), self.source[1][drawn]

    def step(self, gradients: dict[nn.Parameter, Tensor]) -> None:
        """Moves all weights that have a gradient."""
        for group in self.optimizer.param_groups:
            for weight in group["params"]:
                weight.grad = gradients.get(weight)
        self.optimizer.step()

    def classified(self) -> tuple[Tensor, Tensor]:
        """Features of a batch of the source, and the loss of the classifier on them."""
        inputs, labels = self.of_source()
        features = self.nets.features(inputs)
        return features, cross_entropy(self.nets.classifier(features), labels)

    def directions(self, like: Tensor) -> Tensor:
        """[d, k] fresh directions, from torch's global generator as it is drawn from and saved."""
        drawn = torch.randn(like.shape[1], self.options.directions, dtype=torch.float64)
        found: Tensor = (drawn / drawn.norm(dim=0)).to(like)
        return found


def ready(data: Pair, options: Options, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Inputs and labels of the source, of the target, of the target's held-out records, and of the source records it is measured on."""
    public = data.source_set
    # where all of the source is for training, it is measured on that: it is public
    measured = (public.x_test, public.y_test) if len(public.x_test) else (public.x_train, public.y_train)
    measured = (measured[0][:OF_SOURCE], measured[1][:OF_SOURCE])
    pairs = [(public.x_train, public.y_train), (data.x_train, data.y_train), (data.x_test, data.y_test), measured]
    found = [(_prepared(x, options, device), torch.tensor(y, device=device).long()) for x, y in pairs]
    if not options.standardise:
        return found
    mean, deviation = found[0][0].mean(dim=0), found[0][0].std(dim=0)
    return [((x - mean) / deviation.clamp(min=1e-6), y) for x, y in found]


def _prepared(x: Any, options: Options, device: torch.device) -> Tensor:
    """Records as the networks take them, each by itself: divided by its own sum, or normalised by public numbers."""
    inputs = floats(x, device)
    if options.shares:
        inputs = inputs / inputs.flatten(1).sum(dim=1).clamp(min=1e-12).view(-1, *[1] * (inputs.dim() - 1))
    return normalised(inputs, options.normalise)


def refuse(nets: Networks, options: Options) -> None:
    """Sees to it that what is accounted is what the networks have."""
    if nets.fixed is not None and nets.width != options.dimension:
        raise UsageError(
            f"options.dimension must be that of the features, {nets.width}, on which the noise hangs; found {options.dimension}"
        )
    known = [name for name, _ in nets.features.named_children()]
    wrong = [name for name in options.moves if name not in known]
    if wrong:
        raise UsageError(f"options.moves names layers of the features, of {', '.join(known)}; found {', '.join(wrong)}")
    if options.moves and not moved(nets, options):
        raise UsageError(f"options.moves names layers without weights: {', '.join(options.moves)}")
    if options.method == "dp-dann" and options.variant == "paper" and nets.discriminator is not None:
        tensors = len([*nets.features.parameters(), *nets.discriminator.parameters()])
        if tensors != TENSORS:
            raise UsageError(
                f"dp-dann as published is accounted for {TENSORS} tensors; this model has {tensors}. Take an adapt- model"
            )


def moved(nets: Networks, options: Options) -> list[nn.Parameter]:
    """The weights of the features that a private gradient moves."""
    chosen = [layer for name, layer in nets.features.named_children() if not options.moves or name in options.moves]
    return [weight for layer in chosen for weight in layer.parameters()]


def gradients(work: Work, loss: Tensor, adversary: Tensor | None = None) -> dict[nn.Parameter, Tensor]:
    """Gradients of the classification loss; with the discriminator's loss, it descends on that and the features climb it."""
    nets = work.nets
    features, classifier = list(nets.features.parameters()), list(nets.classifier.parameters())
    mine = torch.autograd.grad(loss, features + classifier, retain_graph=adversary is not None)
    found = dict(zip(features + classifier, mine, strict=True))
    if adversary is None or nets.discriminator is None:
        return found
    discriminator = list(nets.discriminator.parameters())
    theirs = torch.autograd.grad(adversary, features + discriminator)
    for weight, part in zip(features, theirs, strict=False):
        found[weight] = found[weight] - work.options.weight * part
    return found | dict(zip(discriminator, theirs[len(features) :], strict=True))


def side_loss(work: Work, features: Tensor, side: float) -> Tensor:
    """The discriminator's loss [n] on features of the source (1) or of the target (0)."""
    assert work.nets.discriminator is not None
    found = work.nets.discriminator(features)[:, 0]
    return binary_cross_entropy_with_logits(found, torch.full_like(found, side), reduction="none")


def accuracy(logits: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> float:
    """The share of records that are labelled rightly."""
    with torch.no_grad():
        parts = zip(torch.split(inputs, AT_ONCE), torch.split(labels, AT_ONCE), strict=True)
        return float(sum((logits(images(x)).argmax(dim=1) == y).sum() for x, y in parts)) / len(labels)


def images(inputs: Tensor) -> Tensor:
    """Images in the layout in which convolutions are fastest; rows as they are."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _copy(module: nn.Module) -> nn.Module:
    """A copy that is never trained and drops nothing."""
    found = copy.deepcopy(module).requires_grad_(False)
    found.train = functools.partial(_stay, found)  # type: ignore[method-assign]
    return found.eval()


def _stay(module: nn.Module, mode: bool = True) -> nn.Module:
    return module
