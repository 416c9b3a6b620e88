"""The results of a tuned training: what is kept of the best run, and the statement on the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.errors import UsageError
from wpriv.files import durable_writes
from wpriv.run.results import expectations, file_names, plot, read, write
from wpriv.run.training import class_order, portable_weights, training_statement, tuned_statement
from wpriv.run.training.trained import Trained
from wpriv.run.training.tuning_plan import TuningPlan

# the statement until all other runs are deleted
PENDING = "statement.pending"
# files of a run that are written for the whole, or not kept: they hold timings of the run or its eps alone
REWRITTEN = (
    file_names.STATEMENT,
    file_names.STATEMENT_TEXT,
    file_names.METRICS,
    file_names.WEIGHTS,
    file_names.FIGURE,
    file_names.DIAGNOSTICS,
    file_names.RECIPE,
    file_names.PROVENANCE,
)
RUN_COLUMNS = ("seconds", "epsilon")


def publish(plan: TuningPlan, best: Trained | None, out: Path, data: Any, device: str) -> None:
    """Write everything that is kept, and last the statement, under the name ``PENDING``.

    Args:
        best: the best run, with its candidate under ``statement["chosen"]``; None if K was 0.
        data: the records, of which the provenance names the source.
    """
    from wpriv.engine import launch

    assert plan.recipe.training is not None
    about = {
        **write.provenance(),
        "device": device,
        "seed": plan.recipe.training.seed,
        "data_set": data.name,
        "data_source": data.source,
        "data_fingerprint": data.fingerprint,
        **class_order.of_data(plan.recipe.training, data),
        **launch.about(),
    }
    # the words of the command line may say that the training was continued
    del about["command"]
    if best is not None:
        _keep_files(plan, best, out)
        method = best.statement.get("noise", {}).get("clipped_by")
        about |= {"clipping": method} if method else {}
    durable_writes.replace(out / file_names.RECIPE, yaml_document.as_yaml(plan.recipe.data))
    durable_writes.replace(out / file_names.PROVENANCE, json.dumps(about, indent=2) + "\n")
    statement = plain({**tuned_statement.statement(plan, best, about), **_weights_entries(best)})
    durable_writes.replace(out / file_names.STATEMENT_TEXT, training_statement.to_markdown(statement))
    content = json.dumps(statement, indent=2) + "\n"
    if best is not None:
        portable_weights.write_all(out, _stored(best), statement, content)
    durable_writes.replace(out / PENDING, content)


def load(plan: TuningPlan, out: Path) -> Trained:
    """Return the finished tuned training of a folder.

    Raises:
        UsageError: its statement or its metrics cannot be read.
    """
    path = out / file_names.STATEMENT
    try:
        statement = json.loads(path.read_text(encoding="utf-8"))
        chosen = statement["tuning"]["chosen"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            f"{path} cannot be read. Restore it, or train in another folder with `out`, at the cost of both"
        ) from None
    matching = [candidate for candidate in plan.candidates if plain(candidate.labels) == chosen]
    candidate = matching[0] if matching else plan.candidates[0]
    rows, refused = plan.guarantees
    metrics = [] if chosen is None else read.table(out / file_names.METRICS)
    names = (*file_names.of_training(candidate.plan.train.task, averaged=True), file_names.CANDIDATE)
    files = tuple(out / name for name in names if (out / name).is_file())
    trained = Trained(candidate.plan, metrics, rows, refused, [], statement, out, files)
    if not metrics:
        return trained
    verdicts = expectations.verdicts(plan.recipe, trained.results(), first=True)
    return Trained(candidate.plan, metrics, rows, refused, verdicts, statement, out, files)


def plain(data: Any) -> Any:
    """Return data as it is after a round trip through JSON."""
    return json.loads(json.dumps(data))


def _stored(best: Trained) -> dict[str, Any]:
    from wpriv.engine import checkpoint

    return checkpoint.load(best.out / file_names.MODEL)


def _weights_entries(best: Trained | None) -> dict[str, Any]:
    """The entries of the statement on the files of the weights."""
    if best is None:
        return {"model": {"file": None, "why": "the number of runs was 0"}}
    stored, average = _stored(best), best.plan.train.average
    averaged = {} if average is None else portable_weights.describe_average(average, stored)
    return {"model": portable_weights.describe(stored["weights"]), **averaged}


def _keep_files(plan: TuningPlan, best: Trained, out: Path) -> None:
    """Write the files of the best run anew, without what shows when it ran."""
    assert plan.recipe.training is not None
    train = plan.recipe.training
    for name in file_names.of_training(train.task, averaged=False):
        if name not in REWRITTEN and (best.out / name).is_file():
            durable_writes.replace(out / name, (best.out / name).read_bytes())
    rows = [{key: value for key, value in row.items() if key not in RUN_COLUMNS} for row in best.metrics]
    durable_writes.replace(out / file_names.METRICS, write.csv_text(rows))
    durable_writes.replace(out / file_names.CANDIDATE, yaml_document.as_yaml(best.plan.recipe.data))
    metrics = read.table(out / file_names.METRICS)
    plot.draw(metrics, [plot.View(figure=train.figure or "training", title=train.title)], out, ("png",))
