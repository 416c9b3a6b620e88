"""The statement of a training and of local reports: who sees what, what may be published, and what is no guarantee."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

import wpriv
from wpriv.config.train_schema import Privacy, Train
from wpriv.core import registry
from wpriv.results import storage
from wpriv.results.model import Statement
from wpriv.training import metric_logs, tasks, train
from wpriv.training.local import local_statement
from wpriv.training.reports import model_check, publication, report, words

RECIPE = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 300}
model: {name: mlp, width: 8, depth: 1, activation: tanh}
privacy: {eps: 4, delta: 1e-5}
optimizer: {name: sgd, lr: 1.0}
batch: 50
steps: 3
accountants: [pld, gdp-clt]
"""


def trained(tmp_path, text=RECIPE):
    (tmp_path / "r.yaml").write_text(text)
    return train.train(tmp_path / "r.yaml", out=tmp_path / "out")


def answers(statement):
    return {entry["file"]: entry["publish"] for entry in statement["publish"]}


def section(text, title):
    return re.split(r"\n## ", text.partition(f"## {title}\n")[2])[0]


@pytest.mark.slow
def test_an_approximate_eps_stands_apart_from_the_certified_one(tmp_path):
    statement = trained(tmp_path).statement
    told = (tmp_path / "out" / storage.STATEMENT_TEXT).read_text()
    assert [row["accountant"] for row in statement["guarantees"]] == ["pld"]
    assert [(row["accountant"], row["claim"]) for row in statement["for_comparison"]] == [("gdp-clt", "approximate")]
    assert "by gdp-clt" not in told.partition("\n## ")[0]
    assert "by gdp-clt" in section(told, "For comparison only, no guarantee")


@pytest.mark.slow
def test_figures_of_other_notions_are_no_guarantees_either(tmp_path):
    text = RECIPE.replace("{eps: 4, delta: 1e-5}", "{clip: batch-mean, sigma: 0.01, delta: 1e-5}")
    statement = trained(tmp_path, text.replace("[pld, gdp-clt]", "['moments:order=16', 'wdp:order=16']")).statement
    assert [row["accountant"] for row in statement["guarantees"]] == ["moments:order=16"]
    assert [row["accountant"] for row in statement["for_comparison"]] == ["wdp:order=16"]
    assert answers(statement)["model.pt"] == "no"


@pytest.mark.slow
def test_the_statement_says_who_sees_what_and_keeps_what_is_not_covered_and_not_assessed(tmp_path):
    statement = trained(tmp_path).statement
    told = (tmp_path / "out" / storage.STATEMENT_TEXT).read_text()
    for title, key in (
        ("Trust model", "trust_model"),
        ("Not covered", "not_covered"),
        ("Not assessed", "not_assessed"),
    ):
        assert statement[key]
        assert all(line in section(told, title) for line in statement[key])
    assert any("curator" in line and "trusted" in line for line in statement["trust_model"])
    assert any(line.startswith("floating point") for line in statement["not_assessed"])
    assert any(line.startswith("buffers") for line in statement["not_assessed"])


@pytest.mark.slow
def test_delta_is_set_against_one_over_the_records(tmp_path):
    found = trained(tmp_path).statement["delta"]
    assert (found["value"], found["records"]) == (1e-5, 300)
    assert found["times_records"] == pytest.approx(0.003)
    assert "0.003 / records" in (tmp_path / "out" / storage.STATEMENT_TEXT).read_text()
    assert "NOT below 1 / records" in words.share(0.1, 300).meaning
    assert words.share(0.0, 300).meaning.startswith("pure DP")


