"""Augmentation multiplicity: K randomly changed copies of each record of a step, whose mean gradient is clipped.

The change of a copy is a function of a key, of the number of the step, and of the place of the record and of the copy,
and of nothing else, so that a step that is repeated after an interruption sees the same copies, and the clipped sum
moves by one record's share where one record differs (docs/theory/clipping.md).

Source: De, Berrada, Hayes, Smith, Balle (2022), "Unlocking High-Accuracy Differentially Private Image Classification
    through Scale".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from wpriv.config.train_parts import Augment
from wpriv.errors import UsageError
from wpriv.training.clipping import model_pass, model_state
from wpriv.training.clipping.example_gradients import Loss
from wpriv.training.clipping.layer_rules import Copies, mean_loss, person_loss, split_copies
from wpriv.training.clipping.record_trees import Records, called, mapped
from wpriv.training.engine.batch_gradient import Batches, Fetch
from wpriv.training.engine.sampler import Indices

FLIP_ROWS, FLIP_COLUMNS, ROWS, COLUMNS = range(4)
_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_MODES = {"zeros": "constant", "reflect": "reflect", "edge": "replicate"}


@dataclass
class Augmentation:
    """The copies of records: how they differ (``plan``), a run's 64-bit ``key``, and the step under way."""

    plan: Augment
    key: int = 0
    step: int = 0

    def copies(self, images: Records, places: Indices) -> Records:
        """Return [B, K, ...], the copies of the records [B, ...] at some places, changed where they are images."""
        if not _changes(self.plan):
            return mapped(images, lambda leaf: leaf.unsqueeze(1).expand(-1, self.plan.copies, *leaf.shape[1:]))
        images = require_images(images, self.plan)
        count, (height, width) = self.plan.copies, images.shape[2:]
        draws = [self.draws(places, what).reshape(-1) for what in (FLIP_ROWS, FLIP_COLUMNS, ROWS, COLUMNS)]
        rows = _source(height, self.plan.shift, draws[ROWS], draws[FLIP_ROWS], self.plan.flip in ("vertical", "both"))
        columns = _source(
            width, self.plan.shift, draws[COLUMNS], draws[FLIP_COLUMNS], self.plan.flip in ("horizontal", "both")
        )
        shift = self.plan.shift
        padded = F.pad(images, (shift,) * 4, mode=_MODES[self.plan.fill]) if shift else images
        owner = torch.arange(len(images), device=images.device).repeat_interleave(count)
        rows, columns = rows.to(images.device), columns.to(images.device)
        # the channels come last in memory, in which convolutions are fast
        changed = padded.movedim(1, 3)[owner[:, None, None], rows[:, :, None], columns[:, None, :]]
        return split_copies(changed.movedim(3, 1), count)

    def draws(self, places: Indices, what: int) -> NDArray[np.uint64]:
        """Return [B, K] numbers of 64 bits, one for each copy of the records at some places, for one of four uses."""
        copies = np.arange(self.plan.copies, dtype=np.uint64)
        number = _mixed(np.uint64(self.key % 2**64), np.uint64(self.step))
        number = _mixed(number, np.asarray(places, dtype=np.uint64)[:, None])
        return _mixed(number, copies[None, :] * np.uint64(4) + np.uint64(what))


def _changes(plan: Augment) -> bool:
    """Tell whether copies are changed as images, and not by what the network draws alone."""
    return plan.flip != "none" or plan.shift > 0


def require_images(images: Records, plan: Augment) -> Tensor:
    """Refuse records that are no images, or images that cannot be moved by so much; return the images."""
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.is_floating_point():
        raise UsageError(
            f"augment: copies are changed as images, [channels, rows, columns]; found records of shape "
            f"{list(images.shape[1:])}. Leave flip and shift out where the network draws random numbers, or augment"
        )
    smallest = min(images.shape[2:])
    if plan.shift >= smallest:
        raise UsageError(f"augment: shift must be below the {smallest} rows or columns of an image; found {plan.shift}")
    return images


