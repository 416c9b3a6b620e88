"""Models and losses that mix or keep the records of a batch, and similar ones that are allowed.

Each of ``LEAKS`` must be refused with a message that names the place.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.training.engine.networks import (
    CLASSES,
    Attention,
    Checkpointed,
    Dropped,
    Held,
    Make,
    Residual,
    Take,
    Through,
    conv,
    head,
    images,
    losses,
    sequences,
    vectors,
)


class Centre(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0)


class CentreInTraining(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0) if self.training else x


class OwnBatchNorm(nn.Module):
    """Batch normalisation of one's own, without running statistics."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()


class Buffered(nn.Module):
    """What a rule makes of a buffer at each call in training mode."""

    def __init__(self, rule: Callable[[Tensor, Tensor], Tensor], first: Tensor, **given: Any):
        super().__init__()
        self.rule = rule
        self.register_buffer("seen", first, **given)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = self.rule(self.seen, x.detach())
        return x


class CopiedInPlace(nn.Module):
    """The first record of the last batch in a buffer, written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.last.copy_(x[0])
        return x


class BufferInBackward(nn.Module):
    """The last gradient in a buffer, written by a hook on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slope", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        out = x * 1.0
        if out.requires_grad:
            out.register_hook(self.note)
        return out

    def note(self, gradient: Tensor) -> None:
        self.slope.copy_(gradient.detach().mean(0))


class LastBatch(nn.Module):
    """Adds to each batch the mean of the one before, kept in a Python attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Any = None

    def forward(self, x: Tensor) -> Tensor:
        mean = torch.zeros_like(x[0]) if self.before is None else self.before
        self.before = x.detach().mean(0)
        return x + mean


class Listed(nn.Module):
    """Collects all it has seen in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.history.append(x.detach().clone())
        return x


class First(nn.Module):
    """Scales by the mean size of the first batch, for good."""

    def __init__(self) -> None:
        super().__init__()
        self.size: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.size is None:
            self.size = x.detach().abs().mean()
        return x / self.size


class Hidden(nn.Module):
    """Keeps the mean of the last batch where no attribute shows it."""

    def __init__(self) -> None:
        super().__init__()
        kept: list[Tensor] = []

        def run(x: Tensor) -> Tensor:
            out = x + (kept.pop() if kept else 0.0)
            kept.append(x.detach().mean(0))
            return out

        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)


class Scheduled(nn.Module):
    """Behaves in another way at every second call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (1 + self.calls % 2)


class ExtraState(nn.Module):
    """Saves the largest number that it has seen as extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0.0

    def get_extra_state(self) -> Any:
        return {"largest": self.largest}

    def set_extra_state(self, state: Any) -> None:
        self.largest = state["largest"]

    def forward(self, x: Tensor) -> Tensor:
        self.largest = max(self.largest, float(x.detach().abs().max()) + 1.0 + self.largest)
        return x


class OwnParameter(nn.Module):
    """Writes the mean of the batch into a frozen parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Parameter(torch.zeros(5), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.teacher.mul_(0.9).add_(x.mean(0))
        return x


class Unregistered(nn.Module):
    """Weights in a list, which torch does not know as parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = [torch.randn(5, 5, requires_grad=True)]

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weights[0]


class MixedGradient(torch.autograd.Function):
    """The identity, whose gradient is centred over the batch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient - gradient.mean(0)


class Pair(nn.Module):
    """Gives two outputs, the second of which is mixed; a dictionary in a tuple."""

    def forward(self, x: Tensor) -> Any:
        return x, {"second": x * x.sum()}


class OfSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / len(x)


def first_of_pair(own: Any, x: Tensor) -> Tensor:
    first, rest = own.pair(own.layer(x))
    return own.out(first + rest["second"])


def zero_last(model: nn.Module) -> nn.Module:
    """The model with the last layer's weights at zero, which hide at first what comes before."""
    for parameter in model[-1].parameters():  # type: ignore[index]
        nn.init.zeros_(parameter)
    return model


