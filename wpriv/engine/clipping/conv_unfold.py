"""The windows of a convolution's input: what its weight is multiplied with at each position of its output."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NEAR, FAR = 2**18, 2**28
"""Numbers that the windows taken at a time hold at most: what the cache of a CPU keeps near, and what other devices have room for."""


class Windows:
    """Windows of an input [B, C, (rows,) columns] beside the gradient at the output [B, P, (rows,) columns], group by group.

    ``positions`` is the number T of outputs of a channel; of each group, ``channels`` is the number of outputs and ``size`` the
    number of inputs in a window, ordered as (kernel rows, kernel columns, channels): the order of channels-last, in which copying
    them is fast.
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
        """A few examples at a time: which, their windows [n groups, T, size], and delta [n groups, channels, T].

        The windows of a chunk lie where those of the one before lay.
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
        room = NEAR if h.device.type == "cpu" else FAR
        n = min(len(h), max(1, room // (groups * self.positions * self.size)))
        buffer = h.new_empty((n, *shape[1:]))
        for at in range(0, len(h), n):
            near = slice(at, min(at + n, len(h)))
            taken = buffer[: near.stop - at]
            taken.copy_(views[near])
            yield (
                near,
                taken.view(-1, self.positions, self.size),
                self.delta[near].reshape(-1, self.channels, self.positions),
            )

    def weighted(self, factors: Tensor) -> Tensor:
        """The gradient of the weight, summed over the batch with factors [B]."""
        total = self.h.new_zeros(self.layer.groups, self.channels, self.size)
        for near, seen, d in self.chunks():
            d = d * factors[near].repeat_interleave(self.layer.groups).view(-1, 1, 1)
            for group in range(self.layer.groups):
                mine = slice(group, None, self.layer.groups)
                total[group].addmm_(d[mine].transpose(0, 1).flatten(1), seen[mine].flatten(0, 1))
        return self.as_weight(total)

    def as_weight(self, grad: Tensor) -> Tensor:
        """A gradient [groups, channels, size] in the shape of the layer's weight."""
        found = grad.view(-1, *self.kernel, self.inputs).permute(0, 3, 1, 2)
        return found.squeeze(2) if self.layer.weight.dim() == 3 else found
