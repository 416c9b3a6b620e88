"""The verb ``explain``: posteriors, people and releases, deployments, what is read and what is refused."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wpriv
from wpriv.accounting import certificates
from wpriv.accounting.claims import explain as verb
from wpriv.accounting.membership_figures import Mu, Pair, Rho
from wpriv.errors import Unsupported, UsageError

ENTRIES = json.loads(Path(verb.__file__).with_name("deployments.json").read_text(encoding="utf-8"))["deployments"]


def test_the_posterior_of_randomized_response_is_that_of_bayes():
    # the answer "yes" of randomized response of eps = 2, by counting
    row = wpriv.explain(eps=2, prior=0.2)
    truth = math.exp(2) / (1 + math.exp(2))
    assert row.posterior == pytest.approx(0.2 * truth / (0.2 * truth + 0.8 * (1 - truth)), rel=1e-12)
    assert row.right_guess == pytest.approx(truth, rel=1e-11)
    assert row.delta == 0


@pytest.mark.parametrize("eps", [0.1, 0.7, 1.0, 3.0, 9.7, 40.0])
def test_the_bayes_factor_and_the_right_guess_are_on_the_safe_side_in_their_last_digit(eps):
    row = wpriv.explain(eps=eps, prior=0.3)
    with mpmath.workdps(40):
        factor = mpmath.exp(mpmath.mpf(eps))
        posterior = 1 / (1 + (1 - mpmath.mpf(0.3)) / mpmath.mpf(0.3) / factor)
        assert factor <= row.bayes_factor <= factor * (1 + mpmath.mpf(2) ** -48)
        assert posterior <= row.posterior <= posterior * (1 + mpmath.mpf(2) ** -47)
        assert 2 * mpmath.mpf(row.right_guess) - 1 >= mpmath.mpf(row.advantage)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 3.0), st.floats(0.01, 0.5))
def test_no_larger_share_of_answers_goes_beyond_the_bayes_factor(seed, eps, spread):
    # random mechanisms of 40 answers, whose delta at eps is that of the sum over the answers
    rng = np.random.default_rng(seed)
    p, q = (weights / weights.sum() for weights in np.exp(rng.normal(0, 4 * spread, size=(2, 40))))
    delta = max(np.maximum(p - math.exp(eps) * q, 0).sum(), np.maximum(q - math.exp(eps) * p, 0).sum())
    row = wpriv.explain(eps=eps, delta=delta, prior=0.2)
    posterior = 0.2 * p / (0.2 * p + 0.8 * q)
    assert p[posterior > row.posterior * (1 + 1e-12)].sum() <= row.beyond + 1e-15
    assert p[p / q > row.bayes_factor * (1 + 1e-12)].sum() <= row.beyond + 1e-15


def test_gaussian_noise_goes_beyond_e_to_the_eps_more_often_than_delta_and_not_beyond_the_bayes_factor():
    row = wpriv.explain(mu=1)
    beyond = [1 - NormalDist(0.5, 1).cdf(math.log(factor)) for factor in (math.exp(row.epsilon), row.bayes_factor)]
    assert beyond[0] > 5 * row.delta
    assert beyond[1] <= row.beyond == 10 * row.delta


@pytest.mark.parametrize(
    ("words", "largest"),
    [("randomized-response eps0=1", 1), ("laplace scale=2 n=5", 2.5), ("laplace scale=0.5", 2)],
)
def test_the_bayes_factor_of_pure_dp_is_e_to_the_eps_for_all_answers(words, largest):
    row = wpriv.explain(words)
    assert row.delta == 1e-5
    assert math.exp(largest) <= row.bayes_factor <= math.exp(largest) * (1 + 1e-12)
    assert row.beyond == 0
    assert "except for" not in dict(row.facts())


@pytest.mark.parametrize(("what", "mu"), [("gauss sigma=20", 0.05), ("gauss sigma=2 n=4", 1.0), ("mu=1", 1.0)])
def test_the_bayes_factor_of_gaussian_noise_is_that_of_its_tail(what, mu):
    # the answers of the largest losses, of the share s with the record, have the share Phi(Phi^-1(s) - mu) without it
    row, normal = wpriv.explain(what), NormalDist()
    factor = 1e-4 / normal.cdf(normal.inv_cdf(1e-4) - mu)
    assert row.beyond == pytest.approx(1e-4, rel=1e-12)
    assert factor * (1 - 1e-9) <= row.bayes_factor <= factor * 1.001


def test_the_bayes_factor_of_many_laplace_releases_is_that_of_their_tail():
    # Monte Carlo: 2000 of 200 000 draws lie in the tail, and its share without the record has an error of 2%
    noise = np.random.default_rng(5).laplace(scale=4, size=(200_000, 12))
    loss = np.sort(((np.abs(noise + 1) - np.abs(noise)) / 4).sum(axis=1))[-2000:]
    row = wpriv.explain("laplace scale=4 n=12", delta=1e-3)
    assert row.bayes_factor == pytest.approx(2000 / np.exp(-loss).sum(), rel=0.04)
    assert row.bayes_factor < math.exp(12 / 4)
    assert row.beyond == pytest.approx(1e-2, rel=1e-12)


def test_the_posterior_of_a_flagged_record_is_that_of_the_best_test():
    row = wpriv.explain(mu=1, prior=0.01)
    for rate in row.rates:
        assert rate.posterior == pytest.approx(0.01 * rate.tpr / (0.01 * rate.tpr + 0.99 * rate.fpr), rel=1e-12)
    assert [rate.fpr for rate in row.rates] == [1e-2, 1e-3, 1e-4, 1e-5]


def test_a_larger_prior_more_people_or_more_releases_never_mean_less():
    rows = [wpriv.explain("rho=0.1", prior=p, people=n, releases=n) for p, n in ((0.01, 1), (0.1, 2), (0.5, 5))]
    assert [len(row.together) for row in rows] == [0, 2, 2]
    for one, other in pairwise(rows):
        assert one.posterior < other.posterior
    for one, other in zip(rows[1].together, rows[2].together, strict=True):
        assert one.right_guess < other.right_guess
        assert one.epsilon < other.epsilon


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("eps=3,delta=1e-5", Pair(3, 1e-5)),
        ("delta=1e-5 eps=3", Pair(3, 1e-5)),
        ("eps=3, delta=1e-5", Pair(3, 1e-5)),
        ("eps=3", Pair(3, 0)),
        ("mu=1", Mu(1, 1e-5)),
        ("rho=0.5", Rho(0.5, 1e-5)),
        ("mu=0", Pair(0, 0)),
    ],
)
def test_a_guarantee_is_read_from_text(text, known):
    row, bounds = wpriv.explain(text), known.attacks(verb.RATES)
    assert (row.advantage, row.claim, (row.epsilon, row.delta)) == (bounds.advantage, bounds.claim, known.pair())


def test_words_objects_and_histories_give_the_same_bounds(tmp_path):
    history = tmp_path / "steps.json"
    history.write_text(json.dumps([{"mech": "gauss", "sigma": 4, "n": 10}]))
    process = wpriv.Process((wpriv.Step(wpriv.Gauss(sigma=4), 10),))
    guarantee = wpriv.budget(process, delta=1e-5)
    rows = [wpriv.explain(what) for what in ("gauss sigma=4 n=10", history, process, guarantee)]
    assert len({(row.epsilon, row.delta, row.advantage, row.rates) for row in rows}) == 1
    assert rows[0].epsilon == guarantee.epsilon.safe
    assert (rows[0].notion, rows[0].process) == ("process", process)
    certificates.write(guarantee, tmp_path / "certificate.json")
    assert wpriv.explain(tmp_path / "certificate.json").process == process
    # a saved guarantee has its delta
    saved = tmp_path / "guarantee.json"
    for delta, accountant in ((1e-6, "pld"), (1e-7, "rdp-filter")):
        row = wpriv.budget(process, delta=delta, accountant=accountant)
        saved.write_text(json.dumps(row.as_dict()))
        from_file, from_object = wpriv.explain(saved), wpriv.explain(row)
        assert (from_file.delta, from_file.advantage) == (delta, from_object.advantage)
    # a guarantee that holds for more than its process is explained by its pair of eps and delta
    tuned = wpriv.budget(process, delta=1e-5, repeats="geometric:mean=20")
    assert wpriv.explain(tuned).advantage == Pair(tuned.epsilon.safe, 1e-5).attacks(()).advantage
    chosen = wpriv.budget(process, delta=1e-5, accountant="rdp-filter")
    assert wpriv.explain(chosen).advantage == Pair(chosen.epsilon.safe, 1e-5).attacks(()).advantage


@pytest.mark.parametrize(
    ("what", "keywords", "words"),
    [
        (None, {}, "found none"),
        ("eps=-1", {}, "at least 0"),
        ("eps=3,delta=1", {}, "below 1"),
        ("eps=3,dleta=1e-5", {}, "did you mean 'delta'"),
        ("3", {}, "Did you mean eps=3"),
        ("delta=1e-5", {}, "a claim is one of"),
        ("mu=1,fpr=1e-9", {}, "some tests only"),
        ("mu=1", {"delta": 0}, "above 0"),
        ("mu=1", {"delta": 1}, "below 1"),
        ("eps=1", {"mu": 1}, "a guarantee of its own"),
        ("eps=1,delta=1e-5", {"delta": 1e-5}, "leave out `delta`"),
        ("eps=1", {"prior": 0}, "above 0"),
        ("eps=1", {"prior": "likely"}, "must be a number"),
        ("eps=1", {"people": 0}, "from 1"),
        ("eps=1", {"people": 1.5}, "whole number"),
        ("eps=1", {"releases": 10**7}, "from 1"),
        ("eps=1", {"unit": "persn"}, "did you mean 'person'"),
        (7, {}, "found 7"),
        ("eps=" + 5000 * "9", {}, "finite"),
        ("gauss " + 5000 * "x", {}, "gauss x"),
        ("a\0b", {}, "a"),
    ],
)
def test_what_is_no_guarantee_is_refused(what, keywords, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        wpriv.explain(what, **keywords)


def test_what_bounds_no_attacker_is_unsupported():
    with pytest.raises(Unsupported, match="pld"):
        wpriv.explain(wpriv.budget("gauss", sigma=4, n=100, delta=1e-5, accountant="clt"))


def test_a_bound_that_excludes_almost_nothing_says_so():
    (warning,) = wpriv.explain("eps=12,delta=1e-5").warnings
    assert "excludes almost nothing" in warning
    assert "99.99939%" in warning
    assert wpriv.explain("eps=3,delta=1e-5").warnings == ()


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.5, "50%"), (0.95257, "95.26%"), (0.999954, "99.9954%"), (1.0, "100%"), (2e-6, "0.0002%"), (1 - 1e-14, "100%")],
)
def test_percent_is_rounded_up_and_keeps_what_is_missing_of_certainty(share, words):
    assert verb.percent(share) == words
    assert float(words[:-1]) >= 100 * share * (1 - 1e-15)


@pytest.mark.parametrize("unit", verb.UNITS)
def test_deployments_are_of_the_unit_that_was_asked_by_increasing_eps(unit):
    row = wpriv.explain("eps=3,delta=1e-5", unit=unit)
    assert 2 <= len(row.deployments) <= verb.NEAREST
    assert {each.protects for each in row.deployments} == {unit}
    assert [each.epsilon for each in row.deployments] == sorted(each.epsilon for each in row.deployments)


def test_every_deployment_has_one_guarantee_a_unit_and_a_source():
    assert len(ENTRIES) >= 20
    for entry in ENTRIES:
        assert ("eps" in entry) != ("rho" in entry), entry["name"]
        assert "delta" not in entry or "eps" in entry
        assert entry["protects"] in verb.UNITS
        assert entry["unit"]
        assert entry["source"]
        assert entry["registry"].endswith(".yaml")
        assert 2000 < entry["year"] < 2100
    census = next(e for e in ENTRIES if e.get("rho") == 2.56)
    # the Census Bureau states eps = 17.14 at delta = 1e-10, of a rho that it rounds
    assert Rho(census["rho"], 1e-10).pair()[0] == pytest.approx(17.14, abs=0.05)
