"""The paper's statements: those that are right hold, those that are wrong fail at the counterexamples of the errata."""

from __future__ import annotations

import math

import pytest

import wpriv
from wpriv.cli.main import main
from wpriv.errors import UsageError
from wpriv.tables import claims

HOLDS = {"Proposition 1", "Proposition 2", "Proposition 3", "Proposition 4", "Proposition 13", "Lemma 1"}


def test_every_proposition_has_a_verdict():
    assert {f"Proposition {k}" for k in range(1, 14)} <= set(claims.STATEMENTS)
    assert len(claims.STATEMENTS) >= 20


@pytest.mark.parametrize("name", claims.STATEMENTS)
def test_right_statements_hold_and_wrong_ones_fail(name):
    row = claims.STATEMENTS[name].row()
    assert row["verdict"] == ("holds" if name in HOLDS else "fails")
    assert row["at"]
    assert row["statement"]
    if row["verdict"] == "fails":
        assert row["published"] < row["exact"]


@pytest.mark.parametrize(
    ("name", "published", "exact"),
    [
        ("Proposition 7", 0.42888194248035339824, 1.0),  # golden 000-prop7-0
        ("Proposition 8", 0.5, 1.0),
        ("Proposition 6", 1.0, math.sqrt(2)),
        ("Theorem 1", math.exp(-1), 0.5),
        ("Theorem 2", 5.148, 6.547),
        ("Table 2, digits", 0.898, 0.9002),
        ("Table 2, worst digit", 0.623, 0.94785),  # 1/(1 + e^-2.9)
    ],
)
def test_counterexamples_are_those_that_were_worked_out_by_hand(name, published, exact):
    row = claims.STATEMENTS[name].row()
    assert row["published"] == pytest.approx(published, rel=1e-4)
    assert row["exact"] == pytest.approx(exact, rel=1e-4)


def test_the_statement_that_is_tightest_without_failing_is_shown_where_a_claim_holds():
    found = claims.Statement("x", "y", lambda: iter([("a", 3.0, 1.0), ("b", 2.0, 1.0), ("c", 4.0, 1.0)])).row()
    assert (found["verdict"], found["at"]) == ("holds", "b")
    found = claims.Statement("x", "y", lambda: iter([("a", 2.0, 1.0), ("b", 1.0, 1.0)]), equal=True).row()
    assert (found["verdict"], found["at"]) == ("fails", "a")


def test_the_table_is_a_comparison_like_any_other(tmp_path, capsys):
    done = wpriv.compare("wdp/propositions", out=tmp_path / "out")
    done.require()
    assert len(done.rows) == len(claims.STATEMENTS)
    assert main(["plot", str(tmp_path / "out" / "table.csv")]) == 0
    with pytest.raises(UsageError, match="'process' means nothing in a claims table"):
        wpriv.compare(table="claims", process=[{"mech": "gauss", "sigma": 1}])
