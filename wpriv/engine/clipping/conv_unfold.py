"""Unfold the input of a convolution into windows, which its weight multiplies at each position of its output."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CPU_VALUES, GPU_VALUES = 2**18, 2**28
"""The largest number of values in the windows of a chunk: for the cache of a CPU, and for the memory of a GPU."""


class Windows:
    """Windows of an input [B, C, (rows,) columns] and the gradient at the output [B, P, (rows,) columns], by group.

    ``positions`` is the number T of outputs of a channel. For each group, ``channels`` is the number of outputs and
    ``size`` the number of inputs in a window, ordered as (kernel rows, kernel columns, channels): the order of
    channels-last, in which copying is fast.
    """

    def __init__(self, layer: nn.Conv1d | nn.Conv2d, h: Tensor, delta: Tensor):
        self.layer, self.h, self.delta = layer, h, delta.flatten(2)
        self.output = (1, *delta.shape[2:]) if delta.dim() == 3 else tuple(delta.shape[2:])
        self.kernel = (1, *layer.kernel_size) if delta.dim() == 3 else tuple(layer.kernel_size)
        self.inputs = layer.in_channels // layer.groups
        self.positions = self.delta.shape[2]
        self.size = self.kernel[0] * self.kernel[1] * self.inputs
        self.channels = layer.out_channels // layer.groups

    def chunks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield a few examples at a time: their slice, windows [n groups, T, size], and delta [n groups, channels, T].

        The windows of a chunk overwrite those of the chunk before.
        """
        layer, groups = self.layer, self.layer.groups
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        h = F.pad(self.h, layer._reversed_padding_repeated_twice, mode=mode)
        stride, dilation = layer.stride, layer.dilation
        if h.dim() == 3:
            h, stride, dilation = h.unsqueeze(2), (1, *stride), (1, *dilation)
        h = h.contiguous(memory_format=torch.channels_last)
        example, channel, row, column = h.stride()
        steps = (row * stride[0], column * stride[1], row * dilation[0], column * dilation[1])
        shape = (len(h), groups, *self.output, *self.kernel, self.inputs)
        views = h.as_strided(shape, (example, self.inputs * channel, *steps, channel))
        limit = CPU_VALUES if h.device.type == "cpu" else GPU_VALUES
        n = min(len(h), max(1, limit // (groups * self.positions * self.size)))
        buffer = h.new_empty((n, *shape[1:]))
        for at in range(0, len(h), n):
            chunk = slice(at, min(at + n, len(h)))
            windows = buffer[: chunk.stop - at]
            windows.copy_(views[chunk])
            delta = self.delta[chunk].reshape(-1, self.channels, self.positions)
            yield chunk, windows.view(-1, self.positions, self.size), delta

    def weighted(self, factors: Tensor) -> Tensor:
        """Return the gradient of the weight, summed over the batch with factors [B]."""
        total = self.h.new_zeros(self.layer.groups, self.channels, self.size)
        for chunk, windows, delta in self.chunks():
            delta = delta * factors[chunk].repeat_interleave(self.layer.groups).view(-1, 1, 1)
            for group in range(self.layer.groups):
                rows = slice(group, None, self.layer.groups)
                total[group].addmm_(delta[rows].transpose(0, 1).flatten(1), windows[rows].flatten(0, 1))
        return self.as_weight(total)

    def as_weight(self, grad: Tensor) -> Tensor:
        """Return a gradient [groups, channels, size] in the shape of the layer's weight."""
        weight = grad.view(-1, *self.kernel, self.inputs).permute(0, 3, 1, 2)
        return weight.squeeze(2) if self.layer.weight.dim() == 3 else weight
