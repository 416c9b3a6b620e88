"""Quality of samples: toys whose answers are known, scikit-learn for the learners, closed forms for the distances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from wpriv.errors import Unsupported, UsageError
from wpriv.papers.tasks import _generation, _quality
from wpriv.training.data import Data, read

CLASSES = 4


def bars(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """[n, 1, 8, 8] bytes: a bright bar in one of four places, on faint noise; the place is the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    x = rng.integers(0, 40, (n, 1, 8, 8), dtype=np.uint8)
    for place in range(CLASSES):
        x[y == place, :, 2 * place : 2 * place + 2] += 200
    return x, y


@pytest.fixture(scope="module")
def data() -> Data:
    (x, y), (x_test, y_test) = bars(40, 0), bars(800, 1)
    order = np.random.default_rng(2).permutation(800)  # every other record, in whatever order, holds every class
    return Data("synthetic-bars", x, y, x_test[order], y_test[order], tuple("abcd"), "made up")


@pytest.fixture(scope="module")
def judge(data):
    return _quality.fit_judge(data)


def floats(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x).float() / 255


def test_the_judge_knows_the_classes_that_it_has_not_seen(judge):
    assert judge.accuracy == 1.0
    assert len(judge.reference) == 400


def test_the_judge_also_learns_from_the_180_records_that_the_digits_give_it():
    # ten epochs of so few records are 20 updates, after which it told one digit in five
    assert _quality.fit_judge(read("digits")).accuracy > 0.85


