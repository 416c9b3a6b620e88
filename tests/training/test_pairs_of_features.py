"""Pairs of features in Python and in recipes: none is dropped. Oracles: closed forms, and the same job by itself."""

from __future__ import annotations

import json
import math

import pytest
from scipy.special import ndtr

import wpriv
from tests.training.tuning_kills import RECIPE
from wpriv import FixedSize, Gauss, Poisson, Process, Step
from wpriv.accounting import budget, build_process, certificates, evaluate, ledger, load_recipe
from wpriv.accounting.claims import verify_claim
from wpriv.accounting.comparison import grid
from wpriv.config import recipe, yaml_document
from wpriv.errors import Unsupported, UsageError

DP_SGD = "mech: gauss, sigma: 4, sampling: poisson"


def comparison(step: str, sweep: str, question: str, accountants: str = "[pld]") -> recipe.Recipe:
    keys = f"process: [{{{step}}}]\naccountants: {accountants}\nsweep: {sweep}\n{question}"
    text = f"kind: compare\nsource: test\n{keys}"
    return recipe.check(yaml_document.parse(text, "r.yaml"))


def group_of_sampled(records: int) -> Process:
    return Process((Step(Gauss(1.0), 5, FixedSize(0.1)),), group=2, records=records)


def test_processes_of_groups_add_up_on_data_sets_of_one_size_alone():
    with pytest.raises(UsageError, match=r"one size; found records 100 and 1000"):
        group_of_sampled(100) + group_of_sampled(1000)
    assert (group_of_sampled(100) + group_of_sampled(100)).records == 100
    unsampled = Process((Step(Gauss(1.0)),), "replace-one", 2)
    assert (unsampled + group_of_sampled(100)).records == (group_of_sampled(100) + unsampled).records == 100


def test_under_add_remove_the_larger_number_of_records_is_the_guarantee_for_both():
    few, many = (Process((Step(Gauss(4.0), 2, Poisson(0.1, 12)),), records=size) for size in (50, 100))
    assert (few + many).records == 100


def test_steps_of_groups_under_fixed_size_sampling_name_one_data_set():
    steps = [{"mech": "gauss", "sigma": 1, "sampling": "fixed", "batch": 10, "records": n} for n in (100, 1000)]
    with pytest.raises(UsageError, match="on one data set"):
        wpriv.compare(process=steps, group=2, accountants=["pld"], delta=1e-5)


def test_a_process_is_about_its_own_number_of_records():
    with pytest.raises(UsageError, match="about 100 records; found `records` 77"):
        wpriv.budget(group_of_sampled(100), records=77, delta=1e-5)


def test_cases_that_are_processes_keep_their_neighbours_and_groups():
    cases = {"a": Process((Step(Gauss(2.0)),), "replace-one", 3)}
    (row,) = wpriv.compare(cases=cases, accountants=["pld"], eps=0).rows
    # the total variation of normal distributions 3/2 apart
    assert math.isclose(row["delta"], 2 * ndtr(0.75) - 1, rel_tol=1e-12)
    assert (row["adjacency"], row["group"]) == ("replace-one", 3)


def test_cases_of_several_relations_are_refused_unless_each_is_the_default():
    fixed, poisson = (Process((Step(Gauss(4.0), 1, drawn(0.1)),)) for drawn in (FixedSize, Poisson))
    rows = wpriv.compare(cases={"fixed": fixed, "poisson": poisson}, accountants=["gdp-clt"], delta=1e-5).rows
    assert [row["adjacency"] for row in rows] == ["replace-one", "add-remove"]
    other = Process((Step(Gauss(4.0)),), "replace-one")
    for cases, key in (
        ({"a": other, "b": poisson}, "adjacency"),
        ({"a": Process(other.steps, "", 2), "b": []}, "group"),
    ):
        with pytest.raises(UsageError, match=f"under one {key}"):
            wpriv.compare(cases=cases, accountants=["pld"], delta=1e-5)


