"""Private generators: the release of a step, its sensitivity, and trainings of the tasks on few records."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from tests import nightly
from tests.points import ROOT
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.config.train_schema import Train
from wpriv.core import registry
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.files import checkpoint
from wpriv.papers.mechanisms.projection import Projection
from wpriv.papers.tasks import _generation, _projected, merf, swd_generate
from wpriv.training import data, plan, train, training_run
from wpriv.training.engine.job import ReleaseGate
from wpriv.training.noise.noise_stream import Noise
from wpriv.transport import sliced

CPU = torch.device("cpu")
SHAPE = (1, 28, 28)
LABELS = ("appended", "joint", "public", "none")
SWD = """\
kind: train
source: "a test"
task: swd-generate
data: {{name: mnist, root: "{root}", verify: false}}
model: {{name: merf-generator}}
options: {{labels: {labels}, directions: 5, pool: 2, bound: 4, generated: 20, samples: 40, releases: 2,
          learners: [logistic]{more}}}
privacy: {privacy}
optimizer: {{name: adam, lr: 0.001}}
batch: 20
steps: 6
seed: 1
"""


def options(**given) -> swd_generate.Options:
    return swd_generate.Options.model_validate({"directions": 7, "bound": 4.0, "generated": 20, **given})


def step_of(chosen: swd_generate.Options, batch: int = 12, seed: int = 0) -> _projected.ProjectionStep:
    torch.manual_seed(seed)
    made = registry.load("models", "merf-generator").build(registry.params("models", "merf-generator", {}), SHAPE, 10)
    return _projected.ProjectionStep(made, _projected.RowEncoder(chosen, SHAPE, CPU), chosen, batch)


def door(multiplier: float, seed: int = 0) -> ReleaseGate:
    return ReleaseGate(multiplier, "replace-one", Noise(bytes([seed]) * 32), multiplier > 0)


def images(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.rand(count, *SHAPE, generator=random), torch.randint(10, (count,), generator=random)


def written(chosen: swd_generate.Options, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The rows in full, by the definition: cells, norms and the place of the class one by one."""
    found = torch.zeros(len(x), chosen.row, dtype=torch.float64)
    for place, (image, label) in enumerate(zip(x.double(), y.tolist(), strict=True)):
        side = 28 // chosen.pool
        cells = image[0].reshape(side, chosen.pool, side, chosen.pool).sum(dim=(1, 3)).flatten() / chosen.pool
        cells = cells / max(float(cells.norm()), chosen.bound)
        if chosen.labels == "appended":
            cells = torch.cat([math.sqrt(1 - chosen.share**2) * cells, chosen.share * torch.eye(10)[label].double()])
        start = label * len(cells) if chosen.labels == "joint" else 0
        found[place, start : start + len(cells)] = cells
    return found


