"""The documented forms of budget and calibrate: what they print, and that it is true.

Oracles: golden values (mpmath), closed forms of the Gauss mechanism, and figures that other tools agree on (named where
used).
"""

from __future__ import annotations

import csv
import io
import json
import re
import warnings
from pathlib import Path

import jsonschema
import pytest

import wpriv
from tests import nightly
from tests.points import GOLDEN
from wpriv.cli.main import main

SCHEMA = json.loads((Path(wpriv.__file__).parent / "accounting" / "guarantee.schema.json").read_text())


def run(capsys, line: str, code: int = 0) -> str:
    """Runs one command line, checks its exit code, and returns what went to standard output."""
    assert main(line.split()) == code
    return capsys.readouterr().out


def as_json(capsys, line: str) -> dict:
    """The object that --json prints; one, on one line, and of the published schema."""
    out = run(capsys, line + " --json")
    assert out.count("\n") == 1
    found = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    jsonschema.validate(found, SCHEMA)
    return found


def test_dp_sgd_budget_brackets_the_known_eps(capsys):
    # 2.300765: Laplace inversion of the mechanism's moment generating function in high precision
    found = as_json(capsys, "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4")
    assert found["epsilon_lower"] <= 2.300765 <= found["epsilon_upper"] == found["epsilon"]
    assert found["epsilon_upper"] / found["epsilon_lower"] < 1.001
    assert found["claim"] == "certified"
    assert found["process"] == [
        {"mech": "gauss", "sigma": 4.0, "sensitivity": 1.0, "n": 65536, "sampling": "poisson", "rate": 0.01}
    ]


@pytest.mark.parametrize("accountant", ["wdp:variant=code,order=16", "wdp:variant=exact", "bdp", "renyi"])
def test_other_notions_keep_the_published_schema(capsys, accountant):
    seen = "weibull:shape=0.5,records=8,coordinates=10,steps=3,quantile=0.5"
    delta = "" if accountant == "renyi" else "--delta 1e-5"
    found = as_json(
        capsys,
        f"budget --mech gauss --sigma 1 --n 3 {delta} --accountant {accountant} --observed {seen} --explain",
    )
    assert found["notion"] != "approximate-dp"
    assert (found["delta"] is None) == ("order" in found) == (accountant == "renyi")
    assert found["process"][0]["observed"] == seen
    assert ("attack_reading" in found) == (found["notion"] != "rdp")


def test_a_renyi_divergence_has_an_order_and_no_delta(capsys):
    # Gaussian noise: order / (2 sigma^2)
    job = "budget --mech gauss --sigma 4 --accountant renyi:order=8"
    assert run(capsys, job).startswith("Renyi divergence of order 8 = 0.25 (exact)\n")
    assert run(capsys, f"{job} --quiet") == "0.25\n"
    found = as_json(capsys, job)
    assert [found[key] for key in ("delta", "delta_lower", "delta_upper", "delta_estimate")] == [None] * 4
    assert (found["epsilon"], found["order"]) == (0.25, 8)
    for flags in ("--delta 1e-5", "--delta 1e-5 --quiet"):
        assert run(capsys, f"{job} {flags}", 2) == ""
    table = run(capsys, f"{job} --accountant pld --delta 1e-5").splitlines()
    assert table[0] == "eps at delta 1e-5 by 2 accountants"
    assert any("eps [rdp]" in line for line in table)
    noise = as_json(capsys, "calibrate --mech gauss --eps 0.25 --accountant renyi:order=8")
    assert noise["calibrated"]["value"] == pytest.approx(4, rel=1e-6)
    assert noise["delta"] is None


def test_laplace_budget_gives_delta_at_eps(capsys):
    point = GOLDEN["002-lapbig-1"]
    given = point["inputs"]
    found = as_json(capsys, f"budget --mech laplace --scale {given['b']} --n {given['n']} --eps {given['eps']}")
    assert found["delta_lower"] <= float(point["value"]) <= found["delta_upper"] == found["delta"]
    assert found["asked"] == "delta"


@pytest.mark.parametrize("key", ["002-thm5-1", "002-thm5-3", "002-thm5-7", "002-thm5-11"])
def test_gauss_budget_is_the_golden_delta(capsys, key):
    given = GOLDEN[key]["inputs"]
    found = as_json(capsys, f"budget --mech gauss --sigma {given['sigma']} --n {given['n']} --eps {given['eps']}")
    assert found["delta"] == pytest.approx(float(GOLDEN[key]["value"]), rel=1e-9)


