"""``--mu``, ``--curve tradeoff``, ``--advantage`` and ``--tpr`` on the command line.

Oracles: closed forms of two normal distributions.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re

import jsonschema
import pytest
from scipy.special import ndtr, ndtri

from tests.command_line import call
from tests.points import ROOT
from wpriv.cli.main import main

PLAIN = "--mech gauss --sigma 4 --n 10"
SAMPLED = "--mech gauss --sigma 2 --sampling poisson --rate 0.1 --n 500"


def test_mu_of_plain_noise_is_exact_and_holds_everywhere(capsys):
    code, out, _ = call(capsys, f"budget {PLAIN} --mu")
    assert code == 0
    assert out.startswith("mu = 0.79057 (exact, at every FPR)\n")
    row = json.loads(call(capsys, f"budget {PLAIN} --mu --json")[1])
    assert row["mu_lower"] == row["mu_upper"] == pytest.approx(math.sqrt(10) / 4, rel=1e-14)
    assert row["mu_fpr"] == 0


def test_json_has_both_ends_and_both_orders_and_keeps_to_the_schema(capsys):
    code, out, _ = call(capsys, f"budget {SAMPLED} --mu --fpr 1e-6 --json")
    row = json.loads(out)
    assert code == 0
    assert 0 < row["mu_lower"] <= row["mu_upper"] == row["mu"] <= 1.001 * row["mu_lower"]
    assert row["mu_fpr"] == 1e-6
    assert [order["order"] for order in row["mu_orders"]] == ["remove", "add"]
    jsonschema.validate(row, json.loads((ROOT / "wpriv/accounting/guarantee.schema.json").read_text()))


def test_every_format_shows_the_same_mu(capsys):
    _, text, _ = call(capsys, f"budget {SAMPLED} --mu")
    shown = float(re.match(r"mu = (\S+) \(certified, at every FPR >= 1e-9 with FNR >= 1e-9\)", text)[1])
    assert float(call(capsys, f"budget {SAMPLED} --mu --quiet")[1]) == shown
    row = next(csv.DictReader(io.StringIO(call(capsys, f"budget {SAMPLED} --mu --csv")[1])))
    assert float(row["mu"]) <= shown <= float(row["mu"]) * (1 + 1e-5)


def test_mu_stands_beside_an_eps_that_is_asked(capsys):
    _, out, _ = call(capsys, f"budget {SAMPLED} --delta 1e-5 --mu")
    assert out.startswith("eps = ")
    assert re.search(r"^  mu +\[\S+, \S+\], at every FPR >= 1e-9", out, re.M)


def test_a_distinguishing_event_is_named_where_mu_depends_on_the_cut(capsys):
    code, _, err = call(capsys, "budget --mech uniform --param outcomes=5 --mu")
    assert code == 0
    assert "distinguishing events" in err


def test_the_trade_off_curve_brackets_that_of_two_normals(capsys):
    code, out, _ = call(capsys, f"budget --curve tradeoff {PLAIN} --fpr 1e-4 --csv")
    rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(io.StringIO(out))]
    assert code == 0
    assert rows[0]["fpr"] == 1e-4
    assert rows[-1]["fpr"] == 1
    for row in rows[:-1]:
        truth = ndtr(-ndtri(row["fpr"]) - math.sqrt(10) / 4)
        assert row["fnr_lower"] <= truth * (1 + 1e-9)
        assert row["fnr_upper"] >= truth * (1 - 1e-9)
        assert row["gauss"] == pytest.approx(truth, rel=1e-6)


def test_calibration_to_an_advantage_is_that_of_two_normals(capsys):
    code, out, _ = call(capsys, "calibrate --mech gauss --advantage 0.1 --quiet")
    # the total variation distance of N(0, 1) and N(mu, 1) is 2 Phi(mu / 2) - 1
    least = 1 / (2 * float(ndtri(0.55)))
    assert code == 0
    assert least <= float(out) * (1 + 1e-9) <= least * (1 + 1e-5)


def test_calibration_to_a_true_positive_rate_is_that_of_two_normals(capsys):
    code, out, _ = call(capsys, "calibrate --mech gauss --tpr 0.02 --fpr 0.01 --json")
    row = json.loads(out)
    least = 1 / float(ndtri(0.02) - ndtri(0.01))
    assert code == 0
    assert least <= row["calibrated"]["value"] <= least * (1 + 1e-4)
    assert row["calibrated"]["misses"] <= least
    assert row["attack"]["tpr_at_fpr"][0]["tpr_upper"] <= 0.02


@pytest.mark.slow
def test_calibrated_noise_of_sampled_steps_meets_its_target_by_budget(capsys):
    _, sigma, _ = call(
        capsys, "calibrate --mech gauss --sampling poisson --rate 0.1 --n 500 --tpr 0.1 --fpr 0.01 --quiet"
    )
    line = f"budget --mech gauss --sigma {sigma.strip()} --sampling poisson --rate 0.1 --n 500 --delta 1e-5 --json"
    points = json.loads(call(capsys, line)[1])["attack"]["tpr_at_fpr"]
    assert points[1]["fpr"] == 0.01
    assert points[1]["tpr_lower"] <= 0.1
    assert points[1]["tpr_upper"] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"budget {PLAIN} --mu --fpr 0.7", "--fpr"),
        (f"budget {PLAIN} --mu --fpr 0", "--fpr"),
        (f"budget {PLAIN} --mu --fpr x", "--fpr"),
        (f"budget {PLAIN} --delta 1e-5 --fpr 0.1", "--mu or --curve tradeoff"),
        (f"budget {PLAIN} --mu --curve", "--curve"),
        (f"budget {PLAIN} --mu --adaptive --delta 1e-5", "--adaptive"),
        (f"budget --curve tradeoff {PLAIN} --delta 1e-5", "--delta"),
        (f"budget --curve tradeoff {PLAIN} --fpr 2", "--fpr"),
        ("calibrate --mech gauss --advantage 1.5", "--advantage"),
        ("calibrate --mech gauss --advantage 0.1 --delta 1e-5", "--advantage"),
        ("calibrate --mech gauss --tpr 0.1", "--tpr with --fpr"),
        ("calibrate --mech gauss --tpr 0.01 --fpr 0.1", "--tpr must be above --fpr"),
        ("calibrate --mech gauss --tpr 0.1 --fpr 0", "--fpr"),
        ("calibrate --mech gauss --advantage 0.1 --compare-classical", "--compare-classical"),
        ("calibrate --mech gauss --max-mu 1 --certificate c.json", "--certificate"),
        ("calibrate --mech gauss --tpr 0.1 --fpr 0.01 --certificate c.json", "--certificate"),
    ],
)
def test_a_faulty_question_is_refused_with_the_flag_named(capsys, line, words):
    code, out, err = call(capsys, line)
    assert code == 2
    assert out == ""
    assert words in err


@pytest.mark.parametrize("accountant", ["gdp-clt", "pdp", "zcdp:x"])
def test_accountants_without_proven_bounds_have_no_mu(capsys, accountant):
    code, out, err = call(capsys, f"budget {SAMPLED} --mu --accountant {accountant}")
    assert code in (2, 3)
    assert out == ""
    assert "pld" in err or "zcdp" in err


def test_several_accountants_have_a_column_of_mu(capsys):
    code, out, _ = call(capsys, f"budget {SAMPLED} --mu --accountant pld --accountant rdp")
    assert code == 0
    assert re.search(r"^accountant +claim +mu ", out, re.M)


def test_a_bound_on_attacks_names_its_false_positive_rate_with_all_digits(capsys):
    assert main(["calibrate", "--mech", "gauss", "--tpr", "0.02", "--fpr", "0.0123456789"]) == 0
    assert "TPR at FPR 0.0123456789 " in capsys.readouterr().out
