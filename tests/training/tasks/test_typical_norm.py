"""The unit of Jacobians where the source's features do not move at most of its records."""

from __future__ import annotations

import pytest
import torch

from wpriv.papers.tasks._adapt_steps import NORM_NOT_KNOWN, typical_norm


@pytest.mark.parametrize(
    ("norms", "before", "expected"),
    [
        ([1.0, 2.0, 9.0], 5.0, 2.0),
        ([0.0, 0.0, 0.0, 3.0, 4.0, 8.0, 0.0], 5.0, 4.0),
        ([0.0, 0.0], 5.0, 5.0),
        ([0.0, 0.0], NORM_NOT_KNOWN, 1.0),
    ],
)
def test_the_unit_is_the_median_of_the_norms_that_are_not_0(norms, before, expected):
    assert float(typical_norm(torch.tensor(norms), torch.tensor(before))) == expected
