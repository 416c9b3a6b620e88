"""``report``: a summary of every kind of folder, an entry for the registry, and a checklist."""

from __future__ import annotations

import csv
import json
import re
import shutil

import jsonschema
import pytest
import yaml

import wpriv
from tests.training.test_training_statement import RECIPE
from wpriv.errors import CheckFailed, MissingResource, UnknownName, Unsupported, UsageError
from wpriv.numerics import numbers
from wpriv.results import storage
from wpriv.training.reports import folder_page
from wpriv.training.reports import report as registry_entry
from wpriv.training.reports.report import report

# everything that a person must know, by path
FILLED = {
    "url_slug": "people-2026",
    "deployment.basic.data_curators.0.data_curator_name": "A hospital",
    "deployment.basic.data_curators.0.data_curator_type": "Nonprofit",
    "deployment.basic.intended_use": "a test",
    "deployment.basic.data_product_region": "Europe",
    "deployment.basic.data_product_sector": "Healthcare",
    "deployment.basic.publication_date": "2026-11-01",
    "deployment.dp_variant.data_domain": "the patients of 2025",
    "deployment.deployment_model.actors": "the hospital and the public",
    "deployment.deployment_model.release_type_details": "no other release",
    "deployment.implementation.preprocessing_and_hyperparameter_tuning": "on public data",
    "deployment.implementation.mechanisms": "DP-SGD",
    "deployment.implementation.justification": "a panel decided",
    "deployment.implementation.utility": "on public test data",
    "deployment.administrative.registry_authors.0": "A person",
}
VARIANTS = {
    "central": RECIPE,
    "group": RECIPE.replace("{eps: 4, delta: 1e-5}", "{sigma: 4, delta: 1e-5, group: 2}"),
    "all records": RECIPE.replace("{eps: 4, delta: 1e-5}", "{sigma: 9, delta: 1e-5, sampling: none}").replace(
        "batch: 50\n", ""
    ),
    "seed": f"{RECIPE}seed: 1\n",
}


def train(folder, text, **start):
    (folder / "r.yaml").write_text(text)
    return wpriv.train(folder / "r.yaml", out=folder / "out", **start).out


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(tmp_path_factory.mktemp("report"), RECIPE)


@pytest.fixture
def out(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "out")


def boxes(text):
    """The questions of a checklist by their first words, with whether each is ticked."""
    return {
        line.split("**")[1]: line.startswith("- [x]")
        for line in text.splitlines()
        if line.startswith(("- [x]", "- [ ]"))
    }


def test_the_schema_of_the_registry_is_a_schema_and_names_its_version():
    jsonschema.Draft7Validator.check_schema(registry_entry.schema())
    assert registry_entry.COMMIT in registry_entry.schema()["description"]


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_an_entry_of_every_kind_of_training_fits_the_schema_once_it_is_filled_in(tmp_path, name):
    out = train(tmp_path, VARIANTS[name])
    assert set(registry_entry.open_paths(report(out, "registry").data)) == FILLED.keys() - {"url_slug"}
    filled = report(out, "registry", FILLED)
    assert not [note for note in filled.notes if "left to fill in" in note]
    # oracle: the jsonschema library, on the text as others read it
    data = yaml.safe_load(filled.text)
    checker = jsonschema.Draft7Validator.FORMAT_CHECKER
    jsonschema.Draft7Validator(registry_entry.schema(), format_checker=checker).validate(data)
    statement = json.loads((out / storage.STATEMENT).read_text())
    loss = data["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": statement["guarantees"][0]["epsilon"], "delta": 1e-5}
    assert loss["privacy_unit"] == statement["unit"]
    assert ("number_of_privacy_units" in loss) == (name != "group")
    assert data["deployment"]["dp_variant"]["variant_name"] == "Approximate DP"
    assert data["deployment"]["administrative"] == {"status": "Draft", "registry_authors": ["A person"], "tier": 3}


