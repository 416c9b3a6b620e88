"""Tasks that release a sliced Wasserstein gradient: sampling, accounting, measurements, files; their objective."""

from __future__ import annotations

import csv
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import optimize

import wpriv
from wpriv.accounting import load_recipe
from wpriv.cli.main import main
from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.figures._records import codes, points
from wpriv.papers.penalty.gradient import penalised_gradient
from wpriv.papers.penalty.objective import Objective, penalty_of
from wpriv.papers.penalty.penalty import Penalty
from wpriv.papers.tasks import _fairness, _sliced, autoencode, represent
from wpriv.papers.tasks import match as matching
from wpriv.results import plot
from wpriv.training import data, train
from wpriv.transport.sliced import random_directions

REPRESENT = """\
kind: train
source: "a test"
task: represent
data: {name: synthetic-fairness, size: 1000, test_size: 600}
model: {name: autoencoder, widths: "8"}
options: {alpha: 0.5, bound: 2, lipschitz: 1.4, core: 8, directions: 10}
privacy: {eps: 2, delta: 1e-5, clip: 10, sampling: fixed}
optimizer: {name: sgd, lr: 0.01}
batch: 200
steps: 6
seed: 1
"""
MATCH = """\
kind: train
source: "a test"
task: match
data: {name: circle, points: 500, tests: 200}
model: {name: mlp, widths: 8-4}
options: {bound: 1, lipschitz: 2, directions: 10, shown: [0, 2]}
privacy: {eps: 2, delta: 1e-5, sampling: fixed}
optimizer: {name: sgd, lr: 0.05}
batch: 200
steps: 6
seed: 1
"""
AUTOENCODE = """\
kind: train
source: "a test"
task: autoencode
data: {name: digits}
model: {name: autoencoder, code: 3, widths: "8", output: sigmoid}
options: {alpha: 0.1, bound: 1.5, directions: 10, judged: 0}
privacy: {eps: 2, delta: 1e-5, clip: 1, sampling: fixed}
optimizer: {name: adam, lr: 0.01}
batch: 100
steps: 6
seed: 1
"""


@pytest.fixture
def ran(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(text, out="done", **changes):
        path = tmp_path / "toy.yaml"
        path.write_text(text)
        return train.train(path, out=tmp_path / out, set=changes)

    return run


def table(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


# ---------------- data, models


def test_the_circle_has_the_law_that_it_says():
    found = data.read("circle", points=20_000, tests=10)
    normal, circle = (found.x_train[found.y_train == label] for label in (0, 1))
    assert (len(normal), len(circle), found.x_test.shape) == (20_000, 20_000, (20, 2))
    np.testing.assert_allclose(np.linalg.norm(circle, axis=1), 0.75, rtol=1e-6)
    # standard errors of the means: 1/sqrt(20000) = 0.007, and less for the circle; of the variances 0.01
    np.testing.assert_allclose(normal.mean(axis=0), 0, atol=0.03)
    np.testing.assert_allclose(np.cov(normal.T), np.eye(2), atol=0.05)
    np.testing.assert_allclose(circle.mean(axis=0), 0, atol=0.03)
    np.testing.assert_allclose(np.cov(circle.T), np.eye(2) * 0.75**2 / 2, atol=0.02)


def test_circles_of_one_seed_are_equal_and_test_points_are_others():
    one, same, other = (data.read("circle", points=50, tests=50, draw_seed=seed) for seed in (1, 1, 2))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert not np.isin(one.x_test, one.x_train).any()


def build(**given):
    torch.manual_seed(0)
    return registry.load("models", "autoencoder").build(registry.params("models", "autoencoder", given), (1, 4, 4), 0)


def test_an_autoencoder_has_the_layers_asked_for_and_gives_codes_and_examples_back():
    model = build(code=3, widths="8-5", output="sigmoid")
    shapes = [(8, 16), (8,), (5, 8), (5,), (3, 5), (3,), (5, 3), (5,), (8, 5), (8,), (16, 8), (16,)]
    assert [tuple(p.shape) for p in model.parameters()] == shapes
    x = torch.rand(7, 1, 4, 4)
    found, made = model(x)
    assert (found.shape, made.shape) == ((7, 3), x.shape)
    assert bool(((made > 0) & (made < 1)).all())
    assert torch.equal(model.decoder(found), made)


def test_codes_are_drawn_into_the_ball_and_short_ones_left_about_as_they_are():
    torch.manual_seed(0)
    free, drawn = build(code=3), build(code=3, ball=1.5)
    drawn.load_state_dict(free.state_dict())
    for times in (1e-3, 1.0, 1e4):
        x = times * torch.randn(50, 1, 4, 4)
        long, short = free(x)[0], drawn(x)[0]
        lengths = long.norm(dim=1)
        # |c| 1.5 / sqrt(1.5^2 + |c|^2), in the direction of c
        torch.testing.assert_close(
            short.norm(dim=1), lengths * 1.5 / (1.5**2 + lengths**2).sqrt(), rtol=1e-4, atol=1e-6
        )
        torch.testing.assert_close(
            torch.nn.functional.cosine_similarity(long, short), torch.ones(50), rtol=1e-4, atol=1e-4
        )


def test_sigmoid_outputs_begin_at_the_prior():
    model = build(code=3, output="sigmoid", prior=0.1)
    assert model.decoder[-3].bias.sigmoid().tolist() == pytest.approx([0.1] * 16)
    for given in ({"output": "linear", "prior": 0.1}, {"output": "sigmoid", "prior": 1.0}):
        with pytest.raises(UsageError, match="prior"):
            build(**given)


@pytest.mark.parametrize("widths", ["", "8-", "8,5", "0", "8--5", "-3", "eight"])
def test_malformed_widths_are_refused(widths):
    with pytest.raises(UsageError, match="widths"):
        build(widths=widths)


def test_a_perceptron_takes_widths_in_place_of_width_and_depth():
    params = registry.params("models", "mlp", {"widths": "128-64-64"})
    model = registry.load("models", "mlp").build(params, (2,), 2)
    assert [tuple(p.shape) for p in model.parameters() if p.dim() == 2] == [(128, 2), (64, 128), (64, 64), (2, 64)]


# ---------------- measures


def test_logistic_regression_is_that_of_a_general_optimizer():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=(200, 2)), np.ones(200)])
    y = (x @ [2.0, -1.0, 0.5] + rng.logistic(size=200) > 0).astype(np.int64)

    def cost(w):
        return np.logaddexp(0, -(2 * y - 1) * (x @ w)).sum() + (w[:2] ** 2).sum() / 2 + 1e-6 * w[2] ** 2 / 2

    # oracle: BFGS of scipy, which knows nothing of Newton steps
    exact = optimize.minimize(cost, np.zeros(3), tol=1e-10)
    np.testing.assert_allclose(_fairness.fit_logistic(x, y), exact.x, atol=1e-5)