def _source(size: int, shift: int, moves: NDArray[np.uint64], flips: NDArray[np.uint64], may_flip: bool) -> Tensor:
    """Return [N, size], for each copy the places in the padded image from which its rows (or columns) are taken."""
    places = np.broadcast_to(np.arange(size), (len(moves), size))
    if may_flip:
        places = np.where((flips % np.uint64(2) == 1)[:, None], size - 1 - places, places)
    begins = (moves % np.uint64(2 * shift + 1)).astype(np.int64)
    return torch.from_numpy(places + begins[:, None])


def _mixed(state: np.uint64 | NDArray[np.uint64], number: np.uint64 | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of both: the output function of SplitMix64 (Steele, Lea, Flood 2014) at their combination."""
    with np.errstate(over="ignore"):
        z = (np.atleast_1d(state) ^ (number * _GOLDEN + _GOLDEN)) + _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
        mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


@dataclass(frozen=True)
class CopiedRecords:
    """How a training passes its records through the model: by ``augmentation``, or by persons of at most ``persons``
    records; without both as they are."""

    augmentation: Augmentation | None = None
    persons: int = 0

    def batches(self, batches: Batches) -> Batches:
        """Return batches of copies: each record's loss is the mean over its copies, and so is its gradient."""
        if self.persons:
            return replace(batches, model=Copies(batches.model, self.persons), loss=self.loss(batches.loss))
        if self.augmentation is None:
            return batches
        model = Copies(batches.model, self.augmentation.plan.copies)
        return replace(batches, model=model, loss=self.loss(batches.loss), fetch=self._fetch(batches.fetch))

    def loss(self, loss: Loss) -> Loss:
        """Return the loss of a record by that of a copy, or of a person by that of a record."""
        if self.persons:
            return person_loss(loss, self.persons)
        return loss if self.augmentation is None else mean_loss(loss, self.augmentation.plan.copies)

    def empty(self, inputs: Records) -> Records:
        """Return no record, in the shape in which records pass through the model."""
        if self.augmentation is None:
            return inputs[:0]
        count = self.augmentation.plan.copies
        return mapped(inputs, lambda leaf: leaf.new_empty(0, count, *leaf.shape[1:]))

    def _fetch(self, fetch: Fetch) -> Fetch:
        def copies(places: Indices) -> tuple[Records, Records]:
            inputs, targets = fetch(places)
            assert self.augmentation is not None
            return self.augmentation.copies(inputs, places), targets

        return copies


def of(plan: Augment | None, inputs: Records, model: nn.Module, persons: int = 0) -> CopiedRecords:
    """Return how a recipe passes its records, of which ``inputs`` are all, or persons with at most so many records."""
    if plan is None:
        return CopiedRecords(persons=persons)
    if persons:
        raise UsageError(
            "`copies` and `augment` are of records, and `person` averages over those of a person, each with random "
            "numbers of its own: leave `copies` and `augment` out"
        )
    if _changes(plan):
        require_images(inputs, plan)
    elif plan.copies > 1:
        _require_draws(model, inputs, plan)
    return CopiedRecords(Augmentation(plan))


def _require_draws(model: nn.Module, inputs: Records, plan: Augment) -> None:
    """Refuse copies that are not changed, of a network that draws no random numbers on which they could differ."""
    zeros = mapped(inputs[:2], torch.zeros_like)
    with model_state.kept(model), model_pass.repeated(model) as draws, torch.no_grad():
        draws.begin()
        before = model_pass.generator_states()
        called(model, zeros)
        drawn = model_pass.generator_states() != before
    if not drawn:
        raise UsageError(
            f"the {plan.copies} copies of a record would all be the same: the network draws no random numbers in "
            f"{'training' if model.training else 'evaluation'} mode. Leave copies out, or change pictures by flip or "
            f"shift, such as augment={{'copies': {plan.copies}, 'flip': 'horizontal'}}"
        )
