"""Claims of Sommer, Meiser, Mohammadi (2019): verdicts, and both figures against values computed independently."""

from __future__ import annotations

import functools
import math

import mpmath
import pytest

import wpriv
from tests.oracles import contour_delta, gauss, poisson_gauss
from tests.points import GOLDEN
from wpriv.papers.accountants import berry_esseen, markov
from wpriv.papers.tables import _claims_plc_losses, claims

PLC = {statement.proposition: statement for statement in claims.STATEMENTS["plc"]}
HOLDS = {
    *("Theorem 1", "Lemma 2", "Lemma 4", "Lemma 7", "Equation 4", "Theorem 4", "Lemma 11"),
    *("Lemma 1", "Lemma 5", "Lemma 6", "Lemma 8", "Lemma 8, condition", "Lemma 8, delta", "Lemma 9"),
    *("Lemma 12", "Theorem 5", "Corollary 5.1", "Section 6.2.1, limit", "Appendix A.3", "Contribution (d)"),
    *("Section 4.6, corrected", "Theorem 3, corrected", "Theorem 3, tail"),
    *("Corollary 2.1, truncated", "Theorem 4, moments", "Section 6.1.2, Gauss"),
    *("Corollary 5.2, corrected", "Theorem 6, corrected"),
}


@functools.cache
def row_of(name):
    return PLC[name].row()


def golden(name: str) -> float:
    return float(GOLDEN[name]["value"])


def test_names_are_unique_and_every_error_of_the_page_has_a_row():
    assert len(PLC) == len(claims.STATEMENTS["plc"])
    assert {row["error"] for row in map(row_of, PLC)} - {None} == set(range(1, 20)) - {7, 19}  # slips without a number


@pytest.mark.parametrize("name", PLC)
def test_true_statements_hold_and_false_ones_fail(name):
    row = row_of(name)
    assert row["verdict"] == ("holds" if name in HOLDS else "fails")
    assert (row["error"] is None) == (row["verdict"] == "holds")
    assert row["at"]
    assert row["statement"]


@pytest.mark.parametrize(
    ("name", "published", "exact"),
    [
        ("Example 1", (1 - math.exp(-1)) / (1 + math.e), math.tanh(0.5)),
        ("Example 1, n = 10", golden("002-arr-pub"), golden("002-arr-1")),
        ("Example 1, index", 0.1 + 0.9 * (1 - math.e) / (1 + math.e), golden("002-arr-3")),
        ("Example 2, sum", 10 / 9, 1.0),
        ("Example 2", 1 - (8 / 9) ** 4, golden("002-unif-0")),
        ("Section 4.6, exp", math.exp(-200), 2.6647067053654977e-86),  # Theorem 5 in mpmath at 50 digits
        ("Theorem 3", -golden("002-thm3-0"), golden("002-thm5-1")),
        ("Theorem 3, corrected", golden("002-thm3-0"), golden("002-thm5-1")),
        ("Corollary 2.1", -math.log(2), 0.0),
        # ln of e (Phi(3.5) - Phi(-.5)) / (Phi(2.5) - Phi(-1.5)) in mpmath
        ("Corollary 2.1, truncated", 0.70653700597867816, 0.70653700597867816),
        ("Corollary 5.2", 6.1132558796159068, 8.6454493752098802),
        ("Section 6.1.1", 2 * 0.99 * (0.5 * math.erf(1 / 8 / math.sqrt(2))), golden("002-sg1-0")),
        ("Section 6.2.1, mean", 1 / 8, float(GOLDEN["002-lapclass-1"]["value"][0])),
        ("Section 6.2.1, variance", 1 / 4, float(GOLDEN["002-lapclass-1"]["value"][1])),
        ("Appendix A.3, sum", math.e, 1.0),
        ("Appendix A.3, delta", 0.5 * (1 - math.exp(0.5)) ** 2 + 0.5 * (1 - math.exp(-1)), golden("002-lapdelta-0")),
        ("Appendix A.4, mean", math.exp(0.5) - 1.5, math.exp(-0.5) - 0.5),
        ("Appendix A.4, variance", 3 + 6 * math.exp(2) - math.exp(4), 3 - 10 * math.exp(-2) - math.exp(-4)),
        ("Equation 28", math.e - 1, 1 - math.exp(-1)),
        ("Lemma 12", golden("002-lem12-0"), golden("002-lem12-0")),
        ("Theorem 5", golden("002-thm5-0"), golden("002-thm5-0")),
        ("Corollary 5.1", golden("002-cor51-1"), golden("002-cor51-1")),
        ("Contribution (d)", 2.0**-80, golden("002-thm5-8")),
    ],
)
def test_both_figures_equal_those_computed_by_hand_or_in_mpmath(name, published, exact):
    assert row_of(name)["published"] == pytest.approx(published, rel=1e-9)
    assert row_of(name)["exact"] == pytest.approx(exact, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "published", "exact"),
    [
        ("Theorem 4, moments", 0.9143, 0.9415),
        ("Theorem 6", 5.04e-6, 9.50e-5),
        ("Theorem 6, corrected", 4.03e-2, 9.50e-5),
        ("Lemma 8, delta", 0.1238, 0.1269),
        ("Section 7", 0.18381, 0.12694),
    ],
)
def test_both_figures_equal_those_that_the_page_prints(name, published, exact):
    assert row_of(name)["published"] == pytest.approx(published, rel=1e-3)
    assert row_of(name)["exact"] == pytest.approx(exact, rel=1e-3)


def test_the_order_of_laplace_and_gauss_noise_agrees_with_exact_sums():
    row = row_of("Section 6.2.1, n = 100")
    assert row["published"] == pytest.approx(contour_delta([(gauss(0.5), 100)], 15), rel=1e-6)
    assert row["exact"] == pytest.approx(0.12443924223063342, rel=1e-6)  # laplace_delta(0.5, 100, 15)


def test_the_bound_by_moments_holds_for_the_exact_delta():
    exact = contour_delta([(poisson_gauss(0.01, 0.25, "remove"), 2**16)], 1)
    assert exact == pytest.approx(0.0277, rel=2e-3)
    normal, moments = (each.account(_claims_plc_losses._dp_sgd()).delta(eps=1) for each in (berry_esseen, markov))
    assert exact < normal < moments


def test_the_perturbed_distribution_has_the_moments_and_not_the_delta():
    with mpmath.workdps(20):

        def density(y):
            return mpmath.npdf(y, 0.5, 1) * (1 + mpmath.sin(2 * mpmath.pi * (y - mpmath.mpf("0.5"))))

        panels = list(range(-10, 16))
        for lam in (-1, 4):
            moment = mpmath.quad(lambda y, lam=lam: density(y) * mpmath.exp(lam * y), panels)
            assert float(moment) == pytest.approx(math.exp(lam * (lam + 1) / 2), rel=1e-12)
        delta = mpmath.quad(lambda y: density(y) * (1 - mpmath.exp(1 - y)), list(range(1, 13)))
    assert row_of("Lemma 8, delta")["published"] == pytest.approx(float(delta), rel=1e-10)


def test_the_printed_noise_is_right_where_the_paper_is():
    assert _claims_plc_losses.published_sigma(1.0, 1e-5) == pytest.approx(golden("002-cor52-0"), rel=1e-12)


def test_the_recipe_meets_its_expected_numbers(tmp_path):
    comparison = wpriv.compare("plc/claims", out=tmp_path / "out")
    comparison.require()
    assert len(comparison.rows) == len(PLC) >= 50
