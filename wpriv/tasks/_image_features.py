"""Fixed features of images, computed from each image alone, for models that are trained on them in place of pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wpriv.config import document
from wpriv.config.diagnostics import form_diagnostics
from wpriv.config.field_types import Field, Positive, StrictModel
from wpriv.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

MEANING = (
    "{name: oriented-energy or scattering, ...}: fixed features of each image, in place of its pixels; computed from "
    "that image alone, so that they cost no privacy"
)
CHUNK = 200
"""Images whose features are computed at once."""


class Features(StrictModel):
    """Which features of an image are computed. None of them is learnt, and none depends on another image."""

    name: Literal["oriented-energy", "scattering"] = Field(
        description="oriented-energy: strength of edges by direction and scale; scattering: averaged moduli of "
        "wavelets of two scales, and of wavelets of these moduli"
    )
    orientations: Annotated[int, Field(ge=2, le=32)] = Field(
        8, description="directions: of the full circle for oriented-energy, of the half circle for scattering"
    )
    scales: Annotated[list[Positive], Field(min_length=1, max_length=6)] = Field(
        default=[0.8, 1.6],
        description="of oriented-energy: standard deviations of the smoothing before edges are found, in pixels",
    )
    cell: Annotated[int, Field(ge=1, le=16)] = Field(
        4, description="pixels between the centres of neighbouring cells, in which the features are averaged"
    )


def feature_count(features: Features, shape: Sequence[int]) -> int:
    """Return the number of features of an image of shape ``shape``.

    Raises:
        UsageError: records of this shape are no images, or too small, or the cells do not cover them.
    """
    if len(shape) != 3:
        raise UsageError(
            f"options: features: {features.name} is computed from images [C, H, W]; found records of shape "
            f"{list(shape)}. Leave features out"
        )
    channels, height, width = shape
    least, step, even = (9, 2, "even, ") if features.name == "scattering" else (4, 1, "")
    if min(height, width) < least or any(side % features.cell or side % step for side in (height, width)):
        raise UsageError(
            f"options: features: {features.name} takes images whose height and width are {even}multiples of cell "
            f"(here {features.cell}) and at least {least}; found {height} x {width}"
        )
    cells = (height // features.cell) * (width // features.cell)
    size = features.orientations
    per_cell = len(features.scales) * size if features.name == "oriented-energy" else 1 + 2 * size + size**2
    return channels * per_cell * cells


def image_features(
    x: Any,
    name: str = "oriented-energy",
    *,
    orientations: int = 8,
    scales: Sequence[float] = (0.8, 1.6),
    cell: int = 4,
) -> NDArray[np.float32]:
    """Return fixed features of images as rows of numbers, each computed from its own image alone.

    These are the features of ``options: {features: {...}}`` of a recipe and of ``features`` of ``wpriv.train``. They
    cost no privacy, since changing one image changes one row. Within an image, each group of features is brought
    to mean 0 and variance 1, so that a row has a norm of about sqrt(D): a group is a scale of ``oriented-energy``, or
    for each channel L + 1 of the (L + 1)^2 coefficients of ``scattering`` with L orientations.

    Args:
        x: [N, C, H, W] images as an array or a tensor; bytes are divided by 255, other numbers should lie in [0, 1].
        name: ``oriented-energy`` or ``scattering``.
        orientations: number of directions. scales: of ``oriented-energy``, in pixels. cell: size of a cell in pixels.
    Returns:
        [N, D] float32.
    Raises:
        UsageError: x holds no such images, or a parameter is out of range.
    """
    import numpy as np
    import torch

    from wpriv.tasks import _normalisation

    features = features_of({"name": name, "orientations": orientations, "scales": list(scales), "cell": cell})
    images = _normalisation.to_floats(np.asarray(x), torch.device("cpu"))
    return rows_of_images(images, features).numpy()


def features_of(given: Mapping[str, Any]) -> Features:
    """Return features from plain data.

    Raises:
        UsageError: an unknown key or a value out of range.
    """
    faults = form_diagnostics(document.of_data("features", dict(given)), Features)
    if faults:
        raise UsageError(f"`features`: {faults[0].text}")
    return Features.model_validate(given)


def rows_of_images(images: Tensor, features: Features) -> Tensor:
    """Return the features of images [N, C, H, W], as ``image_features``, on their device: [N, D] float32.

    Raises:
        UsageError: as ``feature_count``.
    """
    import torch

    rows = torch.empty(len(images), feature_count(features, images.shape[1:]), device=images.device)
    with torch.no_grad():
        for first in range(0, len(images), CHUNK):
            rows[first : first + CHUNK] = _rows_of_few(images[first : first + CHUNK], features)
    return rows


def _rows_of_few(images: Tensor, features: Features) -> Tensor:
    """Return the normalised features of a few images, [N, D]."""
    from torch.nn.functional import group_norm

    from wpriv.tasks._oriented_energy import oriented_energy
    from wpriv.tasks._scattering import scattering

    size = features.orientations
    if features.name == "oriented-energy":
        maps = oriented_energy(images, orientations=size, scales=features.scales, cell=features.cell)
    else:
        maps = scattering(images, orientations=size, cell=features.cell)
    # one group for each scale, or for each L + 1 of the (L + 1)^2 coefficients of scattering
    groups = len(features.scales) if features.name == "oriented-energy" else images.shape[1] * (size + 1)
    return group_norm(maps.flatten(1, 2), groups).flatten(1)
