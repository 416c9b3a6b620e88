"""A generator and its critic: Wasserstein GAN losses with gradient penalty, with or without labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from wpriv.config.field_types import PluginRef
from wpriv.papers.tasks._generation import latent_of
from wpriv.training import models
from wpriv.training.engine.job import evaluating

CHUNK = 1000


class GeneratorAndCritic(nn.Module):
    """A generator of records [N, *shape] and a critic of them, to [N, 1].

    The generator's inputs are [N, latent], with the one-hot label appended; the critic's inputs are records with one
    further channel (or number) per class.

    Args:
        latent: standard normal numbers that enter the generator. classes: of the labels; 0 without labels.
        penalty: weight of the gradient penalty.
    """

    steps: Tensor

    def __init__(self, generator: nn.Module, critic: nn.Module, latent: int, classes: int, penalty: float):
        super().__init__()
        self.generator, self.critic = generator, critic
        self.latent, self.classes, self.penalty = latent, classes, penalty
        # steps of the critic, in checkpoints: they determine when the generator is updated next
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def draw_latents(self, count: int) -> Tensor:
        """Draw [count, latent] standard normal numbers from torch's global generator."""
        return torch.randn(count, self.latent)

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Generate records [N, *shape]."""
        columns = one_hot(labels, self.classes).to(latents.dtype) if self.classes else latents[:, :0]
        records: Tensor = self.generator(torch.cat([latents, columns], 1))
        return records

    def generate(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Generate records on the CPU, in chunks and in evaluation mode."""
        device = self.steps.device
        with torch.no_grad(), evaluating(self):
            chunks = zip(latents.split(CHUNK), labels.split(CHUNK), strict=True)  # type: ignore[no-untyped-call]
            parts = [self(latent.to(device), label.to(device)).cpu() for latent, label in chunks]
        return torch.cat(parts)

    def critic_loss(self, real: Tensor, labels: Tensor) -> Tensor:
        """Return mean D(fake) - mean D(real) + penalty * mean (|grad D(between)| - 1)^2.

        One fresh fake per record; ``between`` is a random point of the segment from the record to its fake.
        """
        with torch.no_grad():
            fake = self(self.draw_latents(len(real)).to(real.device), labels)
        share = torch.rand(len(real), *[1] * (real.ndim - 1)).to(real.device)
        between = torch.lerp(real, fake, share).requires_grad_()
        # one pass suffices, as a critic does not mix its inputs
        values = self._critic_values(torch.cat([real, between, fake]), labels.repeat(3))
        of_real, of_between, of_fake = values.chunk(3)
        (slope,) = torch.autograd.grad(of_between.sum(), between, create_graph=True)
        excess = (slope.flatten(1).norm(dim=1) - 1).square().mean()
        loss: Tensor = of_fake.mean() - of_real.mean() + self.penalty * excess
        return loss

    def generator_loss(self, labels: Tensor) -> Tensor:
        """Return -mean D(fake), for one fresh fake per label."""
        fake = self(self.draw_latents(len(labels)).to(labels.device), labels)
        return -self._critic_values(fake, labels).mean()

    def _critic_values(self, x: Tensor, labels: Tensor) -> Tensor:
        if self.classes:
            columns = one_hot(labels, self.classes).to(x.dtype)
            channels = columns[:, :, None, None].expand(-1, -1, *x.shape[2:]) if x.ndim == 4 else columns
            x = torch.cat([x, channels], 1)
        values: Tensor = self.critic(x)
        return values


def build_networks(
    generator: PluginRef, critic: PluginRef, shape: Sequence[int], classes: int, penalty: float
) -> GeneratorAndCritic:
    """Build both networks of a recipe."""
    latent = latent_of(generator, "wgan")
    # labels enter with the latents, and the critic as channels
    with_labels = generator.model_copy(update={"latent": latent + classes})
    generator_network = models.build(with_labels, shape, max(classes, 1))
    critic_network = models.build(critic, (shape[0] + classes, *shape[1:]), 1)
    return GeneratorAndCritic(generator_network, critic_network, latent, classes, penalty)