@pytest.mark.slow
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("pool", [1, 2])
def test_the_release_without_noise_is_the_projections_of_the_rows_as_defined(labels, pool):
    chosen = options(labels=labels, pool=pool, releases=2)
    step = step_of(chosen)
    x, y = images(12)
    step(x, y, door(0.0), torch.optim.SGD(step.generator.parameters(), lr=0.0))
    u = step.directions(int(step.pending.seeds[0]))
    assert u.shape == (chosen.row, 7)
    torch.testing.assert_close(u.norm(dim=0), torch.ones(7))
    torch.testing.assert_close(
        step.pending.released[0].double(), written(chosen, x, y) @ u.double(), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("labels", LABELS)
def test_no_two_rows_lie_further_apart_than_the_sensitivity(labels):
    # the worst case of the definition: long images without a common pixel, of two classes; and images of other kinds
    chosen = options(labels=labels, pool=1)
    x, y = images(40)
    x[:20] *= torch.linspace(0, 1, 20)[:, None, None, None]
    x[0], x[1] = 0, 0
    x[0, 0, :14], x[1, 0, 14:] = 1, 1
    y[0], y[1] = 0, 1
    rows = written(chosen, x, y)
    apart = torch.cdist(rows, rows).max()
    assert apart <= swd_generate.SENSITIVITY + 1e-9
    assert apart >= 0.99 * swd_generate.SENSITIVITY  # the bound is met
    ours, clipped = _projected.RowEncoder(chosen, SHAPE, CPU)(x)
    assert ours.norm(dim=1).max() <= 1
    assert ours.min() >= 0
    assert torch.equal(clipped, x.flatten(1).norm(dim=1) > 4)


def test_a_release_hangs_on_a_record_through_its_own_row_of_projections_alone():
    chosen = options(labels="joint", pool=2, releases=2)
    x, y = images(12)
    other = x.clone()
    other[3] = 0
    found = []
    for batch in (x, other):
        step = step_of(chosen)
        torch.manual_seed(5)
        step(batch, y, door(0.3, seed=9), torch.optim.SGD(step.generator.parameters(), lr=0.0))
        found.append(step.pending.released[0])
    moved = (found[0] - found[1]).norm(dim=1) > 0
    assert moved.nonzero().flatten().tolist() == [3]


def test_the_rows_of_a_release_are_in_an_order_that_the_key_of_the_noise_alone_determines(bars):
    # sampling is accounted for as of a set: rows in the order of the records would say which places were drawn
    text = swd(bars, "none", "{sigma: 1.0e-7, delta: 1.0e-5, sampling: fixed}").replace("releases: 2", "releases: 3")
    recipe = Train.model_validate(yaml.safe_load(text))
    torch.manual_seed(0)
    records = data.read("mnist", root=bars, verify=False)
    job = swd_generate.build_job(recipe, records, CPU, adjacency="replace-one")
    drawn = np.arange(3, 103, 5)
    for seed in (1, 1, 2):
        job.custom_step(drawn, door(1e-7, seed))
    pending = job.model["pending"]
    # oracle: the definition, the projections of the images in their order, to which the noise adds next to nothing
    chosen = options(labels="none", pool=2)
    images = torch.from_numpy(records.x_train[drawn] / 255.0)
    orders = []
    for slot in range(3):
        u = torch.Generator().manual_seed(int(pending.seeds[slot]))
        u = torch.randn(chosen.row, 5, generator=u)
        wanted = written(chosen, images, torch.zeros(20, dtype=torch.long)) @ (u / u.norm(dim=0)).double()
        gaps = torch.cdist(pending.released[slot].double(), wanted)
        orders.append(gaps.argmin(dim=1).tolist())
        assert float(gaps.amin(dim=1).max()) < 1e-5
        assert sorted(orders[slot]) == [*range(20)]
    assert orders[0] == orders[1] != orders[2]
    assert [*range(20)] not in orders


def test_an_order_of_rows_takes_no_noise_and_each_is_as_likely():
    gate = door(1.0)
    before, counts = gate.noise.state(), np.zeros((3, 3))
    assert gate.shuffled(np.arange(9)).tolist() == gate.shuffled(np.arange(9)).tolist()
    assert gate.noise.state() == before
    for _ in range(3000):
        counts[np.arange(3), gate.shuffled(np.arange(3))] += 1
        gate.noise.normal(1)  # as a release does, which draws the next key
    # of fixed keys; 1000 each, with a standard deviation of 26
    assert np.abs(counts - 1000).max() < 100
    assert door(0.0).shuffled(np.arange(9)).tolist() == [*range(9)]


def test_the_noise_of_a_release_is_that_of_the_mechanism():
    chosen = options(labels="none", directions=400, releases=2)
    step = step_of(chosen, batch=200)
    step(
        torch.zeros(200, *SHAPE),
        torch.zeros(200, dtype=torch.long),
        door(0.3),
        torch.optim.SGD(step.generator.parameters(), lr=0.0),
    )
    # rows of zeros: noise alone; 80000 numbers, 5 standard errors
    assert float(step.pending.released[0].std()) == pytest.approx(
        0.3 * swd_generate.SENSITIVITY, rel=5 / math.sqrt(2 * 80000)
    )
    mechanism = swd_generate.release(recipe_of("none"), {"records": 400}).at(0.3)
    assert mechanism == Projection(784, 400, 0.3 * math.sqrt(2), math.sqrt(2))


def recipe_of(labels: str):
    from wpriv.config.train_schema import Train

    return Train.model_validate(
        {
            "kind": "train",
            "source": "a test",
            "task": "swd-generate",
            "data": {"name": "mnist"},
            "model": {"name": "merf-generator"},
            "options": {"labels": labels, "directions": 400, **({"smallest": 25} if labels == "public" else {})},
            "privacy": {"eps": 1.0, "delta": 1e-5, "sampling": "fixed"},
            "optimizer": {"name": "adam", "lr": 0.001},
            "batch": 20,
            "steps": 3,
        }
    )


def test_public_labels_are_accounted_at_the_rate_of_the_smallest_class_and_joint_ones_in_their_larger_space():
    public = swd_generate.release(recipe_of("public"), {"records": 400})
    assert public.sampling.rate == 2 / 25
    assert "label is public" in public.unit
    assert swd_generate.release(recipe_of("joint"), {"records": 400}).at(1.0).d == 7840
    assert swd_generate.release(recipe_of("appended"), {"records": 400}).at(1.0).d == 794


@pytest.mark.parametrize("labels", ["appended", "none", "joint"])
def test_the_distance_without_noise_is_the_sliced_distance_of_the_rows(labels):
    # oracle: transport.sliced on the rows written in full
    chosen = options(labels=labels)
    step = step_of(chosen, batch=20)
    (x, y), (z, _) = images(20), images(20, seed=1)
    even = step.labels
    made, real = written(chosen, z, even).float(), written(chosen, x, y).float()
    step.pending.seeds[0] = 3
    u = step.directions(3)
    wanted = sliced.wasserstein(made, real, directions=u) * chosen.row
    step.pending.released[0] = real @ u
    found = step.distance_to_release(0, 0.0, step.encode(z)[0])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_move_takes_the_mean_gradient_over_the_releases_that_wait():
    # oracle: autograd through the whole generator, release by release
    chosen = options(labels="joint", releases=3, pool=4)
    step = step_of(chosen, batch=20)
    step.generator.eval()  # batch normalisation by what it has seen, so that both passes agree
    optimizer = torch.optim.SGD(step.generator.parameters(), lr=1.0)
    before = [p.detach().clone() for p in step.generator.parameters()]
    for seed in range(2):
        step(*images(20, seed), door(0.0), optimizer)
        assert all(torch.equal(a, b) for a, b in zip(before, step.generator.parameters(), strict=True))
    x, y = images(20, 2)
    rows, _ = step.encode(x)
    torch.manual_seed(11)
    last = int(torch.randint(2**62, ()))
    step.pending.seeds[2] = last
    step.pending.released[2] = step.project(step.encode.labelled(rows, y), y, step.directions(last))
    made = step.generator(step.generator.inputs(step.labels))
    own, _ = step.encode(made)
    loss = torch.stack([step.distance_to_release(slot, 0.0, own) for slot in range(3)]).sum()
    wanted = torch.autograd.grad(loss, list(step.generator.parameters()))
    torch.manual_seed(11)
    step(x, y, door(0.0), optimizer)
    for old, new, slope in zip(before, step.generator.parameters(), wanted, strict=True):
        torch.testing.assert_close(old - new, slope, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["joint", "none", "public"])
def test_a_squared_distance_is_that_of_the_means_and_what_is_left(labels):
    # oracle: W_2^2(X, Y) = |E X - E Y|^2 + W_2^2(X - E X, Y - E Y) on a line
    given = {"smallest": 25} if labels == "public" else {}
    (x, y), (z, _) = images(30), images(20, seed=1)
    parts = {}
    for name, how in {"whole": {}, "means": {"spread": 0.0}, "left": {"means": "all"}, "half": {"spread": 0.5}}.items():
        step = step_of(options(labels=labels, **given, **how), batch=30)
        step.pending.seeds[0] = 3
        step.pending.released[0] = step.project(step.encode(x)[0], y, step.directions(3))
        if labels == "public":
            step.pending.labels[0] = y
        parts[name] = step.distance_to_release(0, 0.0, step.encode(z)[0])
    torch.testing.assert_close(parts["means"] + parts["left"], parts["whole"], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(parts["means"] + parts["left"] / 2, parts["half"], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["joint", "public"])
def test_the_means_of_noisy_releases_come_as_near_to_the_mean_row_as_least_squares_do(labels):
    # oracle: numpy's least squares on all that was released; without noise, the mean row itself
    given = {"smallest": 1} if labels == "public" else {}
    (x, y), rounds = images(40), 1000
    for multiplier in (0.0, 0.02):
        step = step_of(options(labels=labels, pool=14, means="all", spread=0.0, releases=rounds, **given), batch=40)
        step.update_generator = lambda *_: torch.zeros(())
        for _ in range(rounds):
            step(x, y, door(multiplier, seed=5), torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0))
        own = step.pending
        rows = written(step.options, x, y).double()
        for group in range(step.groups):
            chosen = y == group if step.groups > 1 else torch.ones(40, dtype=torch.bool)
            truth = rows[chosen].mean(0)
            directions = torch.cat([step.directions(int(seed)) for seed in own.seeds], dim=1).double()
            told = torch.cat([released[chosen].mean(0) for released in own.released]).double()
            solved = torch.linalg.lstsq(directions.T, told[:, None]).solution[:, 0]
            error, least = (own.mean[group] - truth).norm(), (solved - truth).norm()
            # what the recursion began with, zero, is left to a part of about d / (k rounds)
            assert error <= 1.5 * least + 3 * step.options.row / 7 / rounds * truth.norm()


def test_what_all_releases_tell_is_met_by_the_mean_generated_row():
    # oracle: the rows written in full
    for labels in ("appended", "joint", "none"):
        step = step_of(options(labels=labels, means="all", spread=0.0))
        z, _ = images(20, seed=1)
        step.pending.mean.normal_()
        step.pending.averaged += 1
        wanted = (written(step.options, z, step.labels).float().mean(0) - step.pending.mean[0]).square().sum()
        torch.testing.assert_close(step.distance_to_mean(step.encode(z)[0]), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_random_features_are_the_same_for_all_and_never_negative():
    one, other = _projected.random_conv(3), _projected.random_conv(3)
    x = torch.rand(2, 3, 64, 64)
    assert torch.equal(one(x), other(x))
    assert one(x).flatten(1).shape == (2, 8192)
    assert one(x).min() >= 0
    assert not any(p.requires_grad for p in one.parameters())


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """A folder of made-up pictures of two kinds, the size of CelebA's after its crop."""
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for number in range(12):
        Image.fromarray(random.integers(0, 256, (70, 66, 3), dtype=np.uint8)).save(folder / f"{number:06d}.jpg")
    return folder


def idx(path: Path, values: np.ndarray) -> None:
    path.write_bytes(
        bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.astype(np.uint8).tobytes()
    )


@pytest.fixture(scope="module")
def bars(tmp_path_factory) -> Path:
    """MNIST's files with 120 and 60 made-up images, each class bright in columns of its own."""
    root = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    y = np.arange(180) % 10
    x = random.integers(0, 40, (180, 28, 28))
    for image, label in zip(x, y, strict=True):
        image[:, 2 * label : 2 * label + 4] += 200
    for part, own in (("train", slice(0, 120)), ("t10k", slice(120, 180))):
        idx(root / f"{part}-images-idx3-ubyte", x[own])
        idx(root / f"{part}-labels-idx1-ubyte", y[own])
    return root


def run(tmp_path: Path, text: str, name: str = "toy", **how):
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return train.train(path, out=tmp_path / name, **how)


def swd(root: Path, labels: str, privacy: str = "{sigma: 0.2, delta: 1e-5, sampling: fixed}", more: str = "") -> str:
    return SWD.format(root=root, labels=labels, privacy=privacy, more=more)


@pytest.mark.slow
@pytest.mark.parametrize(("labels", "more"), [("appended", ""), ("joint", ""), ("public", ", smallest: 12")])
def test_a_generator_trains_on_projections_and_says_what_it_released(bars, tmp_path, labels, more):
    done = run(tmp_path, swd(bars, labels, more=more))
    assert {"logistic", "sliced"} <= set(done.metrics[-1])
    step = done.statement["process"][0]
    assert step["mech"] == "projection"
    assert step["n"] == 6
    assert step["d"] == {"appended": 206, "joint": 1960, "public": 196}[labels]
    assert done.statement["sampling"]["rate"] == pytest.approx(1 / 6)
    assert done.statement["noise"]["standard_deviation"] == pytest.approx(0.2 * math.sqrt(2))
    assert ("label is public" in done.statement["unit"]) == (labels == "public")
    assert {"samples.npz", "samples.png"} <= {path.name for path in done.files}
    kept = checkpoint.load(tmp_path / "toy" / "model.pt")["weights"]
    assert any(key.startswith("generator.") for key in kept)


@pytest.mark.slow
def test_the_same_seed_makes_the_same_generator_and_without_privacy_nothing_is_accounted(bars, tmp_path):
    for name in ("one", "other"):
        assert run(tmp_path, swd(bars, "joint", "none"), name).statement["private"] is False
    own, same = (checkpoint.load(tmp_path / name / "model.pt")["weights"] for name in ("one", "other"))
    assert all(torch.equal(own[key], same[key]) for key in own)


@pytest.mark.slow
@pytest.mark.parametrize("means", nightly.sharded(["pending", "all"], 2))
def test_without_noise_classes_come_to_lie_where_they_are(bars, tmp_path, means):
    text = (
        swd(bars, "joint", "none", f", releases: 1, means: {means}")
        .replace("releases: 2,", "")
        .replace("steps: 6", "steps: 150")
    )
    done = run(tmp_path, text.replace("lr: 0.001", "lr: 0.01").replace("directions: 5", "directions: 100"))
    assert done.metrics[-1]["logistic"] >= 0.8


@pytest.mark.slow
def test_noise_found_by_a_published_accounting_is_reported_with_its_certified_eps(bars, tmp_path):
    found = {}
    for name in ("pld", "swd-tail:w=clt", "swd-tail:w=bernstein-code"):
        privacy = f'{{eps: 10, delta: 1e-5, sampling: fixed, accountant: "{name}"}}'
        path = tmp_path / "toy.yaml"
        path.write_text(swd(bars, "appended", privacy))
        found[name], _ = training_run.planned(train.recipe_of(path), tmp_path / "out")
    assert found["pld"].eps() <= 10
    assert found["pld"].multiplier < found["swd-tail:w=bernstein-code"].multiplier
    assert found["swd-tail:w=bernstein-code"].eps() < 10
    assert "by swd-tail:w=clt" in found["swd-tail:w=clt"].notes[-1]


MERF = """\
kind: train
source: "a test"
task: merf
data: {{name: mnist, root: "{root}", verify: false}}
model: {{name: merf-generator}}
options: {{features: 300, moves: {moves}, length: 10, generated: 20, samples: 40}}
privacy: {privacy}
optimizer: {{name: adam, lr: 0.01}}
steps: 2
seed: 1
"""


def test_mean_embeddings_have_no_gradient_of_a_batch_to_clip(bars, tmp_path):
    privacy = "{sigma: 5, delta: 1e-5, sampling: none, clip: batch-mean}"
    with pytest.raises(UsageError, match="leave clip out"):
        run(tmp_path, MERF.format(root=bars, moves=1, privacy=privacy))


@pytest.mark.slow
def test_mean_embeddings_are_released_once_and_the_generator_meets_them(bars, tmp_path):
    done = run(tmp_path, MERF.format(root=bars, moves=60, privacy="{eps: 10, delta: 1e-5, sampling: none}"))
    assert done.statement["process"][0]["n"] == 1
    assert len((tmp_path / "toy" / "ledger.jsonl").read_text().splitlines()) == 1
    assert done.statement["noise"]["sensitivity"] == 2
    assert done.guarantees[0].claim == "exact"
    assert done.metrics[-1]["logistic"] >= 0.5
    kept = checkpoint.load(tmp_path / "toy" / "model.pt")["weights"]
    # oracle: the embedding by its definition, of every record by itself; noise of 1 / n standard deviations
    x = np.frombuffer((bars / "train-images-idx3-ubyte").read_bytes(), np.uint8, offset=16).reshape(120, 784) / 255
    w = kept["embedding.frequencies"].double().numpy()
    wanted = np.zeros((300, 10))
    for place, image in enumerate(x):
        wanted[:, place % 10] += np.concatenate([np.cos(image @ w), np.sin(image @ w)]) / math.sqrt(150) / 120
    apart = kept["embedding.released"].double().numpy() - wanted
    assert np.std(apart) == pytest.approx(2 * done.plan.multiplier / 120, rel=5 / math.sqrt(2 * 3000))


CGAN = """\
kind: train
source: "a test"
task: cgan
data: {{name: mnist, root: "{root}", verify: false}}
model: {{name: merf-generator}}
options: {{generated: 20, samples: 40, width: 8}}
privacy: {privacy}
optimizer: {{name: adam, lr: 0.001}}
batch: 30
steps: 4
seed: 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("privacy", ["{eps: 5, delta: 1e-5}", "none"])
def test_a_conditional_gan_trains_with_and_without_privacy(bars, tmp_path, privacy):
    done = run(tmp_path, CGAN.format(root=bars, privacy=privacy))
    assert {"logistic", "mlp", "sliced"} <= set(done.metrics[-1])
    if privacy != "none":
        assert done.statement["noise"]["clipped"] == "each record's gradient"
        assert done.guarantees[0].epsilon.safe <= 5


@pytest.mark.slow
def test_faces_are_made_by_the_generator_of_table_5_on_pictures_of_the_right_format(pictures, tmp_path):
    text = (ROOT / "recipes" / "dpswd" / "celeba.yaml").read_text()
    text = (
        text.replace("img_align_celeba", str(pictures))
        .replace("crop: 148", "crop: 60")
        .replace("records: 162079", "records: 10")
    )
    done = run(
        tmp_path,
        text,
        "celeba",
        quick=True,
        set={"privacy": {"eps": 10, "delta": 1e-6, "sampling": "fixed"}, "accountants": ["pld"]},
    )
    assert done.statement["process"][0]["d"] == 8192
    assert "sliced" in done.metrics[-1]
    with np.load(tmp_path / "celeba" / "samples.npz") as found:
        assert found["samples"].shape == (100, 3, 64, 64)
        assert 0 <= found["samples"].min() <= found["samples"].max() <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("sampling: fixed", "sampling: poisson"), "fixed"),
        (("sampling: fixed", "sampling: fixed, mask: 0.5"), "clip and mask"),
        (("labels: joint", "labels: public"), "smallest"),
        (("generated: 20", "generated: 25"), "10 classes; found 25"),
        (("pool: 2", "pool: 3"), "pool"),
        (("batch: 20", ""), "batch"),
        (("labels: joint", "labels: joined"), "joined"),
        (("name: merf-generator", "name: mlp"), "merf-generator.*mlp"),
        (("labels: joint", "labels: joint, dimension: 1024"), "dimension.*1024.*784"),
    ],
)
def test_conflicting_keys_of_a_recipe_are_refused(bars, tmp_path, change, message):
    with pytest.raises(UsageError, match=message):
        run(tmp_path, swd(bars, "joint").replace(*change))


@pytest.mark.parametrize(("name", "shape"), [("merf-generator", SHAPE), ("celeba-generator", (3, 64, 64))])
def test_a_generator_has_the_documented_number_of_parameters_and_makes_images(name, shape):
    module = registry.load("models", name)
    made = module.build(registry.params("models", name, {}), shape, 10)
    count = sum(p.numel() for p in made.parameters())
    assert f"{count:,} parameters" in module.build.__doc__
    x = made(made.inputs(torch.arange(4)))
    assert x.shape == (4, *shape)
    assert 0 <= x.min() <= x.max() <= 1


def test_samples_are_the_same_for_the_same_weights_and_move_no_random_number():
    model = registry.load("models", "merf-generator").build(registry.params("models", "merf-generator", {}), SHAPE, 10)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    x, y = _generation.generate(model, 30, 10)
    again, _ = _generation.generate(model, 30, 10)
    assert torch.equal(x, again)
    assert torch.equal(before, torch.get_rng_state())
    assert y.bincount().tolist() == [3] * 10
    assert model.training


def test_options_outside_their_ranges_are_refused():
    with pytest.raises(ValueError, match="features"):
        merf.Options.model_validate({"features": 0})
    assert json.loads(json.dumps(swd_generate.Options().model_dump()))["labels"] == "appended"


def test_a_single_release_cannot_be_gone_on_from():
    made = train.recipe_of("dpswd/table2-mnist-merf")
    assert plan.plan(made, {"records": 60000}).step is not None
    with pytest.raises(Unsupported, match="releases once"):
        plan.plan(made, {"records": 60000}, Process((Step(Gauss(1.0)),), "replace-one"))
