"""The privacy statement of a tuned training: that of the best run, with the guarantees of the best of K runs."""

from __future__ import annotations

from typing import Any

from wpriv.accounting import ledger
from wpriv.core.guarantee import Guarantee
from wpriv.results import storage
from wpriv.training import finalize, tasks, training_statement
from wpriv.training.reports import publication, render
from wpriv.training.run_folder import RunFolder
from wpriv.training.trained import Trained
from wpriv.training.tuning_plan import TuningPlan


def statement(plan: TuningPlan, best: Trained | None, about: dict[str, Any]) -> dict[str, Any]:
    """The statement on the whole: that of the best run, with the guarantees of the best of K runs."""
    job = plan.candidates[0].plan if best is None else best.plan
    rows, refused = plan.guarantees
    base = training_statement.statement(job, job.process(), rows, refused, about)
    warnings = list(base["warnings"])
    position: dict[str, Any] = {}
    if best is not None:
        entries = finalize.entries_of_plan(job, RunFolder(best.out))
        position = {"ledger": ledger.position(entries).as_dict()}
        warnings += tasks.load(job.train.task).warnings(best.metrics)
    score = plan.tune.score
    lists = render.sections("tuned_lists.txt.j2", column=score.column, repeats=plan.repeats)
    not_covered = [line for line in base["not_covered"] if not line.startswith("the choice of model")]
    return {
        **base,
        "recipe": plan.recipe.name,
        "source": plan.recipe.source,
        "seed": plan.recipe.train.seed,
        "publish": _publish(base["publish"], plan),
        "tuning": _tuning(plan, rows, None if best is None else best.statement["chosen"]),
        **position,
        "earlier_runs": [],
        "covered": [*base["covered"], *lists["covered"]],
        "not_covered": [*lists["not_covered"], *not_covered],
        "not_assessed": [*lists["not_assessed"], *base["not_assessed"]],
        "warnings": warnings,
    }


def _tuning(plan: TuningPlan, rows: list[Guarantee], chosen: dict[str, Any] | None) -> dict[str, Any]:
    """The entry ``tuning`` of a statement: the distribution, the candidates and the score, and the eps of one run."""
    return {
        "repeats": plan.repeats.describe(),
        "candidates": [candidate.labels for candidate in plan.candidates],
        "drawn": "each run draws one candidate uniformly, with replacement",
        "score": plan.tune.score.model_dump(),
        "chosen": chosen,
        "released": "nothing: the number of runs was 0" if chosen is None else "the best run",
        "one_run": {row.accountant: row.extra["repeats"]["one_run"] for row in rows},
        "process_is_of": "the best run alone; the guarantees are those of the best of K runs",
    }


def _publish(entries: list[dict[str, str]], plan: TuningPlan) -> list[dict[str, str]]:
    """The files that may be published, with the recipe of the best run and without what is not kept."""
    seeded = plan.recipe.train.seed is not None
    gone = (storage.DIAGNOSTICS, storage.CHECKPOINT, "before-1, before-2, ...")
    kept = [entry for entry in entries if entry["file"] not in gone]
    why = publication.FIXED_SEED if seeded else f"{publication.SETTINGS}, and which candidate was the best"
    return [*kept, {"file": storage.CANDIDATE, "publish": "no" if seeded else "yes", "why": why}]
