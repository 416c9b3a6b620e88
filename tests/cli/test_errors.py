"""Tests of errors: one short paragraph on standard error, its exit code, and no standard output."""

from __future__ import annotations

import pytest

from wpriv.cli import budget as budget_command
from wpriv.cli.main import main
from wpriv.errors import MissingResource

GAUSS = "budget --mech gauss --sigma 1"
CASES = [
    ("", 2, ("no command given",)),
    ("bugdet", 2, ("did you mean 'budget'?",)),
    ("budget --simga 1", 2, ("no option --simga", "did you mean '--sigma'?")),
    ("budget --sigma", 2, ("--sigma", "requires an argument")),
    ("budget stray", 2, ("stray",)),
    ("budget stray other", 2, ("stray",)),
    ("recipe", 2, ("no recipe command given", "ls, check")),
    ("recipe shwo", 2, ("no command 'shwo'", "did you mean 'show'?")),
    ("budget --delta 1e-5", 2, ("--mech", "gauss")),
    ("budget --mech gaus --delta 1e-5", 2, ("did you mean 'gauss'?", "wpriv list mechanisms")),
    ("budget --mech gauss --delta 1e-5", 2, ("gauss", "sigma")),
    ("budget --mech gauss --scale 1 --delta 1e-5", 2, ("'scale'", "sigma")),
    ("budget --mech randomized-response --param ep0=1 --delta 1e-5", 2, ("did you mean 'eps0'?",)),
    ("budget --mech gauss --sigma nan --delta 1e-5", 2, ("sigma", "nan")),
    ("budget --mech gauss --sigma -1 --delta 1e-5", 2, ("sigma", "-1")),
    ("budget --mech gauss --sigma x --delta 1e-5", 2, ("sigma", "'x'")),
    (GAUSS, 2, ("eps", "delta")),
    (f"{GAUSS} --eps 1 --delta 1e-5", 2, ("eps", "delta")),
    (f"{GAUSS} --delta 0", 3, ("delta = 0",)),
    (f"{GAUSS} --delta 1.5", 2, ("delta", "1.5")),
    (f"{GAUSS} --eps -1", 2, ("eps", "-1")),
    (f"{GAUSS} --eps inf", 2, ("eps", "inf")),
    (f"{GAUSS} --delta 1e-5 --n 1.5", 2, ("n", "1.5")),
    (f"{GAUSS} --delta 1e-5 --n 0", 2, ("n", "2^40")),
    (f"{GAUSS} --delta 1e-5 --n 2^41", 2, ("n", "2^40")),
    (f"{GAUSS} --delta 1e-5 --n 9^9999", 2, ("9^9999",)),
    (f"{GAUSS} --delta 1e-5 --rate 0.1", 2, ("rate", "sampling")),
    (f"{GAUSS} --delta 1e-5 --sampling poisson", 2, ("rate",)),
    (f"{GAUSS} --delta 1e-5 --sampling sometimes --rate 0.1", 2, ("none, poisson, fixed",)),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 2", 2, ("(0, 1]",)),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --batch 10", 2, ("batch", "records")),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --batch 10 --records 5", 2, ("batch", "records", "10")),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --batch 10 --records 50 --rate 0.2", 2, ("rate", "batch")),
    (f"{GAUSS} --delta 1e-5 --epochs 3", 2, ("epochs", "rate")),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --epochs 3 --n 3", 2, ("epochs", "n")),
    (f"{GAUSS} --delta 1e-5 --records 0", 2, ("records", "0")),
    (f"{GAUSS} --delta 1e-5 --accountant pdl", 2, ("'pdl'", "'pld'")),
    (f"{GAUSS} --delta 1e-5 --tol 7", 2, ("--tol",)),
    (f"{GAUSS} --delta 1e-5 --param sigma=2", 2, ("sigma",)),
    (f"{GAUSS} --delta 1e-5 --param sigma", 2, ("--param", "'sigma'")),
    (f"{GAUSS} --delta 1e-5 --adjacency sideways", 2, ("adjacency", "sideways")),
    (f"{GAUSS} --delta 1e-5 --sampling= --n 3", 2, ("none, poisson, fixed",)),
    (f"{GAUSS} --delta 1e-5 --adjacency=", 2, ("adjacency",)),
    (f"{GAUSS} --delta 1e-5 --json --csv", 2, ("--json and --csv",)),
    (f"{GAUSS} --delta 1e-5 --accountant all --quiet", 2, ("--accountant",)),
    (f"{GAUSS} --eps 1 --max-eps 1", 2, ("--max-eps",)),
    (f"{GAUSS} --curve --eps -1", 2, ("--eps", "found -1")),
    ("budget --mech gauss --sigma 1e-320 --delta 1e-5", 2, ("sensitivity/sigma",)),
    ("budget --mech matrix-gauss --sigma 1e-320 --param strategy=identity:n=9 --delta 1e-5", 2, ("sensitivity/sigma",)),
    ("compare --mech gauss --sigma 1 --delta 1e-5 --why --adjacency replace-one", 2, ("leave out --adjacency",)),
    ("compare --mech gauss --sigma 1 --delta 1e-5 --quick", 2, ("leave out --quick",)),
    ("recipe refresh ldp/fig7 --from results --jobs 3", 2, ("--from", "--jobs")),
    (f"{GAUSS} --delta 1e-5 --max-eps 1", 1, ("eps", "4.377")),
    (
        "budget --mech laplace --scale 1 --delta 1e-5 --sampling poisson --rate 0.1 --adjacency replace-one",
        3,
        ("add-",),
    ),
    (f"{GAUSS} --delta 1e-5 --group 0", 2, ("--group", "2^40", "0")),
    (f"{GAUSS} --delta 1e-5 --group 2.5", 2, ("group", "2.5")),
    (f"{GAUSS} --delta 1e-5 --param group=2", 2, ("--group",)),
    (f"{GAUSS} --delta 1e-5 --sampling fixed --rate 0.1 --group 2", 2, ("--batch", "--records", "0.1")),
    (
        f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --group 65",
        3,
        ("--group", "65", "64", "sensitivity times 65"),
    ),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --group 2 --adjacency replace-one", 3, ("--sampling fixed",)),
    ("budget --mech randomized-response --param eps0=1 --delta 1e-5 --group 2", 3, ("--group", "dp, gdp")),
    ("budget --mech dp --param eps0=1 --param delta0=1e-6 --delta 1e-5 --group 2", 3, ("eps0 = 2", "3.71829e-6")),
    ("budget --mech dp --param eps0=1 --delta 1e-5 --group 2 --sampling poisson --rate 0.1", 3, ("at rate 0.19",)),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --group 2 --accountant gdp-clt", 3, ("groups of records",)),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --max-batch 5", 2, ("--records",)),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --max-batch 0 --records 9", 2, ("--max-batch", "0")),
    (f"{GAUSS} --delta 1e-5 --sampling fixed --rate 0.1 --max-batch 5 --records 9", 2, ("--max-batch", "poisson")),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --max-batch 5 --records 9 --group 2", 3, ("--max-batch",)),
    (f"{GAUSS} --delta 1e-5 --bands 4", 2, ("--bands", "--sampling poisson")),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.3 --n 8 --bands 4", 2, ("--bands 4", "at most 3")),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --bands 4", 2, ("--n", "--epochs")),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --n 8 --bands 4 --group 2", 3, ("--bands", "--group")),
    (
        f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --n 8 --bands 4 --max-batch 9 --records 20",
        3,
        ("--bands", "--max-batch"),
    ),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --n 8 --bands 0", 2, ("--bands", "0")),
    (f"{GAUSS} --delta 1e-5 --sampling poisson --rate 0.1 --accountant gdp", 3, ("gdp",)),
    ("budget --mech uniform --param outcomes=10 --n 4 --delta 0.1", 3, ("0.3439",)),
    ("budget --mech truncated-gauss --sigma 1 --param bound=0.4 --eps 1", 3, ("delta",)),
    ("budget --history /no/such/file --delta 1e-5", 4, ("/no/such/file",)),
    ("budget --mech histogram --param file=/no/such/file --delta 1e-5", 4, ("/no/such/file",)),
    ("calibrate --mech gauss --eps 1", 2, ("eps", "delta")),
    ("calibrate --eps 1 --delta 1e-5", 2, ("--mech",)),
    ("calibrate --mech gauss --sigma 1 --n 5 --eps 1 --delta 1e-5", 2, ("sigma", "n")),
    ("calibrate --mech gauss --sampling poisson --eps 1 --delta 1e-5", 2, ("n", "rate")),
    ("calibrate --mech randomized-response --eps 1 --delta 1e-5", 2, ("eps0",)),
    ("calibrate --mech truncated-gauss --param bound=9 --eps 1 --delta 1e-5", 2, ("sigma",)),
    ("calibrate --mech randomized-response --eps 1 --delta 1e-5 --compare-classical", 2, ("gauss",)),
    ("calibrate --mech gauss --sensitivity -1 --eps 1 --delta 1e-5", 2, ("sensitivity", "-1")),
    ("calibrate --mech gauss --sigma 0.1 --eps 1 --delta 1e-5", 3, ("n = 1",)),
    ("calibrate --mech gauss --eps 1e-300 --delta 1e-300", 3, ("1e15",)),
    ("calibrate --mech gauss --max-mu 1e-300", 3, ("1e15",)),
    ("calibrate --mech truncated-gauss --sigma 3 --n 10 --eps 1 --delta 1e-3", 3, ()),
    ("calibrate --mech gauss --sampling poisson --rate 0.1 --n 10 --eps 1 --delta 1e-5 --accountant gdp", 3, ("gdp",)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("line", "code", "words"), CASES, ids=[c[0] or "(nothing)" for c in CASES])
