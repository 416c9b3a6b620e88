"""Gradients of the kernel of a convolution in one to three dimensions, for each example or summed over a batch.

The kernel multiplies a window of the input at each position of the output. Its gradient for an example is the sum over
positions of the gradient at the output times the window: a product of matrices, one of which holds the windows. The
sum over a batch is torch's gradient of a convolution. A transposed convolution is the same with input and output
exchanged.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight, conv3d_weight
from torch.nn.modules.conv import _ConvNd

from wpriv.training.clipping.example_gradients import Share, explicit, full_convolutions, roughness, trains
from wpriv.training.noise import library

# the largest number of values in the windows of a chunk: for the cache of a CPU, and for the memory of a GPU
CPU_VALUES, GPU_VALUES = 2**19, 2**28
# values of the gradients that are in one block of memory
PIECE = 2**22
# multiply-adds of a matrix product up to which one thread of numpy is faster than torch, by up to half
SMALL = 2**18
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """A convolution of C channels to P, with a number for each spatial dimension (one is given to a sequence).

    Args:
        inputs, outputs: the numbers of channels C and P. groups: each output channel sees C / groups input channels.
        padding: zeros on both sides.
    """

    inputs: int
    outputs: int
    groups: int
    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes


class Windows:
    """Windows of an input [B, C, ...] and the gradient at the output [B, P, ...], by group.

    ``positions`` is the number T of outputs of a channel. For each group, ``channels`` is the number of outputs and
    ``size`` the number of inputs in a window, ordered as (kernel dimensions, channels): the order of channels-last, in
    which copying is fast.
    """

    def __init__(self, geometry: Geometry, h: Tensor, delta: Tensor):
        if h.dim() == 3:  # a sequence is an image of one row
            h, delta = h.unsqueeze(2), delta.unsqueeze(2)
        layout = torch.channels_last if h.dim() == 4 else torch.channels_last_3d
        self.geometry, self.groups = geometry, geometry.groups
        self.h, self.delta = h.contiguous(memory_format=layout), delta
        self.layout, self.output = layout, tuple(delta.shape[2:])
        self.inputs, self.channels = geometry.inputs // self.groups, geometry.outputs // self.groups
        self.positions, self.size = math.prod(self.output), math.prod(geometry.kernel) * self.inputs
        self.pixels = math.prod(n + 2 * pad for n, pad in zip(h.shape[2:], geometry.padding, strict=True))

    def pieces(self) -> list[Windows]:
        """Return these windows divided by examples, so that the gradients of each piece are one small block of memory.

        The C library's allocator returns larger blocks to the system, whatever its settings.
        """
        n = max(1, PIECE // (self.geometry.outputs * self.size))
        pairs = zip(torch.split(self.h, n), torch.split(self.delta, n), strict=True)
        return [self] if n >= len(self.h) else [Windows(self.geometry, h, delta) for h, delta in pairs]

    def gradients(self) -> Tensor:
        """Return the examples' gradients [B, groups, blocks, channels, size / blocks], for blocks of lines of a window.

        The gradient of an example is computed by products of its own matrices, whatever the other examples are.
        """
        functions = self._functions()
        if functions is not None:
            g = self.geometry
            sizes: Any = (g.kernel, g.stride, g.padding, g.dilation)
            grads = library.kernel_gradients(functions, self.h, self.delta, *sizes)
            return grads.view(-1, 1, 1, self.channels, self.size)
        blocks = len(self._offsets())
        grads = self.h.new_empty(len(self.h), self.groups, blocks, self.channels, self.size // blocks)
        by_numpy = self._small() and self.on_cpu() and torch.get_num_threads() == 1
        with np.errstate(all="ignore"):  # infinite gradients are refused later, with their parameter
            for chunk, windows, delta in self.chunks():
                for out, matrices in zip(grads[chunk].flatten(0, 1).unbind(1), windows, strict=True):
                    if by_numpy:
                        np.matmul(delta.numpy(), matrices.numpy(), out=out.numpy())
                    elif len(out) == 1:
                        torch.bmm(delta, matrices, out=out)
                    else:
                        out.copy_(delta @ matrices)
        return grads

    def as_kernel(self, grads: Tensor) -> Tensor:
        """Return gradients [..., groups, blocks, channels, size / blocks] as kernels [..., P, C / groups, kernel]."""
        g = self.geometry
        ordered = grads.transpose(-3, -2).reshape(*grads.shape[:-4], g.outputs, *g.kernel, self.inputs)
        return ordered.movedim(-1, -1 - len(g.kernel))

    def chunks(self) -> Iterator[tuple[slice, list[Tensor], Tensor]]:
        """Yield a few examples at a time: their slice, windows and delta [n groups, channels, T].

        The windows are a list of matrices [n groups, T, part of size], one for each offset of the kernel in the first
        spatial dimension. They are parts of the same memory, since a window that is moved by one line is the window of
        another output, and so only the other dimensions are unfolded. The windows of a chunk overwrite those of the
        chunk before.
        """
        g, offsets, together = self.geometry, self._offsets(), self._together()
        phases, lines = max(phase for _, phase in offsets) + 1, max(line for line, _ in offsets) + self.output[0]
        last = (lines - 1) * g.stride[0] + phases + together - 2
        h = self._padded(last + 1)
        example, channel, first, *spatial = h.stride()
        steps = [step * stride for step, stride in zip(spatial, g.stride[1:], strict=True)]
        inner = [first, *(step * dilation for step, dilation in zip(spatial, g.dilation[1:], strict=True))]
        shape = (phases, lines, *self.output[1:], together, *g.kernel[1:], self.inputs)
        strides = (example, self.inputs * channel, first, first * g.stride[0], *steps, *inner, channel)
        views = h.as_strided((len(h), self.groups, *shape), strides)
        n = self._chunk(self.groups * math.prod(shape)) if self._small() or not self.on_cpu() else 1
        buffer = h.new_empty((n, *views.shape[1:]))
        delta, line = self.delta.flatten(2), math.prod(self.output[1:])
        for at in range(0, len(h), n):
            filled = buffer[: min(n, len(h) - at)].copy_(views[at : at + n])
            chunk = slice(at, at + len(filled))
            matrices = filled.view(-1, phases, lines * line, self.size // len(offsets))
            windows = [matrices[:, phase, start * line : start * line + self.positions] for start, phase in offsets]
            yield chunk, windows, delta[chunk].reshape(-1, self.channels, self.positions)

    def _small(self) -> bool:
        """Return whether the products are small, so that treating one example at a time would take longer."""
        return self.positions * self.channels * self.size <= SMALL * len(self._offsets())

    def _together(self) -> int:
        """Return how many lines of a window are unfolded together: those of a step, if a kernel has whole steps."""
        g = self.geometry
        return g.stride[0] if g.dilation[0] == 1 and g.kernel[0] % g.stride[0] == 0 else 1

    def _offsets(self) -> list[tuple[int, int]]:
        """Return the offsets of the kernel in the first dimension as whole steps and rests."""
        g = self.geometry
        return [divmod(k * g.dilation[0], g.stride[0]) for k in range(0, g.kernel[0], self._together())]

    def _functions(self) -> ctypes.CDLL | None:
        """Return the compiled functions if they suit this convolution and its gradients are worth compiling them."""
        suits = self.groups == 1 and self.h.dim() == 4 and self.h.dtype == self.delta.dtype == torch.float32
        if not suits or not self.on_cpu() or self.positions * self.size * self.channels < library.COMPILE:
            return None
        return library.library()

    def paired_squares(self, roughness: float) -> Tensor:
        """Return |g_i|^2 [B] without windows, plus a bound on the rounding error: see ``paired_squares`` of rules.

        The product of two windows is the sum over the kernel of products of pixels, which are computed once.
        """
        g, h = self.geometry, self._padded()
        pixels = h.movedim(1, -1).reshape(len(h), -1, self.groups, self.inputs).transpose(1, 2)
        sizes, squares = tuple(h.shape[2:]), h.new_empty(len(h))
        n = self._chunk(self.groups * (self.pixels**2 + self.positions**2))
        for at in range(0, len(h), n):
            rows = pixels[at : at + n]
            products = (rows @ rows.transpose(2, 3)).view(len(rows), self.groups, *sizes, *sizes)
            paired = h.new_zeros(len(rows), self.groups, *self.output, *self.output)
            for offset in itertools.product(*(range(width) for width in g.kernel)):
                cut: tuple[slice, ...] = tuple(
                    slice(k * dilation, k * dilation + (count - 1) * stride + 1, stride)
                    for k, dilation, stride, count in zip(offset, g.dilation, g.stride, self.output, strict=True)
                )
                paired += products[(slice(None), slice(None), *cut, *cut)]
            inputs = paired.view(len(rows), self.groups, self.positions, self.positions)
            d = self.delta[at : at + n].reshape(len(rows), self.groups, self.channels, self.positions)
            deltas = d.transpose(2, 3) @ d
            lengths = (_diagonal(inputs) * _diagonal(deltas)).sqrt().sum(dim=2)
            slack = roughness * math.sqrt(self.size + self.channels)
            sums = (inputs * deltas).sum(dim=(2, 3)).clamp(min=0.0) + lengths.square() * slack
            squares[at : at + n] = sums.sum(dim=1)
        return squares

    def weighted(self, factors: Tensor) -> Tensor:
        """Return the gradient of the kernel, summed over the batch with factors [B]."""
        if self.on_cpu() and full_convolutions():
            delta = self.delta * factors.view(-1, *[1] * (self.delta.dim() - 1))
            g = self.geometry
            gradient: Callable[..., Tensor] = conv2d_weight if self.h.dim() == 4 else conv3d_weight
            shape, delta = (g.outputs, self.inputs, *g.kernel), delta.contiguous(memory_format=self.layout)
            return gradient(self.h, shape, delta, g.stride, g.padding, g.dilation, g.groups)
        blocks = len(self._offsets())
        total = self.h.new_zeros(self.groups, blocks, self.channels, self.size // blocks)
        for chunk, windows, delta in self.chunks():
            delta = delta * factors[chunk].repeat_interleave(self.groups).view(-1, 1, 1)
            for group in range(self.groups):
                rows = slice(group, None, self.groups)
                left = delta[rows].transpose(0, 1).flatten(1)
                for k, matrices in enumerate(windows):
                    total[group, k].addmm_(left, matrices[rows].flatten(0, 1))
        return self.as_kernel(total)

    def on_cpu(self) -> bool:
        """Return whether to use torch's gradient of a convolution: on a GPU it computes in TF32 by default."""
        return self.h.device.type == "cpu"

    def _padded(self, lines: int = 0) -> Tensor:
        """Return the input with its padding, extended by zeros to so many lines in the first spatial dimension."""
        pads = [amount for pad in reversed(self.geometry.padding) for amount in (pad, pad)]
        pads[-1] += max(0, lines - self.h.shape[2] - 2 * self.geometry.padding[0])
        return F.pad(self.h, pads).contiguous(memory_format=self.layout) if any(pads) else self.h

    def _chunk(self, values: int) -> int:
        """Return how many examples of so many values to treat at a time."""
        limit = CPU_VALUES if self.on_cpu() else GPU_VALUES
        return min(len(self.h), max(1, limit // values))


def _diagonal(squares: Tensor) -> Tensor:
    return squares.diagonal(dim1=-2, dim2=-1)


# --- the rules, for convolutions and transposed convolutions ---


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


def _geometry(layer: _ConvNd, inputs: int, outputs: int, padding: Sequence[int]) -> Geometry:
    sizes = (layer.kernel_size, layer.stride, padding, layer.dilation)
    if len(layer.kernel_size) == 1:  # a sequence is an image of one row
        sizes = tuple((first, *size) for first, size in zip((1, 1, 0, 1), sizes, strict=True))  # type: ignore[assignment]
    return Geometry(inputs, outputs, layer.groups, *(tuple(size) for size in sizes))


def _bias(layer: _ConvNd, delta: Tensor) -> dict[str, Share]:
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
