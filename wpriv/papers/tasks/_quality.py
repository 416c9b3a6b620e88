"""Quality of generated samples, measured on test records. The figures are outside any privacy guarantee.

No training record is used: the classifier that judges is fitted to one half of the test records, and samples are
compared with the other half. So the figures depend on private training data only through the samples, and reveal
something about the test records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wpriv.errors import Unsupported, UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wpriv.training.data import Data

SCORES = ("confidence", "entropy", "coverage", "frechet-small-cnn", "w2")
"""Names of the metrics of ``Judge.scores``."""
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
            By the names in SCORES. confidence: mean probability of the most likely class. entropy: of the shares of
            the predicted classes in nats; log(classes) if all are equally frequent. coverage: share of the classes
            that are predicted for at least a tenth of an even share of the images. frechet-small-cnn: squared Frechet
            distance of the 64 features to those of the reference, as Gaussians; it decreases with n, so that only
            figures for the same n can be compared. w2: W_2 between the first 1000 images and as many of the reference
            (see ``w2``).
        """
        import torch

        from wpriv.papers.tasks import _learners
        from wpriv.transport import exact as gaussian

        x = to_valid_samples(x, tuple(self.reference.shape[1:]))
        features, logits = _learners.features(self.network, x)
        shares = torch.bincount(logits.argmax(1), minlength=self.classes).double() / len(x)
        reference_features, _ = _learners.features(self.network, self.reference)
        return {
            "confidence": float(logits.softmax(1).amax(1).double().mean()),
            "entropy": float(torch.special.entr(shares).sum()),
            "coverage": float((shares >= COVERED / self.classes).double().mean()),
            "frechet-small-cnn": gaussian.squared(*_moments(features), *_moments(reference_features)),
            "w2": w2(x, self.reference),
        }


def fit_judge(data: Data, *, seed: int = 0) -> Judge:
    """Fit the judge of a data set of images in a few seconds; the same for the same records and seed."""
    import torch

    from wpriv.papers.tasks import _learners

    if len(data.shape) != 3 or len(data.classes) < 2 or len(data.x_test) < 2 * len(data.classes):
        raise Unsupported(
            f"{data.name}: a judge of images needs test images, at least two of every class; found "
            f"{len(data.x_test)} test records {list(data.shape)} of {len(data.classes)} classes"
        )
    x, y = test_tensors(data)
    network = _learners.small_cnn(x[::2], y[::2], len(data.classes), seed=seed)
    accuracy = _learners.accuracy(network, x[1::2], y[1::2])
    # records of a file may be sorted; after shuffling the first n are a fair sample
    order = torch.randperm(len(x) // 2, generator=torch.Generator().manual_seed(seed))
    return Judge(network, len(data.classes), x[1::2][order], accuracy)


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
    from wpriv.papers.tasks import _learners

    if learner not in DOWNSTREAM:
        raise UsageError(f"learner must be one of {', '.join(DOWNSTREAM)}; found {learner!r}")
    x, classes = to_valid_samples(x, data.shape), len(data.classes)
    y = y.detach().cpu()
    if y.shape != x.shape[:1] or y.is_floating_point() or not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise UsageError(
            f"each of the {len(x)} samples needs a label from 0 to {classes - 1}; found {y.dtype} {list(y.shape)}"
        )
    network = _learners.logistic(x, y, classes) if learner == "logistic" else _learners.mlp(x, y, classes, seed=seed)
    return _learners.accuracy(network, *test_tensors(data))


def w2(x: Tensor, real: Tensor, max_points: int = W2_POINTS) -> float:
    """Return W_2 (the root) between the first points of two samples, by exact assignment, in units of the data.

    Its floor is not 0: between two real samples of 1000 digits it is 6.1 to 6.3. Blurred images can lie below that
    (digits averaged over 5x5 pixels: 5.9), since means are nearer to fresh points than other points are. Read it
    together with the other figures.
    """
    from wpriv.transport.exact import exact

    n = min(max_points, len(x), len(real))
    return math.sqrt(float(exact(x[:n].flatten(1).double(), real[:n].flatten(1).double())))


def test_tensors(data: Data) -> tuple[Tensor, Tensor]:
    """Return the test records as float32 (bytes are divided by 255) and their labels."""
    import torch

    from wpriv.training.data import scaled

    return torch.tensor(scaled(data.x_test)), torch.tensor(data.y_test)


def to_valid_samples(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return samples of the given shape as float32 numbers on the CPU."""
    x = x.detach().float().cpu()
    if x.shape[1:] != shape or len(x) == 0:
        raise UsageError(f"samples must have the shape [n, {', '.join(map(str, shape))}]; found {list(x.shape)}")
    if not bool(x.isfinite().all()):
        raise UsageError("generated samples must be finite; found inf or nan: the training has diverged")
    return x


def _moments(points: Tensor) -> tuple[Any, Any]:
    """Mean and covariance in float64; the covariance of one point is 0."""
    rows = points.double()
    mean = rows.mean(0)
    return mean, (rows - mean).T @ (rows - mean) / max(len(rows) - 1, 1)
