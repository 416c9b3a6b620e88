"""Private steps in the loop of another framework, which fetches the batches and updates the weights.

The framework asks a ``PoissonBatches`` for the places of each batch, and passes what it fetched to ``HostedRun.step``,
which writes the ledger, sums the clipped gradients, adds the noise and leaves the mean in ``p.grad``. The optimizer
and the learning rates are those of the framework. Plan, folder, engine and statement are those of ``wpriv.train``.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from wpriv.config import document
from wpriv.config.recipe import check
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.numbers import positive_number
from wpriv.training import own_training, training_run
from wpriv.training.data import Data
from wpriv.training.own_training import OwnTraining
from wpriv.training.trained import Trained

if TYPE_CHECKING:
    import torch
    from torch import nn

    from wpriv.config.train_schema import Train
    from wpriv.training.clipping.example_gradients import Loss
    from wpriv.training.clipping.record_trees import Records
    from wpriv.training.engine.job import Job
    from wpriv.training.engine.loop import Engine
    from wpriv.training.engine.sampler import Indices
    from wpriv.training.training_run import Begun

    Rows = tuple[Records, Records]

CHANGED = (
    "the gradients of the private step were replaced or changed before the optimizer used them: nothing says whether "
    "what it used has noise. Take out the callback or hook that changes them, and change the noisy gradients in the "
    "optimizer if you want to"
)
# the most records whose content is read to tell data sets apart
READ = 512
NO_STEP = "the training ended before its first step, and there is nothing to state"
# what all frameworks refuse, by the reason
ONE_DEVICE = "each of several devices would add noise; found {found}. {one}, or take `wpriv.train` under torchrun"
ACCUMULATES = "joins several batches in one update, which the accounting does not have; give a larger `expected_batch`"
CLIPS_AGAIN = "clips the sum once more after the noise, which protects nobody; {off}: `clip` clips each record"
# the records of a batch that is made several times, and with how many random numbers
FEW, SEEDS = 6, 8
# the records whose shapes are compared before the first step
SHAPES = 64


class PoissonBatches:
    """The batch sampler of a private training: each record joins a batch by a coin of its own, some batches are empty.

    An epoch has ceil(records / expected_batch) batches, and the last one what is left of all steps.

    Args:
        records: the number of records. expected_batch: a whole number of them, on average. steps: of the training.
    Raises:
        UsageError: a number is not whole or out of range.
    """

    def __init__(self, records: int, expected_batch: int, steps: int):
        from wpriv.core.kinds import Sampling
        from wpriv.randomness import sampling_generator, training_seeds
        from wpriv.training.engine.sampler import DrawnAhead, sampler

        expected_batch = positive_number(expected_batch, "`expected_batch`", whole=True)
        steps = positive_number(steps, "`steps`", whole=True)
        if expected_batch > records:
            raise UsageError(f"`expected_batch` is {expected_batch}, and there are {records} records; take fewer")
        self.records, self.expected_batch, self.steps = records, expected_batch, steps
        self.per_epoch = math.ceil(records / expected_batch)
        sampling = Sampling("poisson", expected_batch / records)
        generator = sampling_generator(training_seeds(None))
        self.drawn = DrawnAhead(sampler(sampling, records, expected_batch, generator))
        self.count = 0

    def __len__(self) -> int:
        return min(self.per_epoch, self.steps)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the places of the records of each batch of one epoch."""
        for _ in range(min(self.per_epoch, self.steps - self.count)):
            self.count += 1
            yield self.drawn.ahead().tolist()


