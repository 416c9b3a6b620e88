"""Small classifiers that measure generated samples: each is fitted afresh in seconds, and the same for the same seed and records.

They draw from generators of their own, so that measuring moves no random number of the training, and they run on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

AT_ONCE = 1000


def logistic(x: Tensor, y: Tensor, classes: int, *, most: int = 100) -> nn.Module:
    """Multinomial logistic regression: mean cross-entropy plus |W|^2 / (2 n), by full-batch L-BFGS from 0.

    The objective and the stopping rule (largest gradient below 1e-4) are those of scikit-learn's default; convex, so it takes no seed.

    Args:
        x: [n, ...] float32 records, y: [n] int64 labels. most: iterations at most.
    """
    import torch
    from torch.nn.functional import cross_entropy

    rows, n = x.flatten(1), len(x)
    line = torch.nn.Linear(rows.shape[1], classes)
    torch.nn.init.zeros_(line.weight)
    torch.nn.init.zeros_(line.bias)
    optimizer = torch.optim.LBFGS(
        line.parameters(),
        max_iter=most,
        tolerance_grad=1e-4,
        tolerance_change=1e-9,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(line(rows), y) + line.weight.square().sum() / (2 * n)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return torch.nn.Sequential(torch.nn.Flatten(), line)


def mlp(x: Tensor, y: Tensor, classes: int, *, seed: int = 0, epochs: int = 20) -> nn.Module:
    """One hidden layer of 100 ReLU units, Adam 1e-3, batches of 200, |W|^2 weighted 1e-4: scikit-learn's default but for fewer epochs."""
    import torch

    def build() -> nn.Module:
        size = x[0].numel()
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(size, 100), torch.nn.ReLU(), torch.nn.Linear(100, classes)
        )  # fmt: skip

    return _fitted(build, x, y, seed=seed, epochs=epochs, batch=200, decay=1e-4 / 200)


def small_cnn(x: Tensor, y: Tensor, classes: int, *, seed: int = 0, epochs: int = 10) -> nn.Module:
    """Two 5x5 convolutions of stride 2 (16 and 32 channels, ReLU), 64 ReLU units, and a linear layer of classes.

    The 64 units, all but the last layer, are the features that ``_quality`` compares.

    Args:
        x: [n, C, H, W] float32 images.
    """
    import torch

    def build() -> nn.Module:
        channels, height, width = x.shape[1:]
        cells = -(-height // 4) * -(-width // 4)
        return torch.nn.Sequential(
            *(torch.nn.Conv2d(channels, 16, 5, stride=2, padding=2), torch.nn.ReLU()),
            *(torch.nn.Conv2d(16, 32, 5, stride=2, padding=2), torch.nn.ReLU(), torch.nn.Flatten()),
            *(torch.nn.Linear(32 * cells, 64), torch.nn.ReLU()),
            torch.nn.Linear(64, classes),
        )

    return _fitted(build, x, y, seed=seed, epochs=epochs, batch=100, decay=0.0)


def outputs(network: nn.Module, x: Tensor) -> Tensor:
    """What a network says of records, some at a time."""
    import torch

    with torch.no_grad():
        return torch.cat([network(part) for part in x.split(AT_ONCE)])  # type: ignore[no-untyped-call]


def accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of records whose class is the one of the largest output."""
    return float((outputs(network, x).argmax(1) == y).double().mean())


def _fitted(
    build: Callable[[], nn.Module], x: Tensor, y: Tensor, *, seed: int, epochs: int, batch: int, decay: float
) -> nn.Module:
    """A network after so many epochs of Adam; its weights and its batches come from the seed."""
    import torch
    from torch.nn.functional import cross_entropy

    own = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = build()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=decay)
    with torch.enable_grad():
        for _ in range(epochs):
            for places in torch.randperm(len(x), generator=own).split(batch):  # type: ignore[no-untyped-call]
                optimizer.zero_grad()
                cross_entropy(network(x[places]), y[places]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return network.eval()


def features(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """[n, 64] what enters the last layer of a ``small_cnn``, and [n, classes] its outputs."""
    import torch

    assert isinstance(network, torch.nn.Sequential)
    inner: Sequence[nn.Module] = list(network)[:-1]
    found = outputs(torch.nn.Sequential(*inner), x)
    return found, outputs(network[-1], found)
