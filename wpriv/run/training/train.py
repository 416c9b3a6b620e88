"""The verb ``train``: a recipe to a trained model, what it cost, and a statement of what is promised."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.config import document, resolve_train
from wpriv.config.recipe import Recipe, check
from wpriv.core.guarantee import Guarantee
from wpriv.errors import Interrupted, UsageError
from wpriv.files.file_lock import LOCK, locked
from wpriv.run import load_recipe
from wpriv.run.accounting.evaluate import Refusal
from wpriv.run.results import expectations, file_names, read
from wpriv.run.results.expectations import Verdict
from wpriv.run.training import finalize, load_data, plan, progress, run_folder
from wpriv.run.training.plan import Plan
from wpriv.run.training.process_group import is_main, together
from wpriv.run.training.run_folder import Folder

Row = dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """A finished training: metrics by epoch, what the accountants say, verdicts on published numbers, and where the files are."""

    plan: Plan
    metrics: list[Row]
    guarantees: list[Guarantee]
    refused: list[Refusal]
    verdicts: list[Verdict]
    statement: dict[str, Any]
    out: Path
    files: tuple[Path, ...] = ()

    def results(self) -> list[Row]:
        """The last metrics beside what each accountant says and the noise (its standard deviation); alone where there is no privacy."""
        ran = {**self.metrics[-1], "sigma": self.plan.multiplier, "n": self.plan.steps}
        if self.plan.release is not None:
            ran["noise"] = self.plan.multiplier * self.plan.release.sensitivity
        return [{**ran, **_bounds(row)} for row in self.guarantees] or [self.metrics[-1]]

    def require(self) -> None:
        """Raises CheckFailed where a published number was missed."""
        expectations.require(self.verdicts)


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
    """Trains what a recipe of kind train says, and accounts for what really ran.

    Args:
        recipe: a path, or the name of a shipped recipe (``dpsgd/mnist``). set: keys to change, by path: ``{"privacy.eps": 2}``.
        out: folder for model, metrics, ledger and statement (default ``results/<name>``). device: ``cpu`` or ``cuda``.
        quick: apply the recipe's ``quick`` overrides. data_root: where the data set lies.
        resume: go on with an unfinished run. fork: go on from the weights in ``out`` under a changed recipe; both runs are paid for.
        fresh: begin again; what ``out`` holds is moved aside.
    Returns:
        Metrics, guarantees and the statement. ``Trained.require()`` raises where a published number was missed.
    Raises:
        UsageError: the recipe is faulty, or ``out`` holds another run. Unsupported: the target is out of reach.
        MissingResource: the data set or the GPU is not there. Interrupted: a signal came; resumable.
    """
    made = recipe_of(recipe, quick=quick, changes=set or {})
    where = Path(out) if out is not None else default_out(made)
    return run(made, where, device=device, resume=resume, fork=fork, fresh=fresh, root=data_root)


def recipe_of(name: str | Path, *, quick: bool = False, changes: Mapping[str, Any] | None = None) -> Recipe:
    """A checked recipe of kind train with keys changed.

    Raises:
        UsageError: the recipe is faulty, or is so after the change.
    """
    made = load_recipe.recipe(name, quick=quick, kind="train")
    return changed(made, changes) if changes else made


def changed(made: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with the values at some dotted paths replaced."""
    data = made.data
    for path, value in changes.items():
        data = resolve_train.overridden(data, path, value)
    told = ", ".join(f"{path}={value}" for path, value in changes.items())
    found = check(document.of_data(f"{made.name} with {told}", data))
    return replace(found, name=made.name, quick=made.quick, changed=True)


def default_out(made: Recipe) -> Path:
    """``results/<name>``, and a folder of its own for a quick run."""
    return Path("results") / (f"{made.name}-quick" if made.quick else made.name)


def planned(
    made: Recipe, out: Path, *, root: str | Path | None = None, sizes: Mapping[str, int] | None = None, **how: bool
) -> tuple[Plan, Folder]:
    """What a run would do, without doing it.

    The records are not loaded where their sizes are known, nor torch where there is no checkpoint and no model to go on from.
    """
    found = run_folder.settle(run_folder.look(out, made, **how), made)
    assert made.training is not None
    return plan.plan(made, sizes or load_data.sizes(made, root), found.before()), found


def run(
    made: Recipe,
    out: Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    fork: bool = False,
    fresh: bool = False,
    root: str | Path | None = None,
    say: progress.Say | None = None,
    stop: Callable[[], str | None] | None = None,
) -> Trained:
    """Trains a checked recipe in a folder; see ``train``.

    Args:
        say: told of progress, a line an epoch that stays and others that do not.
        stop: asked after every step; the reason to stop, or None. Left out, signals are such reasons.
    """
    if made.training is not None and made.training.sweep is not None:
        raise UsageError(
            f"{made.name} is a sweep of several trainings: run it with `wpriv train`, or one cell of it with its keys set"
        )
    # from here to the end: a signal while data are read stops the run after its first step, one while results are written comes too late
    with progress.signals() if stop is None else contextlib.nullcontext(stop) as asked:
        return _run(made, out, asked, say, device=device, root=root, resume=resume, fork=fork, fresh=fresh)


