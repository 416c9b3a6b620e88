"""Networks of every common make, with a batch of six records for each: what users train, and what must be refused.

Per-example clipping sums them rightly, or refuses them where the last entry says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

RECORDS, CLASSES, WORDS = 6, 3, 9
Make = Callable[[], nn.Module]


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


class Through(nn.Module):
    """Modules under the names that are given, and a function of them and the batch."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor], **modules: Any):
        super().__init__()
        self.run = run
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def head(*layers: nn.Module) -> nn.Module:
    """The layers, a smooth bend, the mean over all but records and the second dimension, and logits."""
    return nn.Sequential(*layers, nn.Tanh(), Flat(), nn.LazyLinear(CLASSES))


class Flat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


class Take(nn.Module):
    """The first output of a module that gives several."""

    def __init__(self, inner: nn.Module, **given: Any):
        super().__init__()
        self.inner, self.given = inner, given

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x, **self.given)[0]
        return out


class Attention(nn.Module):
    def __init__(self, **given: Any):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **given)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return out


class Cell(nn.Module):
    """A cell called at each position of a sequence."""

    def __init__(self, cell: nn.Module):
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for position in x.unbind(dim=1):
            state = self.cell(position, state)
        return state[0] if isinstance(state, tuple) else state  # type: ignore[return-value]


class Bags(nn.Module):
    def __init__(self, mode: str, **given: Any):
        super().__init__()
        self.bags = nn.EmbeddingBag(WORDS, 4, mode=mode, **given)

    def forward(self, words: Tensor) -> Tensor:
        out: Tensor = self.bags(words)
        return out


