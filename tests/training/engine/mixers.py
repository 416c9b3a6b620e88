"""Networks and losses that mix records under conditions which ordinary random records do not meet.

Each one is (network, loss or None for cross-entropy, real records). It must be refused, or its clipped sum must be that
of the records taken one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.training.engine.networks import Through, losses

CLASSES, WORDS, LENGTH, WIDTH, BATCH = 2, 50, 12, 6, 64


def sentences() -> Tensor:
    """Short sentences with padding 0 behind them, and a long one."""
    words = torch.randint(1, WORDS, (BATCH, LENGTH))
    words[1:, 3:] = 0
    return words


def vectors() -> Tensor:
    return torch.randn(BATCH, WIDTH)


def with_gaps() -> Tensor:
    """Quantities of which some are missing, written as -1."""
    x = torch.rand(BATCH, WIDTH)
    x[torch.rand(BATCH, WIDTH) < 0.3] = -1
    return x


def repeats() -> Tensor:
    x = torch.randn(BATCH, WIDTH)
    x[BATCH // 2 :] = x[: BATCH // 2]
    return x


def longest(x: Tensor) -> int:
    return max(int((x != 0).sum(1).max()), 1)


def text(run: Callable[[Any, Tensor], Tensor], **modules: nn.Module) -> nn.Module:
    return Through(run, words=nn.Embedding(WORDS, 8), head=nn.Linear(8, CLASSES), **modules)


def plain(run: Callable[[Any, Tensor], Tensor], **modules: nn.Module) -> nn.Module:
    return Through(run, first=nn.Linear(WIDTH, 8), head=nn.Linear(8, CLASSES), **modules)


def bent(own: Any, x: Tensor) -> Tensor:
    out: Tensor = own.head(torch.tanh(own.first(x)))
    return out


def imputed(x: Tensor, missing: Tensor) -> Tensor:
    means = (x * ~missing).sum(0) / (~missing).sum(0).clamp(min=1)
    return torch.where(missing, means, x)


def sometimes(draw: Callable[[], float], x: Tensor, own: Any) -> Tensor:
    return x + x.flip(0) if own.training and draw() < 0.1 else x


def mixed_pairs(own: Any, x: Tensor) -> Tensor:
    """Mixup with a random other record."""
    if own.training and float(torch.rand(())) < 0.15:
        share = float(np.random.beta(0.4, 0.4))
        x = share * x + (1 - share) * x[torch.randperm(len(x))]
    return bent(own, x)


class Counting(nn.Module):
    """Subtracts the mean of the batch from a certain call on."""

    def __init__(self, calls: int):
        super().__init__()
        self.first, self.head, self.calls, self.count = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES), calls, 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return bent(self, x - x.mean(0) if self.count > self.calls else x)


class Experts(nn.Module):
    """Two experts, each of which treats no more than its share of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(WIDTH, 2), nn.Linear(8, CLASSES)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, 8) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        place, capacity = self.gate(x).argmax(1), -(-len(x) // 2)
        out = x.new_zeros(len(x), 8)
        for number, expert in enumerate(self.experts):
            rows = (place == number).nonzero().flatten()[:capacity]
            out = out.index_put((rows,), torch.tanh(expert(x[rows])))
        logits: Tensor = self.head(out)
        return logits


class Quantile(nn.Module):
    """Scales by a running quantile, kept as a number."""

    def __init__(self, kind: type):
        super().__init__()
        self.first, self.head, self.kind, self.size = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES), kind, kind(1.0)

    def forward(self, x: Tensor) -> Tensor:
        self.size = self.kind(0.9 * float(self.size) + 0.1 * float(x.detach().abs().quantile(0.5)))
        return bent(self, x / float(self.size))


def contrast(outputs: Tensor, targets: Tensor) -> Tensor:
    near = F.normalize(outputs, dim=1)
    return F.cross_entropy(near @ near.T / 0.2, torch.arange(len(near)), reduction="none")


def balanced(outputs: Tensor, targets: Tensor) -> Tensor:
    counts = torch.bincount(targets, minlength=CLASSES).clamp(min=1)
    return losses(outputs, targets) / counts[targets]


def hardest(outputs: Tensor, targets: Tensor) -> Tensor:
    each = losses(outputs, targets)
    return each * (each >= each.detach().median())


