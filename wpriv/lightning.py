"""Private training in a Lightning Trainer: a callback that replaces the gradients, and the loader that it needs.

``Trainer(callbacks=[PrivateTraining(...)]).fit(module, loader(dataset, expected_batch, steps))``; the optimizer, the
scheduler, validation and checkpoints stay those of the module. docs/guides/lightning-and-transformers.md has a program.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.errors import Unsupported, UsageError, lacking

try:
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import (
        BatchSizeFinder,
        GradientAccumulationScheduler,
        LearningRateFinder,
        StochasticWeightAveraging,
    )
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
except ImportError as error:
    raise lacking(error.name or "lightning", "wpriv.lightning") from None

from wpriv.training import hosted_training
from wpriv.training.clipping.record_trees import Records, records_of
from wpriv.training.hosted_training import Collate, HostedRun, PoissonBatches, described, hosted, require_apart
from wpriv.training.tasks import _given

if TYPE_CHECKING:
    from wpriv.opacus import StepLedger
    from wpriv.training.trained import Trained

ANOTHER = {
    LearningRateFinder: "trains on the records before the first step; choose the learning rate on public records",
    BatchSizeFinder: "trains on the records before the first step; give `expected_batch`",
    GradientAccumulationScheduler: hosted_training.ACCUMULATES,
    StochasticWeightAveraging: "swaps weights and passes records again at the end; average the weights of checkpoints",
}
PRECISIONS = ("32-true", "64-true")


def loader(dataset: Dataset[Any], expected_batch: int, steps: int, **options: Any) -> DataLoader[Any]:
    """Return the loader of a private training, whose batches have random sizes and may be empty.

    An epoch has ceil(records / expected_batch) batches, and the loader ends after ``steps`` of them in all.

    Args:
        dataset: with a length and records by their places; a record is one row of a batch.
        expected_batch: the expected number of records of a step, a whole number. steps: of the whole training.
        options: of ``torch.utils.data.DataLoader``, such as ``num_workers`` and ``collate_fn``.
    Raises:
        UsageError: a number is out of range, or an option is of the sampling, which is Poisson.
    """
    for name in ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"):
        if name in options:
            raise UsageError(f"loader: the accounting needs Poisson sampling; leave `{name}` out")
    if options.get("in_order") is False:
        raise UsageError("loader: the accounting needs the batches in the order of their draws; leave `in_order` out")
    described(dataset)
    batches = PoissonBatches(len(dataset), expected_batch, steps)  # type: ignore[arg-type]
    collate = Collate(options.pop("collate_fn", torch.utils.data.default_collate), dataset)
    return DataLoader(dataset, batch_sampler=batches, collate_fn=collate, **options)


class PrivateTraining(Callback):  # type: ignore[misc]  # lightning is not read by mypy
    """Make the steps of a Lightning Trainer private: clip each record's gradient, add noise, write the statement.

    The ``training_step`` of the module is not called: it would pass the records without privacy, and what it logs of
    them would be a release without noise. Validation, checkpoints, schedulers and EarlyStopping work as always, and
    must look at public records, since nothing accounts for them. A training that stops early has the guarantee of all
    planned steps, since what was released may have chosen its end.

    Args:
        loss: of each record: a function (outputs [B, ...], targets [B, ...]) -> losses [B], a loss of torch.nn, whose
            value is torch's on the record alone, or a name such as ``cross-entropy``.
        epsilon, delta: the target of all steps. clip: the bound C of a record's gradient.
        records, expected_batch, steps: of the ``loader``, which they must fit.
        network: the attribute of the module that holds the network, which maps the first part of a batch to outputs.
        out: the folder of the results; ``results/<class of the network>`` by default.
    Attributes:
        run: the ``HostedRun`` with ``steps_done``, ``sigma`` and ``epsilon``; None before the training.
        result: the ``Trained`` after it; ``result.epsilon`` is the eps that may be promised.
    Raises:
        UsageError, Unsupported: at the start of ``fit``, before anything is spent: see the guide for what is refused.
    """

    def __init__(
        self,
        loss: Any,
        *,
        epsilon: float,
        delta: float,
        clip: float = 1.0,
        records: int,
        expected_batch: int,
        steps: int,
        network: str = "net",
        out: str | Path | None = None,
    ):
        self.loss, self.target = loss, (epsilon, delta, clip)
        self.numbers = {"records": records, "expected_batch": expected_batch, "steps": steps}
        self.network, self.out = network, out
        self.run: HostedRun | None = None
        self.result: Trained | None = None
        self._batch: tuple[Records, Records] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse several devices, and callbacks that take steps of their own, which some do before the training."""
        if stage != "fit":
            return
        if trainer.world_size > 1 or not isinstance(trainer.strategy, SingleDeviceStrategy):
            devices = f"{type(trainer.strategy).__name__}, {trainer.world_size} in all"
            raise Unsupported(
                hosted_training.ONE_DEVICE.format(found=devices, one="Give Trainer(devices=1) without a strategy")
            )
        for callback in trainer.callbacks:
            for kind, reason in ANOTHER.items():
                if isinstance(callback, kind):
                    raise UsageError(f"{kind.__name__} {reason}")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check everything, find the noise and claim the folder."""
        if self.run is not None:
            raise UsageError("a second fit spends anew on the same records; give it a new PrivateTraining")
        _require_plain(trainer, pl_module)
        batches, dataset, collate = self._source(trainer)
        model = getattr(pl_module, self.network, None)
        if not isinstance(model, nn.Module):
            names = ", ".join(f"network={name!r}" for name, part in pl_module.named_children() if [*part.parameters()])
            raise UsageError(
                f"`network` names the attribute of {type(pl_module).__name__} with the network; found no "
                f"torch.nn.Module in {self.network!r}. Give PrivateTraining the one that takes a batch: "
                f"{names or 'the module has none'}"
            )

        def batch_of(together: Callable[[list[Any]], Any], rows: list[Any]) -> Any:
            batch = pl_module._on_before_batch_transfer(together(rows), 0)
            return pl_module._apply_batch_transfer_handler(batch, pl_module.device, 0)

        collate.require_one_shape()
        require_apart(dataset, functools.partial(batch_of, collate.collate))
        self.run = HostedRun(
            hosted(
                model,
                model,
                _given.per_record(self.loss),
                _pair(batch_of(collate, [dataset[0], dataset[min(1, len(dataset) - 1)]])),
                described(dataset),
                framework="wpriv.lightning",
                loss_name=_given.name_of(self.loss),
                batches=batches,
                target=self.target,
                lr=float(trainer.optimizers[0].param_groups[0]["lr"]),
            ),
            self.out,
        )
        self.run.watch(trainer.optimizers[0])
        _replace_training_step(pl_module)

    def _source(self, trainer: Trainer) -> tuple[PoissonBatches, Any, Any]:
        """The batch sampler, the data set and the collate function of the training loader."""
        found = trainer.train_dataloader
        batches = getattr(found, "batch_sampler", None)
        if found is None or not isinstance(batches, PoissonBatches):
            raise UsageError(
                f"the training loader must be `wpriv.lightning.loader(dataset, expected_batch, steps)`, which draws as "
                f"the accounting assumes; found {type(found).__name__} with the sampler {type(batches).__name__}"
            )
        for name, number in self.numbers.items():
            if getattr(batches, name) != number:
                other = getattr(batches, name)
                raise UsageError(
                    f"`{name}` is {number} in PrivateTraining and {other} in the loader; give both the same"
                )
        return batches, found.dataset, found.collate_fn

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Keep the batch of the step."""
        _require_whole_batches(trainer)
        self._batch = _pair(batch)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Put the noisy mean of the clipped gradients in the place of the gradients."""
        assert self.run is not None
        if self._batch is None:
            reason = f"{type(optimizer).__name__} evaluates the loss several times in one step"
            raise UsageError(f"{reason}, and each would be a release; use SGD or Adam")
        batch, self._batch = self._batch, None
        self.run.step(*batch, lr=float(optimizer.param_groups[0]["lr"]))

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Stop after the last step."""
        assert self.run is not None
        if self.run.steps_done == self.numbers["steps"]:
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the statement."""
        vars(pl_module).pop("training_step", None)
        assert self.run is not None
        self.result = self.run.finish()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Give the folder free; its ledger keeps the steps that were spent."""
        vars(pl_module).pop("training_step", None)
        if self.run is not None:
            self.run.close()


