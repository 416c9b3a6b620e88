"""The header above a panel of a sweep: the measures of its training, and the loss that its weight makes of them."""

from __future__ import annotations

import json

import pytest

from wpriv.results import storage
from wpriv.training import sweep


def folder(path, metrics, deviation=None):
    (path / storage.METRICS).write_text(",".join(metrics) + "\n" + ",".join(str(v) for v in metrics.values()) + "\n")
    noise = {} if deviation is None else {"noise": {"standard_deviation": deviation}}
    (path / storage.STATEMENT).write_text(json.dumps(noise))
    return path


@pytest.mark.parametrize(
    ("measures", "options", "end"),
    [
        ({"disparate_impact": 0.9, "eo0": 0.8, "eo1": 0.7}, {"notion": "parity"}, "disparate impact = 0.9"),
        (
            {"disparate_impact": 0.9, "eo0": 0.8, "eo1": 0.7},
            {"notion": "odds"},
            "ratio of decisions 1: label 0 = 0.8, label 1 = 0.7",
        ),
        ({"od0": 0.5, "od1": 0.25}, {}, "above the diagonal: group 0 = 0.5, group 1 = 0.25"),
    ],
)
def test_the_loss_is_the_weighted_sum_of_its_terms(tmp_path, measures, options, end):
    path = folder(tmp_path, {"accuracy": 0.75, "risk": 0.4, "distance": 0.2, **measures}, deviation=0.125)
    header = sweep.panel_header({"options.alpha": 0.75}, path, options)
    upper = "noise = 0.125, loss = 0.25, loss without penalty = 0.4, distance = 0.2"
    assert header == f"{upper}; accuracy = 0.75, {end}"


def test_a_training_without_privacy_has_noise_0_and_the_weight_of_the_recipe(tmp_path):
    path = folder(tmp_path, {"reconstruction": 0.5, "core": 0.3, "distance": 0.1})
    upper = "noise = 0, loss = 0.5, reconstruction loss = 0.5, distance = 0.1"
    assert sweep.panel_header({}, path, {"alpha": 0}) == f"{upper}; loss of the core = 0.3"


def test_other_tasks_have_no_header(tmp_path):
    assert sweep.panel_header({}, folder(tmp_path, {"accuracy": 0.75}), {}) == ""


def test_a_loss_with_a_sum_of_errors_is_not_made_of_their_mean(tmp_path):
    path = folder(tmp_path, {"reconstruction": 0.4, "distance": 0.2, "core": 0.3})
    terms = "noise = 0, reconstruction loss = 0.4, distance = 0.2"
    assert sweep.panel_header({}, path, {"alpha": 0.75, "error": "sum"}) == f"{terms}; loss of the core = 0.3"
