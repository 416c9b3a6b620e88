"""Layers that several models share. Loads torch, so that models import this file in ``build`` only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from wpriv.errors import UsageError

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "selu": nn.SELU, "tanh": nn.Tanh}


def group_norm(name: str, channels: int, groups: int) -> nn.Module:
    """Build a GroupNorm, which normalises each example by its own mean and variance."""
    if channels % groups:
        raise UsageError(f"{name}: groups must divide the {channels} channels; found {groups}")
    return nn.GroupNorm(groups, channels)


class OutputOffset(nn.Module):
    """Last layer of a generator: add a trainable offset to every number, then the logistic function if ``bounded``."""

    def __init__(self, shape: Sequence[int], *, bounded: bool):
        super().__init__()
        self.bounded, self.offset = bounded, nn.Parameter(torch.zeros(tuple(shape)))

    def set_mean(self, mean: Tensor) -> None:
        """Set the offsets so that an input of zeros gives ``mean``; bounded means are clamped to [0.02, 0.98] first."""
        with torch.no_grad():
            self.offset.copy_(torch.logit(mean.clamp(0.02, 0.98)) if self.bounded else mean)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x + self.offset) if self.bounded else x + self.offset


class ToUnitInterval(nn.Module):
    """Map the range [-1, 1] of the hyperbolic tangent to [0, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + 1) / 2


class ResidualBlock(nn.Module):
    """Pre-activation block: twice GroupNorm, ReLU and a 3x3 convolution, added to the shortcut.

    The shortcut is the input, or its 1x1 convolution where the shapes differ.

    Args:
        name: the model, for error messages. groups: of the normalisation. width, to: channels in and out.
        stride: of the first convolution.
    """

    def __init__(self, name: str, groups: int, width: int, to: int, stride: int):
        super().__init__()
        self.norm1, self.norm2 = group_norm(name, width, groups), group_norm(name, to, groups)
        self.conv1 = nn.Conv2d(width, to, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(to, to, 3, padding=1, bias=False)
        self.shortcut = None if width == to and stride == 1 else nn.Conv2d(width, to, 1, stride=stride, bias=False)
        # one module per use, so that the hooks of per-example clipping see each call separately
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        active: Tensor = self.relu1(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        residual: Tensor = self.conv2(self.relu2(self.norm2(self.conv1(active))))
        return residual + shortcut


class Generator(nn.Module):
    """Map normal latents with the one-hot class appended, [N, latent + classes], to images [N, C, H, W] in [0, 1].

    Args:
        latent: normal numbers per image. classes: number of classes; 0 for images without a class. body: the network.
    """

    def __init__(self, latent: int, classes: int, body: nn.Module):
        super().__init__()
        self.latent, self.classes, self.body = latent, classes, body

    def forward(self, inputs: Tensor) -> Tensor:
        images: Tensor = self.body(inputs)
        return images

    def inputs(self, labels: Tensor, random: torch.Generator | None = None) -> Tensor:
        """Draw fresh inputs for images of the classes ``labels`` [N]."""
        latents = (
            torch.randn(len(labels), self.latent, device=labels.device)
            if random is None
            else torch.randn(len(labels), self.latent, generator=random).to(labels.device)
        )
        return torch.cat([latents, one_hot(labels, self.classes).to(latents.dtype)], dim=1) if self.classes else latents


class IntoBall(nn.Module):
    """Map each row x of [N, d] into the open ball of a radius: x / sqrt(1 + |x|^2 / radius^2)."""

    def __init__(self, radius: float):
        super().__init__()
        self.radius = radius

    def forward(self, x: Tensor) -> Tensor:
        return x / (1 + x.square().sum(dim=1, keepdim=True) / self.radius**2).sqrt()


class Autoencoder(nn.Module):
    """``encoder`` maps [N, *shape] to codes [N, code] and ``decoder`` maps codes back; a call returns both results.

    Args:
        shape: of one example. sizes: numbers of an example, units of the encoder's hidden layers, numbers of a code.
        activation: between the layers. sigmoid: bound the reconstructions to [0, 1].
        ball: radius of the ball that codes are mapped into; 0 leaves them unchanged.
        prior: initial mean of the outputs; 0 for none.
    """

    def __init__(
        self, shape: Sequence[int], sizes: Sequence[int], *, activation: str, sigmoid: bool, ball: float, prior: float
    ):
        super().__init__()
        into_ball = [IntoBall(ball)] if ball else []
        self.encoder = nn.Sequential(nn.Flatten(), *_linear_layers(sizes, activation), *into_ball)
        decoder_layers = _linear_layers(sizes[::-1], activation)
        if prior:
            # with a bias of 0 the gradients of all records first agree on enlarging the codes, in place of the bias
            nn.init.constant_(decoder_layers[-1].bias, math.log(prior / (1 - prior)))  # type: ignore[arg-type]
        output = [nn.Sigmoid()] if sigmoid else []
        self.decoder = nn.Sequential(*decoder_layers, *output, nn.Unflatten(1, tuple(shape)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        codes: Tensor = self.encoder(x)
        reconstructions: torch.Tensor = self.decoder(codes)
        return codes, reconstructions


def _linear_layers(sizes: Sequence[int], activation: str) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Linear(sizes[0], sizes[1])]
    for width, next_width in itertools.pairwise(sizes[1:]):
        layers += [ACTIVATIONS[activation](), nn.Linear(width, next_width)]
    return layers
