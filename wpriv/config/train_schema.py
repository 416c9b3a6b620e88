"""The schema of recipes of kind train; ``Train`` is its root."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from wpriv.config.data_schema import DataSet
from wpriv.config.field_types import (
    Claim,
    Count,
    Expect,
    OwnCode,
    Positive,
    Probability,
    StrictModel,
    Time,
    Word,
)
from wpriv.config.grid_schema import Axes, Cluster, Tune
from wpriv.config.technique_schema import STABILITY, Adapt, Augment, Average, Init, LowRank, Patterns


def _clip(value: Any) -> Any:
    if value in ("batch-mean", "automatic") or (type(value) in (int, float) and 0 < value < float("inf")):
        return value
    raise ValueError("must be a number above 0 (the norm of one example's gradient), automatic, or batch-mean")


Clip = Annotated[
    Any,
    BeforeValidator(_clip),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"enum": ["automatic", "batch-mean"]}]}),
]


class Privacy(StrictModel):
    """The target (eps and delta) or the noise (sigma). With all three the run stops before eps is exceeded."""

    eps: Positive | None = Field(None, description="eps of the whole training; the noise is solved for")
    delta: Probability | None = Field(None, description="delta of the guarantee; take it well below 1 / records")
    sigma: Positive | None = Field(
        None, description="noise multiplier: standard deviation of the noise over the sensitivity of the sum"
    )
    accountant: Word | None = Field(
        None,
        description="calibrates the noise for eps (default pld); published ones, such as swd-tail:w=clt, may be unsafe",
    )
    sampling: Literal["poisson", "fixed", "allocation", "none"] = Field(
        "poisson",
        description="how the records of a step are drawn, which is also what is accounted for: each by itself "
        "(poisson), a set of fixed size (fixed), each in one random step of every pass (allocation), or all (none)",
    )
    adjacency: Literal["add-remove", "replace-one"] | None = Field(
        None, description="neighbouring relation; left out, it follows from the sampling and the task"
    )
    group: Count = Field(1, description="largest number of records of one person, who is protected as a whole")
    clip: Clip = Field(
        1.0,
        description="l2 norm to which each example's gradient is clipped; automatic, which divides each gradient by "
        "its norm plus stability; or batch-mean",
    )
    stability: Positive | None = Field(
        None, description=f"with clip: automatic, the number that is added to each norm (default {STABILITY:g})"
    )
    adapt: Adapt | None = Field(
        None, description="let the clipping norm follow a quantile of the gradients' norms, from clip on"
    )
    norm: Positive = Field(
        1.0, description="with clip: batch-mean, the norm to which the mean gradient of a batch is clipped"
    )
    mask: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of coordinates set to zero at each step, after the noise"
    )
    pairs: Annotated[int, Field(ge=3, le=100)] = Field(
        8, description="records whose gradients are compared for the accountants bdp and wdp"
    )
    method: Literal["auto", "ghost", "vmap", "loop"] = Field(
        "auto", description="how per-example gradients are clipped; all agree"
    )
    noise: Literal["rounded", "exact"] = Field(
        "rounded",
        description="rounded: float64 noise, rounded with the sum to a grid; exact: sums and noise without any "
        "floating-point error, so that the guarantee is about the numbers that are released "
        "(one record at a time, slower)",
    )

    @field_validator("sampling", mode="before")
    @classmethod
    def _not_shuffled(cls, value: Any) -> Any:
        if value == "shuffle":
            raise ValueError(
                "training offers no shuffled batches: they are certified, but no amplification is proven for them; use "
                "poisson, or account for another program by budget"
            )
        return value

    @property
    def bound(self) -> float:
        """The norm that no clipped gradient exceeds (at the first step, where it is adapted); 1 if automatic."""
        if self.clip == "batch-mean":
            return self.norm
        return 1.0 if self.clip == "automatic" else float(self.clip)

    @property
    def exact(self) -> bool:
        """Tell whether sums and noise have no floating-point error."""
        return self.noise == "exact"


class Optimizer(StrictModel):
    """Plain SGD or Adam on the noisy gradients."""

    name: Literal["sgd", "adam", "adamw"] = Field(
        "sgd", description="stochastic gradient descent, Adam, or Adam with decoupled weight decay"
    )
    lr: Positive = Field(description="learning rate")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="of sgd")
    nesterov: bool = Field(False, description="Nesterov's form of the momentum of sgd")
    betas: Annotated[list[float], Field(min_length=2, max_length=2)] = Field(
        default=[0.9, 0.999], description="decay of the two averages of adam and adamw"
    )
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0,
        description="multiple of the weights that is added to their gradient; with adamw, share of the weights that "
        "each step takes away, times lr",
    )
    decay: Literal["none", "linear", "cosine"] = Field(
        "none", description="how lr falls to 0 over the run, or after the warm-up"
    )
    warmup: Count | None = Field(None, description="number of first steps over which lr rises linearly to its value")


def _no_privacy(value: Any) -> Any:
    if isinstance(value, dict) and value.get("eps") in ("inf", math.inf):
        if value.get("sigma") is not None:
            raise ValueError("eps: inf trains without noise, and sigma asks for some; remove one of them")
        return None  # an infinite eps promises nothing
    return None if value == "none" else value


NoPrivacy = Annotated[
    Privacy | None,
    BeforeValidator(_no_privacy, json_schema_input_type=Privacy | Literal["none"]),
    Field(
        description="target or noise, sampling and clipping; or the word none (eps: inf is the same): no clipping, no "
        "noise, no guarantee"
    ),
]


class Train(StrictModel):
    """kind: train. A model trained with or without differential privacy, and its guarantee."""

    kind: Literal["train"]
    source: Word = Field(description="the paper and its reproduced table or figure, or where the job comes from")
    task: Word = Field(description="what is trained, and what a step releases")
    data: DataSet = Field(description="the records")
    model: OwnCode = Field(description="the network")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the task")
    privacy: NoPrivacy
    init: Init = Field(
        None,
        description="a file of weights from which the network begins: its path, or a mapping. They count as public",
    )
    freeze: Patterns | None = Field(None, description="parameters that are not trained, by name, such as features.*")
    lora: LowRank | None = Field(
        None, description="train low-rank changes of linear layers in the place of their weights"
    )
    optimizer: Optimizer = Field(description="how noisy gradients change the weights")
    augment: Augment | None = Field(
        None, description="average each record's gradient over randomly changed copies of its image before clipping"
    )
    average: Average | None = Field(
        None, description="measure and release an exponential moving average of the weights as well"
    )
    batch: Count | None = Field(
        None,
        description="records of a step, on average under Poisson sampling and random allocation (a pass then has "
        "records / batch steps, rounded to a whole number); all of them where left out",
    )
    epochs: Positive | None = Field(
        None,
        description="passes over the data; steps = epochs x records / batch, rounded up (to whole passes under random "
        "allocation). Give epochs or steps",
    )
    steps: Count | None = Field(None, description="number of steps; a whole number of passes under random allocation")
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = Field(
        None,
        description="makes a run repeatable, and its noise known to whoever knows the seed; left out, randomness comes "
        "from the operating system, as a release needs",
    )
    seeds: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None,
        description="train so many times, each run with randomness of its own and in a folder of its own; tables have "
        "means and standard deviations, and the statement the cost of all runs together. A quick run takes its own "
        "number, or 1. With seed, the seeds of the runs are derived from it",
    )
    physical: Count | None = Field(
        None, description="records that go through the model at once; found from memory where left out"
    )
    memory: Annotated[int, Field(ge=16)] = Field(
        1000, description="megabytes that the activations of one physical batch may take"
    )
    shard_weights: bool = Field(
        False,
        description="divide weights, sums of gradients, noise and optimizer among the processes of torchrun (FSDP); "
        "needs layers with clipping rules",
    )
    checkpoint: Annotated[float, Field(ge=0)] = Field(
        60.0, description="seconds between checkpoints; there is one an epoch as well"
    )
    accountants: Annotated[list[Word], Field(min_length=1)] = Field(
        default=["pld"], description="the accountants of the statement, with options as name:option=value"
    )
    figure: Word | None = Field(None, description="what draws the metrics (default: training) or a sweep's table")
    title: str | None = Field(None, description="title of the figure")
    expect: list[Expect] = Field(
        default_factory=list, description="numbers to compare with the last row of metrics.csv or of a sweep"
    )
    claims: list[Claim] = Field(
        default_factory=list, description="statements of the paper that do not hold, printed after results"
    )
    time: Time | None = Field(None, description="how long the recipe takes")
    sweep: Axes | None = Field(None, description="one axis, or a list of axes whose product is the grid")
    cluster: Cluster | None = Field(
        None, description="what the tasks of a sweep ask of a cluster, where --backend submitit submits them"
    )
    tune: Tune | None = Field(
        None, description="train a random number of runs of settings drawn at random, and keep only the best of them"
    )
    quick: dict[str, Any] | None = Field(
        None, description="keys that differ in a quick run; mappings are merged, a sweep is replaced"
    )

    @property
    def on_reports(self) -> bool:
        """Tell whether the training adds no noise, and its records had some before: it is post-processing of them."""
        return self.privacy is None and self.data.noisy

    @property
    def has_several(self) -> bool:
        """Tell whether the recipe is of several trainings, of which each has a folder of its own."""
        return self.sweep is not None or (self.seeds or 1) > 1
