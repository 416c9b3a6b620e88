"""Oriented energy: the strength of edges of each direction and scale in the cells of a grid. Loads torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

CONTRAST_WINDOW, CONTRAST_FLOOR = 4.0, 0.05
"""The window of the contrast normalisation in pixels, and the contrast (of pixels in [0, 1]) below which it fades."""


def oriented_energy(images: Tensor, *, orientations: int, scales: Sequence[float], cell: int) -> Tensor:
    """Return the oriented energy of images, computed from each image alone.

    For each scale, the gradient of the smoothed image is divided by its root mean square nearby, and shared out among
    directions: the direction t receives the squared positive part of its component along t over its length. The share
    of each direction is averaged in a Gaussian window around each cell, and its square root is taken.

    Args:
        images: [N, C, H, W], pixels in [0, 1]; H and W are multiples of ``cell``.
        orientations: number of directions of the full circle.
        scales: standard deviations of the smoothing, in pixels.
        cell: distance of the centres of neighbouring cells, in pixels; the window has half of it as standard deviation.
    Returns:
        [N, len(scales), orientations * C, H / cell, W / cell], at least 0.
    Source:
        After Dalal, Triggs 2005 (histograms of oriented gradients), with Gaussian windows and smooth directions.
    """
    rows, columns = (window_weights(size, cell, 0.5 * cell, images) for size in images.shape[-2:])
    maps = []
    for scale in scales:
        smooth, slope = _gaussian(scale, images), _gaussian_slope(scale, images)
        along_x, along_y = _separable(images, slope, smooth), _separable(images, smooth, slope)
        squared = along_x.square() + along_y.square()
        nearby = _gaussian(CONTRAST_WINDOW, images)
        contrast = _separable(squared, nearby, nearby).clamp_min(0).sqrt() + CONTRAST_FLOOR
        weight = contrast * (squared.sqrt() + 1e-8)
        energies = []
        for number in range(orientations):
            angle = 2 * math.pi * number / orientations
            component = along_x * math.cos(angle) + along_y * math.sin(angle)
            energies.append(rows @ (component.clamp_min(0).square() / weight) @ columns.T)
        maps.append(torch.cat(energies, dim=1).clamp_min(0).sqrt())
    return torch.stack(maps, dim=1)


def window_weights(size: int, cell: int, sigma: float, like: Tensor, *, margin: int = 0, step: int = 1) -> Tensor:
    """Return the weights of Gaussian windows on a line, [size // cell, number of samples], each summing to 1.

    Args:
        size: pixels of the line. cell: distance of the centres of the windows. sigma: their standard deviation.
        like: gives type and device. margin: pixels before and after the line. step: distance of the samples.
    """
    centres = torch.arange(size // cell, dtype=torch.float64) * cell + (cell - 1) / 2 + margin
    places = torch.arange(0, size + 2 * margin, step, dtype=torch.float64)
    weights = torch.exp(-((places[None] - centres[:, None]) ** 2) / (2 * sigma**2))
    return (weights / weights.sum(dim=1, keepdim=True)).to(like)


def _gaussian(sigma: float, like: Tensor) -> Tensor:
    """Return a Gaussian kernel that sums to 1, cut at three standard deviations."""
    radius = int(3 * sigma + 1)
    places = torch.arange(-radius, radius + 1, dtype=torch.float64)
    kernel = torch.exp(-(places**2) / (2 * sigma**2))
    return (kernel / kernel.sum()).to(like)


def _gaussian_slope(sigma: float, like: Tensor) -> Tensor:
    """Return the kernel of the derivative after smoothing, times sigma: gradients of all scales are of one size."""
    kernel = _gaussian(sigma, like)
    radius = len(kernel) // 2
    return kernel * torch.arange(-radius, radius + 1).to(like) / sigma


def _separable(images: Tensor, along_x: Tensor, along_y: Tensor) -> Tensor:
    """Correlate each channel with a kernel along x and one along y; pixels beyond the edge repeat those at it."""
    count, channels, height, width = images.shape
    margins = (len(along_x) // 2,) * 2 + (len(along_y) // 2,) * 2
    planes = pad(images.reshape(count * channels, 1, height, width), margins, mode="replicate")
    planes = conv2d(conv2d(planes, along_x.view(1, 1, 1, -1)), along_y.view(1, 1, -1, 1))
    return planes.reshape(count, channels, height, width)
