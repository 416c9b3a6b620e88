"""How good generated samples are, measured on held-out real records. What is measured here is outside any privacy guarantee.

Nothing here looks at training records: the classifier that judges is fitted to one half of the test records, and compared with the other.
So the figures say nothing of private training data, and reveal something of the test records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wpriv.errors import Unsupported, UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wpriv.data import Data

SCORES = ("confidence", "entropy", "coverage", "frechet-small-cnn", "w2")
"""What ``Judge.scores`` measures, under the names of metrics."""
DOWNSTREAM = ("logistic", "mlp")
"""What ``downstream`` measures, under the names of metrics."""
W2_POINTS = 1000
COVERED = 0.1


@dataclass(frozen=True, eq=False)
class Judge:
    """A small convolutional classifier fitted to every other held-out record, and the records that it has not seen, to compare with.

    network: not the Inception network of FID: figures of two data sets, or of other software, cannot be compared.
    reference: [n, C, H, W] held-out images in [0, 1] that it was not fitted to. accuracy: its share of right answers on them.
    """

    network: nn.Module
    classes: int
    reference: Tensor
    accuracy: float

    def scores(self, x: Tensor) -> dict[str, float]:
        """Figures of generated images [n, C, H, W] in [0, 1], by the names in SCORES.

        confidence: mean probability of the most likely class, high where images look like some digit.
        entropy: in nats, of the shares of the classes; log(classes) where all are as frequent.
        coverage: share of the classes which at least a tenth as many images as an even share are taken for.
        frechet-small-cnn: squared Frechet distance of the 64 features to those of the reference, as Gaussians. It shrinks as n grows:
            compare figures of one n.
        w2: W_2 between the first 1000 images and as many of the reference, in pixels (see ``w2``).
        """
        import torch

        from wpriv.tasks import _learners
        from wpriv.transport import gaussian

        x = checked(x, tuple(self.reference.shape[1:]))
        inner, logits = _learners.features(self.network, x)
        shares = torch.bincount(logits.argmax(1), minlength=self.classes).double() / len(x)
        theirs, _ = _learners.features(self.network, self.reference)
        return {
            "confidence": float(logits.softmax(1).amax(1).double().mean()),
            "entropy": float(torch.special.entr(shares).sum()),
            "coverage": float((shares >= COVERED / self.classes).double().mean()),
            "frechet-small-cnn": gaussian.squared(*_moments(inner), *_moments(theirs)),
            "w2": w2(x, self.reference),
        }


def fit_judge(data: Data, *, seed: int = 0) -> Judge:
    """The judge of a data set of images; a few seconds, and the same for the same records and seed.

    Raises:
        Unsupported: no images, fewer than two classes, or too few held-out records.
    """
    import torch

    from wpriv.tasks import _learners

    if len(data.shape) != 3 or len(data.classes) < 2 or len(data.x_test) < 2 * len(data.classes):
        found = f"{len(data.x_test)} records {list(data.shape)} of {len(data.classes)} classes"
        raise Unsupported(
            f"{data.name}: images are judged by a classifier of held-out images, two of every class or more; found {found}"
        )
    x, y = held_out(data)
    network = _learners.small_cnn(x[::2], y[::2], len(data.classes), seed=seed)
    right = _learners.accuracy(network, x[1::2], y[1::2])
    # in the order of a file, records may be sorted: any first n should be a fair sample
    order = torch.randperm(len(x) // 2, generator=torch.Generator().manual_seed(seed))
    return Judge(network, len(data.classes), x[1::2][order], right)


def fit_judge_if_possible(data: Data) -> Judge | None:
    """The judge of a data set; None where it has too few images for one, or none."""
    try:
        return fit_judge(data)
    except Unsupported:
        return None


def downstream(x: Tensor, y: Tensor, data: Data, learner: str = "logistic", *, seed: int = 0) -> float:
    """The share of real test records that a classifier gets right which has learnt from generated, labelled samples alone.

    Args:
        x: [n, *shape] samples in the units of the data ([0, 1] for images), y: [n] int64 labels. learner: see DOWNSTREAM.
    Raises:
        UsageError: no such learner, or samples that do not fit the data.
    Source:
        Rakotomamonjy, Ralaivola (2021), Table 2, after Harder, Adamczewski, Park (2020): 60000 samples, as many of every class.
    """
    from wpriv.tasks import _learners

    if learner not in DOWNSTREAM:
        raise UsageError(f"learner must be one of {', '.join(DOWNSTREAM)}; found {learner!r}")
    x, classes = checked(x, data.shape), len(data.classes)
    y = y.detach().cpu()
    if y.shape != x.shape[:1] or y.is_floating_point() or not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise UsageError(
            f"wanted a label from 0 to {classes - 1} for each of {len(x)} samples; found {y.dtype} {list(y.shape)}"
        )
    network = _learners.logistic(x, y, classes) if learner == "logistic" else _learners.mlp(x, y, classes, seed=seed)
    return _learners.accuracy(network, *held_out(data))


def w2(x: Tensor, real: Tensor, most: int = W2_POINTS) -> float:
    """W_2 (the root) between the first so many points of two samples, by exact assignment, in units of the data.

    Its floor is not 0: between two real samples of 1000 digits it is 6.1 to 6.3. And blurred images can lie below that (digits averaged
    over 5x5 pixels: 5.9), as means are nearer to fresh points than other points are. Read it with the other figures.
    """
    from wpriv.transport.exact import exact

    n = min(most, len(x), len(real))
    return math.sqrt(float(exact(x[:n].flatten(1).double(), real[:n].flatten(1).double())))


def held_out(data: Data) -> tuple[Tensor, Tensor]:
    """The test records as float32 (bytes become [0, 1]) and their labels."""
    import torch

    from wpriv.data import scaled

    return torch.tensor(scaled(data.x_test)), torch.tensor(data.y_test)


def checked(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Samples of that shape as finite float32 numbers on the CPU.

    Raises:
        UsageError: another shape, none of them, or a number that is not finite.
    """
    x = x.detach().float().cpu()
    if x.shape[1:] != shape or len(x) == 0:
        raise UsageError(f"wanted samples [n, {', '.join(map(str, shape))}]; found {list(x.shape)}")
    if not bool(x.isfinite().all()):
        raise UsageError("generated samples must be finite; found inf or nan among them: the training has diverged")
    return x


def _moments(points: Tensor) -> tuple[Any, Any]:
    """Mean and covariance in float64; the covariance of one point is 0."""
    rows = points.double()
    mean = rows.mean(0)
    return mean, (rows - mean).T @ (rows - mean) / max(len(rows) - 1, 1)