class Collate:
    """The collate function of a loader, for one record after another, so that no record's padding depends on others.

    An empty batch has the parts of a batch without its records.
    """

    def __init__(self, collate: Callable[[list[Any]], Any], dataset: Any):
        self.collate, self.dataset = collate, dataset

    def __call__(self, rows: Sequence[Any]) -> Any:
        """Return the batch of some records, which may be none; a UsageError where they have several shapes."""
        import torch
        from torch.utils import _pytree

        alone = [self._of_one(row) for row in rows or [self.dataset[0]]]
        parts, (form, *forms) = zip(*map(_pytree.tree_flatten, alone), strict=True)
        if any(other != form for other in forms):
            raise UsageError("the collate function gives records of a batch other parts; let it give all the same")
        joined = []
        for same in zip(*parts, strict=True):
            tensors = [part for part in same if isinstance(part, torch.Tensor) and part.dim()]
            shapes = dict.fromkeys(tuple(part.shape[1:]) for part in tensors)
            if rows_of := next((len(part) for part in tensors if len(part) != 1), 0):
                raise UsageError(f"the collate function gives {rows_of} rows for one record; let it give one for each")
            if len(tensors) < len(same) and (tensors or any(bool(part != same[0]) for part in same)):
                raise UsageError(
                    "the collate function gives a single number or word for a batch, and it differs between records: "
                    "that of one would be taken for all. Let it give a tensor with a row for each record"
                )
            if len(shapes) > 1:
                one, other, *_ = map(list, shapes)
                raise UsageError(
                    f"the records of a batch have the shapes {one} and {other}. Padding to the longest one "
                    f"would let a record change the others, so that each is collated alone: pad all to one public "
                    f"length, where text is tokenized (padding='max_length', max_length=T) or in the collate function"
                )
            joined.append(torch.cat(tensors)[: len(rows)] if shapes else same[0])
        return _pytree.tree_unflatten(joined, form)

    def require_one_shape(self) -> None:
        """Refuse records of several shapes before the first step, as far as ``SHAPES`` of them show."""
        from wpriv.training.clipping.model_pass import repeated_draws

        with repeated_draws(0):
            self(spread(self.dataset, SHAPES))

    def _of_one(self, row: Any) -> Any:
        """Return the batch of one record, as a plain dictionary if it is some mapping."""
        batch = self.collate([row])
        return dict(batch) if isinstance(batch, Mapping) else batch


def spread(dataset: Any, count: int) -> list[Any]:
    """Return so many records from the whole of a data set, or all where it has fewer."""
    places = np.linspace(0, len(dataset) - 1, min(len(dataset), count)).astype(int)
    return [dataset[int(place)] for place in places]


def require_apart(dataset: Any, batch_of: Callable[[list[Any]], Any]) -> None:
    """Refuse a collate function or a hook that makes rows of a batch from several records, as MixUp does.

    The batch of a few records is made again with the last one replaced and, where nothing is drawn, left out: the rows
    of the others must be the same, apart from padding at one end.

    Args:
        batch_of: rows of the data set -> batch, by all that changes a batch before the private step.
    Raises:
        Unsupported: a row depends on another record, or on a generator or a state of the function's own.
    """
    from wpriv.training.clipping.model_pass import generator_states, repeated_draws

    rows = spread(dataset, FEW)
    first, others = rows[:-1], [rows[:-2] + rows[-1:], rows[:-2]]
    for seed in range(SEEDS if len(rows) > 2 else 0):
        batches = []
        for each in (first, first, *others):
            with repeated_draws(seed):
                before = generator_states()
                batches.append(batch_of(copy.deepcopy(each)))
                drawn = generator_states() != before
        if not _same_rows(batches[0], batches[1], len(first)):
            raise Unsupported(
                "the collate function or a hook on batches makes other rows of the same records at a second call, with "
                "the same random numbers of torch, numpy and Python: whether it mixes records cannot be tested. Let "
                "it keep nothing, and draw from torch's global generator (without a seed of its own)"
            )
        # where numbers are drawn, a smaller batch gets others
        if not all(_same_rows(batches[0], other, len(first) - 1) for other in batches[2 : 3 if drawn else 4]):
            raise Unsupported(
                "the collate function or a hook on batches makes a row from several records, as MixUp does: a record "
                "would be in the rows of others, and its influence beyond the clipping bound. Let each row depend on "
                "its own record alone, and mix a record with public records only"
            )


