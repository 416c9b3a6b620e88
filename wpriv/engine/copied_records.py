"""The records of a training as they pass through its model: as they are, or as several changed copies of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from wpriv.config.technique_schema import Augment
from wpriv.engine.augmentation import Augmentation, require_images
from wpriv.engine.batch_gradient import Batches, Fetch, Loss
from wpriv.engine.clipping.copies import Copies, mean_loss
from wpriv.engine.sampler import Indices


@dataclass(frozen=True)
class CopiedRecords:
    """How a training passes its records through the model; without ``augmentation`` as they are."""

    augmentation: Augmentation | None = None

    def batches(self, batches: Batches) -> Batches:
        """Return batches of copies: each record's loss is the mean over its copies, and so is its gradient."""
        if self.augmentation is None:
            return batches
        model = Copies(batches.model, self.augmentation.plan.copies)
        return replace(batches, model=model, loss=self.loss(batches.loss), fetch=self._fetch(batches.fetch))

    def loss(self, loss: Loss) -> Loss:
        """Return the loss of a record by that of a copy."""
        return loss if self.augmentation is None else mean_loss(loss)

    def empty(self, inputs: Tensor) -> Tensor:
        """Return no record, in the shape in which records pass through the model."""
        if self.augmentation is None:
            return inputs[:0]
        return inputs.new_empty(0, self.augmentation.plan.copies, *inputs.shape[1:])

    def _fetch(self, fetch: Fetch) -> Fetch:
        def copies(places: Indices) -> tuple[Tensor, Tensor]:
            inputs, targets = fetch(places)
            assert self.augmentation is not None
            return self.augmentation.copies(inputs, places), targets

        return copies


def of(plan: Augment | None, inputs: Tensor) -> CopiedRecords:
    """Return how a recipe passes its records, of which ``inputs`` are all.

    Raises:
        UsageError: copies are asked for, and the records are no images.
    """
    if plan is None:
        return CopiedRecords()
    require_images(inputs, plan)
    return CopiedRecords(Augmentation(plan))
