"""Certificates where no finite loss exceeds eps, or where delta is tiny: the simplest proofs."""

from __future__ import annotations

import json

import pytest

import wpriv
from wpriv.accounting.certificates import of_guarantee
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
from wpriv.accounting.mechanisms.dp import Dp
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.verify import certificate, prove


def proofs(row, **changes):
    data = {**of_guarantee(row, 1e-9), **changes}
    return [proof.verdict for proof in prove.verify(certificate.read(json.dumps(data)), thorough=bool(changes))]


@pytest.mark.parametrize(
    ("mechanism", "given"),
    [
        (Laplace(3.0), {"n": 3, "eps": 1}),  # n / scale is no double
        (Laplace(20.0), {"n": 3, "eps": 0.15}),
        (Laplace(2.0), {"n": 3, "eps": 7, "group": 4}),
        (Laplace(1.0), {"n": 3, "eps": 3.2, "sampling": "poisson", "rate": 0.1}),
        (Laplace(1.0), {"n": 3, "eps": 0.53, "sampling": "poisson", "rate": 0.1}),
        (Laplace(1.0), {"n": 3, "eps": 3.2, "sampling": "fixed", "rate": 0.1}),
        (DiscreteLaplace(5.0, 2), {"n": 2, "eps": 0.8}),
        (Dp(1.0, 0.0), {"n": 5, "eps": 5}),
        (Dp(1.0, 1e-7), {"n": 5, "eps": 5}),
    ],
)
def test_at_the_sum_of_the_largest_losses_delta_is_the_mass_of_infinite_ones(mechanism, given):
    row = wpriv.budget(mechanism, **given)
    assert row.delta.safe == pytest.approx(1 - (1 - getattr(mechanism, "delta0", 0.0)) ** 5, rel=1e-6)
    assert proofs(row) == ["proved", "proved"]


def test_delta_0_below_the_sum_of_the_largest_losses_is_not_proved():
    row = wpriv.budget(Laplace(3.0), n=3, eps=1)
    assert proofs(row, epsilon_lower=0.999, epsilon_upper=0.999)[0] != "proved"


@pytest.mark.parametrize(
    ("mechanism", "given"),
    [
        (Gauss(1.0), {"eps": 22.4}),
        (Gauss(1.0), {"eps": 22.4, "sampling": "poisson", "rate": 0.1}),
        (DiscreteGauss(5.0), {"eps": 5.0}),
        (Gauss(50.0), {"delta": 1e-107}),
        (Laplace(2.0), {"n": 3, "delta": 1e-107}),
    ],
)
def test_a_tiny_delta_has_a_certificate(mechanism, given):
    row = wpriv.budget(mechanism, **given)
    assert row.delta.safe < 1e-100
    assert proofs(row) == ["proved", "proved"]
