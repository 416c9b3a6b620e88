"""Tests of hints for words of other programs and papers, of names in any case, and of repeated flags."""

from __future__ import annotations

import json
import shlex

import pytest

from wpriv.cli.main import main
from wpriv.hints import ALIASES, did_you_mean

GAUSS = "budget --mech gauss --sigma 1 --delta 1e-5"


@pytest.mark.parametrize(
    ("theirs", "here"),
    [
        ("--epsilon 1", "--eps 1"),
        ("--target-epsilon 1", "--eps 1"),
        ("--target_delta 1e-5", "--delta 1e-5"),
        ("--delta 1e-5 --steps 60,000", "--delta 1e-5 --n 60000"),
        ("--delta 1e-5 --iterations=9", "--delta 1e-5 --n 9"),
        ("--delta 1e-5 --noise-multiplier 2 --sensitivity 3", "--delta 1e-5 --sigma 6 --sensitivity 3"),
        ("--delta 1e-5 --noise_multiplier 2", "--delta 1e-5 --sigma 2"),
        ("--delta 1e-5 --sampling poisson-sampling --q 1%", "--delta 1e-5 --sampling poisson --rate 0.01"),
        ("--delta 1e-5 --sampling swor --sample-rate 0.1", "--delta 1e-5 --sampling fixed --rate 0.1"),
        (
            "--delta 1e-5 --sampling random-allocation --sampling-rate .1 --n 10 --tol .01",
            "--delta 1e-5 --sampling allocation --rate 0.1 --n 10 --tol 1%",
        ),
        (
            "--delta 1e-5 --sampling bernoulli --batch-size 256 --dataset-size 60_000",
            "--delta 1e-5 --sampling poisson --batch 256 --records 60000",
        ),
        (
            "--delta 1e-5 --sampling poisson --lot-size=256 --num-examples=60,000 --num-epochs 1",
            "--delta 1e-5 --sampling poisson --batch 256 --records 60000 --epochs 1",
        ),
        ("--delta 1e-5 --accountant prv", "--delta 1e-5 --accountant pld"),
        ("--delta 1e-5 --accountant renyi-dp", "--delta 1e-5 --accountant rdp"),
        ("--delta 1e-5 --adjacency add/remove", "--delta 1e-5 --adjacency add-remove"),
        ("--delta 1e-5 --adjacency substitution", "--delta 1e-5 --adjacency replace-one"),
        ("--delta 1e-5 --adjacency replace_one", "--delta 1e-5 --adjacency replace-one"),
    ],
)
def test_words_of_other_programs_mean_what_they_say(capsys, theirs, here):
    """Oracle: the same question in the words here."""

    def answer(words, mech):
        line = ["budget", "--mech", mech, *words.split(), "--json"]
        line += [] if "sigma" in words or "multiplier" in words else ["--sigma", "2"]
        assert main(line) == 0
        return json.loads(capsys.readouterr().out)

    assert answer(theirs, "gaussian") == answer(here, "gauss")


