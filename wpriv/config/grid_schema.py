"""The schema of grids of trainings: axes of a sweep, private tuning that draws its runs from one, and clusters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from wpriv.config.field_types import MAX_POINTS, Count, Repeats, StrictModel, Word, as_list


class Axis(StrictModel):
    """An axis of a sweep over trainings: the values of one key, or named settings that change several keys each."""

    over: Word = Field(description="a key by its dotted path, such as privacy.eps; with settings, a name of your own")
    values: Annotated[list[int | float | str], Field(min_length=1, max_length=MAX_POINTS)] | None = Field(
        None, description="the values of that key"
    )
    settings: Annotated[dict[str, dict[str, object]], Field(min_length=1, max_length=MAX_POINTS)] | None = Field(
        None,
        description="instead of values: several keys by dotted path with their values, for each name; over is the "
        "column of the names in tables",
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

    column: Word = Field(
        "accuracy", description="a column of metrics.csv that the task measures on test records; its last value counts"
    )
    best: Literal["highest", "lowest"] = Field("highest", description="which value is the best one")
    records: Literal["public"] = Field(
        description="public: the test records are declared public, so that the score costs nothing"
    )

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

    sweep: Axes = Field(description="the candidate settings: one axis, or a list of axes whose product is the grid")
    repeats: Repeats = Field(description="distribution of the number of runs, such as geometric:mean=20")
    score: Score = Field(description="what decides which run is the best")


class Cluster(StrictModel):
    """What each task of a sweep asks of a cluster, where ``--backend submitit`` submits them."""

    system: Literal["slurm", "local"] = Field(
        "slurm", description="slurm, or local for processes of this machine, to try the recipe without a cluster"
    )
    partition: Word | None = Field(None, description="partition of Slurm (sbatch --partition)")
    account: Word | None = Field(None, description="account that the tasks are charged to (sbatch --account)")
    qos: Word | None = Field(None, description="quality of service (sbatch --qos)")
    constraint: Word | None = Field(None, description="features that a node must have (sbatch --constraint)")
    time: Count = Field(60, description="minutes that a task may run before it is stopped and queued again")
    cpus: Count = Field(1, description="processors of a task, which are also its threads")
    gpus: Annotated[int, Field(ge=0, le=1)] | None = Field(
        None, description="GPUs of a task, at most 1; left out, one with --device cuda and otherwise none"
    )
    memory: Count | None = Field(None, description="megabytes of a task (sbatch --mem)")
    warning: Count = Field(90, description="seconds before the end of its time at which a task gets the signal to save")
    requeues: Annotated[int, Field(ge=0, le=1000)] = Field(
        20, description="how often a task that reached its time limit is put into the queue again"
    )
    setup: list[Word] = Field(
        default_factory=list, description="shell commands that run before each task of slurm, such as module load"
    )

    def gpus_for(self, device: str) -> int:
        """Return the number of GPUs of a task that trains on a device."""
        return int(device == "cuda") if self.gpus is None else self.gpus
