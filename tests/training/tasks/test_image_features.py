"""Fixed features of images: each row depends on its own image alone, and has the values of its definition."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import wpriv
from wpriv.cli.main import main
from wpriv.errors import UsageError
from wpriv.training.tasks import _image_filters, _supervised
from wpriv.training.tasks._image_features import feature_count
from wpriv.training.tasks._image_filters import oriented_energy, scattering, synthetic_images

NAMES = ("oriented-energy", "scattering")
RNG = np.random.default_rng(5)
IMAGES = RNG.integers(0, 256, (6, 1, 12, 16), dtype=np.uint8)


@pytest.mark.parametrize("name", NAMES)
def test_changing_one_image_changes_one_row(name):
    rows = wpriv.image_features(IMAGES, name, orientations=4)
    changed = IMAGES.copy()
    changed[2] = 255 - changed[2]
    moved = np.abs(wpriv.image_features(changed, name, orientations=4) - rows).max(axis=1)
    assert moved[2] > 0.1
    assert np.delete(moved, 2).max() < 1e-4
    alone = np.concatenate([wpriv.image_features(IMAGES[i : i + 1], name, orientations=4) for i in range(6)])
    assert np.allclose(alone, rows, atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    channels=st.integers(1, 3),
    height=st.integers(3, 6),
    width=st.integers(3, 6),
    orientations=st.integers(2, 5),
    cell=st.sampled_from([2, 4]),
    level=st.floats(0, 1),
)
def test_features_are_finite_in_number_as_counted_and_of_a_bounded_norm(
    name, channels, height, width, orientations, cell, level
):
    noise = np.random.default_rng(1).random((2, channels, 4 * height, 4 * width), dtype=np.float32)
    images = np.stack([noise[0], np.full_like(noise[0], level)])  # a constant image too
    rows = wpriv.image_features(images, name, orientations=orientations, cell=cell)
    features = _supervised.features_of({"name": name, "orientations": orientations, "cell": cell})
    assert rows.shape == (2, feature_count(features, images.shape[1:]))
    assert np.isfinite(rows).all()
    # mean 0 and variance at most 1 in each group
    assert np.linalg.norm(rows, axis=1).max() <= math.sqrt(rows.shape[1]) * 1.0001
    assert np.abs(rows.mean(axis=1)).max() < 1e-3


def test_the_direction_of_an_edge_has_the_most_energy():
    ramp = torch.zeros(4, 1, 16, 16)
    ramp[0, 0, :, 8:] = 1  # brighter to the right: direction 0 of 4
    ramp[1, 0, 8:] = 1  # brighter downwards: direction 1
    ramp[2, 0, :, :8] = 1
    ramp[3, 0, :8] = 1
    energy = oriented_energy(ramp, orientations=4, scales=[1.0], cell=8).sum(dim=(1, 3, 4))
    assert energy.argmax(dim=1).tolist() == [0, 1, 2, 3]


def test_oriented_energy_ignores_brightness_and_shares_the_energy_among_opposite_directions():
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)) / 2
    energy = oriented_energy(images, orientations=8, scales=[0.8, 1.6], cell=4)
    brighter = oriented_energy(images + 0.5, orientations=8, scales=[0.8, 1.6], cell=4)
    assert torch.allclose(energy, brighter, atol=1e-3)
    turned = oriented_energy(1 - images, orientations=8, scales=[0.8, 1.6], cell=4)
    half = energy.reshape(2, 2, 8, 3, 4, 4).roll(4, dims=2).reshape(energy.shape)
    assert torch.allclose(turned, half, atol=1e-3)


def wavelet(scale, number, orientations, radius=15):
    """A Morlet wavelet on a grid of pixels, from its formula."""
    sigma, frequency = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale
    angle, slant = math.pi * number / orientations, 4 / orientations
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1].astype(float)
    u, v = math.cos(angle) * x + math.sin(angle) * y, -math.sin(angle) * x + math.cos(angle) * y
    window = np.exp(-(u**2 + slant**2 * v**2) / (2 * sigma**2))
    wave = window * np.exp(1j * frequency * u)
    return (wave - window * wave.sum() / window.sum()) * slant / (2 * math.pi * sigma**2)


def convolved(plane, kernel):
    """A sum over all shifts, around a torus: no Fourier transform."""
    radius = len(kernel) // 2
    result = np.zeros(plane.shape, complex)
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            result += kernel[dy + radius, dx + radius] * np.roll(plane, (dy, dx), (0, 1))
    return result


def averaged(moduli, side, step):
    """The Gaussian windows of standard deviation 3.2 around the centres of cells of 4 pixels, with 8 pixels around."""
    places = np.arange(0, side + 16, step)
    weights = np.stack([np.exp(-((places - (4 * cell + 9.5)) ** 2) / (2 * 3.2**2)) for cell in range(side // 4)])
    weights /= weights.sum(axis=1, keepdims=True)
    return weights @ moduli @ weights.T


@pytest.mark.slow
def test_scattering_is_the_sum_of_its_definition():
    """Against convolutions summed in space with wavelets of 31 x 31 pixels; the program uses Fourier transforms."""
    image = np.random.default_rng(2).random((16, 16))
    found = scattering(torch.from_numpy(image)[None, None], orientations=4, cell=4)[0, 0].numpy()
    plane = np.pad(image, 8, mode="reflect")
    fine = [np.abs(convolved(plane, wavelet(0, t, 4))) for t in range(4)]
    coarse = [np.abs(convolved(plane, wavelet(1, t, 4))) for t in range(4)]
    expected = [averaged(plane, 16, 1), *(averaged(m, 16, 1) for m in fine)]
    expected += [averaged(m[::2, ::2], 16, 2) for m in coarse]
    for first in fine:
        expected += [averaged(np.abs(convolved(first, wavelet(1, t, 4)))[::2, ::2], 16, 2) for t in range(4)]
    assert found.shape == (25, 4, 4)
    assert np.allclose(found, np.stack(expected), atol=1e-4 * np.abs(expected).max())


OPTIONS = {"sigma": 1.0, "delta": 1e-5, "clip": 1, "batch": 20, "steps": 4, "lr": 0.1, "seed": 3, "progress": False}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_training_with_features_is_training_on_their_rows(tmp_path, name):
    x = RNG.random((60, 1, 12, 12), dtype=np.float32)
    y = np.arange(60) % 2
    keys = {"name": name, "orientations": 4}
    rows = wpriv.image_features(x, **keys)
    results = []
    for folder, records, changes in (("images", x, {"features": keys}), ("rows", rows, {})):
        torch.manual_seed(0)
        model = nn.Linear(rows.shape[1], 2)
        trained = wpriv.train(model, (records, y), test=(records, y), out=tmp_path / folder, **OPTIONS, **changes)
        results.append((trained, [p.detach() for p in model.parameters()]))
    assert all(torch.equal(a, b) for a, b in zip(*(weights for _, weights in results), strict=True))
    remarks = [json.dumps(trained.statement).count("features depend on that record alone") for trained, _ in results]
    assert remarks[0] >= 1
    assert remarks[1] == 0


RECIPE = """
kind: train
source: a test
task: classify
data: {name: digits, records: 1438}
model: {name: logistic}
options: {features: {name: oriented-energy, cell: 2}}
privacy: {sigma: 1, delta: 1e-5}
optimizer: {name: sgd, lr: 1}
batch: 100
steps: 2
"""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("options.features.name=hog", ["name", "oriented-energy", "scattering", "hog"]),
        ("options.features.orientation=4", ["orientation", "did you mean 'orientations'"]),
        ("options.features.orientations=1", ["orientations", "2"]),
        ("options.features.decorrelate=1", ["decorrelate", "greater than or equal to 2"]),
        ("options.features.local=maybe", ["local", "boolean"]),
        ("options.features.scaling=synthetic", ["scaling: synthetic takes decorrelate"]),
        ("options.features.opponent=true", ["opponent", "red, green and blue", "found 1 channels"]),
        ("options.features.cell=3", ["multiples of cell (here 3)", "8 x 8"]),
        ("options.features.name=scattering", ["scattering", "at least 9", "8 x 8"]),
    ],
)
def test_features_that_do_not_fit_end_with_code_2_and_the_key(tmp_path, capsys, change, words):
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert main(["train", str(tmp_path / "r.yaml"), "--out", str(tmp_path / "o"), "--set", change]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert all(word in " ".join(printed.err.split()) for word in words)
    assert not (tmp_path / "o").exists()


def test_a_dry_run_counts_the_weights_on_the_features(tmp_path, capsys):
    (tmp_path / "r.yaml").write_text(RECIPE)
    assert main(["train", str(tmp_path / "r.yaml"), "--dry-run"]) == 0
    assert "2,570 weights" in capsys.readouterr().out  # (2 scales x 8 directions x 16 cells + 1) x 10 classes


def test_records_that_are_no_images_are_refused():
    with pytest.raises(UsageError, match=r"images \[C, H, W\]; found records of shape \[5\]"):
        wpriv.image_features(np.zeros((3, 5), np.float32))
    with pytest.raises(UsageError, match="`features`: orientations"):
        wpriv.image_features(IMAGES, orientations=100)


SETTINGS = [
    {"local": True},
    {"decorrelate": 50},
    {"local": True, "decorrelate": 50},
    {"mirror": True, "scaling": "synthetic", "decorrelate": 50},
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keys", SETTINGS)
def test_with_local_and_decorrelated_features_too_one_image_changes_one_row(name, keys):
    rows = wpriv.image_features(IMAGES, name, orientations=4, **keys)
    changed = IMAGES.copy()
    changed[2] = 255 - changed[2]
    moved = np.abs(wpriv.image_features(changed, name, orientations=4, **keys) - rows).max(axis=1)
    assert moved[2] > 0.1
    assert np.delete(moved, 2).max() < 1e-4
    alone = wpriv.image_features(IMAGES[3:4], name, orientations=4, **keys)
    assert np.allclose(alone, rows[3:4], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_local_features_are_those_of_their_definition(name):
    """By numpy from the maps: order 2 over order 1, each map to mean 0 and variance 1, then each cell."""
    image = torch.rand(1, 2, 16, 16, generator=torch.Generator().manual_seed(4))
    if name == "scattering":
        maps = scattering(image, orientations=4, cell=4)[0].double().numpy().copy()
        for channel in maps:
            for direction in range(4):
                second = slice(9 + 4 * direction, 13 + 4 * direction)
                channel[second] = channel[second] / (channel[1 + direction] + 0.01)
        maps = maps.reshape(-1, 4, 4)
    else:
        maps = oriented_energy(image, orientations=4, scales=[0.8, 1.6], cell=4)[0].double().numpy().reshape(-1, 4, 4)
    maps = np.stack([(m - m.mean()) / np.sqrt(m.var() + 1e-5) for m in maps])
    for row in range(4):
        for column in range(4):
            cell = maps[:, row, column] - maps[:, row, column].mean()
            maps[:, row, column] = cell / (cell.std() + 0.3)
    found = wpriv.image_features(image, name, orientations=4, local=True)[0]
    assert np.allclose(found, maps.ravel(), atol=2e-3)


@pytest.mark.parametrize("count", [30, 200])
def test_decorrelation_is_the_inverse_root_of_the_covariance_plus_the_mean_of_its_eigenvalues(count):
    """Against a dense matrix function of numpy, with fewer and with more public rows than features."""
    rows = np.random.default_rng(6).normal(size=(count, 60)) * np.linspace(0.1, 3, 60) + 1
    mean, covariance = rows.mean(axis=0), np.cov(rows.T, bias=True)
    values, vectors = np.linalg.eigh(covariance + np.eye(60) * np.trace(covariance) / 60)
    expected = (rows[:5] - mean) @ (vectors / np.sqrt(values)) @ vectors.T
    found = _image_filters.of_rows(torch.from_numpy(rows).float())(torch.from_numpy(rows[:5]).float())
    assert np.allclose(found.numpy(), expected, atol=1e-3)


def test_synthetic_images_are_the_same_in_every_call_whatever_the_global_seed():
    torch.manual_seed(1)
    first = synthetic_images(8, 3, 12, 16)
    torch.manual_seed(2)
    assert torch.equal(first, synthetic_images(8, 3, 12, 16))
    assert first.shape == (8, 3, 12, 16)
    assert 0 <= float(first.min()) < float(first.max()) <= 1
    assert float(first.flatten(1).std(dim=1).min()) > 0


@pytest.mark.slow
def test_the_statement_names_the_synthetic_images(tmp_path):
    keys = {"name": "oriented-energy", "orientations": 4, "decorrelate": 20}
    x, y = RNG.random((60, 1, 12, 12), dtype=np.float32), np.arange(60) % 2
    width = wpriv.image_features(x[:1], **keys).shape[1]
    trained = wpriv.train(nn.Linear(width, 2), (x, y), test=(x, y), features=keys, out=tmp_path / "o", **OPTIONS)
    assert "decorrelated by 20 synthetic images, which hold no record" in json.dumps(trained.statement)


@pytest.mark.parametrize("name", NAMES)
def test_scaling_by_synthetic_images_takes_roots_deviations_and_the_inverse_root_of_the_covariance(name):
    """By dense matrices of numpy from the maps of the image and of the synthetic images."""
    image = torch.rand(3, 2, 16, 16, generator=torch.Generator().manual_seed(8))

    def maps(images):  # [N, maps, cells]
        if name == "oriented-energy":
            return oriented_energy(images, orientations=2, scales=[0.8, 1.6], cell=8).double().numpy().reshape(-1, 8, 4)
        values = scattering(images, orientations=2, cell=8).double().numpy().copy()
        values[:, :, 1:] = np.sqrt(values[:, :, 1:])
        return values.reshape(-1, 18, 4)

    synthetic = maps(synthetic_images(60, 2, 16, 16))
    deviations = synthetic.std(axis=(0, 2), ddof=1)[:, None]
    public, rows = ((values / deviations).reshape(len(values), -1) for values in (synthetic, maps(image)))
    covariance = np.cov(public.T, bias=True)
    values, vectors = np.linalg.eigh(covariance + np.eye(len(covariance)) * np.trace(covariance) / len(covariance))
    expected = (rows - public.mean(axis=0)) @ (vectors / np.sqrt(values)) @ vectors.T
    found = wpriv.image_features(image, name, orientations=2, cell=8, scaling="synthetic", decorrelate=60)
    assert np.allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("keys", [{}, {"scaling": "synthetic", "decorrelate": 30}])
def test_an_image_and_its_mirror_image_have_the_same_features_with_mirror(keys):
    image = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(9))
    rows, mirrored, turned = (
        wpriv.image_features(x, "scattering", orientations=3, mirror=True, **keys)
        for x in (image, image.flip(-1), image.flip(-2))
    )
    assert np.allclose(rows, mirrored, atol=1e-3)
    assert np.abs(rows - turned).max() > 0.1


def test_mirror_takes_the_mean_with_the_features_of_the_mirror_image():
    image = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(9))
    apart = [wpriv.image_features(x, orientations=3) for x in (image, image.flip(-1))]
    assert np.allclose(wpriv.image_features(image, orientations=3, mirror=True), sum(apart) / 2, atol=1e-5)


def test_opponent_colours_are_orthogonal_and_the_first_is_the_brightness():
    image = np.random.default_rng(3).random((2, 3, 16, 16), dtype=np.float32)
    red, green, blue = image[:, 0], image[:, 1], image[:, 2]
    colours = [
        (red + green + blue) / math.sqrt(3),
        (red - blue) / math.sqrt(2),
        (2 * green - red - blue) / math.sqrt(6),
    ]
    expected = wpriv.image_features(np.stack(colours, axis=1), "scattering", orientations=2)
    found = wpriv.image_features(image, "scattering", orientations=2, opponent=True)
    assert np.allclose(found, expected, atol=2e-3)
    grey = image[:, :1].repeat(3, axis=1)
    maps = wpriv.image_features(grey, "scattering", orientations=2, opponent=True).reshape(2, 3, -1)
    assert np.abs(maps[:, 1:]).max() < 1e-2


def test_synthetic_images_are_normalised_as_the_records_are():
    """Constants that multiply every image by a number change no decorrelated feature of roots but by their scale."""
    x = np.random.default_rng(4).random((3, 1, 16, 16), dtype=np.float32)
    keys = {"name": "scattering", "orientations": 2, "scaling": "synthetic", "decorrelate": 40}
    plain = _supervised.to_inputs(x, _supervised.InputOptions(features=keys), torch.device("cpu"))
    constants = {"mean": [0.0], "std": [0.25]}
    options = _supervised.InputOptions(features=keys, normalise=constants)
    assert torch.allclose(_supervised.to_inputs(x, options, torch.device("cpu")), plain, atol=1e-2)
