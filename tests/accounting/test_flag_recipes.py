"""Axes of a sweep as flags write them. Oracle: the same axis as data."""

from __future__ import annotations

import pytest

from wpriv.accounting import load_recipe
from wpriv.errors import UsageError


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("n=1,2^4,1e3", {"over": "n", "values": [1, 16, 1000]}),
        ("eps=linspace:0,4,81", {"over": "eps", "values": {"linspace": [0, 4, 81]}}),
        (" sigma = powers:2,0,3", {"over": "sigma", "values": {"powers": [2, 0, 3]}}),
    ],
)
def test_an_axis_may_be_written_on_one_line(text, axis):
    assert load_recipe.sweep(text) == axis


@pytest.mark.parametrize("text", ["", "n", "n=", "=1", "n=a", "n=1,,2", "n=nan", "eps=linspace:"])
def test_a_faulty_axis_is_refused(text):
    with pytest.raises(UsageError):
        load_recipe.sweep(text)
