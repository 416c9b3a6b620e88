"""Samples of a generator: a grid of images, or points of the plane beside their target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from wpriv.figures import _draw

# the names of rows beside generated images, whatever a task calls them
GENERATED = "generated"
ROWS = {"original": "test images", "privatised": "reports", "wavelets": "denoised reports"}
GAP = 1  # pixels between images
MAX_POINTS = 2000


def draw(arrays: Mapping[str, Any], axes: Any) -> None:
    """Draw ``samples``: images [N, C, H, W] in [0, 1] (C = 1 or 3), or points [N, 2].

    ``names`` splits the images into that many equal rows of the grid, such as original, privatised and generated.
    ``target`` [M, 2] is drawn below the points.

    Raises:
        KeyError: there are no samples.
        ValueError: they have another shape, or their number is not a multiple of the number of names.
    """
    samples = np.asarray(arrays["samples"], dtype=float)
    if samples.ndim == 2 and samples.shape[1] == 2:
        _draw_points(samples, arrays.get("target"), axes)
        return
    if samples.ndim != 4 or samples.shape[1] not in (1, 3) or len(samples) == 0:
        raise ValueError(f"samples must be images [N, 1 or 3, H, W] or points [N, 2]; found {list(samples.shape)}")
    names = [str(name) for name in arrays["names"]] if "names" in arrays else []
    names = [ROWS.get(name, name) for name in names] if GENERATED in names else names
    if names and len(samples) % len(names):
        raise ValueError(f"{len(samples)} images cannot be split into {len(names)} equal rows")
    columns = len(samples) // len(names) if names else math.ceil(math.sqrt(len(samples)))
    picture = _mosaic(np.clip(samples, 0, 1), columns)
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    height = samples.shape[2] + GAP
    axes.set_yticks([(row + 0.5) * height - GAP for row in range(len(names))], names)
    axes.tick_params(left=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _mosaic(images: Any, columns: int) -> Any:
    """Arrange images [N, C, H, W] row by row into one picture [H', W'] or [H', W', 3], with white between them."""
    n, channels, height, width = images.shape
    rows = math.ceil(n / columns)
    picture = np.ones((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, channels))
    for index, image in enumerate(images):
        top, left = index // columns * (height + GAP), index % columns * (width + GAP)
        picture[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return picture[..., 0] if channels == 1 else picture


def _draw_points(samples: Any, target: Any, axes: Any) -> None:
    # many points are one picture in vector formats
    style = {"s": 4, "alpha": 0.5, "linewidths": 0, "rasterized": True}
    if target is not None:
        axes.scatter(*np.asarray(target)[:MAX_POINTS].T, color=_draw.COLOURS[-2], label="target", **style)
    axes.scatter(*samples[:MAX_POINTS].T, color=_draw.COLOURS[0], label="generated", **style)
    axes.set_aspect("equal")
    _draw.grid(axes)
    axes.legend(fontsize="small", markerscale=3)
