"""Records as networks take them: normalised, or the fixed features of images, by filters. Loads torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d, group_norm, pad

from wpriv.errors import UsageError
from wpriv.training.tasks._image_features import Features, Normalise, feature_count

# images whose features are computed at once
CHUNK = 200
# the least deviation by which a map is divided, where synthetic images hardly vary in it
DEVIATION_FLOOR = 1e-6
# of local normalisation: what is added to the deviation in a cell, and to scattering of order 1 where it divides
CELL_FLOOR, FIRST_ORDER_FLOOR = 0.3, 0.01


def to_floats(x: NDArray[Any], device: torch.device) -> Tensor:
    """Copy records, which may be mapped from a file, to the device as float32; bytes are divided by 255."""
    inputs = torch.tensor(x, device=device)
    return inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()


def normalised(x: NDArray[Any], constants: Normalise | None, device: torch.device) -> Tensor:
    """Copy records to the device, normalise them, and return them as float32; float64 is rounded after that."""
    if x.dtype != "float64" or constants is None:
        return normalise(to_floats(x, device), constants)
    return normalise(torch.tensor(x, device=device), constants).float()


def normalise(inputs: Tensor, constants: Normalise | None) -> Tensor:
    """Normalise records [N, C, ...] by channel; return them unchanged without constants."""
    if constants is None:
        return inputs
    for name, values in (("mean", constants.mean), ("std", constants.std)):
        if len(values) not in (1, inputs.shape[1]):
            raise UsageError(
                f"options: normalise: {name} must have one number, or one for each of the {inputs.shape[1]} channels "
                f"or columns of a record; found {len(values)}"
            )
    shape = (1, -1, *[1] * (inputs.dim() - 2))
    mean, std = (
        torch.tensor(values, dtype=inputs.dtype, device=inputs.device).view(shape)
        for values in (constants.mean, constants.std)
    )
    return (inputs - mean) / std


# --- the features of images, a few at a time ---


def rows_of_images(images: Tensor, features: Features, constants: Normalise | None = None) -> Tensor:
    """Return the features of images [N, C, H, W], as ``image_features``, on their device: [N, D] float32.

    Args:
        constants: by which the images have been normalised; synthetic images are normalised alike.
    """
    rows = torch.empty(len(images), feature_count(features, images.shape[1:]), device=images.device)
    shape = tuple(images.shape[1:])
    fixed = None
    if features.decorrelate:
        fixed = _fixed_map(features.model_dump_json(), constants and constants.model_dump_json(), shape, images.device)
    with torch.no_grad():
        for first in range(0, len(images), CHUNK):
            chunk = images[first : first + CHUNK]
            part = _rows_of_few(chunk, features)
            if features.mirror:
                part = (part + _rows_of_few(chunk.flip(-1), features)) / 2
            rows[first : first + CHUNK] = part if fixed is None else fixed(part)
    return rows


@functools.lru_cache(maxsize=2)
def _fixed_map(
    features: str, constants: str | None, shape: tuple[int, int, int], device: torch.device
) -> Callable[[Tensor], Tensor]:
    """Return the fixed map that scales and decorrelates features, given as JSON, of images of one shape.

    It is computed on the CPU in every case, so that a network meets the same features on every device.
    """
    parsed = Features.model_validate_json(features)
    images = synthetic_images(parsed.decorrelate or 0, *shape)
    if constants is not None:
        images = normalise(images, Normalise.model_validate_json(constants))
    # what is left of the features is the part that depends on the image alone
    alone = parsed.model_copy(update={"decorrelate": None})
    with torch.no_grad():
        rows = rows_of_images(images, alone)
        if parsed.scaling == "image":
            return of_rows(rows).to(device)
        # of the map of each feature over all cells and rows
        cells = (shape[1] // parsed.cell) * (shape[2] // parsed.cell)
        deviations = rows.reshape(len(rows), -1, cells).std(dim=(0, 2)).clamp_min(DEVIATION_FLOOR)
        deviations = deviations.repeat_interleave(cells)
        decorrelation = of_rows(rows.div_(deviations)).to(device)
        divisors = deviations.to(device)
    return lambda part: decorrelation(part / divisors)


def _rows_of_few(images: Tensor, features: Features) -> Tensor:
    """Return the features of a few images before those of synthetic images come in, [N, D]."""
    size = features.orientations
    if features.opponent:
        images = _opponent_colours(images)
    if features.name == "oriented-energy":
        maps = oriented_energy(images, orientations=size, scales=features.scales, cell=features.cell)
    else:
        maps = scattering(images, orientations=size, cell=features.cell)
        if features.local:
            maps = _relative_to_first_order(maps, size)
        if features.scaling == "synthetic":
            maps = torch.cat([maps[:, :, :1], maps[:, :, 1:].clamp_min(0).sqrt()], dim=2)
    maps = maps.flatten(1, 2)
    if features.scaling == "synthetic":
        return maps.flatten(1)
    if features.local:
        maps = group_norm(maps, maps.shape[1])
        centred = maps - maps.mean(dim=1, keepdim=True)
        return (centred / (centred.square().mean(dim=1, keepdim=True).sqrt() + CELL_FLOOR)).flatten(1)
    # one group for each scale, or for each L + 1 of the (L + 1)^2 coefficients of scattering
    groups = len(features.scales) if features.name == "oriented-energy" else images.shape[1] * (size + 1)
    return group_norm(maps, groups).flatten(1)


def _opponent_colours(images: Tensor) -> Tensor:
    """Return images [N, 3, H, W] along three orthogonal axes of length 1 of the space of red, green and blue."""
    axes = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [-0.5, 1.0, -0.5]], device=images.device)
    return torch.einsum("kc,nchw->nkhw", axes / axes.norm(dim=1, keepdim=True), images)


def _relative_to_first_order(maps: Tensor, orientations: int) -> Tensor:
    """Divide scattering of order 2 by the fine scattering of order 1 from which it comes: [N, C, K, H, W]."""
    first, second = maps[:, :, : 1 + 2 * orientations], maps[:, :, 1 + 2 * orientations :]
    divisors = maps[:, :, 1 : 1 + orientations, None] + FIRST_ORDER_FLOOR
    by_first = second.reshape(*maps.shape[:2], orientations, orientations, *maps.shape[-2:])
    return torch.cat([first, (by_first / divisors).flatten(2, 3)], dim=2)


# --- decorrelation of features by the second moments of those of synthetic images ---


@dataclass(frozen=True)
class Decorrelation:
    """A fixed linear map of rows of features; the function ``of_rows`` builds it from public rows."""

    mean: Tensor
    directions: Tensor
    shrinkage: Tensor
    scale: float

    def __call__(self, rows: Tensor) -> Tensor:
        """Return (C + r)^(-1/2) (row - mean) for each row [N, D], with C and r of ``of_rows``."""
        centred = rows - self.mean
        return (centred - ((centred @ self.directions) * self.shrinkage) @ self.directions.T) / self.scale

    def to(self, device: torch.device) -> Decorrelation:
        """Return the same map on a device."""
        return Decorrelation(self.mean.to(device), self.directions.to(device), self.shrinkage.to(device), self.scale)


def of_rows(rows: Tensor) -> Decorrelation:
    """Return the map that makes features like the given rows nearly uncorrelated.

    With the covariance C of the rows and the mean r of its eigenvalues, the map is (C + r)^(-1/2) after the mean is
    taken away. Directions in which the features vary much are thus shrunk to a variance of about 1, and those in which
    they vary little keep a small one. C has at most as many directions as there are rows, so that D may be larger.

    Args:
        rows: [M, D] features of images that hold no private record, M at least 2.
    """
    mean = rows.mean(dim=0)
    centred = (rows - mean) / len(rows) ** 0.5
    values, vectors = torch.linalg.eigh((centred @ centred.T).double())
    kept = values > 1e-6 * values[-1]
    values, vectors = values[kept].float(), vectors[:, kept].float()
    directions = centred.T @ vectors / values.sqrt()
    ridge = values.sum() / rows.shape[1]
    shrinkage = 1 - (ridge / (values + ridge)).sqrt()
    return Decorrelation(mean, directions, shrinkage, float(ridge.sqrt()))


# --- oriented energy: the strength of edges of each direction and scale in the cells of a grid ---

# the window of the contrast normalisation in pixels, and the contrast (of pixels in [0, 1]) below which it fades
CONTRAST_WINDOW, CONTRAST_FLOOR = 4.0, 0.05


def oriented_energy(images: Tensor, *, orientations: int, scales: Sequence[float], cell: int) -> Tensor:
    """Return the oriented energy of images, computed from each image alone.

    For each scale, the gradient of the smoothed image is divided by its root mean square nearby, and shared out among
    directions: the direction t receives the squared positive part of its component along t over its length. The share
    of each direction is averaged in a Gaussian window around each cell, and its square root is taken.

    Args:
        images: [N, C, H, W], pixels in [0, 1]; H and W are multiples of ``cell``.
        orientations: number of directions of the full circle. scales: standard deviations of the smoothing, in pixels.
        cell: distance of the centres of neighbouring cells, in pixels; the window has half of it as standard deviation.
    Returns:
        [N, len(scales), orientations * C, H / cell, W / cell], at least 0.
    Source: After Dalal, Triggs 2005 (histograms of oriented gradients), with Gaussian windows and smooth directions.
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


