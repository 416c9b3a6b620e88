"""A private training in the caller's own loop: ``for batch in run: run.step(loss)``."""

from __future__ import annotations

import contextlib
import math
import numbers
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from wpriv.errors import UsageError
from wpriv.training import metric_logs, own_training, training_run
from wpriv.training.trained import Trained
from wpriv.training.training_run import Begun, TrainingRun

if TYPE_CHECKING:
    from torch import nn

    from wpriv.training.engine.network_guard import State
    from wpriv.training.engine.sampler import Indices


def training_loop(
    model: Any,
    data: Any,
    *,
    test: Any = None,
    loss: Any = None,
    classes: Any = None,
    tokens: int | None = None,
    features: Mapping[str, Any] | None = None,
    person: Any = None,
    max_per_person: int | None = None,
    log: str | Sequence[str] | None = None,
    log_private_losses: bool = False,
    out: str | Path | None = None,
    device: str = "cpu",
    resume: bool = False,
    fork: bool = False,
    fresh: bool = False,
    **options: Any,
) -> Loop:
    """Return a private training of a network whose steps the caller takes in a loop of their own.

    ``with training_loop(model, (x, y), eps=3, delta=1e-5, batch=256, epochs=10, lr=0.5) as run:`` and then
    ``for batch in run: run.step()``. Whoever calls it must not look at the records in another way.

    Args:
        model, data, log, log_private_losses, out, device, resume, fork, fresh: as in ``train``.
        test, loss, classes, tokens, features, person, max_per_person, options: the keywords of ``train`` for a network.
    Raises:
        As ``train``, here or at the beginning of the ``with`` block.
    """
    logs = metric_logs.logs_of(log, log_private_losses)
    objects = {"test": test, "loss": loss, "classes": classes, "tokens": tokens, "features": features}
    objects |= {"person": person, "max_per_person": max_per_person}
    training = own_training.own_training(model, data, **objects, **options)
    run = training_run.own_run(training, out, device, logs=logs)
    return Loop(run, {"resume": resume, "fork": fork, "fresh": fresh})


NOT_TRAINED_ON = (
    "the batch of this round was drawn and not trained on: call `run.step()` in every round of the loop. Whether a "
    "step is left out could depend on its records"
)


@dataclass(frozen=True, eq=False)
class Batch:
    """The records of one step, to look at; ``Loop.step`` trains on them.

    Args:
        step: the number of the step, from 1.
    """

    step: int
    _fetch: Callable[[], tuple[Any, Any]] = field(repr=False)

    def __iter__(self) -> Iterator[Any]:
        """Yield inputs and targets, as in ``for x, y in run``."""
        return iter(self._records)

    @cached_property
    def _records(self) -> tuple[Any, Any]:
        from wpriv.training.clipping.record_trees import raw

        inputs, targets = self._fetch()
        return raw(inputs), raw(targets)

    @property
    def inputs(self) -> Any:
        """[B, ...] the inputs of the records, or a tree of them; B differs from step to step, and may be 0.

        They are a copy, as the targets are: what is written to them changes nothing.
        """
        return self._records[0]

    @property
    def targets(self) -> Any:
        """[B, ...] the targets of the records."""
        return self._records[1]


