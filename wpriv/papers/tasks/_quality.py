"""Quality of generated samples, measured on test records. The figures are outside any privacy guarantee.

No training record is used: the classifier that judges is fitted to one half of the test records, and samples are
compared with the other half. So the figures depend on private training data only through the samples, and reveal
something about the test records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wpriv.errors import Unsupported, UsageError
from wpriv.training.data import Data, scaled
from wpriv.transport.exact import exact, squared

DOWNSTREAM = ("logistic", "mlp")
"""Names of the metrics of ``downstream``."""
W2_POINTS = 1000
COVERED = 0.1  # a class counts as covered with at least this share of an even share of the images


@dataclass(frozen=True, eq=False)
class Judge:
    """A small convolutional classifier fitted to every other test record, and the other test records to compare with.

    Args:
        network: not the Inception network of FID: figures of two data sets, or of other software, cannot be compared.
        reference: [n, C, H, W] test images in [0, 1] that it was not fitted to. accuracy: of the network on them.
    """

    network: nn.Module
    classes: int
    reference: Tensor
    accuracy: float

    def scores(self, x: Tensor) -> dict[str, float]:
        """Measure generated images [n, C, H, W] in [0, 1].

        Returns:
            By the names in ``_generation.SCORES``. confidence: mean probability of the most likely class. entropy: of
            the shares of the predicted classes in nats; log(classes) if all are equally frequent. coverage: share of
            the classes that are predicted for at least a tenth of an even share of the images. frechet-small-cnn:
            squared Frechet distance of the 64 features to those of the reference, as Gaussians; it decreases with n, so
            that only figures for the same n can be compared. w2: W_2 between the first 1000 images and as many of the
            reference (see ``w2``).
        """
        x = to_valid_samples(x, tuple(self.reference.shape[1:]))
        features, logits = last_features(self.network, x)
        shares = torch.bincount(logits.argmax(1), minlength=self.classes).double() / len(x)
        reference_features, _ = last_features(self.network, self.reference)
        return {
            "confidence": float(logits.softmax(1).amax(1).double().mean()),
            "entropy": float(torch.special.entr(shares).sum()),
            "coverage": float((shares >= COVERED / self.classes).double().mean()),
            "frechet-small-cnn": squared(*_moments(features), *_moments(reference_features)),
            "w2": w2(x, self.reference),
        }


def fit_judge(data: Data, *, seed: int = 0) -> Judge:
    """Fit the judge of a data set of images in a few seconds; the same for the same records and seed."""
    if len(data.shape) != 3 or len(data.classes) < 2 or len(data.x_test) < 2 * len(data.classes):
        raise Unsupported(
            f"{data.name}: a judge of images needs test images, at least two of every class; found "
            f"{len(data.x_test)} test records {list(data.shape)} of {len(data.classes)} classes"
        )
    x, y = test_tensors(data)
    network = small_cnn(x[::2], y[::2], len(data.classes), seed=seed)
    # records of a file may be sorted; after shuffling the first n are a fair sample
    order = torch.randperm(len(x) // 2, generator=torch.Generator().manual_seed(seed))
    return Judge(network, len(data.classes), x[1::2][order], accuracy(network, x[1::2], y[1::2]))


def fit_judge_if_possible(data: Data) -> Judge | None:
    """Fit the judge of a data set; return None where it has no images or too few."""
    try:
        return fit_judge(data)
    except Unsupported:
        return None


def downstream(x: Tensor, y: Tensor, data: Data, learner: str = "logistic", *, seed: int = 0) -> float:
    """Return the accuracy on real test records of a classifier that learns from generated, labelled samples alone.

    Args:
        x: [n, *shape] samples in the units of the data ([0, 1] for images). y: [n] int64 labels.
        learner: one of DOWNSTREAM.
    Source: Rakotomamonjy, Ralaivola (2021), Table 2, after Harder, Adamczewski, Park (2020): 60000 samples, as many of
        every class.
    """
    if learner not in DOWNSTREAM:
        raise UsageError(f"learner must be one of {', '.join(DOWNSTREAM)}; found {learner!r}")
    x, classes = to_valid_samples(x, data.shape), len(data.classes)
    y = y.detach().cpu()
    if y.shape != x.shape[:1] or y.is_floating_point() or not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise UsageError(
            f"each of the {len(x)} samples needs a label from 0 to {classes - 1}; found {y.dtype} {list(y.shape)}"
        )
    network = logistic(x, y, classes) if learner == "logistic" else mlp(x, y, classes, seed=seed)
    return accuracy(network, *test_tensors(data))


def w2(x: Tensor, real: Tensor, max_points: int = W2_POINTS) -> float:
    """Return W_2 (the root) between the first points of two samples, by exact assignment, in units of the data.

    Its floor is not 0: between two real samples of 1000 digits it is 6.1 to 6.3. Blurred images can lie below that
    (digits averaged over 5x5 pixels: 5.9), since means are nearer to fresh points than other points are. Read it
    together with the other figures.
    """
    n = min(max_points, len(x), len(real))
    return math.sqrt(float(exact(x[:n].flatten(1).double(), real[:n].flatten(1).double())))


def test_tensors(data: Data) -> tuple[Tensor, Tensor]:
    """Return the test records as float32 (bytes are divided by 255) and their labels."""
    return torch.tensor(scaled(data.x_test)), torch.tensor(data.y_test)


def to_valid_samples(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return samples of the given shape as float32 numbers on the CPU."""
    x = x.detach().float().cpu()
    if x.shape[1:] != shape or len(x) == 0:
        raise UsageError(f"samples must have the shape [n, {', '.join(map(str, shape))}]; found {list(x.shape)}")
    if not bool(x.isfinite().all()):
        raise UsageError("generated samples must be finite; found inf or nan: the training has diverged")
    return x


def _moments(points: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance in float64; the covariance of one point is 0."""
    rows = points.double()
    mean = rows.mean(0)
    return mean, (rows - mean).T @ (rows - mean) / max(len(rows) - 1, 1)


# Small classifiers that measure generated samples, each fitted in seconds and the same for the same seed and records.
# They draw from generators of their own, so that measurements use no random number of the training, and run on the CPU.

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

    The outputs of the 64 units are the features that the judge compares.

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


def last_features(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs [n, 64] of the last layer of a ``small_cnn``, and its outputs [n, classes]."""
    assert isinstance(network, nn.Sequential)
    inputs_of_last = outputs(network[:-1], x)
    return inputs_of_last, outputs(network[-1], inputs_of_last)