# --- the scattering transform of two scales: moduli of wavelets, and of wavelets of moduli, averaged ---

# pixels by which images are continued by reflection, so that wavelets do not wrap around
MARGIN = 8
# standard deviation of the averaging in pixels, 0.8 times 2 to the number of scales
WINDOW = 3.2


def scattering(images: Tensor, *, orientations: int, cell: int) -> Tensor:
    """Return the scattering coefficients of orders 0, 1 and 2 at two scales, computed from each image alone.

    With L orientations these are the average, L averages of the modulus at each of two scales, and L^2 averages of
    the modulus at the coarse scale of the moduli at the fine one: 1 + 2 L + L^2 numbers for a channel and a cell.

    Args:
        images: [N, C, H, W]; H and W are even multiples of ``cell``, and more than 8 pixels.
        orientations: L, the directions of the wavelets in half a circle. cell: distance of neighbouring cells, pixels.
    Returns:
        [N, C, 1 + 2 L + L^2, H / cell, W / cell].
    Source: Oyallon, Mallat 2015; the wavelets and windows of Andreux et al. 2020 (Kymatio).
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


# --- synthetic images of overlapping shapes, drawn from a fixed seed: they hold no record ---

SEED = 20
SHAPES = 20
# longer half-axis of a shape over the height of the image
SMALLEST, LARGEST = 0.05, 0.5
# standard deviation of the colours of a shape around its brightness
CHROMA = 0.1
TEXTURE = 0.2


def synthetic_images(count: int, channels: int, height: int, width: int) -> Tensor:
    """Return images of 1 to 20 opaque ellipses and rounded rectangles, one over the other, on a plain background.

    Positions, directions and brightness are uniform, sizes log-uniform; each shape has a texture whose amplitudes fall
    with the frequency. The images are the same in every call, on the CPU.

    Args:
        count: number of images. channels, height, width: their size; channels share shapes and differ in colour.
    Returns:
        [count, channels, height, width] float32 in [0, 1].
    Source: After the dead leaves of Matheron 1968; their statistics are near those of photographs (Lee et al. 2001).
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
