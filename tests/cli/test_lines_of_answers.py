"""Text on the screen: a headline, details that fit the width, colour on a terminal alone, and small tables."""

from __future__ import annotations

import functools
import json
import re

import pytest

from wpriv.accounting import budget
from wpriv.cli import output
from wpriv.cli.main import main

SAMPLED = "--mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 100"
COMMANDS = {
    "budget": f"budget {SAMPLED} --delta 1e-5 --explain",
    "several": f"budget {SAMPLED} --delta 1e-5 --accountant all",
    "calibrate": "calibrate --mech gauss --eps 1 --delta 1e-5 --compare-classical",
    "mu": "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 10 --mu --fpr 1e-2",
    "curve": "budget --mech gauss --sigma 4 --curve",
    "compare": "compare --mech gauss --sigma 4 --delta 1e-4 --sweep n=2,8 --accountant all",
    "grid": "compare --mech laplace --delta 1e-6 --sweep scale=20,40 --sweep n=10,100",
    "wide": "compare --mech gauss --sigma 4 --n 10 --sweep eps=linspace:0,4,9 --accountant all",
    "why": "compare --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 16 --delta 1e-4 --why",
    "claim": "verify --claim eps=5,delta=1e-5 --mech gauss --sigma 1",
}


def printed(capsys, line: str, code: int = 0) -> list[str]:
    assert main(line.split()) == code
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_wider_than_the_screen_and_no_word_is_broken(capsys, monkeypatch, name):
    # every screen shows the same answers, each computed once
    answer = functools.cache(lambda subject, accountant, question: ask(subject, accountant, **dict(question)))
    ask = budget.answer
    monkeypatch.setattr(budget, "answer", lambda s, a, **q: answer(s, a, tuple(sorted(q.items()))))
    monkeypatch.setenv("COLUMNS", "500")
    wide = printed(capsys, COMMANDS[name])
    monkeypatch.delenv("COLUMNS")
    for columns in (80, 100):
        narrow = printed(capsys, COMMANDS[name])  # 80 where nothing is known
        assert max(map(len, narrow)) <= columns
        if name != "compare":  # whose accountants stand across where there is room
            assert set(" ".join(narrow).split()) == set(" ".join(wide).split())
        monkeypatch.setenv("COLUMNS", "100")


def test_the_first_line_is_the_answer_and_the_details_stand_in_two_columns(capsys):
    lines = printed(capsys, f"budget {SAMPLED} --delta 1e-5")
    assert lines[0] == "eps = 0.0795139 (certified, delta 1e-5)"
    assert lines[1:6] == [
        "  process     gauss (sigma 4, l2 sensitivity 1), n = 100 compositions",
        "  sampling    Poisson at rate 0.01",
        "  neighbours  add-remove",
        "  bracket     eps in [0.0795137, 0.0795139]",
        "  accountant  pld",
    ]
    assert all(line.startswith("  ") for line in lines[1:] if line)


def test_the_best_attack_is_a_table_with_both_ends(capsys):
    lines = printed(capsys, f"budget {SAMPLED} --delta 1e-5")
    table = [re.split(r" {2,}", line.strip()) for line in lines[-4:]]
    assert table[0] == ["best membership attack", "at least", "at most"]
    assert [row[0] for row in table[1:]] == ["advantage (TPR minus FPR)", "TPR at FPR 0.001", "TPR at FPR 0.01"]
    assert all(float(low) <= float(high) for _, low, high in table[1:])


def test_estimates_and_upper_bounds_say_so_in_the_first_line(capsys):
    assert "(APPROXIMATE, not a guarantee, " in printed(capsys, f"budget {SAMPLED} --delta 1e-5 --accountant clt")[0]
    lines = printed(capsys, f"budget {SAMPLED} --delta 1e-5 --accountant rdp")
    assert "(upper bound, " in lines[0]
    assert "  bracket     no lower bound" in lines


def test_compare_runs_pld_where_no_accountant_is_named(capsys):
    line = "compare --mech gauss --sigma 4 --delta 1e-4 --sweep n=2,8"
    assert main([*line.split(), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["accountant"] for row in rows] == ["pld", "pld"]
    assert main([*line.split(), "--accountant", "all", "--json"]) == 0
    assert len({row["accountant"] for row in json.loads(capsys.readouterr().out)["rows"]}) >= 20


def test_accountants_without_an_answer_have_no_column_and_one_line_together(capsys):
    assert main(COMMANDS["compare"].split()) == 0
    out, err = capsys.readouterr()
    assert "bdp" not in out
    assert [line for line in err.splitlines() if "bdp" in line] == [
        "wpriv: note: no answer by bdp, berry-esseen, swd-tail, wdp (--json has the reasons)"
    ]


def test_one_accountant_over_two_axes_is_a_grid(capsys):
    lines = printed(capsys, COMMANDS["grid"])
    assert lines[-3].split("  ")[0] == "scale"
    assert re.split(r" {2,}", lines[-3]) == ["scale", "n 10", "n 100"]
    assert [line.split()[0] for line in lines[-2:]] == ["20", "40"]


def test_a_figure_that_cannot_be_drawn_is_a_note_beside_the_table(tmp_path, capsys):
    line = "compare --mech gauss --sigma 4 --delta 1e-4 --sweep n=2,8 --figure loss-class"
    assert main([*line.split(), "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert "2.53253" in out
    assert "wpriv: note: no figure was drawn: " in err
    assert (tmp_path / "out" / "table.csv").is_file()


@pytest.mark.parametrize("no_color", ["", "1"])
def test_verdicts_and_warnings_have_colour_on_a_terminal_only(monkeypatch, capsys, no_color):
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(output, "is_live", lambda stream: True)
    assert main(["verify", "--claim", "eps=5,delta=1e-5", "--mech", "gauss", "--sigma", "1"]) == 0
    assert main(f"budget {SAMPLED} --delta 1e-5 --accountant clt".split()) == 0
    out, err = capsys.readouterr()
    assert ("\x1b[32mproved" in out) == (not no_color)
    assert ("\x1b[33mAPPROXIMATE" in out) == (not no_color)
    assert ("\x1b[33mwpriv: warning:\x1b[0m" in err) == (not no_color)