@pytest.mark.parametrize(
    ("theirs", "here"),
    [
        ("laplacian scale=1", "laplace scale=1"),
        ("rr eps0=1", "randomized-response eps0=1"),
        ("geometric scale=2", "discrete-laplace scale=2"),
        ("dpsgd sigma=2 rate=10% n=1", "gauss sigma=2 sampling=poisson rate=0.1 n=1"),
        ("dp-sgd noise_multiplier=2 rate=0.1 n=1 bernoulli", "gauss sigma=2 sampling=poisson rate=0.1 n=1"),
        ("gauss noise_multiplier=2 rate=0.1 n=10 balls-in-bins", "gauss sigma=2 sampling=allocation rate=0.1 n=10"),
        ("gaussian sigma=2 sensitivity=2 unbounded", "gauss sigma=2 sensitivity=2 adjacency=add-remove"),
    ],
)
def test_names_of_other_programs_mean_what_they_say(capsys, theirs, here):
    assert main(["budget", theirs, "--delta", "0.01", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert main(["budget", *here.split(), "--delta", "0.01", "--json"]) == 0
    assert answer == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("flag", "meant"),
    [("--rho", "--sigma"), ("--SIGMA", "--sigma"), ("--simga", "--sigma"), ("--max-grad-norm", "--sensitivity")],
)
def test_a_flag_that_means_something_else_leads_to_the_one_here(capsys, flag, meant):
    assert main(["budget", "--mech", "gauss", flag, "1", "--delta", "1e-5"]) == 2
    error = capsys.readouterr().err
    assert f"did you mean '{meant}'" in error
    assert "Known:" not in error


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (f"{GAUSS} --noise-multiplier 1", "both set the noise"),
        ("budget --mech gauss --noise-multiplier 0 --delta 1e-5", "greater than 0"),
        ("budget --mech laplace --noise-multiplier 1 --delta 0.1", "laplace does not have both"),
        ("budget --mech gauss --sigma 1 --epsilon 1 --eps 1", "--eps is given twice"),
        (f"{GAUSS} --sampling poisson --rate 1,5", "write 1.5 or 15"),
        (f"{GAUSS} --sampling poison --rate .1", "did you mean 'poisson'"),
        (f"{GAUSS} --adjacency sustitution", "did you mean 'replace-one'"),
        ("budget dpsgd sigma=1 --delta 1e-5", "needs a rate"),
        ("budget gauss sigma=4 --sigma 4 --delta 1e-5", "sigma is given twice"),
        ("budget gauss sigma=4 poison .01 --delta 1e-5", "did you mean 'poisson'"),
        ("budget gauss sigma=4 + laplace scale=3 --n 4 --delta 1e-5", "leave out --n"),
        ("calibrate gauss sigma=4 + laplace --eps 1 --delta 1e-5", "one step"),
        ("compare gauss sigma=? --delta 1e-5 --accountant pld", "sigma"),
    ],
)
def test_what_contradicts_itself_is_refused_with_one_hint(capsys, words, why):
    assert main(words.split()) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert why in error


def test_a_hint_says_how_the_quantities_are_related(capsys):
    for flag, relation in (("--rho", "sqrt(2 rho)"), ("--mu", "sensitivity / mu")):
        assert main(["budget", "--mech", "gauss", flag, "1"]) == 2
        assert relation in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--mech mu-gdp", "'gdp'"),
        ("--mech rho-zcdp", "'zcdp'"),
        ("--mech renyi", "'rdp-curve'"),
        ("--mech gausian", "'gauss'"),
        ("--mech pld", "--accountant pld"),
        ("--mech gauss --sigma 1 --accountant laplace", "--mech laplace"),
        ("--mech gauss --sigma 1 --accountant pdl", "'pld'"),
    ],
)
def test_a_name_that_is_none_leads_to_the_one_here(capsys, words, hint):
    assert main(["budget", *words.split(), "--delta", "1e-5"]) == 2
    assert hint in capsys.readouterr().err


RECIPE = """kind: {kind}
process:
- mech: {mech}
  {noise}: 2
  {batch}: 256
  {records}: {size}
  sampling: {sampling}
  {epochs}: 1
{delta}: {target}
adjacency: {adjacency}
accountants: [{accountant}]
source: here
"""
THEIRS = {
    "mech": "gaussian", "noise": "noise_multiplier", "batch": "batch_size", "records": "dataset-size",
    "size": "60,000", "sampling": "poisson-sampling", "epochs": "num_epochs", "delta": "target_delta",
    "target": "0.001%", "adjacency": "add/remove", "accountant": "prv",
}  # fmt: skip
HERE = {
    "mech": "gauss", "noise": "sigma", "batch": "batch", "records": "records", "size": "60000", "sampling": "poisson",
    "epochs": "epochs", "delta": "delta", "target": "1e-5", "adjacency": "add-remove", "accountant": "pld",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["budget", "compare"])
