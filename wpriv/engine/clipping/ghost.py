"""Ghost clipping: one forward pass, one backward pass to the outputs of the layers, and the rules of the layers.

The input of a layer and the gradient at its output determine the norms, and with the clip factors the clipped sum;
the gradients of single examples are formed only where they are small.

Source: Lee and Kifer (2021); Li et al. (2022), ghost clipping; Bu et al. (2023), book-keeping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from wpriv.engine.clipping.common import Loss, Summed, clip_factors, losses_of
from wpriv.engine.clipping.copies import count_of, shares_of_sums
from wpriv.engine.clipping.layer_rules import RULES, Share
from wpriv.engine.clipping.scale_factors import Scaling
from wpriv.errors import Unsupported

INSTEAD = "use the clipping method 'vmap'"
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """The only call of a layer on a batch.

    Args:
        name: of the layer in the model. input: [B, ...]. version: of the input at the call.
        output: its edge in the graph.
    """

    name: str
    layer: nn.Module
    input: Tensor
    version: int
    output: GradientEdge


def ghost(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, norm: Scaling, weights: Tensor | None
) -> Summed:
    """Return the clipped sum of a model whose trainable layers all have a rule and are called once.

    Raises:
        Unsupported: see ``forward``.
    """
    outputs, calls = forward(model, inputs)
    losses = losses_of(outputs, targets, loss)
    deltas: list[Tensor | None] = list(
        torch.autograd.grad(losses.sum(), [call.output for call in calls], allow_unused=True)
    )
    # under autocast the layers may compute in half precision; norms and sums stay in that of the parameters
    with torch.no_grad(), torch.autocast(inputs.device.type, enabled=False):
        by_parameter = shares(_drained(calls), _drained(deltas), count_of(model))
        squares = {name: share.squares for name, share in by_parameter.items()}
        factors = clip_factors(squares, norm, weights)
        parts = []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                share = by_parameter.pop(name, None)
                parts.append(torch.zeros_like(parameter) if share is None else share.weighted(factors))
    return Summed(parts, squares, losses.detach())


def forward(model: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Call]]:
    """Return the model's outputs for a batch, with the calls of its trainable layers.

    Raises:
        Unsupported: a layer has no rule, shares a parameter with another, is called more than once or not at all, has
            its input changed in place, or has another first dimension than the batch; the message names it.
    """
    names = trainable_layers(model)
    calls: dict[nn.Module, Call] = {}
    rows = len(inputs) * count_of(model)

    def record(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        name = names[layer]
        if layer in calls:
            raise Unsupported(
                f"{_named(name, layer)} is called more than once, and its gradient is not that of one call; {INSTEAD}"
            )
        if not args or args[0].shape[:1] != (rows,) or args[0].dim() < _min_dimensions(layer):
            shape = tuple(args[0].shape) if args else "no positional input"
            raise Unsupported(
                f"the input of {_named(name, layer)} must have the {rows} examples of the batch in its first "
                f"dimension; found {shape}; {INSTEAD}"
            )
        # the edge of the output, which later changes in place do not move
        calls[layer] = Call(name, layer, args[0].detach(), args[0]._version, get_gradient_edge(output))

    handles = [layer.register_forward_hook(record, prepend=True) for layer in names]
    try:
        outputs: Tensor = model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    for layer, name in names.items():
        if layer not in calls:
            raise Unsupported(
                f"{_named(name, layer)} was not called: its parameters are unused or accessed outside its forward(); "
                f"{INSTEAD}"
            )
        if calls[layer].input._version != calls[layer].version:
            raise Unsupported(
                f"the input of {_named(name, layer)} was changed in place after the call; write the change to a new "
                f"tensor, or {INSTEAD}"
            )
    return outputs, list(calls.values())


def shares(calls: Iterable[Call], deltas: Iterable[Tensor | None], copies: int = 1) -> dict[str, Share]:
    """Return the examples' gradients of each trainable parameter, by name, given the gradients at the calls' outputs.

    Where an example has several ``copies``, which follow each other in the first dimension, its gradient is their sum.

    Parameters of layers whose output does not influence the losses are left out.
    """
    by_parameter = {}
    for call, delta in zip(calls, deltas, strict=True):
        if delta is not None:
            dtype = next(call.layer.parameters()).dtype
            h = call.input.to(dtype) if call.input.is_floating_point() else call.input
            for name, share in shares_of_sums(call.layer, h, delta.to(dtype), copies).items():
                by_parameter[f"{call.name}.{name}" if call.name else name] = share
    return by_parameter


def trainable_layers(model: nn.Module) -> dict[nn.Module, str]:
    """Return the modules that hold trainable parameters, with their names.

    Raises:
        Unsupported: one has no rule, or shares a parameter with another.
    """
    layers: dict[nn.Module, str] = {}
    owners: dict[Tensor, str] = {}
    for name, module in model.named_modules():
        parameters = {key: p for key, p in module.named_parameters(recurse=False) if p.requires_grad}
        if not parameters:
            continue
        if type(module) not in RULES or not parameters.keys() <= {"weight", "bias"}:
            known = ", ".join(sorted(kind.__name__ for kind in RULES))
            raise Unsupported(
                f"{_named(name, module)} has no rule for its parameters {', '.join(parameters)}; known are {known}; "
                f"{INSTEAD}"
            )
        for p in parameters.values():
            if p in owners:
                raise Unsupported(
                    f"{name!r} and {owners[p]!r} share a parameter, so that its gradient is not that of one layer; "
                    f"{INSTEAD}"
                )
            owners[p] = name
        layers[module] = name
    return layers


def _min_dimensions(layer: nn.Module) -> int:
    """Return the number of dimensions of a batch; with fewer, the layer takes its input for a single example."""
    return {nn.Conv1d: 3, nn.Conv2d: 4, nn.Embedding: 1}.get(type(layer), 2)


def _named(name: str, layer: nn.Module) -> str:
    return f"{name or 'the model'!r} ({type(layer).__name__})"


def _drained(items: list[T]) -> Iterator[T]:
    """Yield each item and drop it from the list, so that memory is freed layer by layer."""
    while items:
        yield items.pop(0)
