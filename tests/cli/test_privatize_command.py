"""wpriv privatize: flags and recipes, what is printed where, exit codes, errors in words."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.points import ROOT
from wpriv.accounting import load_recipe
from wpriv.cli.main import main
from wpriv.files import durable_writes

JOB = "privatize --data rows.npy --mech local-gauss --radius 1 --eps 2 --delta 1e-5"
RECIPE = """\
kind: privatize
source: a test
data: {file: rows.npy, limit: 3}
mech: local-gauss
eps: 2
delta: 1e-5
radius: 1
seed: 4
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.arange(20.0).reshape(5, 4))
    (tmp_path / "r.yaml").write_text(RECIPE)
    return tmp_path


def test_a_run_says_what_it_promises_and_where_it_wrote(capsys):
    assert main(shlex.split(f"{JOB} --out a.npz")) == 0
    out, err = capsys.readouterr()
    assert out.startswith("5 records of 4 privatised: eps = ")
    assert out.split()[-4:] == ["written", "a.npz", "a.statement.json", "a.statement.md"]
    assert "post-processing" in err
    assert "\x1b" not in out + err


def test_json_is_one_object_that_is_the_statement(folder, capsys):
    assert main(shlex.split(f"{JOB} --out a.npz --json")) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found.pop("written") == ["a.npz", "a.statement.json", "a.statement.md"]
    assert found == json.loads((folder / "a.statement.json").read_text())


def test_a_dry_run_says_it_all_and_writes_nothing(folder, capsys):
    before = sorted(folder.iterdir())
    assert main(shlex.split(f"{JOB} --dry-run")) == 0
    assert capsys.readouterr().out.startswith("5 records of 4 would be privatised: eps = ")
    assert sorted(folder.iterdir()) == before


def test_a_recipe_is_the_same_as_its_flags_wherever_it_is_run_from(folder, monkeypatch):
    assert main(shlex.split(f"{JOB} --limit 3 --seed 4 --out a.npz")) == 0
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert main(shlex.split("privatize ../r.yaml --out b.npz")) == 0
    with np.load("../a.npz") as one, np.load("b.npz") as other:
        assert np.array_equal(one["x"], other["x"])


def test_a_recipe_may_name_a_data_set_with_the_parameters_of_its_reader(folder):
    (folder / "people.csv").write_text("age,income\n20,0\n41,1\n33,0\n58,1\n27,0\n")
    asked = (
        "kind: privatize\ndata: {name: table, file: people.csv, target: income}\n"
        "mech: local-laplace\nscale: 2\nradius: 60\n"
    )
    (folder / "t.yaml").write_text(asked)
    assert main(shlex.split("privatize t.yaml --out a.npz")) == 0
    assert np.load("a.npz")["x"].shape == (4, 1)
    line = "privatize --data table --param file=people.csv --param target=income --param test_share=0.4"
    assert main(shlex.split(f"{line} --mech local-laplace --scale 2 --radius 60 --out b.npz")) == 0
    assert np.load("b.npz")["x"].shape == (3, 1)


def test_a_fixed_seed_is_warned_of(capsys):
    assert main(shlex.split(f"{JOB} --seed 1 --out a.npz")) == 0
    assert "wpriv: warning: the seed is fixed and recorded" in capsys.readouterr().err


