"""Processes in words in every verb, and sweeps over every number and word. Oracle: the same in flags, one by one."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

import wpriv
from tests import nightly
from tests.command_line import call
from wpriv.errors import UsageError

WORDS = "gauss sigma=4 n=1000 poisson .01 + laplace scale=20 n=5"
STEPS = [
    {"mech": "gauss", "sigma": 4, "n": 1000, "sampling": "poisson", "rate": 0.01},
    {"mech": "laplace", "scale": 20, "n": 5},
]


def data_of(capsys, *words):
    code, out, err = call(capsys, *words, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture
def history(tmp_path):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(STEPS))
    return str(path)


@pytest.mark.parametrize("words", nightly.sharded([([WORDS],), (WORDS.split(),)], 2))
def test_several_steps_in_words_are_those_of_a_history(capsys, history, words):
    asked = ("--delta", "1e-5")
    here = data_of(capsys, "budget", "--history", history, *asked)
    there = data_of(capsys, "budget", *words, *asked)
    for key in ("process", "epsilon", "delta", "epsilon_lower", "adjacency", "claim"):
        assert there[key] == here[key]
    row = data_of(capsys, "compare", *words, *asked, "--accountant", "pld", "--tol", "1e-6")["rows"][0]
    assert (row["epsilon_lower"], row["epsilon_upper"]) == (here["epsilon_lower"], here["epsilon_upper"])
    code, out, _ = call(capsys, "verify", *words, "--claim", "eps=0.45,delta=1e-5")
    assert code == 0
    assert "proved" in out
    assert call(capsys, "verify", *words, "--claim", "eps=0.43,delta=1e-5")[0] == 1
    assert wpriv.budget(WORDS, delta=1e-5).epsilon.upper == here["epsilon_upper"]
    assert wpriv.verify_claim("eps=0.45,delta=1e-5", WORDS).verdict == "proved"
    assert wpriv.compare(process=WORDS, accountants=["pld"], delta=1e-5).rows[0]["epsilon"] == pytest.approx(
        here["epsilon_upper"], rel=2e-3
    )


def test_one_step_in_words_leaves_the_rest_to_flags(capsys):
    flags = data_of(capsys, "budget", "--mech", "gauss", "--sigma", "4", "--n", "10", "--delta", "1e-5")
    for words in (["gauss sigma=4 n=10"], ["gauss", "--sigma", "4", "--n", "10"], ["gauss", "sigma=4", "--n", "10"]):
        assert data_of(capsys, "budget", *words, "--delta", "1e-5") == flags


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["gauss sigma=? n=1000"], ["--mech", "gauss", "--n", "1000"]),
        (["gauss n=1000"], ["--mech", "gauss", "--n", "1000"]),
        (["gauss", "sigma=40", "n=?"], ["--mech", "gauss", "--sigma", "40"]),
        (["gauss sigma=4 n=100 poisson"], ["--mech", "gauss", "--sigma", "4", "--n", "100", "--sampling", "poisson"]),
    ],
)
def test_calibrate_solves_for_what_the_words_leave_out(capsys, words, flags):
    target = ("--eps", "1", "--delta", "1e-5")
    assert data_of(capsys, "calibrate", *words, *target) == data_of(capsys, "calibrate", *flags, *target)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["budget", WORDS, "--sigma", "3", "--delta", "1e-5"], "leave out --sigma"),
        (["budget", WORDS, "--history", "x.json", "--delta", "1e-5"], "leave out --history"),
        (["calibrate", WORDS, "--eps", "1", "--delta", "1e-5"], "one step"),
        (["budget", "gauss sigma=4 + + laplace scale=2", "--delta", "1e-5"], "begins with a mechanism"),
        (["budget", "gauss sigma=4 .01", "--delta", "1e-5"], "says nothing here"),
        (["budget", "gauss sigma=4 sigma=5", "--delta", "1e-5"], "twice"),
        (["budget", "gauss sigma='4", "--delta", "1e-5"], "quote"),
        (["budget", "gauss sigma=4 add-remove + laplace scale=1 replace-one", "--delta", "1e-5"], "one adjacency"),
        (["compare", "gauss sigma=4", "laplace scale=1", "--delta", "1e-5"], "--order"),
        (["compare", WORDS, "--sweep", "mech=gauss,laplace", "--delta", "1e-5"], "mech"),
    ],
)
def test_what_the_words_cannot_say_is_refused(capsys, words, said):
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err


def test_python_refuses_keywords_beside_several_steps():
    with pytest.raises(UsageError, match="leave out `sigma`"):
        wpriv.budget(WORDS, sigma=3, delta=1e-5)
    with pytest.raises(UsageError, match="twice"):
        wpriv.budget("gauss sigma=4", sigma=3, delta=1e-5)


SGD = "--mech gauss --sigma 2 --sampling poisson"


@pytest.mark.parametrize(
    ("flags", "name", "values"),
    [
        (f"{SGD} --batch 256 --records 60000 --delta 1e-5", "epochs", ["1", "5"]),
        (f"{SGD} --records 60000 --epochs 1 --delta 1e-5", "batch", ["256", "512"]),
        (f"{SGD} --batch 256 --epochs 1 --delta 1e-5", "records", ["60000", "120000"]),
        (f"{SGD} --batch 256 --n 10 --delta 1e-5", "dataset-size", ["60000", "120000"]),
        (f"{SGD} --rate 0.1 --n 10", "delta", ["1e-5", "1e-6"]),
        (f"{SGD} --rate 0.1 --n 10", "epsilon", ["1", "2"]),
        (f"{SGD} --n 10 --delta 1e-5", "sample-rate", ["0.1", "0.2"]),
        (f"{SGD} --rate 0.1 --n 8 --delta 1e-5", "bands", ["1", "2"]),
        ("--mech gauss --n 10 --delta 1e-5", "noise-multiplier", ["1", "2"]),
        ("--mech gauss --noise-multiplier 2 --n 10 --delta 1e-5", "sensitivity", ["1", "3"]),
        ("--mech projection --sigma 2 --param k=5 --delta 1e-5", "d", ["10", "50"]),
        ("--mech gauss --sigma 2 --delta 1e-5", "adjacency", ["add-remove", "replace-one"]),
        ("--mech gauss --sigma 2 --rate 0.1 --n 10 --delta 1e-5", "sampling", ["poisson", "fixed"]),
        ("--mech gauss --sigma 2 --scale 3 --delta 1e-5", "mech", ["gauss", "laplace"]),
        ("--mech gauss --sigma 2 --delta 1e-5", "accountant", ["pld", "rdp"]),
    ],
)
def test_a_sweep_over_any_number_or_word_is_the_budgets_one_by_one(capsys, flags, name, values):
    line = flags if name == "accountant" else f"{flags} --accountant pld"
    axis = f"{name}={','.join(values)}"
    job = line.split()[2:] if name == "mech" else line.split()
    code, out, err = call(capsys, "compare", *job, "--tol", "1e-3", "--sweep", axis, "--csv")
    assert code == 0, err
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == len(values)
    param = name == "d"
    for row, value in zip(rows, values, strict=True):
        option = ["--param", f"{name}={value}"] if param else [f"--{name}", value]
        words = line.split()
        if name == "mech":
            words = words[2:]
            words = words[2:] if value == "laplace" else [*words[:2], *words[4:]]
        code, out, err = call(capsys, "budget", *words, *option, "--tol", "1e-3", "--csv")  # without attacks
        assert code == 0, err
        (alone,) = csv.DictReader(io.StringIO(out))
        unknown = "delta" if name == "epsilon" else "epsilon"
        assert float(row[unknown]) == pytest.approx(float(alone[unknown]), rel=3e-6)


def test_two_sweeps_print_a_table_of_every_pair(capsys):
    line = f"compare {SGD} --records 60000 --epochs 1 --sweep batch=256,512 --sweep delta=1e-5,1e-6 --accountant pld"
    code, out, _ = call(capsys, *line.split(), "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [(row["batch"], float(row["delta"])) for row in rows] == [
        ("256", 1e-5), ("256", 1e-6), ("512", 1e-5), ("512", 1e-6)
    ]  # fmt: skip
    code, out, _ = call(capsys, *line.split())
    assert code == 0
    assert {"256", "512"} <= set(out.split())


@pytest.mark.parametrize(
    ("axis", "said"),
    [("epochz=1,2", "did you mean 'epochs'"), ("n=60,000", "separates its values by commas"), ("batch=0,1", "batch")],
)
def test_a_faulty_sweep_is_refused(capsys, axis, said):
    code, out, err = call(capsys, "compare", *f"{SGD} --rate 0.1 --delta 1e-5 --accountant pld --sweep {axis}".split())
    assert (code, out) == (2, "")
    assert said in err


def test_a_noise_multiplier_in_words_is_of_the_sensitivity_beside_them():
    # sigma = 4 x 0.5
    assert wpriv.budget("gauss noise_multiplier=4", sensitivity=0.5, delta=1e-5).epsilon == (
        wpriv.budget("gauss", sigma=2, sensitivity=0.5, delta=1e-5).epsilon
    )
    assert wpriv.calibrate("gauss noise_multiplier=4 n=?", sensitivity=0.5, eps=1, delta=1e-5).value == 1
    with pytest.raises(UsageError, match="both set the noise"):
        wpriv.budget("gauss noise_multiplier=4", sigma=2, delta=1e-5)


def test_dpsgd_refuses_any_other_sampling_than_poisson(capsys, tmp_path):
    step = {"mech": "dpsgd", "sigma": 4, "sampling": "none", "rate": 0.01}
    history, recipe = tmp_path / "steps.json", tmp_path / "steps.yaml"
    history.write_text(json.dumps([step]))
    recipe.write_text(json.dumps({"kind": "budget", "source": "here", "process": [step], "delta": 1e-5}))
    words, asked = "dpsgd sigma=4 rate=.01", ("--delta", "1e-5")
    for line in (
        ["budget", f"{words} full-batch", *asked],
        ["budget", words, "--sampling", "none", *asked],
        ["budget", "--history", str(history), *asked],
        ["budget", str(recipe)],
        ["calibrate", "dpsgd n=10 rate=.01 none", "--eps", "1", *asked],
        ["verify", f"{words} fixed", "--claim", "eps=1,delta=1e-5"],
        ["compare", f"{words} none", *asked],
    ):
        code, out, err = call(capsys, *line)
        assert (code, out) == (2, ""), line
        assert "write gauss instead" in err
    for sampling in ("none", "full_batch"):
        with pytest.raises(UsageError, match="write gauss instead"):
            wpriv.budget("dpsgd", sigma=4, rate=0.01, sampling=sampling, delta=1e-5)
    poisson = wpriv.budget("gauss", sigma=4, sampling="poisson", rate=0.01, delta=1e-5).epsilon
    assert wpriv.budget("dpsgd", sigma=4, rate=0.01, delta=1e-5).epsilon == poisson
    assert wpriv.budget(words, sampling="bernoulli", delta=1e-5).epsilon == poisson
    assert wpriv.budget(mech=words, delta=1e-5).epsilon == poisson


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["budget", "gauss sigma=4 n=6 poisson .1 bands=?", "--delta", "1e-5"], "bands=? is for calibrate"),
        (["budget", "gauss sigma=4 group=?", "--delta", "1e-5"], "group=? is for calibrate"),
        (["verify", "laplace scale=1 n=?", "--claim", "eps=1"], "n=? is for calibrate"),
        (["compare", "gauss sigma=4 n=?", "--delta", "1e-5"], "n=? is for calibrate"),
        (["compare", "--order", "gauss sigma=4 n=?", "gauss sigma=3"], "n=? is for calibrate"),
        (["explain", "gauss sigma=4 n=?"], "n=? is for calibrate"),
        (["calibrate", "gauss sigma=? n=?", "--eps", "1", "--delta", "1e-5"], "found n=? and sigma=?"),
        (["calibrate", "gauss n=10 max_batch=?", "--eps", "1", "--delta", "1e-5"], "sigma=?, n=?, rate=?"),
        (["calibrate", "gauss sigma=? sensitivity=?", "--eps", "1", "--delta", "1e-5"], "sensitivity=?"),
        (["calibrate", "gauss n=?", "--eps", "1", "--delta", "1e-5"], "sigma is left out as well"),
    ],
)
def test_a_question_mark_stands_only_for_what_calibrate_solves_for(capsys, line, said):
    code, out, err = call(capsys, *line)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gauss sigma=4 ''", "empty word"),
        ("gauss param=sigma=4", "without param="),
        ("gauss sigma=4 accountant=rdp", "is part of the question"),
        ("gauss sigma=4 target_delta=1e-5", "is part of the question"),
        ("gauss sigma=4 tol=1e-5 + laplace scale=2", "is part of the question"),
        ("gauss sigma=4 epsilon=1", "is part of the question"),
        ("gauss laplace sigma=4", 'joined by " + "'),
        ("gauss sigma=4, laplace scale=3", 'steps by " + "'),
        ("gauss sigma=4,laplace scale=3", 'steps by " + "'),
    ],
)
def test_words_out_of_place_are_refused_in_every_verb(capsys, words, said):
    order = ["compare", "--order", "gauss sigma=1"]
    for verb in (["budget"], ["calibrate"], ["verify", "--claim", "eps=1"], ["compare"], order, ["explain"]):
        code, out, err = call(capsys, *verb, words)
        assert (code, out) == (2, "")
        assert said in err
    with pytest.raises(UsageError, match=re.escape(said)):
        wpriv.budget(words, delta=1e-5)


def test_keys_are_read_in_any_case_and_none_is_not_given():
    epsilon = wpriv.budget("gauss", sigma=4, n=10, delta=1e-5).epsilon
    assert wpriv.budget("Gauss Sigma=4 N=10", delta=1e-5).epsilon == epsilon
    assert wpriv.budget("gauss sigma=4", steps=None, n=10, delta=1e-5).epsilon == epsilon
    assert wpriv.budget("gauss sigma=4", n=None, steps=10, delta=1e-5).epsilon == epsilon


@pytest.mark.parametrize(
    "line",
    [
        ["budget", "gauss sigma=4 n=60.000"],
        ["budget", "dpsgd noise_multiplier=1 n=1.000 batch=256 records=60,000"],
        ["budget", "dpsgd sigma=1 n=10 batch=256 records=60.000"],
        ["compare", "gauss sigma=4 n=60.000"],
        ["compare", "gauss sigma=4", "--sweep", "n=1.000,2.000"],
    ],
)
def test_a_count_with_dots_of_thousands_is_refused(capsys, line):
    code, out, err = call(capsys, *line, "--delta", "1e-5")
    assert (code, out) == (2, "")
    assert "a dot of decimals or of thousands" in err


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (["laplace scale=20 n=7", "--delta", "0", "--sweep", "n=5,10"], "n"),
        (["laplace scale=20", "--n", "7", "--delta", "0", "--sweep", "steps=5,10"], "n"),
        (["laplace scale=20 swap", "--delta", "0", "--sweep", "adjacency=add-remove,replace-one"], "adjacency"),
        (["gauss sigma=4", "--delta", "1e-5", "--sweep", "mech=gauss,laplace"], "mech"),
        (["gauss sigma=4", "--delta", "1e-5", "--sweep", "delta=1e-5,1e-6"], "delta"),
        (["projection sigma=2 k=5 d=10", "--delta", "1e-5", "--sweep", "d=10,50"], "d"),
        ([WORDS, "--delta", "1e-5", "--sweep", "n=5,10"], "n"),
        (["dpsgd sigma=4 rate=.1", "--delta", "1e-5", "--sweep", "sampling=fixed,poisson"], "sampling"),
    ],
)
def test_a_swept_key_with_a_value_is_refused(capsys, line, name):
    code, out, err = call(capsys, "compare", *line)
    assert (code, out) == (2, "")
    assert f"{name} is given twice" in err


@pytest.mark.parametrize("verb", [["budget"], ["compare"]])
def test_words_beside_a_history_are_refused_by_their_own_text(tmp_path, capsys, verb):
    steps = tmp_path / "h.json"
    steps.write_text('[{"mech": "gauss", "sigma": 4}]')
    code, out, err = call(capsys, *verb, "laplace scale=20 n=3", "--history", str(steps), "--delta", "1e-5")
    assert (code, out) == (2, "")
    assert "'laplace scale=20 n=3' says what runs; leave out --history, or the words" in err
    assert "--scale" not in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("budget gauss sigma=4 --delta 0^-5", "delta"),
        ("report run-1e-05", "run-1e-05"),
        ("verify --claim eps=5,delta=1e-5 --mech gauss --noise-multiplier 1.1 --adjacency replace-one", "0.55"),
    ],
)
def test_odd_powers_names_of_folders_and_replaced_records_are_said(capsys, line, words):
    code, out, err = call(capsys, line)
    assert code in (0, 2, 4)
    assert "a bug in wpriv" not in err
    assert words in out + err
