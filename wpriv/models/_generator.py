"""Generators of labelled images, as the tasks merf, cgan and swd-generate train them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot


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
        """Draw fresh inputs for images of the classes ``labels`` [N].

        Args:
            random: a generator on the CPU to draw from; torch's global generator if None.
        """
        latents = (
            torch.randn(len(labels), self.latent, device=labels.device)
            if random is None
            else torch.randn(len(labels), self.latent, generator=random).to(labels.device)
        )
        return torch.cat([latents, one_hot(labels, self.classes).to(latents.dtype)], dim=1) if self.classes else latents