def _require_whole_batches(trainer: Trainer) -> None:
    if trainer.accumulate_grad_batches != 1:
        raise UsageError(f"`accumulate_grad_batches` above 1 {hosted_training.ACCUMULATES}")


def _require_plain(trainer: Trainer, module: LightningModule) -> None:
    """Refuse what changes the batches or the gradients of a private step, or takes steps of its own."""
    _require_whole_batches(trainer)
    if trainer.gradient_clip_val:
        raise UsageError(f"`gradient_clip_val` {hosted_training.CLIPS_AGAIN.format(off='leave it out')}")
    if not module.automatic_optimization or len(trainer.optimizers) != 1:
        count = "manual optimization" if not module.automatic_optimization else f"{len(trainer.optimizers)} optimizers"
        raise Unsupported(f"a private step has one gradient for one optimizer; found {count}. Use one optimizer")
    if trainer.precision not in PRECISIONS:
        wanted = "Give Trainer(precision='32-true')"
        raise Unsupported(f"clipping holds its bound in full precision; found {trainer.precision!r}. {wanted}")
    if trainer.global_step:
        start = f"a checkpoint after {trainer.global_step} steps"
        raise Unsupported(f"this fit goes on from {start}, whose cost is in another ledger; begin with public weights")
    if getattr(trainer, "reload_dataloaders_every_n_epochs", 0):
        raise UsageError("`reload_dataloaders_every_n_epochs` would replace the loader of the accounting; leave it out")


