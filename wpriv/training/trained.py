"""A finished training: its plan, metrics, guarantees and statement, read from its folder."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from wpriv._version import __version__
from wpriv.accounting import evaluate
from wpriv.accounting.evaluate import Refusal
from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.files import durable_writes
from wpriv.files.shown import Shown
from wpriv.results import expectations, storage
from wpriv.results.expectations import Verdict
from wpriv.results.model import Json, Row
from wpriv.training import finalize, plan, train_data
from wpriv.training.plan import Plan
from wpriv.training.prediction import SUPERVISED, Predictor
from wpriv.training.run_folder import RunFolder

if TYPE_CHECKING:
    from torch import nn


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
        predictor: what predicts with the network; None for tasks whose network predicts no targets, and in a sweep.
        averaged: a copy of the network with the averaged weights, where ``average`` was asked for.
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
    predictor: Predictor | None = None
    averaged: nn.Module | None = None
    found: bool = False

    def sentence(self) -> str:
        """The last metrics, the guarantee and the folder."""
        last = self._last
        names = [name for name in ("accuracy", "test_loss", "loss") if isinstance(last.get(name), float)]
        words = [f"{name} {last[name]:.4g}" for name in names[:1]] + [f"{self.plan.steps} steps"]
        words.append(self.proven[0].headline() if self.proven else "no guarantee")
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

    @property
    def model(self) -> nn.Module | None:
        """The trained network, the caller's own object where it was given; None as for ``predictor``."""
        return None if self.predictor is None else self.predictor.network

    def predict(self, x: object) -> Any:
        """Predict the targets of records.

        Args:
            x: [N, ...] records as in the training (arrays or tensors; the options ``normalise`` and ``features`` of
                the training are applied to them). What is predicted of private records is not covered by the guarantee.
        Returns:
            [N] labels out of ``classes``, the most likely of each record; or [N, ...] outputs, where numbers are
            predicted or a record has several targets.
        Raises:
            UsageError: the records have another form, or this training predicts no targets.
        """
        return self._predictor.predict(x)

    def predict_proba(self, x: object) -> NDArray[Any]:
        """Return the probabilities [N, K] of the classes of records, in the order of ``classes``.

        Args and Raises: as ``predict``; and numbers are predicted.
        """
        return self._predictor.probabilities(x)

    def evaluate(self, x: object, y: object = None, *, loss: object = None) -> dict[str, float]:
        """Return the mean loss of records (``test_loss``) and, for classes, the share that is right (``accuracy``).

        They are computed without noise, so that they are no secret only where the records are public.

        Args:
            x, y: as ``predict``, and a target for each record; without ``y``, a pair of both, a Dataset or a
                DataLoader of pairs. loss: as for ``train``; that of the training by default.
        Raises:
            UsageError: as ``predict``; or a label is none of ``classes``.
        """
        return self._predictor.evaluate(x, y, loss)

    @property
    def _predictor(self) -> Predictor:
        if self.predictor is None:
            why = "is one of a sweep" if self.plan.train.task in SUPERVISED else f"has the task {self.plan.train.task}"
            raise UsageError(
                f"{self.plan.recipe.name} {why}, whose network is not kept for predictions. Load the weights of "
                f"{self.out / storage.WEIGHTS} into it"
            )
        return self.predictor

    def save(self, path: str | Path) -> Path:
        """Write this training with its network into one file, which ``wpriv.load`` reads, and return its path.

        It is a pickle: whoever reads it runs what it names. ``model.safetensors`` in ``out`` has the weights alone.

        Raises:
            UsageError: the network cannot be pickled. MissingResource: the file cannot be written.
        """
        try:
            content = pickle.dumps(self)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"the network cannot be pickled ({error}): its classes and functions must be defined at the top of a "
                f"module. Its weights are in {self.out / storage.WEIGHTS}"
            ) from None
        durable_writes.replace(Path(path), content, mode=0o600)  # as readable as model.pt
        return Path(path)

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


def load(path: str | Path) -> Trained:
    """Read a training that ``Trained.save`` wrote.

    Args:
        path: of the file. It is a pickle: reading it runs what it names, so read no file that you would not run.
    Raises:
        UsageError: it is no such file, or the program does not define the class of its network.
        MissingResource: it cannot be read.
    """
    advice = "wpriv.load reads a file that `Trained.save` wrote"
    if Path(path).is_dir():
        raise UsageError(f"{path} is a folder, and {advice}. For results in a folder give the call of `train` again")
    try:
        trained = pickle.loads(Path(path).read_bytes())
    except OSError as error:
        raise MissingResource(f"{path} cannot be read: {error.strerror}") from None
    except (AttributeError, ModuleNotFoundError) as error:
        raise UsageError(f"{path}: {error}; define the classes of the network where they were before") from None
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no such file ({error}): {advice}") from None
    if not isinstance(trained, Trained):
        raise UsageError(f"{path} holds a {type(trained).__name__}, and {advice}")
    return trained


def load_finished(planned: Plan, folder: RunFolder) -> Trained:
    """Return the training whose results a folder holds."""
    metrics = _metrics(folder.path)
    job, entries, process = finalize.from_ledger(planned, folder)
    statement, is_whole = finalize.load_statement(folder.path, process, entries)
    rows, refused = ([], []) if process is None else _answers(job, process, statement if is_whole else {})
    names = (*storage.of_training(job.train.task, averaged=True, adapted=True), storage.LOOKS)
    paths = (folder.path / name for name in names)
    files = tuple(path for path in paths if path.is_file())
    trained = Trained(job, metrics, rows, refused, [], statement, folder.path, files)
    return replace(trained, verdicts=expectations.verdicts(job.recipe, trained.results(), first=True))


def _answers(job: Plan, process: Process, statement: Json) -> tuple[list[Guarantee], list[Refusal]]:
    """The answers of the accountants: those in the statement of this version, or computed again."""
    figures = [*statement.get("guarantees", ()), *statement.get("for_comparison", ())]
    rows = {row["accountant"]: row for row in figures if row["version"] == __version__}
    why = {row["accountant"]: row["reason"] for row in statement.get("refused", ())}
    if not job.scheduled or not rows or rows.keys() | why.keys() != set(job.train.accountants):
        return plan.guarantees(job, process)
    found = [Guarantee.of_dict(rows[name], process) for name in job.train.accountants if name in rows]
    return found, [Refusal(name, why[name]) for name in job.train.accountants if name in why]


def _metrics(path: Path) -> list[Row]:
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
