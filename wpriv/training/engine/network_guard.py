"""Guards of a network of the calling program: what it was trained on before, and that only steps change it.

A caller can train one network twice, or change it between two steps. The guarantee of a training covers neither, and
the statement cannot name it: so both are refused where they can be seen, which is within one process.
"""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from wpriv.errors import UsageError


@dataclass(frozen=True)
class Origin:
    """The training in this process that left a weight: its folder, a name of its records, whether it had privacy."""

    folder: Path
    records: str
    private: bool


@dataclass(frozen=True)
class Change:
    """What a training did to a weight: some of its numbers [k] before and after."""

    origin: Origin
    first: Tensor
    last: Tensor


# the largest number of numbers that are kept of a weight
KEPT = 1024
# a weight is close to a trained one where their changes share this much of their squared length (the square of the
# cosine), and independent ones would do so with less than this probability
CLOSE, CHANCE = 0.5, 1e-9
_in_training: weakref.WeakKeyDictionary[nn.Module, Path] = weakref.WeakKeyDictionary()
# by the digest of a weight, the training that left it
_left: dict[str, Origin] = {}
# by the shape of a weight, what trainings made of such weights
_changes: dict[torch.Size, list[Change]] = {}


@contextlib.contextmanager
def in_training(model: nn.Module, origin: Origin) -> Iterator[None]:
    """Hold a network for one training within the block, and note the weights that it leaves."""
    if model in _in_training:
        raise UsageError(
            f"this network is in the training of {_in_training[model]}: the steps of two trainings in one network are "
            f"covered by neither guarantee. Give each training its own, for example copy.deepcopy(network)"
        )
    digests = set(_digests(model).values())
    first = {name: _sample(parameter) for name, parameter in model.named_parameters()}
    _in_training[model] = origin.folder
    try:
        yield
    finally:
        _in_training.pop(model, None)
        note_left(model, origin, digests)
        after = _digests(model)
        for name, parameter in model.named_parameters():
            if after[name] in digests:
                continue  # not trained, under whatever name it has now
            last = _sample(parameter)
            begun = first.get(name, torch.zeros_like(last))
            if begun.shape == last.shape and not torch.equal(begun, last):
                _changes.setdefault(parameter.shape, []).append(Change(origin, begun, last))


def note_left(model: nn.Module, origin: Origin, before: Collection[str] = ()) -> None:
    """Note the weights of a network as left by a training, but those whose digests it had ``before``."""
    _left.update({digest: origin for digest in _digests(model).values() if digest not in before})


def require_unused(model: nn.Module, records: str) -> None:
    """Refuse a network with a weight that an earlier training of this process left, on the same records, or near it."""
    digests = _digests(model)
    for name, parameter in model.named_parameters():
        origin, how = _left.get(digests[name]), "is a weight that"
        if origin is None or origin.records != records:
            near = (change for change in _changes.get(parameter.shape, ()) if change.origin.records == records)
            sample, how = _sample(parameter), "is close to a weight that"
            origin = next((change.origin for change in near if _is_close(sample, change)), None)
        if origin is None:
            continue
        advice = "give the network new weights"
        if origin.private:
            advice += f", or go on from that training at the cost of both: fork=True and out={str(origin.folder)!r}"
        raise UsageError(
            f"{name!r} {how} the training of {origin.folder} left in this network, on the same records, and first "
            f"weights are taken as public: the guarantee would not cover that training. To train again, {advice}"
        )


