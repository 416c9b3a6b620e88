"""The clipping methods: ghost clipping by the rules of layers, and the gradients of single examples.

Ghost clipping takes one forward pass and one backward pass to the outputs of the layers. The input of a layer and the
gradient at its output determine the norms, and with the clip factors the clipped sum; the gradients of single examples
are formed only where they are small. Where a parameter takes part in several calls, its gradient is the sum over these
calls, of which the norm is taken.

Source: Lee and Kifer (2021); Li et al. (2022), ghost clipping; Bu et al. (2023), book-keeping.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad_and_value
from torch.func import vmap as batched
from torch.nn.utils.rnn import PackedSequence
from torch.utils.checkpoint import CheckpointError

from wpriv.errors import Unsupported
from wpriv.training.clipping import model_state
from wpriv.training.clipping.example_gradients import (
    Groups,
    Loss,
    Rule,
    Scaling,
    Share,
    Summed,
    factors_by_name,
    gradients_of,
    losses_of,
    squares_of,
    together,
)
from wpriv.training.clipping.layer_rules import MIN_DIMENSIONS, RULES, count_of, rule_of, shares_of_sums
from wpriv.training.clipping.model_state import named
from wpriv.training.clipping.parameter_uses import Differentiate, Uses, one_by_one
from wpriv.training.clipping.record_trees import Records, arguments, called
from wpriv.training.clipping.recorded_layers import PROJECTIONS

BY_VMAP, BY_LOOP = "use the clipping method 'vmap'", "use the clipping method 'loop'"
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One call of a layer on a batch, or one linear map within it (recorded_layers.py).

    Args:
        name: of the layer in the model. input: [B, ...]. version: of the input at the call.
        output: its edge in the graph.
        rule: (input, gradient at the output) -> shares of parameters, by their names in the layer.
    """

    name: str
    layer: nn.Module
    input: Tensor
    version: int
    output: GradientEdge
    rule: Rule


def ghost(
    model: nn.Module,
    loss: Loss,
    inputs: Records,
    targets: Records,
    norm: Scaling | Groups,
    weights: Tensor | None,
    only_rules: bool = False,
) -> Summed:
    """Return the clipped sum by the rules of layers, and by the uses of parameters that no layer with a rule holds."""
    outputs, calls = forward(model, inputs, only_rules)
    losses = losses_of(outputs, targets, loss)
    deltas = gradients_at(calls, losses)
    # under autocast the layers may compute in half precision; norms and sums stay in that of the parameters
    with torch.no_grad(), torch.autocast(inputs.device.type, enabled=False):
        by_parameter = shares(_drained(calls), _drained(deltas))
        names = {parameter: name for name, parameter in model.named_parameters()}
        squares = {names[parameter]: share.squares for parameter, share in by_parameter.items()}
        factors = factors_by_name(squares, norm, weights)
        parts = []
        for parameter in names:
            if parameter.requires_grad:
                share = by_parameter.pop(parameter, None)
                parts.append(
                    torch.zeros_like(parameter) if share is None else share.weighted(factors[names[parameter]])
                )
    return Summed(parts, squares, losses.detach())


def gradients_at(calls: Sequence[Call], losses: Tensor) -> list[Tensor | None]:
    """Return the gradients of the sum of losses at the outputs of calls, None where an output has no influence."""
    if not calls:
        raise Unsupported(f"the weights are used outside of all layers with rules; {BY_VMAP}")
    try:
        return list(torch.autograd.grad(losses.sum(), [call.output for call in calls], allow_unused=True))
    except CheckpointError as error:
        raise Unsupported(
            "activation checkpointing computes parameters outside of layers with rules once more, in another way; "
            f"leave it out of their module, or {BY_LOOP}"
        ) from error


