"""A finished training: its plan, metrics, guarantees and statement, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.accounting import evaluate
from wpriv.accounting.evaluate import Refusal
from wpriv.core.guarantee import Guarantee
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.files.shown import Shown
from wpriv.results import expectations, storage
from wpriv.results.expectations import Verdict
from wpriv.results.model import Json, Row
from wpriv.training import finalize, plan, train_data
from wpriv.training.plan import Plan
from wpriv.training.run_folder import RunFolder


@dataclass(frozen=True, repr=False)
class Trained(Shown):
    """A finished training.

    Args:
        plan: what was to be run: steps, sampling, noise.
        metrics: rows of metrics.csv, one an epoch.
        guarantees: one figure for each accountant that answered, also of other notions; none without privacy.
        refused: accountants without an answer, with the reason.
        verdicts: on the expected numbers of the recipe.
        statement: the privacy statement as plain data.
        out: the folder of the results.
        files: those that were written.
        model: the trained network, in evaluation mode; None where the run was over already and its recipe names it.
        averaged: a copy of it with the averaged weights, where ``average`` was asked for.
        found: whether the folder held all of it already, so that nothing ran.
    """

    plan: Plan
    metrics: list[Row]
    guarantees: list[Guarantee]
    refused: list[Refusal]
    verdicts: list[Verdict]
    statement: Json
    out: Path
    files: tuple[Path, ...] = ()
    model: Any = None
    averaged: Any = None
    found: bool = False

    def sentence(self) -> str:
        """The last metrics, the guarantee and the folder."""
        last = self._last
        names = [name for name in ("accuracy", "test_loss", "loss") if isinstance(last.get(name), float)]
        words = [f"{name} {last[name]:.4g}" for name in names[:1]] + [f"{self.plan.steps} steps"]
        if self.proven:
            words.append(self.proven[0].headline())
        else:
            words.append("no guarantee")
        return f"{self.plan.recipe.name}: {', '.join(words)}; results in {self.out}"

    def facts(self) -> list[tuple[str, str]]:
        """The last metrics, and every guarantee."""
        metrics = [(name, f"{value:.6g}") for name, value in self._last.items() if isinstance(value, float)]
        return [*metrics, *(("guarantee", row.sentence()) for row in self.guarantees)]

    def __float__(self) -> float:
        return self.epsilon

    @property
    def epsilon(self) -> float:
        """The eps that may be promised: the upper end of that of ``guarantee``.

        Raises:
            Unsupported: as ``guarantee``.
        """
        return float(self.guarantee.epsilon)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the statement, which are those of the guarantees as well."""
        return tuple(self.statement.get("warnings", ()))

    @property
    def classes(self) -> tuple[int | str, ...]:
        """The label of each output of the network, in their order; none where it does not predict classes."""
        return train_data.values(self.statement)

    @property
    def proven(self) -> list[Guarantee]:
        """The guarantees of (eps, delta)-DP that are proven: no estimates, and no figures of other notions."""
        return [row for row in self.guarantees if evaluate.no_guarantee(row) is None]

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of (eps, delta)-DP by the first accountant that proves one.

        Raises:
            Unsupported: there is none: the training had no privacy, or no accountant of the recipe proved one.
        """
        if not self.proven:
            reasons = [refusal.reason for refusal in self.refused]
            reasons += [reason for row in self.guarantees if (reason := evaluate.no_guarantee(row)) is not None]
            why = "; ".join(reasons) or "it was trained without privacy"
            raise Unsupported(f"no guarantee is known of this training: {why}")
        return self.proven[0]

    def results(self) -> list[Row]:
        """Return the last metrics and the noise, once for each guarantee; the last metrics alone without privacy."""
        row = {**self._last, "sigma": self.plan.multiplier, "n": self.plan.steps}
        adapted = self.plan.private is not None and self.plan.private.adapt is not None
        if self.plan.release is not None and not adapted:
            row["noise"] = self.plan.multiplier * self.plan.release.sensitivity
        figures = [guarantee.as_dict() for guarantee in self.guarantees]
        bounds = ("accountant", "claim", "epsilon", "delta")
        return [{**row, **{key: each[key] for key in bounds}} for each in figures] or [self._last]

    @property
    def _last(self) -> Row:
        """The metrics at the end; none where a tuned training drew no run."""
        return self.metrics[-1] if self.metrics else {}

    def require(self) -> None:
        """Raise CheckFailed if an expected number was missed."""
        expectations.require(self.verdicts)


def load_finished(job: Plan, folder: RunFolder) -> Trained:
    """Return the training whose results a folder holds."""
    metrics = _metrics(folder.path)
    entries = finalize.entries_of_model(folder)
    process = None if job.private is None else finalize.process_from_ledger(job, folder, entries)
    statement = finalize.load_statement(folder.path, process, entries)
    rows, refused = ([], []) if process is None else plan.guarantees(job, process)
    paths = (folder.path / name for name in storage.of_training(job.train.task, averaged=True, adapted=True))
    files = tuple(path for path in paths if path.is_file())
    trained = Trained(job, metrics, rows, refused, [], statement, folder.path, files)
    return replace(trained, verdicts=expectations.verdicts(job.recipe, trained.results(), first=True))


def _metrics(path: Path) -> list[Row]:
    """Return the metrics of a finished run."""
    try:
        rows = storage.table(path / storage.METRICS)
    except (UsageError, MissingResource):
        rows = []
    if not rows or not {"epoch", "step"} <= rows[-1].keys():
        raise UsageError(
            f"{path / storage.METRICS} holds no metrics of a run. Delete {path / storage.STATEMENT} and give the "
            f"same command again: both are written again from the model and the ledger"
        )
    return rows
