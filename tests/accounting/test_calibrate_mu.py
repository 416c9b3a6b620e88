"""The least noise for mu of Gaussian DP; the oracle is sensitivity / sigma, and the certified mu of the answer."""

from __future__ import annotations

import math

import pytest

from tests import nightly
from wpriv import Poisson, budget, calibrate
from wpriv.cli.main import main
from wpriv.errors import UsageError
from wpriv.numerics import counted_work


@pytest.mark.parametrize(("mu", "n"), [(0.5, 1), (2.0, 100), (0.01, 7)])
def test_gaussian_noise_has_the_mu_of_its_multiplier(mu, n):
    answer = calibrate("gauss", max_mu=mu, n=n)
    assert n**0.5 / mu <= answer.value <= n**0.5 / mu * (1 + 1e-3)
    assert answer.guarantee.extra["asked"] == "mu"
    assert answer.guarantee.extra["mu"] <= mu


@pytest.mark.slow
@pytest.mark.parametrize("fpr", nightly.sharded([1e-9, 1e-3], 2))
def test_the_answer_meets_its_target_and_a_little_less_noise_does_not(fpr):
    sampled = {"sampling": Poisson(0.01), "n": 1000}
    answer = calibrate("gauss", max_mu=0.3, fpr=fpr, **sampled)
    rows = [budget("gauss", sigma=sigma, with_mu=True, fpr=fpr, **sampled) for sigma in (answer.value, answer.misses)]
    assert rows[0].extra["mu_upper"] <= 0.3 * (1 + 1e-9)
    assert rows[1].extra["mu_lower"] > 0.3 * (1 - 1e-3)
    assert answer.guarantee.claim == "certified"


def test_a_mechanism_with_a_parameter_mu_keeps_it():
    answer = calibrate("gdp", mu=1, max_mu=2)
    assert (answer.parameter, answer.value) == ("n", 4)
    assert answer.guarantee.extra["mu"] <= 2


@pytest.mark.parametrize("given", [{"max_mu": 0}, {"max_mu": 21}, {"max_mu": 1, "fpr": 0}, {"max_mu": 1, "fpr": 0.6}])
def test_numbers_out_of_range_are_refused(given):
    with pytest.raises(UsageError, match=next(iter(reversed(given)))):
        calibrate("gauss", **given)


@pytest.mark.parametrize(
    ("flags", "named"), [(["--mu", "1", "--eps", "2"], "--max-mu"), (["--mu", "0"], "--max-mu"), (["--mu", "x"], "mu")]
)
def test_errors_of_the_command_line_name_the_flag(capsys, flags, named):
    assert main(["calibrate", "--mech", "gauss", *flags]) == 2
    answer = capsys.readouterr()
    assert not answer.out
    assert named in answer.err


def test_the_command_line_prints_mu(capsys):
    assert main(["calibrate", "--mech", "gauss", "--mu", "0.5"]) == 0
    assert ", mu 0.4999" in capsys.readouterr().out


def test_a_mechanism_known_between_two_others_meets_a_mu_with_little_work():
    # oracle: the squared length of a projection is k / d on average and deviates little, so that 10 releases are nearly
    # mu-GDP with mu = sqrt(10 k / d) / sigma
    start = counted_work.total()
    solved = calibrate("projection", k=200, d=2048, n=10, max_mu=0.5)
    assert counted_work.total() - start < 5e9
    assert solved.value == pytest.approx(math.sqrt(10 * 200 / 2048) / 0.5, rel=0.05)
