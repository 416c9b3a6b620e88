"""Decorrelation of features by the second moments of those of synthetic images. Loads torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Decorrelation:
    """A fixed linear map of rows of features; the function ``of_rows`` builds it from public rows."""

    mean: Tensor
    directions: Tensor
    shrinkage: Tensor
    scale: float

    def __call__(self, rows: Tensor) -> Tensor:
        """Return (C + r)^(-1/2) (row - mean) for each row [N, D], with C and r of ``of_rows``."""
        centred = rows - self.mean
        return (centred - ((centred @ self.directions) * self.shrinkage) @ self.directions.T) / self.scale

    def to(self, device: torch.device) -> Decorrelation:
        """Return the same map on a device."""
        return Decorrelation(self.mean.to(device), self.directions.to(device), self.shrinkage.to(device), self.scale)


def of_rows(rows: Tensor) -> Decorrelation:
    """Return the map that makes features like the given rows nearly uncorrelated.

    With the covariance C of the rows and the mean r of its eigenvalues, the map is (C + r)^(-1/2) after the mean is
    taken away. Directions in which the features vary much are thus shrunk to a variance of about 1, and those in which
    they vary little keep a small one. C has at most as many directions as there are rows, so that D may be larger.

    Args:
        rows: [M, D] features of images that hold no private record, M at least 2.
    """
    mean = rows.mean(dim=0)
    centred = (rows - mean) / len(rows) ** 0.5
    values, vectors = torch.linalg.eigh((centred @ centred.T).double())
    kept = values > 1e-6 * values[-1]
    values, vectors = values[kept].float(), vectors[:, kept].float()
    directions = centred.T @ vectors / values.sqrt()
    ridge = values.sum() / rows.shape[1]
    shrinkage = 1 - (ridge / (values + ridge)).sqrt()
    return Decorrelation(mean, directions, shrinkage, float(ridge.sqrt()))
