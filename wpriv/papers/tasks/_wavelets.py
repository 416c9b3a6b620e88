"""Denoising of images by thresholding wavelet coefficients, a baseline whose parameters are chosen on clear images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import UsageError, require
from wpriv.numerics import ball_projection

if TYPE_CHECKING:
    from wpriv.training.data import RecordNoise

Array = NDArray[Any]
BASES = ("haar", "db2", "db4", "sym4", "coif1", "bior2.2")
KINDS = ("soft", "hard")
# thresholds, in standard deviations of the noise
THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)
IMAGES = 300  # that parameters are chosen on
CHUNK = 5000


@dataclass(frozen=True)
class Wavelets:
    """Parameters of the denoising, and the mean l2 distances of images to their originals before and after it."""

    basis: str
    level: int
    kind: str
    threshold: float
    before: float
    after: float

    def __call__(self, x: Array) -> Array:
        """Denoise images [N, C, H, W] and clamp them to [0, 1], the range of images."""
        parts = [np.clip(_threshold_details(x[i : i + CHUNK], self), 0, 1) for i in range(0, len(x), CHUNK)]
        return np.concatenate(parts).astype(np.float32)


def choose_wavelets(clear: Array, noise: RecordNoise) -> Wavelets:
    """Return the basis, level and threshold that bring noisy images nearest to their originals.

    The paper chose them so, and therefore says that its baseline looks better than it is. The originals here are clear
    test images, clipped and privatised as the reports were; an analyst of the reports alone has none.

    Args:
        clear: [N, C, H, W] images in [0, 1], of which the first 300 are used. noise: of the reports.
    Source: Reshetova, Chen, Ozgur (2023), section 5; Mallat (1999).
    """
    require("pywt", "options: wavelet")
    if clear.ndim != 4 or len(clear) == 0:
        raise UsageError(
            f"options: wavelet needs clear test images [N, C, H, W]; found {list(clear.shape)}. Give data: test"
        )
    clear = clear[:IMAGES].astype(np.float64)
    noisy = _add_noise(clear, noise)
    deviation = noise.scale if noise.p == 2 else noise.scale * math.sqrt(2)
    before = _distance(noisy, clear)
    candidates = (
        Wavelets(*transform, threshold * deviation, before, math.inf)
        for transform in _transforms(clear.shape[-1])
        for threshold in THRESHOLDS
    )
    results = ((_distance(np.clip(_threshold_details(noisy, each), 0, 1), clear), each) for each in candidates)
    after, best = min(results, key=lambda result: result[0])
    return Wavelets(best.basis, best.level, best.kind, best.threshold, before, after)


def _transforms(side: int) -> Iterator[tuple[str, int, str]]:
    """Basis, level and kind of thresholding, for images of a side."""
    import pywt

    for basis, kind in itertools.product(BASES, KINDS):
        for level in range(1, max(1, pywt.dwt_max_level(side, basis)) + 1):
            yield basis, level, kind


def _threshold_details(x: Array, wavelets: Wavelets) -> Array:
    """Images with detail coefficients below the threshold set to 0 and, if soft, the others reduced by it."""
    import pywt

    coarse, *details = pywt.wavedec2(x, wavelets.basis, mode="periodization", level=wavelets.level)
    kept = [tuple(_threshold(part, wavelets) for part in parts) for parts in details]
    restored: Array = pywt.waverec2([coarse, *kept], wavelets.basis, mode="periodization")
    return restored[..., : x.shape[-2], : x.shape[-1]]


def _threshold(part: Array, wavelets: Wavelets) -> Array:
    """Coefficients after thresholding; pywt's own soft threshold divides by coefficients, which may be 0."""
    if wavelets.kind == "hard":
        return np.where(np.abs(part) > wavelets.threshold, part, 0)
    return np.sign(part) * np.maximum(np.abs(part) - wavelets.threshold, 0)


def _add_noise(clear: Array, noise: RecordNoise) -> Array:
    """Clear images clipped and privatised as the reports were, in pixels."""
    import torch

    from wpriv.papers.tasks import _denoising_loss

    dct = noise.domain == "dct"
    clip, rng = noise.statement["clip"], np.random.Generator(np.random.PCG64(0))
    x = _denoising_loss.cosine(torch.from_numpy(clear)).numpy() if dct else clear
    rows = ball_projection.nearest(x.reshape(len(x), -1) - clip["center"], clip["radius"], noise.p) + clip["center"]
    draw = (
        rng.normal(scale=noise.scale, size=rows.shape)
        if noise.p == 2
        else rng.laplace(scale=noise.scale, size=rows.shape)
    )
    noisy = (rows + draw).reshape(clear.shape)
    return _denoising_loss.inverse(torch.from_numpy(noisy)).numpy() if dct else noisy


def _distance(x: Array, clear: Array) -> float:
    return float(np.linalg.norm((x - clear).reshape(len(x), -1), axis=1).mean())
