"""Comparisons from flags or keywords instead of a recipe file."""

from __future__ import annotations

import dataclasses
from typing import Any

from wpriv.config import document, recipe
from wpriv.core import registry
from wpriv.core.process import Process
from wpriv.errors import UsageError
from wpriv.numerics.parse_numbers import number
from wpriv.run.accounting import build_process


def from_flags(data: dict[str, Any]) -> recipe.Recipe:
    """Make a recipe of kind compare from its keys other than ``kind`` and ``source``.

    Raises:
        UsageError: the keys are faulty; there are no places to name.
    """
    return recipe.check(document.of_data("the flags", {"kind": "compare", "source": "", **data}))


def steps_of_flags(
    mech: str | None,
    params: dict[str, Any],
    schedule: dict[str, Any],
    adjacency: str | None,
    history: str | None,
    swept: list[str],
    observed: str | None = None,
    group: str | None = None,
) -> dict[str, Any]:
    """Return ``process`` and ``adjacency`` of a recipe, from the flags of ``budget``.

    Args:
        swept: quantities that a sweep sets; a parameter among them need not be given.
    """
    blank = {}
    if mech is not None:
        fields = dataclasses.fields(registry.mechanism(mech))
        blank = {f.name: 1.0 for f in fields if f.name in swept and f.name not in params}
    if "rate" in swept and schedule.get("rate") is None and schedule.get("batch") is None:
        schedule = {**schedule, "rate": 1.0}
    job = build_process.described_process(
        mech,
        params={**params, **blank},
        **schedule,
        adjacency=adjacency,
        group=group,
        history=history,
        observed=observed,
    )
    needs_size = job.records is not None and {"max_batch", "group"} & set(swept)
    return plain_process(dataclasses.replace(job.process, records=job.records or 0) if needs_size else job.process)


def plain_process(process: Process) -> dict[str, Any]:
    """The keys of a recipe that describe a process."""
    size = {"records": process.records} if process.records else {}
    steps = [{k: v for k, v in (step | size).items() if v is not None} for step in process.describe()]
    return {"process": steps, "adjacency": process.adjacency} | ({"group": process.group} if process.group > 1 else {})


def sweep(text: str) -> dict[str, Any]:
    """Parse one axis: ``n=64,256,1024``, ``eps=linspace:0,4,81``, ``sigma=geomspace:1,100,21`` or ``n=powers:2,0,16``.

    Raises:
        UsageError: the text is none of these.
    """
    over, equals, values = text.partition("=")
    kind, colon, numbers = values.rpartition(":")
    if not equals or not over.strip() or not numbers.strip():
        raise UsageError(f"--sweep wants name=values, as in n=64,256,1024 or eps=linspace:0,4,81; found {text[:80]!r}")
    points = [number(part, f"--sweep {over}") for part in numbers.split(",")]
    return {"over": over.strip(), "values": {kind.strip(): points} if colon else points}
