"""Images denoised by thresholding their wavelet coefficients: what one would try first, here with parameters that nobody could know."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import MissingResource, UsageError
from wpriv.numerics import ball_projection

if TYPE_CHECKING:
    from wpriv.data import RecordNoise

Array = NDArray[Any]
BASES = ("haar", "db2", "db4", "sym4", "coif1", "bior2.2")
KINDS = ("soft", "hard")
# thresholds, in standard deviations of the noise
THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)
IMAGES = 300
AT_ONCE = 5000


@dataclass(frozen=True)
class Wavelets:
    """A way to denoise, and the mean l2 distance of the images that it was chosen on to their originals, before and after."""

    basis: str
    level: int
    kind: str
    threshold: float
    before: float
    after: float

    def __call__(self, x: Array) -> Array:
        """[N, C, H, W] noisy images, denoised and clamped to [0, 1], which is known of images."""
        parts = [np.clip(_restored(x[i : i + AT_ONCE], self), 0, 1) for i in range(0, len(x), AT_ONCE)]
        return np.concatenate(parts).astype(np.float32)


def chosen(clear: Array, noise: RecordNoise) -> Wavelets:
    """The basis, depth and threshold that bring noisy images nearest to their originals, which are looked at for it.

    That is how the paper chose them, and why it says that its baseline looks better than it is. Here the originals are clear held-out
    images, clipped and made noisy as the reports were: whoever has the reports alone has neither.

    Args:
        clear: [N, C, H, W] images in [0, 1], of which the first 300 are used. noise: that of the reports.
    Raises:
        MissingResource: PyWavelets is not installed. UsageError: there are no clear images.
    Source:
        Reshetova, Chen, Ozgur (2023), section 5; Mallat (1999).
    """
    if importlib.util.find_spec("pywt") is None:
        raise MissingResource(
            "options: wavelet needs the package PyWavelets; install it by: pip install 'wpriv[wavelets]'"
        )
    if clear.ndim != 4 or len(clear) == 0:
        raise UsageError(
            f"wavelets are chosen on clear held-out images [N, C, H, W]; found {list(clear.shape)}. Give data: test"
        )
    clear = clear[:IMAGES].astype(np.float64)
    noisy = _noisy(clear, noise)
    spread = noise.scale if noise.p == 2 else noise.scale * math.sqrt(2)
    before = _distance(noisy, clear)
    tried = (
        Wavelets(*which, threshold * spread, before, math.inf)
        for which in _ways(clear.shape[-1])
        for threshold in THRESHOLDS
    )
    found = ((_distance(np.clip(_restored(noisy, way), 0, 1), clear), way) for way in tried)
    after, best = min(found, key=lambda pair: pair[0])
    return Wavelets(best.basis, best.level, best.kind, best.threshold, before, after)


def _ways(side: int) -> Iterator[tuple[str, int, str]]:
    import pywt

    for basis, kind in itertools.product(BASES, KINDS):
        for level in range(1, max(1, pywt.dwt_max_level(side, basis)) + 1):
            yield basis, level, kind


def _restored(x: Array, way: Wavelets) -> Array:
    """The images whose detail coefficients below the threshold are 0 (and, soft, whose others are smaller by it)."""
    import pywt

    coarse, *details = pywt.wavedec2(x, way.basis, mode="periodization", level=way.level)
    kept = [tuple(_cut(part, way) for part in three) for three in details]
    restored: Array = pywt.waverec2([coarse, *kept], way.basis, mode="periodization")
    return restored[..., : x.shape[-2], : x.shape[-1]]


def _cut(part: Array, way: Wavelets) -> Array:
    """Coefficients after the threshold (pywt's own soft one divides by those that are 0)."""
    if way.kind == "hard":
        return np.where(np.abs(part) > way.threshold, part, 0)
    return np.sign(part) * np.maximum(np.abs(part) - way.threshold, 0)


def _noisy(clear: Array, noise: RecordNoise) -> Array:
    """Clear images clipped and made noisy as the reports were, in pixels."""
    import torch

    from wpriv.transport import cosine

    dct = noise.domain == "dct"
    clip, rng = noise.statement["clip"], np.random.Generator(np.random.PCG64(0))
    x = cosine.cosine(torch.from_numpy(clear)).numpy() if dct else clear
    rows = ball_projection.nearest(x.reshape(len(x), -1) - clip["center"], clip["radius"], noise.p) + clip["center"]
    drawn = (
        rng.normal(scale=noise.scale, size=rows.shape)
        if noise.p == 2
        else rng.laplace(scale=noise.scale, size=rows.shape)
    )
    found = (rows + drawn).reshape(clear.shape)
    return cosine.inverse(torch.from_numpy(found)).numpy() if dct else found


def _distance(x: Array, clear: Array) -> float:
    return float(np.linalg.norm((x - clear).reshape(len(x), -1), axis=1).mean())
