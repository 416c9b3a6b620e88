"""Interpretations of one job. Oracle: figures of other tools (MNIST, 60000 records, batch 256, 60 epochs)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from wpriv.accounting.interpretations import compare_interpretations, interpretations_of
from wpriv.errors import UsageError

JOB = {"mech": "gauss", "sigma": 1.12, "records": 60000, "batch": 256, "epochs": 60}


@pytest.fixture(scope="module")
def rows():
    return compare_interpretations(JOB, delta=1e-5)


@pytest.mark.parametrize(
    ("accountant", "sampling", "adjacency", "eps"),
    [
        ("gdp-clt", "poisson", "add-remove", 2.257),
        ("pld", "poisson", "add-remove", 2.310),
        ("rdp", "poisson", "add-remove", 2.519),
        ("rdp-mironov", "poisson", "add-remove", 2.922),
    ],
)
def test_the_known_readings_give_the_known_figures(rows, accountant, sampling, adjacency, eps):
    row, *_ = [r for r in rows if (r["accountant"], r["sampling"], r["adjacency"]) == (accountant, sampling, adjacency)]
    assert row["epsilon_estimate"] == pytest.approx(eps, abs=1.2e-3)


def test_without_amplification_eps_is_the_published_one(rows):
    (row,) = [r for r in rows if (r["sampling"], r["adjacency"]) == ("shuffle", "zero-out")]
    assert row["epsilon"] == pytest.approx(52.6, abs=0.05)


def test_every_reading_says_what_it_assumes_and_a_refused_one_why(rows):
    assert all(row["assumption"] for row in rows)
    assert all("the number of records is secret" in row["assumption"] for row in rows if row["reason"])
    laplace = compare_interpretations({"mech": "laplace", "scale": 20, "rate": 0.01, "n": 10}, eps=0.1)
    refused, _ = [r for r in laplace if r["reason"] and r["accountant"] == "pld"]
    assert (refused["sampling"], refused["adjacency"]) == ("poisson", "replace-one")
    assert refused["delta"] is None


def test_replacing_a_record_doubles_the_sensitivity_given():
    found = [
        r.spec.get("sensitivity")
        for r in interpretations_of({**JOB, "sensitivity": 0.5})
        if r.adjacency == "replace-one"
    ]
    assert found == [1.0, 0.5, 1.0, 1.0]


def test_bands_largest_batches_and_groups_have_rows_of_their_own():
    job = {"mech": "gauss", "sigma": 4, "rate": 0.01, "n": 1000, "records": 60000}
    extra = {"bands": 4, "max_batch": 800, "group": 3}
    plain, rows = (compare_interpretations(each, delta=1e-6) for each in (job, job | extra))
    more = [row for row in rows if row["assumption"] not in {row["assumption"] for row in plain}]
    assert [(row["n"], row["rate"]) for row in more] == [(250, 0.04), (1000, 0.01), (1000, 0.01)]
    # dp-accounting 0.6.0: 1.0374 for three records, and 0.31926 for one
    assert more[2]["epsilon"] == pytest.approx(1.0374, abs=2e-3)
    assert more[1]["epsilon"] == pytest.approx(0.3193, abs=1e-3)


def test_a_job_without_sampling_has_readings_too():
    assert {r.spec.get("sampling", "none") for r in interpretations_of({"mech": "laplace", "scale": 20, "n": 10})} == {
        "none"
    }


@pytest.mark.parametrize("question", [{}, {"eps": 1, "delta": 1e-5}])
def test_one_question_is_asked(question):
    with pytest.raises(UsageError, match="--why"):
        compare_interpretations(JOB, **question)


def test_an_unknown_mechanism_is_refused():
    with pytest.raises(UsageError, match="did you mean"):
        compare_interpretations({"mech": "gaus", "sigma": 1}, delta=1e-5)


@pytest.mark.parametrize(
    ("job", "begins", "adjacency", "eps"),
    [
        # two workers, each with the whole data, and batches in stored order: F3 and F4 of docs/guides/twenty-faults.md
        ({"sigma": 1, "rate": 0.05, "n": 160}, "sampler: two workers", "add-remove", 9.58892),
        ({"sigma": 1.5, "rate": 1 / 32, "n": 160}, "sampler: batches in stored order", "zero-out", 6.99923),
        ({"sigma": 2, "rate": 0.2, "n": 100}, "divisor from the data", "zero-out", 5.02319),
    ],
)
def test_samplers_and_divisors_have_the_eps_of_what_ran(job, begins, adjacency, eps):
    rows = compare_interpretations({"mech": "gauss", **job}, delta=1e-5)
    (row,) = [row for row in rows if row["assumption"].startswith(begins) and not row["reason"]]
    assert row["adjacency"] == adjacency
    assert row["epsilon"] == pytest.approx(eps, abs=1e-4)


def test_draws_with_replacement_have_a_binomial_number_of_copies():
    job = {"mech": "gauss", "sigma": 2, "batch": 5, "records": 20, "n": 1}
    (row,) = [
        r for r in compare_interpretations(job, eps=0.5) if r["assumption"].startswith("sampler: draws with repl")
    ]
    x = np.linspace(-20, 30, 200_001)
    with_record = binom.pmf(range(6), 5, 1 / 20) @ norm.pdf(x, np.arange(6)[:, None], 2)
    without, grown = norm.pdf(x, 0, 2), np.exp(0.5)
    orders = (with_record - grown * without, without - grown * with_record)
    assert row["delta"] == pytest.approx(max(np.trapezoid(np.maximum(order, 0), x) for order in orders), rel=1e-5)


def test_a_secret_number_of_records_shows_in_the_size_of_the_noise():
    job = {"mech": "gauss", "sigma": 2, "batch": 25, "records": 124, "n": 100}
    (row,) = [row for row in compare_interpretations(job, delta=1e-5) if row["reason"]]
    assert row["assumption"] == "divisor from the data, int(rate x records): the number of records is secret"
    assert "a divisor of 25 or of 24 gives eps at least 2.882 with 1 parameter" in row["reason"]