class Loop:
    """The steps of a private training, in a ``with`` block.

    Each round of ``for batch in run`` draws the records of a step, and ``run.step()`` must be called exactly once in
    it: it writes the ledger, clips each record's gradient, adds the noise and updates the network. Everything else
    (learning rates, logging, figures on test records) is the caller's. A step cannot be left out, since whether it is
    left out could depend on its records, and only ``run.step()`` may change the network. After the last step, or by
    ``finish`` before it, the statement is written, and ``result`` is the ``Trained``; a loop that is left before stays
    resumable (``resume=True``).
    """

    def __init__(self, run: TrainingRun, start: Mapping[str, bool]):
        self._run, self._start = run, dict(start)
        self._stack = contextlib.ExitStack()
        # a block that was entered by hand and never left is left here, at the latest when Python ends
        weakref.finalize(self, self._stack.close)
        self._begun: Begun | None = None
        self._engine: Any = None
        self._draw: Callable[[], Any] | None = None
        self._batches: Generator[Indices, None, None] | None = None
        self._batch: Indices | None = None
        self._loss: object = None
        self._loss_name = ""
        # what the last step left of the network, which nothing else may change
        self._state: State | None = None
        self._stamps: list[tuple[object, ...]] = []
        # why no step can follow and no checkpoint may be written: its state would not fit the ledger
        self._fault: str | None = None
        self._result: Trained | None = None

    def __enter__(self) -> Loop:
        try:
            self._begun = self._run.begin(self._stack, **self._start)
            if self._begun.to_train:
                self._engine, self._draw = self._run.prepare(self._begun)
                self._note_state()
                self._engine.before_saving = self._require_sound
            else:
                self._result = self._run.conclude(self._begun)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if self._batches is not None:
                # a batch that was drawn and not trained on is drawn again
                self._batches.close()
            if self._engine is None or self._result is not None:
                return
            try:
                self._require_sound()
            except UsageError:
                if kind is None:
                    raise
                return
            self._engine.save()

    def __iter__(self) -> Iterator[Batch]:
        """Draw the records of each step that is left, and conclude the training after the last."""
        begun = self._entered
        if self._draw is None or self._result is not None:
            return
        if self._batches is not None:
            raise UsageError(
                "another `for batch in run` draws the records: a choice between two batches could depend on them. Use "
                "one at a time"
            )
        self._require_sound()
        self._batches = self._draw()
        try:
            yield from self._rounds(self._batches, self._engine)
        finally:
            self._batches.close()
            self._batches = self._batch = None
        if self._result is None:
            self._result = self._run.conclude(begun)

    def _rounds(self, batches: Iterator[Indices], engine: Any) -> Iterator[Batch]:
        """Yield each batch, and check what its round did."""
        for indices in batches:
            self._batch = indices
            yield Batch(engine.steps_done + 1, partial(engine.job.fetch, indices))
            if self._batch is not None:
                raise UsageError(NOT_TRAINED_ON)
            if self._result is None:
                self._require_sound(read=False)

    def _require_sound(self, *, read: bool = True) -> None:
        """Refuse to go on after a step that failed, or with a network that something else than a step changed.

        Args:
            read: the numbers of the network, as before every step and every checkpoint; or else only where its
                tensors say that they were written.
        """
        from wpriv.training.engine import network_guard

        if self._fault is None and (read or network_guard.stamps_of(self.model) != self._stamps):
            assert self._state is not None
            change = network_guard.difference(self._state, self.model)
            if change is not None:
                self._fault = (
                    f"the network was changed by something else than `run.step()`: {change}. The guarantee does not "
                    f"cover that. Take it out of the loop (weights that are swapped for a test must be put back)"
                )
        if self._fault is not None:
            raise UsageError(f"{self._fault}, and continue from the last checkpoint with resume=True")

    def _note_state(self) -> None:
        """Note the present state of the network as that which a step left."""
        from wpriv.training.engine import network_guard

        self._state = network_guard.state_of(self.model, self._state)
        self._stamps = network_guard.stamps_of(self.model)

    def step(self, loss: Any = None, *, lr: float | None = None) -> None:
        """Train on the records of this round: clip each record's gradient, add the noise, update the network.

        Args:
            loss: from this step on, in the forms that ``train`` takes: a function (outputs [B, ...], targets [B, ...])
                -> losses [B], a loss of torch.nn, or a name; by default that of the loop.
            lr: the learning rate of this step; by default that of the loop. It must not depend on the records. A step
                that is taken again, after the program was killed, is refused with another loss or learning rate than
                the first time: it has the same noise.
        Raises:
            UsageError: no batch was drawn for this step: it is outside of the loop, or the second in one round. Or the
                network was changed since the last step, or an argument is none of these.
            Unsupported: the loss mixes records.
        """
        if self._result is not None:
            raise UsageError("this step has no batch: the training is over, by its last step or by `run.finish()`")
        if self._batch is None or self._engine is None:
            raise UsageError(
                "this step has no batch: call `run.step()` once in every round of `for batch in run`, which draws the "
                "records that the accounting assumes"
            )
        self._require_sound()
        engine = self._engine
        if lr is not None and not (isinstance(lr, numbers.Real) and 0 <= lr < math.inf):
            raise UsageError(f"`lr` must be a number of at least 0, the learning rate of this step; found {lr!r}")
        if loss is not None and loss is not self._loss:
            from wpriv.training.tasks import _given

            engine.job.aggregate = engine.job.with_loss(_given.per_record(loss))
            # the name of a function changes with its code and with what it holds
            self._loss, self._loss_name = loss, _given.name_of(loss)
        indices, self._batch = self._batch, None
        failed = f"step {engine.steps_done + 1} failed, and the network may hold a part of it"
        self._fault = f"{failed}: it cannot be taken again here. Leave the with block"
        engine.step(indices, None if lr is None else float(lr), own_training.settings(self._loss_name, lr))
        self._fault = None
        self._note_state()

    def finish(self, *, scheduled: bool = False) -> Trained:
        """End the training after the steps so far, and return it: with its statement, and with no step to follow.

        Where the step of the end was chosen by what the training has released, such as the accuracy on public records,
        the steps that ran have no guarantee of their own. The end is then a function of the releases of all planned
        steps, and their guarantee is stated, with what the steps that ran would cost had they been planned alone.

        Args:
            scheduled: the end was fixed in advance, or by what does not depend on any record, such as a time limit. The
                guarantee is then that of the steps that ran.
        Raises:
            UsageError: no step has been taken, the batch of this round is not trained on, or the network was changed.
        """
        if self._result is not None:
            return self._result
        begun = self._entered
        assert self._draw is not None
        if self._batch is not None:
            raise UsageError(NOT_TRAINED_ON)
        if not self._engine.steps_done:
            raise UsageError("`run.finish()` ends a training after the steps that ran, and none has; take a step first")
        self._require_sound()
        # an end that early stopping has decided was not fixed in advance
        self._engine.ended = scheduled and self._engine.ended is None
        # writes the last metrics and the weights, and draws no batch
        for _ in self._batches or self._draw():
            raise AssertionError
        self._result = self._run.conclude(begun)
        return self._result

    def evaluate(self, x: object, y: object = None, *, loss: object = None) -> dict[str, float]:
        """Return ``test_loss`` and, for classes, ``accuracy`` of the present network; see ``Trained.evaluate``.

        There is no noise in them: what follows from figures of private records is not covered by the guarantee.
        """
        if self._result is not None:
            return self._result.evaluate(x, y, loss=loss)
        predictor = self._run.predictor({"data": self._entered.about}, self.model)
        assert predictor is not None  # the task of a loop predicts targets
        return predictor.evaluate(x, y, loss)

    def __repr__(self) -> str:
        if self._result is not None:
            return f"<Loop: over; {self._result.sentence()}>"
        if self._begun is None:
            return "<Loop: not begun; enter it by `with`>"
        done, plan = 0 if self._engine is None else self._engine.steps_done, self._begun.plan
        noise = "no noise" if plan.private is None else f"noise multiplier {self.sigma:g}"
        return f"<Loop: {done} of {plan.steps} steps, {noise}; results in {self._run.out}>"

    @property
    def model(self) -> nn.Module:
        """The network in training: the one that was given."""
        assert self._run.given is not None
        return self._run.given.model

    @property
    def steps(self) -> int:
        """The number of steps of the whole training."""
        return self._entered.plan.steps

    @property
    def sigma(self) -> float:
        """The noise multiplier: standard deviation of the noise over the sensitivity of the sum; 0 without privacy."""
        return self._entered.plan.multiplier

    @property
    def epsilon(self) -> float | None:
        """The eps of the steps so far, after those of earlier runs (``fork``), at delta; None without privacy."""
        plan = self._entered.plan
        return plan.eps(plan.steps if self._engine is None else self._engine.steps_done)

    @property
    def _entered(self) -> Begun:
        if self._begun is None:
            raise UsageError("a training runs in its with block: `with wpriv.training_loop(...) as run:`")
        return self._begun

    @property
    def result(self) -> Trained:
        """The finished training.

        Raises:
            UsageError: steps are left, and it was not ended by ``finish``.
        """
        if self._result is None:
            done = 0 if self._engine is None else self._engine.steps_done
            raise UsageError(
                f"the training is not over: {done} of {self.steps} steps are taken. Take the others, or end it by "
                f"`run.finish()` in the with block; a loop that was left goes on with resume=True and "
                f"out={str(self._run.out)!r}"
            )
        return self._result
