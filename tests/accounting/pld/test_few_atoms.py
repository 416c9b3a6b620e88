"""Compositions of steps of few atoms, against sums over the counts of each outcome in 60 digits."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
from wpriv.accounting.pld import composition
from wpriv.accounting.pld.composition import Composition
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.subsampled_pairs import poisson
from wpriv.numerics import counted_work


def exact_delta(p: list[mpmath.mpf], q: list[mpmath.mpf], n: int, eps: mpmath.mpf) -> mpmath.mpf:
    """The sum of (P - e^eps Q)_+ over how often each of a few outcomes occurs in n releases."""
    total = mpmath.mpf(0)
    for places in itertools.combinations(range(n + len(p) - 1), len(p) - 1):
        ends = [-1, *places, n + len(p) - 1]
        counts = [b - a - 1 for a, b in itertools.pairwise(ends)]
        ways = math.factorial(n) // math.prod(math.factorial(count) for count in counts)
        masses = (mpmath.fprod(x**count for x, count in zip(side, counts, strict=True)) for side in (p, q))
        one, other = masses
        total += ways * max(one - mpmath.e**eps * other, 0)
    return total


def sampled_noise(log_weight: float, rate: float, reach: int) -> tuple[list[mpmath.mpf], list[mpmath.mpf]]:
    """P and Q of discrete noise with weights e^(log_weight k^2) on k = -reach, ..., reach + 1, sampled at a rate."""
    ks = range(-reach, reach + 2)
    total = mpmath.nsum(lambda k: mpmath.exp(log_weight * k * k), [-reach - 3, reach + 3])
    q = [mpmath.exp(log_weight * k * k) / total for k in ks]
    p = [mpmath.exp(log_weight * (k - 1) ** 2) / total for k in ks]
    return [(1 - mpmath.mpf(rate)) * b + mpmath.mpf(rate) * a for a, b in zip(p, q, strict=True)], q


@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-9])
def test_discrete_noise_far_below_one_is_certified_at_any_delta(delta, monkeypatch):
    # oracle: with sigma = 0.01 noise other than 0 has probability e^-5000, so that only the number of sampled steps
    # counts
    monkeypatch.setattr(composition, "METHODS", ())
    pair = poisson(DiscreteGauss(sigma=0.01).pair(), 0.001)
    start = counted_work.total()
    low, high = Composition([(pair, 300)]).epsilon(delta, 1e-6)
    assert counted_work.total() - start < 0.5e9
    with mpmath.workdps(60):
        p, q = sampled_noise(-5000.0, 0.001, 0)

        def at(eps: float) -> mpmath.mpf:
            return exact_delta(p, q, 300, mpmath.mpf(eps))

        assert high - low <= 1e-6 * high
        assert at(low * (1 - 1e-12)) >= delta >= at(high * (1 + 1e-12))


def test_a_loss_that_is_practically_constant_has_a_narrow_answer():
    # oracle: adding a record, the loss of each step is -ln(1 - q), but for a probability of e^-5000
    run = Composition([(poisson(DiscreteGauss(sigma=0.01).pair(), 0.001).reverse(), 300)])
    total = -300 * math.log1p(-0.001)
    for eps in (0.0, 0.1, 0.3):
        low, high = run.delta(eps, 1e-6)
        assert low * (1 - 1e-9) <= -math.expm1(eps - total) <= high * (1 + 1e-9) <= low * (1 + 1e-8)
    low, high = run.epsilon(0.1, 1e-6)
    assert low * (1 - 1e-9) <= total + math.log1p(-0.1) <= high * (1 + 1e-9) <= low * (1 + 1e-6)


@pytest.mark.parametrize("order", ["remove", "add"])
@pytest.mark.parametrize(("mechanism", "rate"), [(DiscreteGauss(sigma=0.3), 0.1), (DiscreteGauss(sigma=0.2), 0.01)])
def test_sampled_discrete_noise_agrees_with_the_counts_of_all_outcomes(order, mechanism, rate):
    pair = poisson(mechanism.pair(), rate)
    run = Composition([(pair if order == "remove" else pair.reverse(), 5)])
    with mpmath.workdps(60):
        p, q = sampled_noise(-1 / (2 * mechanism.sigma**2), rate, 2)
        ends = (p, q) if order == "remove" else (q, p)
        for eps in (0.0, 0.01, 0.5, 3.0, 9.0):
            exact = exact_delta(*ends, 5, mpmath.mpf(eps))
            low, high = run.delta(eps, 1e-6)
            # the oracle leaves out noise beyond 2, of a probability below 5 e^-50
            assert low <= exact + 1e-15
            assert exact <= high * (1 + 1e-12) + 1e-15
            assert high - low <= 2e-6 * high + 1e-14


def test_random_pairs_agree_with_the_counts_of_all_outcomes():
    rng, failures = np.random.default_rng(5), []
    for _ in range(40):
        atoms, n = int(rng.integers(2, 5)), int(rng.integers(2, 9))
        p, q = (rng.dirichlet(np.full(atoms, 10.0 ** rng.uniform(-1.5, 1))) + 1e-9 for _ in range(2))
        p, q = p / p.sum(), q / q.sum()
        pair = AtomicPair(np.log(p) - np.log(q), np.log(p), log_q=np.log(q))
        eps = float(rng.uniform(0, 3))
        with mpmath.workdps(40):
            exact = exact_delta([*map(mpmath.mpf, p)], [*map(mpmath.mpf, q)], n, mpmath.mpf(eps))
        low, high = Composition([(pair, n)]).delta(eps, 1e-5)
        if not low * (1 - 1e-12) <= exact <= high * (1 + 1e-12) or high - low > 1e-4 * high + 1e-14:
            failures.append((p, q, n, eps, low, high, exact))
    assert not failures


@pytest.mark.parametrize(
    ("mechanism", "rate", "n"),
    [(DiscreteGauss(sigma=0.05), 0.01, 10_000), (DiscreteGauss(sigma=0.01), 0.1, 300),
     (DiscreteLaplace(scale=0.01), 0.01, 10_000)],
)  # fmt: skip
@pytest.mark.parametrize("delta", [0.2, 1e-6])
def test_many_steps_of_tiny_discrete_noise_are_narrow_with_little_work(mechanism, rate, n, delta):
    start = counted_work.total()
    low, high = Composition([(poisson(mechanism.pair(), rate), n)]).epsilon(delta, 1e-3)
    assert 0 < low <= high <= 1.001 * low
    assert counted_work.total() - start < 0.6e9
