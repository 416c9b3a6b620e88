"""``--max-eps``: one figure is computed, printed in every format and decided on; and only guarantees are decided on.

Oracle of the decision: the number that the same call printed. Oracle of the figures: 2.300765, by Laplace inversion in
high precision.
"""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from tests import nightly
from tests.command_line import call

SAMPLED = "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4"
EXACT = "budget --mech gauss --sigma 1 --delta 1e-5"
UPPER = "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4 --accountant rdp"
TRUTH = 2.300765


def figures(capsys, line: str, limit: float) -> tuple[set[int], list[float]]:
    """The exit codes and the eps printed by one gated call in every format."""
    text = call(capsys, f"{line} --max-eps {limit!r}")
    quiet = call(capsys, f"{line} --max-eps {limit!r} --quiet")
    as_json = call(capsys, f"{line} --max-eps {limit!r} --json")
    as_csv = call(capsys, f"{line} --max-eps {limit!r} --csv")
    shown = re.match(r"eps (?:=|<=) (\S+) \(", text[1])
    row = next(csv.DictReader(io.StringIO(as_csv[1])))
    return (
        {text[0], quiet[0], as_json[0], as_csv[0]},
        [float(shown[1]), float(quiet[1]), json.loads(as_json[1])["epsilon"], float(row["epsilon"])],
    )


@pytest.mark.slow
@pytest.mark.parametrize("line", [SAMPLED, EXACT, UPPER])
@pytest.mark.parametrize(
    "away",
    nightly.sharded([0.0, -1e-2, -3e-4, -2e-5, -1e-6, -3e-8, 1e-6, -1e-12, 1e-12, 3e-8, 2e-5, 3e-4, 1e-2], 3),
)
def test_a_limit_is_met_exactly_where_every_printed_figure_is_at_most_it(capsys, line, away):
    _, out, _ = call(capsys, f"{line} --json")
    limit = json.loads(out)["epsilon"] * (1 + away)
    codes, shown = figures(capsys, line, limit)
    assert len(codes) == 1
    assert codes in ({0}, {1})
    for figure in shown:
        assert (figure <= limit) == (codes == {0})
    # text and JSON differ by the rounding of what is printed alone
    assert max(shown) - min(shown) <= 1e-5 * max(shown)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2.29, 2.3, 2.3007, 2.3008, 2.301, 2.3015, 2.302, 2.31])
def test_a_limit_beyond_the_truth_passes_and_one_below_it_fails(capsys, limit):
    codes, shown = figures(capsys, SAMPLED, limit)
    assert codes == ({0} if limit > TRUTH else {1})
    assert all(figure >= TRUTH * (1 - 1e-7) for figure in shown)


def test_the_figure_that_decides_is_the_bracket_that_is_shown(capsys):
    _, wide, _ = call(capsys, f"{SAMPLED} --json --tol 1e-3")
    code, narrow, _ = call(capsys, f"{SAMPLED} --json --tol 1e-3 --max-eps 2.301")
    wide, narrow = json.loads(wide), json.loads(narrow)
    assert code == 0
    assert (
        wide["epsilon_lower"]
        <= narrow["epsilon_lower"]
        <= TRUTH
        <= narrow["epsilon_upper"]
        == narrow["epsilon"]
        <= 2.301
    )
    assert wide["epsilon"] > 2.301


def test_the_reason_of_a_refusal_shows_the_figure_that_was_printed(capsys):
    code, out, err = call(capsys, f"{SAMPLED} --max-eps 2.3007 --quiet")
    assert code == 1
    assert f"found {out.strip()} by pld" in err


@pytest.mark.slow
def test_a_recorded_history_is_gated_on_one_figure(capsys, tmp_path):
    file = tmp_path / "history.json"
    file.write_text(json.dumps([[1.1, 0.01, 300], [2.0, 0.02, 100]]))
    _, out, _ = call(capsys, f"budget --history {file} --delta 1e-5 --json")
    row = json.loads(out)
    limit = (row["epsilon_lower"] + 2 * row["epsilon_upper"]) / 3  # inside the bracket
    codes, shown = figures(capsys, f"budget --history {file} --delta 1e-5", limit)
    assert len(codes) == 1
    assert all((figure <= limit) == (codes == {0}) for figure in shown)