def test_a_delta_that_allows_a_record_to_be_published_is_warned_of(capsys):
    assert main(shlex.split(f"{JOB.replace('1e-5', '0.2')} --dry-run")) == 0
    assert "delta is not below 1 / records = 0.2" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("privatize --out a.npz", 2, "--data"),
        (JOB, 2, "--out"),
        (f"{JOB} --out a.npy", 2, "a.npy"),
        (f"{JOB} --out nowhere/\0.npz", 2, "null byte"),
        (f"{JOB} --out rows.npy/a.npz", 2, "rows.npy"),
        (f"{JOB} --out a.npz --quantile 0.8", 2, "--quantile"),
        (f"{JOB} --out a.npz --limit 2.5", 2, "--limit"),
        (f"{JOB} --out a.npz --param size=3", 2, "is a file"),
        (f"{JOB} --out a.npz --param radius=3", 2, "cannot set radius"),
        (f"{JOB} --out a.npz --param say=3", 2, "cannot set say"),
        (f"{JOB} --out a.npz --n 3", 2, "--n"),
        (f"{JOB.replace('1e-5', '1')} --out a.npz", 2, "--delta"),
        (f"{JOB.replace('--delta 1e-5', '')} --out a.npz", 2, "--delta"),
        (f"{JOB.replace('--radius 1', '--radius nan')} --out a.npz", 2, "--radius"),
        (f"{JOB.replace('rows.npy', 'mnits')} --out a.npz", 2, "did you mean 'mnist'"),
        (f"{JOB.replace('rows.npy', 'gone.npy')} --out a.npz", 4, "gone.npy"),
        (f"{JOB.replace('--eps 2 --delta 1e-5', '--eps 1e-20 --delta 1e-300')} --out a.npz", 3, "sigma"),
        ("privatize r.yaml --eps 3 --out a.npz", 2, "leave out --eps"),
        ("privatize r.yaml --dct --out a.npz", 2, "leave out --dct"),
        ("privatize gone.yaml --out a.npz", 2, "gone.yaml"),
        ("privatize plc/fig7-dpsgd --out a.npz", 2, "is a recipe of kind 'compare', not 'privatize'"),
        ("budget r.yaml", 2, "Run it with `wpriv privatize r.yaml`"),
    ],
)
def test_every_error_is_one_paragraph_with_its_code(folder, capsys, line, code, told):
    before = sorted(folder.iterdir())
    assert main(shlex.split(line)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.count("\n") == 1
    assert sorted(p for p in folder.iterdir()) == before


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("delta: 1e-5\n", "", "r.yaml:1:1: "),
        ("eps: 2\n", "", "r.yaml:1:1: give a target (eps)"),
        ("mech: local-gauss", "mech: gauss", "r.yaml:4:7: mech: must be 'local-gauss' or 'local-laplace'"),
        ("radius: 1", "radios: 1", "r.yaml:7:1: unknown key 'radios'; did you mean 'radius'?"),
        ("radius: 1", "radius: 0", "r.yaml:7:9: radius: must be greater than 0; found 0"),
        ("{file: rows.npy, limit: 3}", "rows.npy", "r.yaml:3:7: data: must be a mapping"),
        ("{file: rows.npy, limit: 3}", "{limit: 3}", "data needs the name of a data set, or a file"),
    ],
)
def test_faults_of_a_recipe_are_told_with_their_place(folder, capsys, old, new, told):
    (folder / "r.yaml").write_text(RECIPE.replace(old, new))
    assert main(["privatize", "r.yaml", "--dry-run"]) == 2
    assert told in capsys.readouterr().err


def test_a_recipe_is_checked_and_part_of_the_schema(capsys):
    assert main(["recipe", "check", "r.yaml"]) == 0
    assert "a sound recipe of kind privatize" in capsys.readouterr().out
    assert main(["recipe", "schema"]) == 0
    assert "privatize" in json.loads(capsys.readouterr().out)["discriminator"]["mapping"]
    assert load_recipe.privatize("r.yaml")["limit"] == 3


SANE = ["0.3", "1", "2", "10", "1e-5", "1000", "2**12"]
BAD = ["nan", "inf", "-inf", "", " ", "0", "-1", "1e400", "1e-400", "1/0", "2^20", "9**9999", "\x00"]
value = st.one_of(st.sampled_from(SANE), st.sampled_from(BAD), st.floats().map(str), st.text(max_size=6))
names = st.sampled_from(
    ["eps", "delta", "sigma", "scale", "radius", "center", "quantile", "seed", "limit", "dtype", "formula", "public"]
)
mechs = st.sampled_from(["local-gauss", "local-laplace", "gauss", ""])


@pytest.mark.slow
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    mechs,
    st.lists(st.tuples(names, value), max_size=5),
    st.lists(st.sampled_from(["--dct", "--nonnegative"]), max_size=2),
)
def test_no_flags_bring_a_traceback_or_a_bad_number(folder, mech, flags, switches):
    words = ["privatize", "--data", "rows.npy", "--mech", mech, "--dry-run", "--json", *switches]
    words += ["--radius", "1"] * all(name != "radius" for name, _ in flags)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words, *(word for name, text in flags for word in (f"--{name}", text))])
    assert code in (0, 2, 3, 4), err.getvalue()
    if code == 0:
        row = json.loads(out.getvalue(), parse_constant=lambda name: pytest.fail(name))["guarantees"][0]
        assert 0 <= row["epsilon"] < math.inf
        assert 0 <= row["delta"] < 1
    else:
        assert out.getvalue() == ""


@pytest.mark.slow
def test_two_commands_at_once_never_overwrite_each_others_release(folder):
    np.save("rows.npy", np.zeros((20000, 50)))
    words = [sys.executable, "-m", "wpriv", *shlex.split(f"{JOB} --out x.npz")]
    given = {"env": {**os.environ, "PYTHONPATH": str(ROOT)}, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    children = [subprocess.Popen(words, **given) for _ in range(4)]
    ends = [(child.communicate(), child.returncode) for child in children]
    assert sorted(code for _, code in ends) == [0, 2, 2, 2], ends
    statement = json.loads((folder / "x.statement.json").read_text())
    with np.load(folder / "x.npz") as stored:
        assert json.loads(str(stored["statement"])) == statement
    assert {path.name for path in folder.iterdir()} == {
        "r.yaml",
        "rows.npy",
        "x.npz",
        "x.statement.json",
        "x.statement.md",
    }


def test_a_file_that_another_command_is_writing_is_refused(folder, capsys):
    with durable_writes.locked(folder / f"a.npz{durable_writes.LOCK}", "held"):
        assert main(shlex.split(f"{JOB} --out a.npz")) == 2
        assert "another process is writing" in capsys.readouterr().err
    assert main(shlex.split(f"{JOB} --out a.npz")) == 0