def packed(own: Any, x: Tensor) -> Tensor:
    """The mean over the positions up to the longest record, of a recurrent network."""
    out: Tensor = own.head(own.cells(own.words(x[:, : longest(x)]))[0].mean(1))
    return out


def unique_rows(own: Any, x: Tensor) -> Tensor:
    """Equal records share one place: only the first of them is trained on."""
    _, places = torch.unique(x, dim=0, return_inverse=True)
    first = torch.stack([places == place for place in places]).float().argmax(1)
    kept = (first == torch.arange(len(x))).to(x.dtype)
    return bent(own, x) * kept.unsqueeze(1)


def sorted_gap(own: Any, x: Tensor) -> Tensor:
    """Adds to each record its rank in the batch."""
    ranks = x[:, 0].argsort().argsort().to(x.dtype) / len(x)
    return bent(own, x + ranks.unsqueeze(1))


def backwards(own: Any, x: Tensor) -> Tensor:
    """Mixes gradients and not outputs."""
    h = own.first(x)
    mean = h.mean(0, keepdim=True)
    out: Tensor = own.head(torch.tanh(h + mean - mean.detach()))
    return out


def masked(own: Any, x: Tensor) -> Tensor:
    """Keeps the features that are positive in most records."""
    return bent(own, x * (x > 0).to(x.dtype).mean(0).gt(0.5))


MIXING: dict[str, tuple[Callable[[], nn.Module], Any, Callable[[], Tensor]]] = {
    "trimmed to the longest": (
        lambda: text(lambda own, x: own.head(own.words(x[:, : longest(x)]).mean(1))), None, sentences,
    ),
    "last state at the longest": (
        lambda: text(
            lambda own, x: own.head(own.cells(own.words(x[:, : longest(x)]))[0][:, -1]),
            cells=nn.LSTM(8, 8, batch_first=True),
        ), None, sentences,
    ),
    "mean of states up to the longest": (lambda: text(packed, cells=nn.GRU(8, 8, batch_first=True)), None, sentences),
    "divided by the longest": (
        lambda: text(lambda own, x: own.head((own.words(x) * (x != 0).unsqueeze(2)).sum(1) / longest(x))),
        None, sentences,
    ),
    "mask from the batch": (lambda: plain(masked), None, vectors),
    "imputed by means": (lambda: plain(lambda own, x: bent(own, imputed(x, x == -1))), None, with_gaps),
    "zeros imputed by means": (lambda: plain(lambda own, x: bent(own, imputed(x, x == 0))), None,
                               lambda: vectors() * (torch.rand(BATCH, WIDTH) > 0.3)),
    "negatives in the batch": (lambda: plain(bent), contrast, vectors),
    "loss by class counts": (lambda: plain(bent), balanced, vectors),
    "hardest half": (lambda: plain(bent), hardest, vectors),
    "loss divided by the batch": (lambda: plain(bent), lambda o, t: losses(o, t) / len(o), vectors),
    "rarely flipped, by numpy": (
        lambda: plain(lambda own, x: bent(own, sometimes(np.random.rand, x, own))), None, vectors,
    ),
    "rarely flipped, by torch": (
        lambda: plain(lambda own, x: bent(own, sometimes(lambda: float(torch.rand(())), x, own))), None, vectors,
    ),
    "rare mixup": (lambda: plain(mixed_pairs), None, vectors),
    "from the third call": (lambda: Counting(2), None, vectors),
    "from call 100": (lambda: Counting(100), None, vectors),
    "capacity of experts": (Experts, None, vectors),
    "ranks": (lambda: plain(sorted_gap), None, vectors),
    "equal records once": (lambda: plain(unique_rows), None, repeats),
    "running quantile, a number": (lambda: Quantile(float), None, vectors),
    "running quantile, a tensor": (lambda: Quantile(torch.tensor), None, vectors),
    "statistics from 50 records on": (
        lambda: plain(lambda own, x: bent(own, x - x.mean(0) if len(x) >= 50 else x)), None, vectors,
    ),
    "gradients alone": (lambda: plain(backwards), None, vectors),
    "where a value is large": (
        lambda: plain(lambda own, x: bent(own, x / x.abs().max() if bool(x.max() > 50) else x)), None,
        lambda: vectors() * 100,
    ),
    "where a value is 7": (
        lambda: plain(lambda own, x: bent(own, x - x.mean(0) if bool((x == 7).any()) else x)), None,
        lambda: vectors().round().index_fill(0, torch.tensor([3]), 7.0),
    ),
    "gradients alone, from 50 records on": (
        lambda: plain(lambda own, x: backwards(own, x) if len(x) >= 50 else bent(own, x)), None, vectors,
    ),
}  # fmt: skip


