"""The task wgan: losses against their formulas, toys of known distribution, privatised records, exact resuming."""

from __future__ import annotations

import builtins
import json
import struct

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import wpriv
from wpriv.accounting import load_recipe
from wpriv.config.field_types import PluginRef
from wpriv.errors import Interrupted, MissingResource, UsageError
from wpriv.files import checkpoint
from wpriv.papers.tasks import _wgan_critic
from wpriv.training import train

TOY = {
    "kind": "train",
    "source": "a test",
    "task": "wgan",
    "data": {"name": "toy", "law": "gauss", "d": 1, "points": 2000, "tests": 500, "spread": 0.5},
    "model": {"name": "mlp-generator", "latent": 1, "depth": 0},
    "options": {"critic": {"name": "mlp", "width": 32, "depth": 2}, "compared": 100, "critic_steps": 3, "penalty": 0.1},
    "privacy": "none",
    "optimizer": {"name": "adam", "lr": 0.02, "betas": [0.0, 0.9], "decay": "linear"},
    "batch": 200,
    "steps": 10,
    "seed": 0,
}
IMAGES = {
    **TOY,
    "data": {"name": "mnist", "verify": False},
    "model": {"name": "dcgan-28", "latent": 3, "width": 2},
    "options": {"critic": {"name": "critic-28", "width": 2}, "compared": 40},
    "batch": 20,
    "steps": 6,
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bars(tmp_path / "mnist")

    def go(recipe, out="out", **changes):
        (tmp_path / "made.yaml").write_text(yaml.safe_dump(recipe))
        named = {key.replace("__", "."): value for key, value in changes.items()}
        return wpriv.train("made.yaml", out=tmp_path / out, set=named, data_root=tmp_path)

    return go


def bars(folder):
    """Images of a bright bar in one of ten places, which is the class, in the format of MNIST."""
    folder.mkdir()
    for part, n in (("train", 100), ("t10k", 40)):
        y = (np.arange(n) * 7 % 10).astype(np.uint8)
        x = np.zeros((n, 28, 28), np.uint8)
        x[np.arange(n), 2 * y + 2] = x[np.arange(n), 2 * y + 3] = 255
        for name, array in ((f"{part}-images-idx3-ubyte", x), (f"{part}-labels-idx1-ubyte", y)):
            head = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
            (folder / name).write_bytes(head + array.tobytes())


class Line(nn.Module):
    """A critic that is linear in all it sees: its slope is the same everywhere."""

    def __init__(self, slope: torch.Tensor):
        super().__init__()
        self.slope = nn.Parameter(slope)

    def forward(self, x):
        return x.flatten(1) @ self.slope[:, None]


def test_the_critic_loss_of_a_linear_critic_is_that_of_means_and_one_slope():
    generator = nn.Linear(2, 3)
    own = _wgan_critic.GeneratorAndCritic(generator, Line(torch.tensor([3.0, 0.0, 4.0])), 2, 0, penalty=10.0)
    real = torch.randn(500, 3)
    torch.manual_seed(7)
    found = float(own.critic_loss(real, torch.zeros(500, dtype=torch.int64)).detach())
    torch.manual_seed(7)
    fake = generator(torch.randn(500, 2)).detach()
    # |slope| = 5, whose penalty is 10 (5 - 1)^2
    wanted = float(((fake - real) @ torch.tensor([3.0, 0.0, 4.0])).mean()) + 160
    assert found == pytest.approx(wanted, rel=1e-5)


def test_the_generator_goes_where_the_critic_sends_it():
    own = _wgan_critic.GeneratorAndCritic(nn.Linear(1, 2), Line(torch.tensor([1.0, -2.0])), 1, 0, penalty=10.0)
    own.generator_loss(torch.zeros(8, dtype=torch.int64)).backward()
    # -mean D moves with the bias by minus the slope
    assert own.generator.bias.grad.tolist() == pytest.approx([-1.0, 2.0])


def test_labels_enter_both_networks():
    own = _wgan_critic.build_networks(
        PluginRef(name="dcgan-28", latent=3, width=2), PluginRef(name="critic-28", width=2), (1, 28, 28), 4, 10.0
    )
    latents = own.draw_latents(4)
    own.eval()
    one, other = (own(latents, torch.full((4,), k)) for k in (0, 3))
    assert one.shape == (4, 1, 28, 28)
    assert not torch.allclose(one, other)
    real = torch.rand(4, 1, 28, 28)
    assert not torch.allclose(
        own._critic_values(real, torch.zeros(4, dtype=torch.int64)),
        own._critic_values(real, torch.ones(4, dtype=torch.int64)),
    )


@pytest.mark.slow
def test_an_affine_generator_meets_the_law_of_clear_points(run):
    done = run(TOY, steps=600)
    model = checkpoint.load(done.out / "model.pt")["weights"]
    mean, spread = float(model["generator.2.offset"]), abs(float(model["generator.0.weight"]))
    assert mean == pytest.approx(0.0, abs=0.2)  # a GAN circles its goal
    assert spread == pytest.approx(0.5, abs=0.1)
    assert done.metrics[-1]["w2"] < 0.2
    assert done.statement["promise"].startswith("none")
    assert not (done.out / "samples.npz").exists()  # points on a line: nothing to draw


@pytest.mark.slow
def test_of_privatised_points_it_learns_the_noise_too(run):
    done = run(TOY, steps=600, data__privatize={"mech": "local-gauss", "sigma": 1.0, "delta": 1e-5, "radius": 9})
    spread = abs(float(checkpoint.load(done.out / "model.pt")["weights"]["generator.0.weight"]))
    assert spread == pytest.approx(1.25**0.5, abs=0.15)  # s^2 + sigma^2
    assert "post-processing" in done.statement["promise"]


@pytest.mark.slow
def test_points_of_the_plane_are_drawn_over_clear_ones(run):
    done = run(TOY, data={"law": "ring", "points": 300, "tests": 150})
    arrays = np.load(done.out / "samples.npz")
    assert arrays["samples"].shape == (100, 2)
    assert arrays["target"].shape == (150, 2)


@pytest.mark.slow
@pytest.mark.figures
def test_images_are_measured_and_drawn(run):
    done = run(IMAGES)
    row = done.metrics[-1]
    assert all(
        np.isfinite(row[name]) for name in ("loss", "confidence", "entropy", "coverage", "frechet-small-cnn", "w2")
    )
    assert "logistic" not in row
    arrays = np.load(done.out / "samples.npz")
    assert arrays["names"].tolist() == ["original", "generated", ""]
    assert arrays["samples"].shape == (60, 1, 28, 28)
    assert (done.out / "samples.png").stat().st_size > 5000


@pytest.mark.slow
def test_labelled_samples_teach_a_classifier_that_is_tested_on_real_images(run):
    row = run(IMAGES, options__conditional=True).metrics[-1]
    assert 0 <= row["logistic"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise",
    [{"mech": "local-gauss", "sigma": 0.2, "delta": 1e-5}, {"mech": "local-laplace", "scale": 0.1, "dct": True}],
)
def test_privatised_images_are_denoised_and_the_statement_warns_of_the_clear_images_used(run, noise):
    done = run(IMAGES, data__privatize={**noise, "radius": 60.0}, options__wavelet="oracle")
    row = done.metrics[-1]
    assert row["wavelet_distance"] < row["noisy_distance"]
    assert any(
        "wavelets were chosen by looking at clear held-out images" in text for text in done.statement["warnings"]
    )
    publish = {entry["file"]: entry["publish"] for entry in done.statement["publish"]}
    assert publish["model.pt"] == publish["model.safetensors"] == "no"
    rows = np.load(done.out / "samples.npz")
    assert rows["names"].tolist()[:3] == ["original", "privatised", "wavelets"]
    assert 0 <= rows["samples"][40:60].min() <= rows["samples"][40:60].max() <= 1


def test_without_pywavelets_it_says_what_to_install(run, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "pywt" else found(name, *rest))
    with pytest.raises(MissingResource, match=r"pip install 'wpriv\[wavelets\]'"):
        run(
            IMAGES,
            data__privatize={"mech": "local-gauss", "sigma": 0.2, "delta": 1e-5, "radius": 9},
            options__wavelet="oracle",
        )


@pytest.mark.slow
def test_without_wavelets_pywavelets_is_not_loaded(run, monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest, **more):
        assert not name.startswith("pywt")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    run(IMAGES, steps=1)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_bit_for_bit(run, tmp_path):
    whole = run(IMAGES)
    asked = []
    made = load_recipe.read(tmp_path / "made.yaml", kind="train")

    def stop():
        asked.append(1)
        return "a test" if len(asked) == 3 else None

    with pytest.raises(Interrupted):
        train.run(made, tmp_path / "cut", root=tmp_path, stop=stop)
    train.run(made, tmp_path / "cut", resume=True, root=tmp_path)
    one, two = (checkpoint.load(folder / "model.pt")["weights"] for folder in (whole.out, tmp_path / "cut"))
    assert int(one["steps"]) == 6
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": {"eps": 1, "delta": 1e-5}}, "privacy: none"),
        ({"options__wavelet": "oracle"}, "wavelet"),
        ({"options__wavelet": "haar"}, "oracle"),
        ({"options__critic": {"name": "critic"}}, "no model called 'critic'"),
        ({"data__law": "gauss", "options__conditional": True}, "conditional"),
        (
            {
                "data__privatize": {"mech": "local-gauss", "sigma": 1.0, "delta": 1e-5, "radius": 9},
                "options__conditional": True,
            },
            "public_labels: true",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_conflicting_keys_of_a_recipe_are_refused(run, changes, message):
    with pytest.raises(UsageError, match=message):
        run(TOY, **changes)


def test_networks_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match=r"mlp.*dcgan-28"):
        _wgan_critic.build_networks(PluginRef(name="mlp"), PluginRef(name="mlp"), (2,), 0, 1.0)
    with pytest.raises(UsageError, match="critic-28"):
        _wgan_critic.build_networks(PluginRef(name="mlp-generator"), PluginRef(name="critic-28"), (2,), 0, 1.0)


@pytest.mark.slow
def test_a_run_is_repeated_by_its_seed(run):
    one, two = run(IMAGES, "one"), run(IMAGES, "two")
    assert json.dumps([{**r, "seconds": 0} for r in one.metrics]) == json.dumps(
        [{**r, "seconds": 0} for r in two.metrics]
    )
