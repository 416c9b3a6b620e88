"""What makes images of codes: the one form that the tasks which train generators know."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot


class Generator(nn.Module):
    """Normal codes with the one-hot class beside them, [N, latent + classes], to images [N, C, H, W] in [0, 1].

    Args:
        latent: how many normal numbers an image is made of. classes: how many there are; 0 makes images of no class.
    """

    def __init__(self, latent: int, classes: int, body: nn.Module):
        super().__init__()
        self.latent, self.classes, self.body = latent, classes, body

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.body(inputs)
        return found

    def inputs(self, labels: Tensor, random: torch.Generator | None = None) -> Tensor:
        """Fresh codes for images of these classes [N]; from torch's global generator, or from one of the CPU."""
        codes = (
            torch.randn(len(labels), self.latent, device=labels.device)
            if random is None
            else torch.randn(len(labels), self.latent, generator=random).to(labels.device)
        )
        return torch.cat([codes, one_hot(labels, self.classes).to(codes.dtype)], dim=1) if self.classes else codes
