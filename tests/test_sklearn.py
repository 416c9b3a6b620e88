"""The estimators for scikit-learn. The oracles are scikit-learn's own checks, and the calculator on fits by hand."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils import estimator_checks

import wpriv
from tests import nightly
from tests.oracles import gauss_delta
from wpriv.accounting import ledger
from wpriv.errors import Unsupported, UsageError
from wpriv.sklearn import TWO_FITS, PrivateClassifier, PrivateRegressor, _learns, expected_failed_checks, joint

pytestmark = pytest.mark.filterwarnings("ignore:NOT PRIVATE")
GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, (120, 3))
Y = (X[:, 0] > X[:, 1]).astype(int)
PUBLIC = {"classes": [0, 1], "bounds": (-1, 1)}


def quick(**options):
    return PrivateClassifier(**{**PUBLIC, "epochs": 2, "batch": 40, **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "state"),
    nightly.sharded(itertools.product([PrivateClassifier, PrivateRegressor], [0, None]), 4),
)
def test_all_checks_of_scikit_learn_pass(kind, state):
    """With None most checks set a random state themselves, and those that do not may fail by the noise alone."""
    estimator = kind(random_state=state)
    expected = expected_failed_checks(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        rows = estimator_checks.check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
    passed = [row["check_name"] for row in rows if row["status"] == "passed"]
    assert len(passed) >= 45
    assert state is None or not [row for row in rows if row["status"] == "xfail"]


class Secret:
    """Draws secret noise in spite of a random state, which most checks set."""

    def fit(self, X, y):
        state, self.random_state = self.random_state, None
        try:
            return super().fit(X, y)
        finally:
            self.random_state = state


class SecretClassifier(Secret, PrivateClassifier):
    pass


class SecretRegressor(Secret, PrivateRegressor):
    pass


@pytest.mark.nightly  # a control of the checks above
@pytest.mark.slow
@pytest.mark.parametrize("kind", [SecretClassifier, SecretRegressor])
def test_the_named_checks_fail_under_secret_noise_and_no_others(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        rows = estimator_checks.check_estimator(kind(), on_fail=None, on_skip=None)
    failed = {row["check_name"] for row in rows if row["status"] == "failed"}
    assert failed
    assert failed <= set(expected_failed_checks(kind())) == set(TWO_FITS)


def test_a_fit_keeps_its_target_and_states_the_steps_that_ran():
    fitted = quick(epsilon=2, delta=1e-6).fit(X, Y)
    sigma = fitted.guarantee_.process.steps[0].mechanism.sigma
    by_hand = wpriv.budget("gauss", sigma=sigma, n=6, sampling="poisson", rate=40 / 120, delta=1e-6)
    assert fitted.n_iter_ == 6
    assert fitted.guarantee_.epsilon.upper <= 2
    assert math.isclose(fitted.guarantee_.epsilon.upper, by_hand.epsilon.upper, rel_tol=1e-6)
    assert "this statement is of one fit" in fitted.statement_
    assert not fitted.guarantee_.warnings


def test_a_random_state_makes_the_result_not_private():
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        fitted = quick(random_state=np.random.RandomState(3)).fit(X, Y)
    again = quick(random_state=np.random.RandomState(3)).fit(X, Y)
    assert np.array_equal(fitted.predict_proba(X), again.predict_proba(X))
    fitted.set_params(random_state=None)
    with pytest.raises(Unsupported, match="NOT PRIVATE"):
        _ = fitted.guarantee_
    assert "**NOT PRIVATE" in fitted.statement_
    assert "guarantee_" not in dir(fitted)


def test_secret_noise_differs_between_fits_and_leaves_the_generators_alone():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    one, two = quick().fit(X, Y), quick().fit(X, Y)
    assert torch.equal(state, torch.get_rng_state())
    assert not np.allclose(one.predict_proba(X), two.predict_proba(X))


def test_predictions_do_not_depend_on_the_other_records_and_survive_pickling():
    fitted = quick(random_state=0).fit(X, Y)
    alone = np.concatenate([fitted.predict_proba(row[None]) for row in X])
    assert np.allclose(alone, fitted.predict_proba(X), rtol=0, atol=1e-15)
    restored = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(restored.predict_proba(X), fitted.predict_proba(X))


def test_numbers_of_numpy_are_numbers():
    numbers = {"epsilon": np.float32(1), "clip": np.float64(1), "batch": np.int64(40), "epochs": np.int64(1)}
    assert quick(**numbers, lr=np.float64(0.5)).fit(X, Y).n_iter_ == 3


def test_parameters_that_are_set_after_a_fit_do_not_change_it():
    fitted = quick().fit(X, Y)
    before, guarantee = fitted.predict_proba(X), fitted.guarantee_
    fitted.set_params(bounds=(-9, 9), epsilon=0.1, classes=[3, 4], account="elsewhere.jsonl")
    assert np.array_equal(fitted.predict_proba(X), before)
    assert fitted.guarantee_ == guarantee
    assert set(fitted.predict(X)) <= {0, 1}
    assert not hasattr(clone(fitted), "network_")


def test_target_bounds_hold_for_predictions_and_a_far_target_counts_no_more():
    y = 5 + 3 * X[:, 0]
    far = np.where(np.arange(len(y)) == 7, 1e30, y)
    options = {"target_bounds": (0, 10), "bounds": (-1, 1), "random_state": 0, "epsilon": 50, "epochs": 40}
    near, moved = (PrivateRegressor(**options).fit(X, values) for values in (np.where(far > 10, 10, y), far))
    assert np.array_equal(near.predict(X), moved.predict(X))
    assert near.predict(X).min() >= 0
    assert near.predict(X).max() <= 10
    assert near.score(X, y) > 0.8


def test_classes_that_are_read_from_the_labels_are_warned_about_and_stated():
    with pytest.warns(UserWarning, match="classes .* were read from the labels"):
        fitted = quick(classes=None).fit(X, Y)
    assert any("read from the labels" in line for line in fitted.guarantee_.warnings)
    assert "read from the labels of the records" in fitted.statement_


def test_a_scaler_before_the_estimator_is_warned_about_and_public_steps_are_not():
    with pytest.warns(UserWarning, match="the step 'standardscaler' .* without noise"):
        fitted = make_pipeline(StandardScaler(), quick()).fit(X, Y)
    assert any("standardscaler" in line for line in fitted[-1].guarantee_.warnings)
    with pytest.warns(UserWarning, match="scaled by the records themselves"):
        quick().fit(StandardScaler().fit_transform(X), Y)
    public = FrozenEstimator(StandardScaler().fit(X[:5]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_pipeline(public, FunctionTransformer(), "passthrough", quick()).fit(X, Y)


def test_a_sample_weight_is_refused():
    with pytest.raises(TypeError, match="sample_weight"):
        quick().fit(X, Y, sample_weight=np.ones(len(Y)))


SHARED = torch.nn.Linear(3, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"network": SHARED}, "function"),
        ({"network": 3}, "function"),
        ({"network": lambda inputs, outputs: None}, "must return a torch.nn.Module"),
        ({"network": lambda inputs, outputs: torch.nn.Linear(inputs, 1)}, r"shape \[2, 2\] .* found \[2, 1\]"),
        ({"network": lambda inputs, outputs: torch.nn.Linear(5, outputs)}, "it fails: mat1 and mat2"),
        ({"network": lambda inputs, outputs: torch.nn.Embedding(5, outputs)}, "float64"),
        ({"classes": [0, 2]}, "not among `classes`"),
        ({"bounds": (1, 0)}, "low < high"),
        ({"bounds": ([0, 0], [1, 1])}, "3 numbers"),
        ({"bounds": (0, np.inf)}, "low < high"),
        ({"bounds": 3}, "pair"),
        ({"clip": "batch-mean"}, "`clip` must be a number"),
        ({"epsilon": 0}, "`epsilon` must be above 0"),
        ({"epsilon": math.inf}, "`epsilon` must be a finite number"),
        ({"delta": None}, "`delta`"),
        ({"classes": 2}, "a list of all labels"),
        ({"account": 3}, "path of a file"),
        ({"batch": "all"}, "batch"),
        ({"random_state": 1, "account": "fits.jsonl"}, "not private"),
    ],
)
def test_faulty_parameters_are_refused_before_anything_is_spent(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        quick(**{"account": "fits.jsonl", **options}).fit(X, Y)
    assert not list(tmp_path.iterdir())


def test_a_network_that_mixes_records_is_refused_before_anything_is_spent(tmp_path):
    def mixing(inputs, outputs):
        return torch.nn.Sequential(torch.nn.BatchNorm1d(inputs), torch.nn.Linear(inputs, outputs))

    with pytest.raises(Unsupported, match="BatchNorm1d"):
        quick(network=mixing, account=tmp_path / "fits.jsonl").fit(X, Y)
    assert not list(tmp_path.iterdir())


def test_a_network_is_trained_once():
    quick(network=lambda inputs, outputs: SHARED).fit(X[:60], Y[:60])
    for network in (lambda inputs, outputs: SHARED, lambda inputs, outputs: torch.nn.Sequential(SHARED)):
        with pytest.raises(UsageError, match="of an earlier fit"):
            quick(network=network).fit(X[60:], Y[60:])


# --- joint guarantees ---


def sizes_of(path):
    rows = ledger.entries(path)
    return [next(row.settings for row in rows if row.run == run) for run in range(1, ledger.last_run(rows) + 1)]


def test_a_record_counts_in_seven_of_the_ten_trainings_of_a_search(tmp_path):
    path = tmp_path / "fits.jsonl"
    search = GridSearchCV(quick(account=str(path), batch=500), {"lr": [0.1, 0.5, 1]}, cv=KFold(3)).fit(X, Y)
    assert sizes_of(path) == ["80 records"] * 9 + ["120 records"]
    guarantee, sigma = joint(search), search.best_estimator_.guarantee_.process.steps[0].mechanism.sigma
    # every fit is two steps on all records: Gaussian noise, whose composition has a closed form (Balle, Wang 2018)
    for bound, fits in ((guarantee, 7), (joint(path), 10)):
        assert math.isclose(gauss_delta(bound.epsilon.upper, math.sqrt(2 * fits) / sigma), 1e-5, rel_tol=1e-4)
    assert any("in 7 of the 10 trainings" in line for line in guarantee.warnings)
    assert any("held-out records without noise" in line for line in guarantee.warnings)
    assert math.isclose(float(wpriv.budget(history=str(path), delta=1e-5)), float(joint(path)), rel_tol=1e-6)
    assert "number 10 of the account" in search.best_estimator_.statement_


def test_folds_of_two_sizes_count_by_the_worse_one(tmp_path):
    path = tmp_path / "fits.jsonl"
    search = GridSearchCV(quick(account=path), {"lr": [0.1, 0.5]}, cv=KFold(3)).fit(X[:118], Y[:118])
    assert sorted(sizes_of(path)) == ["118 records", *["78 records"] * 2, *["79 records"] * 4]
    steps = {entry.settings: ledger.fewest(entry.release) for entry in ledger.entries(path)}
    eps = []
    for counts in ({"78 records": 2, "79 records": 2}, {"79 records": 4}):
        process = [replace(steps[size], n=4 * fits) for size, fits in counts.items()]
        process.append(replace(steps["118 records"], n=6))
        eps.append(wpriv.curve(wpriv.Process(tuple(process), "add-remove"), "pld", tol=1e-5).epsilon(delta=1e-5))
    assert math.isclose(joint(search).epsilon.upper, max(eps), rel_tol=1e-4)


def test_all_trainings_count_where_folds_are_no_partition_or_other_fits_came_between(tmp_path):
    path = tmp_path / "fits.jsonl"
    quick(account=path).fit(X, Y)
    search = GridSearchCV(quick(account=path), {"lr": [0.1, 0.5]}, cv=ShuffleSplit(2, random_state=0)).fit(X, Y)
    assert joint(search).epsilon.upper == joint(path).epsilon.upper
    split = GridSearchCV(quick(account=path), {"lr": [0.1, 0.5]}, cv=KFold(2), refit=False).fit(X, Y)
    assert joint(split).epsilon.upper == joint(path).epsilon.upper
    assert ledger.last_run(ledger.entries(path)) == 1 + 5 + 4


def test_stratified_folds_are_warned_about_and_pipelines_are_opened(tmp_path):
    estimator = make_pipeline(FunctionTransformer(), quick(account=str(tmp_path / "fits.jsonl")))
    search = GridSearchCV(estimator, {"privateclassifier__epsilon": [0.5, 1]}, cv=2).fit(X, Y)
    guarantee = joint(search)
    assert any("in 3 of the 5 trainings" in line for line in guarantee.warnings)
    assert any("StratifiedKFold" in line for line in guarantee.warnings)
    assert any("were fixed before the first" in line for line in guarantee.warnings)
    assert joint(search.best_estimator_).epsilon.upper > guarantee.epsilon.upper


def test_a_joint_guarantee_needs_an_account(tmp_path):
    with pytest.raises(UsageError, match="no account was kept"):
        joint(quick().fit(X, Y))
    with pytest.raises(UsageError, match="has no fit"):
        joint(tmp_path / "fits.jsonl")
    with pytest.raises(UsageError, match="found StandardScaler"):
        joint(StandardScaler())


def test_the_account_is_that_of_the_fit_and_must_hold_it(tmp_path):
    path = tmp_path / "fits.jsonl"
    fitted, bare = quick(account=path).fit(X, Y), quick().fit(X, Y)
    before = joint(fitted).epsilon.upper
    quick(account=tmp_path / "other.jsonl", epochs=1, epsilon=0.1).fit(X, Y)
    assert joint(fitted.set_params(account=tmp_path / "other.jsonl")).epsilon.upper == before
    with pytest.raises(UsageError, match="no account was kept"):
        joint(bare.set_params(account=path))
    path.write_bytes((tmp_path / "other.jsonl").read_bytes())
    with pytest.raises(UsageError, match="not the ledger of this PrivateClassifier"):
        joint(fitted)


def test_several_scores_of_a_search_are_read_and_hidden_failures_count_all(tmp_path):
    path = tmp_path / "fits.jsonl"
    options = {"cv": KFold(2), "scoring": ["accuracy", "neg_log_loss"], "refit": "accuracy"}
    search = GridSearchCV(quick(account=path), {"lr": [0.1, 0.5]}, **options).fit(X, Y)
    assert joint(search).epsilon.upper < joint(path).epsilon.upper
    assert joint(search.set_params(error_score=0.0)).epsilon.upper == joint(path).epsilon.upper


def test_a_fit_that_fails_after_it_was_charged_stays_charged(tmp_path):
    path = tmp_path / "fits.jsonl"
    with pytest.raises(UsageError, match="not finite"):
        quick(account=path, lr=1e38, epsilon=0.01).fit(X, Y)
    assert len(ledger.entries(path)) == 6


def test_an_account_that_was_changed_is_refused(tmp_path):
    path = tmp_path / "fits.jsonl"
    fitted = quick(account=path).fit(X, Y)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(UsageError, match="changed"):
        copy.deepcopy(fitted).fit(X, Y)


@pytest.mark.parametrize(
    ("step", "learns"),
    [
        (OneHotEncoder(categories=[["a", "b"]]), False),
        (OneHotEncoder(), True),
        (OneHotEncoder(categories=[["a", "b"]], min_frequency=2), True),
        (ColumnTransformer([("job", OneHotEncoder(categories=[["a", "b"]]), [0])], remainder="passthrough"), False),
        (ColumnTransformer([("age", StandardScaler(), [0])]), True),
        (ColumnTransformer([("age", "passthrough", lambda x: [0])]), True),
    ],
)
def test_listed_columns_and_categories_are_no_leak_and_all_that_is_read_from_records_is(step, learns):
    assert _learns(step) == learns
