"""One run of a training in its folder: begin, continue or load it, and conclude it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.errors import Interrupted, UsageError
from wpriv.files.file_lock import LOCK, locked
from wpriv.run.results import file_names
from wpriv.run.training import finalize, load_data, plan, progress, run_folder
from wpriv.run.training.own_training import OwnTraining
from wpriv.run.training.plan import Plan
from wpriv.run.training.process_group import is_main, together
from wpriv.run.training.run_folder import RunFolder
from wpriv.run.training.trained import Trained, load_finished

Stop = Callable[[], str | None]


def schedule(job: Plan, run: int = 1) -> Any:
    """Return the plan as the engine needs it."""
    from wpriv.engine.job import Schedule

    private = job.private
    return Schedule(
        job.sampling,
        job.records,
        job.batch,
        job.steps,
        job.step,
        job.multiplier,
        job.adjacency,
        job.train.optimizer,
        mask=0.0 if private is None else private.mask,
        once=job.release is not None and job.release.once,
        run=run,
        every=job.train.checkpoint,
        exact=private is not None and private.exact,
    )


@dataclass
class TrainingRun:
    """One run of a recipe in a folder, on data in memory.

    Args:
        out: the folder. device: ``cpu`` or ``cuda``. say, stop: see ``train.run``. started: when it began, in seconds.
        own: network, loss and records of the calling program, in place of what the recipe names.
    """

    recipe: Recipe
    out: Path
    data: Any
    device: str
    say: progress.Say | None
    stop: Stop
    started: float
    own: OwnTraining | None = None

    def run(self, **start: bool) -> Trained:
        """Train unless the folder holds the finished run; ``start`` is as in ``planned``."""
        recipe, data = self.recipe, self.data
        sizes = load_data.sizes_of(recipe, data)
        folder = together(lambda: run_folder.inspect(self.out, recipe, **start))
        if folder.done:
            return self._finished(plan.plan(recipe, sizes, folder.earlier_process()), folder)
        from wpriv.engine import distributed, launch

        self._warn_of_scales()
        launch.device_of(self.device)  # before anything is written
        with contextlib.ExitStack() as stack:
            busy = f"another process is training in {self.out}. Wait until it ends, or name another folder with --out"
            together(lambda: stack.enter_context(locked(self.out / LOCK, busy)))
            # inspect again, now that no other process can change the folder
            folder = together(lambda: run_folder.resolve_run(run_folder.inspect(self.out, recipe, **start), recipe))
            job = plan.plan(recipe, sizes, folder.earlier_process())
            if folder.done:
                return self._finished(job, folder)
            about = self._provenance()
            identity = run_folder.identity(recipe, job.steps, job.multiplier, data.fingerprint, folder.run)
            if not (folder.weights and together(lambda: _is_trained(folder, identity))):
                self._fit(job, folder, identity, about)
                about["wall_seconds"] = round(time.time() - self.started, 1)
                folder = replace(folder, fresh=False)
            about |= launch.about()
            reports = None if data.noise is None else data.noise.statement
            together(lambda: finalize.conclude(job, folder, about, reports))
            distributed.leave()
            return self._finished(job, folder)

    def _finished(self, job: Plan, folder: RunFolder) -> Trained:
        """The training whose results the folder holds, with the network that was trained."""
        _require_records(folder, self.data)
        trained = load_finished(job, folder)
        if self.own is None:
            return trained
        return replace(trained, model=self.own.with_weights(folder.path, self.device))

    def _warn_of_scales(self) -> None:
        if self.say is not None and is_main():
            warning = load_data.scale_warning(self.recipe, self.data)
            if warning is not None:
                self.say(f"warning: {warning}", True)

    def _provenance(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "seed": self.recipe.training.seed if self.recipe.training is not None else None,
            "data_set": self.data.name,
            "data_source": self.data.source,
            "data_fingerprint": self.data.fingerprint,
        }

    def _fit(self, job: Plan, folder: RunFolder, identity: str, about: dict[str, Any]) -> None:
        """Train as planned; the folder is claimed once the task has accepted model and data."""
        from wpriv.engine import distributed, launch

        reporter = progress.Progress(job, folder, self.say, writes=distributed.is_main())

        def begin() -> None:
            together(lambda: run_folder.claim(folder, job.recipe, {**about, **launch.about()}))
            reporter.begin()

        try:
            launch.launch(
                job.train,
                self.data,
                schedule(job, folder.run),
                folder.path,
                identity=identity,
                device=self.device,
                resume=folder.resume,
                fork=folder.fork,
                begin=begin,
                stop=self.stop,
                on_epoch=reporter.epoch,
                on_step=reporter.step,
                build_job=None if self.own is None else self.own.build_job,
            )
        except Interrupted:  # all processes stop at the same step
            distributed.leave()
            raise


def _require_records(folder: RunFolder, data: Any) -> None:
    """Refuse the results of a training on other records, as far as its provenance names them.

    Raises:
        UsageError: the folder holds such results.
    """
    try:
        stored = json.loads((folder.path / file_names.PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    fingerprint = stored.get("data_fingerprint") if isinstance(stored, dict) else None
    if fingerprint not in (None, data.fingerprint):
        raise UsageError(
            f"{folder.path} holds a finished training on other records. Name another folder with --out, or replace it "
            f"with --fresh"
        )


def _is_trained(folder: RunFolder, identity: str) -> bool:
    """Return True if the weights in a folder are those at the end of this training.

    Raises:
        UsageError: they are of this recipe, but of other data or another noise.
    """
    from wpriv.engine import checkpoint
    from wpriv.engine.training_state import load_diagnostics

    if load_diagnostics(folder.path, checkpoint.load(folder.model_path))["identity"] == identity:
        return True
    raise UsageError(
        f"{folder.model_path} is of this recipe, but was trained on other records or by another plan, and its "
        f"statement is missing. Continue from these weights at the cost of both runs with --fork, or begin again with "
        f"--fresh"
    )
