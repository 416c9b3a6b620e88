"""The bank of faults and right runs: claims/libraries, and folders of checks."""

from __future__ import annotations

import json

import pytest

from tests.command_line import call
from tests.points import ROOT
from wpriv.checks import bank

FILES = bank.files_of("claims/libraries")
FAULTS = [f"f{number:02}" for number in range(1, 21)]
LARGE = ("f13-clip-twice", "r09-mixed-event")
RIGHT = [f"r{number:02}" for number in range(1, 13)]
PREMISES = """kind: check
claim: {eps: 2, delta: 1e-5}
unit: record
max_per_unit: 1
adjacency: add-remove
records_public: no
process: [{mech: gauss, sigma: SIGMA}]
expect: {verdict: proved, eps: [0.725521, 0.725522]}
"""


def test_every_fault_and_every_right_run_is_in_the_bank():
    assert {path.stem[:3] for path in FILES} >= {*FAULTS, *RIGHT}
    assert len(FILES) >= 38


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=pytest.mark.slow) if p.stem in LARGE else p for p in FILES],
    ids=lambda path: path.stem,
)
def test_a_run_of_the_bank_has_the_verdict_and_eps_of_the_specification(path):
    (row,) = bank.check_all([path])
    assert row.about.source
    assert row.about.title
    assert row.about.expect is not None
    bank.require_expected(path, [row])
    # a right run is no alarm, and of the faults only the one that is none where the size of the data is public
    is_right = path.stem[0] == "r" or path.stem == "f07-divisor-public-size"
    assert row.verdict.verdict == ("proved" if is_right else "refuted")


def test_a_folder_of_checks_is_one_table_and_another_verdict_is_exit_code_1(tmp_path, capsys):
    (tmp_path / "sound.yaml").write_text(PREMISES.replace("SIGMA", "5"), encoding="utf-8")
    (tmp_path / "else.yaml").write_text("kind: budget\n", encoding="utf-8")
    code, out, _ = call(capsys, "compare", str(tmp_path))
    assert (code, out.splitlines()[0]) == (0, "1 claim: 1 proved; all as expected")
    (tmp_path / "wrong.yaml").write_text(PREMISES.replace("SIGMA", "1"), encoding="utf-8")
    code, out, err = call(capsys, "compare", str(tmp_path))
    assert code == 1
    assert "REFUTED, expected proved" in out
    assert "wrong is REFUTED, expected proved, eps [0.725521, 0.725522]; found eps [4.37717, 4.37718]" in err
    rows = json.loads(call(capsys, "compare", str(tmp_path), "--json")[1])["rows"]
    assert [row["verdict"] for row in rows] == ["proved", "refuted"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("claims/libraries", "--mech", "gauss"), "leave out --mech"),
        (("claims/libraries", "--quick"), "leave out --quick"),
        ((str(ROOT / "docs"),), "has no recipes of kind check"),
        (("claims/libraries/r01-poisson",), "wpriv check claims/libraries/r01-poisson"),
    ],
)
def test_what_has_no_place_beside_a_folder_of_checks_is_refused(capsys, words, shown):
    code, _, err = call(capsys, "compare", *words)
    assert code == 2
    assert shown in err


def test_recipe_check_reads_the_premises_too(tmp_path, capsys):
    (tmp_path / "wrong.yaml").write_text("kind: check\nclaim: {eps: 1}\nrecrods: 5\n", encoding="utf-8")
    code, _, err = call(capsys, "recipe", "check", str(tmp_path / "wrong.yaml"))
    assert code == 2
    assert "wrong.yaml:3:1: no premise is called 'recrods'; did you mean 'records'?" in err
    assert call(capsys, "recipe", "check", "claims/libraries/r01-poisson")[0] == 0
