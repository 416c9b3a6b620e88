"""Sums carry their sensitivity, and noise of the right size is added in one place."""

from __future__ import annotations

import math

import pytest
import torch

from wpriv.errors import UsageError
from wpriv.training.noise.noise_stream import Noise
from wpriv.training.noise.release import Bounded, add_noise


def fixed(number: int) -> Noise:
    return Noise(number.to_bytes(32, "little"))


def bounded(sensitivity: float = 1.0, adjacency: str = "add-remove", sizes: tuple[int, ...] = (3, 4)) -> Bounded:
    return Bounded([torch.arange(float(n)).view(n, 1) for n in sizes], sensitivity, adjacency)


def test_a_sum_of_bounded_sums_is_bounded_by_the_sum_of_their_bounds():
    both = bounded(0.5) + bounded(0.25).scaled(-2.0)
    assert both.sensitivity == 1.0
    assert all(torch.equal(part, -torch.arange(float(len(part))).view(-1, 1)) for part in both.parts)


def test_sums_under_different_neighbours_are_not_added():
    with pytest.raises(UsageError, match=r"add-remove.*replace-one"):
        bounded() + bounded(adjacency="replace-one")


def test_sums_of_different_shapes_are_not_added():
    with pytest.raises(UsageError):
        bounded() + bounded(sizes=(1, 4))  # these would broadcast


@pytest.mark.parametrize("sensitivity", [-1.0, math.inf, math.nan])
def test_a_sensitivity_is_finite_and_not_negative(sensitivity):
    with pytest.raises(UsageError):
        bounded(sensitivity)


def test_an_unknown_adjacency_is_refused():
    with pytest.raises(UsageError, match="add-remove, replace-one, replace-within-group; found 'swap'"):
        bounded(adjacency="swap")


@pytest.mark.parametrize("factor", [math.inf, math.nan])
def test_a_sum_is_scaled_by_a_finite_number(factor):
    with pytest.raises(UsageError):
        bounded().scaled(factor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_normal_with_standard_deviation_sigma_times_sensitivity(dtype):
    n, sigma, sensitivity = 200_000, 1.5, 0.2
    total = Bounded(
        [torch.full((n,), 7.0, dtype=dtype), torch.full((2, n // 2), -3.0, dtype=dtype)], sensitivity, "add-remove"
    )
    first, second = add_noise(total, sigma, fixed(0))
    assert first.dtype == second.dtype == dtype
    noise = torch.cat([first - 7.0, (second + 3.0).flatten()]).double() / (sigma * sensitivity)
    # standard errors: 1/sqrt(2n) of the mean, sqrt(2/(2n)) of the variance, sqrt(6/(2n)) of skewness and
    # sqrt(24/(2n)) of excess
    assert abs(noise.mean()) < 4 / math.sqrt(2 * n)
    assert abs(noise.var() - 1) < 4 * math.sqrt(2 / (2 * n))
    assert abs((noise**3).mean()) < 4 * math.sqrt(15 / (2 * n))
    assert abs((noise**4).mean() - 3) < 4 * math.sqrt(96 / (2 * n))


def test_the_noise_of_two_steps_and_of_two_parts_is_independent():
    n = 100_000
    total = Bounded([torch.zeros(n), torch.zeros(n)], 1.0, "add-remove")
    source = fixed(1)
    draws = [part for _ in range(2) for part in add_noise(total, 1.0, source)]
    correlation = torch.corrcoef(torch.stack(draws)) - torch.eye(4)
    assert correlation.abs().max() < 4.5 / math.sqrt(n)  # six pairs, each of standard error 1/sqrt(n)


def test_the_same_seed_gives_the_same_release_and_the_sum_is_left_as_it_is():
    total = bounded()
    one, two = (add_noise(total, 1.0, fixed(5)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert torch.equal(total.parts[0], torch.arange(3.0).view(3, 1))
    assert [part.shape for part in one] == [part.shape for part in total.parts]


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, math.nan])
def test_a_private_release_needs_noise(sigma):
    with pytest.raises(UsageError):
        add_noise(bounded(), sigma)


def test_no_noise_is_added_where_no_privacy_is_asked_for():
    total = bounded()
    released = add_noise(total, 0.0, private=False)
    assert all(torch.equal(a, b) and a is not b for a, b in zip(released, total.parts, strict=True))


def test_parts_of_different_precision_are_not_released_together():
    with pytest.raises(UsageError, match=r"torch.float64 on cpu beside torch.float32 on cpu"):
        add_noise(Bounded([torch.zeros(1), torch.zeros(1, dtype=torch.float64)], 1.0, "add-remove"), 1.0)


@pytest.mark.parametrize(("sensitivity", "sigma"), [(1e-180, 1e-180), (1e-305, 1e-3), (1e200, 1e200)])
def test_noise_that_float64_cannot_hold_is_refused(sensitivity, sigma):
    # their product is 0, below the grid of normal numbers, or infinite: the sum would be released as it is
    total = Bounded([torch.full((3,), sensitivity, dtype=torch.float64)], sensitivity, "add-remove")
    with pytest.raises(UsageError):
        add_noise(total, sigma)


def test_the_least_noise_that_float64_can_hold_is_added():
    total = Bounded([torch.zeros(1000, dtype=torch.float64)], 2.0**-1002, "add-remove")
    (released,) = add_noise(total, 1.0, fixed(3))
    assert float((released * 2.0**1002).std()) == pytest.approx(1.0, rel=0.1)