def between(module: nn.Module) -> nn.Module:
    """A network of vectors with this module in its middle, under the name '1'."""
    return nn.Sequential(nn.Linear(5, 5), module, nn.Tanh(), nn.Linear(5, CLASSES))


def centred(outputs: Tensor, targets: Tensor) -> Tensor:
    return losses(outputs - outputs.mean(dim=0), targets)


def divided(outputs: Tensor, targets: Tensor) -> Tensor:
    return losses(outputs, targets) / len(outputs)


def contrasted(outputs: Tensor, targets: Tensor) -> Tensor:
    """Each record told from the others of its batch."""
    return F.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs)), reduction="none")


def sorted_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return losses(outputs, targets).sort().values


Loss = Callable[[Tensor, Tensor], Tensor]
# name: model, loss, pattern of the message
LEAKS: dict[str, tuple[Make, Loss, str]] = {
    "centring": (lambda: between(Centre()), losses, r"'1' \(Centre\) mixes the records of a batch in training mode"),
    "centring in training alone": (
        lambda: between(CentreInTraining()),
        losses,
        r"'1' \(CentreInTraining\) mixes .* training mode",
    ),
    "own batch norm": (lambda: between(OwnBatchNorm(5)), losses, r"'1' \(OwnBatchNorm\) mixes"),
    "batch norm": (lambda: between(nn.BatchNorm1d(5)), losses, r"'1' \(BatchNorm1d\) mixes"),
    "softmax over the batch": (lambda: between(nn.Softmax(dim=0)), losses, r"'1' \(Softmax\) mixes"),
    "cumulative sum": (lambda: between(Through(lambda own, x: x.cumsum(0))), losses, r"'1' \(Through\) mixes"),
    "records in another order": (
        lambda: between(Through(lambda own, x: x.roll(1, 0))),
        losses,
        r"'1' \(Through\) mixes",
    ),
    "largest of the batch": (
        lambda: between(Through(lambda own, x: x / x.abs().max())),
        losses,
        r"'1' \(Through\) mixes",
    ),
    "a branch on the batch": (
        lambda: between(Through(lambda own, x: x if x.sum() > -100 else -x)),
        losses,
        r"'1' \(Through\) mixes",
    ),
    "the size of the batch": (lambda: between(OfSize()), losses, r"'1' \(OfSize\) mixes .*leaving one record out"),
    "attention between records": (
        lambda: between(Through(lambda own, x: own.attention(x, x, x)[0], attention=nn.MultiheadAttention(5, 1))),
        losses,
        r"'1.attention' \(MultiheadAttention\) mixes",
    ),
    "outputs in containers": (
        lambda: Through(first_of_pair, pair=Pair(), layer=nn.Linear(5, 5), out=nn.Linear(5, CLASSES)),
        losses,
        r"'pair' \(Pair\) mixes",
    ),
    "mixing outside a module": (
        lambda: Through(lambda own, x: own.out(x) + x.sum(), out=nn.Linear(5, CLASSES)),
        losses,
        r"'the model' \(Through\) mixes",
    ),
    "mixing before a last layer of zeros": (lambda: zero_last(between(Centre())), losses, r"'1' \(Centre\) mixes"),
    "gradients mixed on the way back": (
        lambda: between(Through(lambda own, x: MixedGradient.apply(x))),
        losses,
        r"gradient of '0.weight' .* depends on the other records",
    ),
    "running mean": (
        lambda: between(Buffered(lambda old, x: 0.9 * old + 0.1 * x.mean(0), torch.zeros(5))),
        losses,
        "the buffer '1.seen'",
    ),
    "last batch in a buffer": (
        lambda: between(Buffered(lambda old, x: x, torch.zeros(1, 5))),
        losses,
        "the buffer '1.seen'",
    ),
    "last record in a buffer, in place": (lambda: between(CopiedInPlace()), losses, "the buffer '1.last'"),
    "counter": (
        lambda: between(Buffered(lambda old, x: old + 1, torch.zeros((), dtype=torch.int64))),
        losses,
        "the buffer '1.seen'",
    ),
    "buffer that is not saved": (
        lambda: between(Buffered(lambda old, x: x.mean(0), torch.zeros(5), persistent=False)),
        losses,
        "the buffer '1.seen'",
    ),
    "buffer filled by the first batch": (
        lambda: between(Buffered(lambda old, x: x.mean(0) if not old.any() else old, torch.zeros(5))),
        losses,
        "the buffer '1.seen'",
    ),
    "buffer written on the way back": (lambda: between(BufferInBackward()), losses, "the buffer '1.slope'"),
    "instance norm with running statistics": (
        lambda: between(
            nn.Sequential(nn.Unflatten(1, (1, 5)), nn.InstanceNorm1d(1, track_running_stats=True), nn.Flatten())
        ),
        losses,
        r"'1.1' \(InstanceNorm1d\)",
    ),
    "last batch in an attribute": (lambda: between(LastBatch()), losses, "the attribute '1.before'"),
    "all batches in a list": (lambda: between(Listed()), losses, r"the attribute '1.history'"),
    "first batch in an attribute": (lambda: between(First()), losses, "the attribute '1.size'"),
    "last batch in a closure": (lambda: between(Hidden()), losses, r"'1' \(Hidden\) keeps state between calls"),
    "every second call": (lambda: between(Scheduled()), losses, r"'1' \(Scheduled\) keeps state between calls"),
    "extra state": (lambda: between(ExtraState()), losses, "the extra state of '1'"),
    "a frozen parameter that is written": (lambda: between(OwnParameter()), losses, "the parameter '1.teacher'"),
    "weights in a list": (lambda: between(Unregistered()), losses, r"the attribute 'weights' of '1' \(Unregistered\)"),
    "loss of centred outputs": (lambda: between(nn.Tanh()), centred, "the loss mixes the records of a batch"),
    "loss divided by the size of the batch": (
        lambda: between(nn.Tanh()),
        divided,
        "the loss mixes .*leaving one record out",
    ),
    "contrastive loss": (lambda: between(nn.Tanh()), contrasted, "the loss mixes"),
    "sorted losses": (lambda: between(nn.Tanh()), sorted_losses, "the loss mixes"),
}


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn_like(x) if self.training else x