@pytest.mark.slow
def test_every_file_of_a_finished_training_has_an_answer_and_only_what_no_record_made_is_a_yes(tmp_path):
    statement = trained(tmp_path).statement
    found = answers(statement)
    assert {path.name for path in (tmp_path / "out").iterdir()} <= set(found)
    assert {name for name, answer in found.items() if answer == "yes"} == {
        "statement.json",
        "statement.md",
        "model.pt",
        "model.safetensors",
        "ledger.jsonl",
        "recipe.yaml",
    }
    private = ("checkpoint.pt", "diagnostics.pt", "metrics.csv", "provenance.json", "the training records")
    assert {found[name] for name in private} == {"no"}
    # model.pt holds neither metrics nor what depends on the fingerprint of the training records
    model, diagnostics = (
        torch.load(tmp_path / "out" / name, weights_only=True) for name in (storage.MODEL, storage.DIAGNOSTICS)
    )
    assert set(model) == {
        "format",
        "identity",
        "step",
        "run",
        "ledger",
        "clear",
        "weights",
        "clipping",
        "checked",
        "remarks",
    }
    assert model["identity"] == diagnostics["identity"].partition("-")[0] != diagnostics["identity"]
    assert "loss" in json.loads(diagnostics["rows"])[0]
    assert statement == json.loads((tmp_path / "out" / storage.STATEMENT).read_text())


@pytest.mark.slow
def test_figures_of_observed_distances_are_neither_for_publication_nor_for_logs_and_the_registry(tmp_path):
    statement = (done := trained(tmp_path, RECIPE.replace("[pld, gdp-clt]", "['wdp:order=16', bdp, pld]"))).statement
    others = statement["for_comparison"]
    assert [row["accountant"] for row in others] == ["wdp:order=16", "bdp"]
    # they were computed from gradients of records, which have no noise, and so was the text of a warning
    assert done.guarantees[0].epsilon.safe == others[0]["epsilon"] != statement["guarantees"][0]["epsilon"]
    assert any("lies above their exact" in line for line in statement["warnings"])
    found = answers(statement)
    assert {name for name, answer in found.items() if answer == "yes"} == {"model.pt", "ledger.jsonl", "recipe.yaml"}
    assert any("in diagnostics.pt" in line and "every bdp and wdp number" in line for line in statement["not_covered"])
    assert model_check.check(tmp_path / "out").verdict == model_check.FITS
    sent = metric_logs.figures(done, private=False)
    assert sent.final["epsilon"] == statement["guarantees"][0]["epsilon"]
    assert sent.parameters["statement.accountant"] == "pld"
    entry = json.dumps(report.entry(Statement(**statement)))
    assert all(json.dumps(line)[1:-1] not in entry for row in others for line in row["warnings"])


@pytest.mark.slow
def test_a_fixed_seed_leaves_nothing_to_publish(tmp_path):
    statement = trained(tmp_path, RECIPE + "seed: 1\n").statement
    assert set(answers(statement).values()) == {"no"}


def test_a_training_without_privacy_leaves_its_settings_alone_to_publish(tmp_path):
    statement = trained(tmp_path, RECIPE.replace("{eps: 4, delta: 1e-5}", "none")).statement
    assert {name for name, answer in answers(statement).items() if answer == "yes"} == {
        "statement.json",
        "statement.md",
        "recipe.yaml",
    }


@pytest.mark.parametrize("task", registry.names("tasks"))
def test_every_task_names_files_of_its_own_alone_for_publication(task):
    spec = tasks.load(task)
    assert set(spec.publishable) <= {*spec.figures, *spec.files}
    train = Train.model_construct(task=task, privacy=Privacy.model_construct(clip=1.0))
    found = {entry["file"]: entry for entry in publication.of_training(train, None)}
    assert set(storage.of_training(task)) <= set(found)
    # test records are in these pictures
    assert all(
        found[name]["publish"] == "no"
        for name in ("reconstructions.npz", "reconstructions.png", "scores.csv")
        if name in found
    )


def test_local_reports_say_who_sees_what_and_what_may_be_published():
    records = np.ones((4, 3))
    about = {"mech": "local-gauss", "radius": 1.0, "eps": 2.0, "delta": 1e-5}
    statement = wpriv.privatize(records, **about).statement
    assert answers(statement) == {
        "the .npz": "yes",
        "the .statement.json and .statement.md": "yes",
        "the records": "no",
    }
    assert statement["delta"]["times_records"] == pytest.approx(4e-5)
    told = local_statement.to_markdown(statement)
    assert all(line in section(told, "Trust model") for line in statement["trust_model"])
    assert "| the records | no |" in section(told, "Files")
    assert set(answers(wpriv.privatize(records, seed=1, **about).statement).values()) == {"no"}