def _replace_training_step(module: LightningModule) -> None:
    """Let the module's own training step pass no record, until the end of the training; warn if it logs something."""
    code = getattr(inspect.unwrap(type(module).training_step), "__code__", None)
    logged = sorted({"log", "log_dict"} & set(getattr(code, "co_names", ())))
    if logged:
        warnings.warn(
            f"{type(module).__name__}.training_step logs by self.{logged[0]}, and is not called: a figure of training "
            f"records without noise would be a release. Log figures of public records in validation_step",
            stacklevel=2,
        )
    module.training_step = lambda *args, **keywords: torch.zeros((), device=module.device, requires_grad=True)


def _pair(batch: Any) -> tuple[Records, Records]:
    """Return the inputs and the targets of a batch."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise UsageError(
            f"a batch must be a pair (inputs, targets) of tensors, or trees of them, [B, ...]; found "
            f"{type(batch).__name__}. Return such pairs from the data set or `collate_fn`"
        )
    return records_of(batch[0]), records_of(batch[1], "targets")


class OpacusLedger(Callback):  # type: ignore[misc]  # lightning is not read by mypy
    """Write the ledger of a fit whose optimizers are DPOptimizers of Opacus: one line for each of their steps.

    The hook of an optimizer that counts for the accountant of the engine stays. A line is on disk before the weights
    change; ``wpriv budget --history`` reads the folder.

    Args:
        out: folder of the ledger, by default ``results/opacus``, with a number if it exists. One with lines is
            continued.
        steps: number of noisy steps that are planned, of all DPOptimizers together, by default the steps of the fit.
        sample_rate: of a batch, by default that of the engine.
    Raises:
        UsageError: at the start of the fit: no optimizer is a DPOptimizer, or a number is out of range.
    """

    def __init__(self, out: str | Path | None = None, *, steps: int | None = None, sample_rate: float | None = None):
        self.out, self.steps, self.sample_rate = out, steps, sample_rate
        self.ledger: StepLedger | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the ledger and attach it to every DPOptimizer."""
        from wpriv.opacus import StepLedger, is_private

        private = [each for each in trainer.optimizers if is_private(each)] or trainer.optimizers[:1]
        steps, fit, before = self.steps, trainer.estimated_stepping_batches, trainer.global_step
        if steps is None:
            if not math.isfinite(fit):
                raise UsageError("the fit has no end: give OpacusLedger `steps`, or Trainer `max_steps`")
            steps = int(fit) * len(private) - before
        self.ledger = StepLedger(*private, steps=steps, out=self.out, sample_rate=self.sample_rate, after=before)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the ledger."""
        if self.ledger is not None:
            self.ledger.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Close the ledger, which keeps the steps that were taken."""
        self.on_train_end(trainer, pl_module)
