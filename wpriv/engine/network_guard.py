"""Guards of a network of the calling program: what it was trained on before, and that only steps change it.

A caller can train one network twice, or change it between two steps. The guarantee of a training covers neither, and
the statement cannot name it: so both are refused where they can be seen, which is within one process.
"""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wpriv.errors import UsageError


@dataclass(frozen=True)
class Origin:
    """The training in this process that left a weight: its folder, its records, and whether it had privacy."""

    folder: Path
    fingerprint: str
    private: bool


_in_training: weakref.WeakKeyDictionary[nn.Module, Path] = weakref.WeakKeyDictionary()
_left: dict[str, Origin] = {}
"""By the digest of a weight, the training that left it."""


@contextlib.contextmanager
def in_training(model: nn.Module, origin: Origin) -> Iterator[None]:
    """Hold a network for one training within the block, and note the weights that it leaves.

    Raises:
        UsageError: another training holds it.
    """
    if model in _in_training:
        raise UsageError(
            f"this network is in the training of {_in_training[model]}: the steps of two trainings in one network are "
            f"covered by neither guarantee. Give each training its own, for example copy.deepcopy(network)"
        )
    before = set(_digests(model).values())
    _in_training[model] = origin.folder
    try:
        yield
    finally:
        del _in_training[model]
        _left.update({digest: origin for digest in _digests(model).values() if digest not in before})


def require_unused(model: nn.Module, fingerprint: str) -> None:
    """Refuse a network whose weights an earlier training of this process left, on the same records.

    Args:
        fingerprint: of the training records.
    Raises:
        UsageError: it has such a weight.
    """
    for name, digest in _digests(model).items():
        origin = _left.get(digest)
        if origin is None or origin.fingerprint != fingerprint:
            continue
        advice = "give the network new weights"
        if origin.private:
            advice += f", or go on from that training at the cost of both: fork=True and out={str(origin.folder)!r}"
        raise UsageError(
            f"{name!r} is a weight that the training of {origin.folder} left in this network, on the same records, and "
            f"first weights are taken as public: the guarantee would not cover that training. To train again, {advice}"
        )


def _digests(model: nn.Module) -> dict[str, str]:
    """Return a digest of each parameter, by name."""
    return {
        name: hashlib.sha256(_bits(parameter).cpu().numpy().tobytes()).hexdigest()
        for name, parameter in model.named_parameters()
    }


def state_of(model: nn.Module) -> dict[str, tuple[Any, ...]]:
    """Return what a step depends on, by name: each parameter, whether it is trained, and a checksum of its values.

    Two states differ where a number of a weight or a buffer was changed, or two were swapped, and, up to chance,
    where more were; and where a layer was replaced, added, removed or frozen.
    """
    tensors = {f"the parameter {name!r}": each for name, each in model.named_parameters(remove_duplicate=False)}
    buffers = {f"the buffer {name!r}": each for name, each in model.named_buffers(remove_duplicate=False)}
    # one transfer for all: on a GPU each would wait for the device
    checksums = [_checksum(each) for each in (*tensors.values(), *buffers.values())]
    sums = torch.stack(checksums).tolist() if checksums else []
    named = [(name, id(each), each.requires_grad, tuple(each.shape), each.dtype) for name, each in tensors.items()]
    named += [(name, 0, False, tuple(each.shape), each.dtype) for name, each in buffers.items()]
    return {name: (*parts, total) for (name, *parts), total in zip(named, sums, strict=True)}


def difference(before: dict[str, tuple[Any, ...]], after: dict[str, tuple[Any, ...]]) -> str | None:
    """Return in words how two states of a network differ; None where they do not."""
    for name in before.keys() | after.keys():
        if name not in after or name not in before:
            return f"{name} was {'removed' if name in before else 'added'}"
    for name, mine in before.items():
        theirs = after[name]
        if mine == theirs:
            continue
        if mine[:-1] == theirs[:-1]:
            return f"{name} has other values"
        if mine[1] != theirs[1]:
            return f"{name} was {'frozen' if mine[1] else 'made trainable'}"
        return f"{name} was replaced"
    return None


def _checksum(tensor: Tensor) -> Tensor:
    """Return the sum of the bits of all numbers, each times an odd number of its own, modulo 2^64."""
    bits = _bits(tensor).reshape(-1).to(torch.int64)
    return (bits * (2 * torch.arange(len(bits), device=bits.device) + 1)).sum()


def _bits(tensor: Tensor) -> Tensor:
    """Return the bits of a tensor as integers of the size of its numbers."""
    values = tensor.detach()
    values = torch.view_as_real(values) if values.is_complex() else values
    size = values.element_size()
    return values.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size])
