"""Estimate the time and memory of a training before it begins, from the size of its model.

The model is built on torch's meta device, which computes shapes and no numbers; only the functions that build it
import torch. The rates were measured on one x86 core in float32, for networks of 26,000 to 2.7 million weights; the
time is right within a factor of about two.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.config.field_types import PluginRef
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

# floating-point operations of matrix products per second
OPERATIONS = 150e9
# numbers kept for the backward pass, and processed by all other operations, per second
NUMBERS = 240e6
# weights that get noise and are updated, per second
WEIGHTS = 70e6
# exact sums: seconds of one record that passes through the model alone, and numbers of its gradient per second
EXACT_RECORD, EXACT_NUMBERS = 6e-4, 100e6
# memory of a batch over what it keeps for the backward pass: gradients, and what clipping keeps and builds
OVERHEAD = 3.0
# memory of the program and torch
PROGRAM_BYTES = 300e6
# time until everything is loaded and read, and time of a step beside its arithmetic
START_SECONDS, STEP_SECONDS = 5.0, 3e-3
# counts of the models of shipped recipes: weights, products, kept numbers
STORED = Path(__file__).with_name("model_costs.json")
# records of the forward pass that is measured: a batch of one may take another path
RECORDS = 2


@dataclass(frozen=True)
class ModelCost:
    """The size of a model.

    Args:
        weights: number of trainable weights. products: multiply-adds of the forward pass of one record.
        kept: numbers of 4 bytes that one record keeps for the backward pass.
    """

    weights: int
    products: int
    kept: float


@dataclass(frozen=True)
class CostEstimate:
    """The cost of a training: seconds of one core, bytes of memory, and records that pass through the model at once."""

    model: ModelCost
    seconds: float
    memory: float
    physical: int


def estimate(
    cost: ModelCost,
    *,
    steps: int,
    batch: int,
    private: bool,
    physical: int | None,
    budget: int,
    data: float,
    exact: bool = False,
    gradients: int = 1,
) -> CostEstimate:
    """Estimate time and memory of a training, within a factor of about two.

    Args:
        physical: records at once, where the recipe sets them. budget: megabytes for a physical batch.
        data: bytes of the records in memory.
        exact: records pass through the model one by one and their sum is exact (wpriv/training/clipping/exact_sums.py).
        gradients: of the whole batch that a step computes; more than one where it is compared without some records.
    """
    limit = physical or largest_batch(4.0 * cost.kept, cost.weights, budget)
    # 2 operations a product for each of: forward pass, gradients of activations, gradients of weights; clipping by
    # layer rules needs the products of the weights twice, for norms and for the sum
    per_record = (8 if private else 6) * cost.products / OPERATIONS + cost.kept / NUMBERS
    if exact:
        per_record += EXACT_RECORD + cost.weights / EXACT_NUMBERS
    seconds = START_SECONDS + steps * (STEP_SECONDS + gradients * batch * per_record + cost.weights / WEIGHTS)
    memory = min(batch, limit) * OVERHEAD * 4 * cost.kept + 5 * 4 * cost.weights
    return CostEstimate(cost, seconds, PROGRAM_BYTES + data + memory, min(batch, limit))


def largest_batch(kept: float, weights: int, budget: int) -> int:
    """Return the largest batch that is expected to stay within a budget of megabytes; at least 1."""
    return max(1, int(budget * 1e6 / (OVERHEAD * kept + 4.0 * weights)))


def of_model(model: PluginRef, shape: Sequence[int], classes: int) -> ModelCost | None:
    """Count the weights, products and kept numbers of a model on records of a shape.

    Those of the shipped recipes are looked up (model_costs.json); for others, torch is imported.

    Returns:
        None if torch is not installed, or if the model is no classifier of such records that torch can trace without
        data.
    """
    if (stored := stored_cost(model, shape, classes)) is not None:
        return stored
    if importlib.util.find_spec("torch") is None:
        return None
    return _measured(type(model), model.model_dump_json(), tuple(shape), classes)


def stored_cost(model: PluginRef, shape: Sequence[int], classes: int) -> ModelCost | None:
    """Return the cost of a model of the shipped recipes, which treats records one by one, or None for others."""
    counts = _stored_costs().get(cost_key(model, shape, classes))
    return None if counts is None else ModelCost(int(counts[0]), int(counts[1]), counts[2])


def cost_key(model: PluginRef, shape: Sequence[int], classes: int) -> str:
    """Return the key of a model on records of a shape, and with a number of classes, in model_costs.json."""
    return f"{model.model_dump_json(exclude_none=True)} {'x'.join(map(str, shape))} {classes}"


@functools.cache
def _stored_costs() -> dict[str, list[float]]:
    costs: dict[str, list[float]] = json.loads(STORED.read_text(encoding="utf-8"))
    return costs


@functools.cache
def _measured(reference: type[PluginRef], model: str, shape: tuple[int, ...], classes: int) -> ModelCost | None:
    try:
        return _measure(reference.model_validate_json(model), shape, classes)
    except (UsageError, RuntimeError, TypeError):  # of the model: its shapes, or an operation that needs data
        return None


def without_numbers(model: PluginRef, shape: Sequence[int], classes: int) -> nn.Module:
    """Build a model on the meta device, whose tensors have shapes and no numbers."""
    import torch

    from wpriv.training import models

    with torch.device("meta"):
        network: nn.Module = models.build(model, shape, classes)
    return network


def _measure(model: PluginRef, shape: Sequence[int], classes: int) -> ModelCost:
    """Build a classifier on the meta device and count the operations of one forward pass; no number is computed."""
    import torch
    from torch.nn.functional import cross_entropy

    network = without_numbers(model, shape, classes)
    with torch.device("meta"):
        inputs, targets = torch.empty(RECORDS, *shape), torch.empty(RECORDS, dtype=torch.long)
    with _operations() as counter:
        kept = kept_bytes(network, lambda: cross_entropy(network(inputs), targets, reduction="sum"))
    weights = sum(p.numel() for p in network.parameters() if p.requires_grad)
    # a multiply-add counts as two operations
    return ModelCost(weights, counter.total // (2 * RECORDS), kept / (4 * RECORDS))


def _operations() -> Any:
    """Return a context whose ``total`` counts the operations of matrix products, by torch's own rules.

    torch's FlopCounterMode does the same, and loads the compiler of torch, which takes a second.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
        total = 0

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if func.overloadpacket in flop_registry:
                self.total += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=out)
            return out

    return Operations()  # type: ignore[no-untyped-call]


def kept_bytes(model: nn.Module, forward: Callable[[], Tensor]) -> int:
    """Return the bytes that autograd keeps for the backward pass of ``forward``, without the model's parameters."""
    import torch

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
