"""Training steps to be timed: small networks, and for each program a function that builds its step.

``STEPS[program](network, x, y)`` returns a function without arguments: one step of SGD on a fixed batch, private for
all but ``plain``. Each imports only its own program. Opacus runs in both of its modes that can train these networks,
and in both memory layouts.
"""

# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call"
from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLIP, NOISE, RATE = 1.0, 1.0, 0.1
EPOCH = 20  # batches of an own loop, more than are timed
Step = Callable[[], None]


def cnn() -> nn.Module:
    """The tanh network for 28x28 pixels of Papernot et al. (2021), 26010 parameters."""
    first = (nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1))
    second = (nn.Conv2d(16, 32, 4, stride=2), nn.Tanh(), nn.MaxPool2d(2, 1))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


class Block(nn.Module):
    """A block of a wide residual network, normalised by groups."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(16, inputs), nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm2, self.conv2 = nn.GroupNorm(16, outputs), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(x))
        x = x if isinstance(self.short, nn.Identity) else self.short(h)
        out: Tensor = x + self.conv2(F.relu(self.norm2(self.conv1(h))))
        return out


def wrn() -> nn.Module:
    """WRN-16-4 for 32x32 colour pixels, 2.7 million parameters."""
    widths, blocks = (16, 64, 128, 256), []
    for k in range(3):
        blocks += [Block(widths[k], widths[k + 1], 1 if k == 0 else 2), Block(widths[k + 1], widths[k + 1], 1)]
    tail = (nn.GroupNorm(16, 256), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), *blocks, *tail)


class Transformer(nn.Module):
    """Two encoder layers of width 64 on sequences of 32 tokens, with the positions as numbers ``arange(32)``."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(100, 64), nn.Embedding(32, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        out: Tensor = self.out(self.layers(h).mean(1))
        return out


class Lstm(nn.Module):
    """The last state of an LSTM of width 64 on sequences of 32 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.lstm, self.out = nn.Embedding(100, 64), nn.LSTM(64, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.lstm(self.tokens(x))[0][:, -1])
        return out


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (cnn, (1, 28, 28)),
    "mlp": (mlp, (1, 28, 28)),
    "wrn": (wrn, (3, 32, 32)),
    "transformer": (Transformer, (32,)),
    "lstm": (Lstm, (32,)),
}


def make(program: str, network: str, batch: int, device: str) -> Step:
    """Build the step of a program on a random batch, the same for all programs; shapes of one number are of tokens."""
    torch.manual_seed(0)
    build, shape = NETWORKS[network]
    layout = torch.contiguous_format if program.endswith("contiguous") else torch.channels_last
    model = build().to(device=device, memory_format=layout)
    if len(shape) == 1:
        x = torch.randint(100, (batch, *shape), device=device)
    else:
        x = torch.randn(batch, *shape, device=device).contiguous(memory_format=layout)
    return STEPS[program](model, x, torch.randint(10, (batch,), device=device))


def plain(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def wpriv(
    model: nn.Module, x: Tensor, y: Tensor, method: str = "auto", exact: bool = False, strategy: str = "identity"
) -> Step:
    from wpriv import strategies
    from wpriv.training.clipping.clip import clipped_sum
    from wpriv.training.noise.noise_stream import CorrelatedNoise, Noise
    from wpriv.training.noise.recursion import recursion
    from wpriv.training.noise.release import add_noise

    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    parameters = list(model.parameters())
    loss = partial(F.cross_entropy, reduction="none")
    noise: Noise | CorrelatedNoise = Noise(device=x.device)
    if strategy != "identity":
        noise = CorrelatedNoise(recursion(strategies.strategy(strategy, 1000, 100)), Noise(device=x.device))

    def step() -> None:
        found = clipped_sum(model, loss, x, y, norm=CLIP, adjacency="add-remove", method=method, exact=exact)
        parts = add_noise(found.total, NOISE, noise, exact=exact)
        torch._foreach_div_(parts, len(x))
        for parameter, grad in zip(parameters, parts, strict=True):
            parameter.grad = grad
        optimizer.step()

    return step


def noise(model: nn.Module, x: Tensor, y: Tensor, exact: bool = False) -> Step:
    """Build only the noise of a step of wpriv, on a sum of zeros."""
    from wpriv.training.clipping.exact_sums import ExactSum
    from wpriv.training.noise.noise_stream import Noise
    from wpriv.training.noise.release import Bounded, add_noise

    parameters = list(model.parameters())
    zeros = Bounded([torch.zeros_like(p) for p in parameters], CLIP, "add-remove")
    total = ExactSum(parameters, CLIP).bounded("add-remove") if exact else zeros
    source = Noise(device=x.device)

    def step() -> None:
        add_noise(total, NOISE, source, exact=exact)

    return step


def own_loop(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """A step of a loop of the caller's own on batches of this size, before the first end of an epoch."""
    import wpriv

    folder = tempfile.TemporaryDirectory()
    private = {"sigma": NOISE, "delta": 1e-5, "clip": CLIP, "sampling": "fixed"}
    options: dict[str, Any] = {**private, "lr": RATE, "batch": len(x), "steps": EPOCH}
    records = x.repeat(EPOCH, *(1 for _ in x.shape[1:])), y.repeat(EPOCH)
    run = wpriv.training_loop(model, records, test=(x[:2], y[:2]), out=f"{folder.name}/out", **options)
    batches = iter(run.__enter__())

    def step() -> None:
        assert folder.name
        next(batches)
        run.step()

    return step


def opacus_hooks(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Opacus with its default settings."""
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    wrapped = GradSampleModule(model)
    sgd = torch.optim.SGD(wrapped.parameters(), lr=RATE)
    optimizer = DPOptimizer(sgd, noise_multiplier=NOISE, max_grad_norm=CLIP, expected_batch_size=len(x))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        optimizer.step()

    return step


def opacus_ghost(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=CLIP)
    sgd = torch.optim.SGD(wrapped.parameters(), lr=RATE)
    optimizer = DPOptimizerFastGradientClipping(
        sgd, noise_multiplier=NOISE, max_grad_norm=CLIP, expected_batch_size=len(x)
    )
    loss = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())

    def step() -> None:
        optimizer.zero_grad()
        loss(wrapped(x), y).backward()
        optimizer.step()

    return step


STEPS: dict[str, Callable[[nn.Module, Tensor, Tensor], Step]] = {
    "plain": plain,
    "wpriv": wpriv,
    "wpriv vmap": partial(wpriv, method="vmap"),
    "own loop": own_loop,
    "noise": noise,
    "noise exact": partial(noise, exact=True),
    "wpriv exact": partial(wpriv, exact=True),
    "wpriv lambda": partial(wpriv, strategy="lambda:0.9"),
    "wpriv banded": partial(wpriv, strategy="banded:4"),
    "wpriv blt": partial(wpriv, strategy="blt:4"),
    "opacus hooks": opacus_hooks,
    "opacus hooks contiguous": opacus_hooks,
    "opacus ghost": opacus_ghost,
    "opacus ghost contiguous": opacus_ghost,
}
