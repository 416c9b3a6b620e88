"""Trainings that put noise on their records first: what of a record they see without noise."""

from __future__ import annotations

import numpy as np
import pytest

from wpriv.accounting import load_recipe
from wpriv.errors import UsageError
from wpriv.training import train_data
from wpriv.training.local.privatize import privatize

RECIPE = """\
kind: train
source: a test
task: fit
data:
  {{name: table, file: {file}, target: t, sensitive: sex, number: true, test_share: 0.25,
   privatize: {{mech: local-gauss, eps: 1, delta: 1e-5, radius: 1, public_labels: {labels}}}}}
model: {{name: mlp}}
privacy: none
optimizer: {{name: sgd, lr: 1}}
steps: 1
seed: 1
"""


def recipe_of(folder, targets, **changes):
    """A recipe on a table of 20 records, of which 15 are trained on."""
    rows = [f"{0.1 * target:.3f},{number % 2},{target}" for number, target in enumerate(targets)]
    (folder / "r.csv").write_text("\n".join(["a,sex,t", *rows]) + "\n")
    text = RECIPE.format(file=folder / "r.csv", labels=str(changes.pop("labels")).lower())
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "r.yaml").write_text(text)
    return load_recipe.read(folder / "r.yaml", kind="train")


def test_numbers_to_predict_that_are_public_have_no_noise_and_groups_are_not_read(tmp_path):
    targets = np.arange(1, 21) / 8  # the oracle: the numbers in the file, none of them 0
    read = train_data.data(recipe_of(tmp_path, targets, labels=True), None)
    assert len(read.x_train) == 15
    assert set(read.response_train[:, 0].tolist()) <= set(targets.tolist())
    assert not read.sensitive_train.any()
    # records for testing stay as they are
    assert set(read.response_test[:, 0].tolist()) <= set(targets.tolist())
    assert set(read.sensitive_test.tolist()) == {0, 1}


@pytest.mark.parametrize("task", ["fit", "classify"])
def test_a_task_that_learns_from_labels_is_refused_where_they_are_not_public(tmp_path, task):
    changes = {"task: fit": f"task: {task}", "number: true": f"number: {'true' if task == 'fit' else 'false'}"}
    recipe = recipe_of(tmp_path, np.arange(20) % 2, labels=False, **changes)
    with pytest.raises(UsageError, match="public_labels: true"):
        train_data.data(recipe, None)
    assert train_data.data(recipe_of(tmp_path, np.arange(20) % 2, labels=True, **changes), None).records == 15


def test_reports_without_labels_are_refused_by_a_task_that_learns_from_them(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 3))
    np.savez(tmp_path / "clear.npz", x=x, y=np.arange(20) % 2)
    for public in (False, True):
        file = tmp_path / f"{public}.npz"
        options = {"radius": 1, "eps": 2, "delta": 1e-5, "public_labels": public, "out": file}
        privatize(str(tmp_path / "clear.npz"), "local-gauss", **options)
        start, rest = RECIPE.index("data:"), RECIPE.index("model:")
        text = RECIPE[:start] + "data: {{name: privatized, file: {file}}}\n" + RECIPE[rest:]
        (tmp_path / "r.yaml").write_text(text.format(file=file))
        recipe = load_recipe.read(tmp_path / "r.yaml", kind="train")
        with pytest.raises(UsageError, match="test records" if public else "--public-labels"):
            train_data.data(recipe, None)
