"""``wpriv reproduce``: the table, the files and what is refused."""

from __future__ import annotations

import json
import re

import pytest

from tests import command_line


def call(capsys, *words):
    return command_line.call(capsys, "reproduce", *words)


def test_an_item_is_run_and_shown_among_all_papers(tmp_path, capsys):
    code, out, err = call(capsys, "plc/figure-4", "--quick", "--out", tmp_path / "r")
    assert code == 0
    assert "Figure 4" in out
    assert "Figure 1" not in out
    assert "1 of 1: plc/fig4-adp-pdp" in err
    index = (tmp_path / "r" / "index.html").read_text()
    assert all(f'href="{paper}.html"' in index for paper in ("plc", "wdp", "dpswd", "wgrad", "ldp"))


def test_pages_alone_are_written_with_no_time_at_all(tmp_path, capsys):
    code, out, _ = call(capsys, "ldp", "--at-most", "0", "--out", tmp_path / "r", "--json")
    assert code == 0
    assert {item["verdict"] for item in json.loads(out)["items"]} == {"not run"}


def test_a_missed_number_is_exit_code_1_after_the_pages_are_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("wpriv.results.expectations._relative", lambda difference, expected: 1.0)
    code, out, err = call(capsys, "plc/figure-4", "--quick", "--out", tmp_path / "r")
    assert code == 1
    assert "0 of 2" in out
    assert "plc, Figure 4: 2 numbers missed" in err
    assert "missed" in (tmp_path / "r" / "plc.html").read_text()


@pytest.mark.parametrize("time", ["3", "-1s", "1day", "nan", "", "1e3s", "2 hours"])
def test_a_time_without_a_known_unit_is_refused(tmp_path, capsys, time):
    code, out, err = call(capsys, "plc", "--at-most", time, "--out", tmp_path / "r")
    assert (code, out) == (2, "")
    assert "--at-most" in err
    assert not (tmp_path / "r").exists()


def test_an_unknown_paper_is_refused(tmp_path, capsys):
    code, out, err = call(capsys, "plcc", "--out", tmp_path / "r")
    assert (code, out) == (2, "")
    assert "did you mean 'plc'" in err


def test_a_reproduction_of_which_nothing_can_be_run_is_code_4_and_says_why(tmp_path, capsys):
    code, out, err = call(capsys, "dpswd/table-1-m-u", "--out", tmp_path / "r", "--data-root", tmp_path)
    assert code == 4
    assert "refused" in out
    assert re.search("was not run: method=source-only.*: mnist", err)  # the first training of its sweep
    assert "none of the recipes could be run" in err
    assert (tmp_path / "r" / "dpswd.html").is_file()


def test_hours_of_work_are_not_begun_unasked(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, told = call(capsys)
    assert (code, out, list(tmp_path.iterdir())) == (2, "", [])
    assert "plc/figure-4" in told
