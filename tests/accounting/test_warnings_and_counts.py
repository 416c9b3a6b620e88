"""n is calibrated to the most, and figures that are probably a mistake carry a warning.

Oracles: Laplace inversion in high precision (tests/oracles.py) of the n found and of one more; the analytic Gauss
    mechanism.
"""

from __future__ import annotations

import json
import math

import pytest

import wpriv
from tests import nightly
from tests.accounting.test_budget_verb import gauss_delta
from tests.command_line import call
from tests.oracles import contour_log_delta, poisson_gauss
from wpriv.accounting import evaluate
from wpriv.accounting.basis import explain, lines
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGauss
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "rate", "eps", "delta"),
    nightly.sharded([(4.0, 0.01, 1.0, 1e-5), (1.1, 0.004, 2.0, 1e-5), (0.8, 0.001, 0.5, 1e-6)], 3),
)
def test_calibrated_n_is_the_most_that_meets_the_target(sigma, rate, eps, delta):
    row = wpriv.calibrate("gauss", sigma=sigma, sampling="poisson", rate=rate, eps=eps, delta=delta).guarantee
    n = row.extra["calibrated"]["value"]
    assert row.extra["calibrated"]["most"] is True

    def log_delta(count: int) -> float:
        return max(
            contour_log_delta([(poisson_gauss(rate, 1 / sigma, order), count)], eps) for order in ("remove", "add")
        )

    assert row.epsilon.upper <= eps
    assert log_delta(n) <= math.log(delta) < log_delta(n + 1)


@pytest.mark.parametrize("sigma", [40.0, 400.0, 4000.0])
def test_calibrated_n_of_a_closed_form_is_the_most(sigma):
    n = wpriv.calibrate("gauss", sigma=sigma, eps=1, delta=1e-5).value
    assert gauss_delta(1, sigma, n) <= 1e-5 < gauss_delta(1, sigma, n + 1)


def test_an_answer_says_the_most_of_n_and_the_least_of_noise(capsys):
    out = call(capsys, "calibrate --mech gauss --sigma 40 --eps 1 --delta 1e-5")[1]
    assert out.startswith("n = 114 (exact, eps 0.995396, delta 1e-5)\n")
    assert "  most        the next larger value misses the target\n" in out
    assert "\n  least       " in call(capsys, "calibrate --mech gauss --n 10 --eps 1 --delta 1e-5")[1]


def test_an_n_that_is_not_shown_to_be_the_most_says_so(capsys):
    # one step more changes eps by 5e-11 relative, which no bracket tells apart
    code, out, err = call(
        capsys, "calibrate --mech gauss --sigma 4000 --sampling poisson --rate 0.01 --eps 1 --delta 1e-5 --json"
    )
    found = json.loads(out)["calibrated"]
    assert code == 0
    assert found["most"] is False
    assert f"n = {found['value'] + 1} to {found['misses'] - 1} may meet the target as well" in err


@pytest.mark.parametrize(
    "line",
    [
        "budget --mech gauss --sigma 4 --delta 1e-3 --records 1000",
        "budget --mech gauss --sigma 4 --delta 1e-3 --records 1000 --accountant pld --accountant rdp",
        "calibrate --mech gauss --eps 1 --delta 0.01 --records 1000",
        "budget --history {history} --delta 1e-3 --records 1000",
    ],
)
def test_a_delta_of_at_least_one_over_records_is_warned_of(capsys, tmp_path, line):
    history = tmp_path / "history.json"
    history.write_text("[[1.1, 0.01, 300]]")
    code, _, err = call(capsys, line.format(history=history))
    assert code == 0
    assert err.count("delta is not below 1 / records") == 1


@pytest.mark.parametrize(
    "line",
    [
        "budget --mech gauss --sigma 400 --delta 1e-6 --n 60000 --records 60000",
        "budget --mech gauss --sigma 400 --n 60000 --records 60000 --curve --eps 1",
        "calibrate --mech gauss --eps 1 --delta 1e-6 --n 60000 --records 60000",
    ],
)
def test_a_number_of_compositions_that_equals_the_records_is_warned_of(capsys, line):
    assert "equals the number of records" in call(capsys, line)[2]
    assert "equals the number of records" not in call(capsys, line.replace("--n 60000", "--n 59999"))[2]


def test_many_revealing_steps_are_not_said_to_reveal_for_certain():
    # 1 - 0.9^100000 rounds to 1, and no single step reveals with probability 1
    with pytest.raises(Unsupported, match=r"10\^-45"):
        evaluate.curve(Process((Step(RandomizedResponse(1.0, 0.1), 100_000),)), "pld")
    with pytest.raises(Unsupported, match="disjoint"):
        evaluate.curve(Process((Step(TruncatedGauss(1.0, 0.4)),)), "pld")


@pytest.mark.parametrize(("order", "truth"), [(64.5, 82.56679450665), (200.5, 271.52984160350)])
def test_renyi_divergences_of_high_order_are_resolved(order, truth):
    # mpmath: quadrature of ((1-q) N(0) + q N(1))^a N(0)^(1-a) in 40 digits
    row = wpriv.budget("gauss", sigma=0.6, sampling="poisson", rate=0.001, accountant=f"renyi:order={order}")
    assert row.epsilon.safe == pytest.approx(truth, rel=1e-10)


def test_a_renyi_order_out_of_reach_is_refused_with_advice_that_helps():
    with pytest.raises(Unsupported, match="smaller order") as caught:
        wpriv.budget("gauss", sigma=0.6, sampling="poisson", rate=0.001, accountant="renyi:order=20000.5")
    assert "--delta" not in str(caught.value)


def test_the_explanation_says_what_may_be_chosen_adaptively():
    row = evaluate.ask(evaluate.curve(Process((Step(Gauss(4.0), 100, Sampling("poisson", 0.01)),)), "pld"), delta=1e-5)
    (words,) = [line for line in explain(row)["assumptions"] if "chosen" in line]
    assert "query" in words
    assert "fixed" in words
    for parameter in ("noise", "rate", "number of steps"):
        assert parameter in words
    assert all("steps may be chosen adaptively" not in line for line in lines(explain(row)))


def test_an_eps_of_renyi_dp_has_no_delta():
    with pytest.raises(Unsupported, match="rdp"):
        wpriv.budget("gauss", sigma=1.0, eps=1.0, accountant="renyi:order=4")
    assert float(wpriv.budget("gauss", sigma=1.0, accountant="renyi:order=4").epsilon) == pytest.approx(2.0)
