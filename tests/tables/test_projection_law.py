"""The projection-law table: densities that integrate to one, draws near them, and bounds that say what they are."""

from __future__ import annotations

import pytest

from wpriv.errors import UsageError
from wpriv.tables.projection_law import Params, rows


@pytest.mark.parametrize(("d", "k"), [(784, 200), (50, 30)])
def test_the_exact_density_has_mass_one_and_lies_near_the_draws(d, k):
    """Oracle: 20,000 draws; each bin's share is within 6 standard errors of the density's."""
    bins = [row for row in rows(Params(d=d, k=k, draws=20_000, bins=40)) if row["part"] == "bin"]
    width = bins[1]["x"] - bins[0]["x"]
    assert sum(row["density"] for row in bins) * width == pytest.approx(1, abs=5e-3)
    for row in bins:
        share, drawn = row["density"] * width, row["drawn"] * width
        assert abs(share - drawn) <= 6 * (share / 20_000) ** 0.5 + 2e-3


def test_bounds_are_ordered_and_only_the_normal_one_is_no_bound():
    bounds = {row["name"]: row for row in rows(Params(draws=100)) if row["part"] == "bound"}
    assert (
        bounds["clt"]["x"]
        < bounds["quantile"]["x"]
        < bounds["root"]["x"]
        < bounds["bernstein"]["x"]
        < bounds["bernstein-code"]["x"]
    )
    assert [name for name, row in bounds.items() if row["claim"] == "approximate"] == ["clt"]


def test_few_directions_are_refused():
    with pytest.raises(UsageError, match="k >= 30"):
        rows(Params(k=5))
