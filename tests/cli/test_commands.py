"""Tests of compare, plot and recipe on the command line: output, files and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from wpriv.cli.main import main

RECIPE = """\
kind: compare
source: "a test"
process: [{mech: gauss, sigma: 1}]
accountants: [gdp, berry-esseen]
sweep: {over: delta, values: [0.1, 1e-5]}
expect:
  - {where: {delta: 0.1, accountant: gdp}, eps: EPS, within: 1e-6, source: "Theorem 5, mpmath"}
"""
# the root of Phi(1/2 - x) - e^x Phi(-1/2 - x) = 0.1, by mpmath
EPS = "1.16033385279"
JOB = ["--mech", "gauss", "--sigma", "2"]


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE.replace("EPS", EPS))
    return tmp_path / "r.yaml"


def test_a_recipe_prints_its_table_and_expected_ours_difference(recipe, capsys):
    assert main(["compare", "r.yaml"]) == 0
    out, err = capsys.readouterr()
    assert [w for w in out.split() if w in ("expected", "ours", "difference")] == ["expected", "ours", "difference"]
    assert "results/r/table.csv" in err
    assert "never falls that low" in err  # why berry-esseen has no answer
    assert "\x1b" not in out + err


def test_a_missed_number_exits_with_1_and_leaves_the_files(recipe, capsys):
    recipe.write_text(RECIPE.replace("EPS", "1.18"))
    assert main(["compare", "r.yaml"]) == 1
    assert "should be 1.18" in capsys.readouterr().err
    assert (recipe.parent / "results/r/provenance.json").is_file()


def test_json_is_one_object_with_the_rows_of_guarantees(recipe, capsys):
    assert main(["compare", "r.yaml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert len(found["rows"]) == 4
    keys = {
        "schema",
        "notion",
        "claim",
        "accountant",
        "epsilon",
        "epsilon_lower",
        "epsilon_upper",
        "delta",
        "delta_lower",
        "delta_upper",
    }
    assert keys | {"adjacency", "process", "source", "warnings", "version"} <= set(found["rows"][0])
    assert found["expect"][0]["ok"] is True


def test_csv_is_the_table_on_disk(recipe, capsys):
    assert main(["compare", "r.yaml", "--csv"]) == 0
    assert capsys.readouterr().out == (recipe.parent / "results/r/table.csv").read_text()


def test_quiet_prints_no_table(recipe, capsys):
    assert main(["compare", "r.yaml", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_flags_compare_without_leaving_files(recipe, capsys):
    assert (
        main(["compare", *JOB, "--delta", "1e-5", "--sweep", "n=1,2^4", "--accountant", "pld", "--accountant", "rdp"])
        == 0
    )
    assert ["n", "pld", "rdp"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in recipe.parent.iterdir()] == ["r.yaml"]


def test_a_swept_parameter_needs_no_flag(capsys):
    assert (
        main(["compare", "--mech", "gauss", "--delta", "1e-5", "--sweep", "sigma=1,2", "--accountant", "gdp", "--csv"])
        == 0
    )
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_why_prints_every_reading(capsys):
    job = [
        "--mech",
        "gauss",
        "--sigma",
        "1.12",
        "--records",
        "60000",
        "--batch",
        "256",
        "--epochs",
        "60",
        "--delta",
        "1e-5",
    ]
    assert main(["compare", *job, "--why"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    first = [line.split()[0] for line in lines if not line.startswith(" ")]  # below each stands its assumption
    assert first[1:5] == ["2.519", "2.923", "2.257", "2.256"]
    assert 2.310 <= float(first[0]) <= 2.313  # the safe end of a bracket 1e-3 wide


@pytest.mark.parametrize(
    ("argv", "code", "word"),
    [
        (["compare"], 2, "--mech"),
        (["compare", "nope"], 2, "'nope'"),
        (["compare", "r.yaml", "--n", "3"], 2, "leave out --n"),
        (["compare", "r.yaml", "--why"], 2, "leave out --why"),
        (["compare", *JOB], 2, "delta"),
        (["compare", *JOB, "--eps", "1", "--delta", "0.1"], 2, "delta"),
        (["compare", *JOB, "--eps", "1", "--accountant", "pdl"], 2, "did you mean 'pld'"),
        (["compare", *JOB, "--eps", "1", "--sweep", "n"], 2, "--sweep"),
        (["compare", *JOB, "--eps", "1", "--sweep", "scale=1,2"], 2, "'scale'"),
        (
            ["compare", "--mech", "laplace", "--scale", "1", "--eps", "1", "--accountant", "gdp"],
            3,
            "gdp",
        ),
        (["plot", "nope"], 4, "nope"),
        (["recipe", "check", "bad.yaml"], 2, "bad.yaml:1:1: unknown key 'knd'; did you mean 'kind'?"),
        (["recipe", "show", "nope"], 2, "recipe ls"),
    ],
)
def test_what_is_wrong_is_said_in_a_paragraph_with_its_exit_code(recipe, capsys, argv, code, word):
    (recipe.parent / "bad.yaml").write_text("knd: compare\nkind: compare\nsource: x\n")
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert word in err
    assert "Traceback" not in err
    assert out == ""


def test_recipes_are_listed_shown_checked_and_copied(recipe, capsys):
    assert main(["recipe", "ls"]) == 0
    assert "plc/fig7-dpsgd" in capsys.readouterr().out
    assert main(["recipe", "show", "plc/fig7-dpsgd", "--quick"]) == 0
    (recipe.parent / "shown.yaml").write_text(capsys.readouterr().out)
    assert main(["recipe", "check", "shown.yaml", "plc/fig3-uniform"]) == 0
    assert capsys.readouterr().out.count("a sound recipe of kind compare") == 2
    assert main(["recipe", "cp", "plc/fig3-uniform", "mine.yaml"]) == 0
    assert (recipe.parent / "mine.yaml").is_file()
    assert main(["recipe", "schema"]) == 0
    assert "mine.yaml" in capsys.readouterr().out


@pytest.mark.slow
def test_plot_names_the_files_it_drew(recipe, capsys):
    main(["compare", "r.yaml", "--quiet"])
    capsys.readouterr()
    assert main(["plot", "results/r", "--format", "pdf,svg"]) == 0
    assert capsys.readouterr().out.split() == ["results/r/figure.pdf", "results/r/figure.svg"]


@pytest.mark.slow
def test_a_table_on_the_screen_loads_no_matplotlib_and_no_pandas():
    heavy = "sorted({'matplotlib', 'pandas', 'torch'} & set(sys.modules))"
    code = f"import sys; from wpriv.cli.main import main; main(sys.argv[1:]); print({heavy})"
    argv = [sys.executable, "-c", code, "compare", *JOB, "--eps", "1", "--accountant", "gdp"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[-1] == "[]"


CLASS = "kind: compare\nsource: a test\nprocess: [{mech: gauss, sigma: 1}]\ntable: class\n"


def test_a_table_that_no_figure_fits_is_written_without_one(recipe, capsys):
    recipe.write_text(CLASS)
    assert main(["compare", "r.yaml"]) == 0
    err = capsys.readouterr().err
    assert "results/r/table.csv" in err
    assert "figure" not in err


@pytest.mark.parametrize("figure", ["loss-class", "eps-over-n", "delta-over-eps", "loss-law", "curves"])
def test_a_figure_that_does_not_fit_is_a_note_beside_the_table(recipe, capsys, figure):
    recipe.write_text(CLASS + f"figure: {figure}\n")
    assert main(["compare", "r.yaml"]) == 0
    out, err = capsys.readouterr()
    assert f"wpriv: note: no figure was drawn: the figure '{figure}' does not fit this table" in err
    assert "third" in out
    assert (recipe.parent / "results/r/table.csv").is_file()


@pytest.mark.parametrize(
    ("line", "start"),
    [
        ("limits: {z: [1, 2]}", "r.yaml:5:10: unknown key 'z'"),
        ("limits: {x: [1]}", "r.yaml:5:13: "),
        ("quick: 3", "r.yaml:5:8: quick: "),
        ("cases: {a: []}", "r.yaml:5:12: "),
    ],
)
def test_a_fault_of_a_recipe_is_refused_at_its_place(recipe, capsys, line, start):
    recipe.write_text(f"{CLASS}{line}\n")
    assert main(["recipe", "check", "r.yaml"]) == 2
    assert f"wpriv: {start}" in capsys.readouterr().err
