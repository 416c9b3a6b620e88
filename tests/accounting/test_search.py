"""A search keeps apart what misses the target and what has no answer, and ends within its tolerance of the least value.

Oracles: roots known in advance; the closed form of the Gauss mechanism (Balle and Wang 2018); Laplace inversion
    (tests/oracles.py).
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wpriv
from tests.accounting.test_budget_verb import gauss_delta
from tests.oracles import contour_log_delta, laplace, poisson_gauss
from wpriv.accounting import build_process, evaluate, target
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.search import Evaluation, Outcome, Search, Unknown, Unreachable
from wpriv.accounting.target import Target, solve_for
from wpriv.core.guarantee import Curve
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported
from wpriv.numerics.bracket import Bracket

X = Unknown("x", +1, 1e-12, 1e15, digits=9)
REASON = "too many cells"


def replies(root: float, *silent: tuple[float, float]):
    """An accountant whose target is met from ``root`` on, and which has no answer inside the intervals."""

    def reply(x: float) -> Evaluation:
        gap = any(a <= x <= b for a, b in silent)
        return Evaluation(math.inf, refusal=REASON) if gap else Evaluation(math.log(root / x), math.log(root / x))

    return reply


def test_the_four_outcomes_are_kept_apart():
    assert Evaluation(-0.1, refusal=REASON).outcome is Outcome.MEETS
    assert Evaluation(0.1, 0.05, REASON).outcome is Outcome.MISSES
    assert Evaluation(0.1, -0.05).outcome is Outcome.OPEN
    assert Evaluation(math.inf, refusal=REASON).outcome is Outcome.REFUSED


@pytest.mark.parametrize("guess", [0.01, 1.0, 3.0, 7.0, 30.0, 200.0, 1e5])
@pytest.mark.parametrize("silent", [(2.4, 100.0), (2.4, 3.0), (0.5, 1.5)])
def test_values_without_an_answer_do_not_hide_the_least_value(guess, silent):
    solution = Search(X, replies(2.0, silent)).solve(guess, -1.0, 1e-7)
    assert 2 <= solution.value <= 2 * (1 + 1e-6)
    assert not solution.refusal
    assert 2 * (1 - 1e-5) <= solution.missed < 2


@given(st.floats(-5, 5), st.floats(0.05, 3), st.floats(-4, 8), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_value_found_beside_a_gap_is_the_least_with_an_answer_or_the_gap_is_named(start, width, off, private):
    unknown = X if private else Unknown("x", -1, 1e-12, 1e15, digits=9)
    root = 2.0
    gap = (root * math.exp(start), root * math.exp(start + width))

    def ask(x: float) -> Evaluation:
        excess = unknown.privacy_direction * math.log(root / x)
        return Evaluation(math.inf, refusal=REASON) if gap[0] <= x <= gap[1] else Evaluation(excess, excess)

    solution = Search(unknown, ask).solve(root * math.exp(off), -1.0, 1e-7)
    assert ask(solution.value).outcome is Outcome.MEETS
    distance = abs(math.log(solution.value / root))
    if distance > 1e-6:
        assert solution.refusal == REASON
        edge = gap[1] if private else gap[0]
        # the gap covers the root, or what meets the target below it is too narrow a strip for so few looks
        assert abs(math.log(solution.value / edge)) < 1e-5
        assert (math.log(gap[0] / root) if private else math.log(root / gap[1])) < 0.2


def test_no_answer_anywhere_is_no_miss():
    with pytest.raises(Unreachable) as caught:
        Search(X, replies(2.0, (0.0, math.inf))).solve(1.0, -1.0, 1e-7)
    assert caught.value.refusal == REASON


def curve_of(process, limits: tuple[float, float], bracket: tuple[float, float] = (1, 1)) -> Curve:
    """An accountant of Gaussian noise in closed form that refuses the sigmas between ``limits``."""
    from wpriv.accounting.accountants import pld

    sigma = process.steps[0].mechanism.sigma
    exact = pld.account(process)

    def epsilon(delta: float) -> Bracket:
        if limits[0] <= sigma <= limits[1]:
            raise Unsupported(REASON)
        value = exact.epsilon(delta=delta)
        return Bracket.between(value * bracket[0], value * bracket[1])

    return Curve(process, "stub", "approximate-dp", "certified", "", exact.delta_bracket, epsilon)


@pytest.mark.parametrize("limits", [(5.0, 500.0), (3.8, 4.2), (1.0, 3.6)])
def test_a_refusal_in_part_of_the_range_leaves_calibrate_its_least_sigma(monkeypatch, limits):
    monkeypatch.setattr(evaluate, "curve", lambda process, *_, **__: curve_of(process, limits))
    row = wpriv.calibrate("gauss", eps=1, delta=1e-5).guarantee
    sigma = row.extra["calibrated"]["value"]
    assert gauss_delta(1, sigma, 1) <= 1e-5 < gauss_delta(1, sigma * (1 - 1e-6), 1)
    assert row.extra["calibrated"]["within"] < 2e-6
    assert not row.warnings


def test_a_sigma_that_may_not_be_the_least_says_so(monkeypatch):
    # the least sigma is 3.7306
    monkeypatch.setattr(evaluate, "curve", lambda process, *_, **__: curve_of(process, (3.0, 10.0)))
    row = wpriv.calibrate("gauss", eps=1, delta=1e-5).guarantee
    calibrated = row.extra["calibrated"]
    assert calibrated["value"] == pytest.approx(10, rel=1e-5)
    assert 2.8 < calibrated["misses"] < 3
    assert calibrated["within"] == pytest.approx(1 - calibrated["misses"] / 10, abs=1e-4)
    assert any("may not be the least" in line and REASON in line for line in row.warnings)


def test_where_nothing_can_be_said_the_error_is_the_refusal_itself(monkeypatch):
    monkeypatch.setattr(evaluate, "curve", lambda process, *_, **__: curve_of(process, (0.0, math.inf)))
    with pytest.raises(Unsupported) as caught:
        wpriv.calibrate("gauss", eps=1, delta=1e-5)
    assert str(caught.value) == REASON


@pytest.mark.parametrize(("n", "delta"), [(2, 1e-12), (5, 1e-9)])
def test_few_steps_of_discrete_laplace_need_no_more_noise_than_pure_dp_asks(n, delta):
    # basic composition: n / scale <= 1; below it P(all n losses are the largest) = (e^(1/n) / (1 + e^(1/n)))^n > delta
    # shows
    row = wpriv.calibrate("discrete-laplace", eps=1, delta=delta, n=n).guarantee
    assert n * (1 - 1e-6) <= row.extra["calibrated"]["value"] <= n * (1 + 1e-6)
    assert row.epsilon.safe <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "n", "eps", "delta"), [(0.01, 10000, 1.0, 1e-5), (256 / 60000, 14062, 3.0, 1e-5), (0.001, 1000, 0.2, 1e-7)]
)
def test_a_calibrated_sigma_is_within_a_millionth_of_the_least(rate, n, eps, delta):
    row = wpriv.calibrate("gauss", eps=eps, delta=delta, n=n, sampling="poisson", rate=rate).guarantee
    sigma = row.extra["calibrated"]["value"]

    def log_delta(noise: float) -> float:
        return max(contour_log_delta([(poisson_gauss(rate, 1 / noise, order), n)], eps) for order in ("remove", "add"))

    assert log_delta(sigma) <= math.log(delta) < log_delta(sigma * (1 - 1e-6))
    # the value that is shown to miss the target does
    assert log_delta(row.extra["calibrated"]["misses"]) > math.log(delta)


@pytest.mark.slow
def test_a_calibrated_scale_is_within_a_millionth_of_the_least():
    scale = wpriv.calibrate("laplace", eps=1, delta=1e-5, n=1000).value

    def log_delta(b: float) -> float:
        return contour_log_delta([(laplace(1 / b), 1000)], 1.0)

    assert log_delta(scale) <= math.log(1e-5) < log_delta(scale * (1 - 1e-6))


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
def test_the_search_ends_as_near_the_least_as_the_tolerance(tol):
    sigma = wpriv.calibrate("gauss", eps=1, delta=1e-5, tol=tol).value
    assert gauss_delta(1, sigma, 1) <= 1e-5 * (1 + 1e-12)
    assert gauss_delta(1, sigma * (1 - tol), 1) > 1e-5


@pytest.mark.slow
def test_a_count_of_a_million_is_the_most():
    row = wpriv.calibrate("gauss", sigma=40, eps=1, delta=1e-5, sampling="poisson", rate=0.01).guarantee
    calibrated = row.extra["calibrated"]
    assert calibrated["most"]
    assert calibrated["misses"] == calibrated["value"] + 1

    def log_delta(count: int) -> float:
        return max(contour_log_delta([(poisson_gauss(0.01, 1 / 40, order), count)], 1.0) for order in ("remove", "add"))

    assert log_delta(calibrated["value"]) <= math.log(1e-5) < log_delta(calibrated["value"] + 1)


def test_an_n_is_never_called_the_most_where_one_more_is_proven(monkeypatch):
    """The bracket is never narrower than a thousandth, so that n + 1 is shown neither to meet nor to miss it."""
    monkeypatch.setattr(evaluate, "curve", lambda process, *_, **__: curve_of(process, (0.0, 0.0), (0.999, 1.001)))
    row = wpriv.calibrate("gauss", sigma=100, eps=1, delta=1e-5).guarantee
    calibrated = row.extra["calibrated"]
    n = calibrated["value"]
    assert not calibrated["most"]
    safe = [
        evaluate.curve(build_process.process([{"mech": "gauss", "sigma": 100, "n": k}])).at(delta=1e-5).epsilon
        for k in (n, n + 1)
    ]
    assert safe[0].upper <= 1 < safe[1].upper
    assert safe[1].lower <= 1
    assert gauss_delta(1, 100, calibrated["misses"]) > 1e-5


def test_a_calibration_without_limits_says_that_it_ends():
    """Noise of any size meets eps = 1e308, and 1e-12 is the least that is tried; so does every n up to 2^40."""
    answer = wpriv.calibrate("gauss", eps=1e308, delta=1e-5)
    assert (answer.value, answer.within) == (1e-12, None)
    assert any("less may be enough" in line for line in answer.guarantee.warnings)
    answer = wpriv.calibrate("gauss", sigma=1, eps=1e308, delta=1e-5)
    assert (answer.value, answer.within) == (2**40, 0.0)


def test_an_upper_bound_of_a_coarse_width_decides_nothing_at_a_finer_one():
    """eps of 1/sigma, bounded from above by more where the width is coarser; at the coarsest one no noise is enough."""

    def account(process, tol):
        above = Bracket.above(1 / process.steps[-1].mechanism.sigma + 100 * tol)
        return Curve(process, "test", "approximate-dp", "upper-bound", "", lambda _: above, lambda _: above)

    def at(sigma):
        return build_process.process([{"mech": "gauss", "sigma": sigma}])

    answer = solve_for(Unknown("sigma", +1, 1e-12, 1e15), at, "test", Target(0.5, 1e-5), 1e-6, account=account)
    least = 1 / (0.5 - 100 * 1e-6)
    assert least <= answer.value <= least * (1 + 1e-6)


def test_a_bound_of_a_probability_that_has_reached_one_does_not_end_a_search():
    """Basic composition at eps = 0: n times the total variation distance of one release, 1 - e^(-1/(2 b))."""
    found = wpriv.calibrate("laplace", n=1000, advantage=0.5, accountant="basic")
    least = -1 / (2 * math.log1p(-0.5 / 1000))
    assert least <= found.value <= least * (1 + 2e-6)


@pytest.mark.parametrize(("n", "rate", "eps"), [(10, 0.01, 1.0), (1000, 0.01, 4.0), (300, 0.01, 0.1), (10, 1e-4, 8.0)])
def test_the_first_guess_of_noise_is_that_of_the_central_limit(n, rate, eps):
    # oracle: n rate^2 (exp(1 / sigma^2) - 1) = mu^2, solved for sigma by hand; where it is large it falls exponentially
    wanted = Target(eps, 1e-5)

    def process(sigma: float) -> Process:
        return Process((Step(Gauss(sigma), n, Sampling("poisson", rate)),))

    guess = target._guess(Unknown("sigma", +1, 1e-6, 1e12), process, wanted)
    assert guess == pytest.approx(math.log1p(wanted.mu_squared() / (n * rate**2)) ** -0.5, rel=1e-2)


def test_a_value_that_meets_the_target_between_refused_ones_is_kept():
    def reply(x: float) -> Evaluation:
        floor = math.log(0.5 / x)
        if x >= 1:
            return Evaluation(-0.5 * math.log(x) - 1e-9, floor)
        if x < 0.5:
            return Evaluation(floor + 0.01, floor)
        return Evaluation(-0.05, -0.06) if 0.505 <= x <= 0.72 else Evaluation(math.inf, refusal=REASON)

    search = Search(X, reply)
    root = search.solve(1.3, -1.0, 1e-4)
    assert root.value == min(x for x, each in search.seen.items() if each.outcome is Outcome.MEETS)
    assert 0.505 <= root.value <= 0.51
