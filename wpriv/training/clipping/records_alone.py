"""Guards of a real batch: records without a finite gradient add zero, and others are compared with records alone.

docs/theory/clipping.md, "Gradients that are not finite", says why such a record adds zero.
The sum of ghost clipping is the sum over i of f_i g_i, where both may depend on other records if the network or the
loss mixes them in a way that made-up examples have not shown. Some records of the batch (random ones, and those with
the shortest and the longest gradient) are passed alone too, with the same random draws. Both sums of their f_i g_i must
agree up to rounding, and so must each f_i. A difference in single precision is confirmed in double precision, since a
rounding error may be as large as a gradient where an activation has a kink or a loss is nearly 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from wpriv.errors import Unsupported
from wpriv.training.clipping import ghost, model_state
from wpriv.training.clipping.example_gradients import (
    Loss,
    Scaling,
    Summed,
    bound,
    clip_factors,
    losses_of,
    roughness,
    total,
)
from wpriv.training.clipping.ghost import UNCLIPPED, loop
from wpriv.training.clipping.model_pass import SameDraws, draws, generator_states, repeated, sizes_of
from wpriv.training.clipping.record_trees import Records, mapped

# (inputs, targets, weights [B] of zeros and ones or None) -> clipped sum
Run = Callable[[Records, Records, Tensor | None], Summed]


def finite_sum(run: Run, inputs: Records, targets: Records, weights: Tensor | None = None) -> Summed:
    """Return the clipped sum of the records with a finite gradient.

    The squared norms that are returned are infinite for the others. Synchronises with the device once, unless there are
    such records.
    """
    begin = draws(inputs.device)
    summed = run(inputs, targets, weights)
    faulty = ~total(summed.squares).isfinite()
    if not bool(faulty.any()):
        return summed
    squares = {name: square.masked_fill(faulty, torch.inf) for name, square in summed.squares.items()}
    return replace(_without(run, inputs, targets, weights, faulty, begin), squares=squares, losses=summed.losses)


def _without(
    run: Run, inputs: Records, targets: Records, weights: Tensor | None, faulty: Tensor, begin: Callable[[], None]
) -> Summed:
    """Return the sum without the ``faulty`` records [B]; ``begin`` restores the random draws of the first pass."""
    first = run
    while bool((~faulty).any()):
        rows = torch.where(faulty, (~faulty).nonzero()[0], torch.arange(len(faulty), device=faulty.device))
        kept = (~faulty).float()
        begin()
        summed = first(inputs[rows], targets[rows], kept if weights is None else kept * weights)
        further = ~total(summed.squares).isfinite()
        if not bool(further.any()):
            return summed
        if not bool((further & ~faulty).any()):
            # a replaced record met draws under which it has no finite gradient: leave the places empty
            good = ~faulty
            inputs, targets, weights = inputs[good], targets[good], None if weights is None else weights[good]
            faulty = faulty[good]
            continue
        faulty = faulty | further
    return run(inputs[:0], targets[:0], None)


# --- records of a batch against the same records alone ---

# the number of records that are compared, besides those of the shortest and the longest gradient
RANDOM = 4
# the difference of two sums that rounding may cause, as a share of the longest f_i g_i for each record
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
# the same as a share of the clipping norm, where a network does not compute in double precision; and the relative
# difference of two clip factors
UNCONFIRMED, FACTORS = 2e-2, 2e-2


@dataclass(frozen=True)
class Compared:
    """The distance of two sums over the same records.

    Args:
        difference: of the sums, over the root of the number of records. longest: of the f_i g_i alone. norm: the
            clipping norm. factors: the largest relative difference of clip factors.
    """

    difference: float
    longest: float
    norm: float
    factors: float

    def within(self, length: float) -> bool:
        """Return whether the sums differ by at most a length for each record, and the factors by rounding."""
        return self.difference <= length and self.factors <= FACTORS


def require_alone(
    model: nn.Module,
    loss: Loss,
    inputs: Records,
    targets: Records,
    norm: Scaling,
    *,
    seed: int,
    weights: Tensor | None = None,
) -> None:
    """Refuse a batch in which records add to ghost clipping's sum something else than alone; state is restored."""
    if weights is not None:
        inputs, targets = inputs[weights != 0], targets[weights != 0]
    with model_state.kept(model), torch.enable_grad(), torch.autocast(inputs.device.type, enabled=False):
        if not _mixes(model, loss, inputs, targets, norm, seed):
            return
    raise Unsupported(
        "the training stops: some records of a batch add something else to the clipped sum than each of them alone. "
        "The network or the loss mixes the records of a batch, in a way that made-up examples have not shown, so that "
        "the influence of a record is not bounded. Earlier steps may have been affected too: do not use the weights of "
        "this training. Make each record's output and loss depend on that record alone"
    )


