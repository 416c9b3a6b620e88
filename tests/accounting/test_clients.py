"""Clients of a federation: minimum separation and unequal weights.

Oracles: the Gaussian closed form in mpmath, the matrix mechanism with the identity, and the same steps written by hand.
"""

from __future__ import annotations

import math

import pytest

import wpriv
from tests.oracles import gauss_delta
from wpriv.errors import UsageError

WEIGHTED = {"noise_multiplier": 4, "sampling": "poisson", "batch": 10, "records": 100, "n": 20, "delta": 1e-5}


@pytest.mark.parametrize(("rounds", "separation", "most"), [(1000, 50, 20), (1001, 50, 21), (7, 10, 1), (8, 1, 8)])
def test_a_client_pays_for_the_rounds_that_its_separation_allows(rounds, separation, most):
    row = wpriv.budget("gauss", sigma=20, n=rounds, min_separation=separation, delta=1e-8)
    assert gauss_delta(row.epsilon.safe, math.sqrt(most) / 20) == pytest.approx(1e-8, rel=1e-5)
    strategy = {"strategy": f"identity:n={rounds}", "separation": separation}
    matrix = wpriv.budget("matrix-gauss", sigma=20, delta=1e-8, **strategy)
    assert row.epsilon.safe == pytest.approx(matrix.epsilon.safe, rel=1e-6)
    assert any(f"at most {most} times" in line for line in row.extra["reading"])


def test_noise_is_relative_to_the_largest_weight():
    """flower#2798: a client that holds half of the examples, noise for one of ten."""
    bracket = wpriv.budget("gauss", **WEIGHTED, largest_weight=5).epsilon
    assert 5.67891 <= bracket.lower <= bracket.safe <= 5.67893
    assert bracket == wpriv.budget("gauss", **{**WEIGHTED, "noise_multiplier": 0.8}).epsilon
    laplace = wpriv.budget("laplace", scale=10, sensitivity=2, largest_weight=3, delta=0).epsilon
    assert laplace.safe == pytest.approx(0.6, rel=1e-12)


def test_the_noise_for_the_largest_weight_is_solved_for():
    heavy = wpriv.calibrate("gauss", n=1000, min_separation=50, largest_weight=3, eps=2, delta=1e-8)
    plain = wpriv.calibrate("gauss", n=20, eps=2, delta=1e-8)
    assert heavy.value == pytest.approx(3 * plain.value, rel=1e-6)


def test_rounds_and_clients_are_words_for_steps_and_records():
    words = {"rounds": 20, "clients": 100, "clients_per_round": 10}
    others = {key: value for key, value in WEIGHTED.items() if key not in ("n", "batch", "records")}
    assert wpriv.budget("gauss", **others, **words).epsilon == wpriv.budget("gauss", **WEIGHTED).epsilon


def test_a_sweep_goes_over_separation_and_weight():
    rows = wpriv.compare(
        process=[{"mech": "gauss", "sigma": 20, "n": 100}],
        delta=1e-8,
        sweep=[{"over": "min_separation", "values": [10, 50]}, {"over": "largest_weight", "values": [1, 2]}],
        accountants=["pld"],
    ).rows
    assert len(rows) == 4
    for row in rows:
        count, weight = 100 // row["min_separation"], row["largest_weight"]
        assert gauss_delta(row["epsilon"], weight * math.sqrt(count) / 20) == pytest.approx(1e-8, rel=1e-4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mech": "gauss", "sigma": 4, "n": 10, "min_separation": 2, "sampling": "poisson", "rate": 0.1}, "no proof"),
        ({"mech": "gauss", "sigma": 4, "min_separation": 2}, "without `n`"),
        ({"mech": "gauss", "sigma": 4, "n": 10, "min_separation": 0}, "at least 1"),
        ({"mech": "matrix-gauss", "sigma": 4, "strategy": "root:n=8", "min_separation": 2}, "matrix-gauss"),
        ({"mech": "dp", "eps0": 1, "largest_weight": 2}, "sensitivity"),
        ({"mech": wpriv.Gauss(4), "largest_weight": 2}, "by name"),
        ({"mech": "gauss", "sigma": 4, "largest_weight": 0}, "greater than 0"),
    ],
)
def test_what_has_no_meaning_is_refused(given, words):
    with pytest.raises(UsageError, match=words):
        wpriv.budget(**given, delta=1e-6)
