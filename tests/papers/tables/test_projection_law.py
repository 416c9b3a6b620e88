"""Table ``projection-law``: the density has mass one and agrees with draws, and bounds have the right claims."""

from __future__ import annotations

from itertools import pairwise

import pytest

from wpriv.errors import UsageError
from wpriv.papers.tables._declared import ProjectionLaw


@pytest.mark.slow
@pytest.mark.parametrize(("d", "k"), [(784, 200), (50, 30)])
def test_the_exact_density_has_mass_one_and_agrees_with_draws(d, k):
    """Oracle: 20,000 draws; the share of each bin is within 6 standard errors of its probability."""
    bins = [row for row in ProjectionLaw(d=d, k=k, draws=20_000, bins=40).rows() if row["part"] == "bin"]
    width = bins[1]["x"] - bins[0]["x"]
    assert sum(row["density"] for row in bins) * width == pytest.approx(1, abs=5e-3)
    for row in bins:
        share, drawn = row["density"] * width, row["drawn"] * width
        assert abs(share - drawn) <= 6 * (share / 20_000) ** 0.5 + 2e-3


def test_bounds_are_ordered_and_only_the_normal_one_is_approximate():
    bounds = {row["name"]: row for row in ProjectionLaw(draws=100).rows() if row["part"] == "bound"}
    widths = [bounds[name]["x"] for name in ("clt", "quantile", "root", "bernstein", "bernstein-code")]
    assert all(narrow < wide for narrow, wide in pairwise(widths))
    assert [name for name, row in bounds.items() if row["claim"] == "approximate"] == ["clt"]


def test_projection_law_refuses_few_directions():
    with pytest.raises(UsageError, match=r"k >= 30.*k = 5"):
        ProjectionLaw(k=5).rows()
