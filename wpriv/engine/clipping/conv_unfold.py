"""Gradients of the kernel of a convolution in one to three dimensions, for each example or summed over a batch.

The kernel multiplies a window of the input at each position of the output. Its gradient for an example is the sum over
positions of the gradient at the output times the window, and so is computed from unfolded windows by a matrix product,
or by torch's own kernel for the gradient of a convolution. A transposed convolution is the same with input and output
exchanged.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_weight, conv3d_weight

from wpriv.engine.clipping.common import full_convolutions
from wpriv.engine.compiled import library

CPU_VALUES, GPU_VALUES = 2**18, 2**28
"""The largest number of values in the windows of a chunk: for the cache of a CPU, and for the memory of a GPU."""
PIECE = 2**20
"""Values of the gradients that the compiled function computes at a time."""
COMPILE = 2**17
"""Multiply-adds of an example's gradient from which the compiled function is worth compiling."""
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

    def chunks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield a few examples at a time: their slice, windows [n groups, T, size], and delta [n groups, channels, T].

        The windows of a chunk overwrite those of the chunk before.
        """
        g, h = self.geometry, self._padded()
        example, channel, *spatial = h.stride()
        steps = [step * stride for step, stride in zip(spatial, g.stride, strict=True)]
        steps += [step * dilation for step, dilation in zip(spatial, g.dilation, strict=True)]
        shape = (len(h), self.groups, *self.output, *g.kernel, self.inputs)
        views = h.as_strided(shape, (example, self.inputs * channel, *steps, channel))
        n = self._chunk(self.groups * self.positions * self.size)
        buffer = h.new_empty((n, *shape[1:]))
        delta = self.delta.flatten(2)
        for at in range(0, len(h), n):
            chunk = slice(at, min(at + n, len(h)))
            windows = buffer[: chunk.stop - at]
            windows.copy_(views[chunk])
            rows = delta[chunk].reshape(-1, self.channels, self.positions)
            yield chunk, windows.view(-1, self.positions, self.size), rows

    def each(self, examples: slice = slice(None)) -> Tensor:
        """Return the gradients [B, P, kernel, C / groups] by torch's gradient of a convolution, one after another.

        Faster than unfolding where an example takes longer than calling a function.
        """
        numbers = range(len(self.h))[examples]
        delta = self.delta.contiguous(memory_format=self.layout)
        grads = self.h.new_empty(len(numbers), self.geometry.outputs, *self.geometry.kernel, self.inputs)
        for place, k in enumerate(numbers):
            grads[place] = self._summed(self.h[k : k + 1], delta[k : k + 1]).movedim(1, -1)
        return grads

    def compiled(self) -> Iterator[tuple[slice, Tensor]] | None:
        """Yield some examples at a time: their slice and gradients [n, P, kernel, C], by the compiled function.

        Return None where there is none for this convolution, or its gradients are too small to compile one.
        """
        suits = self.groups == 1 and self.h.dim() == 4 and self.h.dtype == self.delta.dtype == torch.float32
        if not suits or not self.on_cpu() or self.positions * self.size * self.channels < COMPILE:
            return None
        functions = library.library()
        return None if functions is None else self._compiled(functions)

    def _compiled(self, functions: ctypes.CDLL) -> Iterator[tuple[slice, Tensor]]:
        g = self.geometry
        n = max(1, PIECE // (self.size * self.channels))
        for at in range(0, len(self.h), n):
            chunk = slice(at, min(at + n, len(self.h)))
            h, d = self.h[chunk], self.delta[chunk]
            sizes: Any = (g.kernel, g.stride, g.padding, g.dilation)
            yield chunk, library.kernel_gradients(functions, h, d, *sizes)

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
            return self._summed(self.h, delta.contiguous(memory_format=self.layout))
        total = self.h.new_zeros(self.groups, self.channels, self.size)
        for chunk, windows, delta in self.chunks():
            delta = delta * factors[chunk].repeat_interleave(self.groups).view(-1, 1, 1)
            for group in range(self.groups):
                rows = slice(group, None, self.groups)
                total[group].addmm_(delta[rows].transpose(0, 1).flatten(1), windows[rows].flatten(0, 1))
        return self.as_kernel(total)

    def as_kernel(self, grad: Tensor) -> Tensor:
        """Return a gradient [P, kernel, C / groups], in any shape of as many numbers, in the order of a kernel."""
        return grad.view(-1, *self.geometry.kernel, self.inputs).movedim(-1, 1)

    def on_cpu(self) -> bool:
        """Return whether to use torch's gradient of a convolution: on a GPU it computes in TF32 by default."""
        return self.h.device.type == "cpu"

    def _summed(self, h: Tensor, delta: Tensor) -> Tensor:
        g = self.geometry
        gradient: Callable[..., Tensor] = conv2d_weight if h.dim() == 4 else conv3d_weight
        shape = (g.outputs, self.inputs, *g.kernel)
        return gradient(h, shape, delta, g.stride, g.padding, g.dilation, g.groups)

    def _padded(self) -> Tensor:
        pads = [amount for pad in reversed(self.geometry.padding) for amount in (pad, pad)]
        return F.pad(self.h, pads).contiguous(memory_format=self.layout) if any(pads) else self.h

    def _chunk(self, values: int) -> int:
        """Return how many examples of so many values to treat at a time."""
        limit = CPU_VALUES if self.on_cpu() else GPU_VALUES
        return min(len(self.h), max(1, limit // values))


def _diagonal(squares: Tensor) -> Tensor:
    return squares.diagonal(dim1=-2, dim2=-1)
