"""The verb ``train``: from a recipe to a trained model, its privacy cost and its privacy statement."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.config import document, resolve_train
from wpriv.config.recipe import Recipe, check
from wpriv.errors import Interrupted, UsageError
from wpriv.files.file_lock import LOCK, locked
from wpriv.run import load_recipe
from wpriv.run.training import finalize, load_data, plan, progress, run_folder
from wpriv.run.training.plan import Plan
from wpriv.run.training.process_group import is_main, together
from wpriv.run.training.run_folder import RunFolder
from wpriv.run.training.trained import Trained, load_finished

Stop = Callable[[], str | None]


def train(
    recipe: str | Path,
    *,
    out: str | Path | None = None,
    device: str = "cpu",
    set: Mapping[str, Any] | None = None,
    quick: bool = False,
    resume: bool = False,
    fork: bool = False,
    fresh: bool = False,
    data_root: str | Path | None = None,
) -> Trained:
    """Train a recipe of kind train, and account for the releases that really happened.

    Args:
        recipe: a path, or the name of a shipped recipe (``dpsgd/mnist``), of one training and not of a sweep.
        out: folder for model, metrics, ledger and statement (default ``results/<name>``).
        device: ``cpu`` or ``cuda``.
        set: keys to change, by path: ``{"privacy.eps": 2}``.
        quick: apply the recipe's ``quick`` overrides.
        resume: continue an unfinished run.
        fork: continue from the weights in ``out`` with a changed recipe; the cost is that of both runs.
        fresh: begin again; earlier results in ``out`` are moved aside.
        data_root: folder of the data sets.
    Returns:
        The Trained: metrics, guarantees and the statement. ``Trained.require()`` raises if a published number was
        missed.
    Raises:
        UsageError: the recipe is faulty, or ``out`` holds another run.
        Unsupported: the target is out of reach.
        MissingResource: the data set or the GPU is missing.
        Interrupted: a signal arrived; the run can be resumed.
    """
    loaded = recipe_of(recipe, quick=quick, changes=set or {})
    folder = Path(out) if out is not None else default_out(loaded)
    return run(loaded, folder, device=device, resume=resume, fork=fork, fresh=fresh, root=data_root)


def recipe_of(name: str | Path, *, quick: bool = False, changes: Mapping[str, Any] | None = None) -> Recipe:
    """Return a validated recipe of kind train with keys changed.

    Raises:
        UsageError: the recipe is faulty, before or after the changes.
    """
    recipe = load_recipe.recipe(name, quick=quick, kind="train")
    return changed(recipe, changes) if changes else recipe


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Return the recipe with the values at some dotted paths replaced."""
    data = recipe.data
    for path, value in changes.items():
        data = resolve_train.overridden(data, path, value)
    words = ", ".join(f"{path}={value}" for path, value in changes.items())
    validated = check(document.of_data(f"{recipe.name} with {words}", data))
    return replace(validated, name=recipe.name, quick=recipe.quick, changed=True)


def default_out(recipe: Recipe) -> Path:
    """Return ``results/<name>``, or a folder of its own for a quick run."""
    return Path("results") / (f"{recipe.name}-quick" if recipe.quick else recipe.name)


def planned(
    recipe: Recipe, out: Path, *, root: str | Path | None = None, sizes: Mapping[str, int] | None = None, **start: bool
) -> tuple[Plan, RunFolder]:
    """Return the plan of a run and the state of its folder, without running it.

    Records are not loaded if their sizes are known, nor is torch if there is no checkpoint or model to continue from.

    Args:
        sizes: of the data, if known. start: ``resume``, ``fork``, ``fresh``.
    """
    folder = run_folder.resolve_run(run_folder.inspect(out, recipe, **start), recipe)
    assert recipe.training is not None
    return plan.plan(recipe, sizes or load_data.sizes(recipe, root), folder.earlier_process()), folder


def run(
    recipe: Recipe,
    out: Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    fork: bool = False,
    fresh: bool = False,
    root: str | Path | None = None,
    say: progress.Say | None = None,
    stop: Stop | None = None,
) -> Trained:
    """Train a validated recipe in a folder; see ``train``.

    Args:
        say: called with lines of progress, and whether each line stays.
        stop: called after every step; returns the reason to stop, or None. By default signals are such reasons.
    """
    if recipe.training is not None and recipe.training.sweep is not None:
        raise UsageError(
            f"{recipe.name} is a sweep of several trainings: run it with `wpriv train`, or set its keys to run one of "
            f"them"
        )
    # a signal while data are read stops the run after its first step; one while results are written is too late
    with progress.signals() if stop is None else contextlib.nullcontext(stop) as stop_reason:
        started = time.time()
        data = load_data.data(recipe, root)
        return _Run(recipe, out, data, device, say, stop_reason, started).run(resume=resume, fork=fork, fresh=fresh)


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
class _Run:
    """One run of a recipe on loaded data."""

    recipe: Recipe
    out: Path
    data: Any
    device: str
    say: progress.Say | None
    stop: Stop
    started: float

    def run(self, **start: bool) -> Trained:
        """Train unless the folder holds the finished run; ``start`` is as in ``planned``."""
        recipe, data = self.recipe, self.data
        sizes = load_data.sizes_of(recipe, data)
        folder = together(lambda: run_folder.inspect(self.out, recipe, **start))
        if folder.done:
            return load_finished(plan.plan(recipe, sizes, folder.earlier_process()), folder)
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
                return load_finished(job, folder)
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
            return load_finished(job, folder)

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
            )
        except Interrupted:  # all processes stop at the same step
            distributed.leave()
            raise


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