def test_logistic_regression_stays_finite_where_the_classes_are_apart():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(-50, 1, (100, 2)), rng.normal(50, 1, (100, 2))])
    labels = np.repeat([0, 1], 100)
    assert (_fairness.predict(points, labels) == labels[_fairness.split(200)[1]]).all()
    assert _fairness.predict(np.zeros((10, 2)), np.arange(10) % 2).shape == (4,)


def test_points_of_the_ball_are_uniform():
    found = autoencode.ball(20_000, 6, 1.5, torch.Generator().manual_seed(0))
    lengths = found.norm(dim=1) / 1.5
    assert float(lengths.max()) <= 1 + 1e-6
    # a uniform point lies within r with chance r^6: its mean length is 6/7, of standard deviation 0.12
    assert float(lengths.mean()) == pytest.approx(6 / 7, abs=5 * 0.12 / math.sqrt(20_000))
    assert float((lengths < 0.8).float().mean()) == pytest.approx(0.8**6, abs=0.02)
    np.testing.assert_allclose(found.mean(dim=0), 0, atol=0.03)


def test_the_distance_of_a_translation_is_that_of_its_projections():
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    shift = torch.tensor([1.0, -2.0, 0.5])
    axes = random_directions(3, _sliced.EVALUATION_DIRECTIONS, torch.Generator().manual_seed(0))
    assert _sliced.distance(x, x + shift) == pytest.approx(float((shift @ axes).square().mean()), rel=1e-4)


# ---------------- the objective to points