def _sample(parameter: Tensor) -> Tensor:
    """Return up to ``KEPT`` numbers of a weight, evenly spread, the same places for all weights of a shape."""
    flat = parameter.detach().reshape(-1)
    return flat[:: max(1, -(-len(flat) // KEPT))].to("cpu", torch.float64)


def _is_close(weight: Tensor, change: Change) -> bool:
    """Return whether a weight was made from a trained one: by a small change, an average, or a few further steps.

    Of both weights the parts along the one that the training began from and along the constant one are removed. What
    is left of the trained one is mostly noise, to which new weights are as unlikely to point as to any direction: by
    the square of a cosine s in m dimensions with the probability I_(1-s)((m-1)/2, 1/2). Weights that began in the same
    place and were changed by something else are not close either. The constant direction is no evidence: layers of
    normalization begin at it, and a first step of Adam, which moves each number by the rate up or down, may lead there.
    """
    from scipy.special import betainc

    constant = torch.ones_like(weight)
    begun = _without(change.first, constant)
    trained, present = (_without(_without(vector, constant), begun) for vector in (change.last, weight))
    size, length = float(trained @ trained), float(present @ present)
    # what rounding leaves of a vector points nowhere
    empty = size <= 1e-20 * float(change.last @ change.last) or length <= 1e-20 * float(weight @ weight)
    dimensions = len(weight) - 2
    if dimensions < 2 or empty or float(trained @ present) <= 0:
        return False
    rest = _without(present, trained)
    unlike = float(rest @ rest) / length
    return unlike <= 1 - CLOSE and float(betainc((dimensions - 1) / 2, 0.5, unlike)) < CHANCE


def _without(vector: Tensor, direction: Tensor) -> Tensor:
    square = float(direction @ direction)
    return vector - direction * (float(vector @ direction) / square) if square else vector


def _digests(model: nn.Module) -> dict[str, str]:
    return {
        name: hashlib.sha256(_bits(parameter).cpu().numpy().tobytes()).hexdigest()
        for name, parameter in model.named_parameters()
    }


@dataclass(frozen=True)
class State:
    """A network at some moment, with all that a step depends on.

    Args:
        kinds: of each parameter and buffer by name: which tensor it is, whether it is trained, its shape and type.
        values: copies of them, bit for bit.
    """

    kinds: dict[str, tuple[object, ...]]
    values: dict[str, Tensor]


def state_of(model: nn.Module, reuse: State | None = None) -> State:
    """Return the present state of a network, whose copies take the memory of an earlier state where they fit."""
    tensors = _tensors(model)
    kinds = {name: _kind(name, each) for name, each in tensors.items()}
    if reuse is None or reuse.kinds != kinds:
        return State(kinds, {name: each.detach().clone() for name, each in tensors.items()})
    for name, each in tensors.items():
        reuse.values[name].copy_(each.detach())
    return reuse


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by their names in messages."""
    parameters = {f"the parameter {name!r}": each for name, each in model.named_parameters(remove_duplicate=False)}
    return parameters | {f"the buffer {name!r}": each for name, each in model.named_buffers(remove_duplicate=False)}


def _kind(name: str, tensor: Tensor) -> tuple[object, ...]:
    """Return which tensor it is (a buffer may be replaced by one with the same numbers), and of what form."""
    same = id(tensor) if name.startswith("the parameter") else 0
    return same, tensor.requires_grad, tuple(tensor.shape), tensor.dtype, tensor.device


def stamps_of(model: nn.Module) -> list[tuple[object, ...]]:
    """Return what nearly every change of a network changes too, without reading its numbers.

    It stays the same where numbers were changed through ``.data`` or an array that shares their memory, and changes
    with numbers that were written and are the same as before.
    """
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return [(name, id(each), each._version, each.data_ptr(), each.requires_grad) for name, each in tensors]


def difference(before: State, model: nn.Module) -> str | None:
    """Return in words how a network differs from a state of it, in any bit; None where it does not."""
    tensors = _tensors(model)
    for name in before.kinds.keys() ^ tensors.keys():
        return f"{name} was {'removed' if name in before.kinds else 'added'}"
    for name, each in tensors.items():
        mine, theirs = before.kinds[name], _kind(name, each)
        if mine != theirs:
            frozen = "frozen" if mine[1] else "made trainable"
            return f"{name} was {frozen if mine[1] != theirs[1] else 'replaced'}"
    pairs = [(_bits(each), _bits(before.values[name])) for name, each in tensors.items()]
    if all(mine.device.type == "cpu" for mine, _ in pairs):
        # numpy compares whole numbers several times as fast as torch
        equal = [bool((mine.numpy() == theirs.numpy()).all()) for mine, theirs in pairs]
    else:
        # one transfer for all: on a GPU each would wait for the device
        equal = torch.stack([(mine == theirs).all() for mine, theirs in pairs]).tolist()
    return next((f"{name} has other values" for name, same in zip(tensors, equal, strict=True) if not same), None)


def _bits(tensor: Tensor) -> Tensor:
    """Return the bits of a tensor as integers of the size of its numbers."""
    values = tensor.detach()
    values = torch.view_as_real(values) if values.is_complex() else values
    size = values.element_size()
    return values.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size])
