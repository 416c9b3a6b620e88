"""Local mechanisms: the diameter of the clip ball, equation (4) against the exact sigma, Laplace noise in R^d."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wpriv
from tests.points import GOLDEN
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.local_gauss import LocalGauss
from wpriv.accounting.mechanisms.local_laplace import LocalLaplace
from wpriv.accounting.pld.composition import Composition
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import conversions


@pytest.mark.parametrize("ident", ["004-eq4-0", "004-eq4-1", "004-eq4-3"])
def test_the_golden_sigmas_of_equation_4(ident):
    point = GOLDEN[ident]
    eps, delta = (float(point["inputs"][k]) for k in ("eps", "delta"))
    assert conversions.zhao(eps, delta) == pytest.approx(float(point["value"]), rel=1e-12)


@pytest.mark.parametrize(("eps", "delta"), [("0.01", "1e-50"), ("1", "1e-300"), ("30", "1e-10"), ("2", "0.499")])
def test_equation_4_keeps_its_digits_at_any_delta(eps, delta):
    """400 digits of mpmath. Golden point 004-eq4-2 (1e-50) is left out: sqrt(16 delta + 1) - 1 had cancelled in it."""
    with mp.workdps(400):
        e, d = mp.mpf(eps), mp.mpf(delta)
        square = mp.log(2 / (mp.sqrt(16 * d + 1) - 1))
        exact = (mp.sqrt(square) + mp.sqrt(square + e)) / (e * mp.sqrt(2))
    assert conversions.zhao(float(eps), float(delta)) == pytest.approx(float(exact), rel=1e-13)


def test_the_golden_exact_sigma():
    point = GOLDEN["004-ana-0"]
    eps, delta = (float(point["inputs"][k]) for k in ("eps", "delta"))
    assert conversions.exact(eps, delta) == pytest.approx(float(point["value"]), rel=1e-11)
    assert conversions.epsilon(conversions.exact(eps, delta), delta) == pytest.approx(eps, rel=1e-11)


def test_the_exact_sigma_where_its_square_is_beyond_doubles():
    """Balle, Wang 2018, Theorem 8: delta(0) = 2 Phi(mu/2) - 1 ~ mu / sqrt(2 pi), and delta = 1/2 at mu^2/2 = eps."""
    assert conversions.exact(0.0, 1e-300) == pytest.approx(1e300 / math.sqrt(2 * math.pi), rel=1e-11)
    assert conversions.exact(1e308, 0.5) == pytest.approx(math.sqrt(0.5) / 1e154, rel=1e-11)


def test_every_sigma_is_a_number_at_the_smallest_delta():
    # ln 5e-324 = -744.44; the exact sigma lies below both formulas
    classical, zhao = (formula(1.0, 5e-324) for formula in (conversions.classical, conversions.zhao))
    assert classical == pytest.approx(math.sqrt(2 * (math.log(1.25) + 744.4400719213812)), rel=1e-12)
    assert math.isfinite(zhao)
    assert 0 < conversions.exact(1.0, 5e-324) < min(classical, zhao)


@pytest.mark.slow
@given(st.floats(0, 2000), st.floats(-40, -0.4))
@settings(max_examples=200, deadline=None)
def test_sufficient_sigmas_are_never_below_the_exact_one_and_epsilon_inverts_it(eps, exponent):
    delta = 10**exponent
    least = conversions.exact(eps, delta)
    assert conversions.epsilon(least, delta) <= eps + 1e-9 * max(eps, 1e-3)
    if eps > 1e-3:
        assert conversions.epsilon(least * (1 - 1e-9), delta) > eps * (1 - 1e-7)
        assert delta >= 0.5 or conversions.zhao(eps, delta) > least
    if 1e-3 < eps <= 1 and delta <= 0.1:
        assert conversions.classical(eps, delta) > least


def test_calibrate_gives_the_exact_sigma_at_the_diameter_of_the_ball():
    for nonnegative, diameter in ((0, 6.0), (1, 3 * math.sqrt(2))):
        row = wpriv.calibrate("local-gauss", radius=3, nonnegative=nonnegative, eps=35, delta=1e-4).guarantee
        assert row.extra["calibrated"]["value"] == pytest.approx(diameter * conversions.exact(35, 1e-4), rel=3e-5)
        assert (row.claim, row.process.adjacency) == ("exact", "any-two")


def test_older_formulas_are_shown_with_what_they_hold_for():
    rows = wpriv.calibrate("local-gauss", radius=1, eps=35, delta=1e-4, compare_classical=True).guarantee.extra[
        "classical"
    ]
    assert [row["valid"] for row in rows] == [False, True, False]
    golden = float(GOLDEN["004-eq4-1"]["value"])
    assert [row["sigma"] for row in rows[1:]] == pytest.approx([2 * golden, golden], rel=1e-12)
    rows = wpriv.calibrate("local-laplace", radius=1, eps=196, delta=1e-4, compare_classical=True).guarantee.extra[
        "classical"
    ]
    assert [row["valid"] for row in rows] == [True, False]
    assert rows[0]["scale"] == pytest.approx(float(GOLDEN["004-lap-0"]["value"]), rel=1e-12)
    rows = wpriv.calibrate("local-gauss", radius=1, eps=0.0, delta=1e-4, compare_classical=True).guarantee.extra[
        "classical"
    ]
    assert [row["sigma"] for row in rows] == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_shift_spread_over_coordinates_is_dominated_by_the_same_shift_of_one(seed):
    """Composed pairs, each bracketed by its own grid, against the closed form of one coordinate.

    The proof is in ``LocalLaplace``: a chain of neighbours, one coordinate after another.
    """
    rng = np.random.default_rng(seed)
    total, d = 10 ** rng.uniform(-1, 1.5), int(rng.integers(2, 9))
    shares = rng.dirichlet(np.full(d, 10 ** rng.uniform(-1, 1)))
    shares = shares[shares > 1e-6]
    together = Composition([(LaplacePair(total * share), 1) for share in shares])
    for eps in np.linspace(0, 0.97 * total, 7):
        spread, _ = together.delta(float(eps), 1e-3, -1.0)
        assert spread <= float(np.exp(LaplacePair(total * shares.sum()).log_delta(eps))) * (1 + 1e-9)


def test_a_local_laplace_report_is_pure_and_its_profile_is_that_of_the_diameter():
    row = wpriv.budget("local-laplace", scale=0.5, radius=1, delta=1e-3)
    assert row.epsilon.upper == pytest.approx(4 + 2 * math.log1p(-1e-3), rel=1e-9)  # delta = 1 - e^((eps - 4)/2)
    assert wpriv.budget("local-laplace", scale=0.5, radius=1, eps=4).delta.upper == 0
    assert any("pure 4-DP" in line for line in row.extra["reading"])


@pytest.mark.parametrize("mechanism", [LocalGauss(1.0, 1.0), LocalLaplace(1.0, 1.0)], ids=lambda m: m.name)
def test_local_mechanisms_refuse_sampling_and_other_adjacencies(mechanism):
    for kind in ("poisson", "fixed"):
        with pytest.raises(Unsupported, match="batch"):
            Process((Step(mechanism, 1, Sampling(kind, 0.1)),))
    with pytest.raises(Unsupported, match="any-two"):
        Process((Step(mechanism),), "replace-one")


def test_nonnegative_must_be_0_or_1():
    with pytest.raises(UsageError, match="nonnegative"):
        LocalGauss(1.0, 1.0, 2)


def test_why_is_refused_for_an_adjacency_with_nothing_to_compare(capsys):
    from wpriv.cli.main import main

    assert (
        main(["compare", "--mech", "local-gauss", "--sigma", "1", "--param", "radius=1", "--delta", "1e-4", "--why"])
        == 3
    )
    assert "any-two" in capsys.readouterr().err