@pytest.mark.slow
def test_an_entry_that_is_not_filled_in_is_refused_by_the_registry(out):
    checker = jsonschema.Draft7Validator.FORMAT_CHECKER
    validator = jsonschema.Draft7Validator(registry_entry.schema(), format_checker=checker)
    paths = {".".join(map(str, error.absolute_path)) for error in validator.iter_errors(report(out, "registry").data)}
    assert paths == {
        "deployment.basic.data_curators.0.data_curator_type",
        "deployment.basic.data_product_sector",
        "deployment.basic.publication_date",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        ("deployment.basic.data_product_sector", "Cooking", CheckFailed),
        ("deployment.basic.publication_date", "soon", CheckFailed),
        ("deployment.administrative.tier", 4, CheckFailed),
        ("deployment.basic.nothing", "x", UsageError),
        ("deployment.basic.name.deeper", "x", UsageError),
        ("deployment.administrative.registry_authors.7", "x", UsageError),
    ],
)
def test_a_value_that_does_not_fit_the_entry_is_refused_by_its_path(out, path, value, error):
    with pytest.raises(error, match=path.rpartition(".")[2]):
        report(out, "registry", {path: value})


@pytest.mark.slow
def test_without_jsonschema_the_entry_says_that_nobody_validated_it(out, monkeypatch):
    monkeypatch.setattr(registry_entry.importlib.util, "find_spec", lambda name: None)
    assert registry_entry.NO_VALIDATOR in report(out, "registry").notes


@pytest.mark.slow
def test_measurements_without_noise_are_not_in_what_is_meant_for_publication(out):
    # numbers that no other part of the entry has by chance, such as the sampling rate of 1/6 for an accuracy of 1/6
    measured = {"loss": "2.718281", "accuracy": "0.5772156"}
    with (out / storage.METRICS).open() as file:
        rows = [row | measured for row in csv.DictReader(file)]
    with (out / storage.METRICS).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert measured["accuracy"][:6] in report(out).text
    for form in ("registry", "checklist"):
        assert not any(number[:6] in report(out, form).text for number in measured.values())


@pytest.mark.slow
def test_a_checklist_ticks_what_the_statement_answers_and_leaves_the_rest_open(out):
    result = report(out, "checklist")
    ticks = boxes(result.text)
    assert len(ticks) == len(result.data["questions"]) >= 25
    for question in ("How large are eps and delta?", "Which data sets are neighbours?", "Is delta below 1 / records?"):
        assert ticks[question]
    for question in ("What is the unit of privacy?", "What did the choice of hyper-parameters cost?"):
        assert not ticks[question]
    assert ticks["Is the seed of the noise unknown to everyone?"]
    assert all(row["add"] for row in result.data["questions"] if row["state"] == "open")
    assert all(row["answer"] for row in result.data["questions"] if row["state"] == "answered")
    answered = sum(ticks.values())
    assert (
        f"{answered} questions are answered from the privacy statement, {len(ticks) - answered} are open" in result.text
    )


@pytest.mark.slow
def test_a_checklist_opens_what_stands_against_publication(tmp_path):
    text = VARIANTS["seed"].replace("delta: 1e-5", "delta: 0.01")
    out = train(tmp_path, text)
    train(tmp_path, text, fresh=True)
    result = report(out, "checklist").text
    ticks = boxes(result)
    for question in (
        "Is the seed of the noise unknown to everyone?",
        "Is delta below 1 / records?",
        "Which files may be published?",
        "Are there warnings?",
    ):
        assert not ticks[question]
    assert "In this folder: before-1 (3 steps)" in result


@pytest.mark.slow
@pytest.mark.parametrize("form", ["registry", "checklist"])
def test_trainings_without_a_guarantee_have_a_summary_alone(tmp_path, form):
    out = train(tmp_path, RECIPE.replace("{eps: 4, delta: 1e-5}", "none"))
    assert "trained without privacy: no guarantee" in report(out).text
    with pytest.raises(Unsupported, match="had no privacy"):
        report(out, form)


@pytest.mark.slow
def test_a_training_on_reports_has_the_guarantee_of_its_reports(tmp_path):
    noise = "privatize: {mech: local-gauss, radius: 4, eps: 2, delta: 1e-5, seed: 1, public_labels: true}"
    text = RECIPE.replace("limit: 300", f"limit: 300, {noise}").replace("{eps: 4, delta: 1e-5}", "none")
    out = train(tmp_path, text)
    entry = report(out, "registry").data["deployment"]
    assert entry["deployment_model"]["model_name"] == "Local"
    assert entry["privacy_loss"]["privacy_parameters"]["epsilon"] <= 2
    text = report(out, "checklist").text
    assert "local." in text
    # what is computed from reports is post-processing, and privatise draws them with a seed
    assert "trainings on the reports: they are post-processing" in text
    assert "earlier trainings on these records" not in text
    assert "reports of `wpriv privatize` without a seed" in text
    assert "no further cost" in entry["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert "privatised before the training" in report(out).text


@pytest.mark.slow
def test_a_summary_names_numbers_statement_and_files(out):
    result = report(out)
    assert str(result) == result.text
    statement = json.loads((out / storage.STATEMENT).read_text())
    assert result.data["guarantees"] == statement["guarantees"]
    assert result.data["model"] == "fits"
    for words in ("eps = 4 at delta = 1e-5, certified by pld", "model.safetensors fits", "not for publication"):
        assert words in result.text
    publish = next(line for line in result.text.splitlines() if line.startswith("  publish"))
    assert "model.safetensors" in publish
    assert "diagnostics.pt" not in publish


@pytest.mark.slow
@pytest.mark.parametrize("form", ["summary", "registry", "checklist"])
def test_no_report_is_made_of_weights_that_do_not_fit(out, form):
    file = out / storage.WEIGHTS
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckFailed, match=r"model\.safetensors are not those of statement\.json"):
        report(out, form)


