"""Small models for the tests of training: each trainable kind of layer under each option, with a batch for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

cross_entropy = partial(F.cross_entropy, reduction="none")
CLASSES = 3


def image(channels: int = 4, side: int = 7) -> tuple[int, ...]:
    return (channels, side, side)


def head(*layers: nn.Module, width: int) -> nn.Module:
    """The layers, a smooth bend, and a linear layer to the classes."""
    return nn.Sequential(*layers, nn.Tanh(), nn.Flatten(), nn.Linear(width, CLASSES))


class Residual(nn.Module):
    """Not a chain: a sum of two ways, with an activation that overwrites the output of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 6, 3, padding=1)
        self.norm = nn.GroupNorm(3, 6)
        self.second = nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.last = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.elu(self.first(x), inplace=True)
        x = x + self.second(torch.tanh(self.norm(x)))
        out: Tensor = self.last(x.mean(dim=(2, 3)))
        return out


def frozen(model: nn.Module, *names: str) -> nn.Module:
    """The model with these parameters not trained."""
    for name in names:
        model.get_parameter(name).requires_grad_(False)
    return model


conv = partial(nn.Conv2d, 4, 6)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: head(nn.Linear(5, 4), width=4), (5,)),
    "linear, no bias": (lambda: head(nn.Linear(5, 4, bias=False), width=4), (5,)),
    "linear on a sequence": (lambda: head(nn.Linear(5, 4), width=24), (6, 5)),
    "linear on a short sequence": (lambda: head(nn.Linear(40, 30), width=60), (2, 40)),
    "linear on two dimensions more": (lambda: head(nn.Linear(5, 4), width=24), (2, 3, 5)),
    "conv": (lambda: head(conv(3), width=150), image()),
    "conv, no bias": (lambda: head(conv(3, bias=False), width=150), image()),
    "conv, stride": (lambda: head(conv(3, stride=2), width=54), image()),
    "conv, uneven stride that leaves a rest": (lambda: head(conv(2, stride=(3, 2)), width=36), image()),
    "conv, padding": (lambda: head(conv(3, padding=2), width=486), image()),
    "conv, padding same": (lambda: head(conv(4, padding="same"), width=294), image()),
    "conv, padding valid": (lambda: head(conv((2, 3), padding="valid"), width=180), image()),
    "conv, padding reflect": (lambda: head(conv(3, padding=1, padding_mode="reflect"), width=294), image()),
    "conv, padding circular": (lambda: head(conv(3, padding=(1, 2), padding_mode="circular"), width=378), image()),
    "conv, dilation": (lambda: head(conv(3, dilation=(2, 3)), width=18), image()),
    "conv, groups": (lambda: head(conv(3, groups=2, padding=1, stride=2), width=96), image()),
    "conv, depthwise": (lambda: head(nn.Conv2d(4, 8, 3, groups=4), width=200), image()),
    "conv, few positions": (lambda: head(nn.Conv2d(16, 24, 3), width=24 * 4), image(16, 4)),
    "conv, few positions, groups": (
        lambda: head(nn.Conv2d(32, 48, 3, groups=2, padding=1, stride=2), width=48 * 4),
        image(32, 4),
    ),
    "conv, one position": (lambda: head(nn.Conv2d(4, 6, 7), width=6), image()),
    "conv, channels last": (lambda: head(conv(3), width=150).to(memory_format=torch.channels_last), image()),
    "conv 1d": (lambda: head(nn.Conv1d(3, 5, 3), width=35), (3, 9)),
    "conv 1d, every option": (
        lambda: head(nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), width=30),
        (4, 9),
    ),
    "conv 1d, few positions": (lambda: head(nn.Conv1d(20, 30, 5), width=60), (20, 6)),
    "group norm": (lambda: head(conv(3), nn.GroupNorm(3, 6), width=150), image()),
    "group norm on vectors": (lambda: head(nn.Linear(5, 4), nn.GroupNorm(2, 4), width=4), (5,)),
    "group norm first": (lambda: head(nn.GroupNorm(2, 4), width=196), image()),
    "layer norm": (lambda: head(nn.LayerNorm(5), nn.Linear(5, 4), width=24), (6, 5)),
    "layer norm on vectors": (lambda: head(nn.Linear(5, 4), nn.LayerNorm(4), width=4), (5,)),
    "layer norm over two dimensions": (lambda: head(nn.LayerNorm((3, 5)), width=30), (2, 3, 5)),
    "layer norm, no bias": (lambda: head(nn.LayerNorm(5, bias=False), width=5), (5,)),
    "a layer alone": (lambda: nn.Linear(5, CLASSES), (5,)),
    "residual": (Residual, image()),
    "frozen weight": (lambda: frozen(head(conv(3), nn.GroupNorm(2, 6), width=150), "0.weight", "1.bias"), image()),
    "frozen bias": (
        lambda: frozen(head(conv(3), nn.GroupNorm(2, 6), width=150), "0.bias", "1.weight", "4.weight"),
        image(),
    ),
    "frozen first layers": (
        lambda: frozen(head(conv(3), nn.GroupNorm(2, 6), width=150), "0.bias", "0.weight", "1.weight", "1.bias"),
        image(),
    ),
    "pooling": (lambda: head(conv(3), nn.MaxPool2d(2, 1), width=96), image()),
    "batch norm with fixed statistics, frozen": (
        lambda: frozen(head(conv(3), nn.BatchNorm2d(6), width=150), "1.weight", "1.bias").eval(),
        image(),
    ),
}
WORDS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: head(nn.Embedding(7, 4), width=20),
    "embedding, padding": lambda: head(nn.Embedding(7, 4, padding_idx=2), width=20),
    "embedding, sparse": lambda: head(nn.Embedding(7, 4, sparse=True), width=20),
    "embedding, frozen layer behind": lambda: frozen(head(nn.Embedding(7, 4), nn.Linear(4, 4), width=20), "1.weight"),
}
EXAMPLES = 5


def case(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A model in double precision with inputs and targets for EXAMPLES examples, the same on each call."""
    torch.manual_seed(7)
    if name in WORDS:
        model, inputs = WORDS[name](), torch.randint(7, (EXAMPLES, 5))
    else:
        make, shape = MODELS[name]
        model, inputs = make(), torch.randn(EXAMPLES, *shape, dtype=torch.float64)
    targets = torch.randint(CLASSES, (EXAMPLES,))
    return model.double(), inputs, targets


NAMES = (*MODELS, *WORDS)
