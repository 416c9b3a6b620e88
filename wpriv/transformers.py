"""Private training in a transformers Trainer: ``PrivateTrainer(model, args, epsilon=3, delta=1e-5, ...)``.

A callback comes after the clipping of the Trainer and cannot make a step private, so this is a subclass: it draws the
batches, and its training step leaves the noisy mean of the clipped gradients in the weights. Optimizer, schedule,
evaluation, checkpoints and logs are the Trainer's. docs/guides/lightning-and-transformers.md has a program.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from wpriv.errors import Unsupported, UsageError, lacking

try:
    import accelerate  # noqa: F401  # without it the arguments of a Trainer fail
    import torch
    from torch import Tensor, nn
    from torch.utils.data import DataLoader
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import TrainOutput
except ImportError as error:
    raise lacking(error.name or "transformers", "wpriv.transformers") from None

from wpriv.numerics.numbers import positive_number
from wpriv.training import hosted_training
from wpriv.training.clipping.record_trees import Records, Tree, leaves, records_of
from wpriv.training.hosted_training import Collate, HostedRun, PoissonBatches, described, hosted, require_apart
from wpriv.training.tasks import _given

if TYPE_CHECKING:
    from wpriv.opacus import StepLedger
    from wpriv.training.trained import Trained

# settings that a private step cannot keep: the value that is accepted, the reason, and the way out
REFUSED: dict[str, tuple[object, str]] = {
    "gradient_accumulation_steps": (1, f"{hosted_training.ACCUMULATES}, and `physical=`"),
    "label_smoothing_factor": (0, "is of the mean over a batch; put it into the loss of a record, `compute_loss_func`"),
    "max_grad_norm": (0, hosted_training.CLIPS_AGAIN.format(off="set it to 0")),
    "auto_find_batch_size": (False, "tries batches on the records; give `expected_batch`, and `physical=`"),
    "torch_compile": (False, "hides the layers whose gradients are clipped; leave it out"),
    "use_liger_kernel": (False, "computes the loss of a batch as a whole; leave it out"),
    "fp16": (False, "scales losses and skips updates; leave it out"),
    "bf16": (False, "computes gradients below the precision in which the clipping bound holds; leave it out"),
    "load_best_model_at_end": (False, "replaces the stated weights; load the best checkpoint of `output_dir` later"),
    "include_num_input_tokens_seen": ("no", "tells the sizes of the batches, which must stay secret; set it to 'no'"),
    "dataloader_in_order": (True, "must stay true: the accounting needs the batches in the order of their draws"),
    "deepspeed": (None, "divides the weights among processes; train on one device"),
    "neftune_noise_alpha": (None, "changes the embeddings by hooks of its own; leave it out"),
}
IGNORED = -100


class RecordOutputs(nn.Module):
    """A model of transformers as a function of a batch of named tensors, as ``clipped_sum`` calls it."""

    takes_trees = True

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, batch: Tree) -> Any:
        """Return the outputs of a batch without labels."""
        return self.model(**batch.value)


class RecordLosses(RecordOutputs):
    """The losses [B] that a model computes of records with labels: each passes by itself."""

    def forward(self, batch: Tree) -> Tensor:
        """Return the losses of the records."""
        return torch.stack([_own_loss(self.model, batch[row : row + 1].value) for row in range(len(batch))])


def _of_each(loss: Callable[..., Tensor], outputs: Any, labels: Tensor) -> Tensor:
    """Return the loss of each record by that of a batch: its value on the record alone; 0 if all its labels are -100.

    Args:
        loss: (outputs, labels) -> one number, for records [B, ...].
    """
    empty = (labels.reshape(len(labels), -1) == IGNORED).all(dim=1)
    # the mean over no label is no number, and its gradient neither
    labels = labels.masked_fill(empty.reshape(-1, *[1] * (labels.dim() - 1)), 0)
    rows = [slice(row, row + 1) for row in range(len(labels))]
    losses = [loss(_row(outputs, row), labels[row]).reshape(()) for row in rows]
    return torch.stack(losses).masked_fill(empty, 0.0)


def _own_loss(model: nn.Module, records: dict[str, Tensor]) -> Tensor:
    """Return the loss that a model computes by itself."""
    outputs = model(**records)
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs[0]
    if not isinstance(loss, Tensor):
        found = f"{type(model).__name__} returns no loss from {', '.join(records)}"
        raise UsageError(f"{found}. Give the data set `labels`, or PrivateTrainer a `compute_loss_func`")
    return loss.reshape(())


def _row(outputs: Any, row: slice) -> Any:
    """Return the outputs of one record."""
    return type(outputs)({name: part[row] if isinstance(part, Tensor) else part for name, part in outputs.items()})


def _default_loss(model: nn.Module, few: dict[str, Tensor]) -> Callable[..., Tensor] | None:
    """Return the loss of a model as a function of its outputs; None where that has another value than its own loss.

    It is tried on a few records, in evaluation mode; nothing is kept of them.
    """
    inner = getattr(model, "get_base_model", None)
    base = inner() if callable(inner) else model
    function, config = getattr(base, "loss_function", None), getattr(base, "config", None)
    if not callable(function) or "labels" not in few:
        return None
    size = getattr(config, "vocab_size", None)

    def loss(outputs: Any, labels: Tensor) -> Tensor:
        scores = outputs["logits"]
        value: Tensor = function(logits=scores, pooled_logits=scores, labels=labels, config=config, vocab_size=size)
        return value

    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            of_model = _own_loss(model, few)
            same = loss(model(**{name: part for name, part in few.items() if name != "labels"}), few["labels"])
            return loss if torch.allclose(same, of_model, rtol=1e-4, atol=1e-6, equal_nan=True) else None
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError):
        return None
    finally:
        model.train(training)


class PrivateTrainer(Trainer):  # type: ignore[misc]  # transformers is not read by mypy
    """A Trainer whose steps are private: each record's gradient is clipped, summed and given noise.

    Batches are drawn by Poisson sampling, with ``expected_batch`` records on average; ``per_device_train_batch_size``,
    shuffling and samplers are not used. The noise is found for ``max_steps`` steps, or ceil(num_train_epochs N /
    expected_batch). No training loss is logged, since it would be a release without noise. ``eval_dataset`` must hold
    public records: nothing accounts for what is measured on it. A training that stops early has the guarantee of all
    planned steps, since what was released may have chosen its end.

    Args:
        model: of transformers, or of peft around one. args: refused settings are named, with what to do instead.
        epsilon, delta: the target of all steps. clip: the bound C of a record's gradient.
        expected_batch: the expected number of records of a step, a whole number. physical: how many pass through the
            model at once; found from memory by default.
        unit: what a record of ``train_dataset`` is, in a word for the statement, such as ``document``.
        out: the folder of ledger and statement; ``results/<class of the model>`` by default.
        trainer: the keywords of ``transformers.Trainer``.
    Attributes:
        run: the ``HostedRun`` with ``steps_done``, ``sigma`` and ``epsilon``; None before the training.
        result: the ``Trained`` after it; ``result.epsilon`` is the eps that may be promised.
    Raises:
        UsageError, Unsupported: here or by ``train()``, before anything is spent.
    """

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *,
        epsilon: float,
        delta: float,
        clip: float = 1.0,
        expected_batch: int,
        physical: int | None = None,
        unit: str = "record",
        out: str | Path | None = None,
        **trainer: Any,
    ):
        if trainer.get("model_init") is not None:
            raise Unsupported("`model_init` makes a new model for each trial, and each trial spends; give `model`")
        super().__init__(model=model, args=_checked(args), **trainer)
        if type(self).compute_loss is not Trainer.compute_loss:
            name = f"{type(self).__name__}.compute_loss"
            raise Unsupported(f"{name} gives the loss of a batch; give that of one record, `compute_loss_func`")
        if self.train_dataset is self.eval_dataset and self.eval_dataset is not None:
            raise UsageError(
                "`eval_dataset` is `train_dataset`: the loss of training records without noise is a release. Give "
                "public records, or none"
            )
        self.target, self.physical = (epsilon, delta, clip), physical
        self.unit, self.out = unit, out
        self.described = described(self.train_dataset)
        count = len(self.train_dataset)  # type: ignore[arg-type]
        expected_batch = positive_number(expected_batch, "`expected_batch`", whole=True)
        if self.args.max_steps <= 0:
            self.args.max_steps = math.ceil(self.args.num_train_epochs * count / expected_batch)
        self.batches = PoissonBatches(count, expected_batch, self.args.max_steps)
        self.run: HostedRun | None = None
        self.result: Trained | None = None

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the Trainer's loader with batches by Poisson sampling, which may be empty."""
        like = super().get_train_dataloader()
        return DataLoader(
            like.dataset,
            batch_sampler=self.batches,
            collate_fn=Collate(like.collate_fn, like.dataset),
            num_workers=like.num_workers,
            pin_memory=like.pin_memory,
            persistent_workers=like.persistent_workers,
            prefetch_factor=like.prefetch_factor,
        )

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], None]:
        """Return the next batch without the number of its tokens, which depends on the records."""
        return [batch for _, batch in zip(range(num_batches), epoch_iterator, strict=False)], None

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **keywords: Any) -> TrainOutput:
        """Train, and write the statement; see ``transformers.Trainer.train``."""
        if resume_from_checkpoint:
            raise Unsupported(
                "`resume_from_checkpoint`: the steps before the checkpoint are in another ledger; begin again, from "
                "public weights, with another `out`"
            )
        if self.run is not None:
            raise UsageError("a second train() spends anew on the same records; make a new PrivateTrainer")
        try:
            output = super().train(None, *args, **keywords)
            if self.run is None:
                raise UsageError(hosted_training.NO_STEP)
            self.result = self.run.finish()
        finally:
            if self.run is not None:
                self.run.close()
        metrics = {name: figure for name, figure in output.metrics.items() if name != "train_loss"}
        return TrainOutput(output.global_step, math.nan, metrics)

    def _begin(self, model: nn.Module) -> HostedRun:
        """Return the run, with its folder claimed and the optimizer watched."""
        if model is not self.model:
            raise Unsupported(f"{type(model).__name__} divides the batch among devices; train on one device")
        loader = self.get_train_dataloader()
        dataset = loader.dataset
        collate = cast("Collate", loader.collate_fn)
        collate.require_one_shape()
        require_apart(dataset, collate.collate)
        two = dict(self._prepare_inputs(loader.collate_fn([dataset[0], dataset[min(1, self.batches.records - 1)]])))
        given = self.compute_loss_func
        loss = given or _default_loss(self.model, two)
        self.whole = loss is None
        network = RecordLosses(self.model) if loss is None else RecordOutputs(self.model)
        run = HostedRun(
            hosted(
                self.model,
                network,
                _as_they_are if loss is None else functools.partial(_of_each, loss),
                self._rows(two),
                self.described,
                framework="wpriv.transformers",
                loss_name="that of the model" if given is None else _given.name_of(given),
                batches=self.batches,
                target=self.target,
                lr=float(self.args.learning_rate),
                physical=self.physical,
                unit=self.unit,
            ),
            self.out,
        )
        run.watch(_inner(self.optimizer))
        return run

    def _rows(self, batch: Mapping[str, Any]) -> tuple[Records, Tensor]:
        """Return a batch as inputs and labels; all of it as inputs where the model computes its loss by itself."""
        parts = records_of({name: part for name, part in batch.items() if self.whole or name != "labels"})
        return parts, next(leaves(parts)).new_zeros(len(parts)) if self.whole else batch["labels"]

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Leave the noisy mean of the clipped gradients in the weights, and return 0 in place of the loss."""
        model.train()
        if self.run is None:
            self.run = self._begin(model)
        self.run.step(*self._rows(self._prepare_inputs(inputs)), _inner(self.optimizer).param_groups[0]["lr"])
        return torch.zeros((), device=self.args.device)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> float:
        """Return the norm of the noisy gradient for the logs, without writing to it, as the Trainer's own does."""
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        return float(torch.stack(torch._foreach_norm(gradients)).norm())

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Return 0: the operations of a step tell the size of its batch, which must stay secret."""
        return 0

    def log(self, logs: dict[str, float], *args: Any, **keywords: Any) -> None:
        """Log figures without the training loss; see ``transformers.Trainer.log``."""
        for name in ("loss", "train_loss"):
            logs.pop(name, None)
        super().log(logs, *args, **keywords)


def _as_they_are(losses: Tensor, targets: Tensor) -> Tensor:
    """The losses that ``RecordLosses`` gives."""
    return losses


def _inner(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer of torch that accelerate has wrapped."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer  # type: ignore[no-any-return]


def _checked(args: TrainingArguments) -> TrainingArguments:
    """Return a copy of the arguments, after refusing what a private step cannot keep."""
    for name, (accepted, reason) in REFUSED.items():
        value = getattr(args, name, accepted)
        if value != accepted and (value or accepted):
            raise UsageError(f"`{name}` is {getattr(value, 'value', value)}, and {reason}")
    strategy = str(getattr(args, "train_sampling_strategy", "random"))
    if getattr(args, "group_by_length", False) or strategy not in ("random", "sequential"):
        raise UsageError("`group_by_length` draws records by their lengths, and the accounting needs Poisson sampling")
    if args.world_size > 1 or args.n_gpu > 1 or getattr(args, "fsdp", None):
        devices = f"{args.world_size} processes and {args.n_gpu} GPUs"
        raise Unsupported(hosted_training.ONE_DEVICE.format(found=devices, one="Train on one (CUDA_VISIBLE_DEVICES=0)"))
    return copy.copy(args)


class OpacusLedger(TrainerCallback):  # type: ignore[misc]  # transformers is not read by mypy
    """Write the ledger of a Trainer whose optimizer is a DPOptimizer of Opacus: one line for each of its steps.

    The hook of the optimizer that counts for the accountant of the engine stays. A line is on disk before the weights
    change; ``wpriv budget --history`` reads the folder.

    Args:
        out: folder of the ledger, by default ``results/opacus``, with a number if it exists. One with lines is
            continued.
        steps: number of noisy steps that are planned, by default the updates of the Trainer that are left.
        sample_rate: of a batch, by default that of the engine.
    Raises:
        UsageError: at the start of the training: the optimizer is no DPOptimizer, or a number is out of range.
    """

    def __init__(self, out: str | Path | None = None, *, steps: int | None = None, sample_rate: float | None = None):
        self.out, self.steps, self.sample_rate = out, steps, sample_rate
        self.ledger: StepLedger | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **keywords: Any
    ) -> None:
        """Open the ledger and attach it to the optimizer."""
        from wpriv.opacus import StepLedger

        before = state.global_step
        steps = state.max_steps - before if self.steps is None else self.steps
        self.ledger = StepLedger(
            keywords.get("optimizer"), steps=steps, out=self.out, sample_rate=self.sample_rate, after=before
        )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **keywords: Any
    ) -> None:
        """Close the ledger."""
        if self.ledger is not None:
            self.ledger.close()
