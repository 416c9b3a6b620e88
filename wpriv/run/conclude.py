"""The end of a training: what its ledger says ran, priced, told in a statement and drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from wpriv.core import registry
from wpriv.core.observed import of_distances
from wpriv.core.process import Process
from wpriv.run import folder, plan, plot, saved, statement, write
from wpriv.run.folder import Folder
from wpriv.run.plan import Plan


def ran(job: Plan, place: Folder) -> Process:
    """What the ledger says ran, with the distances that were observed where an accountant prices them."""
    process = place.spent(job.adjacency)
    if not any(word.partition(":")[0] in ("bdp", "wdp") for word in job.train.accountants) or len(process.steps) != 1:
        return process
    from wpriv.train import checkpoint

    private = job.private
    assert private is not None
    stored = checkpoint.load(place.path / folder.MODEL)
    norm = private.norm if private.clip == "batch-mean" else float(private.clip)
    seen = of_distances(
        stored["distances"].double().numpy(), unit=norm, coordinates=int(stored["coordinates"]), origin="observed in this run",
        records=private.pairs,
    )  # fmt: skip
    return Process((replace(process.steps[0], observed=seen),), process.adjacency)


def conclude(job: Plan, place: Folder, about: dict[str, Any], before: dict[str, Any] | None) -> None:
    """Writes the statement and the figure of a run that is over; the statement last, whose presence says that it is.

    ``before`` is what was promised of the training records when they were privatised, if they were.
    """
    from wpriv.train import checkpoint

    path = place.path
    process = None if job.private is None else ran(job, place)
    rows, refused = ([], []) if process is None else plan.guarantees(job, process)
    method = checkpoint.load(path / folder.MODEL)["clipping"]
    about = {**about, "clipping": method} if method else about
    provenance = {**write.provenance(), **about, "run": place.run}
    write.replace(path / folder.PROVENANCE, json.dumps(provenance, indent=2) + "\n")
    said = statement.statement(job, process, rows, refused, provenance, before)
    metrics, task = saved.table(path / folder.METRICS), registry.load("tasks", job.train.task)
    told = task.warnings(metrics) if hasattr(task, "warnings") else []
    said = json.loads(json.dumps({**said, "warnings": said.get("warnings", []) + told}))
    write.replace(path / folder.TOLD, statement.told(said))
    plot.draw(metrics, [plot.View(figure=job.train.figure or "training", title=job.train.title)], path, ("png",))
    plot.made(path, job.train.task, ("png",))
    write.replace(path / folder.STATEMENT, json.dumps(said, indent=2) + "\n")
