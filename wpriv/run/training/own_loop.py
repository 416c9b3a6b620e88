"""A private training in the caller's own loop: ``for batch in run: run.step(loss)``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from wpriv.errors import UsageError
from wpriv.run.training import metric_logs, own_training
from wpriv.run.training.trained import Trained
from wpriv.run.training.training_run import Begun, Prepared, TrainingRun

Loss = Callable[[Any, Any], Any]


def training_loop(
    model: Any,
    data: Any,
    *,
    test: Any = None,
    loss: Any = None,
    tokens: int | None = None,
    features: Mapping[str, Any] | None = None,
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
        test, loss, tokens, features, options: the keywords of ``train`` for a network.
    Raises:
        As ``train``, here or at the beginning of the ``with`` block.
    """
    logs = metric_logs.logs_of(log, log_private_losses)
    training = own_training.own_training(
        model, data, test=test, loss=loss, tokens=tokens, features=features, options=own_training.options_of(**options)
    )
    folder = Path(out) if out is not None else own_training.free_folder(training.recipe)
    run = TrainingRun(training.recipe, folder, training.data, device, None, _never, time.time(), training, logs)
    return Loop(run, {"resume": resume, "fork": fork, "fresh": fresh})


def _never() -> None:
    """No reason to stop: the caller's loop handles signals."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The records of one step, to look at; ``Loop.step`` trains on them.

    Args:
        step: the number of the step, from 1.
        inputs, targets: [B, ...] tensors; B differs from step to step, and may be 0.
    """

    step: int
    inputs: Any
    targets: Any


class Loop:
    """The steps of a private training, in a ``with`` block.

    Each round of ``for batch in run`` draws the records of a step, and ``run.step()`` must be called exactly once in
    it: it writes the ledger, clips each record's gradient, adds the noise and updates the network. Everything else
    (learning rates, logging, figures on test records, stopping early) is the caller's. A step cannot be left out, since
    whether it is left out could depend on its records. After the last step the statement is written, and ``result`` is
    the ``Trained``; a loop that is left before stays resumable (``resume=True``).
    """

    def __init__(self, run: TrainingRun, start: Mapping[str, bool]):
        self._run, self._start = run, dict(start)
        self._stack = contextlib.ExitStack()
        self._begun: Begun | None = None
        self._prepared: Prepared | None = None
        self._batch: Any = None
        # false while a step is under way, and after one that failed: its checkpoint would not fit the ledger
        self._whole = True
        self._result: Trained | None = None

    def __enter__(self) -> Loop:
        try:
            self._begun = self._run.begin(self._stack, **self._start)
            if self._begun.to_train:
                self._prepared = self._run.prepare(self._begun)
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
            if self._prepared is not None and self._result is None and self._whole:
                self._prepared.engine.save()

    def __iter__(self) -> Iterator[Batch]:
        """Draw the records of each step that is left, and conclude the training after the last.

        Raises:
            UsageError: outside of a ``with`` block, or a round ended without ``step``.
        """
        if self._begun is None:
            raise UsageError("a loop of private steps runs in a with block: `with wpriv.training_loop(...) as run:`")
        if self._prepared is None:
            return
        engine = self._prepared.engine
        with contextlib.closing(self._prepared.batches()) as batches:
            for indices in batches:
                self._batch = indices
                yield Batch(engine.steps_done + 1, *engine.job.fetch(indices))
                if self._batch is not None:
                    raise UsageError(
                        f"step {engine.steps_done + 1} was drawn and not trained on: call `run.step()` in every round "
                        f"of the loop. Whether a step is left out could depend on its records"
                    )
        self._result = self._run.conclude(self._begun)

    def step(self, loss: Loss | None = None) -> None:
        """Train on the records of this round: clip each record's gradient, add the noise, update the network.

        Args:
            loss: (outputs [B, ...], targets [B, ...]) -> losses [B], from this step on; by default that of the loop.
        Raises:
            UsageError: no batch was drawn for this step: it is outside of the loop, or the second in one round.
            Unsupported: the loss mixes records.
        """
        indices, self._batch = self._batch, None
        if indices is None or self._prepared is None:
            raise UsageError(
                "this step has no batch: call `run.step()` once in every round of `for batch in run`, which draws the "
                "records that the accounting assumes"
            )
        engine = self._prepared.engine
        if loss is not None:
            engine.job.aggregate = engine.job.with_loss(loss)
        self._whole = False
        engine.step(indices)
        self._whole = True

    @property
    def model(self) -> Any:
        """The network in training: the one that was given."""
        assert self._run.given is not None
        return self._run.given.model

    @property
    def steps(self) -> int:
        """The number of steps of the whole training."""
        assert self._begun is not None
        return self._begun.plan.steps

    @property
    def sigma(self) -> float:
        """The noise multiplier: standard deviation of the noise over the clipping norm."""
        assert self._begun is not None
        return self._begun.plan.multiplier

    @property
    def epsilon(self) -> float | None:
        """The eps that is spent after the steps so far, at the delta of the training; None without privacy."""
        assert self._begun is not None
        if self._prepared is None:
            return self._begun.plan.eps(self.steps)
        done = self._prepared.engine.steps_done
        return 0.0 if done == 0 else self._begun.plan.eps(done)

    @property
    def result(self) -> Trained:
        """The finished training.

        Raises:
            UsageError: steps are left.
        """
        if self._result is None:
            raise UsageError("the training is not over: its result exists after the last round of `for batch in run`")
        return self._result
