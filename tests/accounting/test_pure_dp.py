"""eps at delta = 0. Oracles: closed forms of pure DP in rationals or in mpmath, and enumerated outcomes."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import mpmath
import pytest

import wpriv
from tests.command_line import call
from wpriv import (
    DiscreteLaplace,
    Dp,
    Exponential,
    FixedSize,
    Gauss,
    Laplace,
    Poisson,
    Process,
    RandomizedResponse,
    Step,
)
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import counted_work

SMALL = 1e-9


@pytest.mark.parametrize("n", [1, 3, 7, 60, 1000])
@pytest.mark.parametrize(("sensitivity", "scale"), [(1.0, 20.0), (1.0, 3.0), (2.5, 0.3), (1.0, 1.0), (1.0, 10.0)])
def test_laplace_noise_is_n_times_the_quotient_or_else_the_smallest_double_above(n, sensitivity, scale):
    exact = n * Fraction(str(sensitivity)) / Fraction(str(scale))
    answer = wpriv.budget(Laplace(scale, sensitivity), n=n, delta=0)
    upper = answer.epsilon.upper
    is_decimal = Fraction(str(upper)) == exact
    assert is_decimal or Fraction(upper) >= exact > Fraction(math.nextafter(upper, 0))
    assert upper * (1 - SMALL) <= answer.epsilon.lower <= upper
    assert (answer.claim, answer.delta.safe) == ("exact", 0.0)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("mechanism", [Laplace(0.5), RandomizedResponse(2.0), Dp(2.0), Laplace(0.02)])
@pytest.mark.parametrize("sampling", [Poisson, FixedSize])
def test_sampled_steps_add_up_log_of_one_plus_q_times_the_growth(mechanism, rate, sampling):
    """ln(1 + q(e^eps0 - 1)) of a step, or -ln(1 - q(1 - e^-eps0)) for adding a record, which is less (mpmath)."""
    eps0 = mpmath.mpf(50 if mechanism == Laplace(0.02) else 2)
    with mpmath.workdps(40):
        exact = 5 * mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(eps0))
    answer = wpriv.budget(mechanism, n=5, sampling=sampling(rate), delta=0)
    assert answer.epsilon.upper >= exact
    assert answer.epsilon.upper <= exact * (1 + SMALL)
    assert answer.epsilon.lower <= exact * (1 + 1e-15)
    assert isinstance(mechanism, Dp) or answer.epsilon.lower >= exact * (1 - SMALL)


def test_the_largest_loss_of_enumerated_outcomes_is_the_answer():
    """Two answers at eps0 = 1 and three at 0.3, sampled at 0.4: the product of all outcomes, in both orders."""
    keep = {eps0: math.exp(eps0) / (1 + math.exp(eps0)) for eps0 in (1.0, 0.3)}

    def step(eps0, q):
        p, other = keep[eps0], 1 - keep[eps0]
        drawn = ((1 - q) * other + q * p, (1 - q) * p + q * other)
        return [(drawn[0], other), (drawn[1], p)]

    pairs = [step(1.0, 0.4)] * 2 + [step(0.3, 1.0)] * 3
    losses = [sum(math.log(p / q) for p, q in outcome) for outcome in itertools.product(*pairs)]
    steps = (Step(RandomizedResponse(1.0), 2, Poisson(0.4)), Step(RandomizedResponse(0.3), 3))
    answer = wpriv.budget(Process(steps), delta=0)
    assert answer.epsilon.upper == pytest.approx(max(max(losses), -min(losses)), rel=1e-12)
    assert answer.claim == "exact"


@pytest.mark.parametrize("accountant", ["pld", "basic", "advanced", "kov", "rdp", "zcdp", "moments"])
def test_no_accountant_promises_less_than_the_sum(accountant):
    answer = wpriv.budget(Laplace(2.0), n=6, delta=0, accountant=accountant)
    assert answer.epsilon.upper == 3.0
    assert answer.claim == ("exact" if accountant == "pld" else "upper-bound")


def test_eps_at_delta_zero_is_above_that_of_every_delta_and_delta_there_is_zero():
    process = Process((Step(Laplace(3.0), 4, Poisson(0.3)), Step(Exponential(0.2), 2)))
    curve = wpriv.curve(process)
    pure = curve.epsilon(delta=0)
    assert all(curve.epsilon(delta=delta) <= pure for delta in (1e-12, 1e-6, 1e-2))
    assert curve.delta(eps=pure) == 0.0
    assert curve.delta(eps=pure * 0.9) > 0.0


@pytest.mark.parametrize(
    ("mechanism", "why"),
    [
        (Gauss(4.0), "gauss has no upper bound"),
        (wpriv.DiscreteGauss(4.0), "discrete-gauss has no upper bound"),
        (Dp(1.0, 1e-6), "distinguishing events"),
        (wpriv.TruncatedGauss(1.0, 4.0), "distinguishing events"),
    ],
)
def test_what_has_no_finite_eps_is_refused_with_the_reason(mechanism, why):
    for sampling in ("none", Poisson(0.1)):
        with pytest.raises(Unsupported, match=why):
            wpriv.budget(mechanism, n=3, sampling=sampling, delta=0)


# the exact probability of an infinite loss is below every positive double: e^-999, the tail beyond 49 sigma, 1e-400
RARE = {
    "truncated-laplace scale=1 bound=1000": 1.0,
    "truncated-gauss sigma=1 bound=50": 49.5,
    "truncated-laplace scale=1 bound=1000 n=3 poisson 0.1": 3.0,
    "truncated-gauss sigma=1 bound=50 fixed 0.1": 49.5,
    "dp eps0=1 delta0=1e-300 poisson 1e-100": 1.0,
    "dp eps0=1 delta0=1e-300 fixed 1e-100": 1.0,
    "laplace-threshold scale=1 threshold=3000 poisson 1e-100": 2.0,
}


@pytest.mark.parametrize("words", RARE)
def test_supports_that_differ_have_no_pure_dp_however_rare_the_difference(capsys, words):
    mech = words.split()
    for accountant in ("pld", "basic", "advanced", "kov"):
        code, out, err = call(capsys, "budget", *mech, "--delta", "0", "--accountant", accountant, "--quiet")
        assert code == 3, out + err
    assert call(capsys, "verify", *mech, "--claim", f"eps={RARE[words]}")[0] == 1
    assert call(capsys, "calibrate", *mech, "--eps", "60", "--delta", "0", "--solve", "n")[0] in (2, 3)
    code, out, _ = call(capsys, "budget", *mech, "--eps", str(RARE[words] * 1.01), "--json")
    assert code == 0
    assert 0 < json.loads(out)["delta"] <= 1e-290


def test_an_outcome_of_one_distribution_that_is_too_rare_for_a_histogram_is_no_pure_dp(tmp_path):
    path = tmp_path / "h.csv"
    path.write_text("outcome,p,q\n0,0.5,0.6\n1,0.5,0.4\n2,1e-300,0\n")
    with pytest.raises(Unsupported, match="distinguishing events"):
        wpriv.budget("histogram", file=str(path), delta=0)
    with pytest.raises(Unsupported, match="no largest privacy loss is known"):
        wpriv.budget("histogram", file=str(path), sigma=1, delta=0)
    assert wpriv.verify_claim("eps=60", "histogram", file=str(path), sigma=1).verdict != "proved"


@pytest.mark.parametrize("accountant", ["clt", "pdp"])
def test_an_accountant_without_a_proof_has_no_answer(accountant):
    with pytest.raises(Unsupported, match="delta = 0"):
        wpriv.budget(Laplace(2.0), n=100, delta=0, accountant=accountant)


def test_the_best_of_many_runs_costs_what_its_theorem_says():
    """At most (2 + eta) eps of a truncated negative binomial number of runs (Papernot, Steinke 2022): eta = 1."""
    answer = wpriv.budget(Laplace(2.0), n=3, delta=0, repeats="geometric:mean=20")
    assert 1.5 < answer.epsilon.upper <= 3 * 1.5
    assert answer.claim == "upper-bound"


def test_the_bounds_on_attacks_take_little_work_and_hold_the_closed_form(capsys):
    """The total variation of ten sums of Laplace losses is at most tanh(eps / 2), and that of one is 1 - e^(-t/2)."""
    before = counted_work.total()
    code, out, _ = call(capsys, "budget", "laplace", "scale=20", "n=10", "--delta", "0", "--json")
    attack = json.loads(out)["attack"]
    assert code == 0
    assert counted_work.total() - before < 1e9
    assert -math.expm1(-1 / 40) < attack["advantage_lower"] < attack["advantage_upper"] <= math.tanh(0.25)
    assert attack["advantage_upper"] - attack["advantage_lower"] < 1e-4


def test_delta_below_zero_and_one_are_refused():
    for delta in (-1e-9, 1.0):
        with pytest.raises(UsageError, match="at least 0 and below 1"):
            wpriv.budget(Laplace(2.0), delta=delta)


@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("n", [1, 7])
def test_calibrate_gives_the_least_scale_without_a_delta(eps, n):
    answer = wpriv.calibrate("laplace", eps=eps, n=n, sensitivity=2)
    assert 2 * n / eps <= answer.value * (1 + 1e-15)
    assert answer.value <= 2 * n / eps * (1 + 1e-6)
    assert answer.guarantee.epsilon.upper <= eps
    assert answer.guarantee.delta.safe == 0.0
    assert wpriv.calibrate("laplace", eps=eps, delta=0, n=n, sensitivity=2).value == answer.value


def test_calibrate_gives_the_largest_number_of_releases_and_rate():
    assert wpriv.calibrate("laplace", scale=20, eps=3).value == 60
    rate = wpriv.calibrate("laplace", scale=1, n=4, sampling="poisson", eps=1).value
    exact = math.expm1(1 / 4) / math.expm1(1)
    assert exact * (1 - 2e-6) <= rate <= exact


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("budget laplace scale=3 --delta 0", 0, "0.333334"),
        ("budget gauss sigma=3 --delta 0", 3, "no upper bound"),
        ("calibrate --mech laplace --eps 1 --quiet", 0, "1\n"),
        ("calibrate --mech gauss --eps 1", 2, "needs --delta"),
        ("calibrate --mech gauss --eps 1 --delta 0", 3, "no finite eps"),
        ("calibrate --mech laplace --eps 0", 2, "eps"),
        ("compare laplace n=4 --sweep scale=4,8 --delta 0 --accountant pld --accountant basic --csv", 0, "0.5"),
        ("verify laplace scale=20 n=60 --claim eps=3", 0, "proved"),
        ("budget laplace scale=20 n=60 --delta 0 --max-eps 3", 0, "eps = 3"),
        ("budget laplace scale=20 n=60 --delta 0 --max-eps 2.99", 1, ""),
        ("budget laplace scale=10 n=3 --delta 0 --max-eps 0.3", 0, "eps = 0.3 "),
        ("budget laplace scale=0.3 n=3 --delta 0 --max-eps 10", 0, "eps = 10 "),
        ("budget dp eps0=0.1 n=3 --delta 0 --max-eps 0.3", 0, "eps = 0.3 "),
        ("budget randomized-response eps0=0.1 n=3 --delta 0 --max-eps 0.3", 0, "eps = 0.3 "),
        ("verify laplace scale=10 n=3 --claim eps=0.3", 0, "proved"),
        ("verify laplace scale=10 n=3 --claim eps=0.29999", 1, "refuted"),
        ("calibrate laplace n=3 --eps 0.3 --delta 0 --quiet", 0, "10\n"),
        ("explain laplace scale=2 --delta 0", 0, "(0.5, 0)-DP"),
        ("explain gauss sigma=1 --delta 0 --json", 3, "no upper bound"),
        ("explain gauss sigma=1 fixed .1 --delta 0", 3, "no upper bound"),
        ("explain truncated-laplace scale=1 bound=1000 --delta 0", 3, "distinguishing events"),
        ("explain mu=0 --delta 0", 0, "pure 0-DP"),
        ("explain mu=1 --delta 0", 2, "no finite eps"),
    ],
)
def test_pure_dp_on_the_command_line(capsys, words, code, said):
    result, out, err = call(capsys, *words.split())
    assert result == code
    assert said in out + err


@pytest.mark.parametrize("kind", ["budget", "calibrate", "compare"])
def test_pure_dp_in_recipes(tmp_path, capsys, kind):
    scale = "" if kind == "calibrate" else "scale: 2, "
    more = {"budget": "delta: 0", "calibrate": "eps: 1.5", "compare": "delta: 0\naccountants: [pld]\nsource: here"}[
        kind
    ]
    path = tmp_path / "r.yaml"
    path.write_text(f"kind: {kind}\nprocess: [{{mech: laplace, {scale}n: 3}}]\n{more}\n")
    out = ["--out", str(tmp_path / "out")] if kind == "compare" else []
    code, printed, _ = call(capsys, kind, str(path), "--json", *out)
    data = json.loads(printed)
    row = data["rows"][0] if kind == "compare" else data
    assert (code, row["epsilon"], row["delta"]) == (0, 1.5, 0.0)


@pytest.mark.parametrize("words", ["laplace scale=3", "laplace scale=3 n=4 poisson .1", "rr eps0=1 n=5"])
def test_the_independent_verifier_proves_it(tmp_path, capsys, words):
    file = str(tmp_path / "c.json")
    assert call(capsys, "budget", words, "--delta", "0", "--certificate", file)[0] == 0
    code, out, _ = call(capsys, "verify", file)
    assert code == 0
    assert out.startswith("proved: eps <= ")
    assert "(largest losses)" in " ".join(out.split())


@pytest.mark.parametrize(
    ("mechanism", "n", "eps"),
    [(Laplace(10.0), 3, 0.3), (RandomizedResponse(0.1), 3, 0.3), (DiscreteLaplace(10.0), 3, 0.3), (Dp(0.1), 7, 0.7)],
)
def test_at_the_decimal_that_the_losses_add_up_to_delta_is_zero(mechanism, n, eps):
    """3 x 0.1 is 0.3 as it is written, and more than that as doubles."""
    assert wpriv.budget(mechanism, n=n, eps=eps).delta.safe == 0
    assert wpriv.budget(mechanism, n=n, eps=eps - 1e-5).delta.safe > 0