def own_length(x: Tensor) -> Tensor:
    return (x != 0).sum(1).clamp(min=1)


def mean_of_words(own: Any, x: Tensor) -> Tensor:
    """The mean over each record's own words."""
    sums = (own.words(x) * (x != 0).unsqueeze(2)).sum(1)
    out: Tensor = own.head(sums / own_length(x).unsqueeze(1))
    return out


def last_of_own(own: Any, x: Tensor) -> Tensor:
    """The state at each record's own last word."""
    states = own.cells(own.words(x))[0]
    out: Tensor = own.head(states[torch.arange(len(x)), own_length(x) - 1])
    return out


def attended(own: Any, x: Tensor) -> Tensor:
    """Attention to each record's own words alone."""
    padding = x == 0
    padding = padding & ~padding.all(1, keepdim=True)
    h = own.words(x)
    out: Tensor = own.head(own.attention(h, h, h, key_padding_mask=padding, need_weights=False)[0].mean(1))
    return out


def own_gaps(own: Any, x: Tensor) -> Tensor:
    """Missing values become the mean of the record's own."""
    missing = x == -1
    means = (x * ~missing).sum(1, keepdim=True) / (~missing).sum(1, keepdim=True).clamp(min=1)
    return bent(own, torch.where(missing, means, x))


def standardised(own: Any, x: Tensor) -> Tensor:
    return bent(own, (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5))


def routed(own: Any, x: Tensor) -> Tensor:
    """Two experts without a limit, each record by its own score."""
    score = own.gate(x).softmax(1)
    both = torch.stack([own.first(x), own.second(x)], dim=2)
    out: Tensor = own.head(torch.tanh((both * score.unsqueeze(1)).sum(2)))
    return out


def sorted_rows(own: Any, x: Tensor) -> Tensor:
    """An inner layer gets the records in the order of their scores."""
    order = own.gate(x)[:, 0].argsort()
    out: Tensor = own.head(torch.tanh(own.first(x[order]))[order.argsort()])
    return out


def best_experts(own: Any, x: Tensor, best: int = 2) -> Tensor:
    """Each word passes through the best two of three experts, which get different numbers of words."""
    words = own.words(x)
    rows = words.reshape(-1, words.shape[2])
    weights, chosen = own.gate(rows).softmax(1).topk(best)
    out = torch.zeros_like(rows)
    for number, expert in enumerate(own.experts):
        row, place = torch.where(chosen == number)
        out = out.index_add(0, row, weights[row, place, None] * torch.tanh(expert(rows[row])))
    result: Tensor = own.head(out.view_as(words).mean(1))
    return result


def experts() -> dict[str, nn.Module]:
    return {"gate": nn.Linear(8, 3), "experts": nn.ModuleList(nn.Linear(8, 8) for _ in range(3))}


