"""Tests of claimed curves on scores: exact chances by enumeration, claims that hold and do not, and faulty scores."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.cli.main import main
from wpriv.core.process import Process, Step
from wpriv.errors import CheckFailed, UsageError
from wpriv.training.audit import score_tests
from wpriv.training.audit.audit import audit
from wpriv.training.audit.claimed_curve import Null, of_eps, read_claim
from wpriv.training.audit.score_tests import BLOCK, Ranked, Ranks, Sequential, block_law, count_chance, guess_chance

MU = 0.719117  # eps = 3 at delta 1e-5, one Gaussian release
RATES = np.array([1e-5, 1e-3, 0.05, 0.3, 0.6, 0.9, 0.999])


def normal(mu, number, seed, references=0):
    """Normal scores and labels of canaries that were in by a coin."""
    random = np.random.default_rng([7, seed])
    labels = np.concatenate([random.random(number) < 0.5, np.zeros(references, bool)])
    return random.standard_normal(len(labels)) + mu * labels, labels


def orders(null, present, missing):
    """The chance of every order of labels under a claim with few pieces: a literal sum over pieces and orders."""
    masses = [(np.diff(null.tpr, prepend=0.0), present), (np.diff(null.fpr, prepend=0.0), missing)]
    pieces = [range(len(null.fpr))] * (present + missing)
    labels = [True] * present + [False] * missing
    chances = {}
    for at in itertools.product(*pieces):
        chance = math.prod(masses[not label][0][piece] for label, piece in zip(labels, at, strict=True))
        if chance == 0:
            continue
        ways = [order for order in itertools.permutations(range(len(at))) if all(np.diff([at[i] for i in order]) >= 0)]
        for order in ways:
            word = tuple(labels[i] for i in order)
            chances[word] = chances.get(word, 0.0) + chance / len(ways)
    return chances


@pytest.mark.parametrize("claim", [(1.0, 0.0), (0.7, 0.1)])
def test_the_chance_of_a_count_is_that_of_an_enumeration(claim):
    null = of_eps(*claim)
    exact = orders(null, 3, 2)
    for number, count in ((n, k) for n in (1, 2, 3, 4) for k in range(1, min(n, 3) + 1)):
        wanted = sum(chance for word, chance in exact.items() if sum(word[:number]) >= count)
        assert wanted - 1e-12 <= count_chance(null, 3, 2, number, count) <= wanted + 2.1 / score_tests.CELLS


@pytest.mark.parametrize("claim", [(1.0, 0.0), (0.7, 0.1)])
def test_the_law_of_a_block_is_that_of_an_enumeration(claim):
    null = of_eps(*claim)
    exact, law = orders(null, 2, 1), block_law(null, 2, 1)
    assert law.keys() == exact.keys()
    assert all(law[word] == pytest.approx(exact[word], rel=1e-12) for word in law)


def test_a_pair_of_gaussian_scores_is_in_order_with_the_area_under_the_curve():
    law = block_law(read_claim(f"mu={MU}").null, 1, 1)
    assert law[(True, False)] == pytest.approx(stats.norm.cdf(MU / math.sqrt(2)), rel=3e-4)
    assert sum(block_law(read_claim(f"mu={MU}").null, 3, 5).values()) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("eps", [0.5, 3.0])
@pytest.mark.parametrize(("guesses", "right"), [(10, 9), (100, 80), (100, 99)])
def test_right_guesses_of_pure_dp_have_the_binomial_tail(eps, guesses, right):
    exact = stats.binom.sf(right - 1, guesses, 1 / (1 + math.exp(-eps)))
    null = of_eps(eps, 0.0)
    for curve in (null.symmetric, null):
        # a little larger, since it uses the counts from each number on, and no other sets of counts
        assert exact * (1 - 1e-9) <= guess_chance(curve, 500.0, guesses, right) <= max(1.2 * exact, 1.01e-12)


def test_guesses_allow_for_a_run_that_shows_all_with_chance_delta():
    # under (eps, delta)-DP all coins may be shown with chance delta: no claim may be refuted more often by that
    assert guess_chance(of_eps(1.0, 0.04).symmetric, 500.0, 100, 100) >= 0.04
    assert guess_chance(of_eps(1.0, 0.04), 250.0, 100, 100) >= 0.04


def test_the_curve_of_a_claim_lies_on_the_closed_form_from_above():
    exact = stats.norm.cdf(stats.norm.ppf(RATES) + MU)
    for claim in (f"mu={MU}", Gauss(1 / MU), Process((Step(Gauss(2 / MU), 4),)), f"gauss sigma={1 / MU}"):
        found = read_claim(claim).null.tpr_at(RATES)
        assert (found >= exact).all()
        assert found == pytest.approx(exact, rel=2e-3)
    assert read_claim("eps=1,delta=0.1").null.tpr_at(RATES) == pytest.approx(
        np.minimum(0.1 + math.e * RATES, 1 - (0.9 - RATES) / math.e).clip(max=1), rel=1e-9
    )


def test_no_other_ranking_than_that_by_the_loss_gives_a_larger_chance():
    # Theorem 2: four canaries with known chances to be in, and every order of them
    chances, weights = (0.9, 0.7, 0.4, 0.2), np.array([3.0, 1.0, 0.5, 0.0])

    def tails(order):
        sums = {}
        for labels in itertools.product((True, False), repeat=4):
            chance = math.prod(p if label else 1 - p for p, label in zip(chances, labels, strict=True))
            value = round(float(weights[[labels[i] for i in order]].sum()), 9)
            sums[value] = sums.get(value, 0.0) + chance
        return [sum(p for value, p in sums.items() if value >= least) for least in (0.5, 1.0, 1.5, 3.0, 3.5, 4.0, 4.5)]

    best = tails((0, 1, 2, 3))
    for order in itertools.permutations(range(4)):
        assert all(other <= most + 1e-12 for other, most in zip(tails(order), best, strict=True))


@pytest.mark.parametrize("claim", [f"mu={MU}", "eps=1,delta=0.01"])
def test_a_stake_of_the_martingale_is_one_on_average_and_more_under_no_smaller_claim(claim):
    null = read_claim(claim).null
    for present in (1, 4, 6):
        law = block_law(null, present, BLOCK - present)
        words = list(law)
        scores = np.concatenate([-np.arange(float(BLOCK))] * len(words))
        stakes = Sequential(scores, np.concatenate([np.array(word) for word in words]))._stakes(null)
        chances = np.array([law[word] for word in words])
        assert chances @ stakes == pytest.approx(np.ones(len(score_tests.TILTS)), rel=1e-9)
        less = block_law(of_eps(0.3, 0.0), present, BLOCK - present)
        assert (np.array([less[word] for word in words]) @ stakes <= 1).all()


@pytest.mark.parametrize("method", ["independent", "sequential"])
def test_scores_that_drift_refute_nothing(method):
    labels = np.random.default_rng(5).random(400) < 0.5
    assert not audit((-np.arange(400.0), labels), "eps=0.1", method=method).refuted


@pytest.mark.parametrize("method", ["independent", "sequential", "one-run"])
@pytest.mark.parametrize("kind", ["normal", "response", "rounded"])
def test_a_claim_that_holds_is_refuted_as_rarely_as_stated(method, kind):
    # at 5%, more than 9 of 40 have a chance below 1e-4; the full simulation is `python -m benchmarks audits`
    from wpriv.training.audit import scores

    claim = read_claim("eps=1" if kind == "response" else f"mu={MU}")
    wrong = 0
    for seed in range(40):
        values, labels = normal(MU, 100, seed)
        if kind == "rounded":
            values = np.round(values)
        if kind == "response":
            lies = np.random.default_rng([8, seed]).random(100) < 1 / (1 + math.e)
            values = (labels ^ lies).astype(float)
        wrong += scores.evidence(method, claim, values, labels, None, seed).rejects(claim.null, 0.05)
    assert wrong <= 9


def test_less_noise_is_seen_and_the_same_noise_is_not():
    claim = read_claim(f"mu={MU}")
    weights = claim.null.weights(1000, 3000)
    assert (np.diff(weights) <= 0).all()
    refuted = []
    for seed, mu in enumerate([MU / 0.85] * 6 + [MU] * 4):
        values, labels = normal(mu, 2000, seed, references=2000)
        refuted.append(Ranks(Ranked.of(values, labels), weights).rejects(claim.null, 0.05))
    # each of the first six is refuted with chance .96, and each of the others with .05
    assert sum(refuted[:6]) >= 5
    assert sum(refuted[6:]) <= 1


def test_eps_is_bounded_from_below_with_and_without_a_premise():
    answer = audit(normal(0.92493, 2000, 1), "mu=0.92493", method="independent")
    general, of_gauss = answer.bounds
    assert answer.verdict == "not refuted"
    assert 0.8 < general.epsilon_at_least < of_gauss.epsilon_at_least
    assert 3 < of_gauss.epsilon_at_least < 4
    assert "mu-GDP" in of_gauss.premise
    assert answer.as_dict()["estimate"]["kind"] == "estimate"


def test_a_process_is_a_claim_whose_noise_is_bounded():
    answer = audit(normal(MU / 0.4, 400, 2), "gauss sigma=1.39059", method="independent", delta=1e-6)
    assert answer.refuted
    assert answer.claim.delta == 1e-6
    assert answer.bounds[1].epsilon_at_least > answer.claim.eps
    with pytest.raises(CheckFailed, match="refuted at confidence 95%"):
        answer.require()


@pytest.mark.parametrize("method", ["independent", "two-worlds", "sequential", "one-run"])
def test_equal_scores_refute_nothing(method):
    answer = audit((np.zeros(300), np.arange(300) % 2), "mu=0.5", method=method)
    assert not answer.refuted
    answer.require()


def test_too_few_canaries_are_named_as_such():
    answer = audit(([1.0, 0.0], [1, 0]), "eps=3", method="independent")
    assert not answer.has_power
    assert "could have refuted" in answer.warnings[1]


def test_a_function_gets_who_is_in_and_canaries_that_never_are():
    seen = []

    def train(included):
        seen.append(included)
        return np.random.default_rng(1).standard_normal(len(included)) + 5 * included

    answer = audit(train, "mu=1", method="independent", canaries=100, references=50, seed=1)
    assert answer.refuted
    assert answer.subject == "train"
    assert len(seen) == 1
    assert len(seen[0]) == 150
    assert 20 < seen[0].sum() == answer.present < 80
    audit(train, "mu=1", canaries=100, seed=1)
    assert len(seen[1]) == 100


def test_many_runs_stop_where_the_claim_is_refuted():
    runs = []

    def train(included):
        runs.append(bool(included[0]))
        return [float(included[0]) + 1e-6 * len(runs)]

    answer = audit(train, "eps=1", method="sequential", runs=400, seed=3)
    assert answer.refuted
    assert answer.looks == len(runs) < 100
    assert all(sum(runs[i : i + BLOCK]) == BLOCK // 2 for i in range(0, len(runs), BLOCK))
    runs.clear()
    assert audit(train, "eps=1", method="two-worlds", runs=60, seed=3).refuted
    assert len(runs) == 2 * sum(runs) == 60


def test_canaries_are_made_of_records():
    x, y = np.arange(60.0).reshape(20, 3), np.arange(20) % 2

    def train(records, labels):
        kept = {tuple(record): label for record, label in zip(records[20:], labels[20:], strict=True)}
        assert (records[:20] == x).all()
        return lambda x, y: [float(tuple(record) in kept) for record in x]

    answer = audit(train, "eps=1", data=(x, y), canaries=200, method="independent", references=0, seed=5)
    assert answer.refuted
    with pytest.raises(UsageError, match="returns a function of records and labels"):
        audit(lambda x, y: 1.0, "eps=1", data=(x, y), canaries=4)


FAULTY = [
    ("score,in\nnan,1\n0,0\n", "score 1 is NaN"),
    ("score,in\n1,2\n0,0\n", r":2: `in` must be 1 or 0; found '2'"),
    ("score,in\n1,1\n0,1\n", "found 2 in and 0 out"),
    ("score,in\na,1\n0,0\n", "line 2: could not convert string 'a'"),
    ("score;in\n1;1\n", "separated by semicolons"),
    ("loss,in\n1,1\n", "needs the columns score and in; found loss, in"),
    ("", "needs the columns score and in"),
    ("score,in\n" + "1,1\n" * 100 + "0,0\n", "by fair coins, and 100 of 101 were in"),
]


@pytest.mark.parametrize(("content", "message"), FAULTY)
def test_faulty_scores_are_refused(content, message, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        audit(path, "mu=1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"claim": "rho=1"}, "trade-off curve"),
        ({"claim": 3}, "`claim` is one of"),
        ({"claim": "eps=1", "delta": 1e-5}, "has its delta"),
        ({"claim": "mu=1", "delta": 2}, "strictly between 0 and 1"),
        ({"method": "onerun"}, "did you mean 'one-run'"),
        ({"confidence": 0.2}, "at least 0.5"),
        ({"quick": True}, "no argument `quick`"),
        ({"canaries": 5}, "for the audit of a training function"),
        ({"seed": -1}, "at least 0"),
        ({"source": ([1.0], [1, 0])}, "one number for each canary"),
        ({"source": (["a"], [1])}, "must be numbers"),
        ({"source": ([1.0, 2.0], [1, 3])}, "labels must be 1"),
        ({"source": 5}, "needs a file"),
        ({"source": "no-such-folder/scores.csv"}, "cannot be read"),
        ({"claim": None}, "give `claim`"),
        ({"source": lambda included: [0.0]}, "one number for each canary"),
        ({"source": lambda included: [0.0], "runs": 5}, "trains once"),
        ({"source": lambda included: [0.0], "canaries": 0}, "`canaries` must be above 0"),
        ({"source": lambda included: [0.0], "data": 3}, "pair of records and labels"),
        ({"source": lambda included: [0.0], "references": 5}, "are for `method='independent'`"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    from wpriv.errors import WprivError

    given = {"source": ([1.0, 0.0], [1, 0]), "claim": "mu=1"} | change
    with pytest.raises(WprivError, match=message):
        audit(**given)


def test_a_folder_and_a_file_of_arrays_are_read(tmp_path):
    values, labels = normal(3.0, 400, 4)
    np.savez(tmp_path / "scores.npz", score=values, **{"in": labels})
    one, other = audit(tmp_path, "mu=1"), audit(tmp_path / "scores.npz", "mu=1")
    assert one.p_value == other.p_value == audit((values, labels), "mu=1").p_value
    (tmp_path / "scores.csv").write_text("score,in\n1,1\n")
    with pytest.raises(UsageError, match="must hold one of"):
        audit(tmp_path, "mu=1")


def test_the_command_exits_with_1_where_the_claim_is_refuted(tmp_path, capsys):
    path = tmp_path / "scores.csv"
    values, labels = normal(2.0, 600, 5)
    path.write_text(
        "score,in\n" + "".join(f"{v},{'yes' if i else 'no'}\n" for v, i in zip(values, labels, strict=True))
    )
    assert main(["audit", "--scores", str(path), "--claim", "eps=4,delta=1e-5"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("not refuted at confidence 95%: (4, 1e-5)-DP")
    assert "an audit is an estimate, and never a proof" in err
    words = ["--method", "independent", "gauss", "sigma=2"]
    assert main(["audit", "--scores", str(path), "--json", *words]) == 1
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["schema"] == "wpriv.score-audit/1"
    assert answer["verdict"] == "refuted"
    assert answer["p_value"] <= 0.05
    assert answer["tested"]["process"][0]["sigma"] == 2
    assert "is refuted at confidence 95%" in json.loads(err.splitlines()[-1])["message"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scores", "s.csv"], "--scores needs what is claimed"),
        (["--scores", "s.csv", "--claim", "mu=1", "gauss", "sigma=1"], "--scores needs what is claimed"),
        (["--scores", "s.csv", "--claim", "mu=1", "--quick"], "--quick is for an audit of a recipe"),
        (["--claim", "mu=1", "quick/digits"], "--claim is for an audit of scores"),
        ([], "audit needs a recipe"),
        (["s.csv"], "scores are audited by --scores s.csv"),
    ],
)
def test_flags_that_do_not_belong_together_are_refused(words, message, capsys):
    assert main(["audit", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_claim_of_nothing_is_a_straight_line():
    null = of_eps(0.0, 0.0)
    assert null.tpr_at(RATES) == pytest.approx(RATES)
    assert isinstance(null, Null)