def test_a_recipe_in_words_of_other_programs_means_what_it_says(tmp_path, capsys, kind):
    answers = []
    for words in (THEIRS, HERE):
        path = tmp_path / "r.yaml"
        path.write_text(RECIPE.format(kind=kind, **words))
        assert main([kind, str(path), "--json", *(["--out", str(tmp_path / words["mech"])] * (kind == "compare"))]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    theirs, here = (answer.get("rows", answer) for answer in answers)
    assert theirs == here


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("batch", "batch_size: 1,5", "5:15"),
        ("size", "60,00", "6:17"),
        ("sampling", "poison", "7:13"),
        ("mech", "gaus", "3:9"),
    ],
)
def test_faults_of_a_recipe_in_other_words_stand_at_their_line_and_column(tmp_path, capsys, key, value, place):
    text = RECIPE.format(kind="budget", **{**THEIRS, **({} if key == "batch" else {key: value})})
    text = text.replace("batch_size: 256", value) if key == "batch" else text
    path = tmp_path / "r.yaml"
    path.write_text(text)
    assert main(["budget", str(path)]) == 2
    assert f"{path}:{place}: " in capsys.readouterr().err


def test_a_key_beside_its_synonym_is_refused(tmp_path, capsys):
    path = tmp_path / "r.yaml"
    path.write_text("kind: budget\nprocess: [{mech: gauss, sigma: 1, n: 4, steps: 9}]\ndelta: 1e-5\n")
    assert main(["budget", str(path)]) == 2
    assert "steps" in capsys.readouterr().err


def test_keywords_of_python_are_read_alike():
    import wpriv

    here = wpriv.budget("gauss", sigma=4, sensitivity=2, n=10, sampling="poisson", rate=0.1, delta=1e-5)
    theirs = wpriv.budget(
        "gaussian", noise_multiplier=2, sensitivity=2, steps="10", sampling="poisson-sampling", q="10%",
        target_delta=1e-5, accountant="prv",
    )  # fmt: skip
    assert theirs == here
    assert wpriv.budget("gauss sigma=4 sensitivity=2 n=10 poisson .1", delta=1e-5) == here
    assert wpriv.calibrate("gauss n=1000", epsilon=1, delta=1e-5).value == 117.97295


def test_every_alias_names_something_and_none_stands_for_itself():
    assert len(ALIASES) > 100
    for word, (targets, _) in ALIASES.items():
        assert targets
        assert word not in targets
        assert repr(targets[0]) in did_you_mean(word, list(targets))


@pytest.mark.parametrize("mech", ["GAUSS", "Gauss"])
@pytest.mark.parametrize("adjacency", ["add_remove", "Add-Remove"])
def test_names_in_flags_are_accepted_in_any_case(capsys, mech, adjacency):
    line = "budget --mech {} --sigma 1 --sampling {} --rate 0.1 --accountant {} --adjacency {} --delta 1e-5 --json"
    assert main(line.format("gauss", "poisson", "rdp", "add-remove").split()) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main(line.format(mech, "Poisson", "RDP", adjacency).split()) == 0
    assert json.loads(capsys.readouterr().out) == plain


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        (f"{GAUSS} --sigma 2", "--sigma"),
        (f"{GAUSS} --sigma 1", "--sigma"),
        (f"{GAUSS} --max-eps 1 --max-eps 9", "--max-eps"),
        ("calibrate --mech gauss --eps 1 --eps 2 --delta 1e-5", "--eps"),
        ("train quick/digits --out a --out b", "--out"),
        ("data show mnist --data-root a --data-root b", "--data-root"),
    ],
)
def test_a_flag_that_is_given_twice_is_refused(capsys, line, flag):
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert flag in err
    assert "twice" in err


def test_flags_that_may_be_repeated_still_may(capsys):
    assert main(f"{GAUSS} --accountant pld --accountant rdp --json".split()) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2


