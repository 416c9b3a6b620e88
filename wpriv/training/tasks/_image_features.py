"""Keys for records as networks take them: public constants to normalise by, fixed features in place of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from wpriv.config.field_types import Field, Number, Positive, StrictModel, model_validator
from wpriv.errors import UsageError

NORMALISE_MEANING = (
    "{mean: [...], std: [...]}, a number for each channel or column: records become (x - mean) / std; from public "
    "knowledge, never from the private records"
)


class Normalise(StrictModel):
    """(x - mean) / std of each channel; public constants, never computed from the private data."""

    mean: Annotated[list[Number], Field(min_length=1)]
    std: Annotated[list[Positive], Field(min_length=1)]


# --- fixed features of images, computed from each image alone ---

FEATURES_MEANING = (
    "{name: oriented-energy or scattering, ...}: fixed features of each image, in place of its pixels; computed from "
    "that image alone, so that they cost no privacy"
)


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