def forward(model: nn.Module, inputs: Records, only_rules: bool = False) -> tuple[Any, list[Call]]:
    """Return the model's outputs for a batch, with the calls of its trainable layers.

    Where parameters belong to no layer with a rule, or an embedding may look up something else than the records, the
    operations in which parameters meet the records (parameter_uses.py) are further calls, of the model itself.

    Args:
        only_rules: refuse such parameters.
    """
    names, others = trainable_layers(model)
    if others and only_rules:
        raise Unsupported(f"{others[0]}; {BY_VMAP}")
    calls: list[Call] = []
    seen: set[nn.Module] = set()
    copies = count_of(model)
    rows = len(inputs) * copies
    follows = not only_rules and (bool(others) or any(type(layer) is nn.Embedding for layer in names))
    uses = Uses(model, inputs, rows) if follows else None

    def enter(layer: nn.Module, args: tuple[Any, ...]) -> None:
        if uses is not None and uses.inside is None and args and uses.of_records(args[0]):
            uses.inside = layer

    def note(layer: nn.Module, h: Tensor, output: Tensor, rule: Rule) -> None:
        seen.add(layer)
        with torch._C.DisableTorchFunction():  # type: ignore[attr-defined]
            if not output.requires_grad:
                return  # called within torch.no_grad: no gradient of the layer comes of this call
            if h.shape[:1] != (rows,):
                _refuse_shape(names[layer], layer, h, rows)
            # the edge of the output, which later changes in place do not move
            calls.append(Call(names[layer], layer, h.detach(), h._version, get_gradient_edge(output), rule))

    def record(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if uses is not None:
            if uses.inside is not layer:
                # its input comes of parameters alone, whose uses are followed
                if not uses.follows(layer):
                    _refuse_shape(names[layer], layer, args[0] if args else None, rows)
                return
            uses.leave(output)
        if not args or args[0].dim() < MIN_DIMENSIONS.get(type(layer), 2):
            _refuse_shape(names[layer], layer, args[0] if args else None, rows)
        note(layer, args[0], output, functools.partial(shares_of_sums, layer, count=copies))

    with _projected(names, note, copies, uses), uses or contextlib.nullcontext():
        handles = [layer.register_forward_hook(record, prepend=True) for layer in names if rule_of(layer) is not None]
        handles += [layer.register_forward_pre_hook(enter) for layer in names if uses is not None]
        try:
            outputs = called(model, inputs)
        finally:
            for handle in handles:
                handle.remove()
    for layer, name in names.items():
        if uses is None and layer not in seen:
            raise Unsupported(
                f"{named(name, layer)} was not called: its parameters are unused or accessed outside its forward(); "
                f"{BY_VMAP}"
            )
    for call in calls:
        if call.input._version != call.version:
            raise Unsupported(
                f"the input of {named(call.name, call.layer)} was changed in place after the call; write the change "
                f"to a new tensor, or {BY_VMAP}"
            )
    return outputs, calls + ([] if uses is None else _calls_of_uses(model, uses))


def _calls_of_uses(model: nn.Module, uses: Uses) -> list[Call]:
    """Return the uses of parameters outside the layers with rules as calls of the model."""
    places = {parameter: name for name, parameter in model.named_parameters()}
    nothing = torch.empty(uses.records)

    def rule(h: Tensor, delta: Tensor, differentiate: Differentiate) -> dict[str, Share]:
        return {places[parameter]: share for parameter, share in uses.shares(differentiate, delta).items()}

    return [Call("", model, nothing, 0, edge, functools.partial(rule, differentiate=way)) for edge, way in uses.found]


def shares(
    calls: Iterable[Call], deltas: Iterable[Tensor | None], precision: torch.dtype | None = None
) -> dict[nn.Parameter, Share]:
    """Return the examples' gradients of each trainable parameter, given the gradients at the calls' outputs.

    Where an example has several copies, which follow each other in the first dimension, its gradient is their sum.
    Parameters of layers whose output does not influence the losses are left out. The precision is that of the
    parameters if none is given.
    """
    by_parameter: dict[nn.Parameter, list[Share]] = {}
    for call, delta in zip(calls, deltas, strict=True):
        if delta is not None:
            dtype = precision or next(call.layer.parameters()).dtype
            h = call.input.to(dtype) if call.input.is_floating_point() else call.input
            for name, share in call.rule(h, delta.to(dtype)).items():
                by_parameter.setdefault(call.layer.get_parameter(name), []).append(share)
    return {parameter: together(several) for parameter, several in by_parameter.items()}


def groups(calls: list[Call]) -> list[list[int]]:
    """Return the places of the calls, those that share a parameter together: most groups have one call."""
    result: list[tuple[set[nn.Parameter], list[int]]] = []
    for place, call in enumerate(calls):
        parameters, places = set(call.layer.parameters()), [place]
        apart = [group for group in result if not group[0] & parameters]
        for other in result:
            if other[0] & parameters:
                parameters, places = parameters | other[0], other[1] + places
        result = [*apart, (parameters, places)]
    return [places for _, places in result]


def trainable_layers(model: nn.Module) -> tuple[dict[nn.Module, str], list[str]]:
    """Return the layers with trainable parameters and a rule, with their names, and what is wrong with the others."""
    layers: dict[nn.Module, str] = {}
    others: list[str] = []
    within: set[nn.Module] = set()
    for name, module in model.named_modules():
        if type(module) in PROJECTIONS:
            within.update(child for child in module.modules() if child is not module)
            if any(p.requires_grad for p in module.parameters()):
                layers[module] = name
            continue
        parameters = {key: p for key, p in module._parameters.items() if p is not None and p.requires_grad}
        if not parameters or module in within:
            continue
        if rule_of(module) is not None and parameters.keys() <= {"weight", "bias"}:
            layers[module] = name
        else:
            known = ", ".join(sorted(kind.__name__ for kind in [*RULES, *PROJECTIONS]))
            others.append(
                f"{named(name, module)} has no rule for its parameters {', '.join(parameters)}; known are {known}"
            )
    return layers, others


@contextlib.contextmanager
def _projected(
    names: dict[nn.Module, str], note: Callable[..., None], copies: int, uses: Uses | None
) -> Iterator[None]:
    """Let layers of several linear maps record these within the block."""
    layers = [layer for layer in names if type(layer) in PROJECTIONS]
    for layer in layers:
        if copies > 1:
            raise Unsupported(f"{named(names[layer], layer)} has no rule for several copies of a record; {BY_VMAP}")
        if "forward" in vars(layer):
            raise Unsupported(f"{named(names[layer], layer)} has another forward function; {BY_VMAP}")

    def run(layer: nn.Module, *args: Any, **given: Any) -> object:
        recorded = functools.partial(PROJECTIONS[type(layer)], layer, functools.partial(note, layer))
        if uses is None:
            return recorded(*args, **given)
        if uses.inside is not layer:
            _refuse_shape(names[layer], layer, args[0] if args else None, uses.rows)
        with torch._C.DisableTorchFunction():  # type: ignore[attr-defined]
            out = recorded(*args, **given)
        uses.leave(out, not getattr(layer, "batch_first", True))
        return out

    try:
        for layer in layers:
            layer.forward = functools.partial(run, layer)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _refuse_shape(name: str, layer: nn.Module, h: object, batch: int) -> None:
    if isinstance(h, PackedSequence):
        raise Unsupported(f"{named(name, layer)} has no rule for packed sequences; {BY_VMAP}")
    shape = "no positional input" if h is None else tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
    raise Unsupported(
        f"the input of {named(name, layer)} must have the {batch} examples of the batch in its first dimension; "
        f"found {shape}; {BY_VMAP}"
    )


def _drained(items: list[T]) -> Iterator[T]:
    """Yield each item and drop it from the list, so that memory is freed layer by layer."""
    while items:
        yield items.pop(0)


# --- the gradients of single examples: batched by torch.func, or one example after another ---

# the largest number of gradient values in memory at a time: 256 MiB in float32
MAX_VALUES = 2**26
# a clipping norm beyond every gradient that is compared
UNCLIPPED = 1e20


def vmap(
    model: nn.Module, loss: Loss, inputs: Records, targets: Records, norm: Scaling | Groups, weights: Tensor | None
) -> Summed:
    """Return the clipped sum by torch.func, over as many examples at a time as fit into memory."""
    trainable = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    rest = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad} | dict(
        model.named_buffers()
    )

    def one(values: dict[str, Tensor], x: Records, y: Records) -> Tensor:
        args, keywords = arguments(model, x.unsqueeze(0))
        outputs = functional_call(model, {**values, **rest}, args, keywords)
        return losses_of(outputs, y.unsqueeze(0), loss).squeeze(0)

    each = batched(grad_and_value(one), in_dims=(None, 0, 0), randomness="different")
    size = max(1, MAX_VALUES // sum(p.numel() for p in trainable.values()))
    pieces = []
    for at in range(0, len(inputs), size):
        near = slice(at, at + size)
        try:
            with one_by_one(), model_state.own_tensors(model):
                grads, losses = each(trainable, inputs[near], targets[near])
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise Unsupported(
                f"torch.func cannot batch this model ({reason}); use the clipping method 'loop'"
            ) from error
        # under autocast the layers may compute in half precision; norms and sums stay in that of the parameters
        with torch.autocast(inputs.device.type, enabled=False):
            squares = {name: squares_of(grad.reshape(len(grad), -1)) for name, grad in grads.items()}
            factors = factors_by_name(squares, norm, None if weights is None else weights[near])
            parts = [torch.tensordot(factors[name], grads[name], dims=1) for name in trainable]
        pieces.append(Summed(parts, squares, losses))
    return _joined(pieces)


def loop(
    model: nn.Module, loss: Loss, inputs: Records, targets: Records, norm: Scaling | Groups, weights: Tensor | None
) -> Summed:
    """Return the clipped sum by definition, one example after another. Slow; for tests and unusual models."""
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    pieces = []
    for at in range(len(inputs)):
        near = slice(at, at + 1)
        losses = losses_of(called(model, inputs[near]), targets[near], loss)
        grads = dict(zip(trainable, gradients_of(losses, list(trainable.values())), strict=True))
        squares = {name: squares_of(grad.reshape(1, -1)) for name, grad in grads.items()}
        factors = factors_by_name(squares, norm, None if weights is None else weights[near])
        parts = [grad * factors[name].squeeze(0) for name, grad in grads.items()]
        pieces.append(Summed(parts, squares, losses.detach()))
    return _joined(pieces)


def _joined(pieces: list[Summed]) -> Summed:
    if len(pieces) == 1:
        return pieces[0]
    parts = [torch.stack(same).sum(dim=0) for same in zip(*(piece.parts for piece in pieces), strict=True)]
    squares = {name: torch.cat([piece.squares[name] for piece in pieces]) for name in pieces[0].squares}
    return Summed(parts, squares, torch.cat([piece.losses for piece in pieces]))