def test_card_job_calibrates_sigma(capsys):
    # sigma for n steps is sqrt(n) times that for one (Gauss losses add their variances): 002-sigma-0 is one step
    exact = float(GOLDEN["002-sigma-0"]["value"]) * 1000**0.5
    found = as_json(capsys, "calibrate --mech gauss --eps 1 --delta 1e-5 --n 1000")
    assert found["calibrated"]["parameter"] == "sigma"
    assert exact <= found["calibrated"]["value"] <= exact * (1 + 1e-6)
    assert found["epsilon_upper"] <= 1
    assert found["process"][0]["sigma"] == found["calibrated"]["value"]


def test_sampled_sigma_is_within_a_ten_thousandth_on_the_safe_side(capsys):
    # 3.812817: the least sufficient sigma by Laplace inversion in high precision
    found = as_json(capsys, "calibrate --mech gauss --eps 1 --delta 1e-5 --sampling poisson --rate 0.01 --n 10000")
    assert 3.812817 <= found["calibrated"]["value"] <= 3.812817 * (1 + 1e-4)
    assert found["epsilon_upper"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "parameter"),
    [
        ("calibrate --mech gauss --sigma 40 --eps 1 --delta 1e-5", "n"),
        ("calibrate --mech gauss --sigma 4 --n 10000 --sampling poisson --eps 1 --delta 1e-5", "rate"),
        ("calibrate --mech laplace --n 100 --eps 1 --delta 1e-5", "scale"),
        ("calibrate --mech truncated-gauss --sigma 12 --n 10 --eps 1 --delta 1e-3", "bound"),
        (
            "calibrate --mech gauss --batch 256 --records 60000 --epochs 2 --sampling poisson --eps 2 --delta 1e-5",
            "sigma",
        ),
    ],
)
def test_calibrate_solves_for_what_is_missing(capsys, line, parameter):
    found = as_json(capsys, line)
    assert found["calibrated"]["parameter"] == parameter
    assert found["process"][0][parameter] == found["calibrated"]["value"]
    assert found["epsilon_upper"] <= float(line.split("--eps ")[1].split()[0])


def test_an_answer_names_claim_bracket_neighbours_sampling_and_n(capsys):
    lines = run(
        capsys, "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4"
    ).splitlines()
    assert lines[0] == "eps = 2.30077 (certified, delta 1e-4)"
    details = " ".join(" ".join(lines).split())
    for words in (
        "n = 65536 compositions",
        "sampling Poisson at rate 0.01",
        "neighbours add-remove",
        "bracket eps in [2.30",
        "accountant pld",
    ):
        assert words in details


def test_quiet_prints_one_number_rounded_to_the_safe_side(capsys):
    line = "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4"
    exact = as_json(capsys, line)["epsilon_upper"]
    shown = float(run(capsys, line + " --quiet"))
    assert exact <= shown <= exact * (1 + 1e-5)


@pytest.mark.slow
def test_quiet_sigma_meets_the_target_as_printed(capsys):
    sigma = run(
        capsys, "calibrate --mech gauss --eps 1 --delta 1e-5 --sampling poisson --rate 0.01 --n 10000 --quiet"
    ).strip()
    found = as_json(
        capsys, f"budget --mech gauss --sigma {sigma} --sampling poisson --rate 0.01 --n 10000 --delta 1e-5 --tol 1e-6"
    )
    assert found["epsilon_upper"] <= 1


def test_epochs_give_steps_and_say_how_they_were_rounded(capsys):
    # 60 * 60000 / 256 = 14062.5 steps
    job = "budget --mech gauss --sigma 1.12 --sampling poisson --batch 256 --records 60000 --epochs 60 --delta 1e-5"
    found = as_json(capsys, job)
    assert found["process"][0]["n"] == 14063
    assert found["process"][0]["rate"] == 256 / 60000
    assert any("14063" in note and "ceil" in note for note in found["reading"])
    # 2.310: what a certified accountant and three other tools agree on for this job
    assert round(found["epsilon_lower"], 3) == round(found["epsilon_upper"], 3) == 2.310


@pytest.mark.parametrize("text", ["1048576", "2^20", "2**20", "1048576.0"])
def test_n_is_read_in_every_spelling(capsys, text):
    assert as_json(capsys, f"budget --mech gauss --sigma 9e3 --n {text} --delta 1e-5")["process"][0]["n"] == 2**20


def test_curve_is_41_falling_points(capsys):
    rows = json.loads(run(capsys, "budget --mech gauss --sigma 1 --curve --json"))["rows"]
    deltas = [row["delta"] for row in rows]
    assert len(rows) == 41
    assert deltas == sorted(deltas, reverse=True)
    assert rows[0]["epsilon"] == 0
    assert deltas[0] == pytest.approx(float(GOLDEN["002-thm5-0"]["value"]), rel=1e-12)
    assert deltas[-1] == pytest.approx(1e-10, rel=1e-6)


