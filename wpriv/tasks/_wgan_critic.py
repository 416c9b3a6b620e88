"""A generator and the critic that it learns from: Wasserstein GAN losses with gradient penalty, with or without labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from wpriv import models
from wpriv.config.field_types import PluginRef
from wpriv.core import registry
from wpriv.errors import UsageError

AT_ONCE = 1000


class Pair(nn.Module):
    """A generator [N, latent (+ classes)] to [N, *shape] and a critic [N, *shape (with a channel more for each class)] to [N, 1].

    Args:
        latent: standard normal numbers that go into the generator. classes: how many labels are told; 0 for none. penalty: its weight.
    """

    steps: Tensor

    def __init__(self, generator: nn.Module, critic: nn.Module, latent: int, classes: int, penalty: float):
        super().__init__()
        self.generator, self.critic = generator, critic
        self.latent, self.classes, self.penalty = latent, classes, penalty
        # steps of the critic: a checkpoint must hold when the generator is next
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def parts(self) -> list[tuple[str, nn.Module]]:
        return [("generator", self.generator), ("critic", self.critic)]

    def latents(self, count: int) -> Tensor:
        """[count, latent] standard normal numbers from torch's global generator."""
        return torch.randn(count, self.latent)

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """[N, *shape] generated records."""
        told = one_hot(labels, self.classes).to(latents.dtype) if self.classes else latents[:, :0]
        found: Tensor = self.generator(torch.cat([latents, told], 1))
        return found

    def made(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Generated records on the CPU, some at a time, by the generator as it is used when training is over."""
        device, was = self.steps.device, self.training
        self.eval()
        with torch.no_grad():
            parts = [
                self(some.to(device), label.to(device)).cpu()
                for some, label in zip(latents.split(AT_ONCE), labels.split(AT_ONCE), strict=True)  # type: ignore[no-untyped-call]
            ]
        self.train(was)
        return torch.cat(parts)

    def critic_loss(self, real: Tensor, labels: Tensor) -> Tensor:
        """mean D(fake) - mean D(real) + penalty * mean (|D's gradient at points between them| - 1)^2, for one fresh fake a record."""
        with torch.no_grad():
            fake = self(self.latents(len(real)).to(real.device), labels)
        share = torch.rand(len(real), *[1] * (real.ndim - 1)).to(real.device)
        between = torch.lerp(real, fake, share).requires_grad_()
        # one pass: a critic does not mix its inputs
        told, among, false = self._judged(torch.cat([real, between, fake]), labels.repeat(3)).chunk(3)
        (slope,) = torch.autograd.grad(among.sum(), between, create_graph=True)
        steep = (slope.flatten(1).norm(dim=1) - 1).square().mean()
        found: Tensor = false.mean() - told.mean() + self.penalty * steep
        return found

    def generator_loss(self, labels: Tensor) -> Tensor:
        """-mean D(fake), for as many fresh fakes as there are labels."""
        fake = self(self.latents(len(labels)).to(labels.device), labels)
        return -self._judged(fake, labels).mean()

    def _judged(self, x: Tensor, labels: Tensor) -> Tensor:
        if self.classes:
            told = one_hot(labels, self.classes).to(x.dtype)
            x = torch.cat([x, told[:, :, None, None].expand(-1, -1, *x.shape[2:]) if x.ndim == 4 else told], 1)
        found: Tensor = self.critic(x)
        return found


def pair(generator: PluginRef, critic: PluginRef, shape: Sequence[int], classes: int, penalty: float) -> Pair:
    """Both networks of a recipe; first weights from torch's global generator.

    Raises:
        UsageError: the first is no generator, or one of them does not fit records of that shape.
    """
    own = registry.params("models", generator.name, generator.parameters())
    if not hasattr(own, "latent"):
        raise UsageError(
            f"wgan trains a generator, and {generator.name} is none; take dcgan-28 for images or mlp-generator"
        )
    latent: int = own.latent
    # labels come in with the latents, and into the critic as channels
    first = models.build(generator.model_copy(update={"latent": latent + classes}), shape, max(classes, 1))
    second = models.build(critic, (shape[0] + classes, *shape[1:]), 1)
    return Pair(first, second, latent, classes, penalty)
