"""Recipes of kind train: what a quick run and a changed key leave of the recipe."""

from __future__ import annotations

from wpriv.config import recipe, resolve, yaml_document

RECIPE = """\
kind: train
source: "a test"
task: classify
data: {name: digits}
model: {name: mlp, width: 16}
privacy: none
optimizer: {name: sgd, lr: 1.0}
batch: 50
epochs: 3
sweep:
  over: width
  settings:
    narrow: {model.width: 4}
    wide: {model.width: 32}
    wider: {model.width: 64}
quick: {epochs: 1, sweep: {over: width, settings: {narrow: {model.width: 4}}}}
"""


def axis(found):
    (only,) = found["sweep"]
    return only


def test_a_quick_sweep_given_as_a_mapping_replaces_the_whole_sweep():
    quick = recipe.check(yaml_document.parse(RECIPE, "r.yaml"), quick=True)
    assert list(axis(quick.data)["settings"]) == ["narrow"]
    assert len(quick.training.sweep[0].points()) == 1


def test_a_quick_sweep_may_be_of_the_other_kind():
    text = RECIPE.replace(
        "sweep: {over: width, settings: {narrow: {model.width: 4}}}", "sweep: {over: model.width, values: [4]}"
    )
    assert axis(recipe.check(yaml_document.parse(text, "r.yaml"), quick=True).data)["values"] == [4]


def test_other_mappings_of_a_quick_run_are_merged():
    text = RECIPE.replace("quick: {epochs: 1", "quick: {model: {depth: 1}, epochs: 1")
    assert recipe.check(yaml_document.parse(text, "r.yaml"), quick=True).data["model"] == {
        "name": "mlp",
        "width": 16,
        "depth": 1,
    }


def test_null_removes_an_optional_key_of_a_model_and_of_a_data_set_too():
    data = recipe.check(yaml_document.parse(RECIPE, "r.yaml")).data
    for path, key in (("model.width", "model"), ("data.limit", "data"), ("optimizer.momentum", "optimizer")):
        assert path.partition(".")[2] not in resolve.overridden(data, path, None)[key]
