"""Options of domain adaptation, and what its steps and its accounting both know of them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from wpriv.config.field_types import Count, Field, Positive, StrictModel
from wpriv.core import registry
from wpriv.core.process import Process, Sampling, Step
from wpriv.engine.penalty.penalty import Penalty
from wpriv.mechanisms.projection import Projection
from wpriv.tasks import _normalisation

RADIUS = 0.5
"""Norm to which features are clipped before they are projected, so that two records are at most 1 apart."""
TENSORS = 8
"""Weights and biases of two layers of features and two of the discriminator, each clipped by itself in the published DP-DANN."""


class Published(StrictModel):
    """The counts with which the paper accounts for its noise, and the eps that it prints (Table 4); those of the run are others."""

    d: Count
    k: Count
    records: Count
    batch: Count
    epochs: Count
    delta: Annotated[float, Field(gt=0, lt=1)]
    eps: Positive = Field(10.0, description="the eps that the paper prints for its noise")


class Options(StrictModel):
    """What a recipe may say under ``options``."""

    method: Literal["none", "dann", "swd", "dp-dann", "dp-swd"] = Field(description="none learns on the source alone")
    variant: Literal["sound", "paper"] = Field("sound", description="paper: as published, with its gaps")
    route: Literal["gradient", "projections"] = Field(
        "gradient",
        description="of the sound dp-swd: clipped gradients of all it compares, or noisy projections of features held fixed",
    )
    weight: Positive = Field(1.0, description="of the alignment beside the classification loss")
    warmup: Annotated[int, Field(ge=0)] = Field(0, description="steps on the source alone that come first")
    directions: Count = Field(200, description="random directions of a step, each step its own")
    bound: Positive = Field(
        1.0, description="route gradient: projections are clipped to so many standard deviations of the source's"
    )
    lipschitz: Positive = Field(
        1.0, description="route gradient: Jacobians are clipped to so many times the source's median norm"
    )
    moves: list[str] = Field(
        default_factory=list,
        description="layers of the features that a private gradient moves, as ['0']; all by default",
    )
    dimension: Count | None = Field(None, description="route projections: number of features that are compared")
    sigma: Positive | None = Field(
        None, description="dp-swd as published: standard deviation of the noise on a projection"
    )
    published: Published | None = Field(None, description="dp-swd as published: what the paper counts")
    normalise: _normalisation.Normalise | None = None
    shares: bool = Field(False, description="each record is divided by its sum first (counts)")
    standardise: bool = Field(False, description="inputs are brought to mean 0 and deviation 1, those of the source")


def penalty(batch: int, bound: float = 1.0, lipschitz: float = 1.0) -> Penalty:
    """One Wasserstein gradient between projections of target and source on a direction, or the mean of such over directions.

    Each direction's own is bounded by this, and so is their mean (triangle inequality). By default in units of both bounds.
    """
    return Penalty(1.0, bound=bound, lipschitz=lipschitz, sizes=((batch, batch),), private="x")


def claimed(own: Options) -> float | None:
    """The eps of a noise by the tail bound of the published program and the paper's own counts; None where they are not given."""
    if own.method != "dp-swd" or own.variant != "paper" or own.sigma is None or own.published is None:
        return None
    as_told = own.published
    # floor(N/B) + 1 steps an epoch, as the published program counts them
    steps = (as_told.records // as_told.batch + 1) * as_told.epochs
    step = Step(Projection(as_told.d, as_told.k, own.sigma), steps, Sampling("fixed", as_told.batch / as_told.records))
    found: float = (
        registry.load("accountants", "swd-tail")
        .account(Process((step,)), w="bernstein-code")
        .at(delta=as_told.delta)
        .epsilon.safe
    )
    return found if math.isfinite(found) else None
