"""``privacy: {noise: exact}``: tasks that sum clipped records train with it and state it; all others refuse it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import torch
import yaml

from tests.papers.tasks import test_adapt as adaptation
from tests.papers.tasks import test_generation as generation
from tests.papers.tasks.test_adapt import root  # noqa: F401
from tests.papers.tasks.test_generation import bars  # noqa: F401
from wpriv.accounting import load_recipe
from wpriv.cli.main import main
from wpriv.config import recipe_files
from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.files import checkpoint
from wpriv.papers.tasks import merf
from wpriv.training import tasks, train
from wpriv.training.engine import job, loop
from wpriv.training.noise.release import add_noise, exact_form
from wpriv.training.tasks import TaskSpec

SUMS = {"classify", "cgan", "merf", "next-token"}
CLASSIFY = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 60}
model: {name: mlp, width: 5, depth: 1, activation: tanh}
privacy: {sigma: 1.5, delta: 1e-3, clip: 0.3, noise: exact}
optimizer: {name: sgd, lr: 0.5}
batch: 20
steps: 6
seed: 4
"""


@pytest.fixture
def releases(monkeypatch) -> list:
    """Every sum that a training releases, with what comes of it, and whether that was asked to be exact."""
    seen: list = []

    def watched(total, sigma, noise=None, *, private=True, exact=False):
        parts = add_noise(total, sigma, noise, private=private, exact=exact)
        seen.append((total, sigma, exact, [part.clone() for part in parts]))  # the engine divides them in place
        return parts

    for module in (job, loop):
        monkeypatch.setattr(module, "add_noise", watched)
    return seen


def flat(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.double().reshape(-1) for part in parts])


def held(done, releases: list) -> None:
    """Each release is exact, lies on the grid of its noise, and has noise within what the statement says."""
    assert releases
    statement = done.statement["noise"]
    assert statement["form"] == "exact"
    for total, sigma, exact, parts in releases:
        assert exact
        grid, deviation = exact_form(total, sigma, sum(part.numel() for part in parts))
        multiples = flat(parts) / grid
        assert torch.equal(multiples, multiples.round())
        assert {part.dtype for part in parts} == {torch.float32}
        assert statement["standard_deviation"] <= deviation <= statement["standard_deviation_at_most"]


def trained(folder: Path, text: str, form: str = "exact", **how):
    path = folder / f"{form}.yaml"
    path.write_text(text)
    return train.train(path, out=folder / form, set={"privacy.noise": form}, **how)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_a_classifier_trains_with_exact_noise_and_the_statement_covers_floating_point(tmp_path, releases, sampling):
    done = trained(tmp_path, CLASSIFY.replace("noise: exact", f"noise: exact, sampling: {sampling}"))
    assert len(releases) == 6
    held(done, releases)
    lines = {
        key: [line for line in done.statement[key] if line.startswith("floating point")]
        for key in ("covered", "not_assessed")
    }
    assert [len(lines["covered"]), len(lines["not_assessed"])] == [1, 0]
    assert "Mironov 2012" in lines["covered"][0]
    assert done.statement["noise"]["clipped_by"] == "loop"
    assert lines["covered"][0] in (tmp_path / "exact" / "statement.md").read_text()


@pytest.mark.slow
def test_the_statement_of_rounded_noise_says_what_it_stops_and_what_it_does_not(tmp_path):
    done = trained(tmp_path, CLASSIFY, "rounded")
    assert done.statement["noise"]["form"] == "rounded"
    assert "standard_deviation_at_most" not in done.statement["noise"]
    [line] = [line for line in done.statement["not_assessed"] if line.startswith("floating point")]
    assert "noise: exact" in line
    assert not any(line.startswith("floating point") for line in done.statement["covered"])


@pytest.mark.slow
def test_a_fixed_seed_trains_the_same_model_with_exact_noise_and_nearly_the_same_with_rounded(tmp_path):
    models = []
    for folder, form in (("a", "exact"), ("b", "exact"), ("c", "rounded")):
        (tmp_path / folder).mkdir()
        trained(tmp_path / folder, CLASSIFY, form)
        models.append(flat(list(checkpoint.load(tmp_path / folder / form / "model.pt")["weights"].values())))
    assert torch.equal(models[0], models[1])
    torch.testing.assert_close(models[2], models[0], rtol=0, atol=1e-3)