class Called(nn.Module):
    """Counts its calls, without a use."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.calls = nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return bent(self, x)


def layers(*before: nn.Module, width: int = WIDTH) -> nn.Module:
    return nn.Sequential(*before, nn.Flatten(), nn.Linear(width, CLASSES))


def tied_words() -> nn.Module:
    model = Through(
        lambda own, x: own.out(torch.tanh(own.words(x)).mean(1))[:, :CLASSES], words=nn.Embedding(WORDS, 8),
        out=nn.Linear(8, WORDS),
    )  # fmt: skip
    model.out.weight = model.words.weight
    return model


def pictures() -> Tensor:
    return torch.randn(BATCH, 2, 8, 8)


def series() -> Tensor:
    return torch.randn(BATCH, 5, 4)


def two_views(own: nn.Module, x: Tensor) -> Tensor:
    first, second = bent(own, torch.cat([x, x.flip(1)])).chunk(2)
    return first + second.tanh()


RIGHT: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "two views, one batch behind the other": (lambda: plain(two_views), vectors),
    "mean of its own words": (lambda: text(mean_of_words), sentences),
    "state at its own last word": (lambda: text(last_of_own, cells=nn.LSTM(8, 8, batch_first=True)), sentences),
    "attention to its own words": (
        lambda: text(attended, attention=nn.MultiheadAttention(8, 2, batch_first=True)), sentences,
    ),
    "embedding with padding": (
        lambda: layers(nn.Embedding(WORDS, 4, padding_idx=0), width=4 * LENGTH), sentences,
    ),
    "bags of words": (lambda: nn.Sequential(nn.EmbeddingBag(WORDS, 8), nn.Linear(8, CLASSES)), sentences),
    "tied words": (tied_words, sentences),
    "gru, two ways": (
        lambda: text(lambda own, x: own.head(own.cells(own.words(x))[0].mean(1)),
                     cells=nn.GRU(8, 4, batch_first=True, bidirectional=True)), sentences,
    ),
    "gaps filled by its own mean": (lambda: plain(own_gaps), with_gaps),
    "zero gaps and a flag": (lambda: plain(lambda own, x: bent(own, torch.where(x == -1, 0.0, x))), with_gaps),
    "standardised by itself": (lambda: plain(standardised), vectors),
    "divided by its largest": (
        lambda: plain(lambda own, x: bent(own, x / x.abs().amax(1, keepdim=True).clamp(min=1e-6))), vectors,
    ),
    "sorted within the record": (lambda: plain(lambda own, x: bent(own, x.sort(1).values)), vectors),
    "experts without a limit": (
        lambda: plain(routed, second=nn.Linear(WIDTH, 8), gate=nn.Linear(WIDTH, 2)), vectors,
    ),
    "rows in the order of their scores": (lambda: plain(sorted_rows, gate=nn.Linear(WIDTH, 2)), vectors),
    "best two of three experts": (lambda: text(best_experts, **experts()), sentences),
    "best expert": (lambda: text(lambda own, x: best_experts(own, x, 1), **experts()), sentences),
    "largest three": (lambda: plain(lambda own, x: own.head(own.first(x).topk(8, dim=1).values)), vectors),
    "a way of its own, by its sign": (
        lambda: plain(lambda own, x: torch.where(x[:, :1] > 0, bent(own, x), bent(own, -x))), vectors,
    ),
    "counted calls": (Called, vectors),
    "residual": (lambda: plain(lambda own, x: own.head(own.first(x) + torch.tanh(own.first(x)))), vectors),
    "group norm": (lambda: layers(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), width=144), pictures),
    "instance norm": (lambda: layers(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True), width=144), pictures),
    "batch norm that is fixed": (
        lambda: layers(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), width=144).eval(), pictures,
    ),
    "layer norm": (lambda: layers(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), width=30), series),
    "rms norm": (lambda: layers(nn.Linear(4, 6), nn.RMSNorm(6), width=30), series),
    "pooling": (lambda: layers(nn.Conv2d(2, 4, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), width=4), pictures),
    "separable convolutions": (
        lambda: layers(nn.Conv2d(2, 4, 3, groups=2), nn.ELU(), nn.Conv2d(4, 4, 1), width=144), pictures,
    ),
    "transposed convolutions": (lambda: layers(nn.ConvTranspose2d(2, 3, 2, stride=2), width=768), pictures),
    "convolution in time": (lambda: layers(nn.Conv1d(5, 6, 3), nn.Softmax(dim=2), width=12), series),
    "transformer": (
        lambda: layers(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), width=20), series,
    ),
    "weight norm": (lambda: layers(nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, 5)), width=5), vectors),
    "bilinear": (lambda: plain(lambda own, x: own.pair(x, x), pair=nn.Bilinear(WIDTH, WIDTH, CLASSES)), vectors),
    "dropout that is off": (lambda: layers(nn.Linear(WIDTH, 30), nn.Dropout(), width=30).eval(), vectors),
    "frozen first layer": (
        lambda: layers(nn.Linear(WIDTH, 9).requires_grad_(False), nn.Tanh(), nn.Linear(9, 5), width=5), vectors,
    ),
}  # fmt: skip
