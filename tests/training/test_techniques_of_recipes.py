"""Recipes with augmentation, averages, automatic and adaptive clipping: their files, statements and refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import wpriv
from wpriv.cli.main import main
from wpriv.config import recipe as recipes
from wpriv.config import recipe_files, resolve, yaml_document
from wpriv.config.document import Document
from wpriv.errors import Unsupported, UsageError
from wpriv.training import plan, train
from wpriv.training.audit import audited_training
from wpriv.training.reports import model_check

BASE = {
    "kind": "train",
    "source": "a test",
    "task": "classify",
    "data": {"name": "digits", "records": 1438, "first": 200},
    "model": {"name": "logistic"},
    "privacy": {"sigma": 1.0, "delta": 1e-5},
    "optimizer": {"name": "sgd", "lr": 0.5},
    "batch": 50,
    "epochs": 1,
    "seed": 0,
}


def recipe(**changes: object) -> recipes.Recipe:
    return recipes.check(Document("a.yaml", [], {**BASE, **changes}))


def trained(tmp_path, **changes: object) -> train.Trained:
    return train.run(recipe(**changes), tmp_path / "out")


@pytest.fixture(scope="module")
def not_private(tmp_path_factory):
    """The folder of a training without privacy."""
    return train.run(recipe(privacy="none"), tmp_path_factory.mktemp("none") / "out").out


@pytest.mark.slow
def test_the_average_is_measured_released_and_named_in_the_statement(tmp_path):
    result = trained(tmp_path, average={"decay": 0.7}, augment={"copies": 2, "shift": 1})
    assert 0 <= result.metrics[-1]["average_accuracy"] <= 1
    statement = json.loads((result.out / "statement.json").read_text())
    assert (statement["average"]["file"], statement["average"]["decay"]) == ("model-average.safetensors", 0.7)
    assert "model-average.safetensors" in [entry["file"] for entry in statement["publish"]]
    assert any("averaged weights" in line for line in statement["covered"])
    assert any("copies of a record" in line for line in statement["covered"])
    assert "mean over 2 randomly changed copies" in (result.out / "statement.md").read_text()
    assert "model-average.safetensors" in model_check.check(result.out, thorough=True).words
    # another weight in the file of the average is detected
    path = result.out / "model-average.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert model_check.check(result.out).verdict == model_check.DIFFERS
    path.unlink()
    stored = torch.load(result.out / "model.pt", weights_only=True)
    stored["average"] = stored["weights"]
    torch.save(stored, result.out / "model.pt")
    assert "averaged weights in model.pt" in model_check.check(result.out, thorough=True).words


@pytest.mark.slow
def test_a_fork_moves_the_average_of_the_run_before_aside(tmp_path):
    first = trained(tmp_path, average={"decay": 0.7})
    train.run(recipe(epochs=2), first.out, fork=True)
    assert not (first.out / "model-average.safetensors").exists()
    assert (first.out / "before-1" / "model-average.safetensors").exists()


@pytest.mark.slow
def test_the_statement_of_automatic_clipping_says_the_formula_and_the_bound(tmp_path):
    result = trained(tmp_path, privacy={"sigma": 1.0, "delta": 1e-5, "clip": "automatic", "stability": 0.5})
    noise = result.statement["noise"]
    assert (noise["rule"], noise["stability"], noise["clip"], noise["sensitivity"]) == ("automatic", 0.5, 1.0, 1.0)
    assert "g becomes g / (|g| + 0.5), of an l2 norm below 1" in (result.out / "statement.md").read_text()
    assert result.metrics[-1].get("clipped") is None


@pytest.mark.slow
def test_an_adaptive_norm_costs_the_eps_of_its_multiplier_and_the_statement_divides_the_noise(tmp_path):
    private = {"sigma": 1.0, "delta": 1e-5, "clip": 0.1, "adapt": {"count_noise": 4.0}}
    result = trained(tmp_path, privacy=private)
    fixed = plan.plan(recipe(), {"records": 200})
    assert result.guarantee.epsilon.safe == fixed.eps()
    noise = result.statement["noise"]
    # Andrew et al. (2021), Theorem 1: (1 - (2 x 4)^-2)^(-1/2)
    assert noise["gradient_multiplier"] == pytest.approx((1 - 1 / 64) ** -0.5, rel=1e-12)
    # of the first step, whose norm is 0.1
    assert noise["standard_deviation"] == pytest.approx(0.1 * (1 - 1 / 64) ** -0.5, rel=1e-12)
    assert "follows the quantile 0.5" in (result.out / "statement.md").read_text()
    assert result.metrics[-1]["clip_norm"] != 0.1


def test_sampling_of_fixed_size_has_the_count_noise_of_replaced_records():
    private = {"sigma": 1.0, "delta": 1e-5, "sampling": "fixed", "adapt": {"count_noise": 0.9}}
    with pytest.raises(UsageError, match="count_noise must be above 1 "):
        plan.plan(recipe(privacy=private), {"records": 200})
    private["sampling"] = "poisson"
    assert plan.plan(recipe(privacy=private), {"records": 200}).adjacency == "add-remove"


def test_an_audit_refuses_an_adaptive_norm():
    private = {"sigma": 1.0, "delta": 1e-5, "adapt": {"count_noise": 4.0}}
    with pytest.raises(Unsupported, match="adapt"):
        audited_training.require_auditable(plan.plan(recipe(privacy=private), {"records": 200}))


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [{"clip": "automatic"}, {"clip": 0.5, "sampling": "fixed"}])
def test_canaries_are_audited_beside_copies_and_automatic_clipping(privacy):
    job = plan.plan(recipe(privacy={**BASE["privacy"], **privacy}, augment={"copies": 2, "shift": 1}), {"records": 200})
    from wpriv.training import train_data

    outcome = audited_training.train(
        job, train_data.data(job.recipe, None), canaries=20, fewer=True, run=1, seed=0, device="cpu"
    )
    assert outcome is not None


FAULTS = [
    ({"augment": {"copies": 0, "shift": 1}}, "copies", "found 0"),
    ({"augment": {"copies": 4, "shift": 1, "fill": "noise"}}, "fill", "reflect"),
    ({"average": {"decay": 1.0}}, "decay", "less than 1"),
    ({"privacy": {**BASE["privacy"], "clip": "auto"}}, "clip", "automatic"),
    ({"privacy": {**BASE["privacy"], "stability": 0.1}}, "stability", "automatic"),
    ({"privacy": {**BASE["privacy"], "clip": "automatic", "adapt": {}}}, "adapt", "number"),
    ({"privacy": {**BASE["privacy"], "clip": 5, "adapt": {"largest": 2}}}, "clip", "between"),
    ({"privacy": {**BASE["privacy"], "adapt": {"smallest": 2, "largest": 1}}}, "adapt", "below largest"),
    ({"privacy": {**BASE["privacy"], "adapt": {}, "noise": "exact"}}, "noise", "grid"),
    ({"privacy": {**BASE["privacy"], "adapt": {}}, "accountants": ["pld", "bdp"]}, "accountants", "bdp"),
]


@pytest.mark.parametrize(("changes", "key", "words"), FAULTS)
def test_keys_that_do_not_fit_are_refused_by_name(changes, key, words):
    with pytest.raises(UsageError) as error:
        recipe(**changes)
    assert key in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("augment", {"copies": 2, "shift": 1}), ("average", {}), ("clip", "automatic"), ("adapt", {})],
)
def test_a_task_of_another_kind_refuses_each_technique(key, value):
    data = yaml_document.read(recipe_files.find("dpswd/table2-mnist-merf")).data
    if key in ("clip", "adapt"):
        data["privacy"] = {**data["privacy"], key: value}
    else:
        data[key] = value
    with pytest.raises(UsageError, match=rf"{key}.*such as classify or fit"):
        recipes.check(Document("a.yaml", [], data))


@pytest.mark.parametrize("changes", [{"person": "ids"}, {"data": {"name": "digits", "max_per_person": 3}}])
def test_persons_in_a_recipe_are_refused_with_the_two_ways_to_protect_them(changes):
    with pytest.raises(UsageError, match=r"given in Python, wpriv\.train.* in a recipe privacy\.group protects"):
        recipe(**changes)


def test_early_stopping_in_a_recipe_is_of_one_training_and_of_tasks_that_train_one_network():
    assert recipe(early_stop={"records": "public"}).train.early_stop.patience == 3
    private = {"early_stop": {"records": "private", "eps": 1}}
    with pytest.raises(UsageError, match="counted for one training"):
        recipe(**private, seeds=2)


def test_recipes_without_techniques_are_the_same_runs_as_before_there_were_any():
    written = resolve.written_out(recipe().training)
    assert not {"augment", "average", "early_stop", "init", "freeze", "lora"} & written.keys()
    assert not {"stability", "adapt"} & written["privacy"].keys()
    assert "warmup" not in written["optimizer"]


def test_records_that_are_no_images_refuse_copies(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 6)), rng.integers(0, 2, 40)
    with pytest.raises(UsageError, match="copies are changed as images"):
        wpriv.train(
            nn.Linear(6, 2),
            (x, y),
            sigma=1.0,
            delta=1e-3,
            batch=8,
            steps=2,
            lr=0.1,
            out=tmp_path / "a",
            augment={"copies": 2, "shift": 1},
        )


@pytest.mark.slow
def test_a_network_of_ones_own_is_trained_with_every_technique_from_python(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 1, 6, 6)).astype("float32"), rng.integers(0, 2, 60)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    result = wpriv.train(
        network,
        (x, y),
        sigma=1.0,
        delta=1e-3,
        batch=16,
        steps=4,
        optimizer={"name": "adamw", "lr": 0.01, "warmup": 2, "decay": "cosine"},
        clip="automatic",
        augment={"copies": 3, "flip": "both", "shift": 1, "fill": "reflect"},
        average={"decay": 0.5},
        seed=0,
        out=tmp_path / "a",
        progress=False,
    )
    assert result.statement["noise"]["clipped_by"] == "ghost"
    stored = torch.load(result.out / "model.pt", weights_only=True)
    assert torch.equal(result.averaged[0].weight, stored["average"]["0.weight"])
    assert torch.equal(result.model[0].weight, stored["weights"]["0.weight"])
    assert not torch.equal(result.model[0].weight, result.averaged[0].weight)


def test_the_command_line_names_the_key_and_prints_no_figure(tmp_path, capsys):
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump({**BASE, "augment": {"copies": 2, "shift": 9}}))
    assert main(["train", str(path), "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert "augment: shift must be below the 8" in printed.err
    assert printed.out == ""


@pytest.mark.slow
def test_a_recipe_begins_from_a_file_freezes_and_adapts_and_says_that_the_first_weights_are_public(tmp_path):
    torch.manual_seed(1)
    path = tmp_path / "w.pt"
    first = {"1.weight": torch.randn(32, 64), "1.bias": torch.randn(32)}
    torch.save(first | {"3.weight": torch.randn(10, 32), "3.bias": torch.randn(10)}, path)
    changes = {
        "model": {"name": "mlp", "width": 32, "depth": 1},
        "init": str(path),
        "lora": {"rank": 2, "layers": ["3"]},
        "freeze": ["1.*"],
    }
    result = train.run(recipe(**changes), tmp_path / "out")
    stored = torch.load(result.out / "model.pt", weights_only=True)["weights"]
    assert torch.equal(stored["1.weight"], first["1.weight"])
    assert stored["3.lora_B.weight"].any()
    assert any("taken as public" in line and "w.pt" in line for line in result.statement["not_covered"])


@pytest.mark.slow
@pytest.mark.parametrize("file", ["model.pt", "model.safetensors"])
def test_weights_of_a_training_without_privacy_begin_a_private_one_only_where_they_are_declared_public(
    not_private, tmp_path, capsys, file
):
    begun = {**BASE, "init": str(not_private / file)}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(begun))
    assert main(["train", str(tmp_path / "a.yaml"), "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert "were trained without privacy" in printed.err
    assert f"init: {{file: {not_private / file}, records: public}}" in printed.err
    assert not (tmp_path / "out" / "model.pt").exists()
    result = train.run(recipe(init={"file": str(not_private / file), "records": "public"}), tmp_path / "public")
    assert any(line.endswith("the recipe declares those records public") for line in result.statement["not_covered"])


@pytest.mark.slow
def test_a_network_of_ones_own_is_adapted_in_place_and_loaded_again(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 8)).astype("float32"), rng.integers(0, 2, 60)
    options = {"sigma": 1.0, "delta": 1e-3, "batch": 16, "steps": 3, "lr": 0.5, "seed": 0, "progress": False}

    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))

    own = network()
    result = wpriv.train(own, (x, y), lora={"rank": 1, "layers": ["2"]}, freeze="0.*", out=tmp_path / "a", **options)
    assert torch.equal(own[0].weight, network()[0].weight)
    assert torch.equal(own[2].base.weight, network()[2].weight)
    assert any("calling program gave" in line for line in result.statement["not_covered"])
    again = wpriv.train(
        network(), (x, y), lora={"rank": 1, "layers": ["2"]}, freeze="0.*", out=tmp_path / "a", **options
    )
    assert torch.equal(again.model[2].lora_B.weight, own[2].lora_B.weight)
    with pytest.raises(UsageError, match="freeze: no parameters fit 'x'"):
        wpriv.train(network(), (x, y), freeze="x", out=tmp_path / "b", **options)
    with pytest.raises(UsageError, match="leaves no parameter"):
        wpriv.train(network(), (x, y), freeze="*", out=tmp_path / "b", **options)
