"""Records as networks take them: float32, normalised by public constants, or fixed features in place of pixels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wpriv.config import document
from wpriv.config.document import form_diagnostics
from wpriv.config.field_types import Field, Number, Positive, StrictModel, model_validator
from wpriv.errors import UsageError, require

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor


NORMALISE_MEANING = (
    "{mean: [...], std: [...]}, a number for each channel or column: records become (x - mean) / std; from public "
    "knowledge, never from the private records"
)


class Normalise(StrictModel):
    """(x - mean) / std of each channel; public constants, never computed from the private data."""

    mean: Annotated[list[Number], Field(min_length=1)]
    std: Annotated[list[Positive], Field(min_length=1)]


def to_floats(x: NDArray[Any], device: torch.device) -> Tensor:
    """Copy records, which may be mapped from a file, to the device as float32; bytes are divided by 255."""
    import torch

    inputs = torch.tensor(x, device=device)
    return inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()


def normalised(x: NDArray[Any], constants: Normalise | None, device: torch.device) -> Tensor:
    """Copy records to the device, normalise them, and return them as float32; float64 is rounded after that."""
    import torch

    if x.dtype != "float64" or constants is None:
        return normalise(to_floats(x, device), constants)
    return normalise(torch.tensor(x, device=device), constants).float()


def normalise(inputs: Tensor, constants: Normalise | None) -> Tensor:
    """Normalise records [N, C, ...] by channel; return them unchanged without constants."""
    import torch

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


# --- fixed features of images, computed from each image alone ---

FEATURES_MEANING = (
    "{name: oriented-energy or scattering, ...}: fixed features of each image, in place of its pixels; computed from "
    "that image alone, so that they cost no privacy"
)
# images whose features are computed at once
CHUNK = 200
# the least deviation by which a map is divided, where synthetic images hardly vary in it
DEVIATION_FLOOR = 1e-6
# of local normalisation: what is added to the deviation in a cell, and to scattering of order 1 where it divides
CELL_FLOOR, FIRST_ORDER_FLOOR = 0.3, 0.01


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
    local: bool = Field(
        False,
        description="normalise each map by itself, and then all features of a cell; of scattering, order 2 is first "
        "divided by the order 1 from which it comes",
    )
    decorrelate: Annotated[int, Field(ge=2, le=10_000)] | None = Field(
        None,
        description="number of synthetic images, drawn from a fixed seed, by whose mean and covariance the features "
        "are centred and decorrelated; left out for none",
    )
    scaling: Literal["image", "synthetic"] = Field(
        "image",
        description="image: features are normalised within each image; synthetic: the roots of scattering of orders 1 "
        "and 2 are taken, and each map is divided by its deviation over the images of decorrelate",
    )
    opponent: bool = Field(
        False, description="of colour images: brightness, red less blue, and green less both, in place of the channels"
    )
    mirror: bool = Field(False, description="take the mean of the features of an image and of its mirror image")

    @model_validator(mode="after")
    def _keys_fit(self) -> Features:
        if self.scaling == "synthetic" and (self.decorrelate is None or self.local):
            raise ValueError("scaling: synthetic takes decorrelate, the number of synthetic images, and not local")
        return self


def feature_count(features: Features, shape: Sequence[int]) -> int:
    """Return the number of features of an image of shape ``shape``."""
    if len(shape) != 3:
        raise UsageError(
            f"options: features: {features.name} is computed from images [C, H, W]; found records of shape "
            f"{list(shape)}. Leave features out"
        )
    channels, height, width = shape
    if features.opponent and channels != 3:
        raise UsageError(
            f"options: features: opponent takes images of red, green and blue; found {channels} channels. Leave it out"
        )
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
    local: bool = False,
    decorrelate: int | None = None,
    scaling: str = "image",
    opponent: bool = False,
    mirror: bool = False,
) -> NDArray[np.float32]:
    """Return fixed features of images as rows of numbers, each computed from its own image alone.

    These are the features of ``options: {features: {...}}`` of a recipe and of ``features`` of ``wpriv.train``. They
    cost no privacy, since changing one image changes one row. Within an image, each group of features is brought
    to mean 0 and variance 1, so that a row has a norm of about sqrt(D): a group is a scale of ``oriented-energy``, or
    for each channel L + 1 of the (L + 1)^2 coefficients of ``scattering`` with L orientations. With ``local``, each map
    is a group, and then all features of a cell. ``scaling="synthetic"`` leaves images as they are, and scales roots of
    the features by constants.

    Args:
        x: [N, C, H, W] images as an array or a tensor; bytes are divided by 255, other numbers should lie in [0, 1].
        name: ``oriented-energy`` or ``scattering``.
        orientations: number of directions. scales: of ``oriented-energy``, in pixels. cell: size of a cell in pixels.
        local: normalise in each cell as well. decorrelate: number of synthetic images that decorrelate the features.
        scaling: ``image``, or ``synthetic``: by the same synthetic images. opponent: take opponent colours in place of
            red, green and blue. mirror: take the mean with the features of the mirror image.
    Returns:
        [N, D] float32.
    Raises:
        UsageError: x holds no such images, or a parameter is out of range. MissingResource: torch is not installed.
    """
    require("torch", "image_features")
    import numpy as np
    import torch

    sizes = {"orientations": orientations, "scales": list(scales), "cell": cell, "decorrelate": decorrelate}
    ways = {"local": local, "scaling": scaling, "opponent": opponent, "mirror": mirror}
    features = features_of({"name": name, **sizes, **ways})
    images = to_floats(np.asarray(x), torch.device("cpu"))
    return rows_of_images(images, features).numpy()


def features_of(given: Mapping[str, object]) -> Features:
    """Return features from plain data."""
    faults = form_diagnostics(document.of_data("features", dict(given)), Features)
    if faults:
        raise UsageError(f"`features`: {faults[0].text}")
    return Features.model_validate(given)


def rows_of_images(images: Tensor, features: Features, constants: Normalise | None = None) -> Tensor:
    """Return the features of images [N, C, H, W], as ``image_features``, on their device: [N, D] float32.

    Args:
        constants: by which the images have been normalised; synthetic images are normalised alike.
    """
    import torch

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
    import torch

    from wpriv.training.tasks import _image_filters

    parsed = Features.model_validate_json(features)
    images = _image_filters.synthetic_images(parsed.decorrelate or 0, *shape)
    if constants is not None:
        images = normalise(images, Normalise.model_validate_json(constants))
    # what is left of the features is the part that depends on the image alone
    alone = parsed.model_copy(update={"decorrelate": None})
    with torch.no_grad():
        rows = rows_of_images(images, alone)
        if parsed.scaling == "image":
            return _image_filters.of_rows(rows).to(device)
        # of the map of each feature over all cells and rows
        cells = (shape[1] // parsed.cell) * (shape[2] // parsed.cell)
        deviations = rows.reshape(len(rows), -1, cells).std(dim=(0, 2)).clamp_min(DEVIATION_FLOOR)
        deviations = deviations.repeat_interleave(cells)
        decorrelation = _image_filters.of_rows(rows.div_(deviations)).to(device)
        divisors = deviations.to(device)
    return lambda part: decorrelation(part / divisors)


def _rows_of_few(images: Tensor, features: Features) -> Tensor:
    """Return the features of a few images before those of synthetic images come in, [N, D]."""
    import torch
    from torch.nn.functional import group_norm

    from wpriv.training.tasks._image_filters import oriented_energy, scattering

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
    import torch

    axes = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [-0.5, 1.0, -0.5]], device=images.device)
    return torch.einsum("kc,nchw->nkhw", axes / axes.norm(dim=1, keepdim=True), images)


def _relative_to_first_order(maps: Tensor, orientations: int) -> Tensor:
    """Divide scattering of order 2 by the fine scattering of order 1 from which it comes: [N, C, K, H, W]."""
    import torch

    first, second = maps[:, :, : 1 + 2 * orientations], maps[:, :, 1 + 2 * orientations :]
    divisors = maps[:, :, 1 : 1 + orientations, None] + FIRST_ORDER_FLOOR
    by_first = second.reshape(*maps.shape[:2], orientations, orientations, *maps.shape[-2:])
    return torch.cat([first, (by_first / divisors).flatten(2, 3)], dim=2)