def test_a_recipe_says_nothing_of_noise_where_it_takes_the_default(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(CLASSIFY)
    assert train.recipe_of(path).data["privacy"]["noise"] == "exact"
    assert "noise" not in train.recipe_of(path, changes={"privacy.noise": "rounded"}).data["privacy"]


@pytest.mark.slow
def test_a_conditional_gan_trains_with_exact_noise(bars, tmp_path, releases):  # noqa: F811
    done = trained(tmp_path, generation.CGAN.format(root=bars, privacy="{eps: 5, delta: 1e-5}"))
    assert len(releases) == 4
    held(done, releases)


@pytest.mark.slow
def test_mean_embeddings_are_released_once_with_exact_noise_on_the_same_embedding(bars, tmp_path, releases):  # noqa: F811
    text = generation.MERF.format(root=bars, moves=2, privacy="{eps: 10, delta: 1e-5, sampling: none}")
    done = trained(tmp_path, text)
    assert len(releases) == 1
    held(done, releases)
    trained(tmp_path, text, "rounded")
    sums = [flat(total.parts) for total, *_ in releases]
    torch.testing.assert_close(*sums, rtol=0, atol=1e-4)


def test_a_replaced_record_moves_the_exact_embedding_by_its_features_alone():
    # oracle: whole numbers of Python
    random = torch.Generator().manual_seed(0)
    x, y = torch.rand(7, 1, 28, 28, generator=random), torch.tensor([0, 1, 2, 0, 1, 2, 3])
    frequencies = torch.randn(784, 50, generator=random) / 10
    options = merf.Options.model_validate({"features": 100, "generated": 20})
    one = merf._exact_sum(x, y, frequencies, options)
    x, y = x.clone(), y.clone()
    x[2], y[2] = torch.rand(1, 28, 28, generator=random), 5
    other = merf._exact_sum(x, y, frequencies, options)
    moved = (one.parts[0] - other.parts[0]) / one.grid
    assert {int(column) for column in moved.abs().sum(dim=0).nonzero()} == {2, 5}
    squares = sum(int(number) ** 2 for number in moved.reshape(-1).tolist())
    assert squares <= (Fraction(one.sensitivity) / Fraction(one.grid)) ** 2


@pytest.mark.slow
def test_adaptation_by_clipped_gradients_trains_with_exact_noise(root, releases):  # noqa: F811
    recipe = adaptation.recipe("dp-dann")
    recipe["privacy"] = {**recipe["privacy"], "noise": "exact"}
    (root / "exact.yaml").write_text(yaml.safe_dump(recipe))
    done = train.train(root / "exact.yaml", out=root / "out", data_root=root)
    assert len(releases) == recipe["steps"]
    held(done, releases)


def private() -> dict[str, str]:
    """The shipped trainings with privacy, by name, and their tasks."""
    names = {}
    for name, path in recipe_files.shipped().items():
        made = load_recipe.read(path)
        if made.training is not None and made.training.privacy is not None:
            names[name] = made.training.task
    return names


@pytest.mark.slow
def test_every_private_task_that_ships_takes_exact_noise_or_refuses_it_by_name():
    seen: dict[bool, set[str]] = {True: set(), False: set()}
    for name, task in private().items():
        made = load_recipe.read(recipe_files.shipped()[name])
        mean = made.training.privacy.clip == "batch-mean"
        wanted = task in SUMS and not mean
        if task == "adapt":
            options = made.training.options
            wanted = options["method"] == "dp-dann" and options.get("variant", "sound") == "sound"
        if wanted:
            assert train.recipe_of(name, changes={"privacy.noise": "exact"}).training.privacy.exact
        else:
            with pytest.raises(UsageError) as refusal:
                train.recipe_of(name, changes={"privacy.noise": "exact"})
            assert ("batch-mean" if mean else task) in str(refusal.value)
        seen[wanted].add(task)
    assert seen[True] >= SUMS
    assert seen[False] >= {"fair", "represent", "match", "autoencode", "swd-generate"}


@pytest.mark.parametrize(
    "setting", ["privacy.clip=batch-mean", "privacy.method=ghost", "privacy.method=vmap", "privacy.noise=float"]
)
def test_exact_noise_that_cannot_be_is_a_fault_of_the_recipe(tmp_path, setting, capsys):
    path = tmp_path / "toy.yaml"
    path.write_text(CLASSIFY)
    assert main(["train", str(path), "--set", setting, "--dry-run", "--out", str(tmp_path / "out")]) == 2
    assert "exact" in capsys.readouterr().err


@pytest.mark.slow
def test_a_fork_goes_from_rounded_to_exact_noise_and_both_are_paid_for(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(CLASSIFY)
    train.train(path, out=tmp_path / "out", set={"privacy.noise": "rounded"})
    done = train.train(path, out=tmp_path / "out", fork=True)
    assert done.statement["steps"] == 12
    assert done.statement["noise"]["form"] == "exact"
    assert any("runs before this one" in line for line in done.statement["not_assessed"])


def test_every_task_that_knows_of_exact_noise_decides_it_from_the_recipe():
    default = TaskSpec.supports_exact_noise
    known = {name for name in registry.names("tasks") if tasks.load(name).supports_exact_noise is not default}
    assert known == {*SUMS, "adapt", "fit"}
