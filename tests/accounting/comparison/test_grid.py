"""The cells of a grid. Oracle: counts and values by hand."""

from __future__ import annotations

import numpy as np
import pytest

from wpriv.accounting import load_recipe
from wpriv.accounting.comparison import grid
from wpriv.core import registry
from wpriv.errors import UsageError

GAUSS = {"mech": "gauss", "sigma": 2}


def cells(**keys):
    return grid.cells(load_recipe.from_flags(keys))


def test_a_grid_is_the_product_of_its_axes_cases_and_accountants():
    axes = [{"over": "n", "values": [1, 2, 3]}, {"over": "sigma", "values": [1, 2]}]
    found = cells(cases={"a": [GAUSS], "b": [GAUSS]}, accountants=["pld", "gdp"], eps=1, sweep=axes)
    assert len(found) == 2 * 2 * 3 * 2
    assert found[0].labels == {"case": "a", "n": 1, "sigma": 1}
    assert found[-1].specs == ({"mech": "gauss", "sigma": 2, "n": 3},)


def test_an_eps_per_composition_grows_with_n():
    found = cells(process=[GAUSS], accountants=["pld"], eps_per_n=0.025, sweep={"over": "n", "values": [1, 256]})
    assert [cell.eps for cell in found] == [0.025, 6.4]


def test_batch_records_and_epochs_become_rate_and_n():
    (cell,) = cells(
        process=[{**GAUSS, "sampling": "poisson", "batch": 256, "records": 60000, "epochs": 60}],
        accountants=["pld"],
        delta=1e-5,
    )
    assert cell.specs[0]["n"] == 14063  # ceil(60 * 60000 / 256), which is 14062.5
    assert cell.specs[0]["rate"] == 256 / 60000


def test_all_stands_for_every_accountant_there_is():
    found = cells(process=[GAUSS], accountants=["all"], eps=1)
    assert [cell.accountant for cell in found] == registry.names("accountants")
    assert len(found) >= 5


def test_the_fingerprint_follows_what_decides_the_result(tmp_path):
    base = {"process": [GAUSS], "accountants": ["pld"], "eps": 1}
    (one,), (same,) = cells(**base), cells(**base, figure="curves", title="x")
    others = [
        cells(**base | change)[0]
        for change in ({"eps": 2}, {"tol": 1e-4}, {"accountants": ["gdp"]}, {"adjacency": "replace-one"})
    ]
    assert one.key() == same.key()
    assert len({one.key(), *(cell.key() for cell in others)}) == 5
    file = tmp_path / "h.csv"
    keys = []
    for p in ("0.5", "0.25"):
        file.write_text(f"outcome,p,q\n0,{p},0.5\n1,{1 - float(p)},0.5\n")
        keys.append(cells(process=[{"mech": "histogram", "file": str(file)}], accountants=["pld"], eps=1)[0].key())
    assert keys[0] != keys[1]


def test_the_fingerprint_follows_a_file_of_a_strategy(tmp_path):
    file, keys = tmp_path / "strategy.npy", set()
    for scale in (1.0, 2.0):
        np.save(file, scale * np.eye(3))
        step = {"mech": "matrix-gauss", "sigma": 1, "strategy": str(file)}
        keys.add(cells(process=[step], accountants=["pld"], eps=1)[0].key())
    assert len(keys) == 2


@pytest.mark.parametrize(
    "keys",
    [
        {"sweep": [{"over": over, "values": {"linspace": [1, 2, 999]}} for over in ("eps", "sigma")]},
        {"eps": 1, "sweep": {"over": "rate", "values": [0.1]}},
    ],
)
def test_a_grid_that_cannot_be_meant_is_refused(keys):
    with pytest.raises(UsageError):
        cells(process=[GAUSS], accountants=["pld"], **keys)