class RecordsDropped(nn.Module):
    """Switches a whole branch off for half of the records."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand(len(x), *[1] * (x.dim() - 1)) < 0.5)


class BatchDropped(nn.Module):
    """Switches a branch off for half of the batches, by Python's random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return x * float(random.random() < 0.5)


class Cached(nn.Module):
    """Positions computed at the first call and kept: they depend on no record."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.positions is None:
            self.positions = torch.linspace(0, 1, x.shape[1])
        return x + self.positions


# random numbers that no record decides, and what is kept but depends on none
ALLOWED: dict[str, tuple[Make, Callable[[], Tensor]]] = {
    "dropout": (lambda: between(nn.Dropout()), vectors),
    "dropout by function": (lambda: between(Dropped()), vectors),
    "dropout of channels": (lambda: head(conv(), nn.Dropout2d()), images),
    "alpha dropout": (lambda: between(nn.AlphaDropout()), vectors),
    "noise": (lambda: between(Noise()), vectors),
    "records dropped": (lambda: between(Residual(RecordsDropped())), vectors),
    "branches dropped": (lambda: between(Residual(BatchDropped())), vectors),
    "dropout between recurrent layers": (
        lambda: head(Take(nn.LSTM(4, 3, 2, batch_first=True, dropout=0.5))),
        sequences,
    ),
    "attention with dropout": (lambda: head(Attention(dropout=0.5)), sequences),
    "transformer layer with dropout": (lambda: head(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)), sequences),
    "dropout and a weight used again": (
        lambda: head(nn.Dropout(), Held(lambda down, h: F.linear(h, down.weight.T))),
        vectors,
    ),
    "dropout in checkpointing": (
        lambda: head(Checkpointed(False, nn.Linear(5, 4), nn.Dropout(), nn.Linear(4, 4))),
        vectors,
    ),
    "cached positions": (lambda: between(Cached()), vectors),
}
