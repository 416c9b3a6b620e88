"""The pld accountant: closed forms, both orders of the neighbours, and comparison with other programs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests import oracles
from wpriv.accounting.accountants.pld import account
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
from wpriv.accounting.mechanisms.gauss import Gauss, GaussPair
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGauss
from wpriv.accounting.mechanisms.truncated_laplace import TruncatedLaplace
from wpriv.accounting.mechanisms.uniform import Uniform
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError


def sgd(q: float, sigma: float, n: int) -> Process:
    return Process((Step(Gauss(sigma), n, Sampling("poisson", q)),))


@pytest.mark.parametrize(
    ("sigma", "n", "delta"), [(5.0, 1, 1e-5), (100.0, 1000, 1e-15), (9e5, 2**22, 1e-4), (40.0, 256, 1e-58)]
)
def test_gauss_is_exact(sigma, n, delta):
    # oracle: the lattice path on the same pair, which must bracket the closed form
    from wpriv.accounting.pld.composition import Composition

    row = account(Process((Step(Gauss(sigma), n),))).at(delta=delta)
    assert row.claim == "exact"
    assert row.epsilon.upper * (1 - 1e-11) < row.epsilon.lower < row.epsilon.upper == row.epsilon.estimate
    low, high = Composition([(GaussPair(1 / sigma), n)]).epsilon(delta, 1e-4)
    assert low <= row.epsilon.estimate * (1 + 1e-10)
    assert row.epsilon.estimate <= high * (1 + 1e-10)


@pytest.mark.parametrize(
    ("step", "eps", "delta"),
    [
        # (1 - 1/10)^4, and the corrected Example 1 (golden 002-unif-0, 002-arr-1)
        (Step(Uniform(outcomes=10), 4), 0.0, 0.3439),
        (Step(RandomizedResponse(eps0=0.5, delta0=0.01), 10), 1.0, 0.39558199961802270737939),
    ],
)
def test_other_closed_forms_are_exact(step, eps, delta):
    row = account(Process((step,))).at(eps=eps)
    assert row.claim == "exact"
    assert row.delta.estimate == pytest.approx(delta, rel=1e-12)


def test_both_orders_of_the_neighbours_are_accounted_for():
    # oracle: inversion for either order; removing costs more at this eps, and the bracket holds the larger
    process = sgd(0.01, 4, 65536)
    row = account(process).at(eps=1.0)
    removed = oracles.contour_delta([(oracles.poisson_gauss(0.01, 0.25, "remove"), 65536)], 1.0)
    added = oracles.contour_delta([(oracles.poisson_gauss(0.01, 0.25, "add"), 65536)], 1.0)
    assert removed > added
    assert row.delta.lower <= removed <= row.delta.upper
    assert row.delta.lower > added
    assert row.delta.upper - row.delta.lower <= 1e-3 * row.delta.upper


def test_fixed_size_batches_are_accounted_for_under_replace_one():
    # golden 003-cp-0: delta of C_p(G_{1/sigma})^T at eps 1
    process = Process((Step(Gauss(18.162678), 500, Sampling("fixed", 0.2)),))
    row = account(process).at(eps=1.0)
    assert process.adjacency == "replace-one"
    assert row.delta.lower <= 3.074941703905587e-6 <= row.delta.upper


@pytest.mark.slow
def test_different_steps_compose():
    # oracle: inversion, where ln M of the steps add up
    process = Process((Step(Gauss(1.0), 200, Sampling("poisson", 0.01)), Step(Gauss(30.0), 50)))
    row = account(process).at(delta=1e-6)
    steps = [(oracles.poisson_gauss(0.01, 1.0, "remove"), 200), (oracles.gauss(1 / 30), 50)]
    eps = oracles.contour_eps(steps, 1e-6)
    assert row.epsilon.lower <= eps * (1 + 1e-9)
    assert eps <= row.epsilon.upper * (1 + 1e-9)


def test_the_estimate_is_closer_than_the_ends():
    for eps in (0.5, 1.0, 2.0):
        delta = account(sgd(0.01, 4, 65536), tol=1e-2).at(eps=eps).delta
        exact = oracles.contour_delta([(oracles.poisson_gauss(0.01, 0.25, "remove"), 65536)], eps)
        assert abs(delta.estimate - exact) <= 0.35 * (delta.upper - delta.lower)


MECHANISMS = [
    (Gauss(1.3), "poisson", 0.02),
    (Gauss(1.3), "fixed", 0.02),
    (Laplace(2.0), "none", 1.0),
    (Laplace(2.0), "poisson", 0.05),
    (Laplace(2.0), "fixed", 0.05),
    (RandomizedResponse(eps0=0.5), "poisson", 0.1),
    (DiscreteGauss(sigma=6.0), "none", 1.0),
    (DiscreteLaplace(scale=9.0, sensitivity=2), "none", 1.0),
    (TruncatedGauss(sigma=4.0, bound=24.0), "none", 1.0),
    (TruncatedLaplace(scale=4.0, bound=90.0), "none", 1.0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "kind", "rate"), MECHANISMS, ids=lambda x: getattr(x, "name", str(x)))
def test_rows_are_ordered_and_answer_each_other(mechanism, kind, rate):
    curve = account(Process((Step(mechanism, 60, Sampling(kind, rate)),)))
    row = curve.at(delta=1e-4)
    assert row.claim in ("certified", "exact")
    assert 0 <= row.epsilon.lower <= row.epsilon.estimate <= row.epsilon.upper < math.inf
    assert row.epsilon.upper - row.epsilon.lower <= 1e-3 * row.epsilon.upper
    back = curve.at(eps=row.epsilon.upper)
    assert back.delta.lower <= 1e-4 * (1 + 1e-9)
    assert curve.at(eps=row.epsilon.lower).delta.upper >= 1e-4 * (1 - 1e-9)
    more = account(Process((Step(mechanism, 120, Sampling(kind, rate)),))).at(delta=1e-4)
    assert more.epsilon.upper >= row.epsilon.lower


def test_a_row_is_plain_data():
    row = account(sgd(0.01, 2.0, 100)).at(delta=1e-5).as_dict()
    text = json.loads(json.dumps(row))
    assert text["claim"] == "certified"
    assert text["epsilon_lower"] <= text["epsilon"] <= text["epsilon_upper"]


def test_questions_out_of_range_are_refused():
    curve = account(sgd(0.01, 2.0, 100))
    for question in ({"eps": -1.0}, {"eps": math.nan}, {"delta": -0.1}, {"delta": 1.0}, {}):
        with pytest.raises(UsageError):
            curve.at(**question)
    with pytest.raises(Unsupported, match="no finite eps at delta = 0"):
        curve.at(delta=0.0)
    with pytest.raises(Unsupported):
        account(Process((Step(Gauss(1e-3), 10**6, Sampling("poisson", 0.9)),))).at(delta=1e-5)


# other programs, where they are installed: their pessimistic figures are upper bounds of the same values
SGD_TWICE = ((0.01, 4.0, 65536), (0.01, 1.0, 1000), (0.1, 2.0, 300))
SGD_ONCE = ((1e-3, 0.7, 10**5), (0.5, 5.0, 100), (256 / 60000, 1.1, 14040), (0.02, 0.5, 50))
DP_JOBS = [
    *((Gauss(sigma), "poisson", q, n, delta) for q, sigma, n in SGD_TWICE for delta in (1e-3, 1e-6)),
    *((Gauss(sigma), "poisson", q, n, 1e-5) for q, sigma, n in SGD_ONCE),
    *(
        (Gauss(sigma), "none", 1.0, n, delta)
        for sigma, n in ((100.0, 1000), (2.0, 1), (1.0, 10))
        for delta in (1e-2, 1e-9)
    ),
    *((Laplace(b), "none", 1.0, n, delta) for b, n in ((20.0, 1000), (1.0, 3), (3.0, 40)) for delta in (1e-2, 1e-7)),
    *((Laplace(b), "poisson", q, n, 1e-5) for b, q, n in ((1.0, 0.01, 1000), (0.5, 0.1, 50))),
    *((DiscreteGauss(sigma=s), "none", 1.0, n, 1e-5) for s, n in ((3.0, 10), (20.0, 500))),
    *((DiscreteLaplace(scale=b), "none", 1.0, n, 1e-5) for b, n in ((2.0, 5), (15.0, 300))),
    *((RandomizedResponse(eps0=e), "none", 1.0, n, 1e-5) for e, n in ((0.5, 30), (0.05, 2000))),
]


def dp_accounting_eps(mechanism, kind: str, q: float, n: int, delta: float) -> float:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    grid = {"value_discretization_interval": 1e-3 if n < 500 else 1e-4, "sampling_prob": q}
    if isinstance(mechanism, Gauss):
        one = pld.from_gaussian_mechanism(mechanism.sigma, **grid)
    elif isinstance(mechanism, Laplace):
        one = pld.from_laplace_mechanism(mechanism.scale, **grid)
    elif isinstance(mechanism, DiscreteGauss):
        one = pld.from_discrete_gaussian_mechanism(mechanism.sigma, **grid)
    elif isinstance(mechanism, DiscreteLaplace):
        one = pld.from_discrete_laplace_mechanism(1 / mechanism.scale, **grid)
    else:
        flip = 2 / (1 + math.exp(mechanism.eps0))
        one = pld.from_randomized_response(flip, 2, value_discretization_interval=grid["value_discretization_interval"])
    return one.self_compose(n).get_epsilon_for_delta(delta)


def test_there_are_thirty_jobs_to_compare():
    assert len(DP_JOBS) >= 30


@pytest.mark.parametrize("job", DP_JOBS, ids=lambda job: f"{job[0].name}-{job[1]}-{job[3]}-{job[4]:g}")
def test_dp_accounting_never_promises_more_than_our_lower_end(job):
    mechanism, kind, q, n, delta = job
    upper = dp_accounting_eps(*job)
    ours = account(Process((Step(mechanism, n, Sampling(kind, q)),))).at(delta=delta).epsilon
    assert upper >= ours.lower * (1 - 1e-9)
    # and ours is tight: no larger than a pessimistic bound
    assert ours.upper <= upper * (1 + 1.5e-3)


@pytest.mark.parametrize(("q", "sigma", "n"), [(0.01, 1.0, 500), (0.05, 2.0, 200), (0.001, 0.8, 5000), (0.3, 4.0, 100)])
def test_prv_accountant_agrees_within_its_own_interval(q, sigma, n):
    prv = pytest.importorskip("prv_accountant")
    mechanism = prv.PoissonSubsampledGaussianMechanism(noise_multiplier=sigma, sampling_probability=q)
    their = prv.PRVAccountant(prvs=[mechanism], max_self_compositions=[n], eps_error=0.1, delta_error=1e-9)
    low, _, high = their.compute_epsilon(1e-5, [n])
    ours = account(sgd(q, sigma, n)).at(delta=1e-5).epsilon
    assert ours.lower <= high
    assert low <= ours.upper


def test_the_curve_does_not_depend_on_the_order_of_questions():
    """Answers are cached and reused; each must remain a bracket of the same value."""
    curve, fresh = account(sgd(0.02, 1.5, 2000)), account(sgd(0.02, 1.5, 2000))
    deltas = [curve.at(eps=eps).delta for eps in (0.5, 3.0, 0.5, 1.0)]
    for eps, delta in zip((0.5, 3.0, 0.5, 1.0), deltas, strict=True):
        exact = oracles.contour_delta([(oracles.poisson_gauss(0.02, 1 / 1.5, "remove"), 2000)], eps)
        assert delta.lower <= exact * (1 + 1e-9)
        assert exact <= delta.upper * (1 + 1e-9)
    assert np.isclose(fresh.at(eps=1.0).delta.estimate, deltas[-1].estimate, rtol=1e-3)
