"""Means over repeated runs, against numpy; bounds are those of the worst run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wpriv.results.expectations import means

FINITE = st.floats(-1e6, 1e6)


@given(st.lists(FINITE, min_size=2, max_size=12))
def test_a_mean_and_its_deviation_are_those_of_numpy(values):
    (row,) = means([{"case": "a", "run": k, "accuracy": value} for k, value in enumerate(values)], ["case"])
    assert math.isclose(row["accuracy"], np.mean(values), rel_tol=1e-9, abs_tol=1e-6)
    assert math.isclose(row["accuracy_sd"], np.std(values, ddof=1), rel_tol=1e-6, abs_tol=1e-6)
    assert row["seeds"] == len(values)


def test_one_run_has_a_mean_without_a_deviation():
    assert means([{"accuracy": 0.5, "run": 1}], []) == [{"seeds": 1, "accuracy": 0.5}]


def test_groups_are_kept_apart_in_their_order_and_the_number_of_the_run_is_dropped():
    rows = [{"eps": eps, "run": run, "accuracy": eps + run} for eps in (4, 1) for run in (1, 2)]
    table = means(rows, ["eps"])
    assert [(row["eps"], row["accuracy"], "run" in row) for row in table] == [(4, 5.5, False), (1, 2.5, False)]


@pytest.mark.parametrize("missing", [None, math.nan, math.inf, "word"])
def test_a_quantity_that_one_run_lacks_has_no_mean(missing):
    (row,) = means([{"w2": 1.0, "run": 1}, {"w2": missing, "run": 2}], [])
    assert row["w2"] is None
    assert "w2_sd" not in row


def test_bounds_are_those_of_the_worst_run_and_never_means():
    runs = [{"epsilon": 1.0, "epsilon_lower": 0.9, "run": 1}, {"epsilon": 3.0, "epsilon_lower": 2.9, "run": 2}]
    (row,) = means(runs, [])
    assert (row["epsilon"], row["epsilon_lower"]) == (3.0, 0.9)
    assert not any(name.endswith("_sd") for name in row)
    assert means([*runs, {"epsilon": None, "run": 3}], [])[0]["epsilon"] is None


def test_words_are_kept_where_all_runs_agree():
    rows = [{"claim": "exact", "note": "a", "run": 1}, {"claim": "exact", "note": "b", "run": 2}]
    (row,) = means(rows, [])
    assert (row["claim"], row["note"]) == ("exact", None)
