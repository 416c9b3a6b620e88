"""The neighbouring relation as users describe it: adjacency, records of one person, and size of the data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wpriv.core.process import Process, Step
from wpriv.numerics.parse_numbers import whole


def process_between(steps: Sequence[Step], adjacency: str | None, group: Any, records: int | None) -> Process:
    """A process that knows the size of the data set where its guarantee depends on that."""
    persons = 1 if group is None else whole(group, "group")
    depends = any(
        step.sampling.max_batch or (persons > 1 and step.sampling.kind == "fixed" and step.sampling.rate < 1)
        for step in steps
    )
    size = records if depends and records is not None else 0
    return Process(tuple(steps), "" if adjacency is None else adjacency, persons, size)


def neighbour_readings(process: Process) -> list[str]:
    """Notes on groups and largest batches, and premises that every answer says, as far as the process has them."""
    lines = []
    sampled = [step.sampling for step in process.steps if step.sampling.kind == "poisson" and step.sampling.rate < 1]
    if process.group > 1:
        lines.append(
            f"group = {process.group}: a person has up to {process.group} records; parameters of a mechanism, such as "
            f"its sensitivity, are those of one record"
        )
    if process.records and any(sampling.max_batch for sampling in sampled):
        lines.append(
            f"of a batch of more records than the largest a uniformly random part is kept; no data set has more than "
            f"{process.records} records"
        )
    return lines + [premise.sentence for premise in process.premises() if premise.shown]
