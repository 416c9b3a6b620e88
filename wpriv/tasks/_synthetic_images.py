"""Synthetic images of overlapping shapes, drawn from a fixed seed: they hold no record. Loads torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SEED = 20
SHAPES = 20
SMALLEST, LARGEST = 0.05, 0.5
"""Longer half-axis of a shape over the height of the image."""
CHROMA = 0.1
"""Standard deviation of the colours of a shape around its brightness."""
TEXTURE = 0.2


def synthetic_images(count: int, channels: int, height: int, width: int) -> Tensor:
    """Return images of 1 to 20 opaque ellipses and rounded rectangles, one over the other, on a plain background.

    Positions, directions and brightness are uniform, sizes log-uniform; each shape has a texture whose amplitudes fall
    with the frequency. The images are the same in every call, on the CPU.

    Args:
        count: number of images. channels, height, width: their size; channels share shapes and differ in colour.
    Returns:
        [count, channels, height, width] float32 in [0, 1].
    Source:
        After the dead leaves of Matheron 1968; their statistics are near those of photographs (Lee et al. 2001).
    """
    source = torch.Generator().manual_seed(SEED)
    down, right = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")

    def uniform(*size: int) -> Tensor:
        return torch.rand(count, *size, generator=source)

    images = _colour(uniform(1, 1, 1), channels, source).expand(count, channels, height, width).clone()
    shapes = 1 + (SHAPES * uniform()).long()
    for number in range(SHAPES):
        from_centre = down - height * uniform(1, 1), right - width * uniform(1, 1)
        length = height * SMALLEST * (LARGEST / SMALLEST) ** uniform(1, 1)
        breadth, angle = length * (0.15 + 0.85 * uniform(1, 1)), math.pi * uniform(1, 1)
        along = from_centre[1] * angle.cos() + from_centre[0] * angle.sin()
        across = from_centre[0] * angle.cos() - from_centre[1] * angle.sin()
        power = torch.where(uniform(1, 1) < 0.5, 2.0, 8.0)  # an ellipse, or a rectangle with round corners
        radius = ((along / length).abs() ** power + (across / breadth).abs() ** power) ** (1 / power)
        cover = torch.sigmoid(3 * breadth * (1 - radius)) * (number < shapes)[:, None, None]
        texture = TEXTURE * uniform(1, 1, 1) * _texture(count, height, width, source)[:, None]
        paint = _colour(uniform(1, 1, 1), channels, source) + texture
        images = images * (1 - cover[:, None]) + paint * cover[:, None]
    return images.clamp(0, 1)


def _colour(brightness: Tensor, channels: int, source: torch.Generator) -> Tensor:
    """Return colours [N, channels, 1, 1] around a brightness [N, 1, 1, 1]; one channel has the brightness itself."""
    if channels == 1:
        return brightness
    return brightness + CHROMA * torch.randn(len(brightness), channels, 1, 1, generator=source)


def _texture(count: int, height: int, width: int, source: torch.Generator) -> Tensor:
    """Return fields [count, height, width] of mean 0 and variance 1 whose amplitudes fall as one over the frequency."""
    squared = torch.fft.fftfreq(height)[:, None] ** 2 + torch.fft.rfftfreq(width)[None] ** 2
    amplitudes = (squared + 0.25 / (height * width)) ** -0.5
    shape = (count, *amplitudes.shape)
    spectra = torch.complex(torch.randn(shape, generator=source), torch.randn(shape, generator=source)) * amplitudes
    fields: Tensor = torch.fft.irfft2(spectra, s=(height, width))
    fields = fields - fields.mean(dim=(1, 2), keepdim=True)
    return fields / fields.std(dim=(1, 2), keepdim=True)