def _mixes(model: nn.Module, loss: Loss, inputs: Records, targets: Records, norm: Scaling, seed: int) -> bool:
    """Return whether records add something else than alone, in double precision where the model computes in it."""
    first = _compare(model, loss, inputs, targets, norm, seed)
    dtype = next(model.parameters()).dtype
    tolerance = TOLERANCE[dtype] + 4 * (roughness(dtype) - torch.finfo(dtype).eps)
    if first is None or first.within(tolerance * first.longest):
        return False
    if next(model.parameters()).dtype == torch.float64:
        return True
    try:
        with _double_precision(model):
            second = _compare(model, loss, mapped(inputs, _doubled), mapped(targets, _doubled), norm, seed)
    except (RuntimeError, ValueError, TypeError):
        return not first.within(UNCONFIRMED * first.norm)
    return second is not None and not second.within(TOLERANCE[torch.float64] * second.longest)


def _compare(
    model: nn.Module, loss: Loss, inputs: Records, targets: Records, norm: Scaling, seed: int, drawing: bool = False
) -> Compared | None:
    """Compare some records of a batch with the same records alone; None where they cannot be compared.

    Args:
        drawing: give all records the same random draws. They are recognised by the number of records, which must not be
            a dimension of the model: some records are left out for that.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(inputs), generator=generator)
    dimensions = sizes_of(model) | set(inputs.shape[1:])
    if drawing:
        order = order[: next((size for size in range(len(inputs), 1, -1) if size not in dimensions), len(inputs))]
    batch = order.sort().values.to(inputs.device)
    inputs, targets = inputs[batch], targets[batch]
    with repeated(model, seed):
        states = generator_states()
        with _same_draws(model, len(inputs), seed, dimensions, drawing) as draws:
            outputs, calls = ghost.forward(model, inputs)
            losses = losses_of(outputs, targets, loss)
            shares = ghost.shares(calls, ghost.gradients_at(calls, losses))
        if not drawing and generator_states() != states:
            return _compare(model, loss, inputs, targets, norm, seed, drawing=True)
        if not shares:
            return None
        lengths = torch.stack([share.squares for share in shares.values()]).sum(dim=0)
        finite = lengths.isfinite()
        if not bool(finite.all()):
            # a sum with a factor 0 for a gradient that is not finite would not be finite
            return _compare(model, loss, inputs[finite], targets[finite], norm, seed) if finite.sum() > 1 else None
        chosen = _chosen(lengths, generator)
        factors = clip_factors({"": lengths[chosen]}, norm)
        with _same_draws(model, 1, seed, (), drawing) as single:
            alone = loop(model, loss, inputs[chosen], targets[chosen], UNCLIPPED, factors)
    if any(each is not None and each.unknown for each in (draws, single)):
        return None
    weights = torch.zeros_like(lengths).index_copy(0, chosen, factors)
    trained = [p for p in model.parameters() if p.requires_grad]
    sums = [shares[p].weighted(weights) if p in shares else torch.zeros_like(p) for p in trained]
    square = sum(float((one - other).double().square().sum()) for one, other in zip(sums, alone.parts, strict=True))
    expected = clip_factors(alone.squares, norm)
    longest = float((expected * total(alone.squares).sqrt()).max())
    apart = float(((factors - expected).abs() / expected).max())
    return Compared((square / len(chosen)) ** 0.5, longest, bound(norm), apart)


def _same_draws(
    model: nn.Module, size: int, seed: int, dimensions: Container[int], drawing: bool
) -> contextlib.AbstractContextManager[SameDraws | None]:
    return SameDraws(model, size, seed, dimensions) if drawing else contextlib.nullcontext()


def _chosen(lengths: Tensor, generator: torch.Generator) -> Tensor:
    few = torch.randperm(len(lengths), generator=generator)[:RANDOM]
    ends = torch.stack([lengths.argmin(), lengths.argmax()]).cpu()
    places = sorted({int(place) for place in torch.cat([few, ends])})
    return torch.tensor(places, device=lengths.device)


def _doubled(values: Tensor) -> Tensor:
    return values.double() if values.is_floating_point() else values


@contextlib.contextmanager
def _double_precision(model: nn.Module) -> Iterator[None]:
    """Let a model compute in double precision within the block; ``model_state.kept`` puts the buffers back."""
    weights = [(parameter, parameter.data) for parameter in model.parameters()]
    for parameter, data in weights:
        parameter.data = _doubled(data)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = _doubled(buffer)
    try:
        yield
    finally:
        for parameter, data in weights:
            parameter.data = data
