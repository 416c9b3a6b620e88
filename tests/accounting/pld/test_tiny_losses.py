"""Brackets where a step's loss is as small as the rounding of a probability, or as large as its inverse.

Oracle: ``benchmarks.loss_oracle``, inverse Laplace transforms of quadratures along two paths; and closed
forms of two outcomes.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import inverse_transform
from benchmarks import loss_oracle as oracle
from benchmarks.truth import check, random_job
from wpriv import DiscreteGauss, DiscreteLaplace, FixedSize, Gauss, Laplace, Poisson, budget, verify_claim
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGaussPair
from wpriv.core.subsampled_pairs import ReplacedGaussPair, fixed, poisson


@pytest.fixture(autouse=True, scope="module")
def _quick_oracle():
    """Leave jobs undecided that need paths of 256 bits, which take half a minute."""

    def refuse(*_arguments):
        raise inverse_transform.NoTruthError("only paths of 256 bits would decide")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inverse_transform, "_along_exactly", refuse)
        yield


# delta at eps, from Edgeworth expansions and Fourier inversion with 50 digits, to the digits given
EXAMINED = [
    (3e-14, 2_000_000_000, 3.9e-9, 8.17712e-12),
    (4e-13, 4_500_000_000, 8.7e-8, 7.65347e-11),
]


@pytest.mark.parametrize(("rate", "n", "eps", "truth"), EXAMINED)
def test_delta_of_tiny_rates_and_billions_of_steps_is_certified(rate, n, eps, truth):
    delta = budget(Gauss(sigma=1.0), sampling=Poisson(rate), n=n, eps=eps).delta
    assert delta.lower <= truth * (1 + 1e-5)
    assert delta.upper >= truth * (1 - 1e-5)
    assert delta.upper - delta.lower < 1e-4 * delta.upper


@pytest.mark.parametrize(
    ("mechanism", "sampling", "n", "delta"),
    [
        (Gauss(sigma=1.0), Poisson(1e-12), 10**9, 1e-12),
        (Gauss(sigma=1.0), Poisson(1e-11), 10**10, 1e-10),
        (Laplace(scale=1.0), Poisson(1e-12), 10**9, 1e-10),
    ],
)
def test_eps_of_tiny_rates_and_billions_of_steps_is_certified(mechanism, sampling, n, delta):
    eps = budget(mechanism, sampling=sampling, n=n, delta=delta).epsilon
    if isinstance(mechanism, Laplace):
        steps = [oracle.laplace(sampling.rate, 1.0, kind) for kind in ("remove", "add")]
    else:
        steps = data_sets(sampling.rate, n, delta)

    def curve(at: float) -> float:
        return max(step.delta(n, at) for step in steps)

    assert oracle.eps_brackets(curve, delta, eps.lower, eps.upper) == ""
    assert eps.upper - eps.lower < 1e-4 * eps.upper


def data_sets(rate: float, n: int, delta: float) -> list[inverse_transform.Step]:
    return [oracle.poisson_gauss(rate, 1.0, order, oracle.reach_of(n, delta)) for order in ("remove", "add")]


@pytest.mark.parametrize("eps", [1.33e-9, 1e-7])
def test_each_end_under_fixed_size_at_a_tiny_rate_is_as_narrow_as_its_own_pair(eps):
    # the upper end is that of the pair that bounds all neighbours, the lower one that of two data sets
    rate, n = 1e-12, 10**9
    delta = budget(Gauss(sigma=1.0), sampling=FixedSize(rate), n=n, eps=eps).delta
    above = oracle.fixed_gauss(rate, 1.0, oracle.reach_of(n, 1e-12)).delta(n, eps)
    below = max(step.delta(n, eps) for step in data_sets(rate, n, 1e-12))
    assert above * (1 - 1e-9) <= delta.upper <= above * (1 + 1e-3)
    assert below * (1 - 1e-3) <= delta.lower <= below * (1 + 1e-9)


@pytest.mark.nightly
def test_a_claim_far_below_delta_is_refuted_at_a_tiny_rate():
    refuted = verify_claim("eps=3.9e-9,delta=1e-15", "gauss", sigma=1, sampling="poisson", rate=3e-14, n=2 * 10**9)
    assert refuted.verdict == "refuted"
    proved = verify_claim("eps=3.9e-9,delta=1e-11", "gauss", sigma=1, sampling="poisson", rate=3e-14, n=2 * 10**9)
    assert proved.verdict == "proved"


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), tiny=st.booleans())
def test_no_random_job_is_false(seed, tiny):
    verdict, why = check(random_job(random.Random(seed), tiny=tiny))
    assert verdict not in ("false", "exit 70"), why


@pytest.mark.parametrize("sampling", [Poisson(0.25), FixedSize(0.25)])
@pytest.mark.parametrize("mechanism", [DiscreteGauss, DiscreteLaplace])
@pytest.mark.parametrize("noise", [1e-12, 6e-9, 1e-8, 1e-7, 1e-5])
def test_discrete_noise_that_hides_nothing_has_the_delta_of_the_rate(mechanism, sampling, noise):
    # oracle: the two outcomes differ whenever the record takes part, whatever the noise adds
    for n in (1, 3):
        delta = budget(mechanism(noise), sampling=sampling, n=n, eps=1.0).delta
        truth = 1 - 0.75**n if sampling.kind == "poisson" else None
        assert delta.lower <= delta.upper
        if truth is not None or n == 1:
            assert delta.upper == pytest.approx(truth or 0.25, rel=1e-12)
            assert delta.lower == pytest.approx(truth or 0.25, rel=1e-6)


def test_verify_and_budget_have_one_delta_next_to_the_largest_loss():
    # oracle: 1 - e^((eps - 1/3)/2) with the double that 0.333333333333 is
    eps = 0.333333333333
    truth = -math.expm1(-float(1 - 3 * inverse_transform.arb(eps)) / 6)
    decision = verify_claim(f"eps={eps}", "laplace", scale=3)
    delta = budget(Laplace(scale=3.0), eps=eps).delta
    assert decision.verdict == "refuted"
    assert decision.delta.upper == delta.upper == pytest.approx(truth, rel=1e-12)
    assert verify_claim("eps=0.1", "laplace", scale=10).verdict == "proved"


PAIRS = [
    GaussPair(1.0),
    LaplacePair(0.7),
    poisson(GaussPair(1.0), 0.3),
    poisson(GaussPair(1.0), 0.2).reverse(),
    poisson(LaplacePair(1.0), 1e-3),
    fixed(GaussPair(1.0), 1e-3),
    fixed(LaplacePair(1.0), 0.2),
    ReplacedGaussPair(GaussPair(1.0), 1.0, 0.1),
    TruncatedGaussPair(0.5, 3.0),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: type(pair).__name__)
def test_the_parts_of_cells_agree_with_differences_of_tails(pair):
    # cells so wide that the differences keep their digits
    low = np.linspace(-0.27, 0.24, 18)
    high = low + 0.03
    parts = pair.cell_parts(low, high)
    start, end = pair.probabilities(low), pair.probabilities(np.nextafter(high, -np.inf))
    p, q = start.sf_p - end.sf_p, start.sf_q - end.sf_q
    known = np.isfinite(parts.above)
    assert known.sum() > 5
    np.testing.assert_allclose(parts.above[known], (p - np.exp(low) * q)[known], rtol=1e-6, atol=4e-16)
    np.testing.assert_allclose(parts.below[known], (np.exp(high) * q - p)[known], rtol=1e-6, atol=4e-16)
    np.testing.assert_allclose(parts.mass(high - low)[known], p[known], rtol=1e-6, atol=1e-12)