def objective(alpha, clip=100.0, **own):
    """A tiny autoencoder whose codes are matched with points, and the same with clips far beyond any gradient."""
    model = build(code=2, widths="6", activation="tanh")
    x = torch.rand(12, 1, 4, 4)
    penalty = Penalty(
        alpha=alpha, bound=1e3, lipschitz=1e3, sizes=((12, 9),), clip=clip, fixed=True, private="x", **own
    )
    goal, axes = torch.randn(9, 2), random_directions(2, 7, torch.Generator().manual_seed(3))
    loss = _sliced.squared_errors if alpha < 1 else None

    def fetch(indices):
        records = x[torch.from_numpy(indices)]
        return records, records

    objective = Objective(model, loss, fetch, penalty, lambda outputs: outputs[0], lambda: axes, lambda indices: goal)
    return objective, x, goal, axes


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_without_privacy_the_gradient_is_that_of_autograd(alpha):
    made, x, goal, axes = objective(alpha)
    from wpriv.transport.sliced import (
        wasserstein,  # the oracle: another implementation of the distance, differentiated by torch
    )

    found, rebuilt = made.model(x)
    value = alpha * wasserstein(found, goal, directions=axes)
    if alpha < 1:
        value = value + (1 - alpha) * (rebuilt - x).flatten(1).square().sum(dim=1).mean()
    exact = torch.autograd.grad(value, list(made.model.parameters()), allow_unused=True, materialize_grads=True)
    places = np.arange(12)
    for gathered in (made.plain(places), made.clipped(places)):
        for mine, theirs in zip(gathered.total.parts, exact, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
        count, total, _ = gathered.diagnostics.tolist()
        assert (count, total / count) == (12, pytest.approx(value.item(), rel=1e-4))


@pytest.mark.slow
def test_the_objective_clips_as_the_penalised_gradient_does():
    made, x, goal, axes = objective(0.4, clip=0.1, clipping="spectral")
    exact = penalised_gradient(
        made.model, made.loss, x, x, made.penalty, directions=axes, points=goal, scores=lambda o: o[0]
    )
    found = made.clipped(np.arange(12))
    assert all(torch.equal(a, b) for a, b in zip(found.total.parts, exact.total.parts, strict=True))
    assert found.total.sensitivity == exact.total.sensitivity
    assert found.diagnostics[2] == 12  # no gradient of a reconstruction is as short as that


def test_the_pull_towards_points_leaves_the_points_out():
    scores, goal = torch.randn(5, 2, requires_grad=True), torch.randn(4, 2)
    value, cost = penalty_of(scores, ((5, 4),), random_directions(2, 3, torch.Generator().manual_seed(0)), goal)
    assert torch.autograd.grad(value, scores)[0].shape == (5, 2)
    assert float(cost.detach()) > 0


# ---------------- trainings


@pytest.mark.slow
def test_a_representation_is_priced_by_its_groups_and_leaves_codes(ran, tmp_path):
    done = ran(REPRESENT)
    statement = done.statement
    groups = list(statement["data"]["groups"].values())
    parts = [count * 200 // 1000 for count in groups]
    # oracle: (7) of the paper with the corrected constant, by hand
    exact = 0.5 * 2 * 10 / sum(parts) + 0.5 * 8 * 2 * 1.4 / min(parts)
    assert statement["noise"]["sensitivity"] == pytest.approx(exact)
    assert statement["adjacency"] == "replace-within-group"
    assert statement["unit"] == represent.UNIT
    sigma, rate = (
        statement["noise"]["standard_deviation"],
        max(part / count for part, count in zip(parts, groups, strict=True)),
    )
    # oracle: the calculator on figures given by hand
    asked = {"bound": 2, "lipschitz_x": 1.4, "size_x": parts[0], "size_z": parts[1], "alpha": 0.5, "clip": 10}
    assert wpriv.budget("wgrad", sigma=sigma, **asked, sampling="fixed", rate=rate, n=6, delta=1e-5).epsilon.lower <= 2
    row = done.metrics[-1]
    assert set(represent.TASK.results) <= set(row)
    assert 0.5 < row["group_accuracy"] <= 1
    rows = table(tmp_path / "done" / "codes.csv")
    assert {row["group"] for row in rows} == {"0", "1"}
    assert len(rows) == 600
    assert (tmp_path / "done" / "codes.png").is_file()


@pytest.mark.slow
def test_the_published_constant_adds_more_noise_at_the_same_eps(ran):
    one, other = (
        ran(REPRESENT, formula, **{"options.sensitivity": formula}).statement for formula in ("tight", "paper")
    )
    assert one["noise"]["multiplier"] == other["noise"]["multiplier"]
    # (7): 16 ML in place of 8 ML, beside the same 2 C / n
    smallest = min(count * 200 // 1000 for count in one["data"]["groups"].values())
    more = other["noise"]["sensitivity"] - one["noise"]["sensitivity"]
    assert more == pytest.approx(0.5 * 8 * 2 * 1.4 / smallest)


@pytest.mark.slow
def test_matched_points_are_protected_on_both_sides_and_kept_along_the_way(ran, tmp_path):
    done = ran(MATCH)
    statement = done.statement
    assert statement["noise"]["sensitivity"] == pytest.approx(8 * 1 * 2 / 100)
    assert statement["sampling"]["batch"] == 200
    assert statement["data"]["groups"] == {"normal": 500, "circle": 500}
    rows = table(tmp_path / "done" / "points.csv")
    assert list(dict.fromkeys(row["panel"] for row in rows)) == ["step 0", "step 2", "step 6"]
    assert len(rows) == 3 * 2 * 200
    assert (tmp_path / "done" / "points.png").is_file()


@pytest.mark.slow
def test_the_file_of_a_matching_network_depends_on_no_test_record(ran, tmp_path):
    weights = []
    for tests in (200, 60):
        ran(MATCH, f"tests-{tests}", **{"data.tests": tests})
        weights.append(torch.load(tmp_path / f"tests-{tests}" / "model.pt", weights_only=True)["weights"])
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


@pytest.mark.slow
def test_points_shown_are_those_that_the_weights_of_their_step_move(ran, tmp_path):
    # oracle: a training that ends at that step
    for name, steps in (("short", 2), ("long", 6)):
        ran(MATCH.replace("eps: 2", "sigma: 1"), name, steps=steps)
    moved = [
        [(row["x"], row["y"]) for row in table(tmp_path / name / "points.csv") if row["panel"] == "step 2"]
        for name in ("short", "long")
    ]
    assert moved[0] == moved[1]
    assert len(moved[0]) == 400


def test_a_class_called_records_is_no_number_of_all_records():
    x, y = np.zeros((5, 2), np.float32), np.array([0, 1, 1, 1, 0])
    given = data.Data("toy", x, y, x, y, ("other", "records"), "a test")
    assert matching.sizes(None, given) == {"records": 5, "other": 2, "class records": 3}


def test_a_representation_needs_test_records_of_both_groups():
    x, y, groups = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    given = data.Data(
        *("toy", x, y, x[:2], y[:2], ("no", "yes"), "a test"),
        sensitive="s",
        sensitive_train=groups,
        sensitive_test=groups[:2],
    )
    recipe = SimpleNamespace(options={"alpha": 0.5})
    with pytest.raises(UsageError, match="test set: group s=1"):
        represent.build_job(recipe, given, torch.device("cpu"), adjacency="")


@pytest.mark.parametrize(("private", "factor"), [("both", 8), ("x", 8), ("z", 4)])
def test_a_goal_alone_costs_half_of_what_those_that_are_moved_cost(private, factor, tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(MATCH.replace("shown: [0, 2]", f"private: {private}"))
    found = matching.release(
        load_recipe.read(path, kind="train").training, {"records": 1000, "normal": 500, "circle": 500}
    )
    assert found.sensitivity == pytest.approx(factor * 2 / 100)


def test_the_eps_above_moved_points_are_those_of_x_and_of_z():
    # oracle: Gauss of the two shifts that one record can cause, 8 ML/n for X and 4 ML/n for Z (Theorem A.1)
    penalty = Penalty(alpha=1, bound=1, lipschitz=2, sizes=((100, 100),), fixed=True)
    found = matching.epsilons(penalty, [500, 500], 4.0, 6, 1e-5)
    for side, sigma in (("X", 4.0), ("Z", 8.0)):
        by_hand = wpriv.budget(mech="gauss", sigma=sigma, sampling="fixed", rate=0.2, n=6, delta=1e-5)
        assert found[side] == pytest.approx(by_hand.epsilon.safe, rel=2e-3)
    assert matching.epsilons(penalty, [500, 500], 4.0, 0, 1e-5) == {"X": 0.0, "Z": 0.0}


@pytest.mark.slow
def test_training_moves_points_to_the_circle(ran):
    done = ran(MATCH.replace("8-4", "16-16"), **{"privacy": "none", "steps": 150, "optimizer.lr": 0.3})
    assert done.metrics[-1]["distance"] < 0.5 * done.metrics[0]["distance"]


@pytest.mark.slow
def test_a_noisy_gradient_is_cut_where_the_recipe_says_so(ran):
    # 6 steps of learning rate 1 and norm 1e-3 cannot lead further than 6e-3
    short = ran(MATCH, **{"options.cap": 0.001, "optimizer.lr": 1.0})
    assert (
        abs(
            short.metrics[-1]["distance"]
            - ran(MATCH, "still", **{"steps": 1, "optimizer.lr": 1e-9}).metrics[-1]["distance"]
        )
        < 0.01
    )


@pytest.mark.slow
def test_an_autoencoder_leaves_samples_and_its_points_of_the_ball_are_nobodys(ran, tmp_path):
    done = ran(AUTOENCODE)
    statement = done.statement
    # 2 C (1 - alpha) / n + alpha 8 M L / n
    assert statement["noise"]["sensitivity"] == pytest.approx((0.9 * 2 + 0.1 * 8 * 1.5) / 100)
    assert statement["unit"] == autoencode.UNIT
    samples = np.load(tmp_path / "done" / "samples.npz")["samples"]
    assert samples.shape == (100, 1, 8, 8)
    assert samples.min() >= 0
    assert samples.max() <= 1
    for name in ("samples.png", "reconstructions.png"):
        assert (tmp_path / "done" / name).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("text", [REPRESENT, MATCH, AUTOENCODE])
def test_the_same_seed_gives_the_same_run_also_when_it_was_cut_short(text, ran, tmp_path, monkeypatch):
    from wpriv.errors import Interrupted
    from wpriv.files import checkpoint
    from wpriv.training.engine import loop

    whole = ran(text)
    step = loop.Engine.step

    def cut(self, indices):
        step(self, indices)
        if self.steps_done == 3:
            self.save()
            raise Interrupted("cut short")

    monkeypatch.setattr(loop.Engine, "step", cut)
    with pytest.raises(Interrupted):
        ran(text, "cut")
    monkeypatch.setattr(loop.Engine, "step", step)
    again = train.train(tmp_path / "toy.yaml", out=tmp_path / "cut", resume=True)
    one, other = (checkpoint.load(done.out / "model.pt")["weights"] for done in (whole, again))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "path", "value", "message"),
    [
        (REPRESENT, "privacy.sampling", "poisson", "fixed.*poisson"),
        (AUTOENCODE, "options.radius", 2.0, "bound.*2"),
        (REPRESENT, "options.core", 17, "core.*16.*17"),
        (REPRESENT, "model", {"name": "mlp", "widths": "8"}, "represent.*autoencoder.*mlp"),
        (REPRESENT, "data", {"name": "digits"}, "digits.*sensitive"),
        (MATCH, "data", {"name": "digits"}, "10 classes"),
        (AUTOENCODE, "data", {"name": "synthetic-fairness"}, "judged: 0"),
    ],
)
def test_conflicting_keys_of_a_recipe_are_refused(ran, text, path, value, message):
    changed = text if not isinstance(value, dict) else "\n".join(
        f"{path}: {json.dumps(value)}" if line.startswith(f"{path}:") else line for line in text.splitlines()
    )  # fmt: skip
    changed = changed.replace("judged: 0", "judged: 10")
    with pytest.raises(wpriv.errors.WprivError, match=message):
        ran(changed, **({} if isinstance(value, dict) else {path: value}))


# ---------------- figures


class Axes:
    """Notes what is drawn."""

    def __init__(self):
        self.drawn = {}

    def scatter(self, xs, ys, *, label, **style):
        self.drawn[label] = list(zip(xs, ys, strict=True))

    def __getattr__(self, name):
        return lambda *args, **how: None


def test_figures_draw_every_group_and_kind():
    axes = Axes()
    codes.draw([{"group": 0.0, "x": 1.0, "y": 2.0}, {"group": 1.0, "x": 3.0, "y": 4.0}], axes)
    assert axes.drawn == {"group 0": [(1.0, 2.0)], "group 1": [(3.0, 4.0)]}
    axes = Axes()
    points.draw([{"kind": "target", "x": 1.0, "y": 2.0}, {"kind": "moved", "x": 3.0, "y": 4.0}], axes)
    assert axes.drawn == {"target": [(1.0, 2.0)], "moved": [(3.0, 4.0)]}


@pytest.mark.slow
def test_a_sweep_puts_codes_and_steps_of_all_trainings_together(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toy.yaml"
    path.write_text(MATCH.replace("steps: 6", "steps: 3") + 'sweep: [{over: privacy.eps, values: ["inf", 2]}]\n')
    assert main(["train", str(path), "--out", "done"]) == 0
    capsys.readouterr()
    panels = list(dict.fromkeys(row["panel"] for row in table(tmp_path / "done" / "points.csv")))
    assert panels == [f"ε = {eps}, step {step}" for eps in ("∞", 2) for step in (0, 2, 3)]
    assert {found.name for found in plot.plot(tmp_path / "done")} >= {"points.png", "losses.png"}
