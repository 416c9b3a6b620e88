"""Small classifiers that measure generated samples, each fitted in seconds and the same for the same seed and records.

They draw from generators of their own, so that measurements use no random number of the training, and run on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

CHUNK = 1000
CNN_BATCH = 100
CNN_STEPS = 500  # at least so many updates of a small_cnn, so that it also learns from few records


def logistic(x: Tensor, y: Tensor, classes: int, *, max_iterations: int = 100) -> nn.Module:
    """Fit multinomial logistic regression: mean cross-entropy plus |W|^2 / (2 n), by full-batch L-BFGS from 0.

    Objective and stopping rule (largest gradient below 1e-4) are scikit-learn's defaults; convex, so without a seed.
    """
    rows, n = x.flatten(1), len(x)
    linear = nn.Linear(rows.shape[1], classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    optimizer = torch.optim.LBFGS(
        linear.parameters(),
        max_iter=max_iterations,
        tolerance_grad=1e-4,
        tolerance_change=1e-9,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(linear(rows), y) + linear.weight.square().sum() / (2 * n)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return nn.Sequential(nn.Flatten(), linear)


def mlp(x: Tensor, y: Tensor, classes: int, *, seed: int = 0, epochs: int = 20) -> nn.Module:
    """Fit 100 ReLU units as scikit-learn does, in fewer epochs: Adam 1e-3, batches of 200, |W|^2 weighted 1e-4."""

    def build() -> nn.Module:
        size = x[0].numel()
        return nn.Sequential(
            nn.Flatten(), nn.Linear(size, 100), nn.ReLU(), nn.Linear(100, classes)
        )  # fmt: skip

    return _fitted(build, x, y, seed=seed, epochs=epochs, batch=200, decay=1e-4 / 200)


def small_cnn(x: Tensor, y: Tensor, classes: int, *, seed: int = 0, epochs: int = 10) -> nn.Module:
    """Fit two 5x5 convolutions of stride 2 (16 and 32 channels, ReLU), 64 ReLU units, and a linear layer.

    The outputs of the 64 units are the features that ``_quality`` compares.

    Args:
        x: [n, C, H, W] float32 images. epochs: passes over the images, or more where these make fewer than 500 updates.
    """

    def build() -> nn.Module:
        channels, height, width = x.shape[1:]
        cells = -(-height // 4) * -(-width // 4)
        return nn.Sequential(
            *(nn.Conv2d(channels, 16, 5, stride=2, padding=2), nn.ReLU()),
            *(nn.Conv2d(16, 32, 5, stride=2, padding=2), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(32 * cells, 64), nn.ReLU()),
            nn.Linear(64, classes),
        )

    updates_per_epoch = -(-len(x) // CNN_BATCH)
    epochs = max(epochs, -(-CNN_STEPS // updates_per_epoch))
    return _fitted(build, x, y, seed=seed, epochs=epochs, batch=CNN_BATCH, decay=0.0)


def outputs(network: nn.Module, x: Tensor) -> Tensor:
    """Return the outputs of a network, computed in chunks."""
    with torch.no_grad():
        return torch.cat([network(part) for part in x.split(CHUNK)])  # type: ignore[no-untyped-call]


def accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of records that are classified correctly."""
    return float((outputs(network, x).argmax(1) == y).double().mean())


def _fitted(
    build: Callable[[], nn.Module], x: Tensor, y: Tensor, *, seed: int, epochs: int, batch: int, decay: float
) -> nn.Module:
    """The network after ``epochs`` epochs of Adam; the seed determines its initial weights and its batches."""
    random = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = build()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=decay)
    with torch.enable_grad():
        for _ in range(epochs):
            for indices in torch.randperm(len(x), generator=random).split(batch):  # type: ignore[no-untyped-call]
                optimizer.zero_grad()
                cross_entropy(network(x[indices]), y[indices]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return network.eval()


def features(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs [n, 64] of the last layer of a ``small_cnn``, and its outputs [n, classes]."""
    assert isinstance(network, nn.Sequential)
    inputs_of_last = outputs(network[:-1], x)
    return inputs_of_last, outputs(network[-1], inputs_of_last)
