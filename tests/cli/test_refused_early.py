"""What cannot be done is refused before any work begins, and nothing is left behind."""

from __future__ import annotations

import pytest

from wpriv.cli.main import main

GDP = ["compare", "--mech", "gauss", "--sigma", "10", "--accountant", "gdp"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--eps", "1", "--sweep", "n=10,10.5"], "whole number"),
        (["--eps", "1", "--sweep", "n=linspace:0,4,5"], "from 1 to"),
        (["--eps", "1", "--sweep", "n=powers:2,-3,3"], "whole number"),
        (["--n", "3", "--sweep", "delta=0.5,1"], "delta"),
        (["--n", "3", "--sweep", "eps=1,-1"], "eps"),
        (["--eps", "1", "--sweep", "sensitivity=1,0"], "sensitivity"),
        (["--eps", "1", "--sweep", "rate=0.5,2", "--sampling", "poisson"], "rate"),
        (["--eps", "1", "--figure", "nope"], "nope"),
        (["--eps", "1", "--figure", "curves"], "--out"),
        (["--eps", "1", "--adjacency", "nope"], "nope"),
    ],
)
def test_a_comparison_that_cannot_be_done_leaves_nothing_behind(tmp_path, capsys, words, named):
    for out in (["--out", str(tmp_path / "c")], []):
        if not out or named != "--out":
            assert main([*GDP, *words, *out]) == 2
            output, err = capsys.readouterr()
            assert output == ""
            assert named in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_spaced_numbers_of_compositions_are_rounded_to_whole_ones(tmp_path):
    line = [*GDP, "--eps", "1", "--sweep", "n=geomspace:10,100000,9", "--out", str(tmp_path / "c"), "--quiet"]
    assert main(line) == 0
    lines = (tmp_path / "c" / "table.csv").read_text().splitlines()
    at = lines[0].split(",").index("n")
    # 10^(1 + k/2), to the nearest whole number
    assert [row.split(",")[at] for row in lines[1:]] == [str(round(10 ** (1 + k / 2))) for k in range(9)]


def test_spaced_numbers_that_fall_together_are_one(tmp_path):
    assert main([*GDP, "--eps", "1", "--sweep", "n=linspace:1,3,9", "--out", str(tmp_path / "c"), "--quiet"]) == 0
    assert len((tmp_path / "c" / "table.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    "change",
    [
        "figure=nope",
        "accountants=[nope]",
        "accountants=['wdp:nope=3']",
        "sweep=[{over: nope, values: [1]}]",
        "task=nope",
    ],
)
def test_a_training_with_an_unknown_name_is_refused_by_a_dry_run(tmp_path, capsys, change):
    assert main(["train", "quick/digits", "--set", change, "--dry-run", "--out", str(tmp_path / "t")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "nope" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "flag", [["--backend", "foo"], ["--shard", "1/2"], ["--jobs", "2"], ["--device", "tpu"], ["--jobs", "0"]]
)
def test_a_flag_that_makes_no_sense_is_refused_by_a_dry_run_as_well(capsys, flag):
    assert main(["train", "quick/digits", "--dry-run", *flag]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("word", ["plc", "plc/", "plc/fig7", "PLC", "fig7-dpsgd"])
def test_recipe_ls_lists_the_recipes_of_a_paper_or_of_a_beginning(capsys, word):
    assert main(["recipe", "ls"]) == 0
    every = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert main(["recipe", "ls", word]) == 0
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert 0 < len(lines) < len(every)
    assert set(lines) < set(every)
    assert all("plc/" in line for line in lines)


def test_recipe_ls_names_the_papers_where_nothing_begins_so(capsys):
    assert main(["recipe", "ls", "nope"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "plc" in err
