"""The parts of the schema of recipes of kind train: techniques of private training, sweeps, tuning, and clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from wpriv.config.document import Key
from wpriv.config.field_types import MAX_POINTS, Count, Positive, Repeats, StrictModel, Word, as_list, key, optional

MAX_COPIES = 64
STABILITY = 0.01
"""The stability constant of automatic clipping in Bu et al. (2023)."""
AVERAGE_PREFIX = "average_"
"""Before the names of figures that are measured with the averaged weights."""


class Augment(StrictModel):
    """Augmentation multiplicity: a record's gradient is the mean over copies, changed as images or by other draws."""

    copies: Annotated[int, Field(ge=1, le=MAX_COPIES)] = key(
        "number of copies of a record in each step; their mean gradient is clipped, at no cost in privacy"
    )
    flip: Literal["none", "horizontal", "vertical", "both"] = key(
        "directions in which a copy is mirrored, each with probability 1/2", "none"
    )
    shift: Annotated[int, Field(ge=0, le=1024)] = key(
        "largest number of pixels by which a copy is moved in each direction (padding, then a crop)", 0
    )
    fill: Literal["zeros", "reflect", "edge"] = key(
        "what stands beyond the border of a moved image: zeros, its reflection, or its last pixels", "zeros"
    )


class Average(StrictModel):
    """An exponential moving average of the weights, which is released beside the last weights."""

    decay: Annotated[float, Field(gt=0, lt=1)] = key(
        "share of the average that a step keeps; the weights after the step have the remaining share", 0.999
    )
    ramp: bool = key("keep only (1 + t) / (10 + t) after step t where that is less, so that early weights fade", True)


class EarlyStop(StrictModel):
    """End the training where a figure of the test records does not get better any more."""

    records: Literal["public", "private"] | None = optional(
        "public: the test records are declared public, and looks at them cost nothing. private: a look is the number "
        "of them that the network gets right, with noise. Needed with privacy"
    )
    metric: Literal["accuracy", "test_loss", "perplexity"] | None = optional(
        "the figure of public records (default: accuracy, or test_loss where there is none); of private ones accuracy"
    )
    patience: Count = key("looks in a row without a better figure after which the training ends", 3)
    every: Count | None = optional("steps between two looks (default: those of an epoch)")
    least: Annotated[float, Field(ge=0, allow_inf_nan=False)] = key("by how much a better figure is better", 0.0)
    eps: Positive | None = optional(
        "what all looks at private records together cost each of them, at privacy.delta (default: privacy.eps)"
    )

    def rules(self) -> Iterator[tuple[Key, str]]:
        if self.records != "private" and self.eps is not None:
            yield ("eps",), "eps is the cost of looks at private records (records: private); leave it out"
        if self.records == "private" and self.metric not in (None, "accuracy"):
            yield ("metric",), f"private records are looked at by accuracy; found {self.metric}. Leave it out"


class Adapt(StrictModel):
    """A clipping norm that follows a quantile of the gradients' norms, by noisy counts that are accounted for."""

    quantile: Annotated[float, Field(gt=0, lt=1)] = key(
        "share of the gradients that should be no longer than the clipping norm", 0.5
    )
    rate: Positive = key("step of the logarithm of the norm for each unit of difference between the two shares", 0.2)
    count_noise: Positive | None = optional(
        "standard deviation of the noise on the number of such gradients, in records; by default a "
        "twentieth of the batch"
    )
    smallest: Positive = key("the norm never falls below this", 1e-6)
    largest: Positive = key("the norm never rises above this", 1e6)

    @model_validator(mode="after")
    def _ordered(self) -> Adapt:
        if self.smallest >= self.largest:
            raise ValueError(f"smallest must be below largest; found {self.smallest:g} and {self.largest:g}")
        return self


Patterns = Annotated[
    list[Word], BeforeValidator(lambda value: [value] if isinstance(value, str) else value), Field(min_length=1)
]
"""Names of parameters or layers, in which ``*`` stands for any characters; one word is a list of one."""


class Weights(StrictModel):
    """A file of weights from which a network begins, which are taken as public."""

    file: Word = key("a file in the safetensors format, or a state_dict or model.pt of torch")
    sha256: Word | None = optional("the digest of the file; another file is refused")
    recipe: Word | None = optional(
        "a recipe without privacy that writes the file into its folder; it is trained first where there is no file"
    )
    skip: Patterns | None = optional(
        "parameters that begin at random all the same, such as those of a new last layer: head.*"
    )
    records: Literal["public", "other"] | None = optional(
        "what is declared of the records behind the weights: that they are public, or other ones than "
        "those of this training; a training with privacy needs public for weights that wpriv trained without, and one "
        "of both for weights that it trained with privacy"
    )


