"""Tables of a comparison on the screen beside the numbers in full."""

from __future__ import annotations

import csv

from wpriv.cli.main import main

RECIPE = """\
kind: compare
source: "none: a test"
process: [{mech: gauss, sigma: 2, sampling: poisson, rate: 0.1, n: 16}]
table: trade-off
sweep: {over: fpr, values: [0.01, 0.1, 0.3]}
"""


def test_both_ends_of_a_bracket_are_rounded_outwards(tmp_path, capsys):
    recipe = tmp_path / "rates.yaml"
    recipe.write_text(RECIPE)
    assert main(["compare", str(recipe), "--out", str(tmp_path / "out")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    header = next(place for place, line in enumerate(lines) if "fnr_lower" in line)
    shown = [dict(zip(lines[header], line, strict=True)) for line in lines[header + 1 : header + 4]]
    with (tmp_path / "out" / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for cells, row in zip(shown, rows, strict=True):
        for name in ("fnr", "tpr", "mu"):
            assert float(cells[f"{name}_lower"]) <= float(row[f"{name}_lower"])
            assert float(cells[f"{name}_upper"]) >= float(row[f"{name}_upper"])


def test_a_table_of_several_accountants_says_how_flags_were_read(capsys):
    job = "budget --mech zcdp --param rho=0.1 --delta 1e-5 --accountant rdp"
    alone, table = (" ".join(printed(capsys, f"{job} {names}")) for names in ("", "--accountant zcdp"))
    notes = ("n = 1, since neither n nor epochs was given", "0.1-zCDP of each release is taken as given")
    for text in (alone, table):
        assert all(note in " ".join(text.split()) for note in notes)


def printed(capsys, line):
    assert main(line.split()) == 0
    return capsys.readouterr().out.splitlines()
