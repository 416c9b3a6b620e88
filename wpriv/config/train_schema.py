"""The schema of recipes of kind train; ``Train`` is its root."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from wpriv.config.data_schema import DataSet
from wpriv.config.document import Key
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
    key,
    optional,
)
from wpriv.config.grid_schema import Axes, Cluster, Tune
from wpriv.config.technique_schema import STABILITY, Adapt, Augment, Average, Init, LowRank, Patterns
from wpriv.core.sampling import theorems

BATCH_MEAN = ("norm", "mask")
"""Keys that only the published procedure (clip: batch-mean) has."""
OBSERVING = ("bdp", "wdp")
"""Accountants that compare gradients clipped to one norm in all steps."""
NESTED = ("sweep", "seeds", "tune")
"""Keys that make several trainings of one recipe."""


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

    eps: Positive | None = optional("eps of the whole training; the noise is solved for")
    delta: Probability | None = optional("delta of the guarantee; take it well below 1 / records")
    sigma: Positive | None = optional(
        "noise multiplier: standard deviation of the noise over the sensitivity of the sum"
    )
    accountant: Word | None = optional(
        "calibrates the noise for eps (default pld); published ones, such as swd-tail:w=clt, may be unsafe",
    )
    sampling: Literal["poisson", "fixed", "allocation", "none"] = key(
        "how the records of a step are drawn, which is also what is accounted for: each by itself "
        "(poisson), a set of fixed size (fixed), each in one random step of every pass (allocation), or all (none)",
        "poisson",
    )
    adjacency: Literal["add-remove", "replace-one"] | None = optional(
        "neighbouring relation; left out, it follows from the sampling and the task"
    )
    group: Count = key("largest number of records of one person, who is protected as a whole", 1)
    clip: Clip = key(
        "l2 norm to which each example's gradient is clipped; automatic, which divides each gradient by "
        "its norm plus stability; or batch-mean",
        1.0,
    )
    stability: Positive | None = optional(
        f"with clip: automatic, the number that is added to each norm (default {STABILITY:g})"
    )
    adapt: Adapt | None = optional("let the clipping norm follow a quantile of the gradients' norms, from clip on")
    norm: Positive = key("with clip: batch-mean, the norm to which the mean gradient of a batch is clipped", 1.0)
    mask: Annotated[float, Field(ge=0, lt=1)] = key(
        "share of coordinates set to zero at each step, after the noise", 0.0
    )
    pairs: Annotated[int, Field(ge=3, le=100)] = key(
        "records whose gradients are compared for the accountants bdp and wdp", 8
    )
    method: Literal["auto", "ghost", "vmap", "loop"] = key("how per-example gradients are clipped; all agree", "auto")
    noise: Literal["rounded", "exact"] = key(
        "rounded: float64 noise, rounded with the sum to a grid; exact: sums and noise without any "
        "floating-point error, so that the guarantee is about the numbers that are released "
        "(one record at a time, slower)",
        "rounded",
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

    def rules(self) -> Iterator[tuple[Key, str]]:
        if self.eps is None and self.sigma is None:
            noise = "the noise (sigma, and the delta at which eps is reported)"
            yield (), f"privacy needs a target (eps and delta), or {noise}; found neither eps nor sigma"
        if self.delta is None:
            yield (), "privacy needs delta, at which eps is asked or reported"
        if self.accountant is not None and self.sigma is not None:
            message = "accountant calibrates the noise for eps, and sigma gives the noise; remove one of them"
            yield ("accountant",), message
        # under replace-one, Poisson sampling has a proof only where a record moves the sum by half of the sensitivity
        proven = theorems.adjacencies(self.sampling)[: 1 if self.sampling == "poisson" else None]
        if proven and self.adjacency not in (None, *proven):
            accounted = f"{self.sampling} sampling is accounted for under {proven[0]} adjacency"
            yield ("adjacency",), f"{accounted}; found {self.adjacency}"
        if self.exact and self.method not in ("auto", "loop"):
            message = f"noise: exact clips one record after another (loop); found {self.method}. Leave method out"
            yield ("method",), message
        if self.clip != "batch-mean":
            for name in BATCH_MEAN:
                if name in self.model_fields_set:
                    yield (name,), f"'{name}' belongs to the published procedure (clip: batch-mean); remove it"
        elif self.eps is not None:
            reason = "is the published procedure, whose noise is given (sigma), not calibrated"
            yield ("eps",), f"clip: batch-mean {reason}; remove eps"
        if self.stability is not None and self.clip != "automatic":
            yield ("stability",), "stability belongs to automatic clipping (clip: automatic); remove it"
        if self.adapt is not None:
            yield from self._adaptive(self.adapt)

    def _adaptive(self, adapt: Adapt) -> Iterator[tuple[Key, str]]:
        if not isinstance(self.clip, (int, float)):
            first = "adapt changes a clipping norm that begins with a number"
            yield ("adapt",), f"{first}; found clip: {self.clip}. Give a number"
        elif not adapt.smallest <= self.clip <= adapt.largest:
            ends = f"{adapt.smallest:g} and {adapt.largest:g}"
            yield ("clip",), f"clip, the norm at the first step, must lie between {ends}; found {self.clip:g}"
        if self.exact:
            reason = "one grid for all steps, and adapt changes the norm and so the grid"
            yield ("noise",), f"exact noise needs {reason}. Use rounded"

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

    name: Literal["sgd", "adam", "adamw"] = key(
        "stochastic gradient descent, Adam, or Adam with decoupled weight decay", "sgd"
    )
    lr: Positive = key("learning rate")
    momentum: Annotated[float, Field(ge=0, lt=1)] = key("of sgd", 0.0)
    nesterov: bool = key("Nesterov's form of the momentum of sgd", False)
    betas: Annotated[list[float], Field(min_length=2, max_length=2)] = key(
        "decay of the two averages of adam and adamw", [0.9, 0.999]
    )
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = key(
        "multiple of the weights that is added to their gradient; with adamw, share of the weights that "
        "each step takes away, times lr",
        0.0,
    )
    decay: Literal["none", "linear", "cosine"] = key("how lr falls to 0 over the run, or after the warm-up", "none")
    warmup: Count | None = optional("number of first steps over which lr rises linearly to its value")

    def rules(self) -> Iterator[tuple[Key, str]]:
        if self.nesterov and not (self.name == "sgd" and self.momentum):
            reason = "is one of the momentum of sgd; give a momentum above 0, or leave nesterov out"
            yield ("nesterov",), f"Nesterov's form {reason}"


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
    source: Word = key("the paper and its reproduced table or figure, or where the job comes from")
    task: Word = key("what is trained, and what a step releases")
    data: DataSet = key("the records")
    model: OwnCode = key("the network")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the task")
    privacy: NoPrivacy
    init: Init = optional(
        "a file of weights from which the network begins: its path, or a mapping. They count as public",
    )
    freeze: Patterns | None = optional("parameters that are not trained, by name, such as features.*")
    lora: LowRank | None = optional("train low-rank changes of linear layers in the place of their weights")
    optimizer: Optimizer = key("how noisy gradients change the weights")
    augment: Augment | None = optional(
        "average each record's gradient over randomly changed copies of its image before clipping"
    )
    average: Average | None = optional("measure and release an exponential moving average of the weights as well")
    batch: Count | None = optional(
        "records of a step, on average under Poisson sampling and random allocation (a pass then has "
        "records / batch steps, rounded to a whole number); all of them where left out",
    )
    epochs: Positive | None = optional(
        "passes over the data; steps = epochs x records / batch, rounded up (to whole passes under random "
        "allocation). Give epochs or steps",
    )
    steps: Count | None = optional("number of steps; a whole number of passes under random allocation")
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = optional(
        "makes a run repeatable, and its noise known to whoever knows the seed; left out, randomness comes "
        "from the operating system, as a release needs",
    )
    seeds: Annotated[int, Field(ge=1, le=1000)] | None = optional(
        "train so many times, each run with randomness of its own and in a folder of its own; tables have "
        "means and standard deviations, and the statement the cost of all runs together. A quick run takes its own "
        "number, or 1. With seed, the seeds of the runs are derived from it",
    )
    physical: Count | None = optional("records that go through the model at once; found from memory where left out")
    memory: Annotated[int, Field(ge=16)] = key("megabytes that the activations of one physical batch may take", 1000)
    shard_weights: bool = key(
        "divide weights, sums of gradients, noise and optimizer among the processes of torchrun (FSDP); "
        "needs layers with clipping rules",
        False,
    )
    checkpoint: Annotated[float, Field(ge=0)] = key("seconds between checkpoints; there is one an epoch as well", 60.0)
    accountants: Annotated[list[Word], Field(min_length=1)] = key(
        "the accountants of the statement, with options as name:option=value", ["pld"]
    )
    figure: Word | None = optional("what draws the metrics (default: training) or a sweep's table")
    title: str | None = optional("title of the figure")
    expect: list[Expect] = Field(
        default_factory=list, description="numbers to compare with the last row of metrics.csv or of a sweep"
    )
    claims: list[Claim] = Field(
        default_factory=list, description="statements of the paper that do not hold, printed after results"
    )
    time: Time | None = optional("how long the recipe takes")
    sweep: Axes | None = optional("one axis, or a list of axes whose product is the grid")
    cluster: Cluster | None = optional(
        "what the tasks of a sweep ask of a cluster, where --backend submitit submits them"
    )
    tune: Tune | None = optional(
        "train a random number of runs of settings drawn at random, and keep only the best of them"
    )
    quick: dict[str, Any] | None = optional("keys that differ in a quick run; mappings are merged, a sweep is replaced")

    def rules(self) -> Iterator[tuple[Key, str]]:
        if (self.epochs is None) == (self.steps is None):
            yield ("epochs",), "give either epochs or steps: how long to train"
        if self.cluster is not None and not self.has_several:
            places = "the trainings of a sweep, or repeated runs, take place"
            yield ("cluster",), f"'cluster' says where {places}. Leave it out"
        if (self.seeds or 1) > 1 and any(axis.over == "run" for axis in self.sweep or []):
            yield ("sweep",), "with seeds the column run numbers the runs; call the axis otherwise"
        swept = dict.fromkeys(path for axis in self.sweep or [] for _, keys in axis.points() for path in keys)
        for path in swept:
            if path.partition(".")[0] in NESTED:  # a statement is about the one training in its folder
                several = f"each cell is one training, and {path} would make several of it"
                yield ("sweep",), f"sweep: {several}; leave it out of the axes"
        if self.privacy is not None:
            yield from self._batches(self.privacy)

    def _batches(self, private: Privacy) -> Iterator[tuple[Key, str]]:
        if private.sampling != "none" and self.batch is None:
            message = f"{private.sampling} sampling needs 'batch', the number of records of a step"
            yield ("privacy", "sampling"), message
        if private.sampling == "none" and self.batch is not None:
            ways = "leave out batch, or sample (poisson, fixed, allocation)"
            yield ("batch",), f"without sampling every step uses all records; {ways}"
        for name in self.observing[:1]:
            if self.batch is not None and self.batch < private.pairs:
                found = f"compares {private.pairs} records of every step; found a batch of {self.batch}"
                yield ("privacy", "pairs"), f"{name} {found}. Take a larger batch, or fewer pairs"
            if private.adapt is not None:
                reason = "compares gradients under one clipping norm, which adapt changes"
                yield ("accountants",), f"accountants: {name} {reason}; use pld"

    @property
    def observing(self) -> list[str]:
        """The accountants that observe gradients during the training."""
        return [name for name in self.accountants if name.partition(":")[0] in OBSERVING]

    @property
    def on_reports(self) -> bool:
        """Tell whether the training adds no noise, and its records had some before: it is post-processing of them."""
        return self.privacy is None and self.data.noisy

    @property
    def has_several(self) -> bool:
        """Tell whether the recipe is of several trainings, of which each has a folder of its own."""
        return self.sweep is not None or (self.seeds or 1) > 1
