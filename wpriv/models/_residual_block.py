"""The residual block of the model ``wrn-16-4``. Loads torch, so that the model imports this file in ``build`` only."""

from __future__ import annotations

from torch import Tensor, nn

from wpriv.models._layers import group_norm


class ResidualBlock(nn.Module):
    """Pre-activation block: twice GroupNorm, ReLU and a 3x3 convolution, added to the shortcut.

    The shortcut is the input, or its 1x1 convolution where the shapes differ.

    Args:
        name: the model, for error messages. groups: of the normalisation. width, to: channels in and out.
        stride: of the first convolution.
    """

    def __init__(self, name: str, groups: int, width: int, to: int, stride: int):
        super().__init__()
        self.norm1, self.norm2 = group_norm(name, width, groups), group_norm(name, to, groups)
        self.conv1 = nn.Conv2d(width, to, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(to, to, 3, padding=1, bias=False)
        self.shortcut = None if width == to and stride == 1 else nn.Conv2d(width, to, 1, stride=stride, bias=False)
        # one module per use, so that the hooks of per-example clipping see each call separately
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        active: Tensor = self.relu1(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        residual: Tensor = self.conv2(self.relu2(self.norm2(self.conv1(active))))
        return residual + shortcut