def _same_rows(one: Any, two: Any, count: int) -> bool:
    """Return whether the first rows of two batches are equal, in what both have at the beginning or the end."""
    import torch
    from torch.utils import _pytree

    pairs = zip(_pytree.tree_leaves(one), _pytree.tree_leaves(two), strict=False)
    for mine, theirs in pairs:
        if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor) or not mine.dim():
            continue
        a, b = mine.detach()[:count], theirs.detach()[:count]
        if len(a) < count:
            continue  # another number of rows than of records, which is refused for that
        if a.dim() != b.dim():
            return False
        sides = [min(sizes) for sizes in zip(a.shape, b.shape, strict=True)]
        ends = (slice(0, side) for side in sides), (slice(-side or None, None) for side in sides)
        parts = [tuple(end) for end in ends]
        if not any(torch.allclose(a[part].double(), b[part].double(), equal_nan=True) for part in parts):
            return False
    return True


def described(dataset: Any) -> Data:
    """Return a stand-in for the records of a torch Dataset: a number for each, which tells data sets apart.

    The content of up to ``READ`` of them is read; where there are more, each number is of these and of its place.

    Raises:
        UsageError: the data set has no length or no record at a place.
    """
    from wpriv.training.tasks import _given

    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise UsageError(
            f"the guarantee depends on the number of records: give a torch Dataset with a length and records by their "
            f"places; found {type(dataset).__name__}"
        )
    count = len(dataset)
    if not count:
        raise UsageError("the data set has no records; give it some")
    words = [int(_given.digest(row), 16) for row in spread(dataset, READ)]
    numbers = np.array(words, dtype=np.uint64)
    if count > READ:
        numbers = np.arange(count, dtype=np.uint64) ^ np.bitwise_xor.reduce(numbers)
    none = np.zeros(0, np.int64)
    rows = numbers[:, None].view(np.uint8)
    return Data("given", rows, np.zeros(count, np.int64), rows[:0], none, ("a record",), "records of a Python program")


@dataclass
class _Held:
    """The batch that the framework fetched for the step under way."""

    places: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    rows: Rows | None = None

    def fetch(self, places: Indices) -> Rows:
        """Return the rows of some of the places of the batch."""
        import torch

        assert self.rows is not None
        if len(places) == len(self.places):
            return self.rows
        at = torch.from_numpy(np.searchsorted(self.places, places)).to(self.rows[0].device)
        return self.rows[0][at], self.rows[1][at]


@dataclass(frozen=True)
class HostedTraining(OwnTraining):
    """A training whose batches and optimizer are of another framework.

    Args:
        clipped: the network as ``clipped_sum`` takes it: ``model`` itself, or a function of it as a module.
        few: inputs and targets of two records, of which shapes and types are used. held: the present batch.
        batches: the sampler of the loader.
    """

    clipped: nn.Module
    few: Rows
    batches: PoissonBatches
    held: _Held = field(default_factory=_Held)

    def build_job(self, recipe: Train, data: Data, device: torch.device, /, *, adjacency: str) -> Job:
        """Return the job of steps on batches that are passed in; see ``tasks.BuildJob``."""
        from wpriv.training.clipping import clip
        from wpriv.training.engine import batch_gradient, fine_tuning
        from wpriv.training.engine.job import Job

        assert self.loss is not None
        assert recipe.privacy is not None
        assert recipe.batch is not None
        # before any batch is drawn; the records' numbers are used only by a network that refuses made-up ones
        method = clip.choose(
            self.clipped, self.loss, *self.few, method=clip.method_of(recipe.privacy), batch=recipe.batch
        )
        two = _Held(np.arange(len(self.few[0])), self.few)
        fetch = cast("tuple[batch_gradient.Fetch, batch_gradient.Fetch]", (two.fetch, self.held.fetch))
        physical = recipe.physical or batch_gradient.physical_batch(
            self.clipped, self.loss, fetch[0], two.places, recipe.memory
        )
        batches = batch_gradient.Batches(self.clipped, self.loss, fetch[1], physical)
        aggregate = batch_gradient.make_aggregator(batches, recipe.privacy, adjacency, recipe.batch, method)
        remarks = fine_tuning.remarks(self.model, recipe)
        return Job(self.model, aggregate, dict, method=method, batches=batches, hosted=True, remarks=remarks)


