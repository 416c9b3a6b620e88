"""Choose how many records pass through a model at once: measured on two of them, against a budget of memory."""

from __future__ import annotations

from torch import nn

from wpriv.engine import cost_estimate, model_cost
from wpriv.engine.batch_gradient import Fetch, Loss
from wpriv.engine.sampler import Indices


def physical_batch(model: nn.Module, loss: Loss, fetch: Fetch, two: Indices, megabytes: int) -> int:
    """Return the largest batch whose activations are expected to stay below a budget; at least 1.

    It depends on the model and the shape of a record alone, so that the same recipe always gets the same batches.

    Args:
        two: places of two records. megabytes: the budget.
    """
    inputs, targets = fetch(two)
    kept = model_cost.kept_bytes(model, lambda: loss(model(inputs), targets).sum()) / len(two)
    weights = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return cost_estimate.largest_batch(kept, weights, megabytes)
