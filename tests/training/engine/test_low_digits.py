"""The low digits of a release do not reveal which of two sums it was made of: every number may come from either."""

from __future__ import annotations

import math

import pytest
import torch

from wpriv.training.noise.noise_stream import Noise
from wpriv.training.noise.release import Bounded, add_noise

NEAR = 3  # neighbours of the noise that would be needed, on both sides, that are tried


class Given:
    """A source whose noise is what is given, times the scale and in the precision that the release asks for.

    A release of standard deviation 1 asks for multiples of its grid: the scale is a power of two, the product exact.
    """

    def __init__(self, wanted: torch.Tensor):
        self.wanted = wanted

    def noisy_sum(self, *arguments: object) -> None:
        """Leave the addition to ``add_noise``; in one pass it gives the same bits (test_compiled.py)."""

    def normal(self, count: int, scale: float, dtype: torch.dtype) -> torch.Tensor:
        return self.wanted.to(dtype) * scale


def asked_precision(part: torch.Tensor) -> torch.dtype:
    """The precision in which a release asks for its noise."""
    seen: list[torch.dtype] = []

    class Asked(Given):
        def normal(self, count: int, scale: float, dtype: torch.dtype) -> torch.Tensor:
            seen.append(dtype)
            return super().normal(count, scale, dtype)

    add_noise(Bounded([part], 1.0, "add-remove"), 1.0, Asked(torch.zeros(len(part))))
    return seen[0]


def reachable(released: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Return noise that gives the released number when it is added to ``total`` as in a release, or close to it."""
    precision = asked_precision(total)
    centre = released.to(precision) - total.to(precision)
    found = torch.zeros(len(released), dtype=torch.bool)
    for direction in (-math.inf, math.inf):
        candidate = centre
        for _ in range(NEAR + 1):
            again = add_noise(Bounded([total], 1.0, "add-remove"), 1.0, Given(candidate.clone()))[0]
            found |= again == released
            candidate = torch.nextafter(candidate, torch.full_like(candidate, direction))
    return found


@pytest.mark.parametrize("gradient", [1.0, -0.37, 0.0223])
def test_no_released_number_could_come_from_one_of_two_sums_alone(gradient):
    # a record with a gradient on coordinates of its own: the sums are 0 and its gradient; the mechanism allows an
    # advantage
    # of .38 at noise multiplier 1. One number that only one of the sums can give is proof of it
    count = 20_000
    sums = torch.zeros(count), torch.full((count,), gradient)
    for place, total in enumerate(sums):
        released = add_noise(Bounded([total], 1.0, "add-remove"), 1.0, Noise(bytes([place]) * 32))[0]
        assert int((~reachable(released, sums[1 - place])).sum()) == 0
        assert bool(reachable(released, total).all())


@pytest.mark.parametrize("sensitivity", [1.0, 0.3, 1e-4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_releases_lie_on_a_grid_of_two_to_the_minus_20_standard_deviations_whatever_the_sum(sensitivity, dtype):
    sigma = 1.3
    total = torch.linspace(-1, 1, 10_001, dtype=dtype) * sensitivity
    released = add_noise(Bounded([total], sensitivity, "add-remove"), sigma, Noise(bytes(32)))[0].double()
    grid = 2.0 ** (math.floor(math.log2(sigma * sensitivity)) - 20)
    assert torch.equal(released / grid, (released / grid).round())
    # and no coarser: odd multiples are half of them, within 4 standard errors
    assert abs(int((released / grid % 2 != 0).sum()) - 5000) < 4 * 50


def test_rounding_to_the_grid_is_all_that_a_release_does_to_sum_and_noise():
    total = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    released = add_noise(Bounded([total], 0.5, "add-remove"), 2.0, Noise(bytes(32)))[0]
    exact = total.double() + Noise(bytes(32)).normal(1000, 1.0, torch.float64)
    assert float((released.double() - exact).abs().max()) <= 2.0**-21


def test_the_mean_of_large_sums_is_rounded_to_float32_after_the_grid():
    # sums far above the noise do not fit into float32 on the grid: what is handed on is the number on the grid, rounded
    total = torch.full((1000,), 1e4)
    single = add_noise(Bounded([total], 1.0, "add-remove"), 1.0, Noise(bytes(32)))[0]
    double = add_noise(Bounded([total.double()], 1.0, "add-remove"), 1.0, Noise(bytes(32)))[0]
    assert torch.equal(single, double.float())