def test_a_largest_batch_is_given_once():
    for verb, question in ((wpriv.budget, {"sigma": 1, "delta": 1e-5}), (wpriv.calibrate, {"eps": 1, "delta": 1e-5})):
        with pytest.raises(UsageError, match="largest batch of its own"):
            verb("gauss", sampling=Poisson(0.1, 5), max_batch=50, records=100, **question)


def test_epochs_follow_each_rate_of_a_sweep():
    cells = grid.cells(comparison(f"{DP_SGD}, rate: 0.5, epochs: 3", "{over: rate, values: [0.1, 0.25]}", "delta: 0.1"))
    assert [(cell.specs[0]["rate"], cell.specs[0]["n"]) for cell in cells] == [(0.1, 30), (0.25, 12)]


@pytest.mark.parametrize(
    ("step", "over", "words"),
    [
        ("rate: 0.01, n: 40, bands: 4", "rate", "bands has no sweep over rate"),
        ("rate: 0.01, n: 40, bands: 4", "n", "bands has no sweep over n"),
        ("rate: 0.01, n: 40, bands: 4", "group", "bands has no sweep over group"),
        ("rate: 0.01, epochs: 2", "n", "epochs and the sweep both set n"),
        ("batch: 10, records: 100, n: 2", "rate", "batch and the sweep both set rate"),
    ],
)
def test_a_sweep_beside_a_key_that_it_would_undo_is_refused(step, over, words):
    values = "[0.01, 0.02]" if over == "rate" else "[1, 2]"
    with pytest.raises(UsageError, match=words):
        comparison(f"{DP_SGD}, {step}", f"{{over: {over}, values: {values}}}", "delta: 1e-5")


def test_a_parameter_of_the_mechanism_is_swept_whatever_options_accountants_have():
    step = "mech: wgrad, sigma: 1, lipschitz_x: 1, bound: 1, size_x: 10, size_z: 10, clip: 1, size: 10"
    cells = grid.cells(comparison(step, "{over: alpha, values: [0.25, 0.75]}", "delta: 1e-5", "[pld, wdp]"))
    assert [cell.specs[0]["alpha"] for cell in cells] == [0.25, 0.75] * 2
    assert all(cell.options == () for cell in cells)


@pytest.mark.parametrize(
    "text",
    [
        "kind: budget\nprocess: [{mech: gauss, sigma: 4, sampling: allocation, rate: 0.1, epochs: 2}]\ndelta: 1e-5\n",
        "kind: calibrate\nprocess: [{mech: gauss, sigma: 4, sampling: allocation, rate: 0.1}]\neps: 1\ndelta: 1e-5\n",
    ],
)
def test_recipes_count_allocated_steps_in_passes_or_solve_for_them(text):
    recipe.check(yaml_document.parse(text, "r.yaml"))


def test_classical_formulas_are_about_the_whole_group():
    row = wpriv.calibrate("gauss", eps=1, delta=1e-5, group=3, compare_classical=True).guarantee
    # Dwork, Roth 2014, Theorem A.1, at three times the sensitivity
    assert math.isclose(row.extra["classical"][0]["sigma"], 3 * math.sqrt(2 * math.log(1.25e5)), rel_tol=1e-12)


def test_steps_behind_a_history_keep_the_size_of_the_data_set(tmp_path):
    (tmp_path / "h.json").write_text('[{"mech": "gauss", "sigma": 10}]')
    given = {"sampling": "poisson", "batch": 10, "records": 100, "max_batch": 30, "n": 2}
    row = wpriv.calibrate("gauss", eps=3, delta=1e-5, history=tmp_path / "h.json", tol=0.01, **given).guarantee
    assert (row.process.records, row.process.steps[-1].sampling.max_batch) == (100, 30)


def test_steps_behind_a_history_are_refused_as_they_are_in_one(tmp_path):
    step = '{"mech": "gauss", "sigma": 10, "sampling": "%s", "rate": 0.1}'
    (tmp_path / "h.json").write_text(f"[{step % 'fixed'}]")
    (tmp_path / "both.json").write_text(f"[{step % 'fixed'}, {step % 'poisson'}]")
    words = "Give `adjacency` replace-one"
    with pytest.raises(Unsupported, match=words):
        wpriv.budget(history=tmp_path / "both.json", delta=1e-5)
    with pytest.raises(Unsupported, match=words):
        wpriv.calibrate("gauss", history=tmp_path / "h.json", sampling=Poisson(0.1), eps=3, delta=1e-5)


