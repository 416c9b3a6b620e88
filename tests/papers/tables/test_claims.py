"""Table ``claims``: true statements of a paper hold, false ones fail at counterexamples known by hand."""

from __future__ import annotations

import math

import pytest

import wpriv
from wpriv.cli.main import main
from wpriv.errors import UsageError
from wpriv.papers.tables import claims
from wpriv.papers.tables._statement import Statement

WDP = {statement.proposition: statement for statement in claims.STATEMENTS["wdp"]}
HOLDS = {*(f"Proposition {k}" for k in (1, 2, 3, 4, 6, 13)), "Lemma 1"}


def test_claims_cover_every_proposition():
    assert {f"Proposition {k}" for k in range(1, 14)} <= set(WDP)
    assert len(WDP) >= 20


@pytest.mark.parametrize("name", WDP)
def test_true_statements_hold_and_false_ones_fail(name):
    row = WDP[name].row()
    assert row["verdict"] == ("holds" if name in HOLDS else "fails")
    assert row["at"]
    assert row["statement"]
    if row["verdict"] == "fails" and not WDP[name].equal:
        assert row["published"] < row["exact"]


@pytest.mark.parametrize(
    ("name", "published", "exact"),
    [
        ("Proposition 7", 0.42888194248035339824, 1.0),  # golden 000-prop7-0
        ("Proposition 8", 0.5, 1.0),
        ("Equation 83", 1.0, math.sqrt(2)),
        ("WDP to zCDP", 1.0, 1 + math.exp(-2)),  # the divergence of order 1 of Laplace noise, at t = 2
        ("Theorem 3", math.exp(-1), 0.5),
        ("Theorem 1", math.exp(-1), 0.5),
        ("Theorem 2", 5.148, 6.547),
        ("Equation 37", 0.4375637, 0.6188089),  # TV = erf(1 / sqrt 8) = 0.3829249
        ("Proposition 7, KL", math.exp(-1), 1 + math.exp(-2)),
        ("Proposition 8, units", 0.5, 5.0),
        ("Proposition 8, order", 0.62924947532091, 2.5),  # golden 000-prop8-3
        ("Theorem 2, q = 0", math.sqrt(4 / math.pi), 0.0),  # E|Z| of variance 2
        ("Theorem 2, n", 2.0, 1.0),
        ("Equation 92", 0.5, 1.25),
        ("Table 2, digits", 0.898, 0.9002),
        ("Table 2, worst digit", 0.623, 0.94785),  # 1/(1 + e^-2.9)
    ],
)
def test_counterexamples_equal_those_computed_by_hand(name, published, exact):
    row = WDP[name].row()
    assert row["published"] == pytest.approx(published, rel=1e-4)
    assert row["exact"] == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("kind", [{}, {"equal": True}, {"lower": True}])
@pytest.mark.parametrize("case", [("a", math.nan, 1.0), ("a", 1.0, math.nan)])
def test_a_claim_about_what_is_no_number_gets_no_verdict(case, kind):
    with pytest.raises(ArithmeticError, match="not a number"):
        Statement("x", "y", lambda: iter([case]), **kind).row()


def test_the_tightest_case_is_shown_for_a_claim_that_holds():
    row = Statement("x", "y", lambda: iter([("a", 3.0, 1.0), ("b", 2.0, 1.0), ("c", 4.0, 1.0)])).row()
    assert (row["verdict"], row["at"]) == ("holds", "b")
    row = Statement("x", "y", lambda: iter([("a", 2.0, 1.0), ("b", 1.0, 1.0)]), equal=True).row()
    assert (row["verdict"], row["at"]) == ("fails", "a")


@pytest.mark.parametrize("paper", ["wdp", "wgrad", "ldp"])
def test_a_false_statement_has_the_number_of_its_error_and_a_true_one_has_none(paper):
    rows = claims.rows(claims.Params(paper=paper))
    assert len({row["proposition"] for row in rows}) == len(rows)
    for row in rows:
        assert (row["error"] is None) == (row["verdict"] == "holds"), row


@pytest.mark.parametrize("number", sorted(set(range(1, 18)) - {2}))
def test_every_error_of_wdp_with_a_number_has_a_row(number):
    assert any(statement.error == number for statement in claims.STATEMENTS["wdp"])


def test_every_statement_is_printed(capsys, tmp_path):
    assert main(["compare", "wdp/claims", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(WDP) > 24  # more than the rows that are shown of a sweep
    assert [line for name in WDP for line in printed if line.startswith(f"{name}  ")] == printed[2 : len(WDP) + 2]


@pytest.mark.slow
def test_the_claims_table_is_compared_and_plotted_like_others(tmp_path, capsys):
    comparison = wpriv.compare("wdp/claims", out=tmp_path / "out")
    comparison.require()
    assert len(comparison.rows) == len(WDP)
    assert main(["plot", str(tmp_path / "out" / "table.csv")]) == 0
    with pytest.raises(UsageError, match="'process'"):
        wpriv.compare(table="claims", process=[{"mech": "gauss", "sigma": 1}])


def test_a_lower_bound_fails_above_and_holds_at_its_largest_case():
    cases = [("a", 0.1, 1.0), ("b", 0.9, 1.0)]
    row = Statement("x", "y", lambda: iter(cases), lower=True).row()
    assert (row["verdict"], row["at"]) == ("holds", "b")
    row = Statement("x", "y", lambda: iter([*cases, ("c", 1.1, 1.0)]), lower=True).row()
    assert (row["verdict"], row["at"]) == ("fails", "c")


@pytest.mark.parametrize(
    ("kind", "published", "exact", "verdict"),
    [
        ({}, -0.3, 0.1, "fails"),
        ({}, 0.1, 0.0, "holds"),
        ({}, -1.0, -2.0, "holds"),
        ({"equal": True}, 0.0, 0.0, "holds"),
        ({"equal": True}, -1.0, 1.0, "fails"),
        ({"lower": True}, 0.1, 0.0, "fails"),
    ],
)
def test_figures_of_zero_and_of_either_sign_are_compared(kind, published, exact, verdict):
    assert Statement("x", "y", lambda: iter([("a", published, exact)]), **kind).row()["verdict"] == verdict


def test_the_screen_shows_every_claim(tmp_path, capsys):
    assert main(["compare", "plc/claims", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert all(statement.proposition in shown for statement in claims.STATEMENTS["plc"])
