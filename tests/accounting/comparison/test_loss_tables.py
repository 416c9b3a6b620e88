"""The law of the composed loss, against closed forms and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from wpriv.accounting import build_process
from wpriv.accounting.comparison import grid


def rows_of(n=1, bins=200, **spec):
    return grid.loss_rows(build_process.process([{**spec, "n": n}]), bins)


def test_masses_sum_to_one_with_the_infinity_mass():
    for spec in (
        {"mech": "laplace", "scale": 1},
        {"mech": "gauss", "sigma": 2},
        {"mech": "truncated-gauss", "sigma": 1, "bound": 3},
    ):
        for n in (1, 5, 64):
            # a histogram of five standard deviations leaves out less than 1e-5 where the support is wider
            assert math.fsum(row["mass"] for row in rows_of(n, **spec)) == pytest.approx(1, abs=1e-5)


def test_the_composed_gauss_loss_is_normal():
    # Lemma 11: N(n/2 s^2, n s^2) with s = 1/2, n = 7
    for row in rows_of(7, mech="gauss", sigma=2)[:-1]:
        edges = (np.array([-0.5, 0.5]) * row["width"] + row["loss"] - 7 / 8) / math.sqrt(7 / 4)
        assert row["mass"] == pytest.approx(float(np.diff(ndtr(edges))[0]), abs=1e-12)
        assert row["class_density"] * row["width"] == pytest.approx(row["mass"], abs=1e-12)


def test_one_laplace_loss_has_its_atoms_and_its_density():
    # A.3 with t = 1: 1/2 at 1, e^-1/2 at -1, density e^((y-1)/2)/4 between them
    rows = rows_of(1, mech="laplace", scale=1)[:-1]
    half = rows[0]["width"] / 2
    assert rows[-1]["mass"] == pytest.approx(0.5 + 0.25 * half, rel=1e-2)
    assert rows[0]["mass"] == pytest.approx(math.exp(-1) / 2 + math.exp(-1) / 4 * half, rel=1e-3)
    for row in rows[1:-1]:
        a, b = row["loss"] - half, row["loss"] + half
        assert row["mass"] == pytest.approx((math.exp((b - 1) / 2) - math.exp((a - 1) / 2)) / 2, abs=1e-12)


def test_two_fold_composition_is_the_convolution():
    one, two = ([r["mass"] for r in rows_of(n, bins, mech="laplace", scale=1)[:-1]] for n, bins in ((1, 200), (2, 400)))
    assert np.allclose(np.convolve(one, one), two, atol=1e-14)


def test_uniform_noise_leaves_an_atom_and_the_distinguishing_mass():
    # Example 2, corrected: (9/10)^4 at loss 0
    finite, infinity = rows_of(4, mech="uniform", outcomes=10)
    assert (finite["loss"], infinity["part"]) == (0.0, "infinity")
    assert finite["mass"] == pytest.approx(0.9**4, rel=1e-12)
    assert infinity["mass"] == pytest.approx(0.3439, rel=1e-12)


def test_the_class_adds_up_over_steps():
    steps = [{"mech": "gauss", "sigma": 1, "n": 3}, {"mech": "gauss", "sigma": 2, "n": 8}]
    row = grid.class_row(build_process.process(steps))
    assert (row["mean"], row["variance"]) == (pytest.approx(3 / 2 + 8 / 8), pytest.approx(3 + 8 / 4))
    assert row["third"] is None