def _run(
    made: Recipe,
    out: Path,
    stop: Callable[[], str | None],
    say: progress.Say | None,
    *,
    device: str,
    root: str | Path | None,
    **how: bool,
) -> Trained:
    started = time.time()
    data = load_data.data(made, root)
    place = together(lambda: run_folder.look(out, made, **how))
    sizes = load_data.sizes_of(made, data)
    if place.done:
        return finished(plan.plan(made, sizes, place.before()), place)
    from wpriv.engine import distributed, launch

    if say is not None and is_main() and (warning := load_data.unlike_scales(made, data)) is not None:
        say(f"warning: {warning}", True)
    about = {
        "device": device,
        "seed": made.training.seed if made.training is not None else None,
        "data_set": data.name,
        "data_source": data.source,
        "data_fingerprint": data.fingerprint,
    }
    launch.device_of(device)  # before anything is written
    with contextlib.ExitStack() as held:
        busy = f"another process is training in {out}. Wait until it ends, or name another folder with --out"
        together(lambda: held.enter_context(locked(out / LOCK, busy)))
        # again, now that no other process can change what is found
        place = together(lambda: run_folder.settle(run_folder.look(out, made, **how), made))
        job = plan.plan(made, sizes, place.before())
        if place.done:
            return finished(job, place)
        identity = run_folder.identity(made, job.steps, job.multiplier, data.fingerprint, place.run)
        if not (place.weights and together(lambda: _trained(out, identity))):
            _fit(job, place, data, identity, about, device, stop, say)
            about["wall_seconds"] = round(time.time() - started, 1)
            place = replace(place, fresh=False)
        about |= launch.about()
        together(lambda: finalize.conclude(job, place, about, None if data.noise is None else data.noise.statement))
        distributed.leave()
        return finished(job, place)


def _fit(
    job: Plan,
    place: Folder,
    data: Any,
    identity: str,
    about: dict[str, Any],
    device: str,
    stop: Callable[[], str | None],
    say: progress.Say | None,
) -> None:
    """Trains as planned; the folder is taken once the task has accepted model and data."""
    from wpriv.engine import distributed, launch

    tell = progress.Progress(job, place, say, writes=distributed.is_main())

    def begin() -> None:
        together(lambda: run_folder.take(place, job.recipe, {**about, **launch.about()}))
        tell.begin()

    try:
        launch.launch(
            job.train,
            data,
            schedule(job, place.run),
            place.path,
            identity=identity,
            device=device,
            resume=place.resume,
            fork=place.fork,
            begin=begin,
            stop=stop,
            on_epoch=tell.epoch,
            on_step=tell.step,
        )
    except Interrupted:  # all processes stop at the same step
        distributed.leave()
        raise


def schedule(job: Plan, run: int = 1) -> Any:
    """The plan as the engine takes it."""
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


def finished(job: Plan, place: Folder) -> Trained:
    """What lies in the folder of a finished run."""
    metrics = _metrics(place.path)
    entries = finalize.held_to_model(place)
    process = None if job.private is None else finalize.process_from_ledger(job, place, entries)
    said = finalize.stated(place.path, process, entries)
    rows, refused = ([], []) if process is None else plan.guarantees(job, process)
    files = tuple(place.path / name for name in file_names.of_training(job.train.task) if (place.path / name).is_file())
    done = Trained(job, metrics, rows, refused, [], said, place.path, files)
    return replace(done, verdicts=expectations.verdicts(job.recipe, done.results(), first=True))


def _metrics(path: Path) -> list[Row]:
    """The metrics of a finished run.

    Raises:
        UsageError: they are not there, or not those of a run.
    """
    try:
        rows = read.table(path / file_names.METRICS)
    except UsageError:
        rows = []
    if not rows or not {"epoch", "step"} <= rows[-1].keys():
        raise UsageError(
            f"{path / file_names.METRICS} holds no metrics of a run. Delete {path / file_names.STATEMENT} and give the same command again: "
            f"both are written anew from the model and the ledger"
        )
    return rows


def _trained(out: Path, identity: str) -> bool:
    """Whether the weights in a folder are those at the end of this very training.

    Raises:
        UsageError: they are of this recipe, but of other data or another noise.
    """
    from wpriv.engine import checkpoint
    from wpriv.engine.training_state import load_diagnostics

    if load_diagnostics(out, checkpoint.load(out / file_names.MODEL))["identity"] == identity:
        return True
    raise UsageError(
        f"{out / file_names.MODEL} is of this recipe, but was trained on other records or by another plan, and its statement is missing. "
        f"Go on from these weights at their cost with --fork, or begin again with --fresh"
    )


def _bounds(row: Guarantee) -> Row:
    told = row.as_dict()
    return {key: told[key] for key in ("accountant", "claim", "epsilon", "delta")}