def test_the_best_of_several_runs_is_no_process_with_a_certificate_or_an_order(tmp_path):
    row = wpriv.budget("gauss", sigma=4, delta=1e-5, repeats="geometric:mean=5")
    with pytest.raises(Unsupported, match="best of a random number of runs"):
        certificates.of_guarantee(row, 1e-9)
    path = tmp_path / "r.yaml"
    path.write_text("kind: budget\nprocess: [{mech: gauss, sigma: 4}]\ndelta: 1e-5\nrepeats: geometric:mean=5\n")
    assert "repeats" in load_recipe.budget(path)[2]
    with pytest.raises(Unsupported, match="best of a random number of runs"):
        verify_claim.described(path)


@pytest.mark.parametrize(("more", "words"), [({"group": 3}, "up to 3 records"), ({"tuning": {}}, "of all runs")])
def test_a_ledger_says_what_the_statement_beside_it_covers_besides(tmp_path, more, words):
    path = tmp_path / "ledger.jsonl"
    book = ledger.Ledger(path, 1, 1, adjacency="add-remove", stream="a")
    book.spend(1, Step(Gauss(2.0)))
    book.close()
    position = ledger.position(ledger.entries(path)).as_dict()
    (tmp_path / "statement.json").write_text(json.dumps({"ledger": position, **more}))
    reading = wpriv.budget(history=path, delta=1e-5).extra["reading"]
    assert any(words in line for line in reading)


def test_candidates_without_an_effect_on_solved_noise_are_refused(tmp_path):
    path = tmp_path / "r.yaml"
    swept = RECIPE.replace("{over: optimizer.lr, values: [0.01, 1, 2]}", "{over: privacy.sigma, values: [1, 2]}")
    path.write_text(swept)
    assert load_recipe.read(path).training is not None
    path.write_text(swept.replace("sigma: 2,", "eps: 3,"))
    with pytest.raises(UsageError, match=r"privacy.sigma would be without effect"):
        load_recipe.read(path)


def test_a_mechanism_and_its_name_are_read_in_the_same_words():
    by_name = wpriv.budget("gauss", sigma=4, delta=1e-5, group=2)
    by_object = wpriv.budget(Gauss(4.0), delta=1e-5, group=2)
    assert by_object.epsilon == by_name.epsilon
    # of a name alone the sensitivity is assumed, which is said
    (assumed,) = set(by_name.extra["reading"]) - set(by_object.extra["reading"])
    assert assumed == "sensitivity = 1 (l2 norm), since none was given"
    assert by_name.extra["reading"][0] == "n = 1, since neither n nor epochs was given"


def test_the_folder_of_a_tuned_training_is_no_process(tmp_path):
    (tmp_path / "statement.json").write_text('{"tuning": {}}')
    with pytest.raises(Unsupported, match="best of a random number of runs"):
        verify_claim.described(tmp_path)


@pytest.mark.parametrize(("claim", "name"), [("mu=1", "rdp"), ("rho=0.5", "pld")])
def test_claims_that_no_named_accountant_decides_are_refused_beside_one(claim, name):
    with pytest.raises(UsageError, match="accountants of its own"):
        wpriv.verify_claim(claim, "gauss", sigma=1, accountant=name)


def test_a_bracket_narrowed_for_a_limit_keeps_its_other_warnings():
    job = build_process.described_process("laplace", scale=5, n=10)
    row = evaluate.with_warnings(budget.answer(job, "pld", delta=1e-5, tol=0.3), ["beside it"])
    limit = (row.epsilon.lower + row.epsilon.safe) / 2
    (narrow,) = budget.narrow_to_decide(job, [row], limit, 0.3)
    assert narrow.epsilon.safe < row.epsilon.safe
    assert "beside it" in narrow.warnings
