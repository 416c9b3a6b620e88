"""``wpriv verify --claim`` and recipes of kind verify: verdicts, exit codes, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.command_line import call

JOB = ("--mech", "gauss", "--sigma", "1")
SAMPLED = (*JOB, "--sampling", "poisson", "--rate", "0.01", "--n", "100")
RECIPE = """\
kind: verify
source: "a test"
published:
  - name: "true"
    claim: "eps=5,delta=1e-5"
    process: [{mech: gauss, sigma: 1}]
    source: "Phi, by hand"
    verdict: proved
"""


@pytest.mark.parametrize(
    ("claim", "job", "code", "word"),
    [
        ("eps=5,delta=1e-3", JOB, 0, "proved"),
        ("eps=1,delta=1e-2", JOB, 1, "refuted"),
        ("mu=1", JOB, 0, "proved"),
        ("rho=0.4", JOB, 1, "refuted"),
        # the verdict is also that of tests/accounting/claims/test_decide.py
        pytest.param("mu=0.5", SAMPLED, 3, "open", marks=pytest.mark.nightly),
        ("eps=1", ("--mech", "laplace", "--scale", "1"), 0, "proved"),
        ("eps=1,delta=1e-5", ("gauss sigma=1 n=2",), 1, "refuted"),
        ("eps=1,delta=1e-5", ("--mech", "zcdp", "--param", "rho=2"), 3, "open"),
    ],
)
def test_the_exit_code_is_that_of_the_verdict(capsys, claim, job, code, word):
    status, out, err = call(capsys, "verify", "--claim", claim, *job)
    assert status == code, err
    assert out.startswith(f"{word}: ")
    assert (f"is {word}" in err) == (code != 0)


def test_a_refuted_claim_comes_with_its_test_and_a_simulation(capsys):
    code, out, _ = call(capsys, "verify", "--claim", "eps=1,delta=1e-2", *JOB, "--json")
    data = json.loads(out)
    assert (code, data["verdict"], data["schema"]) == (1, "refuted", "wpriv.decision/1")
    # Phi(-3/2) and Phi(-1/2), mpmath
    assert data["test"]["fpr_lower"] <= 0.066807201268858066 <= data["test"]["fpr_upper"]
    assert data["test"]["tpr_lower"] <= 0.308537538725986896 <= data["test"]["tpr_upper"]
    seen = data["simulation"]
    assert seen["advantage"] > 0.01 + 3 * seen["standard_error"]
    text = " ".join(call(capsys, "verify", "--claim", "eps=1,delta=1e-2", *JOB)[1].split())
    assert "standard errors above the claimed 0.01" in text


def test_another_seed_is_another_simulation(capsys):
    outs = [call(capsys, "verify", "--claim", "eps=1,delta=1e-2", *JOB, "--seed", s, "--json")[1] for s in ("0", "1")]
    assert json.loads(outs[0])["simulation"] != json.loads(outs[1])["simulation"]


@pytest.mark.slow
def test_why_decides_every_reading(capsys):
    line = ("verify", "--claim", "eps=2.92,delta=1e-5", "--mech", "gauss", "--sigma", "1.12", "--batch", "256",
            "--records", "60000", "--epochs", "60", "--sampling", "poisson", "--why")  # fmt: skip
    code, out, _ = call(capsys, *line, "--json")
    data = json.loads(out)
    assert (code, data["verdict"]) == (0, "proved")
    readings = [row for row in data["readings"] if "sampler" not in row["assumption"]]
    verdicts = {(row["sampling"], row["adjacency"]): row["verdict"] for row in readings}
    assert verdicts["poisson", "add-remove"] == "proved"
    assert verdicts["none", "add-remove"] == "refuted"
    assert verdicts["shuffle", "zero-out"] == "refuted"
    assert "a record might be in every batch: all steps, no" in call(capsys, *line)[1]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--claim", "epsilo=3", *JOB), "did you mean 'eps'"),
        (("--claim", "eps=3,delta=2", *JOB), "delta"),
        (("--claim", "eps=3"), "mech"),
        (("--claim", "eps=3", *JOB, "--eps", "2"), "--eps"),
        (("--claim", "eps=3", *JOB, "--delta", "0.1"), "--delta"),
        (("--claim", "eps=3", *JOB, "--width", "0.1"), "--width"),
        (("--claim", "eps=3", *JOB, "--seed", "-1"), "--seed"),
        (("--claim", "eps=3", *JOB, "--seed", "x"), "--seed"),
        (("--claim", "eps=3", *JOB, "--accountant", "all"), "--accountant"),
        (("--claim", "eps=3", "gauss sigma=1", *JOB), "--mech"),
        (("--claim", "eps=3", "gauss sigma=1 + laplace scale=9", "--why"), "--why"),
        (("--claim", "eps=3", "gaus sigma=1"), "did you mean 'gauss'"),
        (JOB, "--mech"),
        (("--why",), "--why"),
        ((), "--claim"),
        (("no-such-recipe",), "no-such-recipe"),
        (("plc/fig7-dpsgd",), "'compare'"),
    ],
)
def test_a_bad_call_is_refused_and_names_what_is_wrong(capsys, words, shown):
    code, out, err = call(capsys, "verify", *words)
    assert (code, out) == (2, "")
    assert shown in err


def test_an_accountant_that_estimates_cannot_decide(capsys):
    code, out, err = call(capsys, "verify", "--claim", "eps=3,delta=1e-5", *JOB, "--accountant", "clt")
    assert (code, out) == (3, "")
    assert "--accountant pld" in err


def test_a_recipe_of_claims_is_decided(capsys, tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(RECIPE)
    code, out, _ = call(capsys, "verify", path)
    assert code == 0
    assert "proved" in out
    path.write_text(RECIPE.replace("verdict: proved", "verdict: refuted"))
    code, out, err = call(capsys, "verify", path)
    assert code == 1
    assert "'true'" in err
    path.write_text(RECIPE.replace("eps=5", "eps=1").replace("    verdict: proved\n", ""))
    code, out, err = call(capsys, "verify", path, "--json")
    assert code == 1
    assert json.loads(out)["rows"][0]["verdict"] == "refuted"


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("eps=5,delta=1e-5", "eps=x", "eps of the claim"),
        ("mech: gauss", "mech: gaus", "did you mean"),
        ("verdict: proved", "verdict: true", "verdict"),
        ('source: "Phi, by hand"', "where: x", "source"),
    ],
)
def test_a_faulty_recipe_is_refused_with_its_place(capsys, tmp_path, old, new, shown):
    path = tmp_path / "claims.yaml"
    path.write_text(RECIPE.replace(old, new))
    for words in (("verify", path), ("recipe", "check", path)):
        code, _, err = call(capsys, *words)
        assert code == 2
        assert shown in err
        assert "claims.yaml:" in err


def test_why_without_a_sampling_gives_the_verdict_of_all_interpretations(capsys):
    words = ("--claim", "eps=3,delta=1e-5", "gauss sigma=1 n=1 rate=0.1", "--why")
    code, out, _ = call(capsys, "verify", *words, "--json")
    data = json.loads(out)
    verdicts = [row["verdict"] for row in data["readings"]]
    assert (code, data["verdict"]) == (3, "open")
    count = {verdict: f"{verdict} under {verdicts.count(verdict)}" for verdict in ("proved", "refuted")}
    assert f"{count['proved']}, {count['refuted']} of {len(verdicts)} interpretations" in data["reason"]
    assert call(capsys, "verify", *words)[1].startswith("open: (3, 1e-5)-DP, since no sampling is given")
    # all interpretations of a small rate and much noise agree
    assert call(capsys, "verify", "--claim", "eps=6,delta=1e-5", "gauss sigma=40 n=1 rate=0.1", "--why")[0] == 0


def test_a_list_of_claims_begins_with_its_total(capsys, tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE)
    out = call(capsys, "verify", tmp_path / "r.yaml")[1]
    assert out.splitlines()[0] == "1 of 1 claims proved, 0 refuted, 0 open; all as expected"