@pytest.mark.slow
def test_a_statement_that_lacks_entries_is_refused(out):
    path = out / storage.STATEMENT
    statement = json.loads(path.read_text())
    for key in ("unit", "delta", "guarantees", "data", "recipe"):
        path.write_text(json.dumps({name: value for name, value in statement.items() if name not in (key, "model")}))
        with pytest.raises(UsageError, match="lacks an entry"):
            report(out)
        with pytest.raises(UsageError, match="lacks an entry"):
            report(out, "registry")


COMPARISON = """\
kind: compare
source: "a test"
process: [{mech: gauss, sigma: 4, n: 10}]
delta: 1e-5
sweep: {over: sigma, values: [4, 8]}
accountants: [pld, rdp]
"""


def test_a_comparison_is_summed_up_by_accountant_and_releases_nothing(tmp_path):
    (tmp_path / "c.yaml").write_text(COMPARISON)
    comparison = wpriv.compare(tmp_path / "c.yaml", out=tmp_path / "out")
    result = report(tmp_path / "out")
    assert (result.data["kind"], result.data["recipe"]) == ("comparison", "c")
    assert [(row["accountant"], row["rows"]) for row in result.data["accountants"]] == [("pld", 2), ("rdp", 2)]
    values = [row["epsilon"] for row in comparison.rows if row["accountant"] == "pld"]
    assert result.data["accountants"][0]["epsilon"] == pytest.approx([min(values), max(values)])
    with pytest.raises(Unsupported, match="releases nothing"):
        report(tmp_path / "out", "registry")


@pytest.mark.slow
def test_a_sweep_is_summed_up_and_one_of_its_trainings_is_named(tmp_path):
    (tmp_path / "s.yaml").write_text(RECIPE + "sweep: [{over: optimizer.lr, values: [0.5, 1.0]}]\n")
    from wpriv.cli.main import main

    assert main(["train", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")]) == 0
    result = report(tmp_path / "out")
    assert (result.data["kind"], len(result.data["trainings"])) == ("sweep", 2)
    page = report(tmp_path / "out", "html").text
    assert f"eps = {numbers.text(result.data['together']['epsilon'], up=True)}" in page
    assert "marked below" not in page
    assert "Do not publish this page" in page
    with pytest.raises(Unsupported, match=result.data["trainings"][0]):
        report(tmp_path / "out", "checklist")
    for damage in ("", "{", "[]", '{"together": {"epsilon": 1}, "warnings": []}', '{"together": 3, "warnings": []}'):
        (tmp_path / "out" / storage.STATEMENT).write_text(damage)
        for form in ("summary", "html"):
            with pytest.raises(UsageError, match="is damaged"):
                report(tmp_path / "out", form)


def test_numbers_behind_a_figure_are_rounded_to_the_safe_side():
    row = {"epsilon": 3.0000049, "epsilon_lower": 2.9999999, "delta": 1.00000049e-5, "sigma": 3.0000049}
    page = folder_page.numbers_behind([row])
    assert re.findall(r"<td>([^<]*)</td>", page) == ["3.00001", "2.99999", "1.00001e-5", "3"]


def test_folders_without_results_and_unknown_forms_are_refused(tmp_path):
    with pytest.raises(MissingResource, match="holds no results"):
        report(tmp_path)
    (tmp_path / storage.LEDGER).touch()
    with pytest.raises(UsageError, match="--resume"):
        report(tmp_path)
    with pytest.raises(MissingResource, match="no folder"):
        report(tmp_path / "nothing")
    with pytest.raises(UnknownName, match="checklist"):
        report(tmp_path, "cheklist")