def hosted(
    model: nn.Module,
    clipped: nn.Module,
    loss: Loss,
    few: Rows,
    data: Data,
    *,
    framework: str,
    loss_name: str,
    batches: PoissonBatches,
    target: tuple[float, float, float],
    lr: float,
    physical: int | None = None,
    unit: str = "record",
) -> HostedTraining:
    """Describe a training in the loop of another framework as a recipe.

    Args:
        model: whose weights are released. clipped, few: see ``HostedTraining``. loss: of each record of ``clipped``.
        framework: the module of wpriv that runs it. loss_name: for the recipe. lr: the first learning rate.
        target: eps and delta of all steps, and the norm to which gradients are clipped.
        unit: what a record is, in a word.
    Raises:
        UsageError: a number is out of range.
    """
    from wpriv.training.tasks import _given

    _given.require_network(model)
    if len(few[0]) != 2:
        raise UsageError(
            f"two records make a batch of {len(few[0])} rows, and each needs one of its own, to be clipped. Take a "
            f"collate function that keeps records apart, by padding and not by packing"
        )
    if not isinstance(unit, str) or not unit.isprintable() or not 0 < len(unit) <= 40:
        raise UsageError(f"`unit` is a word for what a record is, such as 'document'; found {unit!r:.60}")
    epsilon, delta, clip = target
    written = {
        "kind": "train",
        "source": f"trained from Python by {framework}",
        "task": "fit",
        "data": {"name": "given", "records": data.records},
        "model": {"name": "given", "architecture": _given.architecture(model), "loss": loss_name},
        "options": {"loss": "given", **({} if unit == "record" else {"unit": unit})},
        "privacy": {"eps": epsilon, "delta": delta, "clip": clip, "sampling": "poisson"},
        "optimizer": {"name": "given", "lr": lr},
        "batch": batches.expected_batch,
        "steps": batches.steps,
        **({} if physical is None else {"physical": physical}),
    }
    recipe = check(document.of_data(type(model).__name__, written))
    recipe = replace(recipe, name=type(model).__name__)
    return HostedTraining(recipe, data, model, loss, "numbers", "none", None, clipped, few, batches)


