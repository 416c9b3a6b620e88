"""Tables of published numbers beside computed ones: Table 2 of Yang et al., Table 4 of Rakotomamonjy, Ralaivola."""

from __future__ import annotations

import mpmath
import pytest

from wpriv.papers.tables import projection_noise
from wpriv.papers.tables._declared import AttackChances


def test_twelve_chances_are_held_against_the_formula_and_three_do_not_follow_from_it():
    rows = AttackChances().rows()
    assert len(rows) == 12
    for row in rows:
        exact = float(1 / (1 + mpmath.exp(-mpmath.mpf(str(row["eps_printed"])))))
        assert row["computed"] == pytest.approx(exact, rel=1e-12)
        assert row["difference"] == pytest.approx(row["printed"] - exact, abs=1e-12)
    wrong = {(row["data"], row["framework"]) for row in rows if abs(row["difference"]) > 1.5e-3}
    assert wrong == {("MNIST", "DP"), ("SVHN", "DP"), ("Fashion-MNIST", "DP")}


@pytest.mark.slow
def test_the_noise_of_the_first_row_is_the_least_that_each_way_of_accounting_accepts():
    (row,) = projection_noise.rows(projection_noise.Params(first=1))
    # the published accounting, computed apart
    assert row["lemma"] == pytest.approx(4.386, rel=2e-4)
    assert row["program"] == pytest.approx(4.793, rel=2e-4)
    assert row["clt"] == pytest.approx(0.911, rel=1e-3)
    setting = projection_noise.SETTINGS["U-M"]
    eps = [projection_noise.pld.account(setting.process(row["certified"] * k)).epsilon(delta=1e-5) for k in (1, 0.99)]
    assert eps[0] <= 10 < eps[1]
    assert row["certified_eps"] < 1


def test_the_steps_are_those_of_the_program():
    assert {name: s.steps for name, s in projection_noise.SETTINGS.items() if name in ("U-M", "Office")} == {
        "U-M": 7900,
        "Office": 800,
    }