class SequenceFirst(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x.transpose(0, 1))[0][-1]
        return out


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Bilinear(3, 2, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.mix(x[:, :3], x[:, 3:])
        return out


class Held(nn.Module):
    """A linear layer, and its weight used once more."""

    def __init__(self, use: Callable[[nn.Linear, Tensor], Tensor]):
        super().__init__()
        self.down, self.use = nn.Linear(5, 5), use

    def forward(self, x: Tensor) -> Tensor:
        return self.use(self.down, torch.tanh(self.down(x)))


class Softmax(nn.Module):
    """Experts whose outputs are mixed by a softmax of the record's own scores."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(5, 3), nn.ModuleList(nn.Linear(5, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        shares = self.gate(x).softmax(dim=1)
        return torch.stack([expert(x) for expert in self.experts], dim=2) @ shares.unsqueeze(2)


class Scale(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Residual(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool, *layers: nn.Module):
        super().__init__()
        self.inner, self.reentrant = nn.Sequential(*layers), reentrant

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return out


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(5, 4), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.used(x)
        return out


class Dropped(nn.Module):
    """Dropout by the function and not by the module."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, self.training)


def frozen(model: nn.Module, *names: str) -> nn.Module:
    for name in names:
        model.get_parameter(name).requires_grad_(False)
    return model


def tied() -> nn.Module:
    """A language model whose last layer has the weight of the embedding."""
    model = Through(
        lambda own, x: own.out(torch.tanh(own.words(x)).mean(1))[:, :CLASSES],
        words=nn.Embedding(WORDS, 4),
        out=nn.Linear(4, WORDS),
    )
    model.out.weight = model.words.weight
    return model


def stale() -> nn.Module:
    """A weight computed from a parameter once, when the model was built."""
    model = Held(lambda down, h: h)
    model.twice = model.down.weight * 2
    model.use = lambda down, h: F.linear(h, model.twice)
    return model


def masked() -> nn.Module:
    """A weight some of whose gradients are switched off by a hook."""
    layer = nn.Linear(5, 4)
    layer.weight.register_hook(lambda gradient: gradient * (torch.arange(5) % 2))
    return layer


def called_by_keyword() -> nn.Module:
    return Through(lambda own, x: own.layer(input=x), layer=nn.Linear(5, 4))


def replaced() -> nn.Module:
    """A layer whose forward function was replaced in the object."""
    layer = nn.Linear(5, 4)
    layer.forward = lambda x: F.linear(x, layer.weight, layer.bias) + F.linear(x.square(), layer.weight)
    return layer


def vectors(width: int = 5) -> Tensor:
    return torch.randn(RECORDS, width)


def sequences(length: int = 5, width: int = 4) -> Tensor:
    return torch.randn(RECORDS, length, width)


def images(channels: int = 4, side: int = 7) -> Tensor:
    return torch.randn(RECORDS, channels, side, side)


def volumes() -> Tensor:
    return torch.randn(RECORDS, 2, 5, 5, 5)


def words() -> Tensor:
    return torch.randint(WORDS, (RECORDS, 5))


def layer(make: Callable[..., nn.Module], *args: Any, **given: Any) -> Make:
    """A model whose first layer this is."""
    return lambda: head(make(*args, **given))


conv = partial(nn.Conv2d, 4, 6, 3)
weight_norm, spectral_norm = nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm

# name: model, batch, and where they are not (True, ""): training mode, and the pattern of a refusal
SHORT: dict[str, tuple[Any, ...]] = {
    "linear": (layer(nn.Linear, 5, 4), vectors),
    "linear on a sequence": (layer(nn.Linear, 4, 3), sequences),
    "linear without bias": (layer(nn.Linear, 5, 4, bias=False), vectors),
    "conv 1d": (layer(nn.Conv1d, 5, 6, 3), sequences),
    "conv 1d, stride, padding, dilation, groups": (
        layer(nn.Conv1d, 4, 6, 2, stride=2, padding=2, dilation=2, groups=2),
        lambda: sequences(4, 9),
    ),
    "conv 1d, circular": (layer(nn.Conv1d, 5, 6, 3, padding=1, padding_mode="circular"), sequences),
    "conv 2d": (layer(conv), images),
    "conv 2d, groups": (layer(conv, groups=2), images),
    "conv 2d, depthwise": (layer(nn.Conv2d, 4, 8, 3, groups=4), images),
    "conv 2d, uneven stride": (layer(conv, stride=(2, 3)), images),
    "conv 2d, dilation": (layer(conv, dilation=2), images),
    "conv 2d, same": (layer(conv, padding="same"), images),
    "conv 2d, reflect": (layer(conv, padding=2, padding_mode="reflect"), images),
    "conv 2d, replicate": (layer(conv, padding=1, padding_mode="replicate"), images),
    "conv 3d": (layer(nn.Conv3d, 2, 4, 3), volumes),
    "conv 3d, groups, stride, padding": (layer(nn.Conv3d, 2, 4, 3, groups=2, stride=2, padding=1), volumes),
    "transposed conv 1d": (layer(nn.ConvTranspose1d, 5, 4, 3, stride=2), sequences),
    "transposed conv 2d": (layer(nn.ConvTranspose2d, 4, 6, 3, stride=2, padding=1, output_padding=1), images),
    "transposed conv 2d, groups, dilation": (layer(nn.ConvTranspose2d, 4, 6, 3, groups=2, dilation=2), images),
    "transposed conv 3d": (layer(nn.ConvTranspose3d, 2, 3, 2), volumes),
    "unfold and linear": (lambda: head(nn.Unfold(3), nn.Linear(25, 3)), images),
    "group norm": (lambda: head(conv(), nn.GroupNorm(3, 6)), images),
    "group norm without weights": (lambda: head(conv(), nn.GroupNorm(3, 6, affine=False)), images),
    "layer norm": (lambda: head(nn.Linear(4, 6), nn.LayerNorm(6)), sequences),
    "layer norm over two dimensions": (layer(nn.LayerNorm, (5, 4)), sequences),
    "instance norm": (lambda: head(conv(), nn.InstanceNorm2d(6)), images),
    "instance norm with weights": (lambda: head(conv(), nn.InstanceNorm2d(6, affine=True)), images),
    "rms norm": (lambda: head(nn.Linear(4, 6), nn.RMSNorm(6)), sequences),
    "local response norm": (lambda: head(conv(), nn.LocalResponseNorm(2)), images),
    "batch norm, evaluation mode": (lambda: head(conv(), nn.BatchNorm2d(6)), images, False, ""),
    "embedding": (layer(nn.Embedding, WORDS, 4), words),
    "embedding, padding": (layer(nn.Embedding, WORDS, 4, padding_idx=2), words),
    "embedding, sparse": (layer(nn.Embedding, WORDS, 4, sparse=True), words),
    "embedding bag, mean": (lambda: head(Bags("mean")), words),
    "embedding bag, sum, padding": (lambda: head(Bags("sum", padding_idx=1)), words),
    "embedding bag, max": (lambda: head(Bags("max")), words),
    "tied embedding": (tied, words),
    "attention": (lambda: head(Attention()), sequences),
    "attention with dropout": (lambda: head(Attention(dropout=0.5)), sequences, False, ""),
    "attention with extra keys": (lambda: head(Attention(add_bias_kv=True)), sequences),
    "transformer layer": (lambda: head(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)), sequences),
    "transformer layer, norm first": (
        lambda: head(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True, norm_first=True, activation="gelu")),
        sequences,
    ),
    "lstm": (lambda: head(Take(nn.LSTM(4, 3, batch_first=True))), sequences),
    "lstm, two ways, two layers": (
        lambda: head(Take(nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True))),
        sequences,
    ),
    "lstm, projected": (lambda: head(Take(nn.LSTM(4, 3, batch_first=True, proj_size=2))), sequences),
    "gru": (lambda: head(Take(nn.GRU(4, 3, batch_first=True))), sequences),
    "rnn, sequence first": (lambda: head(SequenceFirst(nn.RNN(4, 3))), sequences),
    "lstm cell": (lambda: head(Cell(nn.LSTMCell(4, 3))), sequences),
    "gru cell": (lambda: head(Cell(nn.GRUCell(4, 3))), sequences),
    "rnn cell": (lambda: head(Cell(nn.RNNCell(4, 3))), sequences),
    "bilinear": (lambda: head(TwoInputs()), vectors),
    "prelu": (lambda: head(nn.Linear(5, 4), nn.PReLU(4)), vectors),
    "weight norm": (lambda: head(weight_norm(nn.Linear(5, 4))), vectors),
    "weight norm by hooks": (lambda: head(nn.utils.weight_norm(nn.Linear(5, 4))), vectors),
    "spectral norm, evaluation mode": (lambda: head(spectral_norm(nn.Linear(5, 4))), vectors, False, ""),
    "spectral norm": (lambda: head(spectral_norm(nn.Linear(5, 4))), vectors),
    "orthogonal weight": (lambda: head(nn.utils.parametrizations.orthogonal(nn.Linear(5, 4))), vectors),
    "activation in place": (lambda: head(nn.Linear(5, 4), nn.ELU(inplace=True), nn.Linear(4, 4)), vectors),
    "leaky activation in place after a conv": (lambda: head(conv(), nn.LeakyReLU(0.1, inplace=True)), images),
    "checkpointing": (lambda: head(Checkpointed(False, nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4))), vectors),
    "checkpointing, reentrant": (
        lambda: head(nn.Linear(5, 5), Checkpointed(True, nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4))),
        vectors,
        True,
        "use_reentrant=False",
    ),
    "frozen weight": (lambda: head(frozen(nn.Linear(5, 4), "weight"), nn.Linear(4, 4)), vectors),
    "frozen first layer": (lambda: head(frozen(nn.Linear(5, 4), "weight", "bias"), nn.Linear(4, 4)), vectors),
    "frozen bias of a conv": (lambda: head(frozen(conv(), "bias")), images),
    "weight used again, transposed": (lambda: head(Held(lambda down, h: F.linear(h, down.weight.T))), vectors),
    "weight used again, as it is": (lambda: head(Held(lambda down, h: F.linear(h, down.weight, down.bias))), vectors),
    "bias used again": (lambda: head(Held(lambda down, h: h * down.bias)), vectors),
    "norm of a weight used": (lambda: head(Held(lambda down, h: h / (1 + down.weight.norm()))), vectors),
    "weight used, layer never called": (
        lambda: Through(lambda own, x: F.linear(x, own.layer.weight), layer=nn.Linear(5, CLASSES)),
        vectors,
    ),
    "embedding compared with its own table": (
        lambda: head(Through(lambda own, x: own.table(x).mean(1) @ own.table.weight.T, table=nn.Embedding(WORDS, 4))),
        words,
    ),
    "kernel of a conv used again": (
        lambda: head(Through(lambda own, x: own.conv(F.conv2d(x, own.conv.weight)), conv=nn.Conv2d(4, 4, 3))),
        images,
    ),
    "weight from a parameter once": (lambda: head(stale()), vectors, True, "a second time"),
    "layer called twice": (lambda: head(Held(lambda down, h: down(h))), vectors),
    "layer called by keyword": (lambda: head(called_by_keyword()), vectors),
    "layer with another forward function": (lambda: head(replaced()), vectors),
    "layer within a gradient hook": (lambda: head(masked()), vectors),
    "parameter of the module": (lambda: head(nn.Linear(5, 4), Scale(4)), vectors),
    "residual block": (lambda: head(Residual(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 5)))), vectors),
    "residual convolutions": (
        lambda: head(Residual(nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.Conv2d(6, 4, 1)))),
        images,
    ),
    "softmax mixture": (lambda: head(Softmax()), vectors),
    "dropout, evaluation mode": (lambda: head(nn.Linear(5, 40), nn.Dropout()), vectors, False, ""),
    "a layer without use": (lambda: head(Unused()), vectors),
    "pooling": (lambda: head(conv(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)), images),
    "shuffled pixels and upsampling": (
        lambda: head(conv(), nn.Upsample(scale_factor=2), nn.Conv2d(6, 4, 2), nn.PixelShuffle(2)),
        images,
    ),
    "detached branch": (lambda: head(Held(lambda down, h: h + down(h).detach())), vectors),
}
NETWORKS: dict[str, tuple[Make, Callable[[], Tensor], bool, str]] = {
    name: (row[0], row[1], *((True, "") if len(row) == 2 else row[2:])) for name, row in SHORT.items()
}