def test_real_images_are_confident_cover_all_classes_and_lie_near(judge):
    x, _ = bars(400, 3)
    found = judge.scores(floats(x))
    assert tuple(found) == _generation.SCORES
    assert found["confidence"] > 0.95
    assert found["entropy"] == pytest.approx(math.log(CLASSES), abs=1e-9)  # bars() makes as many of each
    assert found["coverage"] == 1.0
    noise = judge.scores(torch.rand(400, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert found["frechet-small-cnn"] < 0.02 * noise["frechet-small-cnn"]
    assert found["w2"] < 0.25 * noise["w2"]


def test_images_of_one_class_have_no_entropy_and_cover_one_class(judge):
    x, y = bars(400, 3)
    found = judge.scores(floats(x[y == 2]))
    assert (found["entropy"], found["coverage"]) == (0.0, 1 / CLASSES)
    assert found["frechet-small-cnn"] > 5 * judge.scores(floats(x))["frechet-small-cnn"]


def test_a_class_counts_as_covered_from_a_tenth_of_an_even_share(judge):
    x, y = bars(1600, 4)
    own, other = x[y == 0], x[y == 1]
    # an even share of 400 images is 100 a class
    assert judge.scores(floats(np.concatenate([own[:390], other[:10]])))["coverage"] == 2 / CLASSES
    assert judge.scores(floats(np.concatenate([own[:391], other[:9]])))["coverage"] == 1 / CLASSES


def test_features_of_moved_and_scaled_points_differ_by_the_frechet_distance_of_their_gaussians():
    from wpriv.transport import exact

    x = torch.randn(5000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mean, cov = _quality._moments(x)
    moved = _quality._moments(3 * x + torch.tensor([1.0, 0, 0]))
    # 3x + e against x: |2 m + e|^2 and standard deviations 3 times as large, hence tr((3 - 1)^2 C)
    wanted = float((2 * mean + torch.tensor([1.0, 0, 0])).square().sum() + 4 * cov.trace())
    assert exact.squared(mean, cov, *moved) == pytest.approx(wanted, rel=1e-8)
    assert cov.diagonal().tolist() == pytest.approx([1.0] * 3, rel=0.1)


def test_w2_of_moved_images_is_the_length_of_the_move():
    x = torch.rand(100, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert _quality.w2(x.flip(0) + 0.25, x) == pytest.approx(0.25 * 8, rel=1e-6)  # 64 pixels by 1/4 each


def test_the_judge_is_the_same_for_the_same_seed_and_moves_no_global_random_number(data, judge):
    before = torch.get_rng_state()
    again = _quality.fit_judge(data)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(judge.network.parameters(), again.network.parameters(), strict=True))
    assert torch.equal(judge.reference, again.reference)


def test_the_judge_looks_at_no_training_record(data, judge):
    import dataclasses

    other = dataclasses.replace(data, x_train=255 - data.x_train)
    again = _quality.fit_judge(other)
    assert all(torch.equal(a, b) for a, b in zip(judge.network.parameters(), again.network.parameters(), strict=True))


def test_data_without_classes_or_images_has_no_judge(data):
    import dataclasses

    rows = Data(
        "rows",
        np.zeros((2, 3), np.float32),
        np.zeros(2, int),
        np.zeros((9, 3), np.float32),
        np.zeros(9, int),
        ("a", "b"),
        "-",
    )
    one = dataclasses.replace(data, y_train=0 * data.y_train, y_test=0 * data.y_test, classes=("a",))
    for wrong in (rows, one, dataclasses.replace(data, x_test=data.x_test[:7], y_test=data.y_test[:7])):
        with pytest.raises(Unsupported, match="test images"):
            _quality.fit_judge(wrong)


@pytest.mark.parametrize("learner", _quality.DOWNSTREAM)
def test_samples_like_the_real_ones_teach_every_class(data, learner):
    x, y = bars(400, 5)
    assert _quality.downstream(floats(x), torch.from_numpy(y), data, learner) == 1.0


@pytest.mark.parametrize("learner", _quality.DOWNSTREAM)
def test_samples_under_wrong_labels_teach_what_is_wrong(data, learner):
    x, y = bars(400, 5)
    wrong = torch.from_numpy(y).where(torch.from_numpy(y) < 2, torch.from_numpy(5 - y))  # 2 and 3 are exchanged
    assert _quality.downstream(floats(x), wrong, data, learner) == 0.5


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(3, 1, 8, 7), torch.zeros(3, dtype=torch.int64), r"\[n, 1, 8, 8\]; found"),
        (torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.int64), "found"),
        (torch.full((3, 1, 8, 8), math.nan), torch.zeros(3, dtype=torch.int64), "finite"),
        (torch.zeros(3, 1, 8, 8), torch.full((3,), CLASSES), "a label from 0 to 3"),
        (torch.zeros(3, 1, 8, 8), torch.zeros(2, dtype=torch.int64), "a label from 0 to 3"),
        (torch.zeros(3, 1, 8, 8), torch.zeros(3), "a label from 0 to 3"),
    ],
)
def test_samples_that_do_not_fit_are_refused(data, x, y, message):
    with pytest.raises(UsageError, match=message):
        _quality.downstream(x, y, data)


def test_an_unknown_learner_is_refused(data):
    x, y = bars(8, 0)
    with pytest.raises(UsageError, match=r"learner.*forest"):
        _quality.downstream(floats(x), torch.from_numpy(y), data, "forest")


def test_logistic_regression_finds_the_minimum_that_scikit_learn_finds():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 5)).astype(np.float32), rng.integers(0, 3, 300)
    x[:, 0] += y
    ours = _quality.logistic(torch.from_numpy(x), torch.from_numpy(y), 3)
    theirs = LogisticRegression(tol=1e-8).fit(x, y)
    weight, bias = ours[1].weight.detach().numpy(), ours[1].bias.detach().numpy()
    # a constant added to the biases of all classes changes nothing
    assert np.allclose(weight, theirs.coef_, atol=5e-3)
    assert np.allclose(bias - bias.mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=5e-3)


def test_a_learner_with_the_same_seed_is_the_same():
    x, y = bars(200, 6)
    one, two, other = (
        _quality.mlp(floats(x), torch.from_numpy(y), CLASSES, seed=s, epochs=1)[1].weight for s in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