class HostedRun:
    """A private training whose loop is that of another framework.

    ``step`` must be called once for each batch of the sampler, and the optimizer that was given to ``watch`` must then
    update the network by the gradients that the step left, before the next one. ``finish`` writes the statement.

    Args:
        training: network, loss, recipe and sampler. out: the folder of the results.
    Raises:
        UsageError: the folder holds something already.
        Unsupported: the network or the loss mixes records, or has no gradient of each record.
    """

    def __init__(self, training: HostedTraining, out: str | Path | None):
        if out is not None and Path(out).exists() and any(Path(out).iterdir()):
            raise UsageError(f"{out} holds files already, and this training begins anew; name another `out`")
        device = next(training.model.parameters()).device.type
        self.training, self._stack = training, contextlib.ExitStack()
        self._run = training_run.own_run(training, out, device)
        # what the last step left in the gradients, and what the optimizer then made of the network
        self._gradients: list[tuple[int, int]] | None = None
        self._stamps: list[tuple[object, ...]] | None = None
        self.result: Trained | None = None
        try:
            self._begun: Begun = self._run.begin(self._stack)
            self._engine: Engine
            self._engine, draw = self._run.prepare(self._begun)
            self._engine.sampler = training.batches.drawn
            self._steps = draw()
        except BaseException:
            self.close()
            raise

    @property
    def steps_done(self) -> int:
        """The number of steps so far."""
        return self._engine.steps_done

    @property
    def sigma(self) -> float:
        """The noise multiplier: standard deviation of the noise over the clipping bound."""
        return self._begun.plan.multiplier

    @property
    def epsilon(self) -> float | None:
        """The eps of the steps so far."""
        return self._begun.plan.eps(self.steps_done)

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Take an optimizer as the one that updates the network.

        Raises:
            UsageError: it has a weight that is none of the network's, which would learn from the records without noise.
        """
        mine = {id(p) for p in self.training.model.parameters() if p.requires_grad}
        other = sum(id(p) not in mine for group in optimizer.param_groups for p in group["params"] if p.requires_grad)
        if other:
            where = f"{other} weights beside those of the private network"
            raise UsageError(f"the optimizer has {where}, and nothing clips those; give it the network's alone")
        optimizer.register_step_pre_hook(self._used)
        optimizer.register_step_post_hook(self._updated)

    def _used(self, *args: object) -> None:
        """Check the gradients before the optimizer uses them (one with a closure gets them in it, and later)."""
        if self._gradients is not None and self._gradients != self._present():
            raise UsageError(CHANGED)

    def _updated(self, *args: object) -> None:
        """Note the network after its optimizer, which must have had the gradients of the step."""
        from wpriv.training.engine import network_guard

        if self._gradients is None:
            raise UsageError("the optimizer steps twice with one private gradient, or without one; take one a batch")
        if [each for each, _ in self._gradients] != [each for each, _ in self._present()]:
            raise UsageError(CHANGED)  # fused optimizers write to gradients, and so change their versions
        self._gradients, self._stamps = None, network_guard.stamps_of(self.training.model)

    def _present(self) -> list[tuple[int, int]]:
        """The tensors in the gradients of the weights, with their versions."""
        return [(id(grad), getattr(grad, "_version", -1)) for grad in (weight.grad for weight in self._engine.weights)]

    def _require_updated(self) -> None:
        """Refuse to go on from a network that something else than the watched optimizer changed, or that it did not."""
        from wpriv.training.engine import network_guard

        if self._gradients is not None:
            step = f"the private gradient of step {self.steps_done}"
            raise UsageError(f"the optimizer did not use {step}: keep the first optimizer, and one update a batch")
        if self._stamps is not None and self._stamps != network_guard.stamps_of(self.training.model):
            raise UsageError(
                "the network was changed by something else than its optimizer since the last step. What the change "
                "was computed from is not covered by the guarantee: take it out of the training"
            )

    def step(self, inputs: Records, targets: Records, lr: float) -> None:
        """Take the private step of the next batch, and leave the noisy mean gradient in the weights.

        Args:
            inputs, targets: [B, ...] or trees of such tensors (record_trees.py): the records at the places that the
                sampler drew, in their order; B may be 0.
            lr: the learning rate of the update that follows, for the ledger.
        Raises:
            UsageError: no batch was drawn, this is another one, or the network was not updated by its optimizer.
        """
        self._require_updated()
        waiting = self.training.batches.drawn.waiting
        if not waiting or len(waiting[0][1]) != len(inputs):
            drawn = f"{len(waiting[0][1])} were drawn for it" if waiting else "none was drawn"
            raise UsageError(
                f"the batch of step {self.steps_done + 1} has {len(inputs)} records, and {drawn}, as the accounting "
                f"assumes. Use wpriv's loader, and a collate function that makes one row of each record, in their order"
            )
        # what follows a step (metrics, checkpoint) is done once the optimizer has used it
        places = next(self._steps)
        held = self.training.held
        held.places, held.rows = places, (inputs, targets)
        self._engine.step(places, None, own_training.settings("", float(lr)))
        held.rows = None
        self._gradients, self._stamps = self._present(), None

    def finish(self) -> Trained:
        """Write statement and weights, and return the finished training.

        Where steps are left, the guarantee is that of all planned steps (see ``Loop.finish``).

        Raises:
            UsageError: no step was taken, or the network was not updated by its optimizer.
        """
        self._require_updated()
        engine, plan = self._engine, self._begun.plan
        if not engine.steps_done:
            raise UsageError(NO_STEP)
        if engine.steps_done < plan.steps:
            engine.ended = False  # by what the framework measured, as far as is known here
        # writes the last metrics and the weights, and draws no batch
        for _ in self._steps:
            raise AssertionError
        training = self.training.model.training
        # the records of a batch have a form that ``Trained.predict`` does not know
        self.result = replace(self._run.conclude(self._begun), predictor=None)
        self.training.model.train(training)
        self.close()
        return self.result

    def close(self) -> None:
        """Leave the folder to other programs."""
        self._stack.close()
