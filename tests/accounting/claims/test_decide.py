"""Verdicts on claims: proved and refuted against closed forms, never contradicted by the truth."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from tests import nightly
from wpriv.accounting import evaluate
from wpriv.accounting.claims.decide import decide
from wpriv.accounting.claims.decision import Question
from wpriv.accounting.claims.loss_threshold import trials_needed
from wpriv.accounting.claims.verify_claim import decide_readings
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.dp import Dp
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.mechanisms.zcdp import Zcdp
from wpriv.config.plain_words import Claim, parse_claim
from wpriv.core.kinds import Allocation, FixedSize, Poisson, Shuffle
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported
from wpriv.papers.mechanisms.projection import Projection
from wpriv.papers.mechanisms.wgrad import Wgrad


def one(mechanism, n=1, **more):
    return Process((Step(mechanism, n, **more),))


def verdict(claim, process, **more):
    return decide(Question(parse_claim(claim), process, simulated=False, **more)).verdict


def gauss_delta(eps, mu):
    """Balle and Wang 2018, Theorem 8, in mpmath."""
    with mpmath.workdps(50):
        eps, mu = mpmath.mpf(eps), mpmath.mpf(mu)
        return mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.05, 3), st.floats(0, 5), st.floats(0.5, 2), st.integers(1, 50))
def test_a_claim_about_gaussian_noise_is_decided_as_the_closed_form_says(mu, eps, factor, n):
    truth = gauss_delta(eps, mu)
    claimed = float(truth) * factor
    assume(1e-200 < claimed < 1)
    assume(abs(factor - 1) > 1e-6)
    decision = decide(
        Question(Claim("approximate-dp", eps=eps, delta=claimed), one(Gauss(math.sqrt(n) / mu), n), simulated=False)
    )
    assert decision.verdict == ("proved" if factor > 1 else "refuted")
    assert (decision.test is not None) == (factor < 1)


@pytest.mark.parametrize(
    ("claim", "process", "expected"),
    [
        # largest losses: n sensitivity / scale, and eps0
        ("eps=1", one(Laplace(10.0), 10), "proved"),
        ("eps=0.999", one(Laplace(10.0), 10), "refuted"),
        ("eps=2", one(RandomizedResponse(0.5), 4), "proved"),
        ("eps=1.99", one(RandomizedResponse(0.5), 4), "refuted"),
        ("eps=5", one(Gauss(1.0)), "refuted"),
        # sqrt(n) / sigma
        ("mu=2", one(Gauss(1.0), 4), "proved"),
        ("mu=1.999", one(Gauss(1.0), 4), "refuted"),
        # n / (2 sigma^2)
        ("rho=2", one(Gauss(1.0), 4), "proved"),
        ("rho=1.999", one(Gauss(1.0), 4), "refuted"),
        # eps^2 / 2 of pure DP (Bun, Steinke 2016, Proposition 1.4)
        ("rho=0.5", one(Laplace(1.0)), "proved"),
        # total variation 1 - e^-1/2 = 0.393 of Laplace, 2 Phi(1/2) - 1 = 0.383 of 1-GDP
        ("mu=1", one(Laplace(1.0)), "refuted"),
        # every record in every step: mu = sqrt(100) / 10
        ("mu=1", one(Gauss(10.0), 100, sampling=Poisson(0.1)), "proved"),
        ("mu=0.5", one(Gauss(1.0), 10, sampling=Poisson(0.01)), "open"),
        # rho + 2 sqrt(rho ln(1/delta)) is 12.6 at delta = 1e-5
        ("eps=13,delta=1e-5", one(Zcdp(2.0)), "proved"),
        ("eps=1,delta=1e-5", one(Zcdp(2.0)), "open"),
        ("rho=1", one(Zcdp(2.0)), "open"),
        ("xi=0.5,rho=2", one(Gauss(1.0), 4), "proved"),
        ("xi=0.5,rho=1.99", one(Gauss(1.0), 4), "refuted"),
        # (1, 0)-zCDP is pure 1-DP; an eps-DP release is also (a eps, (1 - a) rho)-zCDP where its two bounds meet
        ("xi=1,rho=0", one(Laplace(1.0)), "proved"),
        ("xi=0.99,rho=0", one(Laplace(1.0)), "refuted"),
        ("xi=0.5,rho=0.3", one(RandomizedResponse(1.0)), "proved"),
        ("xi=0.2,rho=0.2", one(RandomizedResponse(1.0)), "refuted"),
        ("xi=0.3,rho=2", one(Zcdp(1.0, xi=0.1), 2), "proved"),
        ("xi=0.1,rho=2", one(Zcdp(1.0, xi=0.1), 2), "open"),
    ],
)
def test_known_claims(claim, process, expected):
    assert verdict(claim, process) == expected


def test_the_claim_of_the_central_limit_is_refuted_and_that_of_the_moments_is_proved():
    """Bu et al. 2020, Figure 4; the certified eps was checked against other programs in the tutorial on claims."""
    rate, n = 256 / 60000, 16407
    assert verdict("eps=8.68,delta=1e-5", one(Gauss(0.638), n, sampling=Poisson(rate))) == "refuted"
    assert verdict("eps=8.68,delta=1e-5", one(Gauss(0.7), n, sampling=Poisson(rate))) == "proved"


def test_a_refuted_claim_is_shown_by_a_simulation_that_exceeds_it():
    decision = decide(Question(parse_claim("eps=1,delta=0.1"), one(Gauss(1.0))))
    seen = decision.simulation
    assert seen.advantage - 2 * seen.standard_error > 0.1
    # Phi(-1/2) and Phi(-3/2)
    assert abs(seen.tpr - 0.308538) < 0.02
    assert abs(seen.fpr - 0.066807) < 0.01
    again = decide(Question(parse_claim("eps=1,delta=0.1"), one(Gauss(1.0)), seed=1))
    assert again.simulation != seen


def test_a_rare_violation_is_not_simulated_and_says_why():
    decision = decide(Question(parse_claim("eps=1,delta=1e-9"), one(Gauss(1.0), 10, sampling=Poisson(0.01))))
    assert decision.verdict == "refuted"
    assert decision.simulation is None
    assert "trials" in decision.not_simulated
    assert decision.test.delta_lower > 1e-9


def test_a_refutation_of_a_given_guarantee_is_about_the_worst_release():
    decision = decide(Question(parse_claim("eps=1,delta=1e-5"), one(Dp(0.6), 3)))
    assert decision.verdict == "refuted"
    assert any("worst release" in line for line in decision.caveats)


def test_shuffled_batches_are_refuted_from_below_and_proved_from_above():
    process = one(Gauss(1.0), 20, sampling=Shuffle(0.1))
    assert verdict("eps=30,delta=1e-5", process) == "proved"
    assert verdict("eps=0.5,delta=1e-5", process) == "refuted"


def alike_delta(eps, rate, sigma, n):
    """delta of n sums of fixed-size batches where all other records are alike, by discrete Fourier transforms.

    One batch is (1-g) N(0, s^2) + g N(1, s^2) against N(0, s^2). Both orders of the neighbours; the losses are rounded
    to multiples of 1e-3.
    """
    step, size = 1e-3, 2**16
    x = (np.arange(-40_000, 40_000) + 0.5) * 2e-4 * sigma
    null = np.exp(-((x / sigma) ** 2) / 2)
    other = (1 - rate) * null + rate * np.exp(-(((x - 1) / sigma) ** 2) / 2)
    deltas = []
    for p, q in ((other, null), (null, other)):
        cells = np.rint(np.log(p / q) / step).astype(int) % size
        masses = np.bincount(cells, p / p.sum(), minlength=size)
        composed = np.fft.irfft(np.fft.rfft(masses) ** n, size)
        losses = np.where(np.arange(size) < size // 2, np.arange(size), np.arange(size) - size) * step
        deltas.append(float(np.sum(composed * np.maximum(-np.expm1(eps - losses), 0))))
    return max(deltas)


def test_fixed_size_batches_are_refuted_by_two_data_sets_and_not_by_the_pair_that_bounds_them():
    process = one(Gauss(1.0), 100, sampling=FixedSize(0.05))
    bracket = evaluate.curve(process, "pld", 1e-6, of_pair=True).delta_bracket(1.5)
    truth = alike_delta(1.5, 0.05, 1.0, 100)
    assert truth * 1.5 < bracket.lower  # the dominating pair alone would refute what lies between
    answer = evaluate.curve(process, "pld", 1e-6).at(eps=1.5)
    assert answer.delta.lower == pytest.approx(truth, rel=1e-4)
    assert (answer.delta.upper, answer.claim) == (bracket.upper, "certified")
    between = math.sqrt(truth * bracket.lower)
    decision = decide(Question(Claim("approximate-dp", eps=1.5, delta=between), process, simulated=False))
    assert (decision.verdict, decision.test) == ("open", None)
    assert decision.delta.lower == pytest.approx(truth, rel=1e-2)
    assert decision.delta.upper == pytest.approx(bracket.upper, rel=1e-4)
    claims = {truth * 0.97: "refuted", bracket.upper * 1.001: "proved"}
    for delta, expected in claims.items():
        claim = Claim("approximate-dp", eps=1.5, delta=delta)
        assert decide(Question(claim, process, simulated=False)).verdict == expected


def test_the_test_that_refutes_fixed_size_batches_is_that_of_the_two_data_sets():
    decision = decide(Question(parse_claim("eps=0.5,delta=0.01"), one(Gauss(0.5), sampling=FixedSize(0.3))))
    # P = 0.7 N(0, 1/4) + 0.3 N(1, 1/4) against N(0, 1/4); the loss exceeds 0.5 above x
    x = 0.5 + 0.25 * math.log((math.exp(0.5) - 0.7) / 0.3)
    normal = mpmath.ncdf
    fpr, late = float(normal(-x / 0.5)), float(normal((1 - x) / 0.5))
    assert decision.order == "P over Q"
    assert decision.test.fpr_lower <= fpr * (1 + 1e-9) <= decision.test.fpr_upper * (1 + 2e-9)
    assert abs(decision.simulation.tpr - (0.7 * fpr + 0.3 * late)) < 5 * decision.simulation.standard_error


def test_nothing_refutes_fixed_size_batches_of_a_mechanism_whose_rows_are_released():
    process = one(Projection(d=10, k=2, sigma=1.0), sampling=FixedSize(0.1))
    assert verdict("eps=0.1,delta=1e-9", process, tol=1e-2) == "open"


def test_the_published_sensitivity_of_wasserstein_gradients_refutes_no_more_than_the_attained_one():
    # sensitivities 4 M (3 L1 + L2) / n = 16 and 4 M max(2 L1, L1 + L2) / n = 8, so that mu is 8 / 8 = 1
    process = one(Wgrad(sigma=8.0, bound=1.0, lipschitz_x=1.0, size_x=1, private="x", formula="paper"))
    delta = float(gauss_delta(1.0, 1.0))
    claims = {0.9 * delta: "refuted", 1.1 * delta: "open", 1.01 * float(gauss_delta(1.0, 2.0)): "proved"}
    for allowed, expected in claims.items():
        assert verdict(f"eps=1,delta={allowed!r}", process) == expected
    assert [verdict(f"mu={mu}", process) for mu in (0.99, 1.5, 2)] == ["refuted", "open", "proved"]


def test_an_upper_bound_alone_never_refutes():
    assert verdict("eps=0.1,delta=1e-9", one(Gauss(1.0), 10), accountant="rdp") == "open"
    assert verdict("eps=30,delta=1e-5", one(Gauss(1.0), 10), accountant="rdp") == "proved"


def test_an_estimate_decides_nothing():
    with pytest.raises(Unsupported, match="accountant='pld'"):
        verdict("eps=1,delta=1e-5", one(Gauss(1.0)), accountant="clt")


def test_mu_for_tests_of_some_rate_is_decided_by_its_bracket():
    process = one(Laplace(1.0))
    assert verdict("mu=3,fpr=0.01", process) == "proved"
    assert verdict("mu=0.5,fpr=0.01", process) == "refuted"


@pytest.mark.slow
def test_every_reading_has_a_verdict_and_a_larger_eps_keeps_what_is_proved():
    spec = {"mech": "gauss", "sigma": 1.12, "rate": 0.01, "n": 1, "sampling": "poisson"}
    small, large = (decide_readings(spec, parse_claim(f"eps={eps},delta=1e-5")) for eps in (2, 8))
    assert len(small) >= 6
    kinds = {(row.interpretation.spec.get("sampling", "none"), row.interpretation.adjacency) for row in small}
    assert {("poisson", "add-remove"), ("fixed", "replace-one"), ("none", "add-remove")} <= kinds
    assert any(row.interpretation.adjacency == "zero-out" for row in small)
    for before, after in zip(small, large, strict=True):
        assert before.verdict != "proved" or after.verdict == "proved"
        assert after.verdict != "refuted" or before.verdict == "refuted"


@pytest.mark.parametrize(
    ("process", "eps"),
    nightly.sharded(
        [
            (one(Gauss(1.0)), 60),
            (one(Gauss(1.0), 1000), 6000),
            (one(Gauss(3.0), 20, sampling=Poisson(0.01)), 200),
            (one(Gauss(3.0), 20, sampling=FixedSize(0.01)), 200),
            (Process((Step(Gauss(2.0)), Step(Laplace(2.0), 2))), 20),
            (one(Laplace(2.0), 20), 9.9999999),
            (one(RandomizedResponse(0.5), 2000), 999.999),
            (one(DiscreteGauss(1.0)), 1000),
            (one(Gauss(1.0), 10, sampling=Allocation(0.1)), 1000),
        ],
        3,
    ),
)
def test_pure_dp_below_the_largest_loss_is_refuted_however_rare_it_is(process, eps):
    assert verdict(f"eps={eps}", process) == "refuted"


@pytest.mark.parametrize(
    ("process", "eps"),
    [(one(Laplace(2.0), 40), 20), (one(RandomizedResponse(0.5), 2000), 1000), (one(Laplace(2.0), 3), 1.5)],
)
def test_pure_dp_at_the_largest_loss_is_proved(process, eps):
    assert verdict(f"eps={eps}", process) == "proved"


def test_a_gap_whose_square_underflows_needs_countless_trials():
    assert trials_needed(0.1, 0.1, 1.0, 1e-200, 6.0) == math.inf


@pytest.mark.parametrize("eps", [0.01, 0.3, 2.0, 20.0])
@pytest.mark.parametrize("mechanism", [Dp, RandomizedResponse])
def test_the_mu_of_pure_dp_is_known_in_closed_form(mechanism, eps):
    # 2 Phi^-1(e^eps / (1 + e^eps)), in mpmath: the kink of the trade-off function of randomised response
    with mpmath.workdps(40):
        q = 1 / (1 + mpmath.exp(eps))
        mu = float(2 * mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * q))
    process = one(mechanism(eps0=eps))
    assert verdict(f"mu={mu * (1 + 1e-9)!r}", process) == "proved"
    assert verdict(f"mu={mu * (1 - 1e-3)!r}", process) == "refuted"


def laplace_mu(scale):
    """The largest difference of normal quantiles along the trade-off curve of Laplace noise (Dong, Roth, Su 2019)."""
    b, a = 1 / scale, np.linspace(1e-6, 0.5, 200_001)
    f = np.where(a < math.exp(-b) / 2, 1 - math.exp(b) * a, math.exp(-b) / (4 * a))
    return float(np.max(-ndtri(f) - ndtri(a)))


@pytest.mark.parametrize("scale", [3.0, 0.5])
def test_the_mu_of_laplace_noise_is_decided_for_all_tests(scale):
    mu = laplace_mu(scale)
    assert mu < 2 * ndtri(1 / (1 + math.exp(-1 / scale)))
    assert verdict(f"mu={mu * 1.001}", one(Laplace(scale))) == "proved"
    assert verdict(f"mu={mu * 0.999}", one(Laplace(scale))) == "refuted"
