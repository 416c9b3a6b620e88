"""Forks whose statement would be false of the run before them are refused before a step is paid.

A statement of a fork is made from its own recipe. Oracle of each case: what the recipe of the run before says, which
that statement would not.
"""

from __future__ import annotations

import pytest

from wpriv import Gauss, Process, Step
from wpriv.config import recipe as recipes
from wpriv.config.document import Document
from wpriv.errors import UsageError
from wpriv.training import plan, run_folder, train
from wpriv.training.all_trainings import IN_FOLDER, EarlierRun, warning

BASE = {
    "kind": "train",
    "source": "a test",
    "task": "classify",
    "data": {"name": "digits", "limit": 100},
    "model": {"name": "logistic"},
    "privacy": {"sigma": 1.0, "delta": 1e-5},
    "optimizer": {"name": "sgd", "lr": 0.5},
    "batch": 25,
    "steps": 2,
}
NONE = {"privacy": "none"}
NOISE = {"mech": "local-laplace", "eps": 100, "radius": 16, "public_labels": True}
REPORTS = {**NONE, "data": {**BASE["data"], "privatize": {**NOISE, "seed": 3}}}
FAIR = {
    "task": "fair",
    "data": {"name": "adult", "limit": 400},
    "privacy": {**BASE["privacy"], "sampling": "fixed"},
}

PERSONS = {**BASE["privacy"], "group": 2, "sampling": "fixed"}


def fair(notion: str, column: str = "sex_Male") -> dict:
    options = {"kind": "classification", "notion": notion, "alpha": 0.5}
    return {**FAIR, "data": {**FAIR["data"], "sensitive": column}, "options": options}


def recipe(**changes: object) -> recipes.Recipe:
    return recipes.check(Document("a.yaml", [], {**BASE, **changes}))


@pytest.fixture
def weights(tmp_path):
    """A file of weights, which no rule reads."""
    for name in ("one.pt", "other.pt"):
        (tmp_path / name).write_text(name)
    return {name: {"file": str(tmp_path / f"{name}.pt"), "sha256": name} for name in ("one", "other")}


def require(tmp_path, before: dict, now: dict) -> None:
    run_folder.require(tmp_path, recipe(**before).data, recipe(**now))


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({"seed": 7}, {}, "the seed 7"),
        (NONE, REPORTS, "other records"),
        ({}, REPORTS, "other records"),
        (REPORTS, {**REPORTS, "data": {**BASE["data"], "privatize": {**NOISE, "seed": 4}}}, "other records"),
        ({}, {"accountants": ["bdp"]}, "bdp needs distances"),
        (fair("odds"), fair("parity"), "protects other values"),
        ({"privacy": PERSONS}, {"privacy": PERSONS, "data": {**BASE["data"], "limit": 50}}, "or its data"),
        (fair("parity"), fair("parity", "race_White"), "protects other values or other groups"),
    ],
)
def test_what_a_statement_would_leave_out_of_the_run_before_is_refused(tmp_path, before, now, words):
    with pytest.raises(UsageError, match=words):
        require(tmp_path, before, now)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"seed": 7}, {"seed": 8}),
        ({"seed": 7}, NONE),
        (REPORTS, {**REPORTS, "steps": 3}),
        ({}, {"privacy": {"sigma": 2.0, "delta": 1e-5}, "data": {**BASE["data"], "limit": 50}}),
        (fair("odds"), {**fair("odds"), "steps": 1}),
        ({"privacy": {**PERSONS, "group": 1}}, {"privacy": PERSONS}),
    ],
)
def test_a_fork_whose_statement_is_true_of_both_runs_is_accepted(tmp_path, before, now):
    require(tmp_path, before, now)


@pytest.mark.parametrize(("before", "now"), [("one", None), (None, "one"), ("one", "other")])
def test_a_fork_names_the_weights_that_the_first_run_began_from(tmp_path, weights, before, now):
    def init(name):
        return {} if name is None else {"init": weights[name]}

    with pytest.raises(UsageError, match="whose first run began from"):
        require(tmp_path, init(before), init(now))
    require(tmp_path, init("one"), init("one"))


def test_the_weights_of_a_given_network_are_named_by_every_fork(tmp_path):
    before = {**recipe().data, "model": {"name": "given"}}
    with pytest.raises(UsageError, match="keep that network"):
        run_folder.require(tmp_path, before, recipe())


@pytest.mark.parametrize("alike", [True, False])
def test_runs_moved_aside_have_a_cost_together_only_where_they_protect_the_same(alike):
    steps = (Step(Gauss(10.0)),)
    run = EarlierRun("before-1", steps, "replace-one", alike=alike)
    line = warning([run], Process(steps, "replace-one"), 1e-5, {"a stream"}, IN_FOLDER)
    assert ("All runs together" in line) == alike


@pytest.mark.slow
def test_a_refused_fork_leaves_the_folder_and_its_ledger_as_they_were(tmp_path):
    out = train.run(recipe(seed=1), tmp_path / "out").out
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UsageError, match="the seed 1"):
        train.run(recipe(), out, fork=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files


@pytest.mark.slow
def test_weights_of_clear_records_are_not_called_post_processing_of_reports(tmp_path):
    clear = train.run(recipe(**NONE), tmp_path / "clear").out / "model.pt"
    with pytest.raises(UsageError, match="without privacy"):
        train.run(recipe(**REPORTS, init=str(clear)), tmp_path / "reports")
    declared = train.run(recipe(**REPORTS, init={"file": str(clear), "records": "public"}), tmp_path / "reports")
    assert any("began from, those in model.pt" in line for line in declared.statement["not_covered"])


def test_neighbours_that_a_task_does_not_account_for_are_refused_by_its_plan():
    # replacing a record by one of another group is not covered where groups are public
    data = fair("parity")
    data["privacy"] = {**data["privacy"], "adjacency": "replace-one"}
    sizes = {"records": 400, "group 0": 200, "group 1": 200}
    with pytest.raises(UsageError, match="accounted for under replace-within-group neighbours; found replace-one"):
        plan.plan(recipe(**data), sizes)
    assert plan.plan(recipe(**fair("parity")), sizes).adjacency == "replace-within-group"
