"""How many records go through a model at once: what it keeps for the backward pass, measured on two of them, against a budget."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from wpriv.engine import cost_estimate
from wpriv.engine.batch_gradient import Fetch, Loss
from wpriv.engine.sampler import Indices


def physical_batch(model: nn.Module, loss: Loss, fetch: Fetch, two: Indices, megabytes: int) -> int:
    """The largest batch whose activations are expected to stay below a budget; at least 1.

    It depends on the model and the shape of a record alone, so that the same recipe always gets the same batches.
    """
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    own = {p.data_ptr() for p in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        inputs, targets = fetch(two)
        total = loss(model(inputs), targets).sum()
    del total
    activations = sum(size for place, size in kept.items() if place not in own) / len(two)
    return cost_estimate.at_once(activations, sum(p.numel() for p in model.parameters() if p.requires_grad), megabytes)