@pytest.mark.parametrize(
    ("steps", "entry"),
    [
        ([[1.0, 0.01, 100], [1.0, 0.01, 100], [-1, 0.01, 5]], 3),
        ([{"mech": "gauss", "sigma": 1}, {"mech": "gaus", "sigma": 1}], 2),
        ([{"mech": "gauss", "sigma": 1, "sampling": "poisson", "rate": 1.5}], 1),
        ([[1, 0.1, 5], [2, 0.1, 2**41]], 2),
        ([[1, 0.1, 5], [1, 0, 5]], 2),
    ],
)
def test_an_error_in_a_history_names_file_and_entry(tmp_path, capsys, steps, entry):
    file = tmp_path / "steps.json"
    file.write_text(json.dumps(steps))
    assert main(["budget", "--history", str(file), "--delta", "1e-5"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{file}, entry {entry}:" in err


@pytest.mark.parametrize("adjacency", [[], ["--adjacency", "add-remove"]])
def test_samplings_that_no_relation_covers_together_are_refused_by_their_names(tmp_path, capsys, adjacency):
    file = tmp_path / "steps.json"
    step = {"mech": "gauss", "sigma": 1, "rate": 0.1}
    file.write_text(json.dumps([{**step, "sampling": "poisson"}, {**step, "sampling": "fixed"}]))
    assert main(["budget", "--history", str(file), "--delta", "1e-5", *adjacency]) == 3
    err = capsys.readouterr().err
    assert "poisson" in err
    assert "fixed" in err
    assert "found adjacency" not in err
    assert main(["budget", "--history", str(file), "--delta", "1e-5", "--adjacency", "replace-one"]) == 0
    assert "half the sensitivity" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--epsilon", "3"), ("--epochs", "3"), ("--noise-multiplier", "1")])
def test_a_training_is_changed_by_its_recipe_and_not_by_flags_of_the_calculator(capsys, words):
    assert main(["train", "quick/digits", *words]) == 2
    told = capsys.readouterr().err
    assert "--set privacy.eps=3" in told
    assert "did you mean" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("report r --foo", "report has no option --foo. `wpriv report --help` names all"),
        ("report r --checklist", "did you mean '--as' (the form of a report, as in --as checklist)?"),
        ("audit r --foo", "audit has no option --foo. `wpriv audit --help` names all"),
        ("audit r --eps 3", "--set privacy.eps=3"),
        ("train r --optimizer adam", "--set privacy.eps=3"),
        ("train r --quiet", "train has no option --quiet. `wpriv train --help` names all"),
    ],
)
def test_an_unknown_flag_leads_to_the_recipe_only_where_the_recipe_has_it(capsys, words, told):
    assert main(words.split()) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("compare --mech gauss --sigma 1,2,4 --delta 1e-5", "--mech gauss --sweep sigma=1,2,4 --delta 1e-5"),
        ("compare --mech gauss,laplace --sigma 1 --scale 2 --delta 1e-5", "--sweep mech=gauss,laplace --sigma 1"),
        ("budget --mech gauss --sigma 1 --delta=1e-5 --accountant pld,rdp", "--accountant pld --accountant rdp"),
        ("budget --mech gauss --sigma 1 --noise_multiplier=1,2,4 --delta 1e-5", "--sweep noise_multiplier=1,2,4"),
        ("compare --mech zcdp --param rho=.1,.2 --delta 1e-5 --accountant rdp", "--mech zcdp --sweep rho=.1,.2"),
    ],
)
def test_several_values_of_a_flag_lead_to_the_whole_line_that_compares_them(capsys, words, line):
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    typed = shlex.split(err.partition("For each of them: ")[2])
    assert line in " ".join(typed)
    if "--sigma 1 --sweep noise" not in err:  # which sets the noise twice
        assert main(typed[1:]) == 0


@pytest.mark.parametrize("words", ["--n 60,000 --delta 2", "--sigma 1,x --delta 1e-5", "--mech gauss,x --delta 1e-5"])
def test_other_faults_keep_their_message_where_a_comma_separates_no_values(capsys, words):
    assert main(f"compare --mech gauss {words}".split()) == 2
    assert "For each of them" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("eps", "privacy.eps"),
        ("epsilon", "privacy.eps"),
        ("noise_multiplier", "privacy.sigma"),
        ("max_grad_norm", "privacy.clip"),
        ("learning_rate", "optimizer.lr"),
        ("lr", "optimizer.lr"),
    ],
)
def test_a_key_of_a_training_leads_to_its_place(capsys, key, meant):
    assert main(["train", "dpsgd/mnist", "--set", f"{key}=1", "--dry-run"]) == 2
    assert f"unknown key '{key}'; did you mean '{meant}'" in capsys.readouterr().err
