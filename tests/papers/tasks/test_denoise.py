"""The task denoise: noise that was put on before is taken away, and a run says what it promises and what went wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from scipy.fft import dctn
from scipy.stats import norm

import wpriv
from wpriv.config import resolve
from wpriv.config.document import Document
from wpriv.config.recipe import check
from wpriv.config.train_schema import Optimizer
from wpriv.errors import Interrupted, Unsupported, UsageError
from wpriv.files import checkpoint
from wpriv.papers.tasks import denoise
from wpriv.training import data, progress
from wpriv.training.data import RecordNoise
from wpriv.transport.sinkhorn import entropic

RECIPE = {
    "kind": "train",
    "source": "a test",
    "task": "denoise",
    "data": {
        "name": "toy",
        "points": 300,
        "tests": 40,
        "privatize": {"mech": "local-gauss", "sigma": 1, "delta": 1e-3, "radius": 5},
    },
    "model": {"name": "mlp-generator", "depth": 0},
    "options": {"compared": 40},
    "privacy": "none",
    "optimizer": {"name": "adam", "lr": 0.05},
    "batch": 100,
    "steps": 6,
    "seed": 0,
}


def made(**changes):
    """The checked recipe with keys changed by their paths, dots written as two underscores."""
    recipe = RECIPE
    for key, value in changes.items():
        recipe = resolve.overridden(recipe, key.replace("__", "."), value)
    return check(Document("toy", [], recipe))


def job_of(recipe, found):
    torch.manual_seed(0)
    return denoise.build_job(recipe.training, found, torch.device("cpu"), adjacency="")


def noisy(y, noise, scale):
    """A data set of points as they are, which are said to have noise on them."""
    y, none = np.asarray(y, np.float32), np.zeros(len(y), np.int64)
    return data.Data(
        "test",
        y,
        none,
        y[:40],
        none[:40],
        ("0",),
        "numpy",
        noise=RecordNoise(2 if noise == "gauss" else 1, scale, "as read", {}),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "options", "variance"),
    [
        ("gauss", {}, 1.0),  # Theorem 1: lambda = 2 sigma^2 leaves the variance of the data
        ("gauss", {"lam": 1.0}, 1.5),  # closed form, s^2 + sigma^2 - lambda / 2
        ("gauss", {"loss": "plain"}, 2.0),  # the variance of the noisy records
        ("gauss", {"loss": "sinkhorn-divergence"}, 2.0),  # smallest where both distributions are the same
        ("laplace", {}, 1.0),  # lambda = b
    ],
)
def test_an_affine_generator_learns_the_variance_that_theory_says(noise, options, variance):
    # quantiles in place of samples on both sides: the result is not random
    scale, z = (1.0 if noise == "gauss" else 0.7), norm.ppf((np.arange(200) + 0.5) / 200)
    if noise == "gauss":
        y = math.sqrt(2) * z
    else:
        y = np.quantile(
            np.random.default_rng(0).normal(size=10**6) + np.random.default_rng(1).laplace(0, scale, 10**6), norm.cdf(z)
        )
    recipe = made(options={"latent": "gauss", "compared": 40, "tol": 1e-4, **options}, model__latent=1)
    recipe = dataclasses.replace(
        recipe, training=recipe.training.model_copy(update={"optimizer": Optimizer(name="sgd", lr=0.4)})
    )
    job = job_of(recipe, noisy(y[:, None], noise, scale))
    job.model.draw_latents = lambda count, device: torch.tensor(z, dtype=torch.float32)[:, None]
    for _ in range(40):
        job.custom_step(np.arange(200), None)
    # 200 quantiles lack the tails
    assert job.evaluate()["variance"] == pytest.approx(variance, rel=0.03)


def test_the_gradient_is_that_of_the_cost_with_the_plan_held_fixed():
    y = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 2)))
    model = job_of(made(options={"tol": 1e-5, "most": 5000}), noisy(y, "gauss", 1.0)).model.double()
    model.draw_latents = lambda count, device: torch.randn(count, 2, dtype=torch.float64)
    weight = model.generator[0].weight

    def loss():
        torch.manual_seed(3)
        return model.loss(y)

    (found,) = torch.autograd.grad(loss(), weight)
    with torch.no_grad():
        weight[0, 1] += 1e-4
        up = loss()
        weight[0, 1] -= 2e-4
        difference = float(up - loss()) / 2e-4  # central difference of the value
    assert float(found[0, 1]) == pytest.approx(difference, rel=1e-3)


@pytest.mark.slow
def test_a_run_carries_the_promise_of_its_records_and_leaves_what_it_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(json.dumps(RECIPE))
    done = wpriv.train("toy.yaml", out="out")
    statement, text = done.statement, (tmp_path / "out" / "statement.md").read_text()
    assert not statement["private"]
    assert (
        statement["reports"]["guarantees"][0]["epsilon"]
        == wpriv.budget("local-gauss", sigma=1, radius=5, delta=1e-3).epsilon.safe
    )
    assert "post-processing" in statement["promise"]
    assert statement["promise"] in text
    assert any("test records" in line for line in statement["not_covered"])
    assert any("seed is fixed" in line for line in statement["warnings"])
    left = {path.name for path in done.files}
    assert {"generated.npz", "samples.npz", "samples.png"} <= left
    assert np.load("out/generated.npz")["x"].shape == (40, 2)
    assert sorted(np.load("out/samples.npz").files) == ["samples", "target"]
    assert all(0 <= row["unconverged"] <= 1 and row["w2"] > 0 for row in done.metrics)


@pytest.mark.slow
def test_a_file_of_reports_is_trained_on_with_or_without_records_to_compare_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wpriv.privatize("toy", "local-laplace", radius=4, eps=30, points=200, tests=50, out="reports.npz")
    recipe = {**RECIPE, "data": {"name": "privatized", "file": str(tmp_path / "reports.npz")}}
    (tmp_path / "toy.yaml").write_text(json.dumps(recipe))
    blind = wpriv.train("toy.yaml", out="blind")
    assert "w2" not in blind.metrics[-1]
    assert blind.statement["reports"] == json.loads((tmp_path / "reports.statement.json").read_text())
    assert blind.statement["promise"].startswith("eps = 30 at delta = 0 (pure DP)")
    assert not any("seed is fixed" in line for line in blind.statement["warnings"][:1])
    seeing = wpriv.train("toy.yaml", out="seeing", set={"data.test": "toy"})
    assert seeing.metrics[-1]["w2"] > 0


@pytest.mark.slow
def test_a_training_on_records_clamped_to_their_own_quantiles_promises_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noise = {"mech": "local-laplace", "eps": 30, "quantile": 0.8, "quantile_from": "private"}
    recipe = {**RECIPE, "data": {**RECIPE["data"], "privatize": noise}, "steps": 2}
    (tmp_path / "toy.yaml").write_text(json.dumps(recipe))
    statement = wpriv.train("toy.yaml", out="out").statement
    assert statement["promise"].startswith("NO guarantee")
    assert {entry["publish"] for entry in statement["publish"]} == {"no"}
    with pytest.raises(Unsupported, match=r"reports .* have none"):
        wpriv.report("out", "registry")


@pytest.mark.slow
def test_plans_that_do_not_converge_give_a_warning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(
        json.dumps({**RECIPE, "options": {**RECIPE["options"], "most": 1, "lam": 0.05, "tol": 1e-4}})
    )
    done = wpriv.train("toy.yaml", out="out")
    assert any(row["unconverged"] > 0 for row in done.metrics)
    assert any("plans did not converge in" in line for line in done.statement["warnings"])
    assert np.isfinite([row["loss"] for row in done.metrics]).all()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_also_where_it_was_cut_short(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(json.dumps({**RECIPE, "options": {**RECIPE["options"], "rise": 5}}))
    whole = wpriv.train("toy.yaml", out="whole")
    stop = iter([None, None, "a test"])
    monkeypatch.setattr(progress, "signals", lambda given: contextlib.nullcontext(lambda: next(stop, None)))
    with pytest.raises(Interrupted):
        wpriv.train("toy.yaml", out="cut")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    cut = wpriv.train("toy.yaml", out="cut", resume=True)
    assert [{**row, "seconds": 0} for row in cut.metrics] == [{**row, "seconds": 0} for row in whole.metrics]
    one, other = (checkpoint.load(tmp_path / name / "model.pt")["weights"] for name in ("whole", "cut"))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_in_the_cosine_domain_images_are_met_where_their_noise_lies():
    images = np.random.default_rng(0).random((60, 1, 4, 4)).astype(np.float32)
    found = data.Data(
        "test",
        images,
        np.zeros(60, np.int64),
        images,
        np.zeros(60, np.int64),
        ("0",),
        "x",
        noise=RecordNoise(1, 2.0, "dct", {}),
    )
    job = job_of(made(model={"name": "mlp-generator", "depth": 1, "width": 4, "latent": 2}), found)
    torch.manual_seed(1)
    value = job.model.loss(torch.from_numpy(images))
    torch.manual_seed(1)
    x = job.model.generator(job.model.draw_latents(60, torch.device("cpu"))).detach()
    # scipy's transform of what was generated
    coefficients = torch.from_numpy(dctn(x.numpy(), axes=(-2, -1), norm="ortho")).flatten(1)
    expected = entropic(coefficients, torch.from_numpy(images).flatten(1), 2.0, 1, tol=1e-3).value
    assert float(value.detach()) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": {"eps": 1, "delta": 1e-5}}, "privacy: none"),
        ({"options": {"loss": "plain", "lam": 1.0}}, "leave out lam"),
        ({"options": {"lam": "corollary-2"}}, "lam: .*theorem"),
        ({"options": {"most": 0}}, "most"),
        ({"data__privatize": {"mech": "local-gaus"}}, "mech"),
        ({"data__privatize": {"radios": 1}}, "did you mean 'radius'"),
    ],
)
def test_conflicting_keys_of_a_recipe_are_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        made(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"name": "mlp", "depth": 1}}, "mlp.*dcgan-28"),
        ({"options": {"p": 1}}, "noise of order 2"),
        ({"options": {"lam": "corollary-1"}}, "corollary-1"),
    ],
)
def test_options_that_do_not_fit_the_data_are_refused_before_training(changes, message):
    with pytest.raises(UsageError, match=message):
        job_of(made(**changes), noisy(np.zeros((50, 1)), "gauss", 1.0))


def test_data_whose_noise_is_not_known_need_a_lambda():
    clear = dataclasses.replace(noisy(np.zeros((50, 1)), "gauss", 1.0), noise=None)
    with pytest.raises(UsageError, match="lam"):
        job_of(made(), clear)
    assert denoise.transport_problem(denoise.Options(lam=3.0), None) == (2, 3.0)
    # as printed in the paper; theory gives 4
    assert denoise.transport_problem(denoise.Options(lam="corollary-1"), RecordNoise(1, 4.0, "as read", {})) == (
        1,
        0.25,
    )
    assert denoise.transport_problem(denoise.Options(), RecordNoise(1, 4.0, "as read", {})) == (1, 4.0)
