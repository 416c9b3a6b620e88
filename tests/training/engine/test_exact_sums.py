"""Exact sums change by at most the clipping norm despite rounding, and exact releases cover their own rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.engine.toys import LOSS, batches, records
from wpriv.errors import Unsupported, UsageError
from wpriv.training import training_statement
from wpriv.training.clipping import exact_sums
from wpriv.training.clipping.clip import clipped_sum
from wpriv.training.engine import batch_gradient, distributed
from wpriv.training.noise import release
from wpriv.training.noise.noise_stream import Noise
from wpriv.training.noise.release import Bounded, add_noise, exact_form

KEY = bytes(range(32))


def whole(values: torch.Tensor, grid: float) -> list[int]:
    """Numbers as exact multiples of a grid; fails where one is none."""
    multiples = [Fraction(value) / Fraction(grid) for value in values.double().reshape(-1).tolist()]
    assert all(multiple.denominator == 1 for multiple in multiples)
    return [int(multiple) for multiple in multiples]


def vectors() -> list[torch.Tensor]:
    """Vectors with large rounding errors: long, short, of mixed magnitudes, or exactly at the clipping norm."""
    random = torch.Generator().manual_seed(1)
    base = torch.randn(1000, generator=random)
    unit = base / base.norm()
    mixed = base * 10.0 ** torch.linspace(-30, 15, 1000)
    return [
        unit,
        unit * (1 + 1e-7),
        unit * 1e-12,
        unit * 1e12,
        mixed,
        torch.full((1000,), 1e-3),
        torch.zeros(1000),
        base * 1e-40,
    ]


@pytest.mark.parametrize("norm", [1.0, 0.1, 0.7, 3.0, 1e-5])
def test_no_record_adds_more_than_the_clipping_norm_to_an_exact_sum(norm):
    # oracle: whole numbers of Python, without any rounding
    for vector in vectors():
        total = exact_sums.ExactSum([vector], norm)
        length = float(total.add([vector]))
        part = whole(total.bounded("add-remove").parts[0], total.grid)
        squares = sum(number**2 for number in part)
        assert squares <= (Fraction(norm) / Fraction(total.grid)) ** 2
        wanted = min(length, norm)
        assert math.sqrt(squares) * total.grid == pytest.approx(wanted, rel=1e-6, abs=40 * total.grid)


def test_an_exact_sum_is_that_of_its_records_to_the_last_bit_in_any_order():
    rows = [vector * scale for scale in (1.0, 1e3, 0.3) for vector in vectors()]
    sums = []
    for order in (range(len(rows)), reversed(range(len(rows)))):
        total = exact_sums.ExactSum([rows[0]], 0.7)
        for place in order:
            total.add([rows[place]])
        sums.append(total.bounded("add-remove").parts[0])
    alone = []
    for row in rows:
        single = exact_sums.ExactSum([row], 0.7)
        single.add([row])
        alone.append(whole(single.bounded("add-remove").parts[0], single.grid))
    assert torch.equal(*sums)
    assert whole(sums[0], exact_sums.grid_of(0.7)) == [sum(column) for column in zip(*alone, strict=True)]


def toy() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 3)), *records()


def flat(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.double().reshape(-1) for part in parts])


def test_a_record_moves_an_exact_sum_by_its_own_part_alone_to_the_last_bit():
    model, x, y = toy()
    how = {"norm": 0.5, "adjacency": "add-remove", "exact": True}
    everything = clipped_sum(model, LOSS, x, y, **how).total
    for place in range(len(x)):
        others = [k for k in range(len(x)) if k != place]
        rest, alone = (clipped_sum(model, LOSS, x[near], y[near], **how).total for near in (others, [place]))
        assert torch.equal(flat(everything.parts) - flat(rest.parts), flat(alone.parts))
        assert (
            sum(number**2 for number in whole(flat(alone.parts), alone.grid))
            <= (Fraction(0.5) / Fraction(alone.grid)) ** 2
        )


def test_floating_point_sums_move_by_more_than_a_record_adds():
    # what the exact form is for: the same in float32 by every other method
    model, x, y = toy()
    for method in ("ghost", "vmap", "loop"):
        how = {"norm": 0.5, "adjacency": "add-remove", "method": method}
        everything, rest, alone = (
            clipped_sum(model, LOSS, x[n], y[n], **how).total for n in (slice(None), slice(1, None), slice(1))
        )
        assert not torch.equal(flat(everything.parts) - flat(rest.parts), flat(alone.parts))


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_exact_sum_is_the_sum_of_the_other_methods_to_rounding(adjacency):
    model, x, y = toy()
    weights = torch.tensor([1.0, 0.0] * 6)
    for given in (None, weights):
        ours = clipped_sum(model, LOSS, x, y, norm=0.5, adjacency=adjacency, weights=given, exact=True)
        other = clipped_sum(model, LOSS, x, y, norm=0.5, adjacency=adjacency, weights=given)
        torch.testing.assert_close(flat(ours.total.parts), flat(other.total.parts), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(ours.losses, other.losses)
        kept = slice(None) if given is None else given.bool()
        torch.testing.assert_close(ours.norms[kept].float(), other.norms[kept], rtol=1e-2, atol=1e-6)
        assert ours.total.sensitivity == other.total.sensitivity
        assert [part.shape for part in ours.total.parts] == [part.shape for part in other.total.parts]


def test_no_record_at_all_is_an_exact_sum_of_zeros():
    model, x, y = toy()
    total = clipped_sum(model, LOSS, x[:0], y[:0], norm=0.5, adjacency="add-remove", exact=True).total
    assert total.grid > 0
    assert not flat(total.parts).any()
    assert len(add_noise(total, 1.0, Noise(KEY), exact=True)) == len(total.parts)


def test_a_gradient_that_is_not_finite_adds_zero_to_the_exact_sum():
    model, x, y = toy()
    others = [place for place in range(len(x)) if place != 3]
    how = {"norm": 0.5, "adjacency": "add-remove", "exact": True}
    wanted = clipped_sum(model, LOSS, x[others], y[others], **how).total
    x[3] = math.nan
    found = clipped_sum(model, LOSS, x, y, **how).total
    assert all(torch.equal(one, other) for one, other in zip(found.parts, wanted.parts, strict=True))


@pytest.mark.parametrize("method", ["ghost", "vmap"])
def test_an_exact_sum_by_a_method_that_batches_records_is_refused(method):
    model, x, y = toy()
    with pytest.raises(UsageError):
        clipped_sum(model, LOSS, x, y, norm=0.5, adjacency="add-remove", exact=True, method=method)


@pytest.mark.parametrize("sigma", [0.01, 0.7, 1.0, 18.2, 1e4])
@pytest.mark.parametrize("count", [1, 26_010, 2_750_000, 10**10])
@pytest.mark.parametrize("norm", [1.0, 0.1, 5.0])
def test_exact_noise_covers_the_sensitivity_of_the_rounded_sum_and_adds_little(sigma, count, norm):
    # oracle: rational arithmetic. deviation / sigma >= s + g sqrt(d)  <=>  (deviation / sigma - s)^2 >= g^2 d
    total = Bounded([torch.zeros(1, dtype=torch.float64)], norm, "add-remove", exact_sums.grid_of(norm))
    grid, deviation = exact_form(total, sigma, count)
    assert math.frexp(grid)[0] == 0.5
    room = Fraction(deviation) / Fraction(sigma) - Fraction(norm)
    assert room >= 0
    if grid > total.grid:
        assert room**2 >= Fraction(grid) ** 2 * count
    assert deviation <= sigma * norm * (1 + 1.01 * release.MAX_ROUNDING_SHARE)
    assert deviation >= 2**20 * grid
    assert release.MAX_ROUNDING_SHARE == training_statement.MOST_ADDED  # what the statement says


def test_rounding_a_sum_moves_it_by_no_more_than_is_added_to_the_noise():
    # oracle: integers of Python, on pairs of sums at the clipping norm that rounding moves apart as far as possible
    count, sigma = 4000, 50.0
    grid_of_sum = exact_sums.grid_of(1.0)
    total = Bounded([torch.zeros(count, dtype=torch.float64)], 1.0, "add-remove", grid_of_sum)
    grid, deviation = exact_form(total, sigma, count)
    steps = int(grid / grid_of_sum)
    move = math.isqrt(int((1 / grid_of_sum) ** 2) // count)
    one = torch.full((count,), float(steps // 2 + 1)) * grid_of_sum
    for sign in (1, -1):
        other = one.double() + sign * move * grid_of_sum
        rounded = [np.array(whole((part.double() / grid).round(), 1.0), dtype=object) for part in (one, other)]
        apart = sum((rounded[0] - rounded[1]) ** 2) * Fraction(grid) ** 2
        assert apart <= (Fraction(deviation) / Fraction(sigma)) ** 2


def test_an_exact_release_is_the_rounded_sum_plus_rounded_noise_on_one_grid():
    random = torch.Generator().manual_seed(3)
    total = exact_sums.ExactSum([torch.zeros(5000), torch.zeros(2, 40)], 1.0)
    for _ in range(30):
        total.add([torch.randn(5000, generator=random), torch.randn(2, 40, generator=random)])
    bounded = total.bounded("add-remove")
    grid, deviation = exact_form(bounded, 1.5, 5080)
    bounded = Bounded(bounded.parts, 1.0, "add-remove", bounded.grid, torch.float64)
    released = add_noise(bounded, 1.5, Noise(KEY), exact=True)
    noise = Noise(KEY).rounded_normal(5080, deviation / grid)
    wanted = [
        a + round(Fraction(b) / Fraction(grid))
        for a, b in zip(whole(noise, 1.0), flat(bounded.parts).tolist(), strict=True)
    ]
    assert whole(flat(released), grid) == wanted
    assert [part.shape for part in released] == [(5000,), (2, 40)]
    single = add_noise(
        Bounded(bounded.parts, 1.0, "add-remove", bounded.grid, torch.float32), 1.5, Noise(KEY), exact=True
    )
    assert torch.equal(flat(single), flat(released).float().double())


def test_a_sum_in_floating_point_has_no_exact_release():
    with pytest.raises(Unsupported):
        add_noise(Bounded([torch.zeros(3)], 1.0, "add-remove"), 1.0, exact=True)
    model, x, y = toy()
    total = clipped_sum(model, LOSS, x, y, norm=0.5, adjacency="add-remove", exact=True).total
    assert (total + total).grid == total.grid
    with pytest.raises(Unsupported):
        add_noise(total.scaled(1 / 3), 1.0, exact=True)  # rounds


def test_an_exact_sum_of_more_records_than_add_up_without_rounding_is_refused(monkeypatch):
    monkeypatch.setattr(exact_sums, "MAX_RECORDS", 3)
    total = exact_sums.ExactSum([torch.zeros(2)], 1.0)
    for _ in range(3):
        total.add([torch.ones(2)])
    with pytest.raises(UsageError):
        total.add([torch.ones(2)])


def test_the_records_of_all_processes_together_add_up_without_rounding(monkeypatch):
    monkeypatch.setattr(exact_sums, "MAX_RECORDS", 3)
    monkeypatch.setattr(distributed, "size", lambda: 2)
    with pytest.raises(UsageError):
        batch_gradient.per_example(
            batches(), np.arange(2), norm=0.5, adjacency="add-remove", divisor=1.0, method="loop", exact=True
        )


def test_vectors_whose_squares_underflow_are_clipped():
    # oracle: rational arithmetic on the released numbers
    norm = 1e-170
    total = exact_sums.ExactSum([torch.zeros(50, dtype=torch.float64)], norm)
    total.add([torch.full((50,), 1e-165, dtype=torch.float64)])
    (part,) = total.bounded("add-remove").parts
    assert sum(Fraction(number) ** 2 for number in part.tolist()) <= Fraction(norm) ** 2


def test_a_sum_too_large_for_whole_numbers_of_the_grid_is_refused():
    total = Bounded([torch.full((1,), 2.0**40, dtype=torch.float64)], 1.0, "add-remove", 2.0**-31)
    with pytest.raises(UsageError):
        add_noise(total, 1e-3, exact=True)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_an_exact_release_on_cuda_is_that_of_the_cpu_bit_by_bit():
    parts = [torch.arange(600_000.0, dtype=torch.float64) * 2.0**-20]
    here = add_noise(Bounded(parts, 1.0, "add-remove", 2.0**-31), 1.0, Noise(KEY), exact=True)
    there = add_noise(
        Bounded([part.cuda() for part in parts], 1.0, "add-remove", 2.0**-31), 1.0, Noise(KEY, "cuda"), exact=True
    )
    assert torch.equal(here[0], there[0].cpu())