@pytest.mark.slow
def test_several_accountants_share_one_table(capsys):
    job = "budget --mech laplace --scale 20 --n 1000 --delta 1e-5 --accountant pld --accountant gdp --accountant rdp"
    assert main(job.split()) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["accountant", "pld", "rdp"]
    assert "gdp has no answer" in err
    found = json.loads(run(capsys, job + " --json"))
    assert [row["accountant"] for row in found["rows"]] == ["pld", "rdp"]
    assert [r["accountant"] for r in found["refused"]] == ["gdp"]
    for row in found["rows"]:
        jsonschema.validate(row, SCHEMA)


@pytest.mark.slow
def test_all_accountants_answer_or_say_why_not(capsys):
    found = json.loads(run(capsys, "budget --mech gauss --sigma 50 --n 100 --delta 1e-5 --accountant all --json"))
    exact = next(row["epsilon"] for row in found["rows"] if row["accountant"] == "gdp")
    assert len(found["rows"]) + len(found["refused"]) >= 10
    for row in found["rows"]:
        jsonschema.validate(row, SCHEMA)
        if row["notion"] == "approximate-dp" and row["epsilon_upper"] is not None and row["claim"] != "as-published":
            assert row["epsilon_upper"] >= exact * (1 - 1e-9), row["accountant"]


def test_csv_has_a_header_and_plain_rows(capsys):
    rows = list(csv.DictReader(io.StringIO(run(capsys, "budget --mech gauss --sigma 1 --delta 1e-5 --csv"))))
    # 4.37718: the analytic Gauss mechanism (Balle and Wang 2018)
    assert float(rows[0]["epsilon"]) == pytest.approx(4.377178, abs=1e-6)
    assert json.loads(rows[0]["process"])[0]["mech"] == "gauss"


@pytest.mark.slow
def test_explain_shows_formula_sources_readings_and_the_loss_class(capsys):
    job = "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4 --explain"
    text = " ".join(run(capsys, job).split())
    for words in (
        "formula",
        "Sommer",
        "noise multiplier",
        "number of compositions",
        "privacy loss class",
        "each record independently",
    ):
        assert words in text
    classes = as_json(capsys, job)["explain"]["loss_class"]
    for row, key in zip(classes, ("002-class-0", "002-class-1"), strict=True):
        assert row["order"] == GOLDEN[key]["inputs"]["direction"]
        assert [row["mean"], row["variance"], row["third"]] == pytest.approx(
            [float(v) for v in GOLDEN[key]["value"]], rel=1e-8
        )


def test_compare_classical_shows_the_older_formulas(capsys):
    # eq. (4) at eps 25, delta 1e-4: 0.2412 and the exact 0.2294 (both per unit of sensitivity; published figures of the
    # ldp paper)
    found = as_json(capsys, "calibrate --mech gauss --eps 25 --delta 1e-4 --compare-classical")
    assert found["calibrated"]["value"] == pytest.approx(0.2294, abs=1e-4)
    classical, zhao = found["classical"]
    assert zhao["sigma"] == pytest.approx(0.2412, abs=1e-4)
    assert zhao["valid"]
    assert not classical["valid"]


@pytest.mark.slow
def test_history_of_opacus_equals_the_same_flags(capsys, tmp_path):
    file = tmp_path / "history.json"
    file.write_text(json.dumps({"history": [[1.1, 0.01, 300], [1.1, 0.01, 200], [2.0, 0.02, 100]], "mechanism": "rdp"}))
    both = as_json(capsys, f"budget --history {file} --delta 1e-5")
    assert [step["n"] for step in both["process"]] == [500, 100]
    file.write_text(json.dumps([[1.1, 0.01, 500]]))
    one = as_json(capsys, f"budget --history {file} --delta 1e-5")
    flags = as_json(capsys, "budget --mech gauss --sigma 1.1 --sampling poisson --rate 0.01 --n 500 --delta 1e-5")
    assert one["epsilon"] == flags["epsilon"] < both["epsilon"]


@pytest.mark.slow
def test_a_limit_inside_the_bracket_is_decided_by_a_finer_one(capsys):
    sigma = run(
        capsys, "calibrate --mech gauss --eps 1 --delta 1e-5 --sampling poisson --rate 0.01 --n 10000 --quiet"
    ).strip()
    run(
        capsys, f"budget --mech gauss --sigma {sigma} --sampling poisson --rate 0.01 --n 10000 --delta 1e-5 --max-eps 1"
    )
    run(
        capsys,
        "budget --mech gauss --sigma 3.8 --sampling poisson --rate 0.01 --n 10000 --delta 1e-5 --max-eps 1",
        code=1,
    )