Init = Annotated[
    Weights | None,
    BeforeValidator(
        lambda value: {"file": value} if isinstance(value, str) else value, json_schema_input_type=Weights | str
    ),
]


class LowRank(StrictModel):
    """Low-rank adaptation: linear layers are frozen, and a product of two small matrices is trained beside each."""

    rank: Count = key("the smaller dimension of both matrices")
    alpha: Positive | None = optional("the product is multiplied by alpha / rank; by default by 1")
    layers: Patterns = key("the linear layers that are adapted, by name", ["*"])


# Grids of trainings.


class Axis(StrictModel):
    """An axis of a sweep over trainings: the values of one key, or named settings that change several keys each."""

    over: Word = key("a key by its dotted path, such as privacy.eps; with settings, a name of your own")
    values: Annotated[list[int | float | str], Field(min_length=1, max_length=MAX_POINTS)] | None = optional(
        "the values of that key"
    )
    settings: Annotated[dict[str, dict[str, object]], Field(min_length=1, max_length=MAX_POINTS)] | None = optional(
        "instead of values: several keys by dotted path with their values, for each name; over is the "
        "column of the names in tables"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Axis:
        if (self.values is None) == (self.settings is None):
            raise ValueError("an axis has either values or settings")
        return self

    def points(self) -> list[tuple[int | float | str, dict[str, object]]]:
        """Return each point's label in tables, and the keys that it changes."""
        if self.settings is not None:
            return list(self.settings.items())
        return [(value, {self.over: value}) for value in self.values or []]


Axes = Annotated[
    list[Axis], BeforeValidator(as_list, json_schema_input_type=Axis | list[Axis]), Field(min_length=1, max_length=4)
]


class Score(StrictModel):
    """The figure by which the best run is chosen."""

    column: Word = key(
        "a column of metrics.csv that the task measures on test records; its last value counts", "accuracy"
    )
    best: Literal["highest", "lowest"] = key("which value is the best one", "highest")
    records: Literal["public"] = key("public: the test records are declared public, so that the score costs nothing")

    @field_validator("records", mode="before")
    @classmethod
    def _public(cls, value: object) -> object:
        if value != "public":
            raise ValueError(
                "a score on private records is a release of every run, with noise and a cost of its own, which "
                "training does not have. Hold out records that are public and write records: public"
            )
        return value


class Tune(StrictModel):
    """Private tuning: a random number of runs of randomly drawn settings, of which only the best is kept."""

    sweep: Axes = key("the candidate settings: one axis, or a list of axes whose product is the grid")
    repeats: Repeats = key("distribution of the number of runs, such as geometric:mean=20")
    score: Score = key("what decides which run is the best")


class Cluster(StrictModel):
    """What each task of a sweep asks of a cluster, where ``--backend submitit`` submits them."""

    system: Literal["slurm", "local"] = key(
        "slurm, or local for processes of this machine, to try the recipe without a cluster", "slurm"
    )
    partition: Word | None = optional("partition of Slurm (sbatch --partition)")
    account: Word | None = optional("account that the tasks are charged to (sbatch --account)")
    qos: Word | None = optional("quality of service (sbatch --qos)")
    constraint: Word | None = optional("features that a node must have (sbatch --constraint)")
    time: Count = key("minutes that a task may run before it is stopped and queued again", 60)
    cpus: Count = key("processors of a task, which are also its threads", 1)
    gpus: Annotated[int, Field(ge=0, le=1)] | None = optional(
        "GPUs of a task, at most 1; left out, one with --device cuda and otherwise none"
    )
    memory: Count | None = optional("megabytes of a task (sbatch --mem)")
    warning: Count = key("seconds before the end of its time at which a task gets the signal to save", 90)
    requeues: Annotated[int, Field(ge=0, le=1000)] = key(
        "how often a task that reached its time limit is put into the queue again", 20
    )
    setup: list[Word] = Field(
        default_factory=list, description="shell commands that run before each task of slurm, such as module load"
    )

    def gpus_for(self, device: str) -> int:
        """Return the number of GPUs of a task that trains on a device."""
        return int(device == "cuda") if self.gpus is None else self.gpus
