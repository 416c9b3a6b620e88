"""Options of generation by private sliced distances, and the constants of its features."""

from __future__ import annotations

import math
from typing import Literal

from wpriv.config.field_types import Count, Field, Positive, Probability, Share
from wpriv.papers.tasks import _generation

# rows have no negative number and a norm of at most 1: |x - x'|^2 = |x|^2 + |x'|^2 - 2 x.x' <= 2
SENSITIVITY = math.sqrt(2)
# of the fixed features, which are public: they are not trained
FEATURE_SEED = 8192
FEATURE_WIDTHS = (64, 128, 256, 512)


class Options(_generation.Options):
    """Keys under ``options`` of a recipe."""

    directions: Count = Field(1000, description="directions of one release")
    labels: Literal["appended", "joint", "public", "none"] = Field("appended", description="how a class is learnt")
    bound: Positive = Field(10.0, description="norm to which every image (or its features) is clipped")
    share: Probability = Field(0.5, description="labels: appended: length of the one-hot part of a row of norm 1")
    pool: Count = Field(
        1, description="side of the square cells of pixels that are compared; the number of cells is projected"
    )
    features: Literal["pixels", "random-conv"] = Field(
        "pixels",
        description="what is compared: pixels, or the 512 x (side / 16)^2 outputs of four fixed random convolutions, "
        "for colour images",
    )
    releases: Count = Field(
        1, description="releases per update of the generator: with more of them an update has less noise"
    )
    means: Literal["pending", "all"] = Field(
        "pending",
        description="means that generated rows are compared with: of the releases of an update, or of all so far",
    )
    spread: Share = Field(1.0, description="weight of the squared distance between centred samples")
    smallest: Count | None = Field(
        None, description="labels: public: the number of records of the smallest class, on which privacy depends"
    )

    @property
    def projected(self) -> int:
        """Numbers of an image that are compared."""
        if self.features == "random-conv":
            return FEATURE_WIDTHS[-1] * (self.dimension // 3) // 256
        return self.dimension // self.pool**2

    @property
    def row(self) -> int:
        """Dimension of the rows that are projected."""
        if self.labels == "appended":
            return self.projected + self.classes
        return self.projected * self.classes if self.labels == "joint" else self.projected