def test_a_delta_that_a_record_can_hide_in_is_warned_of(capsys):
    assert main(["budget", "--mech", "gauss", "--sigma", "4", "--delta", "1e-3", "--records", "5000"]) == 0
    assert "delta is not below 1 / records" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    nightly.sharded(
        [
            "--mech gauss --sigma 1 --sampling poisson --rate 1e-6 --n 100 --delta 1e-12",
            "--mech discrete-gauss --sigma 2.6 --sampling fixed --rate 1.2e-6 --n 302 --eps 5.5",
            "--mech gauss --sigma 4 --sampling poisson --rate 0.001 --n 65536 --eps 1.95 --tol 1e-3",
            "--mech laplace --scale 1 --sampling poisson --rate 1e-5 --n 1000 --delta 1e-40",
        ],
        4,
    ),
)
def test_rare_large_losses_bring_no_warning_of_numpy(words, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert main(["budget", *words.split(), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    for name in ("epsilon", "delta"):
        assert 0 <= answer[f"{name}_lower"] <= answer[f"{name}_upper"]


def test_the_largest_n_is_printed_with_all_its_digits(capsys):
    assert run(capsys, "calibrate --mech gauss --sigma 1 --eps 1e308 --delta 1e-5 --quiet") == f"{2**40}\n"


def test_where_only_renyi_divergences_are_known_rdp_answers_unasked_and_says_so(capsys):
    line = "--mech zcdp --param rho=0.05 --delta 1e-5"
    answers = [as_json(capsys, f"budget {line} {named}") for named in ("", "--accountant rdp")]
    assert answers[0]["accountant"] == "rdp"
    assert answers[0]["epsilon"] == answers[1]["epsilon"]
    assert set(answers[0]["reading"]) - set(answers[1]["reading"]) == {
        "accountant = rdp, since none was named and of zcdp only Renyi divergences are known"
    }
    found = as_json(capsys, f"calibrate {line} --eps 5")
    assert (found["accountant"], found["calibrated"]["value"]) == ("rdp", 11)
    assert main(f"budget {line} --accountant pld".split()) == 3


def test_a_sensitivity_that_nobody_gave_is_named_with_its_norm(capsys):
    for mech, noise, norm in (("gauss", "sigma", "l2"), ("laplace", "scale", "l1")):
        line = f"budget --mech {mech} --{noise} 4 --n 1 --delta 1e-5"
        assumed, given = run(capsys, line), run(capsys, f"{line} --sensitivity 1")
        assert f"{mech} ({noise} 4, {norm} sensitivity 1)" in given
        assert set(assumed.splitlines()) - set(given.splitlines()) == {
            f"  read as     sensitivity = 1 ({norm} norm), since none was given"
        }


def test_an_exact_answer_cites_its_formula_and_no_discretisation(capsys):
    exact = as_json(capsys, "budget --mech gauss --sigma 4 --n 9 --delta 1e-5 --explain")
    pure = as_json(capsys, "budget --mech laplace --scale 2 --n 3 --delta 0")
    certified = as_json(capsys, "budget --mech laplace --scale 2 --n 3 --delta 1e-5")
    assert exact["source"] == "Sommer, Meiser, Mohammadi 2019, Theorem 5 (closed form)"
    assert "closed form" in exact["explain"]["formula"]
    assert pure["claim"] == "exact"
    assert pure["source"].endswith("Appendix A.3; the largest privacy losses of all steps add up")
    assert "discretisation" in certified["source"]
    assert "iscreti" not in exact["source"] + pure["source"] + exact["explain"]["formula"].replace("is discretised", "")


def test_the_first_line_has_both_ends_of_a_wide_bracket_and_else_the_safe_end(capsys):
    shuffled = "gauss sigma=1 shuffle n=10 batch=100 records=1000"
    for line in (
        ["budget", shuffled, "--delta", "1e-5"],
        ["calibrate", shuffled.replace("=1 ", "=? ", 1), "--eps", "1", "--delta", "1e-5"],
    ):
        assert main([*line, "--json"]) == 0
        row = json.loads(capsys.readouterr().out)
        assert main(line) == 0
        first = capsys.readouterr().out.splitlines()[0]
        ends = re.search(r"in \[([^,]*), ([^]]*)\], delta 1e-5\)$", first)
        low, high = float(ends[1]), float(ends[2])
        assert low <= row["epsilon_lower"] <= row["epsilon_upper"] <= high
        assert (low, high) == pytest.approx((row["epsilon_lower"], row["epsilon_upper"]), rel=1e-5)
    narrow = run(capsys, "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 100 --delta 1e-5")
    assert narrow.splitlines()[0] == "eps = 0.0795139 (certified, delta 1e-5)"