def test_an_error_is_one_plain_paragraph_with_its_exit_code(capsys, line, code, words):
    assert main(line.split()) == code
    out, err = capsys.readouterr()
    told = [text for text in err.splitlines() if not text.startswith(("wpriv: warning", "wpriv: note"))]
    assert len(told) == 1, err
    assert told[0].startswith('{"schema": "wpriv.error/1"' if "--json" in line else "wpriv: ")
    for word in words:
        assert word in told[0]
    assert "Traceback" not in err
    assert not set("╭│╰─\x1b") & set(out + err)
    if code != 1:
        assert out == ""


FAULTY = [
    "",
    "{",
    "[]",
    "7",
    '[["a", 1, 2]]',
    "[[1, 2]]",
    '[{"mech": "gauss"}]',
    "[" * 100000,
    "[[1.0, 0.5, 1e400]]",
    "[[NaN, 0.5, 1]]",
]


@pytest.mark.parametrize("text", FAULTY, ids=lambda text: text[:20] or "empty")
def test_a_faulty_history_is_a_usage_error_that_names_the_file(capsys, tmp_path, text):
    file = tmp_path / "steps.json"
    file.write_text(text)
    assert main(["budget", "--history", str(file), "--delta", "1e-5"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert "steps.json" in err or "sigma" in err


def test_a_binary_history_is_a_usage_error(capsys, tmp_path):
    file = tmp_path / "steps.json"
    file.write_bytes(bytes(range(256)))
    assert main(["budget", "--history", str(file), "--delta", "1e-5"]) == 2
    assert "steps.json" in capsys.readouterr().err


def test_a_folder_as_history_is_missing(capsys, tmp_path):
    assert main(["budget", "--history", str(tmp_path), "--delta", "1e-5"]) == MissingResource.exit_code


def fail_with(monkeypatch, error):
    def broken(**_):
        raise error

    monkeypatch.setattr(budget_command.flags, "output", broken)


def test_ctrl_c_exits_with_130(capsys, monkeypatch):
    fail_with(monkeypatch, KeyboardInterrupt())
    assert main(["budget"]) == 130
    assert capsys.readouterr().err == "wpriv: interrupted\n"


def test_a_bug_exits_with_70_and_asks_for_a_report(capsys, monkeypatch):
    monkeypatch.delenv("WPRIV_DEBUG", raising=False)
    fail_with(monkeypatch, ZeroDivisionError("division by zero"))
    assert main(["budget"]) == 70
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "report" in err
    assert "WPRIV_DEBUG=1" in err
    assert "Traceback" not in err


def test_a_package_that_is_not_installed_is_named_and_is_no_bug(capsys, monkeypatch):
    fail_with(monkeypatch, ModuleNotFoundError("No module named 'absent_package.part'", name="absent_package.part"))
    assert main(["budget"]) == 4
    assert "absent_package" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["wpriv.absent", "scipy.absent", None])
def test_a_module_that_an_installed_package_lacks_is_a_bug(monkeypatch, name):
    monkeypatch.delenv("WPRIV_DEBUG", raising=False)
    fail_with(monkeypatch, ModuleNotFoundError("No module", name=name))
    assert main(["budget"]) == 70


def test_debug_shows_where_a_bug_is(monkeypatch):
    monkeypatch.setenv("WPRIV_DEBUG", "1")
    fail_with(monkeypatch, ZeroDivisionError("division by zero"))
    with pytest.raises(ZeroDivisionError):
        main(["budget"])


def test_too_little_memory_is_out_of_reach_not_a_bug(capsys, monkeypatch):
    fail_with(monkeypatch, MemoryError())
    assert main(["budget"]) == 3
    assert "--tol" in capsys.readouterr().err
