"""Tables of the figures of Sommer, Meiser, Mohammadi (2019): output distributions, and buckets of the privacy loss."""

from __future__ import annotations

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wpriv.errors import UsageError
from wpriv.papers.tables import _declared


def gauss_delta(eps, mu):
    """Balle and Wang (2018), Theorem 8, in mpmath."""
    with mpmath.workdps(40):
        eps, mu = mpmath.mpf(eps), mpmath.mpf(mu)
        return float(mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu))


def deltas(**params):
    exact, above, below = (row["delta"] for row in _declared.BucketDrift(**params).rows())
    return exact, above, below


@given(st.floats(0.3, 1e6), st.integers(0, 12), st.floats(0, 4))
def test_buckets_from_both_sides_hold_the_exact_delta(sigma, doublings, share):
    n = 2**doublings
    mu = n**0.5 / sigma
    eps = share * mu
    exact, above, below = deltas(sigma=sigma, n=n, epsilon=eps, cells=1000)
    reference = gauss_delta(eps, mu)
    assert exact == pytest.approx(reference, rel=1e-9, abs=1e-300)
    assert below - 1e-11 <= reference <= above + 1e-11


def test_buckets_are_tight_for_few_releases_and_drift_as_they_grow_in_number():
    widths = []
    for doublings in (0, 8, 16, 22):
        exact, above, below = deltas(sigma=900000.0, n=2**doublings, cells=20000)
        widths.append((above - below) / exact)
    assert widths == sorted(widths)
    assert widths[0] < 2e-3
    assert widths[-1] > 0.5


@pytest.mark.parametrize("params", [{"n": 3}, {"cells": 101}])
def test_buckets_refuse_what_doubling_does_not_reach(params):
    with pytest.raises(UsageError, match=next(iter(params))):
        _declared.BucketDrift(**params).rows()


@given(st.integers(2, 30), st.integers(-20, 20), st.data())
def test_outputs_of_uniform_noise_overlap_in_all_but_the_shifted_outcomes(outcomes, least, data):
    shift = data.draw(st.integers(1, outcomes - 1))
    rows = _declared.UniformOutputs(outcomes=outcomes, sensitivity=shift, least=least).rows()
    first, second = ({r["outcome"]: r["probability"] for r in rows if r["case"] == c} for c in _declared.INPUTS)
    assert sum(first.values()) == pytest.approx(1)
    assert sum(second.values()) == pytest.approx(1)
    identifying = [x for x, share in first.items() if share > 0 and second[x] == 0]
    assert identifying == list(range(least, least + shift))


def test_inputs_without_a_common_outcome_are_refused():
    with pytest.raises(UsageError, match="no outcome in common"):
        _declared.UniformOutputs(outcomes=2, sensitivity=2).rows()
