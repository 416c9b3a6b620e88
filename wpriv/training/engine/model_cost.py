"""Measure the size of a model on torch's meta device: weights, multiply-adds and memory of the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from wpriv.config.field_types import PluginRef
from wpriv.training import models

# records of the forward pass that is measured: a batch of one may take another path
RECORDS = 2


def without_numbers(model: PluginRef, shape: Sequence[int], classes: int) -> nn.Module:
    """Build a model on the meta device, whose tensors have shapes and no numbers."""
    with torch.device("meta"):
        network: nn.Module = models.build(model, shape, classes)
    return network


def measure(model: PluginRef, shape: Sequence[int], classes: int) -> tuple[int, int, float]:
    """Build a classifier on the meta device and count the operations of one forward pass; no number is computed.

    Returns:
        The fields of ``cost_estimate.ModelCost``.
    Raises:
        UsageError: the model does not take records of this shape.
        NotImplementedError: the model uses an operation that the meta device does not have.
    """
    network = without_numbers(model, shape, classes)
    with torch.device("meta"):
        inputs, targets = torch.empty(RECORDS, *shape), torch.empty(RECORDS, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        kept = kept_bytes(network, lambda: cross_entropy(network(inputs), targets, reduction="sum"))
    weights = sum(p.numel() for p in network.parameters() if p.requires_grad)
    # a multiply-add counts as two operations
    return weights, counter.get_total_flops() // (2 * RECORDS), kept / (4 * RECORDS)


def kept_bytes(model: nn.Module, forward: Callable[[], Tensor]) -> int:
    """Return the bytes that autograd keeps for the backward pass of ``forward``, without the model's parameters."""
    sizes: dict[tuple[int, int], int] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.is_meta:
            alive.append(tensor)  # it has no address, and what stands for one may be used again
        sizes[_place(tensor)] = tensor.numel() * tensor.element_size()
        return tensor

    parameters = {_place(p) for p in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(size for place, size in sizes.items() if place not in parameters)


def _place(tensor: Tensor) -> tuple[int, int]:
    """Return what tensors share that lie at one place in memory; tensors on the meta device have no address."""
    if tensor.is_meta:
        return tensor.untyped_storage()._cdata, int(tensor.storage_offset())
    return tensor.data_ptr(), 0
