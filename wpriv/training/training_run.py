"""One run of a training in its folder: begin, continue or load it, and conclude it."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.config.recipe import Recipe
from wpriv.core.process import Process
from wpriv.errors import CheckFailed, Interrupted, UsageError, WprivError, require
from wpriv.files.durable_writes import LOCK, locked
from wpriv.results import expectations, model, storage
from wpriv.results.model import Json
from wpriv.training import finalize, metric_logs, own_training, plan, progress, run_folder, train_data
from wpriv.training.data import Data
from wpriv.training.metric_logs import Logs
from wpriv.training.own_training import OwnTraining
from wpriv.training.plan import Plan
from wpriv.training.prediction import SUPERVISED, Predictor
from wpriv.training.progress import Stop, is_main, together
from wpriv.training.run_folder import RunFolder
from wpriv.training.trained import Trained, load_finished

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from wpriv.ledger.service import Ledger
    from wpriv.training.engine.job import Schedule
    from wpriv.training.engine.loop import Engine
    from wpriv.training.engine.network_guard import Origin

PAID = "paid"  # the entry of provenance.json
MOST_LETTERS = 500  # of a reason
LOOP = (
    "note: records are clipped one after another (the method loop), which is slow: neither the rules of layers nor "
    "torch.func give each record's own gradient of this network"
)


def schedule(job: Plan, run: int = 1) -> Schedule:
    """Return the plan as the engine needs it."""
    from wpriv.training.engine.job import Schedule

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
        average=job.train.average,
        looks=job.looks,
        recursion=job.recursion,
    )


def planned(recipe: Recipe, out: Path, *, root: str | Path | None = None, **start: bool) -> tuple[Plan, RunFolder]:
    """Return the plan of a run and the state of its folder, without running it.

    Records are not loaded if their sizes are known, nor is torch if there is no checkpoint or model to continue from.

    Args:
        start: ``resume``, ``fork``, ``fresh``.
    """
    folder = run_folder.resolve_run(run_folder.inspect(out, recipe, **start), recipe)
    return plan.plan(recipe, train_data.sizes(recipe, root), folder.earlier_process()), folder


def plan_found(recipe: Recipe, folder: RunFolder, sizes: Mapping[str, int]) -> Plan:
    """Return the plan of a finished run, with the noise that its statement names and its ledger must hold."""
    return plan.plan(recipe, sizes, folder.earlier_process(), finalize.stated_noise(folder.path))


def train(
    recipe: Recipe,
    out: Path,
    *,
    device: str,
    root: str | Path | None,
    say: progress.Say | None,
    stop: Stop | None,
    data: Data | None = None,
    logs: Logs = metric_logs.NOWHERE,
    ledger: str | None = None,
    **start: bool,
) -> Trained:
    """Train the one training of a recipe in its folder; see ``train.run``. data: the records, if they are loaded."""
    # a signal while data are read stops the run after its first step; one while results are written is too late
    with progress.signals(stop) as stop_reason:
        started = time.time()
        loaded = train_data.data(recipe, root) if data is None else data
        run = TrainingRun(recipe, out, loaded, device, say, stop_reason, started, logs=logs, ledger=ledger)
        return run.run(**start)


def provenance(recipe: Recipe, data: Data, device: str, *, no_classes: bool = False) -> Json:
    """Return what the provenance says of a training on some records: its device, seed, data set and classes."""
    return {
        **({} if no_classes else train_data.of_data(recipe.train, data)),
        "device": device,
        "seed": recipe.train.seed,
        "data_set": data.name,
        "data_source": data.source,
        "data_fingerprint": data.fingerprint,
    }


@dataclass
class TrainingRun:
    """One run of a recipe in a folder, on data in memory.

    Args:
        out: the folder. device: ``cpu`` or ``cuda``. say, stop: see ``train.run``. started: when it began, in seconds.
        given: network, loss and records of the calling program, in place of what the recipe names.
        logs: where figures are sent at the end. ledger: the URL of the ledger that pays for it.
    """

    recipe: Recipe
    out: Path
    data: Data
    device: str
    say: progress.Say | None
    stop: Stop
    started: float
    given: OwnTraining | None = None
    logs: Logs = metric_logs.NOWHERE
    ledger: str | None = None

    def __post_init__(self) -> None:
        if not is_main():  # of several processes, the first one alone shows and sends anything
            self.say, self.logs = None, metric_logs.NOWHERE

    def run(self, **start: bool) -> Trained:
        """Train unless the folder holds the finished run; ``start`` is as in ``planned``."""
        with contextlib.ExitStack() as stack:
            begun = self.begin(stack, **start)
            if begun.to_train:
                from wpriv.training.engine import distributed

                try:
                    with self._unless_begun(begun):
                        engine, batches = self.prepare(begun)
                    for indices in batches():
                        engine.step(indices)
                except Interrupted:
                    distributed.leave()  # all processes stop at the same step
                    raise
            return self.conclude(begun)

    def begin(self, stack: contextlib.ExitStack, **start: bool) -> Begun:
        """Plan the run and determine how it begins in its folder, which is locked until the stack is closed."""
        recipe, data = self.recipe, self.data
        if self.given is not None:
            from wpriv.training.engine import network_guard

            # other trainings keep away from the network of the calling program
            stack.enter_context(network_guard.in_training(self.given.model, self._origin()))
        sizes = train_data.sizes_of(recipe, data)
        folder = together(lambda: run_folder.inspect(self.out, recipe, **start))
        if folder.done:
            return Begun(plan_found(recipe, folder, sizes), folder, "", {}, to_train=False)
        require("torch", "training")
        from wpriv.training.engine import launch, network_guard

        if self.say is not None and (warning := train_data.scale_warning(recipe, data)) is not None:
            self.say(f"warning: {warning}")
        train_data.require_other_weights(recipe, data)
        launch.device_of(self.device)  # before anything is written
        busy = f"another process is training in {self.out}. Wait until it ends, or name another folder with `out`"
        together(lambda: stack.enter_context(locked(self.out / LOCK, busy)))
        # inspect again, now that no other process can change the folder
        folder = together(lambda: run_folder.resolve_run(run_folder.inspect(self.out, recipe, **start), recipe))
        job = plan.plan(recipe, sizes, folder.earlier_process())
        identity = run_folder.identity(recipe, job.steps, job.multiplier, data.fingerprint, folder.run)
        trained = folder.done or (folder.weights and together(lambda: _is_trained(folder, identity)))
        if self.given is not None and job.private is not None and not (trained or folder.resume or folder.fork):
            model = self.given.model
            together(lambda: network_guard.require_unused(model, train_data.name_of(self._records)))
        earlier = together(lambda: progress.earlier_seconds(folder))
        no_classes = self.given is not None and self.given.targets == "numbers"
        about = provenance(recipe, data, self.device, no_classes=no_classes)
        if self.given is not None and self.say is not None and (line := train_data.class_words(about)):
            self.say(line)
        paid: Payment | None = None
        if self.ledger is not None and not trained:
            paid = together(partial(_reserve, self.ledger, job, folder))
            about[PAID] = paid.as_dict()
        return Begun(job, folder, identity, about, not trained, earlier, paid)

    @contextlib.contextmanager
    def _unless_begun(self, begun: Begun) -> Iterator[None]:
        """Return the charge where the run fails before it is begun."""
        try:
            yield
        except BaseException:
            if begun.paid is not None and not (self.out / storage.PROVENANCE).is_file():
                together(begun.paid.cancel)
            raise

    @cached_property
    def _records(self) -> NDArray[np.uint64]:
        """Numbers of the training records, see ``train_data.numbers_of``."""
        return train_data.numbers_of(self.data.x_train)

    def _origin(self) -> Origin:
        from wpriv.training.engine import network_guard

        private = self.recipe.train.privacy is not None
        return network_guard.Origin(self.out, train_data.name_of(self._records), private)

    def conclude(self, begun: Begun) -> Trained:
        """Write the statement of a run that has been trained, and return it."""
        job, folder = begun.plan, begun.folder
        if not folder.done:
            from wpriv.training.engine import distributed, launch

            if begun.to_train:
                begun.about["wall_seconds"] = round(begun.earlier_seconds + time.time() - self.started, 1)
                folder = replace(folder, fresh=False)
            reports = None if self.data.noise is None else self.data.noise.statement
            others = [] if self.given is None else train_data.sharing(folder.path, self._records)
            together(lambda: finalize.conclude(job, folder, begun.about | launch.about(), reports, others))
            if begun.paid is not None:
                together(begun.paid.done)
            distributed.leave()
        return replace(self._finished(job, folder), found=folder.done)

    def _finished(self, job: Plan, folder: RunFolder) -> Trained:
        """The training whose results the folder holds, with the network that was trained."""
        train_data.require_records(folder.path, self.data)
        trained = load_finished(job, folder)
        if is_main():
            written = expectations.write(folder.path, job.recipe, trained.verdicts)
            trained = replace(trained, files=(*trained.files, *written))
        if self.logs.names:
            # the statement names private figures before any are sent
            if (line := metric_logs.warning(self.logs)) is not None:
                trained = replace(trained, statement=finalize.add_warning(trained.out, trained.statement, line))
            metric_logs.send(self.logs, trained)
        given = None if self.given is None else self.given.with_weights(folder.path, self.device)
        trained = replace(trained, predictor=self.predictor(trained.statement, given))
        if self.given is None or job.train.average is None:
            return trained
        from wpriv.training.engine import network_guard

        averaged = self.given.averaged(folder.path)
        network_guard.note_left(averaged, self._origin())
        return replace(trained, averaged=averaged)

    def predictor(self, statement: Json, network: nn.Module | None) -> Predictor | None:
        """Return what predicts with a network of this training; None where the network of a task predicts no targets.

        Args:
            statement: of which the entry ``data`` names the classes. network: None for that in the folder.
        """
        train, data, given = self.recipe.train, self.data, self.given
        if train.task not in SUPERVISED:
            return None
        from wpriv.training.clipping import record_loss

        loss = train.options.get("loss", "squared") if train.task == "fit" else None
        return Predictor(
            recipe=train,
            folder=self.out,
            device=self.device,
            shape=data.shape,
            whole=data.x_train.dtype == "uint8",
            vocabulary=data.vocabulary,
            width=len(data.response) or len(data.classes),
            classes=train_data.values(statement),
            ignored=data.ignored,
            like=None if (like := data.packed("x_test")) is None else like.empty(),
            goals=None if (goals := data.packed("response_test")) is None else goals.empty(),
            targets=record_loss.targets_of(loss) if given is None else given.targets,
            link=record_loss.link_of(loss) if given is None else given.link,
            loss=None if given is None else given.loss,
            given=network,
        )

    def prepare(self, begun: Begun) -> tuple[Engine, Callable[[], Any]]:
        """Return the engine and the places of all steps left; the folder is claimed once model and data fit."""
        from wpriv.training.engine import launch

        job, folder = begun.plan, begun.folder
        reporter = progress.Progress(job, folder, self.say)

        def claim() -> None:
            if self.given is not None and job.private is not None:
                train_data.note(folder.path, self._records)
            if begun.paid is not None:
                together(begun.paid.begin)
            together(lambda: run_folder.claim(folder, job.recipe, {**begun.about, **launch.about()}))
            reporter.begin()

        engine = launch.prepare(
            job.train,
            self.data,
            replace(schedule(job, folder.run), paid="" if begun.paid is None else begun.paid.digest),
            folder.path,
            identity=begun.identity,
            device=self.device,
            resume=folder.resume,
            fork=folder.fork,
            begin=claim,
            build_job=None if self.given is None else self.given.build_job,
        )
        chosen = job.private is not None and job.private.method == "auto" and not job.private.exact
        if self.say is not None:
            for line in engine.job.remarks:
                self.say(line)
            if chosen and engine.job.method == "loop" and engine.job.batches is not None:
                from wpriv.training.clipping.choose_method import why_slow

                why = why_slow(engine.job.batches.model)
                self.say(f"{LOOP}{f' ({why})' if why else ''}")
        return engine, partial(engine.batches, stop=self.stop, on_epoch=reporter.epoch, on_step=reporter.step)


def own_run(
    training: OwnTraining,
    out: str | Path | None,
    device: str,
    say: progress.Say | None = None,
    stop: Stop = lambda: None,
    logs: Logs = metric_logs.NOWHERE,
    ledger: str | None = None,
) -> TrainingRun:
    """Return the run of a network of the calling program, in a new folder unless one is named.

    By default nothing stops it: the loop of the caller handles signals.
    """
    folder = own_training.free_folder(training.recipe.name) if out is None else Path(out)
    return TrainingRun(training.recipe, folder, training.data, device, say, stop, time.time(), training, logs, ledger)


@dataclass(frozen=True)
class Begun:
    """A run that is about to begin.

    Args:
        identity: see ``run_folder.identity``. about: provenance.
        to_train: whether steps are left; otherwise the folder holds the trained weights, or all results.
        earlier_seconds: how long the run took before it is continued. paid: its charge in a ledger.
    """

    plan: Plan
    folder: RunFolder
    identity: str
    about: Json
    to_train: bool
    earlier_seconds: float = 0.0
    paid: Payment | None = None


def _is_trained(folder: RunFolder, identity: str) -> bool:
    """Return True if the weights in a folder are those at the end of this training."""
    from wpriv.files import checkpoint
    from wpriv.training.engine.saved_weights import load_diagnostics

    if load_diagnostics(folder.path, checkpoint.load(folder.model_path))["identity"] == identity:
        return True
    raise UsageError(
        f"{folder.model_path} is of this recipe, but was trained on other records or by another plan, and its "
        f"statement is missing. Continue from these weights at the cost of both runs with `fork=True`, or begin again "
        f"with `fresh=True`"
    )


# The payment of a run from the ledger of an organisation.


@dataclass(frozen=True)
class Payment:
    """A charge of a ledger: reserved before a run, begun before its first step, and ended with it.

    Args:
        url: of the ledger; shown: without its password. release: its number there. digest: of its entry.
        nonce: of this run, which alone may begin. begun: whether an earlier part of the same run has begun it.
    """

    url: str
    shown: str
    release: str
    digest: str
    nonce: str
    begun: bool = False

    def as_dict(self) -> Json:
        """The entry of ``provenance.json``, from which a resumed run knows that it is paid."""
        return {"ledger": self.shown, "release": self.release, "digest": self.digest, "nonce": self.nonce}

    def begin(self) -> None:
        """Make the charge final; records may be read from now on."""
        if not self.begun:
            with _open_ledger(self.url) as ledger:
                ledger.begin(self.release, self.nonce)

    def cancel(self) -> None:
        """Return the charge of a run that never began."""
        if not self.begun:
            with _open_ledger(self.url) as ledger:
                ledger.cancel(self.release)

    def done(self) -> None:
        """Note that the results are there."""
        with _open_ledger(self.url) as ledger:
            ledger.done(self.release)


def _open_ledger(url: str) -> Ledger:
    """The ledger at a URL; SQLAlchemy is loaded here alone."""
    require("sqlalchemy", "a ledger")
    from wpriv.ledger.service import Ledger

    return Ledger(url)


def _reserve(url: str, job: Plan, folder: RunFolder) -> Payment:
    """Reserve the releases of a run, without those of earlier ones; one that is resumed finds its charge.

    Raises:
        Refused: they do not fit. UsageError: they are for other neighbours than the ledger, or the run that is resumed
            was paid from another ledger. CheckFailed: it is not in this ledger any more.
    """
    process, path = _process_of(job), folder.path
    earlier = _earlier_payment(path) if folder.resume else None
    with _open_ledger(url) as ledger:
        shown = ledger.store.url
        if earlier is not None:
            if earlier["ledger"] != shown:
                raise UsageError(f"{path} was paid from the ledger {earlier['ledger']}; found {shown}. Name that one")
            state = ledger.state(earlier["release"])
            if (state.digest, state.state) != (earlier["digest"], "begun"):
                raise CheckFailed(
                    f"release {earlier['release']} of {shown} is not the one that paid for {path}, or has ended: the "
                    f"ledger was restored or written anew. Begin again with `fresh=True`, at the cost of both"
                )
            return Payment(url, shown, state.release, state.digest, earlier["nonce"], begun=True)
        place = str(path.resolve()).encode("utf-8", "replace").decode()
        receipt = ledger.reserve(process, reason=f"training in {place}"[:MOST_LETTERS])
        return Payment(url, shown, receipt.release, receipt.digest, secrets.token_hex(16))


def require_room(url: str, plans: Sequence[Plan]) -> None:
    """Check that trainings which are about to begin fit together; nothing is spent.

    Raises:
        Refused: they do not. UsageError: one has no privacy.
    """
    processes = [_process_of(each) for each in plans]
    if processes:
        whole = processes[0].with_steps(tuple(step for each in processes for step in each.steps))
        with _open_ledger(url) as ledger:
            ledger.spend(whole, dry_run=True)


def _process_of(job: Plan) -> Process:
    """The releases of a run that are to be paid for, without those of earlier runs."""
    if job.step is None:
        raise UsageError("`ledger` pays for private trainings, and this one has no privacy. Leave it out")
    return replace(job, before=()).process()


def _earlier_payment(folder: Path) -> dict[str, Any] | None:
    """The payment that the provenance of an unfinished run names."""
    try:
        paid = model.json_object(folder / storage.PROVENANCE).get(PAID)
    except WprivError:
        return None
    return paid if isinstance(paid, dict) and {"ledger", "release", "digest", "nonce"} <= paid.keys() else None
