"""The schema of ``cluster`` in a recipe of kind train: how the trainings of a sweep run as tasks of a cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from wpriv.config.field_types import Count, StrictModel, Word


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
