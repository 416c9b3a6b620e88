"""Options of domain adaptation, and the constants that its steps and its accounting share."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from wpriv.config.field_types import Count, Field, Positive, StrictModel
from wpriv.core import registry
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.papers.mechanisms.projection import Projection
from wpriv.papers.penalty.penalty import Penalty
from wpriv.training.tasks import _image_features

RADIUS = 0.5
"""Norm to which features are clipped before they are projected, so that those of two records are at most 1 apart."""
TENSORS = 8
"""Tensors of two feature layers and two discriminator layers, clipped one by one in the published DP-DANN."""


class Published(StrictModel):
    """The counts by which the paper, unlike the run, accounts for its noise, and the eps it prints (Table 4)."""

    d: Count
    k: Count
    records: Count
    batch: Count
    epochs: Count
    delta: Annotated[float, Field(gt=0, lt=1)]
    eps: Positive = Field(10.0, description="the eps that the paper prints for its noise")


class Options(StrictModel):
    """Keys under ``options`` of a recipe."""

    method: Literal["none", "dann", "swd", "dp-dann", "dp-swd"] = Field(
        description="how the target is used; none learns on the source alone"
    )
    variant: Literal["sound", "paper"] = Field(
        "sound", description="sound, or as published, with the gaps that the statement names"
    )
    route: Literal["gradient", "projections"] = Field(
        "gradient",
        description="of the sound dp-swd, what is released: clipped gradients, or noisy projections of fixed features",
    )
    weight: Positive = Field(1.0, description="weight of the alignment beside the classification loss")
    warmup: Annotated[int, Field(ge=0)] = Field(0, description="steps on the source alone that come first")
    directions: Count = Field(200, description="random directions of a step, drawn afresh")
    bound: Positive = Field(
        1.0, description="route gradient: projections are clipped to so many standard deviations of the source's"
    )
    lipschitz: Positive = Field(
        1.0, description="route gradient: Jacobians are clipped to so many times the source's median norm"
    )
    moves: list[str] = Field(
        default_factory=list,
        description="layers of the features that private gradients update, as ['0']; all by default",
    )
    dimension: Count | None = Field(None, description="route projections: number of features that are compared")
    sigma: Positive | None = Field(
        None, description="dp-swd as published: standard deviation of the noise on a projection"
    )
    published: Published | None = Field(None, description="dp-swd as published: what the paper counts")
    normalise: _image_features.Normalise | None = Field(None, description=_image_features.NORMALISE_MEANING)
    shares: bool = Field(False, description="divide each record by its sum first, for counts")
    standardise: bool = Field(
        False, description="bring inputs to mean 0 and standard deviation 1, by those of the source"
    )


def penalty(batch: int, bound: float = 1.0, lipschitz: float = 1.0) -> Penalty:
    """Bound the Wasserstein gradient between projections of target and source.

    It holds for one direction, and by the triangle inequality for the mean over several. By default in units of both
    bounds.
    """
    return Penalty(1.0, bound=bound, lipschitz=lipschitz, sizes=((batch, batch),), private="x")


def claimed_eps(options: Options) -> float | None:
    """Return eps of the published dp-swd's noise by the tail bound of its program and the paper's counts, if given."""
    published = options.published
    if options.method != "dp-swd" or options.variant != "paper" or options.sigma is None or published is None:
        return None
    # floor(N/B) + 1 steps an epoch, as the published program counts them
    count = (published.records // published.batch + 1) * published.epochs
    sampling = Sampling("fixed", published.batch / published.records)
    process = Process((Step(Projection(published.d, published.k, options.sigma), count, sampling),))
    curve = registry.load("accountants", "swd-tail").account(process, w="bernstein-code")
    eps: float = curve.at(delta=published.delta).epsilon.safe
    return eps if math.isfinite(eps) else None
