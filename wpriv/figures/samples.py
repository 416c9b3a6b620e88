"""What a generator makes: images as a grid, or points of the plane beside those it was to meet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from wpriv.figures import _draw

GAP = 1  # pixels between images
MOST_POINTS = 2000


def draw(arrays: Mapping[str, Any], axes: Any) -> None:
    """Draws ``samples``: images [N, C, H, W] in [0, 1] (C = 1 or 3), or points [N, 2].

    ``names`` cuts images into as many equal parts, a row of the grid each, such as original, privatised and generated. ``target``
    [M, 2] are drawn under the points.

    Raises:
        KeyError: there are no samples. ValueError: they are of another shape, or do not fit their names.
    """
    samples = np.asarray(arrays["samples"], dtype=float)
    if samples.ndim == 2 and samples.shape[1] == 2:
        _points(samples, arrays.get("target"), axes)
        return
    if samples.ndim != 4 or samples.shape[1] not in (1, 3) or len(samples) == 0:
        raise ValueError(f"samples must be images [N, 1 or 3, H, W] or points [N, 2]; found {list(samples.shape)}")
    names = [str(name) for name in arrays["names"]] if "names" in arrays else []
    if names and len(samples) % len(names):
        raise ValueError(f"{len(samples)} images cannot be cut into {len(names)} equal rows")
    across = len(samples) // len(names) if names else math.ceil(math.sqrt(len(samples)))
    picture = _grid(np.clip(samples, 0, 1), across)
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    height = samples.shape[2] + GAP
    axes.set_yticks([(row + 0.5) * height - GAP for row in range(len(names))], names)
    axes.tick_params(left=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _grid(images: Any, across: int) -> Any:
    """One picture [H, W] or [H, W, 3] of all images, row by row, with white between them."""
    n, channels, height, width = images.shape
    down = math.ceil(n / across)
    picture = np.ones((down * (height + GAP) - GAP, across * (width + GAP) - GAP, channels))
    for place, image in enumerate(images):
        top, left = place // across * (height + GAP), place % across * (width + GAP)
        picture[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return picture[..., 0] if channels == 1 else picture


def _points(samples: Any, target: Any, axes: Any) -> None:
    if target is not None:
        axes.scatter(
            *np.asarray(target)[:MOST_POINTS].T, s=4, color=_draw.COLOURS[-2], alpha=0.5, linewidths=0, label="target"
        )
    axes.scatter(*samples[:MOST_POINTS].T, s=4, color=_draw.COLOURS[0], alpha=0.5, linewidths=0, label="generated")
    axes.set_aspect("equal")
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.legend(fontsize="small")
