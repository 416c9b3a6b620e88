"""The scattering transform of two scales: moduli of wavelets, and of wavelets of moduli, averaged. Loads torch."""

from __future__ import annotations

import functools
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
    fine, coarse = _wavelets(tuple(planes.shape[-2:]), orientations, images.device)
    whole, half = (
        tuple(window_weights(length, cell, WINDOW, images, margin=MARGIN, step=step) for length in (height, width))
        for step in (1, 2)
    )
    spectrum = torch.fft.fft2(planes)[:, None]
    first = _modulus(torch.fft.ifft2(spectrum * fine))
    maps = [
        _average(planes[:, None], whole),
        _average(first, whole),
        _average(_modulus(torch.fft.ifft2(_every_second(spectrum, coarse))), half),
    ]
    spectra = torch.fft.fft2(first)
    for number in range(orientations):
        again = _every_second(spectra[:, number : number + 1], coarse)
        maps.append(_average(_modulus(torch.fft.ifft2(again)), half))
    coefficients = torch.cat(maps, dim=1)
    return coefficients.reshape(count, channels, *coefficients.shape[1:])


def _every_second(spectrum: Tensor, transfer: Tensor) -> Tensor:
    """Return the spectrum of every second sample in both directions of a filtered image: the mean over its aliases.

    Args:
        spectrum: [N, 1, H, W]. transfer: [2, 2, L, H / 2, W / 2], the aliases of the filters, as ``_wavelets``.
    Returns:
        [N, L, H / 2, W / 2].
    """
    height, width = transfer.shape[-2:]
    aliases = spectrum.reshape(*spectrum.shape[:-2], 2, height, 2, width)
    result: Tensor = aliases[..., 0, :, 0, :] * transfer[0, 0]
    for down, right in ((0, 1), (1, 0), (1, 1)):
        result.addcmul_(aliases[..., down, :, right, :], transfer[down, right])
    return result


def _modulus(values: Tensor) -> Tensor:
    """Return the absolute values of complex numbers, without the complex intermediate result of ``abs``."""
    parts = torch.view_as_real(values)
    return torch.addcmul(parts[..., 0].square(), parts[..., 1], parts[..., 1]).sqrt_()


def _average(moduli: Tensor, windows: tuple[Tensor, ...]) -> Tensor:
    """Average maps [N, K, H, W] in the windows of cells: [N, K, cells down, cells right]."""
    right = (moduli @ windows[1].T).transpose(-1, -2).contiguous()
    return (right @ windows[0].T).transpose(-1, -2)


@functools.lru_cache(maxsize=8)
def _wavelets(size: tuple[int, int], orientations: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the transfer functions of the wavelets of both scales, for images of ``size`` pixels.

    Returns:
        The fine ones, [L, H, W]; and those of the coarse ones in four parts that alias when every second sample is
        kept, each a quarter of its value: [2, 2, L, H / 2, W / 2].
    """
    fine, coarse = (_morlet_bank(size, scale, orientations).to(device) for scale in (0, 1))
    parts = coarse.reshape(orientations, 2, size[0] // 2, 2, size[1] // 2).permute(1, 3, 0, 2, 4) / 4
    return fine, parts.contiguous()


def _morlet_bank(size: tuple[int, int], scale: int, orientations: int) -> Tensor:
    """Return the transfer functions of the Morlet wavelets of one scale, [orientations, *size] complex64."""
    bank = [
        _morlet(size, 0.8 * 2**scale, 0.75 * math.pi / 2**scale, number, orientations) for number in range(orientations)
    ]
    return torch.stack(bank).to(torch.complex64)


def _morlet(size: tuple[int, int], sigma: float, frequency: float, number: int, orientations: int) -> Tensor:
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
