"""The scattering transform of two scales: moduli of wavelets, and of wavelets of moduli, averaged. Loads torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from wpriv.tasks._oriented_energy import window_weights

MARGIN = 8
"""Pixels by which images are continued by reflection, so that wavelets do not wrap around."""
WINDOW = 3.2
"""Standard deviation of the averaging in pixels, 0.8 times 2 to the number of scales."""


def scattering(images: Tensor, *, orientations: int, cell: int) -> Tensor:
    """Return the scattering coefficients of orders 0, 1 and 2 at two scales, computed from each image alone.

    With L orientations these are the average, L averages of the modulus at each of two scales, and L^2 averages of
    the modulus at the coarse scale of the moduli at the fine one: 1 + 2 L + L^2 numbers for a channel and a cell.

    Args:
        images: [N, C, H, W]; H and W are even multiples of ``cell``, and more than 8 pixels.
        orientations: L, the directions of the wavelets in half a circle. cell: distance of neighbouring cells, pixels.
    Returns:
        [N, C, 1 + 2 L + L^2, H / cell, W / cell].
    Source:
        Oyallon, Mallat 2015; the wavelets and windows of Andreux et al. 2020 (Kymatio).
    """
    count, channels, height, width = images.shape
    planes = pad(images, (MARGIN,) * 4, mode="reflect").reshape(count * channels, height + 2 * MARGIN, -1)
    size = planes.shape[-2:]
    fine, coarse = (_morlet_bank(size, scale, orientations, images) for scale in (0, 1))
    whole, half = (
        tuple(window_weights(length, cell, WINDOW, images, margin=MARGIN, step=step) for length in (height, width))
        for step in (1, 2)
    )

    def average(moduli: Tensor, windows: tuple[Tensor, ...]) -> Tensor:
        return windows[0] @ moduli @ windows[1].T

    spectrum = torch.fft.fft2(planes)[:, None]
    first = torch.fft.ifft2(spectrum * fine).abs()
    maps = [
        average(planes[:, None], whole),
        average(first, whole),
        average(torch.fft.ifft2(_every_second(spectrum * coarse)).abs(), half),
    ]
    for number in range(orientations):
        again = torch.fft.fft2(first[:, number : number + 1])
        maps.append(average(torch.fft.ifft2(_every_second(again * coarse)).abs(), half))
    coefficients = torch.cat(maps, dim=1)
    return coefficients.reshape(count, channels, *coefficients.shape[1:])


def _every_second(spectrum: Tensor) -> Tensor:
    """Return the spectrum of every second sample in both directions: the mean over its aliases."""
    for axis in (-2, -1):
        low, high = spectrum.chunk(2, dim=axis)
        spectrum = (low + high) / 2
    return spectrum


def _morlet_bank(size: torch.Size, scale: int, orientations: int, like: Tensor) -> Tensor:
    """Return the transfer functions of the Morlet wavelets of one scale, [orientations, *size]."""
    bank = [
        _morlet(size, 0.8 * 2**scale, 0.75 * math.pi / 2**scale, number, orientations) for number in range(orientations)
    ]
    return torch.stack(bank).to(like)


def _morlet(size: torch.Size, sigma: float, frequency: float, number: int, orientations: int) -> Tensor:
    """Return the real transfer function of a Morlet wavelet: a wave under a Gaussian, corrected to the mean 0.

    Args:
        size: of the image in pixels, both even. sigma: standard deviation along the wave in pixels.
        frequency: of the wave in radians per pixel. number: of its direction among ``orientations``.
    """
    angle, slant = math.pi * number / orientations, 4 / orientations
    down, right = torch.meshgrid(
        *(torch.arange(length, dtype=torch.float64) - length // 2 for length in size), indexing="ij"
    )
    along = math.cos(angle) * right + math.sin(angle) * down
    across = math.cos(angle) * down - math.sin(angle) * right
    window = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
    wave = torch.exp(1j * frequency * along) * window
    wavelet = (wave - wave.sum() / window.sum() * window) * (slant / (2 * math.pi * sigma**2))
    transfer: Tensor = torch.fft.fft2(torch.fft.ifftshift(wavelet)).real
    return transfer