@pytest.mark.parametrize(
    "accountant",
    ["clt", "gdp-clt", "renyi", "renyi:order=1", "pdp", "wdp:variant=exact", "wdp:variant=table1", "bdp", "wdp"],
)
@pytest.mark.parametrize("mode", ["", "--quiet", "--json"])
def test_a_gate_refuses_what_is_no_guarantee_and_prints_no_figure(capsys, accountant, mode):
    seen = (
        "--observed weibull:shape=0.5,records=8,coordinates=10,steps=3,quantile=0.5"
        if accountant in ("bdp", "wdp")
        else ""
    )
    code, out, err = call(
        capsys,
        f"budget --mech gauss --sigma 1 --n 3 --delta 1e-5 --max-eps 1e6 --accountant {accountant} {seen} {mode}",
    )
    assert code == 3
    assert out == ""
    assert "no (eps, delta)-DP guarantee" in err
    for name in ("pld", "rdp", "kov"):
        assert name in err


@pytest.mark.slow
@pytest.mark.parametrize(
    "accountant", ["pld", "gdp", "rdp", "rdp-mironov", "moments", "zcdp", "basic", "advanced", "kov", "markov"]
)
def test_a_gate_decides_on_every_accountant_that_gives_a_guarantee(capsys, accountant):
    line = f"budget --mech gauss --sigma 10 --n 3 --delta 1e-5 --accountant {accountant}"
    assert call(capsys, f"{line} --max-eps 1e6")[0] == 0
    assert call(capsys, f"{line} --max-eps 1e-3")[0] == 1


def test_one_estimate_among_several_accountants_is_refused_too(capsys):
    code, out, err = call(capsys, f"{SAMPLED} --accountant pld --accountant clt --max-eps 3")
    assert (code, out) == (3, "")
    assert "clt" in err
    assert call(capsys, f"{SAMPLED} --accountant pld --accountant rdp --max-eps 3")[0] == 0


@pytest.mark.parametrize("accountant", ["clt", "gdp-clt", "renyi"])
def test_calibrating_by_an_estimate_carries_its_warning(capsys, accountant):
    code, _, err = call(capsys, f"calibrate --mech gauss --eps 1 --delta 1e-5 --quiet --accountant {accountant}")
    assert code == 0
    assert "no (eps, delta)-DP guarantee" in err
    assert "guarantee" not in call(capsys, "calibrate --mech gauss --eps 1 --delta 1e-5 --quiet")[2]


# --- what is printed is true as printed
# ---------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", ["1.0000001", "0.1", "3", "1e-7", "2.718281828459045"])
def test_the_question_is_repeated_in_all_of_its_digits(capsys, eps):
    out = call(capsys, f"budget --mech laplace --scale 0.99999995 --eps {eps}")[1]
    assert f", eps {eps})" in out.splitlines()[0]
    assert "scale 0.99999995" in out


def test_a_delta_too_small_for_a_double_is_bounded_and_never_zero(capsys):
    # mu = sqrt(10): at eps = 1000 the normal tail is about e^-49506
    line = "budget --mech gauss --sigma 1 --n 10 --eps 1000"
    row = json.loads(call(capsys, f"{line} --json")[1])
    assert row["claim"] == "upper-bound"
    assert 0 < row["delta"] == row["delta_upper"] <= 1e-300
    assert row["delta_lower"] == 0
    assert call(capsys, line)[1].startswith("delta <= 1e-300 (upper bound, eps 1000)\n")


@pytest.mark.parametrize(
    "accountant", ["pld", "gdp", "rdp", "zcdp", "basic", "advanced", "kov", "markov", "moments", "clt"]
)
def test_no_accountant_rounds_a_positive_delta_to_zero(capsys, accountant):
    row = json.loads(
        call(capsys, f"budget --mech gauss --sigma 1 --n 10 --eps 100000 --accountant {accountant} --json")[1]
    )
    assert row["delta"] > 0


def test_a_delta_of_zero_is_exact_where_the_loss_ends(capsys):
    # one Laplace release of scale 1 is pure 1-DP
    row = json.loads(call(capsys, "budget --mech laplace --scale 1 --eps 1 --json")[1])
    assert (row["delta"], row["claim"]) == (0.0, "exact")


def test_a_discrete_gauss_release_has_no_largest_loss(capsys):
    # P(noise > 40 sigma) is about e^-800, and positive
    for more in ("", "--n 3", "--sampling poisson --rate 0.1", "--sampling fixed --rate 0.1", "--accountant basic"):
        row = json.loads(call(capsys, f"budget --mech discrete-gauss --sigma 1 --eps 200 --json {more}")[1])
        assert row["delta"] > 0
