"""delta next to a large loss, and small losses beside large ones, against closed forms and sums with 60 digits."""

from __future__ import annotations

import random

import mpmath
import pytest

from wpriv import DiscreteGauss, DiscreteLaplace, Laplace, Poisson, Process, RandomizedResponse, Step, budget
from wpriv.core.loss_pair import log_profile_ends
from wpriv.core.subsampled_pairs import poisson


def discrete_gauss(sigma, eps):
    """delta of one release of sensitivity 1 from the definition of the noise."""
    size = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) for k in range(-40, 42)]
    total = mpmath.fsum(size[:-1])
    terms = [p - mpmath.exp(eps) * q for q, p in zip(size[1:], size, strict=False)]
    return mpmath.fsum(max(term, 0) for term in terms) / total


@pytest.mark.parametrize("eps", [0.4, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("noise", [1e-7, 1e-9, 1e-12])
def test_small_losses_remain_what_they_are_beside_a_huge_one(noise, eps):
    """Oracle: with probability q the second step reveals all, else its loss is ln(1-q); the first by its definition.

    Where the record is added, no outcome reveals it, and every loss of the second step is -ln(1-q).
    """
    q = 1e-6
    steps = (Step(DiscreteGauss(1.0)), Step(DiscreteGauss(noise), sampling=Poisson(q)))
    delta = budget(Process(steps), eps=eps).delta
    with mpmath.workdps(60):
        rest = 1 - mpmath.mpf(q)
        log_rest = mpmath.log(rest)
        truth = max(q + rest * discrete_gauss(1.0, eps - log_rest), discrete_gauss(1.0, eps + log_rest))
        assert delta.lower <= truth * (1 + 1e-12)
        assert delta.upper >= truth * (1 - 1e-12)
    assert delta.upper - delta.lower <= 1e-9 * delta.upper


def test_eps_of_small_losses_beside_a_huge_one_is_no_zero():
    """Oracle: dropping a step is post-processing."""
    process = Process((Step(DiscreteGauss(1.0)), Step(DiscreteGauss(1e-9), sampling=Poisson(1e-6))))
    assert budget(process, delta=1e-3).epsilon.lower >= budget(DiscreteGauss(1.0), delta=1e-3).epsilon.lower * 0.9999


def holds(delta, truth):
    return delta.lower <= truth * (1 + mpmath.mpf(10) ** -12) and delta.upper >= truth * (1 - mpmath.mpf(10) ** -12)


def test_delta_next_to_the_largest_loss_holds_the_truth():
    """Oracle: closed forms of Laplace noise at distance t, of its sampling, and of discrete Laplace noise."""
    rng = random.Random(5)
    with mpmath.workdps(60):
        for _ in range(60):
            scale, q = 10 ** rng.uniform(-8, 6), 10 ** rng.uniform(-12, -0.01)
            gap, t = mpmath.mpf(10) ** rng.uniform(-14, -1), 1 / mpmath.mpf(scale)
            eps = float(t * (1 - gap))
            assert holds(budget(Laplace(scale), eps=eps).delta, max(-mpmath.expm1((eps - t) / 2), 0))
            share = 1 / (1 + mpmath.exp(-t))
            whole = share * max(-mpmath.expm1(mpmath.mpf(eps) - t), 0)
            assert holds(budget(DiscreteLaplace(scale), eps=eps).delta, whole)
            eps = float(mpmath.log(1 - q + q * mpmath.exp(t)) * (1 - gap))
            base = mpmath.log((mpmath.expm1(eps) + q) / mpmath.mpf(q))
            truth = q * max(-mpmath.expm1((base - t) / 2), 0)
            for sampling in ("poisson", "fixed"):
                assert holds(budget(Laplace(scale), sampling=sampling, rate=q, eps=eps).delta, truth)


@pytest.mark.parametrize("n", [2, 5, 40])
def test_delta_of_answers_next_to_their_largest_loss_holds_the_truth(n):
    """Oracle: the binomial sum."""
    rng = random.Random(n)
    with mpmath.workdps(60):
        for _ in range(40):
            eps0 = 10 ** rng.uniform(-6, 2)
            eps = float(n * mpmath.mpf(eps0) * (1 - mpmath.mpf(10) ** rng.uniform(-13, -3)))
            share = 1 / (1 + mpmath.exp(-mpmath.mpf(eps0)))
            terms = [
                mpmath.binomial(n, k)
                * share**k
                * (1 - share) ** (n - k)
                * max(-mpmath.expm1(eps - mpmath.mpf(eps0) * (2 * k - n)), 0)
                for k in range(n + 1)
            ]
            assert holds(budget(RandomizedResponse(eps0), n=n, eps=eps).delta, mpmath.fsum(terms))


def test_ends_are_one_number_where_rounding_is_negligible():
    for pair in (DiscreteLaplace(1.0).pair(), poisson(DiscreteLaplace(0.3).pair(), 0.1)):
        low, high = log_profile_ends(pair, 0.1)
        assert low == high


def test_a_bound_of_renyi_divergences_next_to_the_largest_loss_holds_delta():
    """Oracle: the pair that bounds all neighbours, the losses of its outcomes added up with 50 digits."""
    answer = budget(
        "discrete-laplace",
        sensitivity=1000,
        scale=0.37509610743736677,
        n=3,
        sampling="fixed",
        rate=0.6817033479526848,
        eps=7996.800743265236,
    )
    assert answer.delta.upper >= 2.0707170356e-06
