"""Rules of convolutions and transposed convolutions in one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wpriv.engine.clipping.common import roughness
from wpriv.engine.clipping.conv_unfold import Geometry, Windows
from wpriv.engine.clipping.shares import Share, explicit, trains


def convolution(layer: Any, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Convolution: a linear layer on the windows of its input, in each of its groups."""
    result = {}
    if layer.weight.requires_grad:
        padding: Sequence[int] = layer.padding
        amounts = layer._reversed_padding_repeated_twice
        if layer.padding_mode != "zeros" or amounts[::2] != amounts[1::2]:
            mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
            h, padding = F.pad(h, amounts, mode=mode), [0] * len(layer.kernel_size)
        elif isinstance(layer.padding, str):
            padding = amounts[::2][::-1]
        geometry = _geometry(layer, layer.in_channels, layer.out_channels, padding)
        result["weight"] = _kernel(layer.weight, Windows(geometry, h, delta))
    return result | _bias(layer, delta)


def transposed(layer: Any, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Transposed convolution: its kernel is that of a convolution from the output to the input."""
    result = {}
    if layer.weight.requires_grad:
        geometry = _geometry(layer, layer.out_channels, layer.in_channels, layer.padding)
        result["weight"] = _kernel(layer.weight, Windows(geometry, delta, h))
    return result | _bias(layer, delta)


def _geometry(layer: Any, inputs: int, outputs: int, padding: Sequence[int]) -> Geometry:
    sizes = (layer.kernel_size, layer.stride, padding, layer.dilation)
    if len(layer.kernel_size) == 1:  # a sequence is an image of one row
        sizes = tuple((first, *size) for first, size in zip((1, 1, 0, 1), sizes, strict=True))  # type: ignore[assignment]
    return Geometry(inputs, outputs, layer.groups, *(tuple(size) for size in sizes))


def _bias(layer: Any, delta: Tensor) -> dict[str, Share]:
    return {"bias": explicit(delta.flatten(2).sum(dim=2))} if trains(layer.bias) else {}


def _kernel(weight: Tensor, windows: Windows) -> Share:
    """Return the share of a kernel: by products of pairs of positions, or from the examples' gradients."""
    shape = weight.shape

    def each() -> Tensor:
        return torch.cat([windows.as_kernel(piece.gradients()) for piece in windows.pieces()]).reshape(-1, *shape)

    if _pairing_is_cheaper(windows):
        squares = windows.paired_squares(roughness(windows.h.dtype))
        return Share(squares, lambda factors: windows.weighted(factors).view(shape), each)
    pieces = [explicit(piece.gradients()) for piece in windows.pieces()]

    def weighted(factors: Tensor) -> Tensor:
        parts = torch.split(factors, [len(piece.squares) for piece in pieces])
        sums = [piece.weighted(part) for piece, part in zip(pieces, parts, strict=True)]
        return windows.as_kernel(sums[0] if len(sums) == 1 else torch.stack(sums).sum(dim=0)).view(shape)

    return Share(torch.cat([piece.squares for piece in pieces]), weighted, each)


def _pairing_is_cheaper(windows: Windows) -> bool:
    """Return whether pairs of positions take less than half the work of an example's gradient."""
    kernel = windows.size // windows.inputs
    squares = windows.pixels**2 * windows.inputs + windows.positions**2 * (windows.channels + 8 * kernel)
    # writing and reading a gradient takes as long as many multiply-adds for each of its numbers
    return 2 * squares < (windows.positions + 64) * windows.size * windows.channels
