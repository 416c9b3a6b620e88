"""Products of many spectra, summed directly at low frequencies, against plain transforms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wpriv.pld import constants
from wpriv.pld.lattice.lattice_pmf import LatticePmf
from wpriv.pld.lattice.spectra import (
    SpectrumProducts,
    _find_cutoff,
    _sum_spectra,
    _summation_error,
    fast_length,
    jump_rounding,
    jump_spectrum,
    spectrum,
    transform_error,
)


def bell(rng: np.random.Generator, rows: int, spread: int) -> LatticePmf:
    """PMFs on sparse nodes: bells of some widths, and a far tail."""
    index = np.unique(np.concatenate([np.arange(-spread, spread), rng.integers(spread, 30 * spread, 20)]))
    widths = rng.uniform(0.2, 0.3, rows)[:, None] * spread
    mass = np.exp(-((index / widths) ** 2) / 2) + 1e-6 * rng.random((rows, index.size))
    return LatticePmf(index, mass / mass.sum(axis=1)[:, None], np.zeros(rows))


def variances(pmfs: list[LatticePmf]) -> list[np.ndarray]:
    return [pmf.moments(1.0)[1] for pmf in pmfs]


def plain(pmfs: list[LatticePmf], powers: list[np.ndarray], size: int) -> np.ndarray:
    whole = np.ones(size // 2 + 1, dtype=complex)
    for pmf, power in zip(pmfs, powers, strict=True):
        for row, n in zip(pmf.rows, power, strict=True):
            whole *= np.fft.rfft(np.bincount(pmf.index % size, weights=row, minlength=size)) ** int(n)
    return whole


def test_products_at_low_frequencies_are_the_full_ones_to_the_error_they_name():
    rng = np.random.default_rng(1)
    pmfs = [bell(rng, 9, 40), bell(rng, 11, 60)]
    powers = [rng.integers(5, 30, pmf.rows.shape[0]) for pmf in pmfs]
    size = fast_length(40_000)
    products = SpectrumProducts(pmfs, size, powers, variances(pmfs), 1e-10)
    assert products.cut < size // 8
    found, exact = products.product(powers), plain(pmfs, powers, size)
    assert found is not None
    # the sum of |error| over the cells, which is what the slack has to hold
    off = np.abs(np.fft.irfft(found, size) - np.fft.irfft(exact, size)).sum()
    assert off <= products.truncation_error + products.rounding(found, powers, 0)
    assert products.truncation_error <= 1e-10


def test_few_pmfs_or_rough_ones_keep_every_frequency():
    rng = np.random.default_rng(2)
    size = fast_length(5000)
    few = bell(rng, constants.MIN_TRUNCATED_PMFS - 1, 30)
    steep = LatticePmf(
        np.array([-1, 0, 1]), np.full((constants.MIN_TRUNCATED_PMFS, 3), 1 / 3), np.zeros(constants.MIN_TRUNCATED_PMFS)
    )
    for pmf in (few, steep):
        rows = pmf.rows.shape[0]
        ones = [np.ones(rows, dtype=np.int64)]
        products = SpectrumProducts([pmf], size, ones, variances([pmf]), 1e-12)
        assert (products.cut, products.truncation_error) == (size // 2 + 1, 0.0)
        np.testing.assert_allclose(products.product(ones), plain([pmf], ones, size), atol=1e-13)


def test_jump_factors_of_several_rows_are_the_product_of_their_powers():
    index, size = np.array([0, 7, 40]), 256
    mass = np.array([[1 - 3e-6, 2e-6, 1e-6], [1 - 5e-4, 4e-4, 1e-4]])
    counts = np.array([10**5, 300])
    exact = plain([LatticePmf(index, mass, np.zeros(2))], [counts], size)
    np.testing.assert_allclose(jump_spectrum(LatticePmf(index, mass, np.zeros(2)), counts, size), exact, rtol=1e-10)


def test_the_logarithm_of_a_jump_factor_is_not_rounded_at_one():
    # numpy's log1p of a complex number rounds 1 + z, and 10^9 jumps of probability 1e-10 would show it
    index, size, n, rare = np.array([0, 3]), 64, np.array([10**9]), 1e-10
    pmf = LatticePmf(index, np.array([[1 - rare, rare]]), np.zeros(1))
    turns = np.exp(-2j * np.pi * 3 * np.arange(size // 2 + 1) / size) - 1
    exact = np.exp(float(n[0]) * (rare * turns - (rare * turns) ** 2 / 2))  # the next term is below 1e-21
    found, bound = jump_spectrum(pmf, n, size), jump_rounding(pmf, n, size)
    assert np.max(np.abs(found / exact - 1)) < bound < 1e-13


def test_jump_factors_without_a_bound_give_none():
    assert (
        jump_rounding(LatticePmf(np.array([0, 3]), np.array([[0.4, 0.6]]), np.zeros(1)), np.array([2]), 64) == math.inf
    )


@pytest.mark.parametrize("size", [8, 225, 1800, 4096, 28_800])
def test_coefficients_of_a_transform_are_exact_to_the_error_they_name(size):
    rng = np.random.default_rng(size)
    flat, spiked = rng.random(size), np.zeros(size)
    spiked[rng.integers(0, size, 3)] = 1.0, 0.5, 0.2
    for mass in (flat, spiked, rng.random(size) ** 30):
        pmf = LatticePmf(np.arange(size), mass / mass.sum(), 0.0)
        some = np.unique(rng.integers(0, size // 2 + 1, 60))
        turns = np.arange(size)[:, None] * some % size
        angles = -2 * np.longdouble("3.14159265358979323846264338327950288") * turns / size
        weight = pmf.mass.astype(np.longdouble)
        exact = weight @ np.cos(angles) + 1j * (weight @ np.sin(angles))
        found = spectrum(pmf.index, pmf.mass, size)[some]
        assert float(np.max(np.abs(found - exact))) <= transform_error(pmf, size) < 3e-14


def exact_coefficients(pmf: LatticePmf, size: int, cut: int) -> np.ndarray:
    """[K, cut] in extended precision, from angles that are reduced exactly."""
    turns = (pmf.index[:, None] % size) * np.arange(cut) % size
    angles = -2 * np.longdouble("3.14159265358979323846264338327950288") * turns / size
    return pmf.rows.astype(np.longdouble) @ np.cos(angles) + 1j * (pmf.rows.astype(np.longdouble) @ np.sin(angles))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "cut", "far"),
    [(38_400, 40, 0.5), (38_400, 1100, 0.5), (491_520, 500, 0.5), (38_400, 37, 7.0), (512, 1, 3)],
)
def test_low_coefficients_are_the_exact_sums_to_the_noise_they_name(size, cut, far):
    rng = np.random.default_rng(3)
    index = np.unique(np.concatenate([np.arange(-300, 900), rng.integers(-5000, int(far * size), 800)]))
    mass = rng.random((3, index.size)) ** 8
    pmf = LatticePmf(index, mass / mass.sum(axis=1)[:, None], np.zeros(3))
    exact = exact_coefficients(pmf, size, cut)
    assert np.abs(_sum_spectra(pmf, size, cut) - exact).max() <= _summation_error(pmf, cut)
    np.testing.assert_allclose(
        _sum_spectra(pmf, size, -(-cut // 3), 3), exact[:, ::3].astype(complex), atol=_summation_error(pmf, cut)
    )


def test_the_rounding_of_a_product_covers_rows_whose_spectra_nearly_vanish():
    # oracle: extended precision; a two-pointed row has spectra down to nothing, where its noise is far more than any
    # relative error
    rng = np.random.default_rng(6)
    spread, size = 12, fast_length(6000)
    two = LatticePmf(np.array([-256, 256]), np.full((1, 2), 0.5), np.zeros(1))
    pmfs, powers = (
        [bell(rng, constants.MIN_TRUNCATED_PMFS, spread), two],
        [np.full(constants.MIN_TRUNCATED_PMFS, 3), np.array([1])],
    )
    products = SpectrumProducts(pmfs, size, powers, variances(pmfs), 1e-12)
    assert products.truncated
    assert any(np.abs(row).min() < 1e-3 for row in products.truncated[1])
    exact = np.prod(
        [
            np.prod(exact_coefficients(pmf, size, products.cut) ** n[:, None], axis=0)
            for pmf, n in zip(pmfs, powers, strict=True)
        ],
        axis=0,
    )
    found = products.product(powers)
    assert found is not None
    assert math.sqrt(2 * float(np.sum(np.abs(found - exact) ** 2))) <= products.rounding(found, powers, 0) <= 1e-10


@pytest.mark.parametrize("size", [fast_length(40_000), 225 << 7, 1000])
def test_a_coarse_look_never_finds_too_little_beyond_its_cut(size):
    # oracle: plain transforms; also of pmfs that are narrow, two-pointed (whose energy comes back to one), or left out
    # of the product
    rng = np.random.default_rng(4)
    for spread in (3, 20, 60, 200):
        two = LatticePmf(np.array([-1, spread]), np.array([[0.5, 0.5], [0.01, 0.99]]), np.zeros(2))
        pmfs, powers = [bell(rng, 4, spread), two], [np.array([30, 0, 7, 200]), np.array([1, 3])]
        cut, error = _find_cutoff(pmfs, size, powers, variances(pmfs), 1e-9)
        exact = plain(pmfs, powers, size)
        assert 0 < cut <= size // 2 + 1
        assert math.sqrt(2 * float(np.sum(np.abs(exact[cut:]) ** 2))) <= error <= 1e-9
        assert cut < size // 8 or size == 1000 or spread == 3


def test_an_energy_between_two_samples_exceeds_the_larger_by_no_more_than_the_look_allows():
    # oracle: the energies of the plain transform, at every frequency
    rng = np.random.default_rng(5)
    size, fold = 1 << 14, 16
    pmf = bell(rng, 6, 100)
    energy = (
        np.abs(np.fft.rfft([np.bincount(pmf.index % size, weights=row, minlength=size) for row in pmf.rows], axis=1))
        ** 2
    )
    samples = energy[:, ::fold]
    allowed = (
        np.maximum(samples[:, :-1], samples[:, 1:])
        + pmf.moments(1.0)[1][:, None] * (2 * math.pi * fold / size) ** 2 / 4
    )
    assert np.all(energy[:, :-1].reshape(6, -1, fold) <= allowed[:, :, None] + 1e-13)
