"""Trainings that put noise on their records first: what of a record they see without noise."""

from __future__ import annotations

import numpy as np
import pytest

from wpriv.run import load_recipe
from wpriv.run.training import load_data

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


@pytest.mark.parametrize("labels", [True, False])
def test_numbers_to_predict_and_groups_have_no_noise_and_are_not_read_unless_declared_public(tmp_path, labels):
    targets = np.arange(1, 21) / 8  # the oracle: the numbers in the file, none of them 0
    rows = [f"{0.1 * target:.3f},{number % 2},{target}" for number, target in enumerate(targets)]
    (tmp_path / "r.csv").write_text("\n".join(["a,sex,t", *rows]) + "\n")
    (tmp_path / "r.yaml").write_text(RECIPE.format(file=tmp_path / "r.csv", labels=str(labels).lower()))
    read = load_data.data(load_recipe.recipe(tmp_path / "r.yaml", kind="train"), None)
    assert len(read.x_train) == 15
    assert set(read.response_train[:, 0].tolist()) <= (set(targets.tolist()) if labels else {0.0})
    assert not read.sensitive_train.any()
    # records for testing stay as they are
    assert set(read.response_test[:, 0].tolist()) <= set(targets.tolist())
    assert set(read.sensitive_test.tolist()) == {0, 1}
