"""Wavelet denoising: exact where nothing is cut, the best of what was tried, and noise as the reports have it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.fft import idctn

from wpriv.errors import UsageError
from wpriv.numerics import ball_projection
from wpriv.papers.tasks import _wavelets
from wpriv.papers.tasks._wavelets import Wavelets
from wpriv.training.data import RecordNoise


def clear(n: int, side: int = 28) -> np.ndarray:
    """Bright rectangles on black: few wavelets describe them."""
    rng = np.random.default_rng(0)
    x = np.zeros((n, 1, side, side), np.float32)
    for image in x:
        top, left = rng.integers(2, side // 2, 2)
        image[0, top : top + 8, left : left + 8] = 1
    return x


def noise(scale: float, p: int = 2, radius: float = 100.0, domain: str = "as read") -> RecordNoise:
    return RecordNoise(p, scale, domain, {"clip": {"radius": radius, "center": 0.0}})


@pytest.mark.parametrize("basis", _wavelets.BASES)
@pytest.mark.parametrize("side", [28, 29, 32])
def test_with_nothing_cut_images_come_back(basis, side):
    x = np.random.default_rng(1).random((3, 2, side, side))
    assert np.allclose(Wavelets(basis, 2, "soft", 0.0, 0, 0)(x), x, atol=1e-6)


def test_an_orthogonal_transform_with_everything_cut_leaves_the_means_of_blocks():
    x = np.random.default_rng(2).random((2, 1, 28, 28))
    found = Wavelets("haar", 2, "hard", 1e9, 0, 0)(x)
    blocks = x.reshape(2, 1, 7, 4, 7, 4).mean((3, 5))  # what haar keeps: averages over 4x4
    assert np.allclose(found, blocks.repeat(4, axis=2).repeat(4, axis=3), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "scale"), [(2, 0.3), (1, 0.2)])
@pytest.mark.parametrize("domain", ["as read", "dct"])
def test_noise_of_the_law_of_the_reports_is_mostly_taken_away(p, scale, domain):
    rng = np.random.default_rng(3)
    images = clear(200)
    way = _wavelets.choose_wavelets(images, noise(scale, p, domain=domain))
    # E of the l2 norm of the noise is sd sqrt(784) but for 1/784; the cosine transform keeps it
    assert way.before == pytest.approx(scale * (math.sqrt(2) if p == 1 else 1) * 28, rel=0.03)
    assert way.after < 0.6 * way.before
    fresh = rng.normal(size=images.shape) * scale if p == 2 else rng.laplace(size=images.shape) * scale
    if domain == "dct":
        fresh = idctn(fresh, axes=(2, 3), norm="ortho")
    again = np.linalg.norm((way(images + fresh) - images).reshape(200, -1), axis=1).mean()
    assert again == pytest.approx(way.after, rel=0.1)


@pytest.mark.slow
def test_the_way_that_is_chosen_is_the_best_of_all_that_are_tried():
    images, law = clear(20), noise(0.3)
    way = _wavelets.choose_wavelets(images, law)
    noisy = _wavelets._add_noise(images.astype(np.float64), law)
    every = itertools.product(list(_wavelets._transforms(28)), _wavelets.THRESHOLDS)
    tried = [Wavelets(*which, t * 0.3, 0, 0)(noisy) - images for which, t in every]
    assert way.after == pytest.approx(min(np.linalg.norm(x.reshape(20, -1), axis=1).mean() for x in tried), rel=1e-5)


def test_images_are_clipped_as_the_reports_were():
    images = clear(10).astype(np.float64)
    found = _wavelets._add_noise(images, noise(1e-9, radius=2.0))
    assert np.allclose(found.reshape(10, -1), ball_projection.nearest(images.reshape(10, -1), 2.0, 2), atol=1e-6)


def test_wavelets_need_clear_images():
    with pytest.raises(UsageError, match="wavelet"):
        _wavelets.choose_wavelets(np.zeros((0, 1, 28, 28), np.float32), noise(1.0))
